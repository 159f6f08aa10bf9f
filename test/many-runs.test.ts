import { describe, expect, it } from 'vitest';
import { claimed, claimOf, HOUR, step } from '../packages/testing/src/fixtures.ts';
import { InterlockError, memoryStore, principalKey, StateMachineGate } from '../src/index.ts';
import { runsOf } from '../src/runs/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { FaultyStore } from './helpers/faulty-store.ts';
import { JsonStateStore } from './helpers/json-state-store.ts';
import { ManualClock } from './helpers/manual-clock.ts';
import { callOf } from './helpers/raw.ts';
import { begins, scene } from './helpers/scene.ts';

const LEASE = 8_000;
const SAID = { actor: 'ann', note: 'the list of the provider' } as const;

/** A shop whose payments of unknown outcome a test leaves behind. */
function shop() {
  const clock = new ManualClock();
  const store = memoryStore({ now: clock.now });
  const errors: unknown[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  const runs = runsOf(checkoutGate(), { store, onError });
  /** A payment whose process was killed, and its idempotency key. */
  async function lose(run: string, tool = 'cart.pay', principal = 'ann'): Promise<string> {
    await store.open(run, { principal }, HOUR);
    await step(store, run, {}, { snapshot: { state: 'payment' } });
    const result = await claimed(store, claimOf(run, { leaseMs: LEASE, step: { tool } }));
    return result.idempotencyKey;
  }
  const stateOf = async (run: string) => (await runs.read(run))?.state;
  return { clock, store, errors, runs, lose, stateOf };
}

describe('resolve({ idempotencyKey })', () => {
  it('finds the held run of the step with that key, on any page', async () => {
    const { clock, lose, runs, stateOf } = shop();
    const keys: string[] = [];
    for (let index = 0; index < 250; index++) keys.push(await lose(`order-${index}`));
    clock.advance(LEASE);
    for (const index of [249, 100, 0]) {
      const idempotencyKey = String(keys[index]);
      const resolved = await runs.resolve({ idempotencyKey }, 'succeeded', { actor: 'webhook' });
      expect(resolved).toEqual({ resolved: true, state: 'confirmed' });
      expect(await stateOf(`order-${index}`)).toBe('confirmed');
    }
    expect(await runs.count()).toMatchObject({ held: 247 });
  });

  it('says `not-held` of a key that no held step has, also while the step is running', async () => {
    const { clock, lose, runs } = shop();
    const idempotencyKey = await lose('order');
    const notHeld = { resolved: false, reason: 'not-held' };
    expect(await runs.resolve({ idempotencyKey }, 'succeeded')).toEqual(notHeld);
    clock.advance(LEASE);
    expect(await runs.resolve({ idempotencyKey: 'another' }, 'succeeded')).toEqual(notHeld);
    expect(await runs.resolve({ idempotencyKey }, 'succeeded')).toMatchObject({ resolved: true });
    expect(await runs.resolve({ idempotencyKey }, 'succeeded')).toEqual(notHeld);
  });

  it('needs an index of runs, and a key', async () => {
    const runs = runsOf(checkoutGate(), { store: new JsonStateStore(), onWarning() {} });
    await expect(runs.resolve({ idempotencyKey: 'key' }, 'failed')).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_STORE',
    });
    for (const wrong of [{}, { idempotencyKey: '' }, { idempotencyKey: 'a', run: 'b' }, null])
      await expect(runs.resolve(wrong as never, 'failed')).rejects.toThrow(InterlockError);
  });
});

