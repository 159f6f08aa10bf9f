// Each driver is loaded where its store is opened: to load them all takes a process half a second.
import type { Cluster, Redis as Ioredis, RedisOptions } from 'ioredis';
import type { RedisClientOptions } from 'redis';
import { memoryStore } from '../../src/index.ts';
import { documentStore } from '../../src/stores/document.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { upstashStore } from '../../src/stores/upstash.ts';
import { PRIMARY } from '../../test/services/failover.ts';

/** Stores that rest on something which can be taken from them, and comes back. */
export const FAILOVER_NAMES = [
  'redis-sentinel',
  'ioredis-sentinel',
  'redis-cluster',
  'ioredis-cluster',
  'postgres-standby',
  'postgres-synchronous-standby',
  'sqlite-full-disk',
] as const;
export type FailoverName = (typeof FAILOVER_NAMES)[number];

export const STORE_NAMES = [
  'redis',
  'ioredis',
  'upstash',
  'postgres',
  'sqlite',
  'memory',
  'dynamodb',
  'mariadb',
  'etcd',
  ...FAILOVER_NAMES,
] as const;
export type StoreName = (typeof STORE_NAMES)[number];

/** Where a process finds its store. */
export interface StoreAddress {
  readonly name: StoreName;
  /** A server's address, several with commas, or a file's path. */
  readonly url: string;
  readonly token?: string;
}

export interface OpenStore {
  readonly store: AtomicStateStore;
  close(): Promise<void>;
}

/**
 * Opens a store with the client settings that the documentation recommends: they are what is
 * measured here.
 */
export function openStore({ name, url, token = '' }: StoreAddress): Promise<OpenStore> {
  const openers: Record<StoreName, () => Promise<OpenStore>> = {
    redis: () => openNodeRedis(url),
    ioredis: () => openIoredis(url),
    upstash: () => openUpstash(url, token),
    postgres: () => openPostgres(url),
    sqlite: () => openSqlite(url),
    memory: async () => ({ store: memoryStore(), close: async () => {} }),
    dynamodb: () => openDynamodb(url),
    mariadb: () => openMariadb(url),
    etcd: () => openEtcd(url),
    'redis-sentinel': () => openNodeSentinel(url),
    'ioredis-sentinel': () => openIoSentinel(url),
    'redis-cluster': () => openNodeCluster(url),
    'ioredis-cluster': () => openIoCluster(url),
    'postgres-standby': () => openPostgres(url),
    'postgres-synchronous-standby': () => openPostgres(url),
    'sqlite-full-disk': () => openSqlite(url),
  };
  return openers[name]();
}

/**
 * Every failure of a call reaches the caller; what is emitted beside that must only not end the
 * process.
 */
const ignore = (): void => {};

/** While Redis is away calls fail at once, instead of running late. */
const NODE_REDIS = {
  disableOfflineQueue: true,
  socket: {
    connectTimeout: 1000,
    reconnectStrategy: (retries) => Math.min(50 * 2 ** retries, 500),
  },
} satisfies RedisClientOptions;

async function openNodeRedis(url: string): Promise<OpenStore> {
  const { createClient } = await import('redis');
  const client = createClient({ url, ...NODE_REDIS });
  client.on('error', ignore);
  await client.connect();
  return { store: redisStore({ client }), close: async () => client.destroy() };
}

async function openNodeSentinel(urls: string): Promise<OpenStore> {
  const { createSentinel } = await import('redis');
  const client = createSentinel({
    name: PRIMARY,
    sentinelRootNodes: addressesIn(urls),
    nodeClientOptions: NODE_REDIS,
    sentinelClientOptions: NODE_REDIS,
    // How often it asks the sentinels, beside listening to them.
    scanInterval: 500,
  });
  client.on('error', ignore);
  await client.connect();
  return { store: redisStore({ client }), close: async () => client.destroy() };
}

async function openNodeCluster(urls: string): Promise<OpenStore> {
  const { createCluster } = await import('redis');
  const client = createCluster({
    rootNodes: urls.split(',').map((url) => ({ url })),
    defaults: NODE_REDIS,
  });
  client.on('error', ignore);
  await client.connect();
  return { store: redisStore({ client }), close: async () => client.destroy() };
}

