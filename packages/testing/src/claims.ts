import assert from 'node:assert/strict';
import type { ClaimView } from '../../../src/stores/index.ts';
import {
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  LONG,
  oneTaken,
  opened,
  type Promises,
  readClaim,
  SHORT,
  type StoreStage,
  same,
  sameAnswer,
  step,
} from './fixtures.ts';

export function claimPromises(promises: Promises): void {
  statePromises(promises);
  orderPromises(promises);
  tokenPromises(promises);
  racePromises(promises);
}

function statePromises(promises: Promises): void {
  promises(
    'the first claim of a workflow is given its initial snapshot at version 0',
    async (stage) => {
      const run = await opened(stage);
      const initial = { state: 'draft', updatedAt: 0, context: { items: [] } };
      const { snapshot, idempotencyKey } = await claimed(stage.store, claimOf(run, { initial }));
      assert.equal(snapshot.state, 'draft');
      assert.equal(snapshot.version ?? 0, 0);
      same(snapshot.context, { items: [] });
      same((await stage.store.read(run, HOUR))?.workflows.checkout?.snapshot.context, {
        items: [],
      });
      assert.ok(typeof idempotencyKey === 'string' && idempotencyKey.length > 0);
    },
  );

  promises(
    'a workflow that was committed no longer looks at the initial snapshot',
    async (stage) => {
      const run = await opened(stage);
      await step(stage.store, run);
      const initial = { state: 'elsewhere', updatedAt: 0, version: 99 };
      const { snapshot } = await claimed(stage.store, claimOf(run, { initial }));
      assert.equal(snapshot.state, 'has_items');
      assert.equal(snapshot.version, 1);
    },
  );

  promises(
    'a claim is refused in a state that it does not name, and the snapshot says which',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const refused = await store.claim(claimOf(run, { states: ['payment', 'confirmed'] }));
      assert.ok(refused.status === 'state', refused.status);
      assert.equal(refused.snapshot.state, 'empty');
      await step(store, run, { states: ['empty', 'payment'] });
      assert.equal(await claimStatus(store, run, { states: ['empty'] }), 'state');
      assert.equal(await claimStatus(store, run, { states: ['has_items'] }), 'claimed');
    },
  );

  promises('no list of states allows every state, and an empty list none', async (stage) => {
    const run = await opened(stage);
    assert.equal(await claimStatus(stage.store, run, { states: [] }), 'state');
    assert.equal(await claimStatus(stage.store, run, { states: undefined }), 'claimed');
  });

  promises('a read gives the claim as the caller made it, and its times', async (stage) => {
    const run = await opened(stage);
    const entry = { tool: 'cart.view', digest: 'd-7', actor: 'alice', requestId: 7 };
    const request = claimOf(run, {
      step: { tool: 'cart.view', digest: 'd-7', uncertain: 'retry' },
      entry,
    });
    const { idempotencyKey } = await claimed(stage.store, request);
    const claim = await readClaim(stage);
    const { since: _, until: __, ...view } = claim;
    same(view, {
      token: request.token,
      tool: 'cart.view',
      digest: 'd-7',
      uncertain: 'retry',
      idempotencyKey,
      live: true,
      entry,
    });
    lasts(claim, LONG);
    await stage.store.commit(commitOf(request));
    assert.equal((await stage.store.read(run, HOUR))?.workflows.checkout?.claim, undefined);
  });

  promises(
    'a lease that begins anew moves the end of a claim, and not when it was taken',
    async (stage) => {
      const run = await opened(stage);
      const request = claimOf(run, { leaseMs: SHORT });
      await claimed(stage.store, request);
      const { since } = await readClaim(stage);
      await stage.wait(SHORT);
      await claimed(stage.store, request);
      const again = await readClaim(stage);
      assert.equal(again.since, since);
      lasts(again, 2 * SHORT);
      await stage.store.renew(request, request.token, LONG);
      const renewed = await readClaim(stage);
      assert.equal(renewed.since, since);
      lasts(renewed, SHORT + LONG);
    },
  );
}

