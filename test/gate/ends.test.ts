import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import {
  type FsmAction,
  managedHandle,
  memoryStore,
  principalKey,
  StateMachineGate,
} from '../../src/index.ts';
import { type Runs, runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { few } from '../helpers/few.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { plainStore } from '../helpers/operations.ts';
import { begins, type SceneClient, type SceneOptions, scene } from '../helpers/scene.ts';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const AT_START = ['cart.add_item', 'cart.view'];
const AT_END = ['cart.view'];
const BY_PRINCIPAL = { session: { key: principalKey() } };
const ANN = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'ann' });

async function paysOnce(client: SceneClient): Promise<void> {
  for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) await client.calls(tool);
}

const moved = async (runs: Runs, run = ANN) =>
  (await runs.history(run)).map(({ version, from, to, event }) => [version, from, to, event]);

describe('the run of a principal that has ended', () => {
  it('shows the initial state’s tools, and begins anew with the next call of one', async () => {
    const app = await scene(BY_PRINCIPAL);
    const ann = await app.client('ann');
    await ann.raw.streaming;
    await paysOnce(ann);
    await ann.isTold(3);
    await ann.sees(AT_START);
    expect(await app.runs.read(ANN)).toMatchObject({
      ended: true,
      snapshot: { state: 'confirmed' },
    });

    await ann.calls('cart.add_item');
    await ann.isTold(4);
    await ann.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    expect(await moved(app.runs)).toEqual([
      [1, 'empty', 'has_items', 'ADD_ITEM'],
      [2, 'has_items', 'payment', 'CHECKOUT'],
      [3, 'payment', 'confirmed', 'PAY'],
      [4, 'confirmed', 'empty', 'restart'],
      [5, 'empty', 'has_items', 'ADD_ITEM'],
    ]);
    const restart = (await app.runs.history(ANN))[3];
    expect(restart).toMatchObject({ actor: expect.stringContaining('ann') });
    expect(restart).not.toHaveProperty('tool');
    await ann.calls('cart.checkout');
    await ann.calls('cart.pay');
    expect(app.ledger.calls.filter((tool) => tool === 'cart.pay')).toHaveLength(2);
    expect(await app.runs.read(ANN)).toMatchObject({ ended: true });
  });

  it('costs one claim and one commit more, only for the restart', async () => {
    const app = await scene(BY_PRINCIPAL);
    const ann = await app.client('ann');
    await paysOnce(ann);
    app.store.take();
    await ann.calls('cart.add_item');
    expect(app.store.take()).toEqual(['claim', 'commit', 'claim', 'commit']);
    await ann.calls('cart.add_item');
    expect(app.store.take()).toEqual(['claim', 'commit']);
  });

  it('refuses what the initial state does not allow, and stays ended', async () => {
    const app = await scene(BY_PRINCIPAL);
    const ann = await app.client('ann');
    await paysOnce(ann);
    const { text } = await ann.isRefused('cart.pay', 'state');
    expect(text).toBe(
      '[System: cart.pay is not available while checkout is in "empty". Available now: ' +
        'cart.add_item. ' +
        'To reach cart.pay, call cart.add_item, then cart.checkout first.]',
    );
    expect((await moved(app.runs)).at(-1)).toEqual([3, 'payment', 'confirmed', 'PAY']);
    await app.run(ANN).isIn('confirmed');
  });

  it('begins anew once if several calls come at the same time', async () => {
    const app = await scene(BY_PRINCIPAL);
    const [one, other] = [await app.client('ann'), await app.client('ann')];
    await paysOnce(one);
    await Promise.all([one, other, one, other].map((client) => client.calls('cart.add_item')));
    expect((await moved(app.runs)).slice(3).map(([, , , event]) => event)).toEqual([
      'restart',
      ...Array(4).fill('ADD_ITEM'),
    ]);
  });

  it('begins anew for one user alone', async () => {
    const app = await scene(BY_PRINCIPAL);
    const [ann, bob] = [await app.client('ann'), await app.client('bob')];
    await paysOnce(ann);
    await bob.calls('cart.add_item');
    await ann.calls('cart.add_item');
    await bob.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    await bob.calls('cart.checkout');
  });

  it('says that it ended, and which call may come next', async () => {
    const app = await scene({ ...BY_PRINCIPAL, gate: { announce: true } });
    const ann = await app.client('ann');
    await ann.calls('cart.add_item');
    await ann.calls('cart.checkout');
    expect((await ann.calls('cart.pay')).texts[1]).toBe(
      '[System: checkout is now in "confirmed". Available now: cart.add_item.]',
    );
  });

  it("stays ended with `whenEnded: keep`, and lists its last state's tools", async () => {
    const app = await scene({ ...BY_PRINCIPAL, gate: { whenEnded: 'keep' } });
    const ann = await app.client('ann');
    await paysOnce(ann);
    await ann.sees(AT_END);
    expect((await ann.isRefused('cart.add_item', 'state')).text).toContain('in "confirmed"');
    expect(await moved(app.runs)).toHaveLength(3);
  });

  it('is known by its state if an older version saved it without an end', async () => {
    const clock = new ManualClock();
    const data = memoryStore({ now: clock.now });
    const older: AtomicStateStore = {
      ...plainStore(data),
      commit: ({ ended: _, ...request }) => data.commit(request),
    };
    const app = await scene({ ...BY_PRINCIPAL, data: older });
    const ann = await app.client('ann');
    await paysOnce(ann);
    await ann.sees(AT_START);
    await ann.calls('cart.add_item');
  });

  it('never offers a tool that is bound to its end alone, and warns of that once', async () => {
    const workflow = checkoutGate().bindTool('cart.view', 'confirmed') as never;
    const app = await scene({ ...BY_PRINCIPAL, workflow });
    const ann = await app.client('ann');
    await paysOnce(ann);
    await ann.sees(['cart.add_item']);
    await ann.isRefused('cart.view', 'state');
    expect(app.warnings.filter((warning) => warning.includes('whenEnded'))).toEqual([
      expect.stringMatching(
        /^the gate "checkout" binds "cart\.view" to final states alone, so it is/,
      ),
    ]);
    const kept = await scene({ ...BY_PRINCIPAL, workflow, gate: { whenEnded: 'keep' } });
    const bob = await kept.client('bob');
    await paysOnce(bob);
    await bob.calls('cart.view');
    expect(kept.warnings.filter((warning) => warning.includes('whenEnded'))).toEqual([]);
  });

  it('never begins anew in a final state', async () => {
    const workflow = new StateMachineGate<string, string>({
      id: 'over',
      initial: 'over',
      states: { over: { type: 'final' } },
    }).bindTool('cart.view', 'over', { success: () => undefined });
    const app = await scene({ ...BY_PRINCIPAL, workflow });
    const ann = await app.client('ann');
    await ann.calls('cart.view');
    await ann.calls('cart.view');
    expect(await moved(app.runs)).toHaveLength(2);
  });

  it('behaves as a model of it says, for any calls', async () => {
    const app = await scene(BY_PRINCIPAL);
    const EVENTS = { 'cart.add_item': 'ADD_ITEM', 'cart.checkout': 'CHECKOUT', 'cart.pay': 'PAY' };
    let users = 0;
    const calls = fc.array(fc.constantFrom(...(Object.keys(EVENTS) as (keyof typeof EVENTS)[])), {
      maxLength: 14,
    });
    await fc.assert(
      fc.asyncProperty(calls, async (tools) => {
        const client = await app.client(`user-${users++}`);
        const model = checkoutGate();
        for (const tool of tools) {
          const start = checkoutGate();
          const stands = model.currentState === 'confirmed' ? start : model;
          const isAllowed = stands.isToolAllowed(tool);
          expect((await client.raw.call(tool)).isError, tools.join()).toBe(!isAllowed);
          if (!isAllowed) continue;
          if (stands === start) model.restore(start.snapshot());
          await model.transition(EVENTS[tool] as 'PAY');
        }
      }),
      few(8),
    );
  });
});

