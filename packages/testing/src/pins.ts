/**
 * What a `hold` step pins, and what becomes of a run whose session ends: by its end, or for want of
 * use. The evidence stays until the step is settled.
 */

import assert from 'node:assert/strict';
import type { AtomicStateStore, FoundRun, RunRecord } from '../../../src/stores/index.ts';
import {
  attemptOf,
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  LONG,
  opened,
  type Promises,
  SHORT,
  type StoreStage,
  same,
  step,
} from './fixtures.ts';

const DAY = 24 * HOUR;
const RETRY = { uncertain: 'retry' } as const;
const COMMITTED = { status: 'committed', version: 1 };

export function pinPromises(promises: Promises): void {
  expiryPromises(promises);
  endPromises(promises);
  deletePromises(promises);
  keyPromises(promises);
  anonymousPromises(promises);
  purgePromises(promises);
}

function expiryPromises(promises: Promises): void {
  promises(
    'a held run outlives its time to live, and says that its session ended',
    async (stage) => {
      const { store, run } = stage;
      const held = await heldPastItsLife(stage, run);
      const record = await store.read(run, HOUR);
      assert.equal(record?.sessionEnded, true);
      assert.equal(record?.workflows.checkout?.claim?.token, held.token);
      assert.equal(record?.workflows.checkout?.claim?.live, false);
      assert.equal(await claimStatus(store, run), 'unknown');
      assert.equal(await claimStatus(store, run, { workflow: 'other' }), 'unknown');
      assert.deepEqual(await store.open(run, {}, HOUR), { status: 'taken' });
    },
  );

  promises('a step with a live claim and its run outlive the time to live', async (stage) => {
    const { store, run } = stage;
    for (const uncertain of ['hold', 'retry'] as const) {
      const key = `${run}-${uncertain}`;
      const request = claimOf(key, { create: {}, ttlMs: SHORT, step: { uncertain } });
      await claimed(store, request);
      await stage.wait(SHORT);
      assert.equal((await store.read(key, HOUR))?.sessionEnded, undefined);
      assert.deepEqual(await store.commit(commitOf(request)), COMMITTED);
    }
  });

  promises(
    'an outcome that comes after the session ended is saved, and can be read',
    async (stage) => {
      const { store, run } = stage;
      const held = await heldPastItsLife(stage, run);
      assert.deepEqual(await store.commit(commitOf(held)), COMMITTED);
      await assertEvidence(store, run);
      assert.equal((await store.history(held)).length, 1);
      if (!stage.clockIsInjected) return;
      await stage.wait(DAY - SHORT);
      await assertEvidence(store, run);
      await stage.wait(2 * SHORT);
      assert.equal(await store.read(run, HOUR), undefined);
      assert.deepEqual(await store.open(run, {}, HOUR), { status: 'opened' });
    },
  );

  promises(
    'a held step that is released after the session ended leaves its trail',
    async (stage) => {
      const { store, run } = stage;
      const held = await heldPastItsLife(stage, run);
      await store.release(held, held.token, { entry: attemptOf(held) });
      await assertEvidence(store, run);
      assert.equal((await store.history(held)).length, 1);
    },
  );

  promises(
    'a claim with `create` is tested against the held run, and goes on with it',
    async (stage) => {
      const { store, run } = stage;
      const create = { principal: 'alice' };
      const held = await heldPastItsLife(stage, run, create);
      assert.equal(await claimStatus(store, run, { create }), 'held');
      assert.equal(await claimStatus(store, run, { create, workflow: 'other' }), 'claimed');
      await store.commit(commitOf(held));
      const next = await claimed(store, claimOf(run, { create }));
      assert.equal(next.snapshot.state, 'has_items');
      assert.equal((await store.read(run, HOUR))?.sessionEnded, undefined);
    },
  );
}