/** What a store's own rounding may take off a lease. */
const ROUNDING = 5;

/** Asserts how long after it was taken the lease ends; on a real clock the calls add to it. */
function lasts({ since = Number.NaN, until = Number.NaN }: ClaimView, ms: number): void {
  const lasted = until - since;
  assert.ok(lasted >= ms - ROUNDING && lasted < ms + 30_000, `${ms} ms were ${lasted}`);
}

function orderPromises(promises: Promises): void {
  promises(
    'a live claim is reported before a wrong state, with the time that it has left',
    async (stage) => {
      const run = await opened(stage);
      await claimed(stage.store, claimOf(run));
      const result = await stage.store.claim(claimOf(run, { states: [] }));
      assert.ok(result.status === 'busy', result.status);
      assert.equal(result.snapshot.state, 'empty');
      assert.ok(result.remainingMs > 0 && result.remainingMs <= LONG, `${result.remainingMs}`);
    },
  );

  promises('a held step is reported before a wrong state', async (stage) => {
    const run = await opened(stage);
    await claimed(stage.store, claimOf(run, { leaseMs: SHORT }));
    await stage.wait(SHORT);
    assert.equal(await claimStatus(stage.store, run, { states: [] }), 'held');
  });

  promises('a refused claim changes nothing for the one that lives', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const holder = claimOf(run);
    await claimed(store, holder);
    assert.equal(await claimStatus(store, run), 'busy');
    assert.equal(await claimStatus(store, run, { states: [] }), 'busy');
    assert.deepEqual(await store.commit(commitOf(holder)), { status: 'committed', version: 1 });
  });
}

function tokenPromises(promises: Promises): void {
  promises('asking again with one token gives the same answer', async (stage) => {
    const run = await opened(stage);
    const request = claimOf(run, { states: ['empty'] });
    const first = await claimed(stage.store, request);
    sameAnswer(await claimed(stage.store, request), first);
  });

  promises(
    'asking again with one token gives the same answer after the lease, unless it was taken over',
    async (stage) => {
      const run = await opened(stage);
      for (const uncertain of ['hold', 'retry'] as const) {
        const request = claimOf(run, { workflow: uncertain, leaseMs: SHORT, step: { uncertain } });
        const first = await claimed(stage.store, request);
        await stage.wait(SHORT);
        sameAnswer(await claimed(stage.store, request), first);
      }
    },
  );

  promises('a token that was committed takes no lease when it arrives again', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run);
    await claimed(store, request);
    await store.commit(commitOf(request));
    const late = await store.claim(request);
    assert.ok(late.status === 'state', late.status);
    assert.equal(late.snapshot.state, 'has_items');
    assert.equal(await claimStatus(store, run), 'claimed');
  });

  promises(
    'a token that was released takes no lease when it arrives again, or only then',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const [released, overtaken] = [claimOf(run), claimOf(run)];
      await claimed(store, released);
      await store.release(released, released.token);
      await store.release(overtaken, overtaken.token);
      assert.equal((await store.claim(released)).status, 'state');
      assert.equal((await store.claim(overtaken)).status, 'state');
      assert.equal(await claimStatus(store, run), 'claimed');
    },
  );

  promises(
    'a token that was released takes no lease, also where no claim has begun its workflow',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const [refused, overtaken] = [claimOf(run), claimOf(run)];
      assert.equal((await store.claim({ ...refused, states: ['paid'] })).status, 'state');
      for (const { token } of [refused, overtaken, overtaken]) await store.release(refused, token);
      assert.deepEqual(Object.keys((await store.read(run, HOUR))?.workflows ?? {}), []);
      assert.equal((await store.claim(refused)).status, 'state');
      assert.equal((await store.claim(overtaken)).status, 'state');
      assert.deepEqual(await store.commit(commitOf(overtaken)), { status: 'lost' });
      const elsewhere = { ...overtaken, workflow: 'approval' };
      assert.equal((await store.claim(elsewhere)).status, 'claimed');
      assert.equal(await claimStatus(store, run), 'claimed');
      assert.equal((await store.claim(refused)).status, 'state');
    },
  );
}

