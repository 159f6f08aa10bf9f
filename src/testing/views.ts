import assert from 'node:assert/strict';
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
  repeated,
  SHORT,
  same,
  sameAnswer,
  step,
} from './fixtures.ts';

/** What holds between two clients of the same data. */
export function sharedPromises(promises: Promises): void {
  promises('of 50 claims from two sides at once exactly one is taken', async (stage) => {
    const sides = [stage.store, await stage.reopen()] as const;
    const run = await opened(stage);
    const requests = Array.from({ length: 50 }, () => claimOf(run));
    const results = await Promise.all(
      requests.map((request, index) => (index % 2 ? sides[0] : sides[1]).claim(request)),
    );
    assert.equal(
      count(results, ({ status }) => status === 'claimed'),
      1,
    );
    assert.equal(
      count(results, ({ status }) => status === 'busy'),
      49,
    );
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

  promises('a run that one side ends is ended for a claim of the other', async (stage) => {
    const run = await opened(stage);
    const request = claimOf(run);
    await claimed(stage.store, request);
    const other = await stage.reopen();
    await other.delete(run);
    assert.deepEqual(await stage.store.commit(commitOf(request)), { status: 'unknown' });
    assert.equal(await stage.store.read(run, HOUR), undefined);
  });
}

/** What holds after the process was killed and started again. */
export function restartPromises(promises: Promises): void {
  promises('a run goes on where it was', async (stage) => {
    const run = await opened(stage, { principal: 'alice', minted: true });
    const snapshot = { state: 'payment', context: { total: 12.5 } };
    await step(stage.store, run, {}, { snapshot });
    const reopened = await stage.reopen();
    const record = await reopened.read(run, HOUR);
    assert.equal(record?.session.principal, 'alice');
    assert.equal(record?.session.minted, true);
    assert.equal(record?.workflows.checkout?.snapshot.state, 'payment');
    same(record?.workflows.checkout?.snapshot.context, { total: 12.5 });
    assert.equal(await step(reopened, run, { states: ['payment'] }), 2);
  });

  promises('a workflow that has ended is known to have', async (stage) => {
    const run = await opened(stage);
    await step(stage.store, run, { workflow: 'other' });
    await step(stage.store, run, {}, { ended: true });
    const workflows = (await (await stage.reopen()).read(run, HOUR))?.workflows;
    assert.equal(workflows?.checkout?.ended, true);
    assert.equal(workflows?.other?.ended ?? false, false);
  });

  promises('a run that was ended stays ended', async (stage) => {
    const run = await opened(stage);
    await step(stage.store, run);
    await stage.store.delete(run);
    const reopened = await stage.reopen();
    assert.equal(await reopened.read(run, HOUR), undefined);
    assert.equal(await claimStatus(reopened, run), 'unknown');
  });

  promises('a run that expired meanwhile is unknown', async (stage) => {
    const run = await opened(stage);
    await step(stage.store, run, {}, { ttlMs: SHORT });
    await stage.wait(SHORT);
    const reopened = await stage.reopen();
    assert.equal(await claimStatus(reopened, run), 'unknown');
    assert.equal(await reopened.read(run, HOUR), undefined);
  });
}
