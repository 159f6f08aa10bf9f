import assert from 'node:assert/strict';
import {
  claimed,
  claimOf,
  commitOf,
  opened,
  type Promises,
  SHORT,
  type StoreStage,
  step,
} from './fixtures.ts';

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
    'the key of a step is one and the same however often its outcome is unknown',
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

/** A step of `digest` whose outcome nobody saw. Resolves to its idempotency key. */
async function unknownOutcome(stage: StoreStage, run: string, digest: string): Promise<string> {
  const { idempotencyKey } = await claimed(stage.store, stepOf(run, digest, 1));
  await stage.wait(1);
  return idempotencyKey;
}
