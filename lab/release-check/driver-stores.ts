/**
 * Goes into a user's project beside the play that asks for it. Hides how each driver connects, and
 * which store and bus of the package stand on it.
 */

import type { NotificationBus } from 'mcp-interlock';
import type { AtomicStateStore } from 'mcp-interlock/stores';

/** A connection of its own, as another process would have it, and how it is ended. */
export interface Opened {
  readonly store: AtomicStateStore;
  readonly bus?: NotificationBus;
  close(): unknown;
}

/** By the driver's name. The address is a URL, or the file of a database. */
export const DRIVERS = {
  async ioredis(address: string): Promise<Opened> {
    const ioredis = await import('ioredis');
    const { redisBus } = await import('mcp-interlock/bus/redis');
    const { redisStore } = await import('mcp-interlock/stores/redis');
    // Its first versions had no export of that name.
    const client = new (ioredis.Redis ?? (ioredis.default as unknown))(address);
    return {
      store: redisStore({ client }),
      bus: redisBus({ client }),
      close: () => client.disconnect(),
    };
  },
  async redis(address: string): Promise<Opened> {
    const { createClient } = await import('redis');
    const { redisBus } = await import('mcp-interlock/bus/redis');
    const { redisStore } = await import('mcp-interlock/stores/redis');
    const client = createClient({ url: address });
    await client.connect();
    return {
      store: redisStore({ client }),
      bus: redisBus({ client }),
      close: () => client.destroy(),
    };
  },
  async pg(address: string): Promise<Opened> {
    const { default: pg } = await import('pg');
    const { postgresBus } = await import('mcp-interlock/bus/postgres');
    const { postgresStore } = await import('mcp-interlock/stores/postgres');
    const pool = new pg.Pool({ connectionString: address, max: 2 });
    const store = postgresStore({ pool });
    await store.migrate();
    return { store, bus: postgresBus({ pool }), close: () => pool.end() };
  },
  async '@upstash/redis'(address: string, token: string): Promise<Opened> {
    const { Redis } = await import('@upstash/redis');
    const { upstashStore } = await import('mcp-interlock/stores/upstash');
    const redis = new Redis({ url: address, token });
    return { store: upstashStore({ redis }), close: () => {} };
  },
  async libsql(address: string): Promise<Opened> {
    const { default: Database } = await import('libsql');
    const { sqliteStore } = await import('mcp-interlock/stores/sqlite');
    const database = new Database(address);
    return {
      store: sqliteStore({ database, busyTimeoutMs: 20_000 }),
      close: () => database.close(),
    };
  },
} as const satisfies Readonly<Record<string, (address: string, token: string) => Promise<Opened>>>;
