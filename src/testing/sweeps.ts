import assert from 'node:assert/strict';
import type { AtomicStateStore, RunsQuery } from '../stores/store.ts';
import { claimed, claimOf, HOUR, type Promises, SHORT, step } from './fixtures.ts';

/** Time enough for the calls before a wait, even on a busy machine. */
const LONG_AGO = 1_000;
/** Two commits that are so far apart differ in time. */
const APART = 2;
/** More than a store will ask its backend for at once. */
const MANY = 250;

/**
 * What holds where a store can say which runs stand in a state. Stores may share data, so each test
 * has its own workflow.
 */
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
    await stage.wait(LONG_AGO);
    await stand(store, late, workflow, 'payment');
    const query = { workflow, state: 'payment' };
    assert.deepEqual(await listed(store, { ...query, forMs: LONG_AGO }), [early]);
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

/** The operation is an optional one: where a store has none there is nothing to test. */
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

/** Takes the run into the state, and makes it where there is none. */
export async function stand(
  store: AtomicStateStore,
  run: string,
  workflow: string,
  state: string,
  ttlMs = HOUR,
): Promise<void> {
  await step(store, run, { workflow, create: {} }, { snapshot: { state }, ttlMs });
}

function keysOf(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
}