const IOREDIS = {
  lazyConnect: true,
  connectTimeout: 1000,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  // How long it waits until it looks again whether Redis has loaded its data; by default up to 10
  // s.
  maxLoadingRetryTime: 500,
  retryStrategy: (times) => Math.min(50 * 2 ** times, 500),
} satisfies RedisOptions;

async function openIoredis(url: string): Promise<OpenStore> {
  const { Redis } = await import('ioredis');
  return openIoClient(new Redis(url, IOREDIS));
}

async function openIoSentinel(urls: string): Promise<OpenStore> {
  const { Redis } = await import('ioredis');
  const { retryStrategy } = IOREDIS;
  const sentinel = {
    sentinels: addressesIn(urls),
    name: PRIMARY,
    sentinelRetryStrategy: retryStrategy,
  };
  return openIoClient(new Redis({ ...IOREDIS, ...sentinel }));
}

async function openIoCluster(urls: string): Promise<OpenStore> {
  const { Cluster } = await import('ioredis');
  const clusterRetryStrategy = IOREDIS.retryStrategy;
  const options = { lazyConnect: true, enableOfflineQueue: false, clusterRetryStrategy };
  return openIoClient(new Cluster(urls.split(','), { ...options, redisOptions: IOREDIS }));
}

async function openIoClient(client: Ioredis | Cluster): Promise<OpenStore> {
  client.on('error', ignore);
  await client.connect();
  return { store: redisStore({ client }), close: async () => client.disconnect() };
}

function addressesIn(urls: string): { host: string; port: number }[] {
  return urls.split(',').map((url) => {
    const { hostname: host, port } = new URL(url);
    return { host, port: Number(port) };
  });
}

async function openUpstash(url: string, token: string): Promise<OpenStore> {
  const { Redis } = await import('@upstash/redis');
  // With the client's own five retries a call outlives the deadline that the middleware gives it.
  const redis = new Redis({
    url,
    token,
    enableTelemetry: false,
    retry: { retries: 2, backoff: (n) => 50 * 2 ** n },
  });
  return { store: upstashStore({ redis }), close: async () => {} };
}

async function openPostgres(url: string): Promise<OpenStore> {
  const { Pool } = await import('pg');
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
  const { default: Database } = await import('libsql');
  const database = new Database(file);
  return { store: sqliteStore({ database }), close: async () => void database.close() };
}

async function openDynamodb(url: string): Promise<OpenStore> {
  const { dynamodbClient } = await import('../../test/services/dynamodb.ts');
  const { dynamodbDocuments, MAX_BYTES } = await import(
    '../../examples/custom-store/dynamodb-documents.ts'
  );
  const client = dynamodbClient(url, 900);
  const documents = dynamodbDocuments(client, 'runs');
  const store = documentStore(documents, { maxBytes: MAX_BYTES });
  return { store, close: async () => client.destroy() };
}

async function openEtcd(url: string): Promise<OpenStore> {
  const { etcdDocuments } = await import('../../examples/custom-store/etcd-documents.ts');
  const store = documentStore(etcdDocuments(url), { maxBytes: 1_000_000 });
  return { store, close: async () => {} };
}

async function openMariadb(url: string): Promise<OpenStore> {
  const { createPool } = await import('mariadb');
  const { MARIADB_TABLES, mariadbDocuments } = await import(
    '../../examples/custom-store/mariadb-documents.ts'
  );
  const { hostname: host, port, username: user, pathname } = new URL(url);
  const pool = createPool({
    ...{ host, port: Number(port), user, database: pathname.slice(1) },
    connectionLimit: 10,
    connectTimeout: 1_000,
    // While MariaDB is away calls fail soon, instead of running late.
    acquireTimeout: 1_000,
  });
  for (const sql of MARIADB_TABLES) await pool.query(sql);
  return { store: documentStore(mariadbDocuments(pool)), close: () => pool.end() };
}
