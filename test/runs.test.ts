import { describe, expect, it } from 'vitest';
import {
  currentStep,
  InterlockError,
  localBus,
  memoryStore,
  principalKey,
  StateMachineGate,
  sessionKey,
  sessionStore,
} from '../src/index.ts';
import { type RunsOptions, runsOf } from '../src/runs/index.ts';
import { begins, passUntil, type SceneOptions, scene } from './helpers/scene.ts';

/** An order over a limit waits for an approval. */
function orderGate() {
  return new StateMachineGate({
    id: 'order',
    initial: 'cart',
    states: {
      cart: { on: { SUBMIT: 'waiting' } },
      waiting: { on: { APPROVE: 'approved', REJECT: 'cart' } },
      approved: { on: { PAY: 'paid' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('cart.add_item', 'cart', 'SUBMIT')
    .bindTool('cart.pay', 'approved', 'PAY');
}

/** A client of an order, and the app's own access to its run. */
async function order(options: SceneOptions = {}) {
  const workflow = orderGate();
  const app = await scene({ workflow, ...options });
  const client = await app.client();
  return {
    ...app,
    workflow,
    client,
    key: client.run,
    order: app.run(client.run),
    /** Of a program that has the store, and serves no client. */
    outside: runsOf(workflow, { store: app.data }),
  };
}

describe('read()', () => {
  it('has the tools of the state in which the run stands', async () => {
    const { client, key, runs } = await order();
    const available = async () => (await runs.read(key))?.available;
    expect(await available()).toEqual(['cart.add_item']);
    await client.calls('cart.add_item');
    expect(await available()).toEqual([]);
    await runs.send(key, 'APPROVE');
    expect(await available()).toEqual(['cart.pay']);
    await client.calls('cart.pay');
    expect(await runs.read(key)).toMatchObject({ ended: true, available: [] });
  });
});

describe('send()', () => {
  it('moves a run as a step does, and has its client told', async () => {
    const { client, key, runs, workflow } = await order();
    await client.raw.streaming;
    await client.calls('cart.add_item');
    const { told } = client;
    const moves: unknown[] = [];
    workflow.onTransition(
      ({ run, currentState, event }) => void moves.push([run, currentState, event]),
    );
    expect(
      await runs.send(key, 'APPROVE', { actor: 'manager', payload: { note: 'fine' } }),
    ).toEqual({ sent: true, changed: true, state: 'approved' });
    await client.isTold(told + 1);
    await client.sees(['cart.checkout', 'cart.pay', 'cart.view']);
    expect((await runs.history(key)).at(-1)).toMatchObject({
      version: 2,
      from: 'waiting',
      to: 'approved',
      event: 'APPROVE',
      actor: 'manager',
      payload: { note: 'fine' },
    });
    expect(moves).toEqual([[key, 'approved', 'APPROVE']]);
  });

  it('does nothing for an unknown event or an unknown run', async () => {
    const { key, outside } = await order();
    expect(await outside.send(key, 'APPROVE')).toEqual({ sent: false, reason: 'unhandled' });
    expect(await outside.send('nobody', 'APPROVE')).toEqual({ sent: false, reason: 'unknown-run' });
    expect(await outside.history(key)).toEqual([]);
  });

  it('waits for the step that is under way', async () => {
    const { client, key, runs, ...app } = await order();
    const step = await begins(app, 'cart.add_item', () => client.calls('cart.add_item'));
    const sent = runs.send(key, 'APPROVE');
    step.finish();
    await step.answer;
    expect(await sent).toMatchObject({ sent: true, state: 'approved' });
  });

  it('of several at a time lets one through', async () => {
    const { client, clock, key, runs, outside } = await order();
    await client.calls('cart.add_item');
    const sending = [runs, outside].flatMap((each) => [
      each.send(key, 'APPROVE'),
      each.send(key, 'REJECT'),
    ]);
    const sent = await passUntil(clock, Promise.all(sending));
    expect(sent.filter((each) => each.sent)).toHaveLength(1);
  });

  it('reaches a client whose stream is in another process', async () => {
    const bus = localBus();
    const { client, key, ...app } = await order({ session: { bus } });
    await client.raw.streaming;
    await client.calls('cart.add_item');
    const { told } = client;
    const elsewhere = await scene({ workflow: orderGate(), session: { bus }, beside: app });
    await elsewhere.runs.send(key, 'APPROVE');
    await client.isTold(told + 1);
  });

  it('tells no client where the gate shows the same list in every state', async () => {
    const stable = new StateMachineGate({
      id: 'stable',
      initial: 'a',
      states: { a: { on: { GO: 'b' } }, b: {} },
    }).bindTool('cart.view', 'b');
    const { client, key, sessions, workflow } = await order({
      workflow: [[stable, { visibility: 'stable' }], orderGate()],
    });
    await client.raw.streaming;
    expect(await runsOf(stable, { sessions }).send(key, 'GO')).toMatchObject({
      sent: true,
      changed: true,
    });
    await runsOf(workflow, { sessions }).send(key, 'SUBMIT');
    await client.isTold(1);
    expect(client.raw.log).toEqual(['list_changed']);
  });

  it('tells each session of a principal whose run it is', async () => {
    const { client, runs } = await order({
      session: { key: [principalKey(), sessionKey()], principal: () => 'ann' },
    });
    await client.raw.streaming;
    await client.calls('cart.add_item');
    const { told } = client;
    await runs.send(principalKey().runKey('ann'), 'APPROVE');
    await client.isTold(told + 1);
  });

  it('refuses a handler that would move the run of its own step', async () => {
    let refused: unknown;
    const { client, runs } = await order({
      behind: [
        (req, _res, next) => {
          const step = currentStep(req);
          if (step === undefined) return next();
          runs.send(step.run, 'APPROVE', { step }).catch((error: unknown) => {
            refused = error;
            next();
          });
        },
      ],
    });
    await client.calls('cart.add_item');
    expect(String(refused)).toContain('inside a step of the same run');
  });

  it('refuses a payload that is not JSON', async () => {
    const { key, outside } = await order();
    const circle: { self?: unknown } = {};
    circle.self = circle;
    for (const [payload, fault] of [
      [circle, 'send(): the payload.self contains itself'],
      [{ at: new Date(0) }, 'send(): the payload.at is a Date, which is not JSON'],
    ]) {
      const sent = outside.send(key, 'APPROVE', { payload: payload as never });
      await expect(sent).rejects.toMatchObject({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining(fault as string),
      });
    }
  });

  it('refuses what is no event', async () => {
    const { key, outside } = await order();
    await expect(outside.send(key, '' as 'APPROVE')).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_EVENT',
    });
  });
});

describe('update()', () => {
  it('changes the data of a run without a race, and keeps its state', async () => {
    const { clock, key, runs, outside, ...app } = await order();
    const add = () =>
      runs.update(key, (context) => ({ seen: ((context as { seen?: number })?.seen ?? 0) + 1 }));
    const keep = () => outside.update(key, (context) => context ?? {});
    await passUntil(clock, Promise.all([add(), add(), keep(), add()]));
    expect((await runs.read(key))?.context).toEqual({ seen: 3 });
    await app.order.isIn('cart');
  });

  it('is kept across the moves of the run', async () => {
    const { client, key, runs } = await order();
    await runs.update(key, () => ({ total: 7 }), { actor: 'job' });
    await client.calls('cart.add_item');
    expect(await runs.read(key)).toMatchObject({
      context: { total: 7 },
      snapshot: { state: 'waiting' },
    });
    expect((await runs.history(key))[0]).toMatchObject({ event: null, actor: 'job' });
  });

  it.each([
    ['moves the run', {}, 'waiting'],
    ['fails', { fail: true }, 'cart'],
  ])('takes part in a step that %s', async (_, args, state) => {
    const { client, key, runs } = await order({
      behind: [
        (req, _res, next) => {
          const step = currentStep(req);
          step?.update(() => ({ total: 1 }));
          const more = (context: unknown) => ({ ...(context as object), more: true });
          if (step !== undefined) void runs.update(step.run, more, { step });
          next();
        },
      ],
    });
    await client.raw.call('cart.add_item', args);
    expect(await runs.read(key)).toMatchObject({
      context: { total: 1, more: true },
      snapshot: { state },
    });
    expect(await runs.history(key)).toHaveLength(1);
  });

  it('changes nothing where the change throws, or is not JSON', async () => {
    const { key, outside } = await order();
    await expect(
      outside.update(key, () => {
        throw new Error('no');
      }),
    ).rejects.toThrow('no');
    await expect(outside.update(key, () => (() => {}) as never)).rejects.toThrow();
    expect(await outside.update(key, () => ({ free: true }))).toMatchObject({ updated: true });
    expect(await outside.update('nobody', () => 1)).toEqual({
      updated: false,
      reason: 'unknown-run',
    });
  });
});

describe('what is wrong with a request', () => {
  const config = (message: string) => ({
    code: 'ERR_INTERLOCK_CONFIG',
    message: expect.stringContaining(message),
  });

  it('is said of an outcome, of which none but "failed" was failed once', async () => {
    const { key, outside } = await order();
    await expect(outside.resolve(key, 'failure' as 'failed')).rejects.toMatchObject(
      config('resolve(): expected "succeeded" or "failed", got "failure"'),
    );
  });

  it('is said of an event to resolve by', async () => {
    const { key, outside } = await order();
    const resolved = outside.resolve(key, 'succeeded', { event: '' as 'PAY' });
    await expect(resolved).rejects.toMatchObject({ code: 'ERR_INTERLOCK_EVENT' });
  });

  it('is said of its options', async () => {
    const { key, outside } = await order();
    const misspelt = { actr: 'mia' } as { actor?: string };
    const said = 'unknown key "actr", did you mean "actor"?';
    await expect(outside.send(key, 'SUBMIT', misspelt)).rejects.toMatchObject(
      config(`send(): ${said}`),
    );
    await expect(outside.update(key, () => 1, misspelt)).rejects.toMatchObject(
      config(`update(): ${said}`),
    );
    await expect(outside.resolve(key, 'failed', misspelt)).rejects.toMatchObject(
      config(`resolve(): ${said}`),
    );
    await expect(outside.send(key, 'SUBMIT', 'mia' as never)).rejects.toMatchObject(
      config('send(): expected object, got "mia"'),
    );
    expect(await outside.history(key)).toEqual([]);
  });

  it('is said of a change that is none', async () => {
    const { key, outside } = await order();
    await expect(outside.update(key, { slot: 1 } as never)).rejects.toMatchObject(
      config('update(): expected a function, got an object'),
    );
  });

  it('is said of one run in the place of a list', async () => {
    const { key, outside } = await order();
    await expect(outside.sweep(key)).rejects.toMatchObject(
      config('sweep(): expected a list of runs, got "'),
    );
  });

  it('is said of sessions in the place of the options', () => {
    expect(() => runsOf(orderGate(), sessionStore() as RunsOptions)).toThrow(
      'give either { sessions }',
    );
  });
});

it.each([
  [{}, 'either { sessions }'],
  [{ sessions: sessionStore(), store: memoryStore() }, 'either { sessions }'],
  [{ stroe: memoryStore() }, 'store'],
  [
    { sessions: memoryStore() },
    'sessions: expected what sessionStore() of this copy of mcp-interlock returned, got an object',
  ],
  [{ store: 'redis://cache.test' }, 'store: expected a store, such as redisStore({ client })'],
])('names what is wrong with its options', (options, message) => {
  const make = () => runsOf(orderGate(), options as RunsOptions);
  expect(make).toThrow(InterlockError);
  expect(make).toThrow(message);
});

it('keeps a run that is looked at for 24 hours more, where nothing else is said', async () => {
  const day = 24 * 60 * 60 * 1000;
  let time = 1_700_000_000_000;
  const kept = memoryStore({ now: () => time });
  await kept.open('order-1', {}, 1_000);
  const runs = runsOf(orderGate(), { store: kept });
  expect(await runs.read('order-1')).toBeDefined();
  time += day - 1;
  expect(await runs.read('order-1')).toBeDefined();
  time += day;
  expect(await runs.read('order-1')).toBeUndefined();
});
