import { randomUUID } from 'node:crypto';
import { Pool, type PoolConfig } from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { claimOf, commitOf, HOUR, step } from '../../../packages/testing/src/fixtures.ts';
import { describeStateStore } from '../../../packages/testing/src/index.ts';
import { postgresStore } from '../../../src/stores/postgres.ts';
import { Page } from '../../helpers/markdown.ts';
import { startTransactionPool } from '../../services/pgbouncer-store.ts';
import { startPostgres } from '../../services/postgres.ts';

/** The settings of the page, as an ini file has them. */
const [INI = ''] = new Page('docs/operate/stores.md').blocks('ini');
const SETTINGS = Object.fromEntries(
  INI.split('\n').flatMap((line) => {
    const [, name, value] = /^(\w+) = (.+)$/.exec(line) ?? [];
    return name !== undefined ? [[name, value ?? '']] : [];
  }),
);

const postgres = await startPostgres();
const bouncer = await startTransactionPool(postgres.url, SETTINGS);
const pools = new Set<Pool>();
afterAll(async () => {
  await Promise.all([...pools].map((pool) => pool.end()));
  await bouncer.stop();
  await postgres.stop();
});

function connect(config: PoolConfig = {}): Pool {
  const pool = new Pool({ connectionString: bouncer.url, max: 8, ...config });
  pool.on('error', () => {});
  pools.add(pool);
  return pool;
}

let shared: Pool;
beforeAll(async () => {
  shared = connect();
  await postgresStore({ pool: shared }).migrate();
});

describeStateStore(
  'postgresStore() behind PgBouncer in transaction mode',
  async () => {
    const reopen = async () => postgresStore({ pool: shared });
    return { store: await reopen(), reopen, close: async () => {} };
  },
  { describe: describe.concurrent, it },
);

describe('PgBouncer in transaction mode', { timeout: 60_000 }, () => {
  it('lets several processes migrate at once, and shares two connections among many clients', async () => {
    const schema = `test_${randomUUID().replaceAll('-', '')}`;
    const stores = Array.from({ length: 6 }, () => postgresStore({ pool: connect(), schema }));
    await Promise.all(stores.map((store) => store.migrate()));
    const steps = stores.map(async (store) => {
      const run = randomUUID();
      await store.open(run, {}, HOUR);
      for (let at = 1; at <= 10; at++) expect(await step(store, run)).toBe(at);
    });
    await Promise.all(steps);
    const { rows } = await shared.query(
      `SELECT count(*)::int AS many FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND datname = current_database()`,
    );
    expect(rows[0].many).toBeLessThanOrEqual(2);
  });

  it("puts a step's commit into a transaction of the app's", async () => {
    const store = postgresStore({ pool: shared });
    const run = randomUUID();
    await store.open(run, {}, HOUR);
    const request = claimOf(run);
    expect((await store.claim(request)).status).toBe('claimed');
    const client = await shared.connect();
    onTestFinished(() => client.release());
    await client.query('BEGIN');
    expect((await store.commitIn(client, commitOf(request))).status).toBe('committed');
    await client.query('ROLLBACK');
    expect((await store.read(run, HOUR))?.workflows.checkout?.claim?.token).toBe(request.token);
  });

  it('refuses a pool that sends settings at its start, unless it is told to ignore them', async () => {
    const told = { statement_timeout: 1_000, options: '-c role=postgres' };
    await expect(connect(told).query('SELECT 1')).resolves.toBeDefined();
    const strict = await startTransactionPool(postgres.url);
    onTestFinished(() => strict.stop());
    const refused = new Pool({ connectionString: strict.url, ...told });
    refused.on('error', () => {});
    await expect(refused.query('SELECT 1')).rejects.toThrow('unsupported startup parameter');
    await refused.end();
  });

  it('hears no LISTEN: a connection that listens goes back to others', async () => {
    const heard: string[] = [];
    const listener = await shared.connect();
    onTestFinished(() => listener.release(true));
    listener.on('notification', ({ payload }) => void heard.push(payload ?? ''));
    await listener.query('LISTEN interlock');
    await shared.query(`SELECT pg_notify('interlock', 'lost')`);
    await listener.query('SELECT 1');
    expect(heard).toEqual([]);
  });

  it('lets a call wait no longer than query_wait_timeout for a connection', async () => {
    const clients = await Promise.all([shared.connect(), shared.connect()]);
    onTestFinished(async () => {
      for (const client of clients) {
        await client.query('ROLLBACK').catch(() => {});
        client.release(true);
      }
    });
    for (const client of clients) await client.query('BEGIN');
    const from = performance.now();
    await expect(postgresStore({ pool: connect() }).open(randomUUID(), {}, HOUR)).rejects.toThrow();
    expect(performance.now() - from).toBeLessThan(15_000);
  });
});
