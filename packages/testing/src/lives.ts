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
  recordingOf,
  SHORT,
  same,
  step,
} from './fixtures.ts';
import { freezeOf } from './freezes.ts';

const OPENED = { status: 'opened' };
const TAKEN = { status: 'taken' };

export function runPromises(promises: Promises): void {
  openPromises(promises);
  endPromises(promises);
  evictionPromises(promises);
  expiryPromises(promises);
  endedPromises(promises);
  createPromises(promises);
}

function openPromises(promises: Promises): void {
  promises(
    'a run that was opened is known, with its principal and without workflows',
    async (stage) => {
      const run = await opened(stage, { principal: 'https://issuer.example alice', minted: true });
      const record = await stage.store.read(run, HOUR);
      assert.equal(record?.session.principal, 'https://issuer.example alice');
      assert.equal(record?.session.minted, true);
      assert.deepEqual(Object.keys(record?.workflows ?? { none: 0 }), []);
    },
  );

  promises('what a client called itself is known of its run', async ({ store, run }) => {
    const names = ['openai-mcp', '', 'a "name" \\u0000 of\n\u0000 \ud83d', 'é🛒'];
    for (const [i, name] of names.entries()) {
      const clientInfo = { name, version: '1.0' };
      await store.open(`${run}-${i}`, { clientInfo }, HOUR);
      const record = await store.read(`${run}-${i}`, HOUR);
      assert.deepEqual(record?.session.clientInfo, clientInfo);
    }
    await store.open(run, {}, HOUR);
    assert.equal((await store.read(run, HOUR))?.session.clientInfo, undefined);
  });

  promises('no principal is not the empty principal', async ({ store, run }) => {
    await store.open(run, {}, HOUR);
    await store.open(`${run}-2`, { principal: '', minted: false }, HOUR);
    const [without, empty] = [await store.read(run, HOUR), await store.read(`${run}-2`, HOUR)];
    assert.ok(without && empty);
    assert.equal(without.session.principal, undefined);
    assert.equal(empty.session.principal, '');
    assert.ok(!without.session.minted && !empty.session.minted);
  });

  promises('a run that never was is unknown to every operation', async ({ store, run }) => {
    const request = claimOf(run);
    assert.equal(await store.read(run, HOUR), undefined);
    assert.deepEqual(await store.claim(request), { status: 'unknown' });
    assert.deepEqual(await store.commit(commitOf(request)), { status: 'unknown' });
    assert.equal(await store.renew(request, request.token, LONG), false);
    assert.deepEqual(await store.history(request), []);
    await store.release(request, request.token);
    await store.delete(run);
    assert.equal(await store.read(run, HOUR), undefined);
  });

  promises('a run that is there is not opened again, and stays whole', async (stage) => {
    const { store } = stage;
    const run = await opened(stage, { principal: 'alice' });
    await step(store, run);
    const live = claimOf(run);
    await claimed(store, live);
    for (const token of [undefined, `${run}-other`])
      assert.deepEqual(await store.open(run, { principal: 'bob' }, HOUR, token), TAKEN);
    const record = await store.read(run, HOUR);
    assert.equal(record?.session.principal, 'alice');
    assert.equal(record?.workflows.checkout?.claim?.token, live.token);
    assert.equal((await store.history(live)).length, 1);
    assert.deepEqual(await store.commit(commitOf(live)), { status: 'committed', version: 2 });
  });

  promises(
    'opening a run again with the same token changes nothing, and is answered as the first time',
    async (stage) => {
      const { store, run } = stage;
      const token = `${run}-token`;
      const open = () => store.open(run, { principal: 'alice' }, HOUR, token);
      assert.deepEqual(await open(), OPENED);
      await step(store, run);
      assert.deepEqual(await open(), OPENED);
      assert.equal((await store.read(run, HOUR))?.workflows.checkout?.snapshot.version, 1);
      await store.claim(claimOf(`${run}-made`, { create: {}, token }));
      assert.deepEqual(await store.open(`${run}-made`, {}, HOUR, token), TAKEN);
    },
  );

  promises(
    'of 50 that open one run at once one does, and the others read that it is taken',
    async ({ store, run }) => {
      const results = await Promise.all(
        Array.from({ length: 50 }, (_, index) =>
          store.open(run, { principal: `${index}` }, HOUR, `${run}-${index}`),
        ),
      );
      const winner = results.findIndex(({ status }) => status === 'opened');
      assert.equal(
        count(results, ({ status }) => status === 'taken'),
        49,
      );
      assert.equal((await store.read(run, HOUR))?.session.principal, `${winner}`);
    },
  );

  promises(
    'opening a run that is there does not move its expiry, and an expired run can be opened',
    async (stage) => {
      const { store } = stage;
      const run = `${stage.run}-expiring`;
      await step(
        store,
        run,
        { create: { principal: 'alice' }, leaseMs: SHORT },
        { ttlMs: stage.soon },
      );
      assert.deepEqual(await store.open(run, {}, HOUR), TAKEN);
      await stage.wait(stage.soon);
      assert.deepEqual(await store.open(run, { principal: 'bob' }, HOUR), OPENED);
      const record = await store.read(run, HOUR);
      assert.equal(record?.session.principal, 'bob');
      assert.deepEqual(Object.keys(record?.workflows ?? { none: 0 }), []);
      assert.deepEqual(await store.history({ run, workflow: 'checkout' }), []);
    },
  );

  promises(
    'two workflows of a run, and one workflow of two runs, do not touch each other',
    async (stage) => {
      const { store } = stage;
      const [run, other] = [await opened(stage), `${stage.run}-other`];
      await store.open(other, {}, HOUR);
      await step(store, run, { workflow: 'checkout' });
      await claimed(
        store,
        claimOf(run, { workflow: 'approval', initial: { state: 'draft', updatedAt: 0 } }),
      );
      assert.equal(await claimStatus(store, run, { workflow: 'checkout' }), 'claimed');
      assert.equal(await claimStatus(store, other, { workflow: 'approval' }), 'claimed');
      const record = await store.read(run, HOUR);
      assert.deepEqual(Object.keys(record?.workflows ?? {}).sort(), ['approval', 'checkout']);
      assert.equal(record?.workflows.checkout?.snapshot.state, 'has_items');
      assert.equal(record?.workflows.approval?.snapshot.state, 'draft');
      assert.deepEqual(await store.history({ run, workflow: 'approval' }), []);
      assert.deepEqual(Object.keys((await store.read(other, HOUR))?.workflows ?? {}), ['approval']);
    },
  );
}