function endPromises(promises: Promises): void {
  promises('a run that no step needs goes with its session', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run);
    assert.equal(await store.end(run), 'ended');
    assert.equal(await store.read(run, HOUR), undefined);
    assert.equal(await claimStatus(store, run), 'unknown');
    assert.deepEqual(await store.history({ run, workflow: 'checkout' }), []);
    assert.equal(await store.end(run), 'unknown');
    assert.deepEqual(await store.open(run, {}, HOUR), { status: 'opened' });
  });

  promises('a step that runs when its session ends is saved', async (stage) => {
    const { store, run } = stage;
    for (const uncertain of ['hold', 'retry'] as const) {
      const key = `${run}-${uncertain}`;
      await store.open(key, { principal: 'alice' }, HOUR);
      const request = claimOf(key, { step: { uncertain } });
      const { idempotencyKey } = await claimed(store, request);
      assert.equal(await store.end(key), 'ended');
      assert.equal((await store.read(key, HOUR))?.sessionEnded, true);
      assert.equal(await claimStatus(store, key), 'unknown');
      assert.equal((await claimed(store, request)).idempotencyKey, idempotencyKey);
      assert.equal(await store.renew(request, request.token, LONG), true);
      assert.deepEqual(await store.commit(commitOf(request)), COMMITTED);
      await assertEvidence(store, key);
      assert.equal(await store.end(key), 'ended');
      await assertEvidence(store, key);
    }
  });

  promises('a held run stays when its session ends', async (stage) => {
    const { store, run } = stage;
    await store.open(run, {}, HOUR);
    const held = claimOf(run, { leaseMs: SHORT });
    await claimed(store, held);
    await stage.wait(SHORT);
    assert.equal(await store.end(run), 'ended');
    const record = await store.read(run, HOUR);
    assert.equal(record?.sessionEnded, true);
    assert.equal(record?.workflows.checkout?.claim?.token, held.token);
    assert.deepEqual(await store.open(run, {}, HOUR), { status: 'taken' });
    assert.deepEqual(await store.commit(commitOf(held)), COMMITTED);
  });

  promises('a session that must be unclaimed ends only without any claim', async (stage) => {
    const { store, run } = stage;
    const free = { ifUnclaimed: true };
    const live = claimOf(`${run}-live`, { create: {} });
    const held = claimOf(`${run}-held`, { create: {}, leaseMs: SHORT });
    const dead = claimOf(`${run}-dead`, { create: {}, leaseMs: SHORT, step: RETRY });
    for (const request of [live, held, dead]) await claimed(store, request);
    await stage.wait(SHORT);
    for (const request of [live, held, dead]) {
      assert.equal(await store.end(request.run, free), 'claimed');
      assert.equal((await store.read(request.run, HOUR))?.sessionEnded, undefined);
    }
    await store.release(live, live.token);
    assert.equal(await store.end(live.run, free), 'ended');
    assert.equal(await store.read(live.run, HOUR), undefined);
    assert.equal(await store.end(run, free), 'unknown');
  });

  promises(
    'of a claim and the end of a session that must be unclaimed one happens',
    async (stage) => {
      for (let race = 0; race < 20; race += 1) {
        const run = `${stage.run}-${race}`;
        await stage.store.open(run, {}, HOUR);
        const request = claimOf(run);
        const results = await Promise.all([
          stage.store.end(run, { ifUnclaimed: true }),
          stage.store.claim(request),
        ]);
        const seen = [results[0], results[1].status].join();
        assert.ok(['ended,unknown', 'claimed,claimed'].includes(seen), seen);
      }
    },
  );
}

function deletePromises(promises: Promises): void {
  promises('a run with the claim of a `hold` step is not deleted', async (stage) => {
    const { store, run } = stage;
    const live = claimOf(`${run}-live`, { create: {} });
    const held = claimOf(`${run}-held`, { create: {}, leaseMs: SHORT });
    for (const request of [live, held]) await claimed(store, request);
    await stage.wait(SHORT);
    for (const request of [live, held]) {
      assert.equal(await store.delete(request.run), 'pinned');
      assert.equal((await store.read(request.run, HOUR))?.sessionEnded, undefined);
      assert.deepEqual(await store.commit(commitOf(request)), COMMITTED);
      assert.equal(await store.delete(request.run), 'deleted');
      assert.equal(await store.read(request.run, HOUR), undefined);
      assert.equal(await store.delete(request.run), 'unknown');
    }
  });
}

