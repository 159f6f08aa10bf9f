import { describe, expect, it } from 'vitest';
import { claimed, claimOf } from '../../packages/testing/src/fixtures.ts';
import { Events } from '../../src/basics/events.ts';
import { memoryStore } from '../../src/index.ts';
import {
  guardStore,
  KEEPS_KEY,
  releaseClaim,
  releaseUnanswered,
  StoreUnavailable,
} from '../../src/step/store-calls.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { everyOperation } from '../helpers/operations.ts';

const DEADLINE = 2_000;
const OPERATIONS = [
  'open',
  'read',
  'claim',
  'renew',
  'commit',
  'history',
  'freeze',
  'release',
  'delete',
  'readSwitch',
  'swapSwitch',
] as const;

/** Asks for one operation, and keeps its result or its error. */
function ask(
  store: AtomicStateStore,
  operation: (typeof OPERATIONS)[number],
): { outcome: unknown } {
  const asked: { outcome: unknown } = { outcome: undefined };
  const settle = (outcome: unknown): void => {
    asked.outcome = outcome;
  };
  everyOperation(store, 'run')
    [operation]?.()
    .then(() => settle('done'), settle);
  return asked;
}

const flush = () => new Promise((resolve) => setImmediate(resolve));

describe('a store behind its guard', () => {
  it('gives the answers of the store, and leaves no timer behind', async () => {
    const clock = new ManualClock();
    const guarded = guardStore(memoryStore({ now: clock.now }), DEADLINE, clock, new Events({}));
    for (const operation of Object.values(everyOperation(guarded, 'run'))) await operation();
    expect(await guarded.read('run', 1)).toBeUndefined();
    expect(clock.pending).toBe(0);
  });

  it.each(OPERATIONS)(
    'that hangs is given up on after the deadline, and not before (%s)',
    async (operation) => {
      const clock = new ManualClock();
      const store = new FaultyStore(memoryStore());
      store.fail(operation, 1, 'hang');
      const asked = ask(guardStore(store, DEADLINE, clock, new Events({})), operation);
      clock.advance(DEADLINE - 1);
      await flush();
      expect(asked.outcome).toBeUndefined();
      clock.advance(1);
      await flush();
      expect(asked.outcome).toBeInstanceOf(StoreUnavailable);
      expect(String(asked.outcome)).toContain(`${operation} within 2000 ms`);
    },
  );

  it.each(OPERATIONS)(
    'that fails rejects with StoreUnavailable, and its own error as the cause (%s)',
    async (operation) => {
      const clock = new ManualClock();
      const store = new FaultyStore(memoryStore());
      store.fail(operation, 1);
      const asked = ask(guardStore(store, DEADLINE, clock, new Events({})), operation);
      await flush();
      const { message, cause } = asked.outcome as StoreUnavailable;
      expect(asked.outcome).toBeInstanceOf(StoreUnavailable);
      expect(message).not.toContain('hunter2');
      expect(String(cause)).toContain('hunter2');
      expect(clock.pending).toBe(0);
    },
  );

  it.each([
    [
      'throws instead of rejecting',
      () => {
        throw new Error('no');
      },
    ],
    ['returns no promise', () => undefined],
  ])('that %s has failed as well', async (_, read) => {
    const clock = new ManualClock();
    const broken = { ...memoryStore(), read } as unknown as AtomicStateStore;
    await expect(
      guardStore(broken, DEADLINE, clock, new Events({})).read('run', 1),
    ).rejects.toBeInstanceOf(StoreUnavailable);
    expect(clock.pending).toBe(0);
  });

  it('that answers after its deadline does no harm', async () => {
    const clock = new ManualClock();
    let answer = (): void => {};
    let fail = (): void => {};
    const late = { ...memoryStore() } as AtomicStateStore;
    late.read = () =>
      new Promise((resolve) => {
        answer = () => resolve(undefined);
      });
    late.delete = () =>
      new Promise((_, reject) => {
        fail = () => reject(new Error('late'));
      });
    const guarded = guardStore(late, DEADLINE, clock, new Events({}));
    const asked = [guarded.read('run', 1), guarded.delete('run')].map((each) =>
      each.catch((error) => error),
    );
    clock.advance(DEADLINE);
    expect(await Promise.all(asked)).toEqual([
      expect.any(StoreUnavailable),
      expect.any(StoreUnavailable),
    ]);
    answer();
    fail();
    await flush();
  });

  it('releases a claim that is granted late, and keeps an earlier idempotency key', async () => {
    const clock = new ManualClock();
    const store = memoryStore({ now: clock.now });
    const step = { uncertain: 'retry' } as const;
    const earlier = claimOf('run', { create: {}, leaseMs: 1, step });
    const { idempotencyKey } = await claimed(store, earlier);
    clock.advance(2);
    const slow = new FaultyStore(store);
    slow.fail('claim', 1, 'late');
    const asked = guardStore(slow, DEADLINE, clock, new Events({})).claim(claimOf('run', { step }));
    clock.advance(DEADLINE);
    await expect(asked).rejects.toBeInstanceOf(StoreUnavailable);
    for (const goOn of slow.late) goOn();
    await flush();
    expect(await claimed(store, claimOf('run', { step }))).toMatchObject({ idempotencyKey });
  });

  it.each<[string, (store: FaultyStore) => void]>([
    ['rejects', (store) => store.fail('release', 2)],
    [
      'throws',
      (store) => {
        const { release } = store;
        let times = 2;
        store.release = (...args) => {
          if (times-- > 0) throw new Error('no');
          return release(...args);
        };
      },
    ],
  ])('releases such a claim though its store %s at first: no step of it ran', async (_, fail) => {
    const clock = new ManualClock();
    const store = memoryStore({ now: clock.now });
    const slow = new FaultyStore(store);
    slow.fail('claim', 1, 'late');
    const asked = guardStore(slow, DEADLINE, clock, new Events({})).claim(
      claimOf('run', { create: {} }),
    );
    clock.advance(DEADLINE);
    await expect(asked).rejects.toBeInstanceOf(StoreUnavailable);
    fail(slow);
    for (const goOn of slow.late) goOn();
    for (let times = 0; times < 5; times++) {
      await flush();
      clock.advance(100);
    }
    await claimed(store, claimOf('run', {}));
    expect(clock.pending).toBe(0);
  });
});