function racePromises(promises: Promises): void {
  promises('of 50 claims at once exactly one is taken, and the others are busy', async (stage) => {
    const run = await opened(stage);
    const requests = Array.from({ length: 50 }, () => claimOf(run));
    const results = await Promise.all(requests.map((request) => stage.store.claim(request)));
    oneTaken(results);
  });

  promises(
    'of 50 claims that may all make the run exactly one is taken',
    async ({ store, run }) => {
      const requests = Array.from({ length: 50 }, () =>
        claimOf(run, { create: { principal: 'alice' } }),
      );
      const results = await Promise.all(requests.map((request) => store.claim(request)));
      oneTaken(results);
    },
  );

  promises('50 claims at once with one token are one claim', async (stage) => {
    const run = await opened(stage);
    const request = claimOf(run);
    const results = await Promise.all(
      Array.from({ length: 50 }, () => claimed(stage.store, request)),
    );
    assert.equal(new Set(results.map(({ idempotencyKey }) => idempotencyKey)).size, 1);
  });

  promises(
    'of 50 claims at once after an unknown outcome exactly one takes over',
    async (stage) => {
      const run = await opened(stage);
      const retry = { uncertain: 'retry' } as const;
      const dead = await claimed(stage.store, claimOf(run, { leaseMs: SHORT, step: retry }));
      await stage.wait(SHORT);
      const requests = Array.from({ length: 50 }, () => claimOf(run, { step: retry }));
      const results = await Promise.all(requests.map((request) => stage.store.claim(request)));
      const winners = results.filter((result) => result.status === 'claimed');
      assert.deepEqual(
        winners.map(({ idempotencyKey }) => idempotencyKey),
        [dead.idempotencyKey],
      );
    },
  );
}