describe('resolveAll()', () => {
  it('resolves the held runs of one tool that began since, and changes nothing in a dry run', async () => {
    const { clock, lose, runs, store, stateOf } = shop();
    await lose('before');
    clock.advance(60_000);
    const since = clock.now();
    const [one, two] = [await lose('one'), await lose('two')];
    await lose('other', 'cart.checkout');
    clock.advance(LEASE);
    const asked = { tool: 'cart.pay', since, outcome: 'succeeded', ...SAID } as const;
    const found = [
      { run: 'one', idempotencyKey: one, outcome: 'succeeded' },
      { run: 'two', idempotencyKey: two, outcome: 'succeeded' },
    ];
    expect(await runs.resolveAll({ ...asked, dryRun: true })).toEqual({ resolved: 0, runs: found });
    expect(await runs.count()).toMatchObject({ held: 4 });
    const resolution = { resolved: true, state: 'confirmed' };
    expect(await runs.resolveAll(asked)).toEqual({
      resolved: 2,
      runs: found.map((each) => ({ ...each, resolution })),
    });
    expect(await stateOf('one')).toBe('confirmed');
    const [last] = (await store.history({ run: 'two', workflow: 'checkout' })).slice(-1);
    expect(last).toMatchObject({ ...SAID, kind: 'resolved' });
    expect((await runs.held()).runs.map(({ run }) => run)).toEqual(['before', 'other']);
  });

  it('asks the app for each outcome, and leaves held what the app cannot find out', async () => {
    const { clock, errors, lose, runs } = shop();
    const paid = await lose('paid');
    const declined = await lose('declined');
    for (const run of ['unknown', 'failing', 'odd']) await lose(run);
    clock.advance(LEASE);
    errors.length = 0;
    const asked = await runs.resolveAll({
      tool: 'cart.pay',
      ...SAID,
      outcome: async ({ run, claim }) => {
        if (claim.idempotencyKey === paid) return 'succeeded';
        if (claim.idempotencyKey === declined) return 'failed';
        if (run === 'failing') throw new Error('the provider is away');
        return run === 'odd' ? ('yes' as 'succeeded') : undefined;
      },
    });
    expect(asked.resolved).toBe(2);
    expect(Object.fromEntries(asked.runs.map(({ run, outcome }) => [run, outcome]))).toEqual({
      paid: 'succeeded',
      declined: 'failed',
      ...{ unknown: undefined, failing: undefined, odd: undefined },
    });
    expect(errors).toContainEqual(new Error('the provider is away'));
    expect(errors).toContainEqual(expect.objectContaining({ code: 'ERR_INTERLOCK_CONFIG' }));
    expect(await runs.count()).toMatchObject({ held: 3 });
  });

  it('leaves one alone that it cannot resolve, and resolves those behind it', async () => {
    const { clock, errors, lose, runs, store, stateOf } = shop();
    await store.open('stranded', { principal: 'ann' }, HOUR);
    await step(store, 'stranded', {}, { snapshot: { state: 'no such state' } });
    await claimed(store, claimOf('stranded', { leaseMs: LEASE }));
    clock.advance(1);
    await store.open('adrift', { principal: 'ann' }, HOUR);
    await step(store, 'adrift', {}, { snapshot: { state: 'empty' } });
    await claimed(store, claimOf('adrift', { leaseMs: LEASE }));
    clock.advance(1);
    await lose('paid');
    clock.advance(LEASE);
    errors.length = 0;
    const asked = await runs.resolveAll({ tool: 'cart.pay', outcome: 'succeeded', ...SAID });
    expect(asked.runs.map(({ run }) => run)).not.toContain('stranded');
    expect(asked.runs.find(({ run }) => run === 'paid')?.resolution).toMatchObject({
      resolved: true,
    });
    expect(await stateOf('paid')).toBe('confirmed');
  });

  it('resolves no later step of the same run', async () => {
    const { clock, lose, runs, store } = shop();
    await lose('order');
    clock.advance(LEASE);
    const asked = await runs.resolveAll({
      tool: 'cart.pay',
      ...SAID,
      outcome: async () => {
        await runs.resolve('order', 'failed');
        await claimed(store, claimOf('order', { leaseMs: LEASE }));
        clock.advance(LEASE);
        return 'succeeded';
      },
    });
    expect(asked).toMatchObject({
      resolved: 0,
      runs: [{ resolution: { resolved: false, reason: 'not-held' } }],
    });
    expect((await runs.held()).runs).toHaveLength(1);
  });

  it('needs a tool, an outcome, an actor and a note', async () => {
    const { runs } = shop();
    const whole = { tool: 'cart.pay', outcome: 'failed', ...SAID };
    for (const wrong of ['tool', 'outcome', 'actor', 'note'])
      await expect(runs.resolveAll({ ...whole, [wrong]: undefined } as never)).rejects.toThrow(
        wrong,
      );
  });
});

