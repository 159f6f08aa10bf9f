/**
 * What is asked of a store's index in the tests of its promises. Hides pages, their order where a
 * store gives none, and that a store need not have an index.
 */
import assert from 'node:assert/strict';
import type { AtomicStateStore, FoundRun, PageQuery, StuckQuery } from '../stores/store.ts';
import {
  type ClaimChanges,
  claimed,
  claimOf,
  type Promises,
  SHORT,
  type StoreStage,
} from './fixtures.ts';

/** The operations of the index. A store has all of them or none. */
export const INDEX = ['held', 'stuck', 'count', 'list'] as const;
type Indexed = Required<Pick<AtomicStateStore, (typeof INDEX)[number]>>;
export interface IndexedStage extends StoreStage {
  readonly store: AtomicStateStore & Indexed;
}
export type IndexPromises = (promise: string, body: (stage: IndexedStage) => Promise<void>) => void;

/** The operations are optional: where a store has none there is nothing to test. */
export function whereIndexed(promises: Promises): IndexPromises {
  return (promise, body) =>
    promises(promise, async (stage) => {
      if (isIndexed(stage)) await body(stage);
    });
}

export function isIndexed(stage: StoreStage): stage is IndexedStage {
  return INDEX.every((name) => stage.store[name] !== undefined);
}

/** A claim of the run that is held once the lease is over. It makes the run where there is none. */
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

/** In an order of our own, since a store gives them in none. */
export async function listOf(store: Indexed, principal: string, limit = 10): Promise<string[]> {
  return (await paged((page) => store.list({ principal, ...page }), limit)).sort();
}

/** The states of a count, each with its runs and those of them that are stuck. */
export async function statesOf(store: Indexed, workflow: string, forMs: number) {
  const { states } = await store.count({ workflow, forMs });
  return states
    .map(({ state, runs, stuck }) => [state, runs, stuck] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

/**
 * Asserts that these runs, and no other ones, are held and stuck in the workflow, and are listed.
 */
export async function assertListed(
  store: Indexed,
  name: string,
  runs: readonly string[],
): Promise<void> {
  assert.deepEqual((await heldIn(store, name)).sort(), runs);
  assert.deepEqual((await stuckIn(store, { workflow: name, forMs: 0 })).sort(), runs);
  assert.deepEqual(await listOf(store, name), runs);
  const { held, states } = await store.count({ workflow: name, forMs: 0 });
  const counted = states.reduce((sum, each) => sum + each.runs, 0);
  assert.deepEqual([held, counted], [runs.length, runs.length]);
}

export function assertInOrder(times: readonly (number | undefined)[]): void {
  assert.deepEqual(
    times,
    [...times].sort((a = Number.NaN, b = Number.NaN) => a - b),
  );
}

/** More pages than any listing of a test has. */
const MOST_PAGES = 500;

/** All that is on the pages of a listing, in their order. */
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