describe('the run of a session or a handle that has ended', () => {
  it('stays ended, because the client can get a new one', async () => {
    const app = await scene();
    const client = await app.client();
    await paysOnce(client);
    await client.sees(AT_END);
    const { text } = await client.isRefused('cart.add_item', 'state');
    expect(text).toContain('cart.add_item cannot be reached from here by calling tools.');
    const another = await app.client();
    await another.calls('cart.add_item');
  });

  it('begins anew with `whenEnded: restart`', async () => {
    const app = await scene({ gate: { whenEnded: 'restart' } });
    const client = await app.client();
    await paysOnce(client);
    await client.sees(AT_START);
    await client.calls('cart.add_item');
    expect((await moved(app.runs, client.run)).at(-2)).toEqual([
      4,
      'confirmed',
      'empty',
      'restart',
    ]);
  });

  it('tells the model how to begin another one, if a tool does that', async () => {
    const key = managedHandle({ start: 'checkout.start', argument: 'basket' });
    const app = await scene({ session: { key } });
    const client = await app.client('ann');
    const begin = async () => {
      const { structuredContent } = await client.raw.client.callTool({ name: 'checkout.start' });
      return structuredContent as { basket: string };
    };
    const basket = await begin();
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay'])
      await client.calls(tool, basket);
    expect((await client.isRefused('cart.pay', 'state', basket)).text).toBe(
      '[System: cart.pay is not available while checkout is in "confirmed". No tool of ' +
        'checkout is available now. ' +
        'This run of checkout has ended. Call checkout.start to begin a new one, and pass ' +
        'the "basket" that it returns.]',
    );
    await client.calls('cart.add_item', await begin());
  });
});