export function idempotencyPromises(promises: Promises): void {
  promises('each step gets a key of its own', async (stage) => {
    const run = await opened(stage);
    const keys = new Set<string>();
    for (let index = 0; index < 5; index += 1) {
      const request = claimOf(run, { step: { uncertain: 'retry' } });
      keys.add((await claimed(stage.store, request)).idempotencyKey);
      await stage.store.commit(commitOf(request));
    }
    assert.equal(keys.size, 5);
  });

  promises(
    'after an unknown outcome the same step gets the same key, as often as it takes',
    async (stage) => {
      const run = await opened(stage);
      const key = await unknownOutcome(stage, run, 'a');
      assert.equal(await unknownOutcome(stage, run, 'a'), key);
      assert.equal(await unknownOutcome(stage, run, 'a'), key);
    },
  );

  promises(
    'after an unknown outcome another tool or other arguments get another key',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const key = await unknownOutcome(stage, run, 'a');
      for (const other of [{ digest: 'b' }, { digest: 'a', tool: 'cart.view' }]) {
        const request = claimOf(run, { step: other });
        assert.notEqual((await claimed(store, request)).idempotencyKey, key);
        await store.commit(commitOf(request));
      }
      assert.equal((await claimed(store, stepOf(run, 'a'))).idempotencyKey, key);
    },
  );

  promises('one workflow does not hand out the key of another', async (stage) => {
    const run = await opened(stage);
    const key = await unknownOutcome(stage, run, 'a');
    const elsewhere = await claimed(stage.store, { ...stepOf(run, 'a'), workflow: 'approval' });
    assert.notEqual(elsewhere.idempotencyKey, key);
  });

  promises('the key is forgotten once the step has committed', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const key = await unknownOutcome(stage, run, 'a');
    const again = stepOf(run, 'a');
    assert.equal((await claimed(store, again)).idempotencyKey, key);
    await store.commit(commitOf(again));
    assert.notEqual((await claimed(store, stepOf(run, 'a'))).idempotencyKey, key);
  });

  promises('the key is forgotten once the step was released', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const key = await unknownOutcome(stage, run, 'a');
    const again = stepOf(run, 'a');
    assert.equal((await claimed(store, again)).idempotencyKey, key);
    await store.release(again, again.token);
    assert.notEqual((await claimed(store, stepOf(run, 'a'))).idempotencyKey, key);
  });

  promises('the key is kept by a try that was not begun', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const key = await unknownOutcome(stage, run, 'a');
    const [letGo, saved, last] = [stepOf(run, 'a'), stepOf(run, 'a'), stepOf(run, 'a')];
    assert.equal((await claimed(store, letGo)).idempotencyKey, key);
    await store.release(letGo, letGo.token, { settles: false });
    assert.equal((await claimed(store, saved)).idempotencyKey, key);
    await store.commit({ ...commitOf(saved), settles: false });
    assert.equal((await claimed(store, last)).idempotencyKey, key);
    await store.commit(commitOf(last));
    assert.notEqual((await claimed(store, stepOf(run, 'a'))).idempotencyKey, key);
  });

  promises(
    'all keys are forgotten once a commit says that the workflow begins anew',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const keys = [await unknownOutcome(stage, run, 'a'), await unknownOutcome(stage, run, 'b')];
      const anew = claimOf(run);
      await claimed(store, anew);
      await store.commit(commitOf(anew, { settles: 'all' }));
      for (const [index, digest] of ['a', 'b'].entries()) {
        const request = stepOf(run, digest);
        assert.notEqual((await claimed(store, request)).idempotencyKey, keys[index]);
        await store.commit(commitOf(request));
      }
    },
  );

  promises(
    'the key of a step stays the same each time that its outcome is unknown',
    async (stage) => {
      const run = await opened(stage);
      const keys = new Set<string>();
      for (let index = 0; index < 3; index += 1) keys.add(await unknownOutcome(stage, run, 'a'));
      assert.equal(keys.size, 1);
      await unknownOutcome(stage, run, 'b');
      assert.equal(keys.has(await unknownOutcome(stage, run, 'a')), true);
    },
  );

  promises('the key is forgotten once the late holder has committed or released', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const [committed, released] = [stepOf(run, 'a', SHORT), stepOf(run, 'b', SHORT)];
    const first = (await claimed(store, committed)).idempotencyKey;
    await stage.wait(SHORT);
    await store.commit(commitOf(committed));
    const second = (await claimed(store, released)).idempotencyKey;
    await stage.wait(SHORT);
    await store.release(released, released.token);
    assert.notEqual(await unknownOutcome(stage, run, 'a'), first);
    assert.notEqual(await unknownOutcome(stage, run, 'b'), second);
  });

  promises('a held step that was released is a new step the next time', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const held = claimOf(run, { leaseMs: SHORT });
    const { idempotencyKey } = await claimed(store, held);
    await stage.wait(SHORT);
    await store.release(held, held.token);
    assert.notEqual((await claimed(store, claimOf(run))).idempotencyKey, idempotencyKey);
  });

  promises(
    'the last 16 unknown outcomes are remembered, through steps that commit in between',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const keys = new Map<string, string>();
      for (let index = 0; index < 16; index += 1) {
        keys.set(`d-${index}`, await unknownOutcome(stage, run, `d-${index}`));
        if (index % 5 === 4) await step(store, run);
      }
      assert.equal(new Set(keys.values()).size, 16);
      for (const [digest, key] of keys) {
        const request = stepOf(run, digest);
        assert.equal((await claimed(store, request)).idempotencyKey, key, digest);
        await store.commit(commitOf(request));
      }
    },
  );
}

function stepOf(run: string, digest: string, leaseMs?: number) {
  const step = { digest, uncertain: 'retry' } as const;
  return claimOf(run, leaseMs === undefined ? { step } : { step, leaseMs });
}

/** A step of `digest` with an unknown outcome. Resolves to its idempotency key. */
async function unknownOutcome(stage: StoreStage, run: string, digest: string): Promise<string> {
  const { idempotencyKey } = await claimed(stage.store, stepOf(run, digest, 1));
  await stage.wait(1);
  return idempotencyKey;
}
