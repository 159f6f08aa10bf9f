/**
 * Which runs a store lists: those in a state, and what the tests of listings.ts ask of its index.
 * Hides pages, their order where a store gives none, and that a store need not list its runs.
 */

import assert from 'node:assert/strict';
import type {
  AtomicStateStore,
  FoundRun,
  PageQuery,
  RunsQuery,
  StuckQuery,
} from '../../../src/stores/index.ts';
import {
  type ClaimChanges,
  claimed,
  claimOf,
  HOUR,
  type Promises,
  SHORT,
  type StoreStage,
  step,
} from './fixtures.ts';

/** Two commits so many milliseconds apart have different times. */
const APART = 2;
/** More than a store will ask its backend for at once. */
const MANY = 250;

/** What holds of `runs()`. Stores may share data, so each test has its own workflow. */
export function sweepPromises(all: Promises): void {
  const promises = whereRunsAreListed(all);

  promises('the runs in a state are given, those that stand there longest first', async (stage) => {
    const { store, run: workflow } = stage;
    const [one, other, third] = keysOf(workflow, 3);
    assert.ok(one && other && third);
    for (const run of [third, one, other]) {
      await stand(store, run, workflow, 'payment');
      await stage.wait(APART);
    }
    await stand(store, `${workflow}-done`, workflow, 'done');
    await stand(store, `${workflow}-elsewhere`, `${workflow}-2`, 'payment');
    assert.deepEqual(await listed(store, { workflow, state: 'payment' }), [third, one, other]);
    await stand(store, third, workflow, 'payment');
    assert.deepEqual(await listed(store, { workflow, state: 'payment' }), [one, other, third]);
    assert.deepEqual(await listed(store, { workflow, state: 'paymen' }), []);
  });

  promises('a run stands in the first state from its first claim on', async ({ store, run }) => {
    const query = { workflow: run, state: 'empty' };
    await store.open(run, {}, HOUR);
    await store.claim(claimOf(run, { workflow: run, states: [] }));
    assert.deepEqual(await listed(store, query), []);
    await claimed(store, claimOf(run, { workflow: run }));
    assert.deepEqual(await listed(store, query), [run]);
  });

  promises('only the runs that stand there for long enough are given', async (stage) => {
    const { store, run: workflow } = stage;
    const [early, late] = keysOf(workflow, 2);
    assert.ok(early && late);
    await stand(store, early, workflow, 'payment');
    await stage.wait(stage.soon);
    await stand(store, late, workflow, 'payment');
    const query = { workflow, state: 'payment' };
    assert.deepEqual(await listed(store, { ...query, forMs: stage.soon }), [early]);
    assert.deepEqual(await listed(store, { ...query, forMs: undefined }), [early, late]);
    assert.deepEqual(await listed(store, { ...query, forMs: HOUR }), []);
  });

  promises('a run that moved on, ended or expired is not given', async (stage) => {
    const { store, run: workflow } = stage;
    const [moved, ended, expired] = keysOf(workflow, 3);
    assert.ok(moved && ended && expired);
    for (const run of [moved, ended, expired]) await stand(store, run, workflow, 'payment');
    await stand(store, moved, workflow, 'done');
    await store.delete(ended);
    await stand(store, expired, workflow, 'payment', SHORT);
    await listed(store, { workflow, state: 'payment' });
    await stage.wait(SHORT);
    assert.deepEqual(await listed(store, { workflow, state: 'payment' }), []);
    assert.deepEqual(await listed(store, { workflow, state: 'done' }), [moved]);
  });

  promises('of many runs each is given once', async ({ store, run: workflow }) => {
    const runs = keysOf(workflow, MANY);
    await Promise.all(runs.map((run) => claimed(store, claimOf(run, { workflow, create: {} }))));
    const given = await listed(store, { workflow, state: 'empty' });
    assert.deepEqual(given.sort(), runs.sort());
  });
}

/** `runs()` is optional: a test of it passes in a store without it. */
export function whereRunsAreListed(promises: Promises): Promises {
  return (promise, body) =>
    promises(promise, async (stage) => {
      if (stage.store.runs) await body(stage);
    });
}

export async function listed(store: AtomicStateStore, query: RunsQuery): Promise<string[]> {
  const runs: string[] = [];
  for await (const run of store.runs?.(query) ?? []) runs.push(run);
  return runs;
}

/** Moves the run into the state, and makes a missing run. */
export async function stand(
  store: AtomicStateStore,
  run: string,
  workflow: string,
  state: string,
  ttlMs = HOUR,
): Promise<void> {
  await step(store, run, { workflow, create: {} }, { snapshot: { state }, ttlMs });
}

