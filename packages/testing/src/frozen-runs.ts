/**
 * How long a frozen run stays: past its time to live, its session and this process. And what
 * becomes of it once it goes on.
 */

import assert from 'node:assert/strict';
import type { AtomicStateStore } from '../../../src/stores/index.ts';
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
  saidIn,
  same,
  step,
} from './fixtures.ts';
import { changed, checkoutOf, eventsOf, freezeOf, MARY, oneChanged, thawOf } from './freezes.ts';
import { whereIndexed } from './listed.ts';

const DAY = 24 * HOUR;
const RETRY = { uncertain: 'retry' } as const;
const COMMITTED = { status: 'committed', version: 1 };

/** What holds of the life of a frozen run. */
export function frozenRunPromises(promises: Promises): void {
  promises(
    'a frozen run outlives its time to live, and can be read for a while once it goes on',
    async (stage) => {
      const { store, run } = stage;
      const create = { principal: `${run} alice` };
      await changed(store, freezeOf(run, { create, ttlMs: SHORT }));
      await stage.wait(2 * SHORT);
      await store.purge?.({ principal: create.principal });
      const record = await store.read(run, HOUR);
      same([record?.sessionEnded, record?.workflows.checkout?.frozen], [true, MARY]);
      assert.deepEqual(await store.open(run, {}, HOUR), { status: 'taken' });
      assert.equal(await claimStatus(store, run), 'unknown');
      assert.equal((await store.freeze(freezeOf(run))).status, 'unchanged');

      const thaw = thawOf(run);
      await changed(store, thaw);
      await assertReadable(store, run);
      same((await changed(store, thaw)).frozen, undefined);
      assert.deepEqual(await store.freeze(freezeOf(run)), { status: 'unknown' });
      same(eventsOf(await saidIn(store, run)), ['freeze', 'unfreeze']);
      if (!stage.clockIsInjected) return;
      await stage.wait(DAY - SHORT);
      await assertReadable(store, run);
      await stage.wait(2 * SHORT);
      assert.equal(await store.read(run, HOUR), undefined);
      assert.deepEqual(await store.open(run, {}, HOUR), { status: 'opened' });
    },
  );

  promises('a frozen run stays when its session ends', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run, { workflow: 'other' });
    await changed(store, freezeOf(run));
    assert.equal(await store.end(run, { ifUnclaimed: true }), 'claimed');
    assert.equal((await store.read(run, HOUR))?.sessionEnded, undefined);
    for (let times = 0; times < 2; times += 1) {
      assert.equal(await store.end(run), 'ended');
      const record = await store.read(run, HOUR);
      same([record?.sessionEnded, record?.workflows.checkout?.frozen], [true, MARY]);
      assert.equal(await claimStatus(store, run), 'unknown');
    }
    assert.deepEqual(await store.open(run, {}, HOUR), { status: 'taken' });
    await changed(store, thawOf(run));
    await assertReadable(store, run);
  });

  promises('a run that goes on is one as any other, and goes with its session', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await changed(store, freezeOf(run));
    await changed(store, thawOf(run));
    assert.equal((await store.read(run, HOUR))?.sessionEnded, undefined);
    assert.equal(await store.end(run, { ifUnclaimed: true }), 'ended');
    assert.equal(await store.read(run, HOUR), undefined);
  });

  promises(
    'an operator freezes the evidence of a session that is over, and no run that nothing needs',
    async (stage) => {
      const { store, run } = stage;
      const held = claimOf(run, { create: {}, leaseMs: SHORT, ttlMs: SHORT });
      await claimed(store, held);
      await stage.wait(2 * SHORT);
      await changed(store, freezeOf(run));
      assert.deepEqual(await store.commit(commitOf(held)), COMMITTED);
      const record = await store.read(run, HOUR);
      same([record?.sessionEnded, record?.workflows.checkout?.frozen], [true, MARY]);
      await changed(store, thawOf(run));
      await assertReadable(store, run);
      assert.deepEqual(await store.freeze(freezeOf(run)), { status: 'unknown' });
      assert.deepEqual(await store.freeze(thawOf(run)), { status: 'unknown' });
    },
  );

  promises('a freeze with `create` lets the session live again', async (stage) => {
    const { store, run } = stage;
    const create = { principal: 'alice' };
    await changed(store, freezeOf(run, { create, ttlMs: SHORT }));
    await stage.wait(2 * SHORT);
    assert.equal(await claimStatus(store, run, { create, workflow: 'other' }), 'claimed');
    assert.equal((await store.read(run, HOUR))?.sessionEnded, undefined);
    await store.end(run);
    assert.equal((await store.read(run, HOUR))?.sessionEnded, true);
    await changed(store, thawOf(run, { create }));
    assert.equal((await store.read(run, HOUR))?.sessionEnded, undefined);
    assert.equal(await step(store, run), 1);
  });

  promises('a freeze keeps a step that runs as long as its lease does', async (stage) => {
    const { store, run } = stage;
    const request = claimOf(run, { create: {}, ttlMs: SHORT, step: RETRY });
    await claimed(store, request);
    await changed(store, freezeOf(run, { ttlMs: SHORT }));
    await changed(store, thawOf(run, { ttlMs: SHORT }));
    await stage.wait(2 * SHORT);
    assert.equal((await store.read(run, HOUR))?.sessionEnded, undefined);
    assert.deepEqual(await store.commit(commitOf(request)), COMMITTED);
  });

  promises('an anonymized run is no longer frozen, and is held as before', async (stage) => {
    const { store, run } = stage;
    if (!store.anonymize) return;
    const held = claimOf(run, { create: {}, leaseMs: SHORT });
    await claimed(store, held);
    await changed(store, freezeOf(run));
    await changed(store, freezeOf(run, { workflow: 'other' }));
    await stage.wait(SHORT);
    const name = await store.anonymize(run);
    assert.ok(name !== undefined);
    assert.equal(await store.read(run, HOUR), undefined);
    const workflows = (await store.read(name, HOUR))?.workflows;
    same([workflows?.checkout?.frozen, workflows?.other?.frozen], [undefined, undefined]);
    assert.equal(workflows?.checkout?.claim?.token, held.token);
  });

  promises('a run that is frozen only is not anonymized', async (stage) => {
    const { store } = stage;
    if (!store.anonymize) return;
    const run = await opened(stage);
    await changed(store, freezeOf(run));
    assert.equal(await store.anonymize(run), undefined);
    same((await checkoutOf(store, run)).frozen, MARY);
  });

  whereIndexed(promises)('a listing says of a run that it is frozen', async (stage) => {
    const { store, run: workflow } = stage;
    const run = `${workflow}-run`;
    const held = claimOf(run, { workflow, create: {}, leaseMs: SHORT });
    await claimed(store, held);
    await changed(store, freezeOf(run, { workflow }));
    await stage.wait(SHORT);
    const page = { workflow, limit: 10 };
    for (const { runs } of [await store.held(page), await store.stuck({ ...page, forMs: 0 })])
      same(
        runs.map((found) => [found.run, found.frozen]),
        [[run, MARY]],
      );
    if (store.count) assert.equal((await store.count({ workflow, forMs: 0 })).held, 1);
  });
}