function endPromises(promises: Promises): void {
  promises('a deleted run is unknown as a whole, in-flight claims included', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run);
    const inFlight = claimOf(run, { step: { uncertain: 'retry' } });
    await claimed(store, inFlight);
    await store.delete(run);
    assert.equal(await store.renew(inFlight, inFlight.token, LONG), false);
    assert.equal(await store.read(run, HOUR), undefined);
    assert.deepEqual(await store.commit(commitOf(inFlight)), { status: 'unknown' });
    assert.deepEqual(await store.history(inFlight), []);
    assert.equal(await claimStatus(store, run), 'unknown');
    await store.release(inFlight, inFlight.token);
    await store.delete(run);
    assert.equal(await store.read(run, HOUR), undefined);
  });

  promises('a run that is opened after a delete starts anew', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const dead = claimOf(run, { leaseMs: SHORT, step: { uncertain: 'retry' } });
    await step(store, run);
    const { idempotencyKey } = await claimed(store, dead);
    await store.delete(run);
    assert.deepEqual(await store.open(run, {}, HOUR), OPENED);
    assert.deepEqual(await store.commit(commitOf(dead)), { status: 'lost' });
    const fresh = await claimed(store, claimOf(run, { step: dead.step }));
    assert.equal(fresh.snapshot.state, 'empty');
    assert.equal(fresh.snapshot.version ?? 0, 0);
    assert.notEqual(fresh.idempotencyKey, idempotencyKey);
    assert.deepEqual(await store.history(dead), []);
  });
}

