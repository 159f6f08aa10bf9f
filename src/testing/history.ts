import assert from 'node:assert/strict';
import type { TrailDraft, TrailEntry } from '../stores/store.ts';
import { opened, type Promises, same, step } from './fixtures.ts';

export function historyPromises(promises: Promises): void {
  promises(
    'the trail says who moved the run, from where to where, by what and with what',
    async (stage) => {
      const run = await opened(stage);
      const full: TrailDraft = {
        from: 'payment',
        to: 'confirmed',
        event: 'PAY',
        tool: 'cart.pay',
        actor: 'https://issuer.example alice',
        payload: { amount: 12.5, items: [], note: null },
      };
      const sparse: TrailDraft = { from: 'confirmed', to: 'confirmed', event: null };
      await step(stage.store, run, {}, { trail: full });
      await step(stage.store, run, {}, { trail: sparse });
      const [first, second] = await stage.store.history({ run, workflow: 'checkout' });
      assert.ok(first && second);
      same(withoutTime(first), { version: 1, ...full });
      same(withoutTime(second), { version: 2, ...sparse });
      assert.strictEqual(second.event, null);
      assert.ok(first.at <= second.at);
    },
  );

  promises(
    'the newest entries are given, oldest first, as many as were asked for',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      for (let index = 0; index < 5; index += 1) await step(store, run);
      const key = { run, workflow: 'checkout' };
      assert.deepEqual(versions(await store.history(key, 2)), [4, 5]);
      assert.deepEqual(versions(await store.history(key, 5)), [1, 2, 3, 4, 5]);
      assert.deepEqual(versions(await store.history(key, 500)), [1, 2, 3, 4, 5]);
      assert.deepEqual(versions(await store.history(key)), [1, 2, 3, 4, 5]);
    },
  );

  promises('the last 50 entries are kept, and are what is given by default', async (stage) => {
    const run = await opened(stage);
    for (let index = 0; index < 53; index += 1) await step(stage.store, run);
    const expected = Array.from({ length: 50 }, (_, index) => index + 4);
    assert.deepEqual(versions(await stage.store.history({ run, workflow: 'checkout' })), expected);
  });

  promises('each workflow has a trail of its own', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run, { workflow: 'checkout' });
    await step(
      store,
      run,
      { workflow: 'approval' },
      { trail: { from: 'a', to: 'b', event: 'SUBMIT' } },
    );
    assert.equal((await store.history({ run, workflow: 'checkout' }))[0]?.event, 'ADD_ITEM');
    assert.equal((await store.history({ run, workflow: 'approval' }))[0]?.event, 'SUBMIT');
    assert.deepEqual(await store.history({ run, workflow: 'never-claimed' }), []);
  });
}

function versions(trail: readonly TrailEntry[]): number[] {
  return trail.map(({ version }) => version);
}

function withoutTime({ at, ...rest }: TrailEntry): Omit<TrailEntry, 'at'> {
  assert.ok(Number.isFinite(at), `${at}`);
  return rest;
}
