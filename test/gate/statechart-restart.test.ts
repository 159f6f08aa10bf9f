import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { ORDER_APP, orderGate } from '../helpers/order-app.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { RawSession } from '../helpers/raw.ts';
import { DRIVERS } from '../helpers/redis-drivers.ts';
import { scene } from '../helpers/scene.ts';
import { sharedRedis } from '../services/shared.ts';

/** A store that one process opened; `close()` ends that process. */
interface Opened {
  readonly store: AtomicStateStore;
  close(): Promise<void>;
}

const cleanUps: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
});

async function redis(): Promise<() => Promise<Opened>> {
  const url = await sharedRedis();
  const prefix = `test-${randomUUID()}`;
  return async () => {
    const connection = await DRIVERS[0]?.connect(url);
    if (connection === undefined) throw new Error('no driver');
    return {
      store: redisStore({ client: connection.client, prefix }),
      close: async () => connection.close(),
    };
  };
}

async function postgres(): Promise<() => Promise<Opened>> {
  const { schema, connect, disconnect, drop } = await makePostgresSchema();
  cleanUps.push(drop);
  await postgresStore({ pool: connect(), schema }).migrate();
  return async () => {
    const pool = connect();
    return { store: postgresStore({ pool, schema }), close: () => disconnect(pool) };
  };
}

/** Each step, and the state that it leads to. */
const WAY: readonly (readonly [tool: string, args: object, state: string])[] = [
  ['add', { sum: 5 }, 'cart'],
  ['place', {}, 'placed.(billing.due|packing.waiting)'],
  ['pay', { sum: 2 }, 'placed.(billing.due|packing.waiting)'],
  ['pay', { fail: true }, 'placed.(billing.due|packing.waiting)'],
  ['pack', {}, 'placed.(billing.due|packing.packed)'],
  ['pause', {}, 'paused'],
  ['resume', {}, 'placed.(billing.due|packing.packed)'],
  ['pay', { sum: 3 }, 'shipped'],
];

describe.each([
  ['Redis', redis],
  ['PostgreSQL', postgres],
])('a statechart on %s', (_, makeOpen) => {
  it('goes on in a new process, with its regions, its context and its history', async () => {
    const open = await makeOpen();
    let id: string | undefined;
    for (const [tool, args, state] of WAY) {
      const { store, close } = await open();
      const app = await scene({ ...ORDER_APP, workflow: orderGate(), data: store });
      const session = id === undefined ? await app.session() : RawSession.resume(app.url, id);
      id = session.id;
      await session.call(tool, args);
      expect(app.ledger.calls).toEqual([tool]);
      await app.run(id).isIn(state);
      expect(app.errors).toEqual([]);
      await app.close();
      await close();
    }
    const { store, close } = await open();
    const runs = runsOf(orderGate(), { store });
    const events = (await runs.history(String(id))).map(({ event }) => event);
    expect(events).toEqual(['ADD', 'PLACE', 'PAID', 'DECLINED', 'PACK', 'PAUSE', 'RESUME', 'PAID']);
    expect((await runs.read(String(id)))?.snapshot).toMatchObject({
      state: 'shipped',
      version: WAY.length,
      context: { total: 5, paid: 5 },
    });
    await close();
  });
});