function keyPromises(promises: Promises): void {
  promises('a run lives as long as the key of a step that may be repeated', async (stage) => {
    const { store, run } = stage;
    const dead = claimOf(run, {
      create: {},
      leaseMs: SHORT,
      ttlMs: SHORT,
      keyMs: LONG,
      step: RETRY,
    });
    const { idempotencyKey } = await claimed(store, dead);
    await store.read(run, SHORT);
    await stage.wait(SHORT);
    assert.equal((await store.read(run, SHORT))?.sessionEnded, undefined);
    const again = claimOf(run, { ttlMs: SHORT, keyMs: LONG, step: RETRY });
    assert.equal((await claimed(store, again)).idempotencyKey, idempotencyKey);
    await store.commit(commitOf(again, { ttlMs: SHORT }));
    await store.read(run, SHORT);
    await stage.wait(SHORT);
    assert.equal(await store.read(run, HOUR), undefined);
  });

  promises(
    'where 16 keys are unsettled, a step that may be repeated gets no new one',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      for (let index = 0; index < 16; index += 1) {
        await claimed(
          store,
          claimOf(run, { leaseMs: 1, step: { ...RETRY, digest: `d-${index}` } }),
        );
        await stage.wait(1);
      }
      const more = { step: { ...RETRY, digest: 'd-16' } };
      const refused = await store.claim(claimOf(run, more));
      assert.ok(refused.status === 'unsettled', refused.status);
      assert.equal(refused.snapshot.state, 'empty');
      assert.equal(await claimStatus(store, run, { states: [], ...more }), 'state');
      const known = claimOf(run, { step: { ...RETRY, digest: 'd-3' } });
      await claimed(store, known);
      assert.equal((await store.commit(commitOf(known))).status, 'committed');
      const next = claimOf(run, more);
      await claimed(store, next);
      await store.release(next, next.token);
      assert.equal(await claimStatus(store, run, { step: { uncertain: 'hold' } }), 'claimed');
    },
  );
}

function anonymousPromises(all: Promises): void {
  const promises: Promises = (promise, body) =>
    all(promise, async (stage) => {
      if (stage.store.anonymize) await body(stage);
    });

  promises('an anonymized run is held under another key, and names no person', async (stage) => {
    const { store, run } = stage;
    await step(store, run, { create: { principal: `${run} alice` } });
    const entry = { tool: 'cart.pay', actor: `${run} alice`, args: { card: 1 } };
    const held = claimOf(run, { leaseMs: SHORT, entry });
    const { idempotencyKey } = await claimed(store, held);
    await stage.wait(SHORT);
    const name = await store.anonymize?.(run);
    assert.ok(name !== undefined && name !== run && name.includes(' '), name);
    assert.equal(await store.read(run, HOUR), undefined);
    assert.deepEqual(await store.open(run, {}, HOUR), { status: 'opened' });
    const record = await store.read(name, HOUR);
    assert.equal(record?.session.principal, undefined);
    assert.equal(record?.sessionEnded, true);
    const { claim, snapshot } = record?.workflows.checkout ?? {};
    assert.equal(snapshot?.state, 'has_items');
    assert.deepEqual([claim?.token, claim?.idempotencyKey], [held.token, idempotencyKey]);
    assert.equal(claim?.entry, undefined);
    assert.deepEqual(await store.history({ ...held, run: name }), []);
    if (store.held) assert.equal((await foundHeld(store, name))?.sessionEnded, true);
    if (store.list) same((await store.list({ principal: `${run} alice`, limit: 10 })).runs, []);
    const committed = await store.commit({ ...commitOf(held), run: name });
    assert.deepEqual(committed, { status: 'committed', version: 2 });
    assert.deepEqual(
      (await store.history({ ...held, run: name })).map(({ seq }) => seq),
      [1],
    );
  });

  promises('a run that is not held, or that has a step at work, keeps its key', async (stage) => {
    const { store, run } = stage;
    await step(store, run, { create: {} });
    const [live, held] = [claimOf(run), claimOf(run, { workflow: 'other', leaseMs: SHORT })];
    assert.equal(await store.anonymize?.(run), undefined);
    assert.equal(await store.anonymize?.(`${run}-none`), undefined);
    await claimed(store, held);
    await claimed(store, live);
    await stage.wait(SHORT);
    assert.equal(await store.anonymize?.(run), undefined);
    assert.deepEqual(await store.commit(commitOf(live)), { status: 'committed', version: 2 });
  });
}

