import { describe, expect, it } from 'vitest';
import { type GateOptions, memoryStore, StateMachineGate } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { ManualClock } from '../helpers/manual-clock.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

function timed(options: GateOptions = {}, target: 'expired' | 'payment' = 'expired') {
  return new StateMachineGate(
    {
      id: 'timed',
      initial: 'cart',
      states: {
        cart: { on: { CHECKOUT: 'payment' } },
        payment: { on: { PAY: 'paid', DECLINE: 'cart' }, after: { 900000: target } },
        expired: { on: { CHECKOUT: 'payment' } },
        paid: {},
      },
    },
    options,
  )
    .bindTool('cart.checkout', ['cart', 'expired'], 'CHECKOUT')
    .bindTool('cart.pay', 'payment', { success: 'PAY', failure: 'DECLINE' });
}

/** Runs of an older deployment, whose state had another name. */
function older() {
  return new StateMachineGate({
    id: 'timed',
    initial: 'cart',
    states: { cart: { on: { CHECKOUT: 'paying' } }, paying: { on: { PAY: 'paid' } }, paid: {} },
  }).bindTool('cart.pay', 'paying', 'PAY');
}

function setUp() {
  const clock = new ManualClock();
  const store = memoryStore({ now: clock.now });
  const errors: unknown[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  return { clock, store, errors, onError };
}

const renames = { version: 2, migrate: () => ({ state: 'payment' }) };

describe('a deadline of a state that a run is migrated to', () => {
  it('is applied before an event is tested', async () => {
    const { clock, store } = setUp();
    await store.open('a', {}, HOUR);
    await runsOf(older(), { store }).send('a', 'CHECKOUT');
    clock.advance(16 * MINUTE);
    const runs = runsOf(timed(renames), { store });
    expect((await runs.read('a'))?.snapshot.state).toBe('expired');
    expect(await runs.send('a', 'PAY')).toEqual({ sent: false, reason: 'unhandled' });
    expect((await runs.read('a'))?.snapshot.state).toBe('expired');
  });

  it('is swept once', async () => {
    const { clock, store } = setUp();
    await store.open('a', {}, HOUR);
    await runsOf(older(), { store }).send('a', 'CHECKOUT');
    clock.advance(16 * MINUTE);
    const runs = runsOf(timed(renames), { store });
    expect(await runs.sweep(['a'])).toBe(1);
    expect(await runs.sweep(['a'])).toBe(0);
  });

  it('migrates the data as well, and never the place that the deadline led to', async () => {
    const { clock, store } = setUp();
    await store.open('a', {}, HOUR);
    const before = runsOf(timed({ version: 1 }), { store });
    await before.send('a', 'CHECKOUT');
    clock.advance(16 * MINUTE);
    const seen: string[] = [];
    const migrate = ({ state }: { state: string }) => {
      seen.push(state);
      return { state, context: { migrated: true } };
    };
    const runs = runsOf(timed({ version: 2, migrate }), { store });
    await runs.send('a', 'CHECKOUT');
    const view = await runs.read('a');
    expect(view).toMatchObject({ snapshot: { state: 'payment' }, context: { migrated: true } });
    expect(new Set(seen)).toEqual(new Set(['payment']));
  });

  it('never moves a run that this deployment does not understand', async () => {
    const { clock, store } = setUp();
    await store.open('a', {}, HOUR);
    await runsOf(timed({ version: 2 }), { store }).send('a', 'CHECKOUT');
    clock.advance(16 * MINUTE);
    await expect(runsOf(timed({ version: 1 }), { store }).send('a', 'PAY')).rejects.toThrow(
      'version 2',
    );
    expect(
      (await runsOf(timed({ version: 2 }), { store }).history('a')).map(({ event }) => event),
    ).toEqual(['CHECKOUT']);
  });
});

describe('sweep()', () => {
  it('goes on after a run that it does not understand', async () => {
    const { clock, store, errors, onError } = setUp();
    await store.open('bad', {}, HOUR);
    await runsOf(timed({ version: 7 }), { store }).send('bad', 'CHECKOUT');
    clock.advance(MINUTE);
    await store.open('good', {}, HOUR);
    const runs = runsOf(timed(), { store, onError });
    await runs.send('good', 'CHECKOUT');
    clock.advance(20 * MINUTE);
    expect(await runs.sweep()).toBe(1);
    expect((await runs.read('good'))?.snapshot.state).toBe('expired');
    expect(String(errors[0])).toContain('version 7');
  });
});

describe('a held run whose state has a deadline', () => {
  const held = async () => {
    const { clock, store } = setUp();
    await store.open('a', {}, HOUR);
    const runs = runsOf(timed(), { store });
    await runs.send('a', 'CHECKOUT');
    await store.claim({
      run: 'a',
      workflow: 'timed',
      token: 'lost',
      step: { tool: 'cart.pay', digest: 'd', uncertain: 'hold' },
      states: undefined,
      initial: { state: 'cart', updatedAt: 0 },
      leaseMs: 8_000,
      ttlMs: HOUR,
    });
    clock.advance(20 * MINUTE);
    return runs;
  };

  it('is resolved from the state in which its step began', async () => {
    const runs = await held();
    expect((await runs.read('a'))?.status).toBe('held');
    expect(await runs.resolve('a', 'succeeded')).toEqual({ resolved: true, state: 'paid' });
    expect((await runs.history('a')).at(-1)).toMatchObject({
      from: 'payment',
      to: 'paid',
      event: 'PAY',
    });
  });

  it('sends the failure of that state too', async () => {
    const runs = await held();
    expect(await runs.resolve('a', 'failed')).toEqual({ resolved: true, state: 'cart' });
  });
});

describe('a deadline that leads back to its own state', () => {
  it('begins anew, even if something was saved in the state', async () => {
    const { clock, store } = setUp();
    await store.open('a', {}, HOUR);
    const runs = runsOf(timed({}, 'payment'), { store });
    await runs.send('a', 'CHECKOUT');
    await runs.update('a', () => ({ note: 1 }));
    clock.advance(16 * MINUTE);
    expect(await runs.update('a', () => ({ note: 2 }))).toMatchObject({ updated: true });
    expect((await runs.history('a')).map(({ event }) => event)).toEqual([
      'CHECKOUT',
      null,
      'after',
      null,
    ]);
  });
});
