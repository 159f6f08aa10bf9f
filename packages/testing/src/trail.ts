/**
 * What the trail promises: one entry for each attempt, numbered by the store. And the chain of
 * hashes, where a store makes one.
 */

import assert from 'node:assert/strict';
import {
  type AtomicStateStore,
  type CallNote,
  type MoveDraft,
  type RunKey,
  type TrailDraft,
  type TrailEntry,
  verifyTrail,
} from '../../../src/stores/index.ts';
import {
  attemptOf,
  claimed,
  claimOf,
  commitOf,
  failedStep,
  HOUR,
  LONG,
  opened,
  type Promises,
  SHORT,
  type StoreStage,
  saidIn,
  same,
  step,
} from './fixtures.ts';

/** All that an entry can say: with a new member, each store is asked to keep it. */
const FULL: Required<MoveDraft> = {
  from: 'payment',
  to: 'confirmed',
  event: 'PAY',
  outcome: 'succeeded',
  kind: 'resolved',
  tool: 'cart.pay',
  digest: 'd-1',
  args: { b: 1, a: { d: [], c: {} }, 2: 'two' },
  actor: 'https://issuer.example alice',
  requestId: 7,
  workflowVersion: 3,
  payload: { amount: 12.5, items: [], note: null },
  errors: ['The card was declined.', { code: 7, fields: ['card'] }, null],
  note: 'It was paid.',
  calledBy: 'https://issuer.example bob',
};
const NOTE: CallNote = { tool: 'cart.pay', digest: 'd-1', actor: 'alice', requestId: 'id-1' };
const RETRY = { leaseMs: SHORT, step: { uncertain: 'retry' } } as const;

export function trailPromises(promises: Promises): void {
  contentPromises(promises);
  numberPromises(promises);
  releasePromises(promises);
  takeoverPromises(promises);
  appendPromises(promises);
}

function contentPromises(promises: Promises): void {
  promises(
    'the trail says who moved the run, between which states, by which event and with which data',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const sparse = { from: 'confirmed', to: 'confirmed', event: null };
      await step(store, run, {}, { trail: FULL });
      await step(store, run, {}, { trail: sparse });
      same(await saidIn(store, run), [FULL, sparse]);
      const [first, second] = await store.history({ run, workflow: 'checkout' });
      assert.ok(first && second);
      assert.strictEqual(second.event, null);
      assert.ok(first.at <= second.at);
    },
  );

  promises(
    'the newest entries are given, oldest first, as many as were asked for',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      for (let index = 0; index < 5; index += 1) await step(store, run);
      const key = { run, workflow: 'checkout' };
      assert.deepEqual(numbers(await store.history(key, 2)), [4, 5]);
      assert.deepEqual(numbers(await store.history(key, 5)), [1, 2, 3, 4, 5]);
      assert.deepEqual(numbers(await store.history(key, 500)), [1, 2, 3, 4, 5]);
      assert.deepEqual(numbers(await store.history(key)), [1, 2, 3, 4, 5]);
    },
  );

  promises(
    'the store keeps the last 50 entries, moves or not, and gives them by default',
    async (stage) => {
      const run = await opened(stage);
      await fill(stage.store, run);
      const expected = Array.from({ length: 50 }, (_, index) => index + 4);
      assert.deepEqual(numbers(await stage.store.history({ run, workflow: 'checkout' })), expected);
    },
  );

  promises('each workflow has a trail of its own', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run, { workflow: 'checkout' });
    await step(
      store,
      run,
      { workflow: 'approval' },
      { trail: { from: 'a', to: 'b', event: 'SUBMIT' } },
    );
    assert.equal((await store.history({ run, workflow: 'checkout' }))[0]?.event, 'ADD_ITEM');
    const [other] = await store.history({ run, workflow: 'approval' });
    assert.deepEqual([other?.event, other?.seq], ['SUBMIT', 1]);
    assert.deepEqual(await store.history({ run, workflow: 'never-claimed' }), []);
  });
}

