import { describe, expect, it, onTestFinished } from 'vitest';
import { replayTrail } from '../../packages/check/src/index.ts';
import { type FsmConfig, memoryStore, StateMachineGate } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { sealed } from '../helpers/envelope.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { begins, scene } from '../helpers/scene.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';

const MINUTE = 60_000;

function timedGate() {
  return new StateMachineGate({
    id: 'timed',
    initial: 'cart',
    states: {
      cart: { on: { CHECKOUT: 'payment' } },
      payment: { on: { PAY: 'paid', NOTE: 'payment' }, after: { 900000: 'expired' } },
      expired: { on: { CHECKOUT: 'payment' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('cart.checkout', ['cart', 'expired'], 'CHECKOUT')
    .bindTool('cart.add_item', 'payment', 'NOTE')
    .bindTool('cart.pay', 'payment', 'PAY');
}

/** A client of the timed checkout: it has fifteen minutes to pay. */
async function timed() {
  const workflow = timedGate();
  // The store's clock is not the process's, and only the store's counts.
  const clock = new ManualClock();
  const data = memoryStore({ now: () => clock.now() + 7 * MINUTE });
  const session = { idleMs: 1000 * MINUTE, store: data };
  const app = await scene({ workflow, session, beside: { clock, data } });
  const client = await app.client();
  return { ...app, workflow, anotherClient: app.client, client, order: app.run(client.run) };
}

describe('a state with a deadline', () => {
  it('is left when the run is next touched, with an entry in the trail', async () => {
    const { client, clock, runs, workflow, ledger, order } = await timed();
    const moves: unknown[] = [];
    workflow.onTransition(
      ({ previousState, currentState, event }) =>
        void moves.push([previousState, currentState, event]),
    );
    await client.calls('cart.checkout');
    clock.advance(15 * MINUTE - 1);
    await client.sees(['cart.add_item', 'cart.pay', 'cart.view']);
    clock.advance(1);
    await client.sees(['cart.checkout', 'cart.view']);
    await order.isIn('expired');
    const refused = await client.isRefused('cart.pay', 'state');
    expect(refused.text).toContain(
      'not available while timed is in "expired". The deadline of "payment" has passed. Available',
    );
    expect(ledger.calls).toEqual(['cart.checkout']);
    expect(
      (await runs.history(client.run)).map(({ from, to, event }) => [from, to, event]),
    ).toEqual([
      ['cart', 'payment', 'CHECKOUT'],
      ['payment', 'expired', 'after'],
    ]);
    expect((await client.calls('cart.checkout')).text).toBe('cart.checkout done');
    expect(moves).toEqual([
      ['cart', 'payment', 'CHECKOUT'],
      ['payment', 'expired', 'after'],
      ['expired', 'payment', 'CHECKOUT'],
    ]);
  });

  it('counts from when the state was entered, even if something was saved since', async () => {
    const { client, clock, runs } = await timed();
    await client.calls('cart.checkout');
    clock.advance(10 * MINUTE);
    await client.calls('cart.add_item');
    await runs.update(client.run, () => ({ note: 1 }));
    clock.advance(5 * MINUTE);
    await client.isRefused('cart.pay', 'state');
    expect(await runs.read(client.run)).toMatchObject({
      snapshot: { state: 'expired' },
      context: { note: 1 },
    });
  });

  it('begins anew each time the state is entered', async () => {
    const { client, clock } = await timed();
    await client.calls('cart.checkout');
    clock.advance(10 * MINUTE);
    await client.calls('cart.add_item');
    clock.advance(5 * MINUTE);
    await client.calls('cart.checkout');
    clock.advance(14 * MINUTE);
    expect((await client.calls('cart.pay')).text).toBe('cart.pay done');
  });

  it.each([
    ['an event that enters the state again', 'EXTEND'],
    ['an event of the machine itself that leads to the state', 'BACK_TO_PAYMENT'],
  ] as const)('has its time anew by %s', async (_, event) => {
    const gate = new StateMachineGate({
      id: 'timed',
      initial: 'cart',
      on: { BACK_TO_PAYMENT: 'payment' },
      states: {
        cart: { on: { CHECKOUT: 'payment' } },
        payment: {
          on: { PAY: 'paid', NOTE: 'payment', EXTEND: { target: 'payment', reenter: true } },
          after: { 900000: 'expired' },
        },
        expired: {},
        paid: { type: 'final' },
      },
    })
      .bindTool('cart.checkout', 'cart', 'CHECKOUT')
      .bindTool('cart.add_item', 'payment', event)
      .bindTool('cart.pay', 'payment', 'PAY');
    const app = await scene({ workflow: gate });
    const client = await app.client();
    const order = app.run(client.run);
    await client.calls('cart.checkout');
    app.clock.advance(14 * MINUTE);
    await app.runs.update(client.run, () => ({ note: 1 }));
    await client.calls('cart.add_item');
    app.clock.advance(14 * MINUTE);
    await order.isIn('payment');
    expect(await app.runs.send(client.run, event)).toEqual({
      sent: true,
      changed: false,
      state: 'payment',
    });
    app.clock.advance(15 * MINUTE - 1);
    await order.isIn('payment');
    app.clock.advance(1);
    await client.isRefused('cart.pay', 'state');
    await order.isIn('expired');
    const trail = await app.runs.history(client.run);
    expect(trail.map(({ from, to, event }) => [from, to, event])).toEqual([
      ['cart', 'payment', 'CHECKOUT'],
      ['payment', 'payment', null],
      ['payment', 'payment', event],
      ['payment', 'payment', event],
      ['payment', 'expired', 'after'],
    ]);
    expect(replayTrail(gate, trail)).toMatchObject({ state: 'expired', faults: [] });
    expect((await app.runs.read(client.run))?.context).toEqual({ note: 1 });
  });

  it('is left before an event from outside is tested', async () => {
    const { client, clock, runs } = await timed();
    await client.calls('cart.checkout');
    clock.advance(15 * MINUTE);
    expect(await runs.send(client.run, 'PAY')).toEqual({ sent: false, reason: 'unhandled' });
    expect(await runs.send(client.run, 'CHECKOUT')).toMatchObject({
      sent: true,
      state: 'payment',
    });
  });

  it('does not interrupt a step that is under way', async () => {
    const { client, clock, order, ...app } = await timed();
    await client.calls('cart.checkout');
    clock.advance(14 * MINUTE);
    const paying = await begins(app, 'cart.pay', () => client.calls('cart.pay'));
    clock.advance(2 * MINUTE);
    paying.finish();
    await paying.answer;
    await order.isIn('paid');
  });
});

it('refuses an event from outside if deadlines pass faster than the store answers', async () => {
  const gate = new StateMachineGate({
    id: 'restless',
    initial: 'a',
    states: {
      a: { after: { 1: 'b' }, on: { STOP: 'c' } },
      b: { after: { 1: 'a' }, on: { STOP: 'c' } },
      c: {},
    },
  });
  let time = 1_700_000_000_000;
  const store = memoryStore({ now: () => (time += 10) });
  await store.open('run', {}, 1000 * MINUTE);
  const runs = runsOf(gate, { store });
  await runs.update('run', () => ({ begun: true }));
  expect(await runs.send('run', 'STOP')).toEqual({ sent: false, reason: 'busy' });
});

describe('sweep()', () => {
  it('moves the runs whose time is over, and no others', async () => {
    const { client, clock, runs, anotherClient } = await timed();
    const other = await anotherClient();
    await client.calls('cart.checkout');
    clock.advance(10 * MINUTE);
    await other.calls('cart.checkout');
    clock.advance(5 * MINUTE);
    expect(await runs.sweep()).toBe(1);
    expect(await runs.sweep()).toBe(0);
    expect((await runs.history(client.run)).at(-1)).toMatchObject({
      from: 'payment',
      to: 'expired',
      event: 'after',
    });
    clock.advance(10 * MINUTE);
    expect(await runs.sweep([client.run, 'nobody', other.run])).toBe(1);
  });

  it('says so if the store cannot list runs', async () => {
    const gate = timedGate();
    const kept = new Map<string, never>();
    const store = {
      load: async (key: string) => kept.get(key),
      save: async (key: string, snapshot: unknown) => void kept.set(key, snapshot as never),
    };
    await expect(runsOf(gate, { store }).sweep()).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_STORE',
    });
  });

  it('reads what a database finds', async () => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    let now = 1_000_000;
    const store = sqliteStore({ database: file.connect(), now: () => now });
    const gate = timedGate();
    await store.open('r', {}, 1000 * MINUTE);
    const runs = runsOf(gate, { store });
    await runs.send('r', 'CHECKOUT');
    now += 15 * MINUTE;
    expect(await runs.sweep()).toBe(1);
    expect((await runs.read('r'))?.snapshot.state).toBe('expired');
  });
});

it.each([
  [{ after: { soon: 'b' } }, 'ERR_INTERLOCK_CONFIG', 'one delay in whole milliseconds'],
  [{ after: { 5: 'b', 6: 'b' } }, 'ERR_INTERLOCK_CONFIG', 'one delay'],
  [{ after: {} }, 'ERR_INTERLOCK_CONFIG', 'one delay'],
  [{ after: { 0: 'b' } }, 'ERR_INTERLOCK_CONFIG', 'one delay'],
  [{ after: { 5: 'c' } }, 'ERR_INTERLOCK_TARGET', '"c"'],
  [{ type: 'final', after: { 5: 'b' } }, 'ERR_INTERLOCK_CONFIG', 'final'],
])('a deadline of %j is refused', (state, code, message) => {
  const config = { initial: 'a', states: { a: state, b: {} } } as unknown as FsmConfig;
  const make = () => new StateMachineGate(config);
  expect(make).toThrow(expect.objectContaining({ code }));
  expect(make).toThrow(message);
});

it('adds nothing but its format to what other machines save', async () => {
  const workflow = new StateMachineGate({
    initial: 'a',
    states: { a: { on: { GO: 'b' } }, b: {} },
  }).bindTool('cart.pay', 'a', 'GO');
  const { data, client: connect } = await scene({ workflow });
  const client = await connect();
  await client.calls('cart.pay');
  const record = await data.read(client.run, MINUTE);
  expect(record?.workflows.workflow?.snapshot).toEqual({
    state: 'b',
    updatedAt: expect.any(Number),
    version: 1,
    context: sealed(),
  });
});
