import assert from 'node:assert/strict';
import type { SeenSnapshot } from '../../../src/stores/index.ts';
import {
  attemptOf,
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  failedStep,
  HOUR,
  LONG,
  oneTaken,
  opened,
  type Promises,
  repeated,
  SHORT,
  type StoreStage,
  same,
  sameAnswer,
  step,
} from './fixtures.ts';

export function leasePromises(promises: Promises): void {
  renewPromises(promises);
  releasePromises(promises);
  holdPromises(promises);
  retryPromises(promises);
}

function renewPromises(promises: Promises): void {
  promises('renewing moves the end of the lease', async (stage) => {
    const run = await opened(stage);
    const request = claimOf(run, { leaseMs: SHORT });
    await claimed(stage.store, request);
    assert.equal(await stage.store.renew(request, request.token, LONG), true);
    await stage.wait(SHORT);
    const busy = await stage.store.claim(claimOf(run));
    assert.ok(busy.status === 'busy', busy.status);
    assert.ok(busy.remainingMs > LONG / 2 && busy.remainingMs <= LONG, `${busy.remainingMs}`);
  });

  promises('a renewed lease ends too', async (stage) => {
    const run = await opened(stage);
    const request = claimOf(run);
    await claimed(stage.store, request);
    assert.equal(await stage.store.renew(request, request.token, SHORT), true);
    await stage.wait(SHORT);
    assert.equal(await claimStatus(stage.store, run), 'held');
  });

  promises(
    'its holder can renew a lease that has ended, if no other step took over',
    async (stage) => {
      const run = await opened(stage);
      const request = claimOf(run, { leaseMs: SHORT });
      await claimed(stage.store, request);
      await stage.wait(SHORT);
      assert.equal(await stage.store.renew(request, request.token, LONG), true);
      assert.equal(await claimStatus(stage.store, run), 'busy');
    },
  );

  promises('only the holder can renew', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const [holder, stranger] = [claimOf(run), claimOf(run)];
    assert.equal(await store.renew(holder, holder.token, LONG), false);
    await claimed(store, holder);
    assert.equal(await store.renew(stranger, stranger.token, LONG), false);
    assert.equal(await store.renew({ run, workflow: 'other' }, holder.token, LONG), false);
    await store.commit(commitOf(holder));
    assert.equal(await store.renew(holder, holder.token, LONG), false);
  });
}

function releasePromises(promises: Promises): void {
  promises('releasing lets the next claim in, and moves nothing', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run);
    await claimed(store, request);
    await store.release(request, request.token);
    assert.equal(await store.renew(request, request.token, LONG), false);
    assert.equal((await store.read(run, HOUR))?.workflows.checkout?.claim, undefined);
    const next = await claimed(store, claimOf(run));
    assert.equal(next.snapshot.state, 'empty');
    assert.equal(next.snapshot.version ?? 0, 0);
    assert.deepEqual(await store.history(request), []);
  });

  promises('only the holder can release', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const [holder, stranger] = [claimOf(run), claimOf(run)];
    await claimed(store, holder);
    await store.release(stranger, stranger.token);
    await store.release({ run, workflow: 'other' }, holder.token);
    assert.equal(await claimStatus(store, run), 'busy');
    assert.deepEqual(await store.commit(commitOf(holder)), { status: 'committed', version: 1 });
  });
}