function numberPromises(promises: Promises): void {
  promises(
    'entries are numbered without gaps over commits, releases, takeovers and refused calls',
    async (stage) => {
      assert.deepEqual(numbers(await livelyTrail(stage)), [1, 2, 3, 4, 5, 6]);
    },
  );

  promises(
    'an entry that moved nothing has the version that the snapshot had before',
    async (stage) => {
      const trail = await livelyTrail(stage);
      assert.deepEqual(
        trail.map(({ version }) => version),
        [1, 1, 1, 1, 2, 2],
      );
      const record = await stage.store.read(stage.run, HOUR);
      assert.equal(record?.workflows.checkout?.snapshot.version, 2);
    },
  );

  promises(
    'attempts are counted from one commit to the next, and a refused call is none',
    async (stage) => {
      const { store } = stage;
      const trail = await livelyTrail(stage);
      assert.deepEqual(
        trail.map(({ attempt }) => attempt),
        [1, 1, 2, store.append ? 2 : 3, store.append ? 3 : 4, 1],
      );
    },
  );

  promises('the workflow goes on from the version of its initial snapshot', async (stage) => {
    const run = await opened(stage);
    const initial = { state: 'migrated', updatedAt: 0, version: 41 };
    await failedStep(stage.store, run, { initial }, { from: 'migrated' });
    await step(stage.store, run);
    const trail = await stage.store.history({ run, workflow: 'checkout' });
    assert.deepEqual(
      trail.map(({ seq, version }) => [seq, version]),
      [
        [1, 41],
        [2, 42],
      ],
    );
  });
}

function releasePromises(promises: Promises): void {
  promises('a release with an entry writes it, and moves nothing', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const { to: _, ...full } = FULL;
    await failedStep(store, run, {}, full);
    same(await saidIn(store, run), [full]);
    const checkout = (await store.read(run, HOUR))?.workflows.checkout;
    assert.deepEqual([checkout?.snapshot.state, checkout?.snapshot.version ?? 0], ['empty', 0]);
    assert.equal(checkout?.claim, undefined);
  });

  promises('a release that is repeated writes its entry once', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = await failedStep(store, run);
    const entry = attemptOf(request);
    await store.release(request, request.token, { entry });
    await claimed(store, claimOf(run));
    await store.release(request, request.token, { entry });
    assert.deepEqual(numbers(await store.history(request)), [1]);
  });

  promises('a release by a token whose claim is lost writes nothing', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const [stranger, released, committed, overtaken] = [
      claimOf(run),
      claimOf(run),
      claimOf(run),
      claimOf(run, RETRY),
    ];
    const letGo = (request: typeof stranger) =>
      store.release(request, request.token, { entry: attemptOf(request) });
    await letGo(stranger);
    await claimed(store, released);
    await store.release(released, released.token);
    await letGo(released);
    await claimed(store, committed);
    await store.commit(commitOf(committed));
    await letGo(committed);
    await claimed(store, overtaken);
    await stage.wait(SHORT);
    await claimed(store, claimOf(run));
    await letGo(overtaken);
    await letGo(stranger);
    assert.deepEqual(numbers(await store.history({ run, workflow: 'checkout' })), [1]);
  });

  promises('the trail says who resolved a held step, and what that person found', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const found = { kind: 'resolved', note: 'The bank says no.', actor: 'carol', calledBy: 'bob' };
    const undone = claimOf(run, { leaseMs: SHORT, entry: NOTE });
    await claimed(store, undone);
    await stage.wait(SHORT);
    assert.deepEqual(await store.history(undone), []);
    const no = attemptOf(undone, { ...found, outcome: 'failed' });
    await store.release(undone, undone.token, { entry: no });
    const done = claimOf(run, { leaseMs: SHORT, entry: NOTE });
    await claimed(store, done);
    await stage.wait(SHORT);
    const yes = { ...commitOf(done).trail, ...found, outcome: 'succeeded' } as const;
    await store.commit(commitOf(done, { as: `${done.token}-resolved`, trail: yes }));
    same(await saidIn(store, run), [no, yes]);
  });
}