describe('the lifetime of an ended run', () => {
  /** `view` moves nothing, so a call of it needs no claim. */
  const withView = () => checkoutGate().bindTool('cart.view', 'payment');
  /** A statechart's states cannot be listed, so each call of it claims the run. */
  const chart = () =>
    new StateMachineGate(
      createMachine({
        id: 'checkout',
        initial: 'empty',
        states: {
          empty: { on: { ADD_ITEM: 'has_items' } },
          has_items: { on: { CHECKOUT: 'payment' } },
          payment: { on: { PAY: 'confirmed' } },
          confirmed: { type: 'final' },
        },
      }),
    )
      .bindTool('cart.add_item', 'empty', 'ADD_ITEM')
      .bindTool('cart.checkout', 'has_items', 'CHECKOUT')
      .bindTool('cart.pay', 'payment', 'PAY')
      .bindTool('cart.view', 'payment');

  for (const [name, workflow] of [
    ['a flat machine', withView],
    ['a statechart', chart],
  ] as const) {
    for (const whenEnded of ['keep', 'restart'] as const) {
      it(`is not prolonged by refused calls and lists (${name}, ${whenEnded})`, async () => {
        const options = { ...BY_PRINCIPAL, gate: { whenEnded } };
        const app = await scene({ ...options, workflow: workflow() as never });
        const ann = await app.client('ann');
        await paysOnce(ann);
        for (let hours = 0; hours < 20; hours += 5) {
          app.clock.advance(5 * 60 * MINUTE);
          await ann.isRefused('cart.pay', 'state');
          await ann.isRefused('cart.view', 'state');
          await ann.raw.tools();
          await app.runs.read(ANN);
        }
        expect(await app.data.read(ANN, DAY, 'checkout')).toBeDefined();
        app.clock.advance(DAY - 20 * 60 * MINUTE);
        expect(await app.data.read(ANN, DAY)).toBeUndefined();
      });
    }
  }

  it('is prolonged by calls that are refused while it has not ended', async () => {
    const app = await scene(BY_PRINCIPAL);
    const ann = await app.client('ann');
    await ann.calls('cart.add_item');
    for (let day = 0; day < 3; day++) {
      app.clock.advance(DAY - 1);
      await ann.isRefused('cart.pay', 'state');
    }
    await app.run(ANN).isIn('has_items');
  });

  it('is that of its session, even while its calls are refused', async () => {
    const app = await scene();
    const client = await app.client();
    await paysOnce(client);
    for (let day = 0; day < 3; day++) {
      app.clock.advance(DAY - 1);
      await client.isRefused('cart.pay', 'state');
    }
    await client.sees(AT_END);
  });
});