function evictionPromises(promises: Promises): void {
  const create = { principal: 'alice' };

  promises(
    'an evicted run that has begun is refused until it would have expired',
    async (stage) => {
      const { store, run } = stage;
      const request = claimOf(run, { create, ttlMs: stage.soon, leaseMs: SHORT });
      await claimed(store, request);
      const committed = await store.commit(commitOf(request, { ttlMs: stage.soon }));
      assert.equal(committed.status, 'committed');
      assert.equal(await store.end(run, { evict: 'unbegun' }), 'begun');
      assert.equal((await store.read(run, SHORT))?.sessionEnded, undefined);
      assert.equal(await store.end(run, { evict: 'any' }), 'ended');
      const refuses = async () => {
        assert.equal((await store.read(run, HOUR))?.sessionEnded, 'evicted');
        assert.equal(await claimStatus(store, run, { create }), 'unknown');
        const recorded = await store.record(recordingOf(run, 0, 'a', { create }));
        assert.deepEqual(recorded, { status: 'unknown' });
        assert.deepEqual(await store.freeze(freezeOf(run, { create })), { status: 'unknown' });
        assert.deepEqual(await store.open(run, {}, HOUR), TAKEN);
      };
      await refuses();
      assert.equal(await store.end(run, { evict: 'any' }), 'ended');
      assert.equal(await store.end(run), 'ended');
      await refuses();
      await stage.wait(stage.soon);
      assert.equal(await claimStatus(store, run, { create }), 'claimed');
    },
  );

  promises(
    'an evicted run that had not begun is gone, and one with a claim stays',
    async (stage) => {
      const { store, run } = stage;
      const request = claimOf(run, { create, step: { uncertain: 'retry' } });
      await claimed(store, request);
      for (const evict of ['unbegun', 'any'] as const)
        assert.equal(await store.end(run, { evict }), 'claimed');
      await store.release(request, request.token, { settles: false });
      assert.equal(await store.end(run, { evict: 'unbegun' }), 'ended');
      assert.equal(await store.read(run, HOUR), undefined);
      assert.equal(await claimStatus(store, run, { create }), 'claimed');
      assert.equal(await store.end(`${run}-2`, { evict: 'any' }), 'unknown');
    },
  );

  promises(
    'a run that was evicted can be deleted, and begins anew then',
    async ({ store, run }) => {
      await step(store, run, { create });
      assert.equal(await store.end(run, { evict: 'any' }), 'ended');
      assert.equal(await store.delete(run), 'deleted');
      assert.equal(await store.read(run, HOUR), undefined);
      assert.equal(await step(store, run, { create }), 1);
      assert.equal((await store.history({ run, workflow: 'checkout' })).length, 1);
    },
  );
}