function takeoverPromises(promises: Promises): void {
  promises('an attempt is written whose claim another one takes over, once', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await claimed(store, claimOf(run, { ...RETRY, entry: NOTE }));
    await stage.wait(SHORT);
    const next = claimOf(run, RETRY);
    for (let time = 0; time < 2; time += 1) await claimed(store, next);
    await store.release(next, next.token);
    await claimed(store, claimOf(run));
    same(await saidIn(store, run), [takenOverDraft('empty', NOTE)]);
    const [entry] = await store.history(next);
    assert.deepEqual([entry?.seq, entry?.version, entry?.attempt], [1, 0, 1]);
  });

  promises('of 50 claims that may take one over exactly one writes its attempt', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await claimed(store, claimOf(run, { ...RETRY, entry: NOTE }));
    await stage.wait(SHORT);
    await Promise.all(Array.from({ length: 50 }, () => store.claim(claimOf(run))));
    same(await saidIn(store, run), [takenOverDraft('empty', NOTE)]);
  });

  promises('a claim that said nothing for the trail is taken over in silence', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await claimed(store, claimOf(run, RETRY));
    await stage.wait(SHORT);
    await claimed(store, claimOf(run, { entry: NOTE }));
    assert.deepEqual(await store.history({ run, workflow: 'checkout' }), []);
  });

  promises(
    'nothing is written without a takeover: not by its own token, a refusal or a renewal',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const late = claimOf(run, { ...RETRY, entry: NOTE });
      await claimed(store, late);
      await stage.wait(SHORT);
      await claimed(store, late);
      await stage.wait(SHORT);
      assert.equal((await store.claim(claimOf(run, { states: [] }))).status, 'state');
      await store.renew(late, late.token, LONG);
      assert.equal((await store.claim(claimOf(run))).status, 'busy');
      assert.deepEqual(await store.history(late), []);
      await store.commit(commitOf(late));
      assert.deepEqual(numbers(await store.history(late)), [1]);
    },
  );
}

function appendPromises(all: Promises): void {
  const promises: Promises = (promise, body) =>
    all(promise, async (stage) => {
      if (stage.store.append) await body(stage);
    });

  promises('a refused call is written, and changes nothing else', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const holder = claimOf(run);
    await claimed(store, holder);
    const before = await store.read(run, HOUR);
    const entry = { ...refused('empty'), requestId: 3, args: {}, errors: ['The cart is empty.'] };
    await store.append?.(holder, entry);
    same(await saidIn(store, run), [entry]);
    const after = await store.read(run, HOUR);
    same({ ...after, now: 0 }, { ...before, now: 0 });
    assert.deepEqual(await store.commit(commitOf(holder)), { status: 'committed', version: 1 });
  });

  promises('a refused call keeps no run alive', async (stage) => {
    const { store, run } = stage;
    await step(store, run, { create: {}, leaseMs: SHORT }, { ttlMs: stage.soon });
    await store.append?.({ run, workflow: 'checkout' }, refused('has_items'));
    assert.deepEqual(numbers(await store.history({ run, workflow: 'checkout' })), [1, 2]);
    await stage.wait(stage.soon);
    assert.equal(await store.read(run, HOUR), undefined);
  });

  promises('nothing is written of a run or a workflow that is unknown', async (stage) => {
    const { store, run } = stage;
    await store.append?.({ run, workflow: 'checkout' }, refused('empty'));
    assert.equal(await store.read(run, HOUR), undefined);
    await opened(stage);
    await store.append?.({ run, workflow: 'checkout' }, refused('empty'));
    same((await store.read(run, HOUR))?.workflows, {});
    assert.deepEqual(await store.history({ run, workflow: 'checkout' }), []);
  });
}

