import assert from 'node:assert/strict';
import {
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  LONG,
  opened,
  type Promises,
  SHORT,
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
    'a lease that ended, and that nobody took over, can be renewed by its holder',
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
    'a step that must not be repeated is held for everybody once its lease is over',
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
