import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { claimed, claimOf, HOUR, step } from '../../packages/testing/src/fixtures.ts';
import { InterlockError, runDigest } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { keyOfRun } from '../../src/stores/document/run-text.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { RedisKeys } from '../helpers/redis-keys.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { sharedRedis } from '../services/shared.ts';

const redis = new Redis(await sharedRedis());
afterAll(() => redis.disconnect());

/** A store, and how a person spoils what it keeps of a run. */
interface Place {
  readonly store: Required<Omit<AtomicStateStore, 'evictedKeys'>>;
  readonly spoil: (run: string) => Promise<unknown>;
  /** Under what the store keeps a run. */
  readonly keyOf?: (run: string) => string;
}

const PLACES: Readonly<Record<string, () => Promise<Place>>> = {
  SQLite: async () => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const database = file.connect();
    const spoil = `UPDATE workflow_documents SET document = '{secret' WHERE key = ?`;
    return {
      store: sqliteStore({ database }),
      spoil: async (run) => database.prepare(spoil).run(keyOfRun(run)),
      keyOf: keyOfRun,
    };
  },
  PostgreSQL: async () => {
    const place = await makePostgresSchema();
    onTestFinished(() => place.drop());
    const pool = place.connect();
    const { schema } = place;
    const store = postgresStore({ pool, schema });
    await store.migrate();
    const spoil = `UPDATE ${schema}.workflows SET head = '{"layout":4}' WHERE run = $1`;
    return { store, spoil: (run) => pool.query(spoil, [run]) };
  },
  Redis: openRedis,
};

async function openRedis() {
  const prefix = `broken-${randomUUID()}`;
  const key = (run: string) => new RedisKeys(prefix).run(run);
  const spoil = async (run: string) => {
    await redis.hset(key(run), 'head:life', '{secret');
  };
  return { store: redisStore({ client: redis, prefix }), spoil };
}

describe.each(Object.entries(PLACES))('a run in %s that cannot be read', (_, open) => {
  async function opened() {
    const { store, spoil, keyOf = (run) => run } = await open();
    const create = { principal: 'ann' };
    for (const run of ['first', 'broken', 'last']) {
      await step(store, run, { create }, { snapshot: { state: 'payment' } });
      await claimed(store, claimOf(run, { leaseMs: 0, step: { tool: 'cart.pay' } }));
    }
    await spoil('broken');
    return { store, kept: keyOf('broken') };
  }

  it('is refused, and ends no list', async () => {
    const { store, kept } = await opened();
    await expect(store.read('broken', HOUR)).rejects.toMatchObject({ code: 'ERR_INTERLOCK_STORE' });
    const told: unknown[] = [];
    const query = {
      workflow: 'checkout',
      limit: 10,
      onError: (error: unknown, kept: string) => {
        expect(error).toMatchObject({ code: 'ERR_INTERLOCK_STORE' });
        expect(String(error)).not.toContain('secret');
        told.push(kept);
      },
    };
    const inPayment = async () => {
      const runs: string[] = [];
      for await (const run of store.runs({ ...query, state: 'payment' })) runs.push(run);
      return runs;
    };
    const keysOf = ({ runs }: { readonly runs: readonly (string | { readonly run: string })[] }) =>
      runs.map((each) => (typeof each === 'string' ? each : each.run)).sort();
    for (const list of [
      async () => keysOf(await store.held(query)),
      async () => keysOf(await store.stuck({ ...query, forMs: 0 })),
      async () => keysOf(await store.list({ ...query, principal: 'ann' })),
      inPayment,
    ]) {
      expect(await list()).toEqual(['first', 'last']);
      expect(told.splice(0)).toEqual([kept]);
    }
    expect(await store.count({ workflow: 'checkout', forMs: 0 })).toMatchObject({ held: 3 });
    expect(await store.purge({ ...query, principal: 'ann' })).toBe(0);
    // The other backends need not read a run to see that it is over.
    expect(told).toEqual(kept === 'broken' ? [] : [kept]);
  });

  it('is told of once, by what looks at many runs, and erased by none of it', async () => {
    const { store, kept } = await opened();
    const errors: unknown[] = [];
    const onError = (error: unknown): void => void errors.push(error);
    const runs = runsOf(checkoutGate(), { store, onError });
    for (let times = 0; times < 2; times += 1)
      expect((await runs.held()).runs.map(({ run }) => run)).toEqual(['first', 'last']);
    const told = () => errors.filter((error) => error instanceof InterlockError);
    expect(told()).toEqual([expect.objectContaining({ code: 'ERR_INTERLOCK_STORE' })]);
    expect(String(told()[0])).toContain(`the run with the digest ${runDigest(kept)}`);
    expect(await runs.sweep()).toBe(0);
    const { resolved } = await runs.resolveAll({
      ...{ tool: 'cart.pay', outcome: 'succeeded', actor: 'ann', note: 'the provider’s list' },
    });
    expect(resolved).toBe(2);
    expect(told()).toHaveLength(1);
    const erased = await runs.erase('ann', {});
    expect(erased).toMatchObject({ deleted: 2, pinned: [], failed: [kept] });
  });
});

describe('rebuildIndex()', () => {
  it('warns of a run that it cannot read, and lists the others', async () => {
    const { store, spoil } = await openRedis();
    for (const run of ['first', 'broken']) await step(store, run, { create: {} });
    await spoil('broken');
    const warned = vi.spyOn(process, 'emitWarning').mockReturnValue();
    onTestFinished(() => warned.mockRestore());
    expect(await store.rebuildIndex()).toBe(1);
    expect(warned.mock.calls).toEqual([
      [expect.stringContaining(runDigest('broken')), 'InterlockWarning'],
    ]);
    expect((await store.stuck({ workflow: 'checkout', forMs: 0, limit: 9 })).runs).toHaveLength(1);
  });
});
