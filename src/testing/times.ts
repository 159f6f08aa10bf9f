import assert from 'node:assert/strict';
import type { SeenSnapshot } from '../stores/store.ts';
import {
  claimed,
  claimOf,
  HOUR,
  opened,
  type Promises,
  SHORT,
  type Stage,
  step,
} from './fixtures.ts';

/** Time that passes in a test. */
const PASSED = 100;
/** What a store's own rounding may take off it. */
const ROUNDING = 5;
/** What a busy machine may add to it. */
const DELAY = 30_000;

export function timePromises(promises: Promises): void {
  promises(
    'each answer with a snapshot says what time it is, and so how old the snapshot is',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      await step(store, run);
      await stage.wait(PASSED);
      const request = claimOf(run);
      const seen = [
        await seenBy(store.claim(claimOf(run, { states: [] })), 'state'),
        await seenBy(store.claim(request), 'claimed'),
        await seenBy(store.claim(claimOf(run)), 'busy'),
        await read(stage),
      ];
      await store.renew(request, request.token, SHORT);
      await stage.wait(SHORT);
      seen.push(await seenBy(store.claim(claimOf(run)), 'held'));
      for (const each of seen) assertAge(each, PASSED);
      assertInOrder(seen);
    },
  );

  promises('a workflow is as old as its first claim until it moves', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run, { initial: { state: 'draft', updatedAt: 1 } });
    const first = await claimed(store, request);
    assertAge(first, 0);
    await stage.wait(PASSED);
    const later = [await claimed(store, request), await read(stage)];
    await store.release(request, request.token);
    later.push(await claimed(store, claimOf(run)));
    for (const each of later) {
      assert.equal(each.snapshot.updatedAt, first.snapshot.updatedAt);
      assertAge(each, PASSED);
    }
  });

  promises('a workflow whose first claim is refused has no age yet', async (stage) => {
    const run = await opened(stage);
    for (const initial of [1, 2 * Date.now()].map((updatedAt) => ({ state: 'draft', updatedAt }))) {
      assertAge(await seenBy(stage.store.claim(claimOf(run, { initial, states: [] })), 'state'), 0);
      await stage.wait(PASSED);
    }
    assertAge(await claimed(stage.store, claimOf(run)), 0);
  });
}

/** What holds between two clients of the same data. */
export function sharedTimePromises(promises: Promises): void {
  promises('both sides go by one clock', async (stage) => {
    await step(stage.store, await opened(stage));
    const other = { ...stage, store: await stage.reopen() };
    assertInOrder([await read(stage), await read(other), await read(stage)]);
  });
}

async function seenBy(
  claim: ReturnType<Stage['store']['claim']>,
  status: string,
): Promise<SeenSnapshot> {
  const result = await claim;
  assert.ok(result.status === status && result.status !== 'unknown', result.status);
  return result;
}

async function read({ store, run }: Stage): Promise<SeenSnapshot> {
  const record = await store.read(run, HOUR);
  const snapshot = record?.workflows.checkout?.snapshot;
  assert.ok(snapshot);
  return { snapshot, ...(record?.now !== undefined && { now: record.now }) };
}

/** A store without a clock leaves the time out. */
function assertAge({ snapshot, now }: SeenSnapshot, passed: number): void {
  if (now === undefined) return;
  const age = now - snapshot.updatedAt;
  assert.ok(age >= 0, `at ${now} there was a snapshot of ${snapshot.updatedAt}`);
  assert.ok(
    age >= passed - ROUNDING && age < passed + DELAY,
    `after ${passed} ms it was ${age} ms old`,
  );
}

function assertInOrder(seen: readonly SeenSnapshot[]): void {
  const times = seen.map(({ now }) => now).filter((now) => now !== undefined);
  assert.deepEqual(
    times,
    [...times].sort((a, b) => a - b),
  );
}