function expiryPromises(promises: Promises): void {
  promises(
    'a run without use for its time to live is unknown to every operation',
    async (stage) => {
      const { store, run } = stage;
      const ttlMs = stage.soon;
      const short = { leaseMs: SHORT, ttlMs, step: { uncertain: 'retry' } } as const;
      await store.open(run, {}, ttlMs);
      const [settled, stale] = [claimOf(run, short), claimOf(run, short)];
      await claimed(store, settled);
      await store.commit(commitOf(settled, { ttlMs }));
      await claimed(store, stale);
      await stage.wait(ttlMs);
      assert.deepEqual(await store.history(stale), []);
      assert.equal(await store.renew(stale, stale.token, LONG), false);
      assert.deepEqual(await store.commit(commitOf(stale)), { status: 'unknown' });
      assert.deepEqual(await store.commit(commitOf(settled)), { status: 'unknown' });
      assert.equal(await claimStatus(store, run), 'unknown');
      assert.equal(await store.read(run, HOUR), undefined);
    },
  );

  promises('an expired run that is made again has nothing of the old one', async (stage) => {
    const { store, run } = stage;
    const ttlMs = stage.soon;
    const short = { leaseMs: SHORT, ttlMs, step: { uncertain: 'retry' } } as const;
    await store.open(run, { principal: 'alice' }, ttlMs);
    await step(store, run, short, { ttlMs });
    const stale = claimOf(run, short);
    await claimed(store, stale);
    await stage.wait(ttlMs);
    const fresh = await claimed(store, claimOf(run, { create: { principal: 'bob' } }));
    assert.equal(fresh.snapshot.state, 'empty');
    assert.deepEqual(await store.commit(commitOf(stale)), { status: 'lost' });
    assert.deepEqual(await store.history(stale), []);
    assert.equal((await store.read(run, HOUR))?.session.principal, 'bob');
  });

  promises('no read, claim or renewal moves the expiry to an earlier time', async (stage) => {
    const { store, run } = stage;
    const soon = { leaseMs: SHORT, ttlMs: SHORT, step: { uncertain: 'retry' } } as const;
    const runs = ['read', 'claim', 'refused', 'renewed'].map((end) => `${run}-${end}`);
    const [read, claim, refused, renewed] = runs;
    assert.ok(read && claim && refused && renewed);
    for (const key of runs) await step(store, key, { create: { principal: 'alice' } });
    await store.read(read, SHORT);
    for (const key of [claim, renewed]) {
      const request = claimOf(key, soon);
      await claimed(store, request);
      if (key === renewed) await store.renew(request, request.token, SHORT);
      await store.release(request, request.token);
    }
    assert.equal(await claimStatus(store, refused, { ...soon, states: [] }), 'state');
    await stage.wait(2 * SHORT);
    for (const key of runs) {
      const found = await store.read(key, HOUR);
      same(
        [found?.sessionEnded, found?.workflows.checkout?.snapshot.state],
        [undefined, 'has_items'],
        key,
      );
    }
  });

  promises(
    'reading, claiming and committing each push the expiry out, refused or not',
    async (stage) => {
      const { store, run } = stage;
      const runs = ['read', 'claim', 'refused', 'commit', 'lost', 'untouched'].map(
        (end) => `${run}-${end}`,
      );
      const [read, claim, refused, commit, lost, untouched] = runs;
      assert.ok(read && claim && refused && commit && lost && untouched);
      await step(store, commit, { create: {}, ttlMs: stage.soon, leaseMs: SHORT });
      await store.open(read, {}, stage.soon);
      await store.read(read, HOUR);
      await store.open(claim, {}, stage.soon);
      await claimed(store, claimOf(claim, { leaseMs: SHORT }));
      await store.open(refused, {}, stage.soon);
      assert.equal(await claimStatus(store, refused, { states: [] }), 'state');
      const stale = claimOf(lost, { create: {}, ttlMs: stage.soon, leaseMs: SHORT });
      await claimed(store, stale);
      await store.release(stale, stale.token);
      assert.deepEqual(await store.commit(commitOf(stale)), { status: 'lost' });
      await store.open(untouched, {}, stage.soon);
      assert.deepEqual(await store.commit(commitOf(claimOf(untouched))), { status: 'lost' });
      await stage.wait(stage.soon);
      for (const kept of runs) assert.ok(await store.read(kept, HOUR), kept);
    },
  );

  promises('a run outlives its time to live for as long as a claim in it lives', async (stage) => {
    const { store, run } = stage;
    const leased = claimOf(`${run}-leased`, { create: {}, ttlMs: SHORT, leaseMs: LONG });
    const renewed = claimOf(`${run}-renewed`, {
      create: {},
      ttlMs: stage.soon,
      leaseMs: stage.soon,
    });
    await claimed(store, leased);
    await claimed(store, renewed);
    assert.equal(await store.renew(renewed, renewed.token, LONG), true);
    await stage.wait(stage.soon);
    assert.deepEqual(await store.commit(commitOf(leased)), { status: 'committed', version: 1 });
    assert.deepEqual(await store.commit(commitOf(renewed)), { status: 'committed', version: 1 });
  });
}

