import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import { claimed, claimOf } from '../../packages/testing/src/fixtures.ts';
import { StateMachineGate } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { callOf, RawSession, reasonOf, send } from '../helpers/raw.ts';
import { begins, pass, type SceneOptions, scene } from '../helpers/scene.ts';

/*
 * A model sends `cart.checkout` and `cart.pay` in one turn: the second one depends on the first.
 */

type AnyGate = StateMachineGate<string, string>;

const machine = {
  id: 'w',
  initial: 'open',
  states: {
    open: { on: { GO: 'ready', FAIL: 'stuck' } },
    ready: { on: { GO: 'ready' } },
    stuck: {},
  },
} as const;
const flat = () => new StateMachineGate(machine);
const chart = () =>
  new StateMachineGate(
    createMachine({
      id: 'chart',
      type: 'parallel',
      states: {
        a: {
          initial: 'open',
          states: { open: { on: { GO: 'ready' } }, ready: { tags: 'can pay' } },
        },
        b: { initial: 'idle', states: { idle: {} } },
      },
    }),
  );

/** Each form of a binding or rule by which `cart.pay` depends on `cart.checkout`. */
const FORMS: Readonly<Record<string, () => unknown>> = {
  'a call that moves nothing, after a step': () =>
    flat().bindTool('cart.checkout', 'open', 'GO').bindTool('cart.pay', 'ready'),
  'a call that moves nothing, whose guard agrees': () =>
    flat()
      .bindTool('cart.checkout', 'open', 'GO')
      .bindTool('cart.pay', 'ready', { guard: async () => true }),
  'a step after a step': () =>
    flat().bindTool('cart.checkout', 'open', 'GO').bindTool('cart.pay', 'ready', 'GO'),
  'a call after a step whose event a function chooses': () =>
    flat()
      .bindTool('cart.checkout', 'open', { success: () => 'GO' })
      .bindTool('cart.pay', 'ready'),
  'a call of a tool that does several things': () =>
    flat()
      .bindTool('cart.checkout', 'open', 'GO')
      .bindTool('cart.pay', 'ready', { when: ({ sku }) => sku === 'a' })
      .bindTool('cart.pay', 'stuck', { when: ({ sku }) => sku !== 'a' }),
  'a call in a statechart, by a tag': () =>
    chart().bindTool('cart.checkout', 'a.open', 'GO').bindTool('cart.pay', { tag: 'can pay' }),
  'a rule after a lookup': () =>
    StateMachineGate.fromOrder({ 'cart.pay': { after: ['cart.checkout'] } }, { id: 'w' }),
  'a rule after a lookup with the same argument': () =>
    StateMachineGate.fromOrder(
      { 'cart.pay': { after: [{ tool: 'cart.checkout', same: ['sku'] }] } },
      { id: 'w' },
    ),
  'a rule after a step': () =>
    StateMachineGate.fromOrder(
      { 'cart.checkout': { once: true }, 'cart.pay': { after: ['cart.checkout'] } },
      { id: 'w' },
    ),
  'a rule after any of two': () =>
    StateMachineGate.fromOrder(
      { 'cart.pay': { after: { any: ['cart.view', 'cart.checkout'] } } },
      { id: 'w' },
    ),
};
describe.each(Object.entries(FORMS))('%s', (_, gate) => {
  const workflow = gate as () => AnyGate;

  it('passes in 25 turns of 25, beside the call that it depends on', async () => {
    const app = await scene({ workflow: workflow(), shape: { answers: 'json' } });
    for (let turn = 0; turn < 25; turn++) {
      const session = await app.session();
      const both = ['cart.checkout', 'cart.pay'].map((tool) => session.call(tool, { sku: 'a' }));
      const reasons = (await Promise.all(both)).map(reasonOf);
      expect(reasons, `turn ${turn}`).toEqual([undefined, undefined]);
    }
    expect(app.errors).toEqual([]);
  }, 30_000);

  it('passes in no turn in which that call fails', async () => {
    const app = await scene({ workflow: workflow(), shape: { answers: 'json' } });
    for (let turn = 0; turn < 10; turn++) {
      const session = await app.session();
      const first = session.call('cart.checkout', { sku: 'a', fail: true });
      const second = session.call('cart.pay', { sku: 'a' });
      expect((await first).result?.isError).toBe(true);
      expect(reasonOf(await second), `turn ${turn}`).toBe('state');
    }
    expect(app.ledger.calls.filter((tool) => tool === 'cart.pay')).toEqual([]);
  });
});

/** `cart.pay` moves nothing, and is available after `cart.checkout`. */
const paid = () => flat().bindTool('cart.checkout', 'open', 'GO').bindTool('cart.pay', 'ready');

/** A run whose checkout is at work, and a payment that waits for it. */
async function waiting(options: SceneOptions = {}) {
  const app = await scene({ workflow: paid(), shape: { answers: 'json' }, ...options });
  const session = await app.session();
  const checking = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
  const paying = session.call('cart.pay');
  await app.isServing(2);
  return { app, session, checking, paying };
}

