import { describe, expect, it, vi } from 'vitest';
import { claimOf, commitOf, HOUR, step } from '../../packages/testing/src/fixtures.ts';
import { freezeOf, thawOf } from '../../packages/testing/src/freezes.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { InterlockError } from '../../src/basics/errors.ts';
import { type MemoryStoreOptions, memoryStore } from '../../src/stores/memory.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import { ManualTime } from '../helpers/manual-clock.ts';

describeStateStore(
  'memoryStore()',
  async () => {
    const { now, advance } = new ManualTime();
    return { store: memoryStore({ now }), advance, close: async () => {} };
  },
  { describe, it, scope: 'process' },
);

describeStateStore(
  'memoryStore() with a chained trail',
  async () => {
    const { now, advance } = new ManualTime();
    return { store: memoryStore({ now, chainTrail: true }), advance, close: async () => {} };
  },
  { describe, it, scope: 'process', chainTrail: true },
);

describeStateStore(
  'memoryStore() on the real clock',
  async () => ({ store: memoryStore(), close: async () => {} }),
  // Concurrent, since these tests mostly wait for the clock.
  { describe: describe.concurrent, it, scope: 'process' },
);

describe('a full memoryStore()', () => {
  it('evicts the least recently used run as a whole: it is unknown, never fresh', async () => {
    const store = memoryStore({ maxRuns: 2 });
    await store.open('old', {}, HOUR);
    await step(store, 'old', { workflow: 'checkout' });
    await step(store, 'old', { workflow: 'approval' });
    const committed = claimOf('old');
    await store.claim(committed);
    await store.commit(commitOf(committed));
    await open(store, 'b', 'c');

    expect(await store.read('old', HOUR)).toBeUndefined();
    expect(await store.commit(commitOf(committed))).toEqual({ status: 'unknown' });
    expect(await store.history(committed)).toEqual([]);
    expect(await store.renew(committed, committed.token, HOUR)).toBe(false);
    for (const workflow of ['checkout', 'approval', 'new']) {
      expect(await store.claim(claimOf('old', { workflow }))).toEqual({ status: 'unknown' });
    }
    expect(await known(store, 'b', 'c')).toEqual(['b', 'c']);
  });

  it('evicts runs without a principal first, and then the principals’ own', async () => {
    const store = memoryStore({ maxRuns: 2 });
    await store.open('old', { principal: 'alice' }, HOUR);
    await open(store, 'b', 'c');
    expect(await known(store, 'old', 'b', 'c')).toEqual(['old', 'c']);
    await store.open('d', { principal: 'bob' }, HOUR);
    await store.open('e', { principal: 'bob' }, HOUR);
    expect(await known(store, 'old', 'b', 'c', 'd', 'e')).toEqual(['d', 'e']);
  });

  it('counts a read, a claim, a commit, a renewal and a look at the trail as use', async () => {
    const store = memoryStore({ maxRuns: 6 });
    const claims = ['read', 'claim', 'commit', 'renew', 'history', 'unused'].map((run) =>
      claimOf(run, { create: {} }),
    );
    for (const claim of claims) await store.claim(claim);
    for (const claim of claims) await store.release(claim, claim.token);
    const live = claimOf('renew');
    await store.claim(live);
    await store.claim(claimOf('claim'));
    await store.commit(commitOf(claimOf('commit')));
    await store.renew(live, live.token, 1);
    await store.history({ run: 'history', workflow: 'checkout' });
    await store.read('read', HOUR);
    await open(store, 'new');
    expect(
      await known(store, 'read', 'claim', 'commit', 'renew', 'history', 'unused', 'new'),
    ).not.toContain('unused');
  });

  it('spares a run with a live claim, until the lease is over', async () => {
    const { now, advance } = new ManualTime();
    const store = memoryStore({ maxRuns: 2, now });
    const claim = claimOf('busy', { create: {}, leaseMs: 1_000 });
    await store.claim(claim);
    await open(store, 'a', 'b', 'c');
    expect(await store.commit(commitOf(claim))).toEqual({ status: 'committed', version: 1 });

    await store.claim(claimOf('busy', { leaseMs: 1_000, step: { uncertain: 'retry' } }));
    advance(1_000);
    await open(store, 'd', 'e');
    expect(await known(store, 'busy', 'd', 'e')).toEqual(['d', 'e']);
  });

  it('spares a frozen run until it goes on, and keeps switches beside all runs', async () => {
    const store = memoryStore({ maxRuns: 2 });
    await store.freeze(freezeOf('frozen', { create: {} }));
    const set = { value: 1, revision: 'r1' };
    for (const name of ['a', 'b', 'c']) await store.swapSwitch?.(name, undefined, set);
    await open(store, 'a', 'b', 'c', 'd');
    expect(await known(store, 'frozen', 'a', 'b', 'c', 'd')).toEqual(['frozen', 'd']);
    await store.freeze(thawOf('frozen'));
    await open(store, 'e', 'f');
    expect(await known(store, 'frozen', 'e', 'f')).toEqual(['e', 'f']);
    for (const name of ['a', 'b', 'c']) expect(await store.readSwitch?.(name)).toEqual(set);
  });

  it('refuses an evicted run that had begun: its next claim makes no new one', async () => {
    const store = memoryStore({ maxRuns: 2 });
    for (const run of ['begun', 'b', 'c', 'd']) await step(store, run, { create: {} });
    const begun = claimOf('begun', { create: {} });
    expect(await store.claim(begun)).toEqual({ status: 'unknown' });
    expect((await store.read('begun', HOUR))?.sessionEnded).toBe('evicted');
    expect(await known(store, 'begun', 'b', 'c', 'd')).toEqual(['c', 'd']);
  });

  it('evicts first what a next claim begins anew without a loss', async () => {
    const store = memoryStore({ maxRuns: 2 });
    const create = { principal: 'alice' };
    await step(store, 'begun', { create });
    const idle = claimOf('idle', { create });
    await store.claim(idle);
    await store.release(idle, idle.token);
    await store.open('opened', {}, HOUR);
    expect(await known(store, 'begun', 'idle', 'opened')).toEqual(['begun', 'opened']);
    expect((await store.claim(idle)).status).toBe('claimed');
  });

  it('makes a new run even where all others have live claims', async () => {
    const store = memoryStore({ maxRuns: 2 });
    const claims = Array.from({ length: 20 }, (_, index) =>
      claimOf(`run-${index}`, { create: {} }),
    );
    for (const claim of claims) expect((await store.claim(claim)).status).toBe('claimed');
    for (const claim of claims)
      expect((await store.commit(commitOf(claim))).status).toBe('committed');
    await open(store, 'a', 'b', 'c', 'd');
    expect(await known(store, ...claims.map(({ run }) => run), 'a', 'b', 'c', 'd')).toEqual([
      'c',
      'd',
    ]);
  });

  it('keeps 10,000 runs by default', async () => {
    const store = memoryStore();
    const runs = Array.from({ length: 10_001 }, (_, index) => `run-${index}`);
    await open(store, ...runs);
    expect(await store.read('run-0', HOUR)).toBeUndefined();
    expect(await store.read('run-1', HOUR)).toBeDefined();
  });
});