describe('a run that begins anew', () => {
  it('gets no key of an earlier try, so a second payment cannot pass for the first', async () => {
    const keys: unknown[] = [];
    const workflow = new StateMachineGate<string, string>({
      id: 'checkout',
      initial: 'open',
      states: { open: { on: { PAY: 'paid', CLOSE: 'paid' } }, paid: { type: 'final' } },
    })
      .bindTool('cart.pay', 'open', { success: 'PAY', uncertain: 'retry' })
      .bindTool('cart.checkout', 'open', 'CLOSE');
    let isCut = true;
    const app = await scene({
      ...BY_PRINCIPAL,
      workflow,
      shape: { mode: 'stateless', answers: 'json', parser: true },
      behind: [
        (req, res, next) => {
          if (req.body?.params?.name !== 'cart.pay') return next();
          keys.push(req.body.params._meta['mcp-interlock/idempotencyKey']);
          if (isCut) res.destroy();
          else next();
        },
      ],
    });
    const ann = await app.client('ann');
    await expect(ann.raw.call('cart.pay', { sku: 'a' })).rejects.toThrow();
    app.clock.advance(8_000);
    isCut = false;
    await ann.calls('cart.checkout');
    await ann.calls('cart.pay', { sku: 'a' });
    const moves = (await app.runs.history(ANN)).filter(({ to }) => to !== undefined);
    const events = moves.map(({ event }) => event);
    expect(events).toEqual(['CLOSE', 'restart', 'PAY']);
    expect(new Set(keys).size).toBe(2);
  });

  it('is a statechart in its first states, with its first data and their actions', async () => {
    const actions: FsmAction[] = [];
    const machine = createMachine({
      id: 'checkout',
      type: 'parallel',
      context: { paid: 0 },
      states: {
        money: {
          initial: 'due',
          states: {
            due: { entry: 'greet', on: { PAY: { target: 'done' } } },
            done: { type: 'final' },
          },
        },
        goods: {
          initial: 'packing',
          states: { packing: { on: { ADD_ITEM: 'done' } }, done: { type: 'final' } },
        },
      },
    });
    const workflow = new StateMachineGate(machine, {
      onAction: (action) => void actions.push(action),
    })
      .bindTool('cart.pay', 'money.due', 'PAY')
      .bindTool('cart.add_item', 'goods.packing', 'ADD_ITEM');
    const app = await scene({ ...BY_PRINCIPAL, workflow: workflow as never });
    const ann = await app.client('ann');
    await app.runs.read(ANN);
    await ann.calls('cart.pay');
    expect(await app.runs.read(ANN)).toMatchObject({ ended: false });
    await app.runs.update(ANN, () => ({ paid: 5 }));
    await ann.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    await ann.calls('cart.add_item');
    expect(await app.runs.read(ANN)).toMatchObject({ ended: true, context: { paid: 5 } });
    await ann.sees(['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']);
    await ann.calls('cart.pay');
    expect(await app.runs.read(ANN)).toMatchObject({
      ended: false,
      context: { paid: 0 },
      snapshot: { state: '(money.done|goods.packing)', version: 5 },
    });
    expect(actions.map(({ type }) => type)).toEqual(['greet', 'greet']);
  });

  it("first comes to its end if its state's deadline has passed", async () => {
    const workflow = new StateMachineGate<string, string>({
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { ADD_ITEM: 'payment' } },
        payment: { on: { PAY: 'confirmed' }, after: { [15 * MINUTE]: 'expired' } },
        confirmed: { type: 'final' },
        expired: { type: 'final' },
      },
    })
      .bindTool('cart.add_item', 'empty', 'ADD_ITEM')
      .bindTool('cart.pay', 'payment', 'PAY');
    const app = await scene({ ...BY_PRINCIPAL, workflow });
    const ann = await app.client('ann');
    await ann.calls('cart.add_item');
    app.clock.advance(15 * MINUTE);
    await ann.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    await ann.isRefused('cart.pay', 'state');
    await ann.calls('cart.add_item');
    expect((await moved(app.runs)).map(([, , to, event]) => [to, event])).toEqual([
      ['payment', 'ADD_ITEM'],
      ['expired', 'after'],
      ['empty', 'restart'],
      ['payment', 'ADD_ITEM'],
    ]);
  });

  it('leaves the other workflows of its run where they are', async () => {
    const review = new StateMachineGate<string, string>({
      id: 'review',
      initial: 'waiting',
      states: { waiting: { on: { VIEW: 'seen' } }, seen: { on: { VIEW: 'seen' } } },
    }).bindTool('cart.view', ['waiting', 'seen'], 'VIEW');
    const app = await scene({ ...BY_PRINCIPAL, workflow: [checkoutGate() as never, review] });
    const ann = await app.client('ann');
    await ann.calls('cart.view');
    await paysOnce(ann);
    await ann.calls('cart.add_item');
    const reviews = runsOf(review, { sessions: app.sessions });
    expect(await reviews.read(ANN)).toMatchObject({ snapshot: { state: 'seen', version: 1 } });
    expect(await app.runs.read(ANN)).toMatchObject({ snapshot: { state: 'has_items' } });
  });
});