/** The reason that the payment is refused for at once, while the checkout is at work. */
async function refusedBeside(workflow: unknown, options: SceneOptions = {}) {
  const app = await scene({
    workflow: workflow as AnyGate,
    shape: { answers: 'json' },
    ...options,
  });
  const session = await app.session();
  const checking = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
  const reason = reasonOf(await session.call('cart.pay'));
  checking.finish();
  await checking.answer;
  return reason;
}

describe('a call that waits for the call before it', () => {
  it('waits for a step of another instance', async () => {
    const shape = { mode: 'stateless', answers: 'json' } as const;
    const elsewhere = await scene({ workflow: paid(), shape });
    const app = await scene({ workflow: paid(), shape, beside: elsewhere });
    const { id } = await elsewhere.session();
    const other = RawSession.resume(elsewhere.url, id);
    const checking = await begins(elsewhere, 'cart.checkout', () => other.call('cart.checkout'));
    const paying = RawSession.resume(app.url, id).call('cart.pay');
    await app.isServing(1);
    await pass(app.clock, 2_000, 50);
    expect(app.ledger.calls).toEqual([]);
    checking.finish();
    await checking.answer;
    await pass(app.clock, 500, 50);
    expect((await paying).result?.isError).not.toBe(true);
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });

  it('waits for all lookups that it needs', async () => {
    const workflow = StateMachineGate.fromOrder(
      { 'cart.pay': { after: ['cart.view', 'cart.checkout'] } },
      { id: 'w' },
    ) as unknown as AnyGate;
    const app = await scene({ workflow, shape: { answers: 'json' } });
    const session = await app.session();
    const viewing = await begins(app, 'cart.view', () => session.call('cart.view'));
    const checking = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    const paying = session.call('cart.pay');
    await app.isServing(3);
    checking.finish();
    await checking.answer;
    await app.isServing(2);
    viewing.finish();
    expect((await paying).result?.isError).not.toBe(true);
  });

  it('wakes no other call that waits, where it is refused again', async () => {
    const after = ['cart.view', 'cart.checkout'] as const;
    const workflow = StateMachineGate.fromOrder(
      { 'cart.pay': { after }, 'cart.add_item': { after } },
      { id: 'w' },
    ) as unknown as AnyGate;
    const app = await scene({ workflow, shape: { answers: 'json' } });
    const session = await app.session();
    const viewing = await begins(app, 'cart.view', () => session.call('cart.view'));
    const checking = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    const both = [session.call('cart.pay'), session.call('cart.add_item')];
    await app.isServing(4);
    app.store.take();
    checking.finish();
    await checking.answer;
    await app.isServing(3);
    // Each of them was judged once more, and waits on.
    expect(app.store.take().filter((asked) => asked === 'claim')).toHaveLength(2);
    viewing.finish();
    for (const answer of await Promise.all(both)) expect(reasonOf(answer)).toBeUndefined();
  });

  it('is refused after waitMs, and the step goes on', async () => {
    const { app, checking, paying } = await waiting({ gate: { waitMs: 5_000 } });
    await pass(app.clock, 5_000);
    expect(reasonOf(await paying)).toBe('state');
    checking.finish();
    expect((await checking.answer).result?.isError).not.toBe(true);
  });

  it('waits no longer than waitMs in all, whatever it waits for', async () => {
    const machine = {
      id: 'w',
      initial: 'o',
      states: { o: { on: { GO: 'p' } }, p: { on: { GO: 'q' } }, q: { on: { GO: 'q' } } },
    } as const;
    const workflow = new StateMachineGate(machine)
      .bindTool('cart.add_item', 'o', 'GO')
      .bindTool('cart.checkout', 'p', 'GO')
      .bindTool('cart.pay', 'q', 'GO');
    const app = await scene({ workflow, shape: { answers: 'json' }, gate: { waitMs: 10_000 } });
    const session = await app.session();
    const first = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    const paying = session.call('cart.pay');
    await app.isServing(2);
    const second = begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    await app.isServing(3);
    await pass(app.clock, 9_000);
    first.finish();
    const { answer, finish } = await second;
    await pass(app.clock, 1_000);
    expect(['state', 'busy']).toContain(reasonOf(await paying));
    finish();
    expect((await answer).result?.isError).not.toBe(true);
  });

  it('is never forwarded where its client leaves', async () => {
    const app = await scene({ workflow: paid() });
    const session = await app.session();
    const checking = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    const leaving = new AbortController();
    const paying = fetch(app.url, {
      method: 'POST',
      headers: {
        ...session.headers,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
      },
      body: JSON.stringify(callOf('p', 'cart.pay')),
      signal: leaving.signal,
    });
    await app.isServing(2);
    leaving.abort();
    await expect(paying).rejects.toThrow();
    await app.isServing(1);
    checking.finish();
    await checking.answer;
    await app.isServing(0);
    expect(app.ledger.calls).toEqual(['cart.checkout']);
  });

  it('does not wait for a lookup that the app answered while it was judged', async () => {
    const timeouts: (() => void)[] = [];
    const app = await scene({
      workflow: FORMS['a rule after a lookup']?.() as AnyGate,
      shape: { answers: 'json' },
      before: [
        (req, res, next) => {
          if ('x-hurried' in req.headers) timeouts.push(() => res.status(503).end());
          next();
        },
      ],
    });
    const session = await app.session();
    await session.call('cart.view');
    app.store.fail('read', 1, 'late');
    // The connection stays open, as that of a proxy does.
    const hurried = fetch(app.url, {
      method: 'POST',
      headers: {
        ...session.headers,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        'x-hurried': 'yes',
      },
      body: JSON.stringify(callOf('l', 'cart.checkout')),
    });
    await expect.poll(() => app.store.late.length).toBe(1);
    for (const each of timeouts) each();
    expect((await hurried).status).toBe(503);
    await app.isServing(0);
    for (const each of app.store.late) each();
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    expect(app.ledger.calls).toEqual(['cart.view']);
    await app.sessions.close({ drainMs: 60_000 });
  });

  it('is told that the server restarts, where it does', async () => {
    const { app, checking, paying } = await waiting();
    const closed = app.sessions.close({ drainMs: 60_000 });
    expect((await paying).result?.content?.[0]?.text).toContain('the server is being restarted');
    checking.finish();
    await closed;
  });

  it('does not wait for a step that cannot lead to where it is allowed', async () => {
    const away = flat().bindTool('cart.checkout', 'open', 'FAIL').bindTool('cart.pay', 'ready');
    expect(await refusedBeside(away)).toBe('state');
  });

  it('waits for a failure that leads there', async () => {
    const gate = flat()
      .bindTool('cart.checkout', 'open', { success: 'FAIL', failure: 'GO' })
      .bindTool('cart.pay', 'ready');
    const app = await scene({ workflow: gate, shape: { answers: 'json' } });
    const session = await app.session();
    const both = [session.call('cart.checkout', { fail: true }), session.call('cart.pay')];
    const [, second] = await Promise.all(both);
    expect(second?.result?.isError).not.toBe(true);
  });

  it('does not wait where a client must not know of it', async () => {
    const app = await scene({
      workflow: paid(),
      gate: { refusal: 'unknown-tool' },
      shape: { answers: 'json' },
    });
    const session = await app.session();
    const checking = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    const { result } = await session.call('cart.pay');
    expect(result?.content?.[0]?.text).toContain('Tool cart.pay not found');
    checking.finish();
    await checking.answer;
  });

  it('does not wait beyond maxWaiting calls of its run', async () => {
    expect(await refusedBeside(paid(), { gate: { maxWaiting: 0 } })).toBe('state');
    const { app, session, checking, paying } = await waiting({ gate: { maxWaiting: 1 } });
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    checking.finish();
    await checking.answer;
    expect(reasonOf(await paying)).toBe(undefined);
    expect(app.ledger.calls).toEqual(['cart.checkout', 'cart.pay']);
  });

  it('does not wait for a step of its own batch', async () => {
    const app = await scene({ workflow: paid(), shape: { answers: 'json' } });
    const session = await app.session();
    const batch = [callOf('c', 'cart.checkout'), callOf('p', 'cart.pay')];
    const { messages } = await send(app.url, {
      headers: { ...session.headers, 'mcp-protocol-version': '2025-03-26' },
      body: batch,
    });
    const [checked, refused] = ['c', 'p'].map((id) => messages.find((each) => each.id === id));
    expect(checked?.result?.isError).not.toBe(true);
    expect(reasonOf(refused)).toBe('state');
  });

  it('does not wait for a lookup of another batch, which may wait for one of its own', async () => {
    const rules = { 'cart.pay': { after: ['cart.view'] }, other: { after: ['cart.checkout'] } };
    const app = await scene({
      workflow: StateMachineGate.fromOrder(rules, { id: 'w' }),
      shape: { answers: 'json' },
    });
    const session = await app.session();
    await session.call('cart.add_item');
    const headers = { ...session.headers, 'mcp-protocol-version': '2025-03-26' };
    app.store.fail('read', 2, 'late');
    const sent = [
      [callOf('a', 'cart.checkout'), callOf('b', 'cart.pay')],
      [callOf('c', 'cart.view'), callOf('d', 'other')],
    ].map((body) => send(app.url, { headers, body }));
    await expect.poll(() => app.store.late.length).toBe(2);
    for (const each of app.store.late) each();
    const answers = (await Promise.all(sent)).flatMap(({ messages }) => messages);
    const refused = answers.filter((each) => reasonOf(each) === 'state');
    expect(answers).toHaveLength(4);
    expect(refused.length).toBeGreaterThan(0);
    expect(app.ledger.calls).toEqual(expect.arrayContaining(['cart.checkout', 'cart.view']));
  });

  it('does not wait for a held step', async () => {
    const gate = checkoutGate().bindTool('cart.view', 'confirmed');
    const app = await scene({ workflow: gate });
    const session = await app.sessionAt('payment');
    await claimed(app.data, claimOf(session.id, { leaseMs: 2_000 }));
    app.clock.advance(3_000);
    await app.run(session.id).is('held');
    expect(reasonOf(await session.call('cart.view'))).toBe('state');
  });
});