describe('the claims of a run that a store in an outage may have granted', () => {
  const key = { run: 'run', workflow: 'checkout' };

  it('are released by one call at a time, each in its turn, and none is given up', async () => {
    const clock = new ManualClock();
    const released: string[] = [];
    let [calls, atOnce, most, isDown] = [0, 0, 0, true];
    const store = {
      async release(_key: unknown, token: string): Promise<void> {
        calls++;
        most = Math.max(most, ++atOnce);
        await flush();
        atOnce--;
        if (isDown) throw new Error('down');
        released.push(token);
      },
    };
    const tokens = Array.from({ length: 60 }, (_, at) => `token ${at}`);
    for (const token of tokens)
      releaseUnanswered({ store, key, token, clock, onError() {} }, new StoreUnavailable('late'));
    for (let times = 0; times < 40; times++) {
      clock.advance(1_600);
      for (let turns = 0; turns < 3; turns++) await flush();
    }
    expect(most).toBe(1);
    expect(calls).toBeLessThanOrEqual(41);
    isDown = false;
    await releaseClaim({ store, key, token: 'granted', clock, onError() {} }, KEEPS_KEY);
    expect(released[0]).toBe('granted');
    await expect.poll(() => released.length, { timeout: 5_000 }).toBe(61);
    expect(new Set(released)).toEqual(new Set(['granted', ...tokens]));
    expect(clock.pending).toBe(0);
  });

  it('do not include one whose command was never sent', async () => {
    const clock = new ManualClock();
    const store = new FaultyStore(memoryStore());
    const cause = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
    const claim = { store, key, token: 'a', clock, onError() {} };
    releaseUnanswered(claim, new StoreUnavailable('claim', { cause }));
    await flush();
    expect(store.take()).toEqual([]);
    // The driver of HTTP may have tried before, and that try may have arrived.
    const fetched = new TypeError('fetch failed', { cause });
    releaseUnanswered(claim, new StoreUnavailable('claim', { cause: fetched }));
    await flush();
    expect(store.take()).toEqual(['release']);
    expect(clock.pending).toBe(0);
  });
});
