import { afterEach, describe, expect, it } from 'vitest';
import {
  currentStep,
  type FsmConfig,
  fsmGate,
  memoryStore,
  runsOf,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { startUpstream, type Upstream } from '../helpers/upstream.ts';

const MINUTE = 60_000;
const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

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

interface Serving {
  readonly gate: ReturnType<typeof timedGate>;
  readonly store: ReturnType<typeof memoryStore>;
  readonly clock: ManualClock;
  readonly client: TestClient;
  readonly upstream: Upstream;
  readonly run: string;
  readonly runs: ReturnType<typeof runsOf>;
}

async function serve(): Promise<Serving> {
  // The store's clock and the process's go differently: only the store's counts.
  const clock = new ManualClock();
  const gate = timedGate();
  const store = memoryStore({ now: () => clock.now() + 7 * MINUTE });
  const sessions = sessionStore({ store, clock, idleMs: 1000 * MINUTE });
  const upstream = await startUpstream({
    middlewares: [sessions, fsmGate(gate, { clock, onError: () => {} })],
  });
  const client = await connect(upstream.url);
  closing.push(upstream.close, () => client.close());
  const run = client.transport.sessionId ?? '';
  return { gate, store, clock, client, upstream, run, runs: runsOf(gate, { sessions }) as never };
}

describe('a state with a deadline', () => {
  it('is left by itself when the run is next touched, and leaves its entry in the trail', async () => {
    const { client, clock, runs, run, gate, upstream } = await serve();
    const moves: unknown[] = [];
    gate.onTransition(
      ({ previousState, currentState, event }) =>
        void moves.push([previousState, currentState, event]),
    );
    await client.call('cart.checkout');
    clock.advance(15 * MINUTE - 1);
    expect(await client.tools()).toEqual(['cart.add_item', 'cart.pay', 'cart.view']);
    clock.advance(1);
    expect(await client.tools()).toEqual(['cart.checkout', 'cart.view']);
    expect((await runs.read(run))?.snapshot.state).toBe('expired');
    const refused = await client.call('cart.pay');
    expect(refused.text).toContain('not available while timed is in "expired"');
    expect(upstream.ledger.calls).toEqual(['cart.checkout']);
    expect((await runs.history(run)).map(({ from, to, event }) => [from, to, event])).toEqual([
      ['cart', 'payment', 'CHECKOUT'],
      ['payment', 'expired', 'after'],
    ]);
    expect((await client.call('cart.checkout')).text).toBe('cart.checkout done');
    expect(moves).toEqual([
      ['cart', 'payment', 'CHECKOUT'],
      ['payment', 'expired', 'after'],
      ['expired', 'payment', 'CHECKOUT'],
    ]);
  });

  it('counts from when it was entered, whatever was saved in it since', async () => {
    const { client, clock, runs, run } = await serve();
    await client.call('cart.checkout');
    clock.advance(10 * MINUTE);
    await client.call('cart.add_item');
    await runs.update(run, () => ({ note: 1 }));
    clock.advance(5 * MINUTE);
    expect((await client.call('cart.pay')).isError).toBe(true);
    expect(await runs.read(run)).toMatchObject({
      snapshot: { state: 'expired' },
      context: { note: 1 },
    });
  });

  it('begins anew each time that it is entered', async () => {
    const { client, clock } = await serve();
    await client.call('cart.checkout');
    clock.advance(10 * MINUTE);
    await client.call('cart.add_item');
    clock.advance(5 * MINUTE);
    await client.call('cart.checkout');
    clock.advance(14 * MINUTE);
    expect((await client.call('cart.pay')).text).toBe('cart.pay done');
  });

  it('is left before an event from outside is looked at', async () => {
    const { client, clock, runs, run } = await serve();
    await client.call('cart.checkout');
    clock.advance(15 * MINUTE);
    expect(await runs.send(run, 'PAY')).toEqual({ sent: false, reason: 'unhandled' });
    expect(await runs.send(run, 'CHECKOUT')).toMatchObject({ sent: true, state: 'payment' });
  });

  it('does not interrupt the step that is under way', async () => {
    const { client, clock, upstream, runs, run } = await serve();
    await client.call('cart.checkout');
    let open = (): void => {};
    upstream.ledger.gates.set('cart.pay', new Promise<void>((resolve) => (open = resolve)));
    clock.advance(14 * MINUTE);
    const paying = client.call('cart.pay');
    await expect.poll(() => upstream.ledger.calls.length).toBe(2);
    clock.advance(2 * MINUTE);
    open();
    await paying;
    expect((await runs.read(run))?.snapshot.state).toBe('paid');
  });
});

it('turns an event from outside away where deadlines pass faster than the store is asked', async () => {
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
    const { client, clock, runs, run, upstream } = await serve();
    const other = await connect(upstream.url);
    closing.push(() => other.close());
    await client.call('cart.checkout');
    clock.advance(10 * MINUTE);
    await other.call('cart.checkout');
    clock.advance(5 * MINUTE);
    expect(await runs.sweep()).toBe(1);
    expect(await runs.sweep()).toBe(0);
    expect((await runs.history(run)).at(-1)).toMatchObject({
      from: 'payment',
      to: 'expired',
      event: 'after',
    });
    clock.advance(10 * MINUTE);
    expect(await runs.sweep([run, 'nobody', other.transport.sessionId ?? ''])).toBe(1);
  });

  it('says so where the store cannot list runs', async () => {
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
    closing.push(() => file.remove());
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

it('leaves the bytes of other machines as they are', async () => {
  const store = memoryStore();
  const gate = new StateMachineGate({
    initial: 'a',
    states: { a: { on: { GO: 'b' } }, b: {} },
  }).bindTool('cart.pay', 'a', 'GO');
  const upstream = await startUpstream({ middlewares: [sessionStore({ store }), fsmGate(gate)] });
  const client = await connect(upstream.url);
  closing.push(upstream.close, () => client.close());
  await client.call('cart.pay');
  const record = await store.read(client.transport.sessionId ?? '', MINUTE);
  expect(record?.workflows.workflow?.snapshot).toEqual({
    state: 'b',
    updatedAt: expect.any(Number),
    version: 1,
  });
  expect(currentStep()).toBeUndefined();
});
