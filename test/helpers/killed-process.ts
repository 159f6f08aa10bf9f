import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import {
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  step,
} from '../../packages/testing/src/fixtures.ts';
import { freezeOf, thawOf } from '../../packages/testing/src/freezes.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import type { StoreProcess } from './store-process.ts';

/** The promises of a durable store about processes that are killed. */
export function describeKills(name: string, start: () => Promise<StoreProcess>): void {
  describe(name, { timeout: 60_000 }, () => {
    it('goes on where it was after a process was killed in the middle of a step', async () => {
      const run = randomUUID();
      const victim = await start();
      await victim.store.open(run, { principal: 'alice' }, HOUR);
      await step(
        victim.store,
        run,
        {},
        { snapshot: { state: 'payment', context: { total: 12.5 } } },
      );
      const interrupted = claimOf(run, { leaseMs: 50 });
      const { idempotencyKey } = await claimed(victim.store, interrupted);
      await victim.kill9();

      const { store, stop } = await start();
      const record = await store.read(run, HOUR);
      expect(record?.session.principal).toBe('alice');
      expect(record?.workflows.checkout?.snapshot).toMatchObject({
        state: 'payment',
        context: { total: 12.5 },
      });
      expect(record?.workflows.checkout?.claim).toMatchObject({
        token: interrupted.token,
        idempotencyKey,
      });
      await expect.poll(() => claimStatus(store, run)).toBe('held');
      expect(await store.commit(commitOf(interrupted))).toEqual({
        status: 'committed',
        version: 2,
      });
      await stop();
    });

    it('keeps every answered commit and at most one more, whenever it is killed', async () => {
      const run = randomUUID();
      let answered = 0;
      for (const lifeMs of [5, 50]) {
        const victim = await start();
        const kill = setTimeout(lifeMs).then(victim.kill9);
        answered = await stepUntilKilled(victim.store, run);
        await kill;
      }

      const { store, stop } = await start();
      const trail = await store.history({ run, workflow: 'checkout' }, 100_000);
      const versions = trail.map(({ version }) => version);
      expect(versions).toEqual(Array.from(versions, (_, index) => index + 1));
      expect(versions.length - answered).toBeOneOf([0, 1]);
      expect((await store.read(run, HOUR))?.workflows.checkout?.snapshot.version ?? 0).toBe(
        versions.length,
      );
      await stop();
    });

    it('keeps every answered freeze and thaw, and at most one more, whenever it is killed', async () => {
      const run = randomUUID();
      let answered = 0;
      // On a busy machine the first change may take longer than the shortest of these lives.
      for (let lifeMs = 10; lifeMs <= 160 || answered === 0; lifeMs *= 4) {
        const victim = await start();
        const kill = setTimeout(lifeMs).then(victim.kill9);
        answered = Math.max(answered, await freezeUntilKilled(victim.store, run));
        await kill;
      }

      const { store, stop } = await start();
      const trail = await store.history({ run, workflow: 'checkout' }, 100_000);
      expect(trail.map(({ seq }) => seq)).toEqual(Array.from(trail, (_, index) => index + 1));
      expect(answered).toBeGreaterThan(0);
      expect(trail.length - answered).toBeOneOf([0, 1]);
      const isFrozen = trail.length % 2 === 1;
      expect((await store.read(run, HOUR))?.workflows.checkout?.frozen !== undefined).toBe(
        isFrozen,
      );
      expect(await claimStatus(store, run)).toBe(isFrozen ? 'frozen' : 'claimed');
      await stop();
    });
  });
}

/**
 * Stops a run and lets it go on, as fast as it can. Resolves to how many of all such changes it
 * knows.
 */
async function freezeUntilKilled(store: AtomicStateStore, run: string): Promise<number> {
  let answered = 0;
  try {
    answered = (await store.history({ run, workflow: 'checkout' }, 100_000)).length;
    for (;;) {
      const ask = answered % 2 === 0 ? freezeOf : thawOf;
      const { status } = await store.freeze(ask(run, { create: {} }));
      if (status !== 'changed') throw new Error(`expected a change, got ${status}`);
      answered += 1;
    }
  } catch (error) {
    if (String(error).includes('expected')) throw error;
    return answered;
  }
}

/** Takes steps as fast as it can. Resolves to the last version that it knows. */
async function stepUntilKilled(store: AtomicStateStore, run: string): Promise<number> {
  let answered = 0;
  try {
    for (;;) {
      const request = claimOf(run, { create: {}, leaseMs: 1, step: { uncertain: 'retry' } });
      const claim = await store.claim(request);
      answered = Math.max(answered, claim.status === 'unknown' ? 0 : (claim.snapshot.version ?? 0));
      const result = await store.commit(commitOf(request));
      if (result.status === 'committed') answered = result.version;
    }
  } catch {
    return answered;
  }
}