describe('memoryStore()', () => {
  it('goes by the clock that it is given, for leases, expiry and stamps', async () => {
    const time = new ManualTime(5_000);
    const store = memoryStore({ now: time.now });
    await step(store, 'run', { create: {}, ttlMs: 100 }, { ttlMs: 100 });
    expect((await store.read('run', 100))?.workflows.checkout?.snapshot.updatedAt).toBe(5_000);
    expect((await store.history({ run: 'run', workflow: 'checkout' }))[0]?.at).toBe(5_000);
    await store.claim(claimOf('run', { leaseMs: 50, ttlMs: 100 }));
    time.advance(49);
    expect(await store.claim(claimOf('run', { ttlMs: 100 }))).toMatchObject({
      status: 'busy',
      remainingMs: 1,
    });
    time.advance(1);
    expect(await store.claim(claimOf('run', { ttlMs: 100 }))).toMatchObject({ status: 'held' });
    time.advance(99);
    expect(await store.read('run', 100)).toBeDefined();
    time.advance(100);
    expect(await store.read('run', 100)).toMatchObject({ sessionEnded: true });
  });

  it('gives the same answers to the same calls at the same times', async () => {
    const play = async () => {
      const time = new ManualTime();
      const store = memoryStore({ now: time.now, maxRuns: 2 });
      const token = { token: 'fixed' };
      await step(store, 'run', { ...token, create: {} });
      time.advance(7);
      await open(store, 'other');
      return [
        await store.read('run', HOUR),
        await store.history({ run: 'run', workflow: 'checkout' }),
      ];
    };
    expect(await play()).toEqual(await play());
  });

  it('sets no timers', async () => {
    vi.useFakeTimers();
    try {
      const store = memoryStore();
      await step(store, 'run', { create: {} });
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it('has a run called __proto__ like any other, and only once it was opened', async () => {
    const store = memoryStore();
    for (const name of ['__proto__', 'constructor', 'toString']) {
      expect(await store.read(name, HOUR)).toBeUndefined();
      await store.open(name, {}, HOUR);
      expect((await store.read(name, HOUR))?.workflows.constructor).toBeUndefined();
      await step(store, name, { workflow: '__proto__' });
      const record = await store.read(name, HOUR);
      expect(Object.keys(record?.workflows ?? {})).toEqual(['__proto__']);
      expect(Object.getPrototypeOf(record?.workflows)).toBeNull();
    }
  });

  it('keeps a context as JSON does, like other stores, and no object of the caller', async () => {
    const store = memoryStore();
    const context = { when: new Date(0), nothing: undefined, items: [{ id: 1 }] };
    await step(
      store,
      'run',
      { create: {} },
      { snapshot: { state: 's', context: context as never } },
    );
    context.items[0] = { id: 2 };
    const kept = (await store.read('run', HOUR))?.workflows.checkout?.snapshot.context as object;
    expect(kept).toEqual({ when: '1970-01-01T00:00:00.000Z', items: [{ id: 1 }] });
    for (const value of [kept, ...Object.values(kept)]) expect(Object.isFrozen(value)).toBe(true);
  });

  it.each<[MemoryStoreOptions, RegExp]>([
    [{ maxRuns: 0 }, /maxRuns: .*>=1, got 0/],
    [{ maxRuns: 1.5 }, /maxRuns: expected int, got 1\.5/],
    [{ maxRuns: Number.NaN }, /maxRuns: expected number, got NaN/],
    [{ now: 5 as never }, /now: expected a function, got 5/],
    [{ maxRun: 5 } as never, /unknown key "maxRun", did you mean "maxRuns"\?/],
    [7 as never, /expected object, got 7/],
  ])('refuses the options %j and says what is right', (options, message) => {
    expect(() => memoryStore(options)).toThrow(InterlockError);
    expect(() => memoryStore(options)).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_CONFIG' }),
    );
    expect(() => memoryStore(options)).toThrow(message);
  });

  it('takes an explicit undefined for the default', async () => {
    const store = memoryStore({ maxRuns: undefined, now: undefined });
    const before = Date.now();
    await step(store, 'run', { create: {} });
    expect(
      (await store.history({ run: 'run', workflow: 'checkout' }))[0]?.at,
    ).toBeGreaterThanOrEqual(before);
  });
});

async function open(store: AtomicStateStore, ...runs: string[]): Promise<void> {
  for (const run of runs) await store.open(run, {}, HOUR);
}

/** Which of the runs the store knows. Asking counts as use. */
async function known(store: AtomicStateStore, ...runs: string[]): Promise<string[]> {
  const found: string[] = [];
  for (const run of runs) {
    const record = await store.read(run, HOUR);
    if (record && !record.sessionEnded) found.push(run);
  }
  return found;
}
