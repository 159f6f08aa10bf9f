/** The stores of the benchmark, and what a handler without a gate does on the same server. */
import type { AtomicStateStore } from 'mcp-interlock/stores';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { redisStore } from 'mcp-interlock/stores/redis';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import type { StoreName } from './setups.ts';

export interface Backend {
  readonly store: AtomicStateStore;
  /** One get and one set of a value, as a handler that keeps its own state does. */
  getAndSet(key: string, value: string): Promise<void>;
  close(): Promise<unknown>;
}

const TABLE = 'CREATE TABLE IF NOT EXISTS bench_values (key TEXT PRIMARY KEY, value TEXT)';
const UPSERT = (key: string, value: string): string =>
  `INSERT INTO bench_values VALUES (${key}, ${value})
   ON CONFLICT (key) DO UPDATE SET value = excluded.value`;

/** Opens the store that is at this address: a server's, or a file's path. */
export function openBackend(name: StoreName, address: string): Promise<Backend> {
  const openers = { SQLite: openSqlite, Redis: openRedis, PostgreSQL: openPostgres };
  return openers[name](address);
}

async function openSqlite(file: string): Promise<Backend> {
  const { default: Database } = await import('libsql');
  const database = new Database(file);
  // It also sets how the file is written and flushed, for the handler's own table too.
  const store = sqliteStore({ database });
  database.exec(TABLE);
  const get = database.prepare('SELECT value FROM bench_values WHERE key = ?');
  const set = database.prepare(UPSERT('?', '?'));
  return {
    store,
    async getAndSet(key, value) {
      get.get(key);
      set.run(key, value);
    },
    close: async () => database.close(),
  };
}

async function openRedis(url: string): Promise<Backend> {
  const { createClient } = await import('redis');
  const client = await createClient({ url }).connect();
  return {
    store: redisStore({ client }),
    async getAndSet(key, value) {
      await client.get(key);
      await client.set(key, value);
    },
    close: () => client.close(),
  };
}

async function openPostgres(connectionString: string): Promise<Backend> {
  const { Pool } = await import('pg');
  const pool = new Pool({ connectionString });
  const store = postgresStore({ pool });
  await store.migrate();
  await pool.query(TABLE);
  const upsert = UPSERT('$1', '$2');
  return {
    store,
    async getAndSet(key, value) {
      await pool.query('SELECT value FROM bench_values WHERE key = $1', [key]);
      await pool.query(upsert, [key, value]);
    },
    close: () => pool.end(),
  };
}