/** What holds after the process was killed and started again. */
export function restartFrozenRunPromises(promises: Promises): void {
  promises('a frozen run is frozen, also past its time to live', async (stage) => {
    const { store, run } = stage;
    const [lasting, short] = [`${run}-lasting`, `${run}-short`];
    await step(store, lasting, { create: {} });
    await changed(store, freezeOf(lasting));
    await changed(store, freezeOf(short, { create: {}, ttlMs: SHORT }));
    await stage.wait(2 * SHORT);
    const reopened = await stage.reopen();
    for (const key of [lasting, short]) {
      same((await checkoutOf(reopened, key)).frozen, MARY);
      const create = key === short ? {} : undefined;
      assert.equal(await claimStatus(reopened, key, { create }), 'frozen');
    }
    await changed(reopened, thawOf(lasting));
    assert.equal(await claimStatus(await stage.reopen(), lasting), 'claimed');
  });

  promises('a frozen run whose time to live is over can be deleted', async (stage) => {
    const { store, run } = stage;
    await changed(store, freezeOf(run, { create: {}, ttlMs: SHORT }));
    await stage.wait(2 * SHORT);
    assert.equal(await (await stage.reopen()).delete(run), 'deleted');
    assert.equal(await (await stage.reopen()).read(run, HOUR), undefined);
  });
}

/** What holds between two processes on the same data. */
export function sharedFrozenRunPromises(promises: Promises): void {
  promises(
    'a freeze by one side stops the next claim of the other, however warm',
    async (stage) => {
      const [store, other] = [stage.store, await stage.reopen()];
      const run = await opened(stage);
      for (let round = 0; round < 3; round += 1) {
        const version = 2 * round;
        assert.equal(await step(store, run), version + 1);
        assert.equal(await step(other, run), version + 2);
        await changed(store, freezeOf(run));
        for (const side of [other, store]) assert.equal(await claimStatus(side, run), 'frozen');
        await changed(other, thawOf(run));
      }
      assert.equal(await step(store, run), 7);
    },
  );

  promises(
    'a step that one side has claimed is saved though the other froze its run',
    async (stage) => {
      const [store, other] = [stage.store, await stage.reopen()];
      const run = await opened(stage);
      const request = claimOf(run);
      await claimed(store, request);
      await changed(other, freezeOf(run));
      assert.equal(await store.renew(request, request.token, LONG), true);
      assert.deepEqual(await store.commit(commitOf(request)), COMMITTED);
      for (const side of [store, other]) same((await checkoutOf(side, run)).frozen, MARY);
      assert.equal(await claimStatus(store, run), 'frozen');
    },
  );

  promises('of freezes by two sides at once exactly one stops the run', async (stage) => {
    const [store, other] = [stage.store, await stage.reopen()];
    const run = await opened(stage);
    const asked = Array.from({ length: 50 }, (_, index) => {
      const request = freezeOf(run, { freeze: { actor: `operator ${index}`, note: '' } });
      return (index % 2 === 0 ? store : other).freeze(request);
    });
    oneChanged(await Promise.all(asked));
  });

  promises('a freeze that one side repeats is known to the other', async (stage) => {
    const [store, other] = [stage.store, await stage.reopen()];
    const run = await opened(stage);
    const freeze = freezeOf(run);
    await changed(store, freeze);
    await changed(other, thawOf(run));
    same((await changed(other, freeze)).frozen, undefined);
    same((await changed(store, freeze)).frozen, undefined);
    assert.equal((await store.history({ run, workflow: 'checkout' })).length, 2);
  });
}

/** The session is over, the run goes on and is needed by nothing, and can still be read. */
async function assertReadable(store: AtomicStateStore, run: string): Promise<void> {
  const record = await store.read(run, HOUR);
  same([record?.sessionEnded, record?.workflows.checkout?.frozen], [true, undefined]);
  assert.equal(await claimStatus(store, run), 'unknown');
  assert.deepEqual(await store.open(run, {}, HOUR), { status: 'taken' });
}