/** How a commit ends a workflow, and how long its run lives then. */
function endedPromises(promises: Promises): void {
  promises('a read says whether the last commit ended the workflow', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const ended = async () => (await store.read(run, HOUR))?.workflows.checkout?.ended;
    await claimed(store, claimOf(run, { workflow: 'other' }));
    assert.equal((await store.read(run, HOUR))?.workflows.other?.ended ?? false, false);
    await step(store, run);
    assert.equal(await ended(), false);
    await step(store, run, {}, { ended: true });
    assert.equal(await ended(), true);
    const request = claimOf(run);
    await claimed(store, request);
    assert.equal(await ended(), true);
    await store.release(request, request.token);
    assert.equal(await ended(), true);
    await step(store, run, {}, { ended: false });
    assert.equal(await ended(), false);
  });

  promises(
    'a read or claim of an ended workflow does not move the expiry, and a commit does',
    async (stage) => {
      const { store, run } = stage;
      const made = async (end: string, ended = true): Promise<string> => {
        const key = `${run}-${end}`;
        await step(store, key, { create: {}, leaseMs: SHORT }, { ended, ttlMs: stage.soon });
        return key;
      };
      await store.read(await made('read whole'), HOUR);
      const other = await made('read about another');
      await step(
        store,
        other,
        { workflow: 'other', leaseMs: SHORT, ttlMs: stage.soon },
        { ttlMs: stage.soon },
      );
      await store.read(other, HOUR, 'other');
      await step(store, await made('committed'), { leaseMs: SHORT }, { ended: true });
      await store.read(await made('never ended', false), HOUR, 'checkout');
      const leased = claimOf(await made('claimed'), { leaseMs: LONG });
      await claimed(store, leased);

      await store.read(await made('read'), HOUR, 'checkout');
      assert.equal(await claimStatus(store, await made('refused'), { states: [] }), 'state');
      const released = claimOf(await made('released'), { leaseMs: SHORT });
      await claimed(store, released);
      await store.release(released, released.token);

      await stage.wait(stage.soon);
      for (const end of ['read whole', 'read about another', 'committed', 'never ended', 'claimed'])
        assert.ok(await store.read(`${run}-${end}`, HOUR), end);
      for (const end of ['read', 'refused', 'released'])
        assert.equal(await store.read(`${run}-${end}`, HOUR), undefined, end);
      assert.deepEqual(await store.commit(commitOf(leased)), { status: 'committed', version: 2 });
    },
  );
}

function createPromises(promises: Promises): void {
  promises('a claim makes its run only when it is asked to', async ({ store, run }) => {
    assert.equal(await claimStatus(store, run), 'unknown');
    assert.equal(await store.read(run, HOUR), undefined);
    await claimed(store, claimOf(run, { create: { principal: 'alice', minted: true } }));
    const record = await store.read(run, HOUR);
    assert.equal(record?.session.principal, 'alice');
    assert.equal(record?.session.minted, true);
  });

  promises('a claim that may make its run leaves one that exists as it is', async (stage) => {
    const { store } = stage;
    const run = await opened(stage, { principal: 'alice' });
    await step(store, run);
    const { snapshot } = await claimed(store, claimOf(run, { create: { principal: 'mallory' } }));
    assert.equal(snapshot.state, 'has_items');
    assert.equal((await store.read(run, HOUR))?.session.principal, 'alice');
  });

  promises(
    'a claim that no state allows may make a run, and makes nothing else',
    async ({ store, run }) => {
      const request = claimOf(run, {
        workflow: 'handle',
        states: [],
        create: { principal: 'alice' },
      });
      assert.equal((await store.claim(request)).status, 'state');
      const made = await store.read(run, HOUR);
      assert.equal(made?.session.principal, 'alice');
      same(made?.workflows, {});
      same(await store.history({ run, workflow: 'handle' }), []);
      assert.equal(await claimStatus(store, run, { create: undefined }), 'claimed');
    },
  );

  promises(
    'a claim that no state allows leaves a run as it is that was there',
    async ({ store, run }) => {
      await step(store, run, { create: { principal: 'alice' } });
      const live = claimOf(run);
      await claimed(store, live);
      const before = await store.read(run, HOUR);
      const request = claimOf(run, {
        workflow: 'handle',
        states: [],
        create: { principal: 'mallory' },
      });
      await store.claim(request);
      const after = await store.read(run, HOUR);
      same({ ...after, now: 0 }, { ...before, now: 0 });
      assert.equal((await store.commit(commitOf(live))).status, 'committed');
    },
  );
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
