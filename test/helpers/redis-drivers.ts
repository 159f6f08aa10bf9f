import { Cluster as Cluster6, Redis as Redis6 } from 'ioredis';
import { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5';
import { createClient as createClient6, createCluster as createCluster6 } from 'redis';
import { createClient as createClient5, createCluster as createCluster5 } from 'redis5';
import type { RedisStoreOptions } from '../../src/stores/redis.ts';

/** A connected client, and how to close it. */
export interface Connection {
  readonly client: RedisStoreOptions['client'];
  close(): void;
}

export interface Driver {
  readonly name: string;
  connect(url: string): Promise<Connection>;
  connectCluster(urls: readonly string[]): Promise<Connection>;
}

/** Every major version of every driver that `redisStore()` takes. */
export const DRIVERS: readonly Driver[] = [
  {
    name: 'node-redis 6',
    connect: (url) => connected(createClient6({ url })),
    connectCluster: (urls) =>
      connected(createCluster6({ rootNodes: urls.map((url) => ({ url })) })),
  },
  {
    name: 'node-redis 5',
    connect: (url) => connected(createClient5({ url })),
    connectCluster: (urls) =>
      connected(createCluster5({ rootNodes: urls.map((url) => ({ url })) })),
  },
  {
    name: 'ioredis 6',
    connect: (url) => ready(new Redis6(url)),
    connectCluster: (urls) => ready(new Cluster6([...urls])),
  },
  {
    name: 'ioredis 5',
    connect: (url) => ready(new Redis5(url)),
    connectCluster: (urls) => ready(new Cluster5([...urls])),
  },
];

export function driverNamed(name: string): Driver {
  const driver = DRIVERS.find((each) => each.name === name);
  if (driver === undefined) throw new Error(`no such driver: ${name}`);
  return driver;
}

type NodeRedis = Connection['client'] & {
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: 'error', listener: () => void): unknown;
};

async function connected(client: NodeRedis): Promise<Connection> {
  client.on('error', () => {});
  await client.connect();
  return { client, close: () => client.destroy() };
}

type Ioredis = Connection['client'] & {
  ping(): Promise<unknown>;
  disconnect(): void;
  on(event: 'error', listener: () => void): unknown;
};

async function ready(client: Ioredis): Promise<Connection> {
  client.on('error', () => {});
  await client.ping();
  return { client, close: () => client.disconnect() };
}
