/**
 * What a call adds that runs beside others, without a claim. What becomes of a commit that was made
 * from an older version. And how a claim turns into a held one.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { AtomicStateStore } from '../../../src/stores/index.ts';
import {
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  count,
  HOUR,
  LONG,
  opened,
  type Promises,
  recordingOf,
  SHORT,
  same,
  step,
} from './fixtures.ts';

export function recordPromises(promises: Promises): void {
  freePromises(promises);
  besidePromises(promises);
  holdingPromises(promises);
}

function freePromises(promises: Promises): void {
  promises('a record makes the workflow, moves it and says so in the trail', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const first = recordingOf(run, 0, 'a');
    assert.deepEqual(await store.record(first), { status: 'recorded', version: 1 });
    assert.deepEqual(await store.record(recordingOf(run, 1, 'b')), {
      status: 'recorded',
      version: 2,
    });
    const { snapshot, claim } = await checkoutOf(store, run);
    same([snapshot.state, snapshot.context, snapshot.version], ['b', { of: 'b' }, 2]);
    assert.equal(claim, undefined);
    const trail = await store.history({ run, workflow: 'checkout' });
    same(
      trail.map(({ seq, version, attempt, to }) => [seq, version, attempt, to]),
      [
        [1, 1, 1, 'a'],
        [2, 2, 1, 'b'],
      ],
    );
  });

  promises('a record ends the workflow, keeps it ended, and begins it again', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const endedAfter = async (from: number, ended?: boolean): Promise<boolean | undefined> => {
      await store.record(recordingOf(run, from, `at ${from}`, { ended }));
      return (await checkoutOf(store, run)).ended;
    };
    assert.equal(await endedAfter(0, true), true);
    assert.equal(await endedAfter(1), true);
    assert.equal(await endedAfter(2, false), false);
    assert.equal(await endedAfter(3), false);
  });

  promises(
    'a record from another version changes nothing, and gets the position',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const early = await store.record(recordingOf(run, 1, 'never'));
      assert.equal(early.status, 'moved');
      await store.record(recordingOf(run, 0, 'a'));
      const late = await store.record(recordingOf(run, 0, 'never'));
      assert.ok(late.status === 'moved');
      same([late.snapshot.state, late.snapshot.version], ['a', 1]);
      assert.equal((await store.history({ run, workflow: 'checkout' })).length, 1);
    },
  );

  promises('a record that arrives again gets its first answer', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = recordingOf(run, 0, 'a');
    await store.record(request);
    await store.record(recordingOf(run, 1, 'b'));
    const again = await store.record(request);
    assert.deepEqual(again, { status: 'recorded', version: 1, repeated: true });
    assert.equal((await checkoutOf(store, run)).snapshot.state, 'b');
    assert.equal((await store.history({ run, workflow: 'checkout' })).length, 2);
  });

  promises('of many records from one version one is taken', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const names = Array.from({ length: 20 }, (_, index) => `s${index}`);
    const results = await Promise.all(names.map((name) => store.record(recordingOf(run, 0, name))));
    assert.equal(
      count(results, ({ status }) => status === 'recorded'),
      1,
    );
    assert.equal(
      count(results, ({ status }) => status === 'moved'),
      19,
    );
  });

  promises('a record makes no run, unless it says for whom', async (stage) => {
    const { store, run } = stage;
    assert.deepEqual(await store.record(recordingOf(run, 0, 'a')), { status: 'unknown' });
    assert.equal(await store.read(run, HOUR), undefined);
    const create = { principal: 'alice' };
    const made = await store.record(recordingOf(run, 0, 'a', { create }));
    assert.deepEqual(made, { status: 'recorded', version: 1 });
    assert.equal((await store.read(run, HOUR))?.session.principal, 'alice');
  });
}

function besidePromises(promises: Promises): void {
  promises('a record leaves the claim of a step alone, and its commit has moved', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run);
    const { idempotencyKey } = await claimed(store, request);
    assert.deepEqual(await store.record(recordingOf(run, 0, 'a')), {
      status: 'recorded',
      version: 1,
    });
    const { claim } = await checkoutOf(store, run);
    assert.deepEqual([claim?.token, claim?.idempotencyKey], [request.token, idempotencyKey]);
    assert.equal(await claimStatus(store, run), 'busy');

    const late = await store.commit(commitOf(request, { from: 0 }));
    assert.ok(late.status === 'moved');
    same([late.snapshot.state, late.snapshot.version], ['a', 1]);
    assert.equal((await checkoutOf(store, run)).claim?.token, request.token);
    const anew = await store.commit(commitOf(request, { from: 1 }));
    assert.deepEqual(anew, { status: 'committed', version: 2 });
  });

  promises(
    'a commit from a version that is still the newest is taken, also twice',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const request = claimOf(run);
      await claimed(store, request);
      const from = { from: 0 };
      assert.deepEqual(await store.commit(commitOf(request, from)), {
        status: 'committed',
        version: 1,
      });
      assert.deepEqual(await store.commit(commitOf(request, from)), {
        status: 'committed',
        version: 1,
        repeated: true,
      });
    },
  );

  promises('a record goes on beside a held step', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run, { leaseMs: SHORT });
    await claimed(store, request);
    await stage.wait(SHORT);
    assert.deepEqual(await store.record(recordingOf(run, 0, 'a')), {
      status: 'recorded',
      version: 1,
    });
    assert.equal(await claimStatus(store, run), 'held');
    assert.deepEqual(await store.commit(commitOf(request, { from: 1 })), {
      status: 'committed',
      version: 2,
    });
  });

  promises('a record needs a session that has not ended', async (stage) => {
    const { store } = stage;
    const run = await opened(stage, { principal: 'alice' });
    await claimed(store, claimOf(run));
    await store.end(run);
    assert.deepEqual(await store.record(recordingOf(run, 0, 'a')), { status: 'unknown' });
    const create = { principal: 'alice' };
    const revived = await store.record(recordingOf(run, 0, 'a', { create }));
    assert.deepEqual(revived, { status: 'recorded', version: 1 });
    assert.equal((await store.read(run, HOUR))?.sessionEnded, undefined);
  });

  promises('a record after a step follows it', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    assert.equal(await step(store, run), 1);
    const recorded = await store.record(recordingOf(run, 1, 'b'));
    assert.deepEqual(recorded, { status: 'recorded', version: 2 });
    const trail = await store.history({ run, workflow: 'checkout' });
    same(
      trail.map(({ seq, version }) => [seq, version]),
      [
        [1, 1],
        [2, 2],
      ],
    );
  });
}

function holdingPromises(promises: Promises): void {
  promises('a renewal can turn the claim of a `retry` step into a held one', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run, { step: { uncertain: 'retry' } });
    const { idempotencyKey } = await claimed(store, request);
    assert.equal(await store.renew(request, request.token, 0, { hold: 'undecided' }), true);
    const result = await store.claim(claimOf(run, { step: { uncertain: 'retry' } }));
    assert.ok(result.status === 'held');
    const { claim } = result;
    assert.deepEqual(
      [claim.kind, claim.uncertain, claim.live, claim.idempotencyKey],
      ['undecided', 'hold', false, idempotencyKey],
    );
    assert.equal(await store.delete(run), 'pinned');
    assert.deepEqual(await store.commit(commitOf(request)), { status: 'committed', version: 1 });
  });

  promises('a renewal that holds says why, and needs the claim', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run);
    await claimed(store, request);
    const hold = { hold: 'unknown' };
    assert.equal(await store.renew(request, randomUUID(), LONG, hold), false);
    assert.equal((await checkoutOf(store, run)).claim?.kind, undefined);
    assert.equal(await store.renew(request, request.token, LONG, hold), true);
    const { claim } = await checkoutOf(store, run);
    assert.deepEqual([claim?.kind, claim?.live], ['unknown', true]);
  });
}

async function checkoutOf(store: AtomicStateStore, run: string) {
  const workflow = (await store.read(run, HOUR))?.workflows.checkout;
  assert.ok(workflow, 'expected the run to have its workflow');
  return workflow;
}