function holdPromises(promises: Promises): void {
  promises(
    'a step that must not be repeated is held once its lease is over, for every other call',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const request = claimOf(run, { leaseMs: SHORT, step: { uncertain: 'hold' } });
      const { idempotencyKey } = await claimed(store, request);
      await stage.wait(SHORT);
      for (const next of [{}, { step: { tool: 'cart.view', uncertain: 'retry' as const } }]) {
        const result = await store.claim(claimOf(run, next));
        assert.ok(result.status === 'held', result.status);
        assert.equal(result.snapshot.state, 'empty');
        const { token, tool, digest, uncertain, live } = result.claim;
        assert.deepEqual([token, tool, digest, uncertain, live], heldView(request));
        assert.equal(result.claim.idempotencyKey, idempotencyKey);
      }
      assert.equal((await store.read(run, HOUR))?.workflows.checkout?.claim?.live, false);
      assert.equal(await claimStatus(store, run, { workflow: 'other' }), 'claimed');
    },
  );

  promises('releasing a held step with its token resolves it as not done', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run, { leaseMs: SHORT });
    await claimed(store, request);
    await stage.wait(SHORT);
    await store.release(request, request.token);
    assert.equal((await claimed(store, claimOf(run))).snapshot.state, 'empty');
  });

  promises('committing a held step with its token resolves it as done', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run, { leaseMs: SHORT });
    await claimed(store, request);
    await stage.wait(SHORT);
    assert.equal(await claimStatus(store, run), 'held');
    assert.deepEqual(await store.commit(commitOf(request)), { status: 'committed', version: 1 });
    assert.equal((await claimed(store, claimOf(run))).snapshot.state, 'has_items');
  });
}

function retryPromises(promises: Promises): void {
  promises(
    'a step that may be repeated gives way to the next claim once its lease is over',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const dead = claimOf(run, { leaseMs: SHORT, step: { uncertain: 'retry' } });
      await claimed(store, dead);
      await stage.wait(SHORT);
      assert.equal((await store.read(run, HOUR))?.workflows.checkout?.claim?.live, false);
      await claimed(store, claimOf(run, { step: { tool: 'cart.view' } }));
      assert.equal(await claimStatus(store, run), 'busy');
      assert.equal(await store.renew(dead, dead.token, LONG), false);
      await store.release(dead, dead.token);
      assert.equal(await claimStatus(store, run), 'busy');
    },
  );

  promises('a step that gives way is still tested against the state', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run);
    const dead = claimOf(run, { leaseMs: SHORT, step: { uncertain: 'retry' } });
    await claimed(store, dead);
    await stage.wait(SHORT);
    assert.equal(await claimStatus(store, run, { states: ['empty'] }), 'state');
    assert.deepEqual(await store.commit(commitOf(dead)), { status: 'committed', version: 2 });
  });
}

function heldView(request: ReturnType<typeof claimOf>) {
  return [request.token, request.step.tool, request.step.digest, request.step.uncertain, false];
}

/** Time that passes in a test. */
const PASSED = 100;
/** What a store's own rounding may take off it. */
const ROUNDING = 5;
/** What a busy machine may add to it. */
const DELAY = 30_000;

