import { Redis as UpstashRedis } from '@upstash/redis';
import { Redis as Ioredis } from 'ioredis';
import Database from 'libsql';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { type AtomicStateStore, memoryStore } from '../../src/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { upstashStore } from '../../src/stores/upstash.ts';

export const STORE_NAMES = ['redis', 'ioredis', 'upstash', 'postgres', 'sqlite', 'memory'] as const;
export type StoreName = (typeof STORE_NAMES)[number];

/** Where a process finds its store. */
export interface StoreAddress {
  readonly name: StoreName;
  /** A server's address, or a file's path. */
  readonly url: string;
  readonly token?: string;
}

export interface OpenStore {
  readonly store: AtomicStateStore;
  close(): Promise<void>;
}

/** Opens a store with the client settings that the documentation recommends: they are what is measured here. */
export function openStore({ name, url, token = '' }: StoreAddress): Promise<OpenStore> {
  const openers: Record<StoreName, () => Promise<OpenStore>> = {
    redis: () => openNodeRedis(url),
    ioredis: () => openIoredis(url),
    upstash: () => openUpstash(url, token),
    postgres: () => openPostgres(url),
    sqlite: () => openSqlite(url),
    memory: async () => ({ store: memoryStore(), close: async () => {} }),
  };
  return openers[name]();
}

/** Every failure of a call reaches the caller; what is emitted beside that must only not end the process. */
const ignore = (): void => {};

async function openNodeRedis(url: string): Promise<OpenStore> {
  const client = createClient({
    url,
    // While Redis is away calls fail at once, instead of running late.
    disableOfflineQueue: true,
    socket: {
      connectTimeout: 1000,
      reconnectStrategy: (retries) => Math.min(50 * 2 ** retries, 500),
    },
  });
  client.on('error', ignore);
  await client.connect();
  return { store: redisStore({ client }), close: async () => client.destroy() };
}

async function openIoredis(url: string): Promise<OpenStore> {
  const client = new Ioredis(url, {
    lazyConnect: true,
    connectTimeout: 1000,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    // How long it waits until it looks again whether Redis has loaded its data; by default up to 10 s.
    maxLoadingRetryTime: 500,
    retryStrategy: (times) => Math.min(50 * 2 ** times, 500),
  });
  client.on('error', ignore);
  await client.connect();
  return { store: redisStore({ client }), close: async () => client.disconnect() };
}

async function openUpstash(url: string, token: string): Promise<OpenStore> {
  // With the client's own five retries a call outlives the deadline that the middleware gives it.
  const redis = new UpstashRedis({
    url,
    token,
    enableTelemetry: false,
    retry: { retries: 2, backoff: (n) => 50 * 2 ** n },
  });
  return { store: upstashStore({ redis }), close: async () => {} };
}

async function openPostgres(url: string): Promise<OpenStore> {
  const pool = new Pool({
    connectionString: url,
    max: 10,
    connectionTimeoutMillis: 1000,
    keepAlive: true,
  });
  pool.on('error', ignore);
  const store = postgresStore({ pool });
  await store.migrate();
  return { store, close: () => pool.end() };
}

async function openSqlite(file: string): Promise<OpenStore> {
  const database = new Database(file);
  return { store: sqliteStore({ database }), close: async () => void database.close() };
}