describe('runs.restart()', () => {
  const start = (options: SceneOptions = {}) => scene({ ...BY_PRINCIPAL, ...options });

  it('begins a run anew in every state, and tells its client', async () => {
    const app = await start();
    const ann = await app.client('ann');
    await ann.raw.streaming;
    await ann.calls('cart.add_item');
    await ann.calls('cart.checkout');
    await app.runs.update(ANN, () => ({ sum: 5 }));
    await ann.isTold(2);
    expect(await app.runs.restart(ANN, { actor: 'support' })).toEqual({
      restarted: true,
      state: 'empty',
    });
    await ann.isTold(3);
    await ann.sees(AT_START);
    expect((await app.runs.history(ANN)).at(-1)).toMatchObject({
      version: 4,
      from: 'payment',
      to: 'empty',
      event: 'restart',
      actor: 'support',
    });
    expect(await app.runs.read(ANN)).not.toHaveProperty('context');
  });

  it('begins a run anew that would stay ended', async () => {
    const app = await scene();
    const client = await app.client();
    await paysOnce(client);
    await app.runs.restart(client.run);
    await client.calls('cart.add_item');
  });

  it('refuses a run that is running, at once, and one that is held or unknown', async () => {
    const app = await start();
    const ann = await app.client('ann');
    expect(await app.runs.restart(ANN)).toEqual({ restarted: false, reason: 'unknown-run' });
    const adding = await begins(app, 'cart.add_item', () => ann.calls('cart.add_item'));
    const elsewhere = runsOf(checkoutGate(), { store: app.data });
    for (const runs of [app.runs, elsewhere])
      expect(await runs.restart(ANN)).toEqual({ restarted: false, reason: 'busy' });
    adding.finish();
    await adding.answer;
    const dead = {
      run: ANN,
      workflow: 'checkout',
      token: crypto.randomUUID(),
      leaseMs: 1,
      ttlMs: DAY,
    } as const;
    await app.data.claim({
      ...dead,
      step: { tool: 'cart.pay', digest: '', uncertain: 'hold' },
      states: undefined,
      initial: { state: 'empty', updatedAt: 0 },
    });
    app.clock.advance(1);
    expect(await app.runs.restart(ANN)).toEqual({ restarted: false, reason: 'held' });
    await app.run(ANN).isIn('has_items');
  });

  it('takes an actor and nothing else', async () => {
    const app = await start();
    await expect(app.runs.restart(ANN, { actr: 'ops' } as never)).rejects.toThrow(
      /restart\(\).*did you mean "actor"/,
    );
  });
});

describe('a run that begins anew', () => {
  it('goes on counting for the limits of a machine’s tools', async () => {
    const gate = new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: { type: 'final' } },
    }).bindTool('cart.pay', 'open', { success: 'PAY', limit: { times: 2, within: '1h' } });
    const app = await scene({ ...BY_PRINCIPAL, workflow: gate });
    const ann = await app.client('ann');
    await ann.calls('cart.pay');
    await ann.calls('cart.pay');
    await ann.isRefused('cart.pay', 'limit');
    expect(await app.runs.restart(ANN)).toMatchObject({ restarted: true });
    await ann.isRefused('cart.pay', 'limit');
    app.clock.advance(60 * MINUTE);
    await ann.calls('cart.pay');
    expect(app.errors).toEqual([]);
  });
});