export function timePromises(promises: Promises): void {
  promises(
    'each answer with a snapshot says the time, which gives the age of the snapshot',
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
      assertTimesInOrder(seen);
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

/** What holds between two processes on the same data. */
export function sharedPromises(promises: Promises): void {
  promises('of 50 claims from two sides at once exactly one is taken', async (stage) => {
    const sides = [stage.store, await stage.reopen()] as const;
    const run = await opened(stage);
    const requests = Array.from({ length: 50 }, () => claimOf(run));
    const results = await Promise.all(
      requests.map((request, index) => (index % 2 ? sides[0] : sides[1]).claim(request)),
    );
    oneTaken(results);
  });

  promises('a run stays that one side opens while the other removes the old one', async (stage) => {
    const other = await stage.reopen();
    for (let time = 0; time < 10; time++) {
      const run = `${stage.run}-${time}`;
      await stage.store.open(run, { principal: 'alice' }, HOUR);
      const old = await failedStep(stage.store, run);
      // The longer its trail, the longer it takes to remove a run.
      const refusals = Array.from({ length: 12 }, () => stage.store.append?.(old, attemptOf(old)));
      await Promise.all(refusals);
      const removal = stage.store.delete(run);
      const bob = { principal: 'bob' };
      for (let tries = 0; tries < 1_000; tries++)
        if ((await other.open(run, bob, HOUR)).status === 'opened') break;
      await removal;
      assert.equal((await other.read(run, HOUR))?.session.principal, 'bob');
    }
  });

  promises('a side that has used another run opens none over a run of this one', async (stage) => {
    const other = await stage.reopen();
    await other.open(`${stage.run}-other`, {}, HOUR);
    await step(other, `${stage.run}-other`);
    const run = await opened(stage, { principal: 'alice' });
    await step(stage.store, run);
    assert.deepEqual(await other.open(run, { principal: 'bob' }, HOUR), { status: 'taken' });
    const found = await other.read(run, HOUR);
    assert.equal(found?.session.principal, 'alice');
    assert.equal(found.workflows.checkout?.snapshot.version, 1);
  });

  promises(
    'a claim holds for the other side, which can carry it on with its token',
    async (stage) => {
      const run = await opened(stage);
      const request = claimOf(run);
      const first = await claimed(stage.store, request);
      const other = await stage.reopen();
      assert.equal(await claimStatus(other, run), 'busy');
      sameAnswer(await claimed(other, request), first);
      assert.equal(await other.renew(request, request.token, LONG), true);
      assert.deepEqual(await other.commit(commitOf(request)), { status: 'committed', version: 1 });
      assert.deepEqual(await stage.store.commit(commitOf(request)), repeated(1));
      same(await stage.store.history(request), await other.history(request));
    },
  );

  promises(
    'a step that died on one side is held, or retried with its key, on the other',
    async (stage) => {
      const run = await opened(stage);
      const retry = { uncertain: 'retry' } as const;
      await claimed(stage.store, claimOf(run, { workflow: 'hold', leaseMs: SHORT }));
      const dead = await claimed(stage.store, claimOf(run, { leaseMs: SHORT, step: retry }));
      const other = await stage.reopen();
      await stage.wait(SHORT);
      assert.equal(await claimStatus(other, run, { workflow: 'hold' }), 'held');
      assert.equal(
        (await claimed(other, claimOf(run, { step: retry }))).idempotencyKey,
        dead.idempotencyKey,
      );
    },
  );

  promises('a commit forgets no key that the other side has just made', async (stage) => {
    const [run, other] = [await opened(stage), await stage.reopen()];
    const last = claimOf(run);
    await claimed(stage.store, last);
    const dead = claimOf(run, { workflow: 'other', leaseMs: SHORT, step: { uncertain: 'retry' } });
    const { idempotencyKey } = await claimed(other, dead);
    await stage.store.commit(commitOf(last, { ended: true, ttlMs: SHORT }));
    await stage.wait(2 * SHORT);
    const again = await claimed(stage.store, claimOf(run, { workflow: 'other', step: dead.step }));
    assert.equal(again.idempotencyKey, idempotencyKey);
  });

  promises('a commit moves the expiry though a key was there that is settled', async (stage) => {
    const [run, other] = [await opened(stage), await stage.reopen()];
    const [last, dead] = [claimOf(run), claimOf(run, { workflow: 'other' })];
    await claimed(other, { ...dead, step: { ...dead.step, uncertain: 'retry' } });
    await stage.store.read(run, HOUR);
    await claimed(stage.store, last);
    await other.release(dead, dead.token);
    await stage.store.commit(commitOf(last, { ended: true, ttlMs: SHORT }));
    await stage.wait(2 * SHORT);
    assert.equal(await stage.store.read(run, HOUR), undefined);
  });

  promises('a side that refuses a claim goes by what the other side has moved', async (stage) => {
    const [run, other] = [await opened(stage), await stage.reopen()];
    await step(other, run);
    const next = { states: ['has_items'], ttlMs: 3 * HOUR };
    assert.equal(await claimStatus(stage.store, run, next), 'claimed');
  });

  promises('one side can release and commit what the other has claimed', async (stage) => {
    const [run, other] = [await opened(stage), await stage.reopen()];
    const [released, kept] = [claimOf(run), claimOf(run, { workflow: 'other' })];
    await claimed(other, released);
    await stage.store.release(released, released.token);
    assert.equal(await claimStatus(other, run), 'claimed');
    await claimed(other, kept);
    const committed = await stage.store.commit(commitOf(kept, { ttlMs: 3 * HOUR }));
    assert.deepEqual(committed, { status: 'committed', version: 1 });
  });

  promises('a run that one side ends is ended for a claim of the other', async (stage) => {
    const run = await opened(stage);
    const request = claimOf(run, { step: { uncertain: 'retry' } });
    await claimed(stage.store, request);
    const other = await stage.reopen();
    await other.delete(run);
    assert.deepEqual(await stage.store.commit(commitOf(request)), { status: 'unknown' });
    assert.equal(await stage.store.read(run, HOUR), undefined);
  });
}

export function sharedTimePromises(promises: Promises): void {
  promises('both sides go by one clock', async (stage) => {
    await step(stage.store, await opened(stage));
    const other = { ...stage, store: await stage.reopen() };
    assertTimesInOrder([await read(stage), await read(other), await read(stage)]);
  });
}

/** By how much a clock is wrong, and a lease that would be over by it, or twice as long. */
const WRONG = 10_000;
const LEASE = 8_000;

/** What holds of a process with a wrong clock, beside one on the same data. */
export function clockPromises(all: Promises): void {
  for (const [name, offMs] of [
    ['10 s ahead', WRONG],
    ['10 s behind', -WRONG],
  ] as const) {
    const promises = (
      promise: string,
      body: (stage: StoreStage, wrong: StoreStage['store']) => Promise<void>,
    ) =>
      all(promise, async (stage) => {
        if (stage.reopenWithClock) await body(stage, await stage.reopenWithClock(offMs));
      });

    promises(`a process whose clock is ${name} takes over no live claim`, async (stage, wrong) => {
      const run = await opened(stage);
      for (const [at, uncertain] of (['hold', 'retry'] as const).entries()) {
        await step(wrong, run);
        const request = claimOf(run, { leaseMs: LEASE, step: { uncertain } });
        await claimed(stage.store, request);
        for (let tries = 0; tries < 2; tries++) await assertBusy(wrong, run);
        assert.equal((await stage.store.commit(commitOf(request))).status, 'committed');
        assert.equal((await stage.store.history(request)).length, 2 * (at + 1));
      }
    });

    promises(
      `a process whose clock is ${name} has its own leases for as long as it asked for`,
      async (stage, wrong) => {
        const { store } = stage;
        const run = await opened(stage);
        await step(wrong, run);
        const request = claimOf(run, { leaseMs: LEASE });
        await claimed(wrong, request);
        await assertBusy(store, run);
        await stage.wait(SHORT);
        assert.equal(await wrong.renew(request, request.token, LEASE), true);
        await assertBusy(store, run);
        assert.deepEqual(await wrong.commit(commitOf(request)), {
          status: 'committed',
          version: 2,
        });
        const dead = claimOf(run, { leaseMs: SHORT });
        await claimed(wrong, dead);
        await stage.wait(SHORT);
        assert.equal(await claimStatus(store, run), 'held');
        for (const { at } of await store.history(request)) {
          const { now = at } = (await store.read(run, HOUR)) ?? {};
          assert.ok(Math.abs(now - at) < WRONG / 2, `at ${now} an entry was of ${at}`);
        }
      },
    );
  }
}

async function assertBusy(store: StoreStage['store'], run: string): Promise<void> {
  const result = await store.claim(claimOf(run));
  assert.ok(result.status === 'busy', result.status);
  const { remainingMs } = result;
  assert.ok(remainingMs > 0 && remainingMs <= LEASE, `a lease of ${LEASE} had ${remainingMs} left`);
}

async function seenBy(
  claim: ReturnType<StoreStage['store']['claim']>,
  status: string,
): Promise<SeenSnapshot> {
  const result = await claim;
  assert.ok(result.status === status && result.status !== 'unknown', result.status);
  return result;
}

async function read({ store, run }: StoreStage): Promise<SeenSnapshot> {
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

function assertTimesInOrder(seen: readonly SeenSnapshot[]): void {
  const times = seen.map(({ now }) => now).filter((now) => now !== undefined);
  assert.deepEqual(
    times,
    [...times].sort((a, b) => a - b),
  );
}