function purgePromises(all: Promises): void {
  const promises: Promises = (promise, body) =>
    all(promise, async (stage) => {
      if (stage.store.purge) await body(stage);
    });

  promises('what has expired can be removed, and no held run with it', async (stage) => {
    const { store, run } = stage;
    const principal = `${run} alice`;
    const create = { principal };
    await step(store, `${run}-1`, { create, leaseMs: SHORT }, { ttlMs: SHORT });
    const held = await heldPastItsLife(stage, `${run}-2`, create);
    await step(store, `${run}-3`, { create });
    await stage.wait(SHORT);
    assert.ok(Number.isInteger(await store.purge?.({ principal })));
    assert.ok(Number.isInteger(await store.purge?.()));
    assert.equal(await store.read(`${run}-1`, HOUR), undefined);
    assert.equal((await store.read(`${run}-2`, HOUR))?.sessionEnded, true);
    assert.equal((await store.read(`${run}-3`, HOUR))?.sessionEnded, undefined);
    if (store.list) {
      const { runs } = await store.list({ principal, limit: 10 });
      same([...runs].sort(), [`${run}-2`, `${run}-3`]);
    }
    assert.deepEqual(await store.commit(commitOf(held)), COMMITTED);
  });
}

/** What listings give of held runs whose session ended. */
export function pinnedListingPromises(all: Promises): void {
  all('a held run whose session ended is listed and counted as held', async (stage) => {
    const { store, run } = stage;
    if (!store.held) return;
    const workflow = `w ${run}`;
    for (const end of ['expired', 'ended'] as const) {
      const ttlMs = end === 'expired' ? SHORT : HOUR;
      const key = `${run}-${end}`;
      // Until it is pinned it has an expiry, which must not outlast the claim.
      await store.open(key, {}, ttlMs);
      await claimed(store, claimOf(key, { create: {}, workflow, leaseMs: SHORT, ttlMs }));
    }
    await claimed(store, claimOf(`${run}-open`, { create: {}, workflow, leaseMs: SHORT }));
    await stage.wait(SHORT);
    await store.end(`${run}-ended`);
    const { runs } = await store.held({ workflow, limit: 10 });
    const found = Object.fromEntries(runs.map((each) => [each.run, each.sessionEnded ?? false]));
    assert.deepEqual(found, {
      [`${run}-expired`]: true,
      [`${run}-ended`]: true,
      [`${run}-open`]: false,
    });
    if (store.count) {
      const { held, states } = await store.count({ workflow, forMs: 0 });
      assert.equal(held, 3);
      same(states, [{ state: 'empty', runs: 3, stuck: 3 }]);
    }
    const stuck = await store.stuck?.({ workflow, forMs: 0, limit: 10 });
    assert.equal(stuck?.runs.length, 3);
  });
}

/** What holds between two processes on the same data. */
export function sharedPinPromises(promises: Promises): void {
  promises('a session that one side ends leaves a step of the other alone', async (stage) => {
    const run = await opened(stage);
    const other = await stage.reopen();
    const request = claimOf(run);
    await claimed(stage.store, request);
    assert.equal(await other.end(run, { ifUnclaimed: true }), 'claimed');
    assert.equal(await other.end(run), 'ended');
    assert.equal((await stage.store.read(run, HOUR))?.sessionEnded, true);
    assert.deepEqual(await stage.store.commit(commitOf(request)), COMMITTED);
    await assertEvidence(other, run);
  });
}

/** A run whose `hold` step has an unknown outcome, and whose time to live is over. */
async function heldPastItsLife(
  stage: StoreStage,
  run: string,
  create: RunRecord['session'] = {},
): Promise<ReturnType<typeof claimOf>> {
  const held = claimOf(run, { create, leaseMs: SHORT, ttlMs: SHORT });
  await claimed(stage.store, held);
  await stage.wait(2 * SHORT);
  return { ...held, create: undefined };
}

/** The session is over, its step is settled, and the run can still be read, but not claimed. */
async function assertEvidence(store: AtomicStateStore, run: string): Promise<void> {
  const record = await store.read(run, HOUR);
  assert.equal(record?.sessionEnded, true);
  assert.equal(record?.workflows.checkout?.claim, undefined);
  assert.equal(await claimStatus(store, run), 'unknown');
  assert.deepEqual(await store.open(run, {}, HOUR), { status: 'taken' });
}

async function foundHeld(store: AtomicStateStore, run: string): Promise<FoundRun | undefined> {
  for (let after: string | undefined; ; ) {
    const page = await store.held?.({ workflow: 'checkout', limit: 1_000, after });
    const found = page?.runs.find((each) => each.run === run);
    if (found !== undefined || page?.next === undefined) return found;
    after = page.next;
  }
}
