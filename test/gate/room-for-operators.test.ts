import { randomUUID } from 'node:crypto';
import Database from 'libsql';
import { afterAll, describe, expect, it } from 'vitest';
import { claimOf } from '../../packages/testing/src/fixtures.ts';
import { memoryStore, principalKey } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { DRIVERS } from '../helpers/redis-drivers.ts';
import { sharedRedis } from '../services/shared.ts';

const NIGHT = { actor: 'night shift', note: 'the provider charges twice' };
/** As many idempotency keys as a store keeps of steps that may be repeated. */
const KEYS = 16;

const cleanUps: (() => unknown)[] = [];
afterAll(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
});

async function redis(): Promise<AtomicStateStore> {
  const connection = await DRIVERS[0]?.connect(await sharedRedis());
  if (connection === undefined) throw new Error('no driver');
  cleanUps.push(() => connection.close());
  return redisStore({ client: connection.client, prefix: `test-${randomUUID()}` });
}

async function postgres(): Promise<AtomicStateStore> {
  const { schema, connect, disconnect, drop } = await makePostgresSchema();
  const pool = connect();
  cleanUps.push(() => disconnect(pool), drop);
  const store = postgresStore({ pool, schema });
  await store.migrate();
  return store;
}

/** Claims once the lease before it is over. */
async function take(store: AtomicStateStore, run: string, digest: string): Promise<string> {
  const step = { tool: 'cart.pay', digest, uncertain: 'retry' } as const;
  for (;;) {
    const answer = await store.claim(claimOf(run, { create: {}, leaseMs: 1, step }));
    if (answer.status === 'claimed') return answer.idempotencyKey;
    if (answer.status !== 'busy') throw new Error(`the claim was refused: ${answer.status}`);
  }
}

describe.each([
  ['memory', async () => memoryStore()],
  ['SQLite', async () => sqliteStore({ database: new Database(':memory:') })],
  ['Redis', redis],
  ['PostgreSQL', postgres],
] as const)('a client that has left as many steps unknown as a store keeps, in %s', (_, open) => {
  /** Its run: the keys of its steps, and the operator's runs. */
  async function fullRun() {
    const store = await open();
    const run = principalKey().runKey(randomUUID());
    const keys: string[] = [];
    for (let each = 0; each < KEYS; each++) keys.push(await take(store, run, `digest-${each}`));
    return { store, run, keys, runs: runsOf(checkoutGate(), { store }) };
  }

  it('keeps no operator from its run, and its keys stay', async () => {
    const { store, run, keys, runs } = await fullRun();
    expect(await runs.freeze(run, NIGHT)).toMatchObject({ frozen: true });
    expect(await runs.unfreeze(run, NIGHT)).toMatchObject({ unfrozen: true });
    expect(await runs.update(run, () => 1)).toMatchObject({ updated: true });
    expect(await runs.send(run, 'ADD_ITEM')).toMatchObject({ sent: true, state: 'has_items' });
    const kept: string[] = [];
    for (let each = 0; each < KEYS; each++) kept.push(await take(store, run, `digest-${each}`));
    expect(kept).toEqual(keys);
  });

  it('has a run to resolve where the process dies in the very moment of a move from outside', async () => {
    const { store, run, runs } = await fullRun();
    const step = { tool: 'freeze', digest: 'outside-1', uncertain: 'hold' } as const;
    for (;;) {
      const { status } = await store.claim(claimOf(run, { create: {}, leaseMs: 1, step }));
      if (status === 'claimed') break;
    }
    await expect.poll(async () => (await runs.read(run))?.status).toBe('held');
    expect(await runs.send(run, 'ADD_ITEM')).toEqual({ sent: false, reason: 'held' });
    expect(await runs.freeze(run, NIGHT)).toMatchObject({ frozen: true });
    expect(await runs.unfreeze(run, NIGHT)).toMatchObject({ unfrozen: true });
    expect(await runs.freeze(run, NIGHT)).toMatchObject({ frozen: true });
    expect(await runs.resolve(run, 'failed')).toMatchObject({ resolved: true });
    expect(await runs.unfreeze(run, NIGHT)).toMatchObject({ unfrozen: true });
  });

  it('is stopped by one process while another one moves it without a pause', async () => {
    const store = await open();
    const run = principalKey().runKey(randomUUID());
    const [here, there] = [0, 1].map(() => runsOf(checkoutGate(), { store }));
    if (here === undefined || there === undefined) throw new Error('two processes are needed');
    await here.begin(run);
    let saved = 0;
    const move = async (): Promise<unknown> => {
      for (;;) {
        await new Promise((resolve) => setImmediate(resolve));
        const moved = await here.update(run, (count) => Number(count ?? 0) + 1);
        if (!moved.updated) return moved.reason;
        saved++;
      }
    };
    const moving = Array.from({ length: 20 }, move);
    await expect.poll(() => saved).toBeGreaterThan(20);
    expect(await there.freeze(run, NIGHT)).toMatchObject({ frozen: true });
    // No later update is saved, and none that was said to be saved is lost.
    const context = (await there.read(run))?.context;
    expect(new Set(await Promise.all(moving))).toEqual(new Set(['frozen']));
    expect((await there.read(run))?.context).toBe(context);
    expect(context).toBe(saved);
    const events = (await there.history(run, 2)).map(({ event }) => event);
    // Beside the freeze, one update may have had its claim already, and is saved after it.
    const inTurn = [null, 'freeze'];
    expect([inTurn, inTurn.toReversed()]).toContainEqual(events);
  });
});
