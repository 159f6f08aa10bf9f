import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { TOKENS_KEPT } from '../../../src/internal.ts';
import type { AtomicStateStore, CommitResult } from '../../../src/stores/index.ts';
import {
  claimed,
  claimOf,
  commitOf,
  HOUR,
  LONG,
  opened,
  type Promises,
  repeated,
  SHORT,
  type StoreStage,
  same,
  step,
} from './fixtures.ts';

export function commitPromises(promises: Promises): void {
  versionPromises(promises);
  tokenPromises(promises);
  lostPromises(promises);
  latePromises(promises);
}

function versionPromises(promises: Promises): void {
  promises('each commit saves its snapshot, with a version of one more', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    for (const version of [1, 2, 3]) {
      const snapshot = { state: `s${version}`, context: { count: version } };
      assert.equal(await step(store, run, {}, { snapshot }), version);
      const stored = (await store.read(run, HOUR))?.workflows.checkout;
      assert.equal(stored?.snapshot.state, `s${version}`);
      assert.equal(stored?.snapshot.version, version);
      same(stored?.snapshot.context, { count: version });
      assert.equal(stored?.claim, undefined);
    }
  });

  promises('a workflow counts on from the version that its initial snapshot has', async (stage) => {
    const run = await opened(stage);
    const initial = { state: 'migrated', updatedAt: 0, version: 41 };
    assert.equal(await step(stage.store, run, { initial }), 42);
    assert.equal((await stage.store.history({ run, workflow: 'checkout' }))[0]?.version, 42);
  });

  promises('a commit without context leaves none behind', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run, {}, { snapshot: { state: 'has_items', context: { a: 1 } } });
    await step(store, run, {}, { snapshot: { state: 'has_items', context: null } });
    assert.strictEqual((await store.read(run, HOUR))?.workflows.checkout?.snapshot.context, null);
    await step(store, run, {}, { snapshot: { state: 'has_items' } });
    assert.strictEqual(
      (await store.read(run, HOUR))?.workflows.checkout?.snapshot.context,
      undefined,
    );
  });

  promises('snapshots and trail carry the time of the store, in milliseconds', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run);
    const before =
      (await store.read(run, HOUR))?.workflows.checkout?.snapshot.updatedAt ?? Number.NaN;
    await stage.wait(100);
    await step(store, run);
    const after =
      (await store.read(run, HOUR))?.workflows.checkout?.snapshot.updatedAt ?? Number.NaN;
    const [first, second] = await store.history({ run, workflow: 'checkout' });
    assert.ok(first && second);
    for (const passed of [after - before, second.at - first.at]) {
      assert.ok(passed >= 95 && passed < 30_000, `100 ms on the store's clock were ${passed}`);
    }
    if (stage.clockIsInjected) return;
    for (const time of [before, after, first.at, second.at]) assertAboutNow(time);
  });

  promises('steps that race for a run leave no gap and lose none', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const versions = await Promise.all(Array.from({ length: 8 }, () => racer(store, run, 4)));
    const inOrder = versions.flat().sort((a, b) => a - b);
    assert.deepEqual(
      inOrder,
      Array.from({ length: 32 }, (_, index) => index + 1),
    );
    const trail = await store.history({ run, workflow: 'checkout' });
    assert.deepEqual(
      trail.map(({ seq, version }) => [seq, version]),
      inOrder.map((version) => [version, version]),
    );
  });
}

/** More than eight racers can need, and few enough to end where a claim is never let go. */
const ATTEMPTS = 500;

/** Takes `steps` steps against others who do the same, and gives the versions that they made. */
async function racer(store: AtomicStateStore, run: string, steps: number): Promise<number[]> {
  const versions: number[] = [];
  for (let attempt = 0; attempt < ATTEMPTS && versions.length < steps; attempt += 1) {
    const request = claimOf(run);
    const claim = await store.claim(request);
    if (claim.status === 'busy') {
      await sleep(1);
      continue;
    }
    assert.equal(claim.status, 'claimed');
    const commit = await store.commit(commitOf(request));
    assert.ok(commit.status === 'committed', commit.status);
    versions.push(commit.version);
  }
  assert.equal(versions.length, steps, `a racer was busy for ${ATTEMPTS} attempts`);
  return versions;
}