/** What holds where a store chains its trails by hashes. */
export function chainPromises(promises: Promises): void {
  promises('the hashes of a trail verify, for entries of every kind', async (stage) => {
    const trail = await livelyTrail(stage);
    assert.deepEqual(verifyTrail(trail, { from: checkoutOf(stage.run) }), []);
    assert.equal(new Set(trail.map(({ hash }) => hash)).size, trail.length);
  });

  promises('the hashes of a trail verify from each entry on that is given', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await fill(store, run);
    const from = checkoutOf(run);
    const [all, last] = [await store.history(from), await store.history(from, 3)];
    const newest = all.at(-1)?.hash;
    for (const trail of [all, last]) assert.deepEqual(verifyTrail(trail, { from, newest }), []);
  });

  promises(
    'a rewritten oldest entry, an added member and a dropped end do not verify',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      await fill(store, run);
      const from = checkoutOf(run);
      const trail = await store.history(from, 3);
      const [oldest, ...rest] = trail;
      assert.ok(oldest);
      const altered = [{ index: 0, seq: oldest.seq, fault: 'altered' }];
      assert.deepEqual(verifyTrail([{ ...oldest, from: 'paid' }, ...rest], { from }), altered);
      const added = { ...oldest, refunded: true };
      assert.deepEqual(verifyTrail([added, ...rest], { from }), altered);
      const cut = [{ index: -1, seq: 0, fault: 'cut' }];
      const newest = trail.at(-1)?.hash;
      assert.deepEqual(verifyTrail(trail.slice(0, -1), { from, newest }), cut);
    },
  );

  promises('the trail of another run or workflow does not verify', async (stage) => {
    const trail = await livelyTrail(stage);
    const from = checkoutOf(stage.run);
    const foreign = [{ index: 0, seq: 1, fault: 'foreign' }];
    assert.deepEqual(verifyTrail(trail, { from: { ...from, run: 'another' } }), foreign);
    assert.deepEqual(verifyTrail(trail, { from: { ...from, workflow: 'another' } }), foreign);
  });
}

function checkoutOf(run: string): RunKey {
  return { run, workflow: 'checkout' };
}

/** What holds of chained trails between two processes on the same data. */
export function sharedChainPromises(promises: Promises): void {
  promises('both sides go on with one chain', async (stage) => {
    const run = await opened(stage);
    const other = await stage.reopen();
    for (const side of [stage.store, other, stage.store]) {
      await failedStep(side, run);
      await step(side, run);
    }
    for (const side of [stage.store, other]) {
      const trail = await side.history(checkoutOf(run));
      assert.deepEqual(numbers(trail), [1, 2, 3, 4, 5, 6]);
      assert.deepEqual(verifyTrail(trail, { from: checkoutOf(run) }), []);
    }
  });
}

/** A commit, a release, a takeover, a refused call, and then a commit and a release once more. */
async function livelyTrail(stage: StoreStage): Promise<TrailEntry[]> {
  const { store } = stage;
  const run = await opened(stage);
  await step(store, run, {}, { trail: FULL });
  const { to: _, ...failed } = FULL;
  await failedStep(store, run, {}, { ...failed, outcome: 'failed' });
  await claimed(store, claimOf(run, { ...RETRY, entry: { ...NOTE, args: [''] } }));
  await stage.wait(SHORT);
  const next = claimOf(run);
  await claimed(store, next);
  if (store.append) await store.append(next, refused('has_items'));
  else await store.release(next, next.token, { entry: attemptOf(next) });
  if (store.append) await store.commit(commitOf(next));
  else await step(store, run);
  await failedStep(store, run, {}, { outcome: 'input_required', kind: undefined });
  return store.history({ run, workflow: 'checkout' });
}

/** Entries of 53 attempts, of which each second one moves. */
async function fill(store: AtomicStateStore, run: string): Promise<void> {
  for (let index = 0; index < 53; index += 1)
    if (index % 2 === 0) await step(store, run);
    else await failedStep(store, run);
}

function refused(from: string): TrailDraft {
  return { from, event: null, outcome: 'refused', kind: 'state', tool: 'cart.pay' };
}

function takenOverDraft(from: string, note: CallNote): TrailDraft {
  return { from, event: null, outcome: 'unknown', kind: 'taken_over', ...note };
}

function numbers(trail: readonly TrailEntry[]): number[] {
  return trail.map(({ seq }) => seq);
}
