import { Cluster as Cluster6, Redis as Redis6 } from 'ioredis';
import { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5';
import { createClient as createClient6, createCluster as createCluster6 } from 'redis';
import { createClient as createClient5, createCluster as createCluster5 } from 'redis5';
import type { IoredisPubSub, NodeRedisPubSub, RedisBusOptions } from '../../src/bus/redis.ts';

/** A connected client that publishes and can be duplicated. */
export interface PubSubClient {
  readonly client: RedisBusOptions['client'];
  close(): void;
}

export interface PubSubDriver {
  readonly name: string;
  connect(url: string): Promise<PubSubClient>;
  connectCluster(urls: readonly string[]): Promise<PubSubClient>;
}

/** Every major version of each driver that `redisBus()` takes. */
export const PUB_SUB_DRIVERS: readonly PubSubDriver[] = [
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

async function connected(client: NodeRedisPubSub): Promise<PubSubClient> {
  client.on('error', () => {});
  await client.connect();
  return { client, close: () => client.destroy() };
}

async function ready(client: IoredisPubSub): Promise<PubSubClient> {
  client.on('error', () => {});
  await client.ping();
  return { client, close: () => client.disconnect() };
}