export function keysOf(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
}

/** The operations of the index. A store has all of them or none; `count` may be missing beside. */
export const INDEX = ['held', 'stuck', 'list'] as const;
type Indexed = Required<Pick<AtomicStateStore, (typeof INDEX)[number]>> &
  Pick<AtomicStateStore, 'count'>;
export interface IndexedStage extends StoreStage {
  readonly store: AtomicStateStore & Indexed;
}
export type IndexPromises = (promise: string, body: (stage: IndexedStage) => Promise<void>) => void;

/** The index is optional: a test of it passes in a store without it. */
export function whereIndexed(promises: Promises): IndexPromises {
  return (promise, body) =>
    promises(promise, async (stage) => {
      if (isIndexed(stage)) await body(stage);
    });
}

export function isIndexed(stage: StoreStage): stage is IndexedStage {
  return INDEX.every((name) => stage.store[name] !== undefined);
}

/** A claim that is held once its lease is over. It makes a missing run. */
export async function hold(
  store: AtomicStateStore,
  run: string,
  workflow: string,
  leaseMs = SHORT,
  changes: ClaimChanges = {},
) {
  const request = claimOf(run, { workflow, create: {}, leaseMs, ...changes });
  await claimed(store, request);
  return request;
}

export function heldIn(store: Indexed, workflow: string, limit = 10): Promise<string[]> {
  return keysOn((page) => store.held({ workflow, ...page }), limit);
}

export function unsettledIn(
  store: Pick<AtomicStateStore, 'unsettled'>,
  workflow: string,
  limit = 10,
): Promise<string[]> {
  const { unsettled } = store;
  assert.ok(unsettled, 'no unsettled()');
  return keysOn((page) => unsettled.call(store, { workflow, ...page }), limit);
}

export function stuckIn(
  store: Indexed,
  query: Omit<StuckQuery, keyof PageQuery>,
  limit = 10,
): Promise<string[]> {
  return keysOn((page) => store.stuck({ ...query, ...page }), limit);
}

async function keysOn(ask: Parameters<typeof paged<FoundRun>>[0], limit: number) {
  return (await paged(ask, limit)).map(({ run }) => run);
}

/** Sorted, since a store gives them in no order. */
export async function listOf(store: Indexed, principal: string, limit = 10): Promise<string[]> {
  return (await paged((page) => store.list({ principal, ...page }), limit)).sort();
}

/** Asserts how many runs are in each state, and how many of them are stuck. */
export async function assertStates(
  store: Indexed,
  workflow: string,
  forMs: number,
  expected: readonly (readonly [state: string, runs: number, stuck: number])[],
): Promise<void> {
  if (store.count === undefined) return;
  const { states } = await store.count({ workflow, forMs });
  const counted = states.map(({ state, runs, stuck }) => [state, runs, stuck] as const);
  assert.deepEqual(
    counted.sort(([a], [b]) => (a < b ? -1 : 1)),
    expected,
  );
}

/** Asserts that exactly these runs are held and stuck in the workflow, and are the principal's. */
export async function assertListed(
  store: Indexed & Pick<AtomicStateStore, 'count'>,
  name: string,
  runs: readonly string[],
): Promise<void> {
  assert.deepEqual((await heldIn(store, name)).sort(), runs);
  assert.deepEqual((await stuckIn(store, { workflow: name, forMs: 0 })).sort(), runs);
  assert.deepEqual(await listOf(store, name), runs);
  if (store.count === undefined) return;
  const { held, states, oldestClaim } = await store.count({ workflow: name, forMs: 0 });
  const counted = states.reduce((sum, each) => sum + each.runs, 0);
  assert.deepEqual([held, counted], [runs.length, runs.length]);
  assert.equal(oldestClaim !== undefined, runs.length > 0);
}

export function assertInOrder(times: readonly (number | undefined)[]): void {
  assert.deepEqual(
    times,
    [...times].sort((a = Number.NaN, b = Number.NaN) => a - b),
  );
}

/** More pages than any listing of a test has. */
const MOST_PAGES = 500;

/** All items of a listing, page after page. */
export async function paged<Item>(
  ask: (page: PageQuery) => Promise<{ readonly runs: readonly Item[]; readonly next?: string }>,
  limit: number,
): Promise<Item[]> {
  const items: Item[] = [];
  let after: string | undefined;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const { runs, next } = await ask({ limit, after });
    assert.ok(runs.length <= limit, `a page of ${limit} had ${runs.length}`);
    items.push(...runs);
    if (next === undefined) return items;
    after = next;
  }
  throw new assert.AssertionError({ message: `the listing had no end after ${MOST_PAGES} pages` });
}