describe('erase()', () => {
  const ofUsers = {
    key: [principalKey()],
    principal: ({ headers }: { headers: Record<string, unknown> }) => String(headers['x-user']),
  };

  it('deletes all runs of the person, and of no other', async () => {
    const app = await scene({ session: ofUsers });
    for (const user of ['ann', 'bob']) {
      const client = await app.client(user);
      await client.calls('cart.add_item');
    }
    const erased = await app.runs.erase('ann');
    expect(erased).toMatchObject({ anonymized: [], pinned: [] });
    expect(erased.deleted).toBeGreaterThan(0);
    expect(await app.runs.list({ principal: 'ann' })).toEqual({ runs: [] });
    expect(await app.runs.read(principalKey().runKey('ann'))).toBeUndefined();
    await app.run(principalKey().runKey('bob')).isIn('has_items');
  });

  it('names the runs that a step pins, and leaves them', async () => {
    const { clock, lose, runs, store } = shop();
    await lose('held');
    await store.open('idle', { principal: 'ann' }, HOUR);
    clock.advance(LEASE);
    await lose('running');
    const { pinned, ...erased } = await runs.erase('ann');
    expect(erased).toEqual({ deleted: 1, anonymized: [] });
    expect([...pinned].sort()).toEqual(['held', 'running']);
    expect((await runs.list({ principal: 'ann' })).runs).toHaveLength(2);
  });

  it('takes a held run from the person where it is asked to, and keeps its step', async () => {
    const { clock, lose, runs, store, stateOf } = shop();
    const idempotencyKey = await lose('held');
    clock.advance(LEASE);
    const { anonymized, ...erased } = await runs.erase('ann', { held: 'anonymize' });
    expect(erased).toEqual({ deleted: 0, pinned: [] });
    const [{ run, freed } = { run: '', freed: '' }] = anonymized;
    expect(freed).toBe('held');
    expect(await runs.read('held')).toBeUndefined();
    expect(await runs.list({ principal: 'ann' })).toEqual({ runs: [] });
    expect((await store.read(run, HOUR))?.session.principal).toBeUndefined();
    expect(await store.history({ run, workflow: 'checkout' })).toEqual([]);
    // The person's own key is free, so the same payment can be made again.
    expect(await store.open('held', { principal: 'ann' }, HOUR)).toEqual({ status: 'opened' });
    const resolved = await runs.resolve({ idempotencyKey }, 'succeeded', { actor: 'ops' });
    expect(resolved).toMatchObject({ resolved: true });
    expect(await stateOf(run)).toBe('confirmed');
  });

  it('ends the session of a run that it takes from the person', async () => {
    const app = await scene({ session: { principal: ofUsers.principal } });
    const session = await app.sessionAt('payment', { 'x-user': 'ann' });
    const stream = await session.listen();
    await app.data.claim(claimOf(session.id, { leaseMs: LEASE }));
    app.clock.advance(LEASE);
    const { anonymized } = await app.runs.erase('ann', { held: 'anonymize' });
    expect(anonymized).toMatchObject([{ freed: session.id }]);
    await expect.poll(() => stream.ended).toBe(true);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
  });

  it('has the clients told, and lets a running step end as it may', async () => {
    const app = await scene({ session: ofUsers });
    const client = await app.client('ann');
    const pay = await begins(app, 'cart.add_item', () => client.raw.call('cart.add_item'));
    const { pinned } = await app.runs.erase('ann', { held: 'anonymize' });
    expect(pinned).toEqual([principalKey().runKey('ann')]);
    pay.finish();
    expect(await pay.answer).toMatchObject({ isError: false });
    expect(await app.runs.erase('ann')).toMatchObject({ pinned: [] });
  });

  it('refuses an empty name and an unknown option', async () => {
    const { runs } = shop();
    await expect(runs.erase('')).rejects.toThrow(InterlockError);
    await expect(runs.erase('ann', { held: 'delete' } as never)).rejects.toThrow('anonymize');
  });
});

it('purge() removes what has expired, and leaves what is pinned', async () => {
  const { clock, lose, runs, store } = shop();
  await store.open('idle', {}, HOUR);
  await lose('held');
  clock.advance(2 * HOUR);
  expect(await runs.purge()).toBe(1);
  expect(await runs.purge()).toBe(0);
  expect((await runs.held()).runs).toMatchObject([{ run: 'held', sessionEnded: true }]);
});

describe('a batch over runs', () => {
  it('goes on past a run that throws, and says so', async () => {
    const clock = new ManualClock();
    const store = memoryStore({ now: clock.now });
    const errors: unknown[] = [];
    const gate = new StateMachineGate({
      id: 'checkout',
      initial: 'empty',
      states: { empty: { after: { 1000: 'late' } }, late: {} },
    }).bindTool('cart.pay', 'empty');
    const broken = new Error('the app knows no such run');
    const runs = runsOf(gate, {
      store,
      onError: (error) => void errors.push(error),
      begin: ({ run }) => {
        if (run === 'run-0') throw broken;
        return {};
      },
    });
    for (let index = 0; index < 4; index++) {
      const request = claimOf(`run-${index}`, { create: {} });
      await claimed(store, request);
      await store.release(request, request.token);
      clock.advance(1);
    }
    clock.advance(1_000);
    expect(await runs.sweep()).toBe(3);
    expect(errors).toEqual([broken]);
    expect((await runs.read('run-3'))?.state).toBe('late');
  });

  it('names the runs of a person that could not be erased, and erases the others', async () => {
    const { store, lose } = shop();
    for (const run of ['one', 'two', 'three']) {
      await store.open(run, { principal: 'bob' }, HOUR);
      await step(store, run);
    }
    await lose('of ann');
    const failing = new FaultyStore(store);
    failing.fail('delete', 1);
    const erased = await runsOf(checkoutGate(), { store: failing, onError() {} }).erase('bob');
    expect(erased).toMatchObject({ deleted: 2, pinned: [], failed: [expect.any(String)] });
  });
});