function tokenPromises(promises: Promises): void {
  promises(
    'committing again with one token changes nothing, and the answer says that it is repeated',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const request = claimOf(run);
      await claimed(store, request);
      const first = await store.commit(commitOf(request));
      assert.deepEqual(first, { status: 'committed', version: 1 });
      assert.deepEqual(
        await store.commit(commitOf(request, { snapshot: { state: 'elsewhere' } })),
        repeated(1),
      );
      assert.equal((await store.read(run, HOUR))?.workflows.checkout?.snapshot.state, 'has_items');
      await step(store, run);
      assert.deepEqual(await store.commit(commitOf(request)), repeated(1));
      const trail = await store.history(request);
      assert.deepEqual(
        trail.map(({ version }) => version),
        [1, 2],
      );
    },
  );

  promises(
    'a commit repeated while another step is claimed does not touch that claim',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const [first, second] = [claimOf(run), claimOf(run)];
      await claimed(store, first);
      await store.commit(commitOf(first));
      await claimed(store, second);
      assert.deepEqual(await store.commit(commitOf(first)), repeated(1));
      assert.deepEqual(await store.commit(commitOf(second)), { status: 'committed', version: 2 });
    },
  );

  promises('50 commits at once with one token are one commit, and 49 repeat it', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run);
    await claimed(store, request);
    const results = await Promise.all(
      Array.from({ length: 50 }, () => store.commit(commitOf(request))),
    );
    const [first, ...others] = results.sort(
      (a, b) => Number(isRepeated(a)) - Number(isRepeated(b)),
    );
    assert.deepEqual(first, { status: 'committed', version: 1 });
    for (const other of others) assert.deepEqual(other, repeated(1));
    assert.equal((await store.history(request)).length, 1);
  });

  promises(`the last ${TOKENS_KEPT} tokens that committed are remembered`, async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const requests = Array.from({ length: TOKENS_KEPT }, () => claimOf(run));
    for (const request of requests) {
      await claimed(store, request);
      await store.commit(commitOf(request));
    }
    for (const [index, request] of requests.entries()) {
      assert.deepEqual(await store.commit(commitOf(request)), repeated(index + 1));
      assert.equal((await store.claim(request)).status, 'state');
    }
  });

  promises(`the last ${TOKENS_KEPT} tokens that were released are remembered`, async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const requests = Array.from({ length: TOKENS_KEPT }, () => claimOf(run));
    for (const request of requests) {
      await claimed(store, request);
      await store.release(request, request.token);
    }
    for (const request of requests) {
      assert.deepEqual(await store.commit(commitOf(request)), { status: 'lost' });
      assert.equal((await store.claim(request)).status, 'state');
    }
  });
}

function lostPromises(promises: Promises): void {
  promises('a commit without a claim is lost', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const [holder, stranger] = [claimOf(run), claimOf(run)];
    assert.deepEqual(await store.commit(commitOf(stranger)), { status: 'lost' });
    await claimed(store, holder);
    assert.deepEqual(await store.commit(commitOf(stranger)), { status: 'lost' });
    assert.deepEqual(await store.commit(commitOf(holder, { workflow: 'other' })), {
      status: 'lost',
    });
    await unmoved(stage, run);
  });

  promises('a commit after the release is lost', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run);
    await claimed(store, request);
    await store.release(request, request.token);
    assert.deepEqual(await store.commit(commitOf(request)), { status: 'lost' });
    await unmoved(stage, run);
  });

  promises(
    'a commit after another step took the run over is lost, even if that step was released',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const late = claimOf(run, { leaseMs: SHORT, step: { uncertain: 'retry' } });
      await claimed(store, late);
      await stage.wait(SHORT);
      const next = claimOf(run);
      await claimed(store, next);
      assert.deepEqual(await store.commit(commitOf(late)), { status: 'lost' });
      await store.release(next, next.token);
      assert.deepEqual(await store.commit(commitOf(late)), { status: 'lost' });
      await unmoved(stage, run);
    },
  );
}

function latePromises(promises: Promises): void {
  for (const uncertain of ['hold', 'retry'] as const) {
    promises(
      `a late commit is good while no other step took the run over (${uncertain})`,
      async (stage) => {
        const { store } = stage;
        const run = await opened(stage);
        const late = claimOf(run, { leaseMs: SHORT, step: { uncertain } });
        await claimed(store, late);
        await stage.wait(SHORT);
        assert.deepEqual(await store.commit(commitOf(late)), { status: 'committed', version: 1 });
        assert.deepEqual(await store.commit(commitOf(late)), repeated(1));
        assert.equal((await claimed(store, claimOf(run))).snapshot.state, 'has_items');
      },
    );
  }

  promises(
    'a commit by the person who resolves a held step spends the token of its claim',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const held = claimOf(run, { leaseMs: SHORT });
      await claimed(store, held);
      await stage.wait(SHORT);
      const resolved = commitOf(held, { as: `${held.token}-resolved` });
      assert.deepEqual(await store.commit(resolved), { status: 'committed', version: 1 });
      assert.deepEqual(await store.commit(resolved), repeated(1));
      assert.deepEqual(await store.commit(commitOf(held)), { status: 'lost' });
      assert.equal((await store.claim(held)).status, 'state');
      assert.equal(await store.renew(held, held.token, LONG), false);
      assert.equal((await claimed(store, claimOf(run))).snapshot.state, 'has_items');
      assert.deepEqual(await store.commit(resolved), repeated(1));
      assert.equal((await store.history(held)).length, 1);
    },
  );

  promises('a commit in the name of another is lost where the holder came first', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const late = claimOf(run, { leaseMs: SHORT });
    await claimed(store, late);
    await stage.wait(SHORT);
    assert.deepEqual(await store.commit(commitOf(late)), { status: 'committed', version: 1 });
    assert.deepEqual(await store.commit(commitOf(late, { as: `${late.token}-resolved` })), {
      status: 'lost',
    });
    assert.deepEqual(await store.commit(commitOf(late)), repeated(1));
  });
}

function isRepeated(result: CommitResult): boolean {
  return result.status === 'committed' && result.repeated === true;
}

async function unmoved({ store }: StoreStage, run: string): Promise<void> {
  const snapshot = (await store.read(run, HOUR))?.workflows.checkout?.snapshot;
  assert.equal(snapshot?.state, 'empty');
  assert.equal(snapshot?.version ?? 0, 0);
  assert.deepEqual(await store.history({ run, workflow: 'checkout' }), []);
}

function assertAboutNow(time: number): void {
  const DAY = 24 * HOUR;
  assert.ok(
    Math.abs(time - Date.now()) < DAY,
    `${time} is not about now, in milliseconds since the epoch`,
  );
}
