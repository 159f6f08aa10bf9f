/**
 * How long a store keeps what a step would use up of its run's limits. And which claims get the
 * steps of unknown outcome.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { AtomicStateStore, Json, UnsettledStep } from '../../../src/stores/index.ts';
import {
  type ClaimChanges,
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  LONG,
  opened,
  type Promises,
  readClaim,
  recordingOf,
  SHORT,
  type StoreStage,
  same,
  sameAnswer,
  step,
} from './fixtures.ts';
import { freezeOf, thawOf } from './freezes.ts';

const USE: Json = { payments: [{ of: 'sha256:ab', amount: 19.99 }], calls: 1 };

export function usePromises(promises: Promises): void {
  keptPromises(promises);
  unsettledPromises(promises);
  shownPromises(promises);
  settledPromises(promises);
}

function keptPromises(promises: Promises): void {
  promises('a claim keeps what its step would use, whatever else is written', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = retryOf(run, { use: USE }, LONG);
    await claimed(store, request);
    const assertKept = async () => same((await readClaim(stage)).use, USE);
    await assertKept();
    assert.equal(await claimStatus(store, run, { step: { use: 'of another' } }), 'busy');
    await store.record(recordingOf(run, 0, 'a'));
    await store.freeze(freezeOf(run));
    await store.freeze(thawOf(run));
    await assertKept();
    await store.renew(request, request.token, LONG);
    await assertKept();
    await claimed(store, request);
    await assertKept();
    await store.renew(request, request.token, 0, { hold: 'undecided' });
    await assertKept();
  });

  promises('a held step says what it would use', async (stage) => {
    const { store, run } = stage;
    const key = { run, workflow: run };
    await claimed(store, claimOf(run, { ...key, create: {}, leaseMs: SHORT, step: { use: USE } }));
    await stage.wait(SHORT);
    const refused = await store.claim(claimOf(run, key));
    assert.ok(refused.status === 'held', refused.status);
    same(refused.claim.use, USE);
    const page = await store.held?.({ workflow: run, limit: 1 });
    if (page) same(page.runs[0]?.claim?.use, USE);
  });

  promises('a step that would use nothing says nothing of it', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await claimed(store, retryOf(run, {}));
    assert.equal((await readClaim(stage)).use, undefined);
    await stage.wait(SHORT);
    const { unsettled } = await claimed(store, claimOf(run, { leaseMs: SHORT }));
    assert.deepEqual(
      unsettled?.map(({ use }) => use),
      [undefined],
    );
    await stage.wait(SHORT);
    const refused = await store.claim(claimOf(run, { step: { use: USE } }));
    assert.ok(refused.status === 'held', refused.status);
    assert.equal(refused.claim.use, undefined);
  });

  promises('an anonymized run keeps what its steps would use', async (stage) => {
    const { store } = stage;
    if (!store.anonymize) return;
    const run = await opened(stage);
    const earlier = await unsettle(stage, run, { digest: 'a', use: [1] });
    const held = claimOf(run, { leaseMs: SHORT, step: { use: USE } });
    await claimed(store, held);
    await stage.wait(SHORT);
    const name = (await store.anonymize(run)) ?? '';
    same((await readClaim({ store, run: name })).use, USE);
    await store.commit({ ...commitOf(held), run: name });
    await assertUnsettled(store, name, [earlier], { create: {} });
  });
}

function unsettledPromises(promises: Promises): void {
  promises(
    'a claim gets the steps of unknown outcome before it, oldest first, as often as it asks',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const steps: UnsettledStep[] = [];
      for (const digest of ['a', 'b', 'c']) {
        steps.push(await unsettle(stage, run, { digest, use: { of: digest } }));
        const next = claimOf(run);
        const answer = await claimed(store, next);
        same(answer.unsettled, steps);
        sameAnswer(await claimed(store, next), answer);
        await store.release(next, next.token);
      }
    },
  );

  promises('a claim gets no step whose outcome is known', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await assertUnsettled(store, run, undefined);
    const late = retryOf(run, { use: USE });
    await claimed(store, late);
    await stage.wait(SHORT);
    // Its own lease has ended, and no other claim has taken over.
    assert.equal((await claimed(store, late)).unsettled, undefined);
    await stage.wait(SHORT);
    await store.commit(commitOf(late));
    await assertUnsettled(store, run, undefined);
  });

  promises('a claim gets no step of another workflow', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const step = await unsettle(stage, run, { digest: 'a', use: USE });
    await assertUnsettled(store, run, undefined, { workflow: 'approval' });
    await assertUnsettled(store, run, [step]);
  });

  promises('a step that is tried again gets its earlier try, by its key', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const first = await unsettle(stage, run, { digest: 'a', use: 1 });
    const other = await unsettle(stage, run, { digest: 'b', use: 2 });
    const again = retryOf(run, { digest: 'a', use: 3 });
    const { idempotencyKey, unsettled } = await claimed(store, again);
    assert.equal(idempotencyKey, first.idempotencyKey);
    same(unsettled, [first, other]);
    const { since = Number.NaN } = await readClaim(stage);
    await stage.wait(SHORT);
    await assertUnsettled(store, run, [other, { ...first, since, use: 3 }]);
  });
}

function shownPromises(promises: Promises): void {
  promises(
    'a run, a list and a refused claim show its unsettled steps as a granted claim does',
    async (stage) => {
      const { store, run } = stage;
      const key = { workflow: run };
      const first = await unsettle(stage, run, { digest: 'a', use: 1 }, run);
      const steps = [first, await unsettle(stage, run, { digest: 'b' }, run)];
      const assertShown = async (expected: readonly UnsettledStep[] | undefined) => {
        same((await store.read(run, HOUR))?.workflows[run]?.unsettled, expected);
        const page = await store.unsettled?.({ workflow: run, limit: 10 });
        if (page === undefined) return;
        same(
          page.runs.map((each) => each.unsettled),
          expected === undefined ? [] : [expected],
        );
        if (store.count === undefined) return;
        const { unsettled } = await store.count({ workflow: run, forMs: 0 });
        assert.equal(unsettled, expected === undefined ? 0 : 1);
      };
      await assertShown(steps);
      const refused = await store.claim(claimOf(run, { ...key, states: ['paid'] }));
      assert.ok(refused.status === 'state', refused.status);
      same(refused.unsettled, steps);
      const other = claimOf(run, key);
      await claimed(store, other);
      await assertShown(steps);
      await store.commit(commitOf(other));
      await assertShown(steps);
      await step(store, run, key, { settles: 'all' });
      await assertShown(undefined);
    },
  );

  promises('a person settles an unsettled step by its key, once, with a move', async (stage) => {
    const { store, run } = stage;
    const key = { workflow: run };
    const steps = [
      await unsettle(stage, run, { digest: 'a' }, run),
      await unsettle(stage, run, { digest: 'b' }, run),
    ];
    await step(store, run, key);
    const [first, second] = steps;
    const settling = (settlesKey = '', token = randomUUID()) =>
      recordingOf(run, 1, 'paid', { ...key, token, settlesKey });
    assert.equal((await store.record(settling('no such key'))).status, 'moved');
    const request = settling(first?.idempotencyKey);
    same(await store.record(request), { status: 'recorded', version: 2 });
    same(await store.record(request), { status: 'recorded', version: 2, repeated: true });
    const { unsettled } = (await store.read(run, HOUR))?.workflows[run] ?? {};
    same(unsettled, [second]);
    const again = { ...settling(first?.idempotencyKey), from: 2 };
    assert.equal((await store.record(again)).status, 'moved');
    // A step that is tried again at this moment is its caller's.
    const tried = retryOf(run, { digest: 'b' }, LONG, run);
    await claimed(store, tried);
    const meanwhile = { ...settling(second?.idempotencyKey), from: 2 };
    assert.equal((await store.record(meanwhile)).status, 'moved');
    await store.commit(commitOf(tried));
    assert.equal((await store.read(run, HOUR))?.workflows[run]?.unsettled, undefined);
  });
}

function settledPromises(promises: Promises): void {
  promises('each claim gets a step until a commit or a release settles it', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const steps: UnsettledStep[] = [];
    for (const digest of ['a', 'b', 'c', 'd'])
      steps.push(await unsettle(stage, run, { digest, use: { of: digest } }));
    await assertUnsettled(store, run, steps);
    const tried = async (digest: string) => {
      const request = retryOf(run, { digest }, LONG);
      await claimed(store, request);
      return request;
    };
    await store.commit(commitOf(await tried('a')));
    await assertUnsettled(store, run, steps.slice(1));
    const released = await tried('b');
    await store.release(released, released.token);
    await assertUnsettled(store, run, steps.slice(2));

    const letGo = await tried('c');
    await store.release(letGo, letGo.token, { settles: false });
    await store.commit(commitOf(await tried('c'), { settles: false }));
    await step(store, run);
    await assertUnsettled(store, run, steps.slice(2));

    await step(store, run, {}, { settles: 'all' });
    await assertUnsettled(store, run, undefined);
  });

  promises('a claim gets 16 unsettled steps, also after a refusal', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const steps: UnsettledStep[] = [];
    for (let index = 0; index < 16; index += 1)
      steps.push(await unsettle(stage, run, { digest: `d-${index}`, use: index }));
    assert.equal(
      (await store.claim(retryOf(run, { digest: 'd-16', use: 16 }))).status,
      'unsettled',
    );
    const known = retryOf(run, { digest: 'd-3' }, LONG);
    same((await claimed(store, known)).unsettled, steps);
    await store.commit(commitOf(known));
    await assertUnsettled(store, run, steps.toSpliced(3, 1));
  });
}

/** What holds between two processes on the same data. */
export function sharedUsePromises(promises: Promises): void {
  promises('both sides see what a step would use, and get its claim', async (stage) => {
    const run = await opened(stage);
    const other = await stage.reopen();
    const step = await unsettle(stage, run, { digest: 'a', use: USE });
    same((await readClaim({ store: other, run })).use, USE);
    await assertUnsettled(other, run, [step]);
    await assertUnsettled(stage.store, run, [step]);
  });
}

