/**
 * What holds of a process that has just used a run, once another process removed it and opened its
 * key for another principal. Hides how the old run and the next one come to be. Each is made with
 * as many writes, since a revision that is a number would then be the same.
 */

import assert from 'node:assert/strict';
import type { AtomicStateStore, ClaimRequest } from '../../../src/stores/index.ts';
import {
  attemptOf,
  claimed,
  claimOf,
  commitOf,
  HOUR,
  LONG,
  type Promises,
  recordingOf,
  SHORT,
  type StoreStage,
  same,
  step,
} from './fixtures.ts';
import { freezeOf } from './freezes.ts';

/** How a process goes on with a run that is no longer the one it knows. */
interface Sequel {
  /** Whether it has a claim of the old run. */
  readonly holds: boolean;
  readonly ask: (store: AtomicStateStore, old: ClaimRequest) => Promise<unknown>;
  /** Its answer where the run is gone, and where the next one is there. */
  readonly gone: unknown;
  readonly next: unknown;
  /** What it adds to the next run. */
  readonly adds?: 'move' | 'freeze' | 'entry';
}

const SEQUELS: Readonly<Record<string, Sequel>> = {
  claim: {
    holds: false,
    ask: async (store, { run }) => (await store.claim(claimOf(run))).status,
    gone: 'unknown',
    next: 'claimed',
  },
  commit: {
    holds: true,
    ask: async (store, old) => (await store.commit(commitOf(old))).status,
    gone: 'unknown',
    next: 'lost',
  },
  renewal: {
    holds: true,
    ask: (store, old) => store.renew(old, old.token, LONG),
    gone: false,
    next: false,
  },
  release: {
    holds: true,
    ask: (store, old) => store.release(old, old.token, { entry: attemptOf(old) }),
    gone: undefined,
    next: undefined,
  },
  record: {
    holds: false,
    ask: async (store, { run }) => (await store.record(recordingOf(run, 1, 'looked up'))).status,
    gone: 'unknown',
    next: 'recorded',
    adds: 'move',
  },
  freeze: {
    holds: false,
    ask: async (store, { run }) => (await store.freeze(freezeOf(run))).status,
    gone: 'unknown',
    next: 'changed',
    adds: 'freeze',
  },
  'refused call': {
    holds: false,
    ask: async (store, old) => store.append?.(old, attemptOf(old, { outcome: 'refused' })),
    gone: undefined,
    next: undefined,
    adds: 'entry',
  },
};

/** What holds between two processes on the same data. */
export function nextRunPromises(promises: Promises): void {
  for (const [name, sequel] of Object.entries(SEQUELS)) {
    promises(
      `a ${name} of a process that has just used a removed run does not bring it back`,
      async (stage) => {
        const [store, other] = [stage.store, await stage.reopen()];
        const [gone, anew] = [`${stage.run}-gone`, `${stage.run}-anew`];
        const old = await runOf('alice', store, gone, sequel);
        await other.delete(gone);
        assert.equal(await sequel.ask(store, old), sequel.gone);
        for (const side of [other, store]) assert.equal(await side.read(gone, HOUR), undefined);
        assert.deepEqual(await other.open(gone, {}, HOUR), { status: 'opened' });

        const replaced = await runOf('alice', store, anew, sequel);
        await other.delete(anew);
        await assertLeft(stage, sequel, replaced, other);
      },
    );
  }

  promises(
    'a claim that may make its run takes nothing over from a removed one, however warm it is',
    async ({ store, run, reopen }) => {
      await runOf('alice', store, run, { holds: false });
      await (await reopen()).delete(run);
      const { snapshot } = await claimed(store, claimOf(run, { create: { principal: 'bob' } }));
      assert.deepEqual([snapshot.state, snapshot.version ?? 0], ['empty', 0]);
      assert.deepEqual(await store.history({ run, workflow: 'checkout' }), []);
      assert.equal((await store.read(run, HOUR))?.session.principal, 'bob');
    },
  );

  promises(
    'what a process does with a run that has expired leaves the next one under its key alone',
    async (stage) => {
      const other = await stage.reopen();
      const short = { ttlMs: stage.soon, leaseMs: SHORT };
      const used = Object.entries(SEQUELS).map(async ([name, sequel]) => {
        const old = await runOf('alice', stage.store, `${stage.run}-${name}`, sequel, short);
        return [sequel, old] as const;
      });
      const runs = await Promise.all(used);
      await stage.wait(stage.soon);
      for (const [sequel, old] of runs) await assertLeft(stage, sequel, old, other);
    },
  );
}

/** A run that stands in version 1, and perhaps has a claim, which the answer is or could be. */
async function runOf(
  principal: string,
  store: AtomicStateStore,
  run: string,
  { holds }: Pick<Sequel, 'holds'>,
  { ttlMs = HOUR, leaseMs = LONG } = {},
): Promise<ClaimRequest> {
  const lives = { ttlMs, leaseMs, step: { uncertain: 'retry' } } as const;
  await store.open(run, { principal }, ttlMs);
  const snapshot = { state: 'has_items', context: { of: principal } };
  const trail = { from: 'empty', to: 'has_items', event: 'ADD_ITEM', actor: principal };
  await step(store, run, lives, { snapshot, trail, ttlMs });
  const request = claimOf(run, lives);
  if (holds) await claimed(store, request);
  return request;
}

/** Opens the key for another principal, goes on with the old run, and looks what is left. */
async function assertLeft(
  { store }: Pick<StoreStage, 'store'>,
  sequel: Sequel,
  old: ClaimRequest,
  other: AtomicStateStore,
): Promise<void> {
  const { run } = old;
  const request = await runOf('bob', other, run, sequel);
  assert.equal(await sequel.ask(store, old), sequel.next);
  for (const side of [other, store]) {
    const record = await side.read(run, HOUR);
    const { snapshot, claim } = record?.workflows.checkout ?? {};
    assert.equal(record?.session.principal, 'bob');
    const isMoved = sequel.adds === 'move';
    same([snapshot?.version, snapshot?.context], isMoved ? [2, { of: 'looked up' }] : BOBS);
    if (sequel.holds) assert.deepEqual([claim?.token, claim?.live], [request.token, true]);
    const [first, ...added] = await side.history(old);
    assert.equal(first?.actor, 'bob');
    const isAdded = sequel.adds !== undefined && (sequel.adds !== 'entry' || store.append);
    assert.equal(added.length, isAdded ? 1 : 0);
  }
  if (sequel.holds) assert.equal((await other.commit(commitOf(request))).status, 'committed');
}

const BOBS = [1, { of: 'bob' }] as const;