/** A step that may be repeated, whose lease is over after a wait of `SHORT`. */
function retryOf(run: string, asked: ClaimChanges['step'], leaseMs = SHORT, workflow = 'checkout') {
  return claimOf(run, { workflow, create: {}, leaseMs, step: { ...asked, uncertain: 'retry' } });
}

/** A step with an unknown outcome, as claims after it get it. */
async function unsettle(
  stage: StoreStage,
  run: string,
  asked: ClaimChanges['step'],
  workflow = 'checkout',
): Promise<UnsettledStep> {
  const request = retryOf(run, asked, 1, workflow);
  const { idempotencyKey } = await claimed(stage.store, request);
  const record = (await stage.store.read(run, HOUR))?.workflows[workflow];
  const since = record?.claim?.since ?? Number.NaN;
  await stage.wait(1);
  const { tool, digest, use } = request.step;
  return { tool, digest, idempotencyKey, since, ...(use !== undefined && { use }) };
}

/** Asserts which steps a new claim of another one gets, and releases it. */
async function assertUnsettled(
  store: AtomicStateStore,
  run: string,
  steps: readonly UnsettledStep[] | undefined,
  changes: ClaimChanges = {},
): Promise<void> {
  const request = claimOf(run, changes);
  same((await claimed(store, request)).unsettled, steps);
  await store.release(request, request.token);
}
