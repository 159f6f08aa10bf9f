import { randomUUID } from 'node:crypto';
import { Cluster, Redis } from 'ioredis';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { step } from '../../packages/testing/src/fixtures.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { expectSameAnswers, inMemory } from '../helpers/agreement.ts';
import { type Connection, DRIVERS, driverNamed } from '../helpers/redis-drivers.ts';
import { startRedisCluster } from '../services/redis-cluster.ts';

const cluster = await startRedisCluster({ masters: 3 });
afterAll(() => cluster.stop());

// The contract runs through one driver, as in redis.test.ts. How a driver finds the node of a key
// is asked of each, below.
describeStateStore(
  'redisStore() on a cluster',
  async () => {
    const prefix = `test-${randomUUID()}`;
    const connections: Connection[] = [];
    const reopen = async () => {
      const connection = await driverNamed('node-redis 5').connectCluster(cluster.urls);
      connections.push(connection);
      return redisStore({ client: connection.client, prefix });
    };
    const close = async () => {
      for (const connection of connections) connection.close();
    };
    return { store: await reopen(), reopen, close };
  },
  { describe: describe.concurrent, it },
);

describe.each(DRIVERS)('redisStore() on a cluster through $name', (driver) => {
  it('answers any operations on any names as memoryStore() does', async () => {
    const { client, close } = await driver.connectCluster(cluster.urls);
    onTestFinished(close);
    const onCluster = (chainTrail: boolean) =>
      redisStore({ client, prefix: `test-${randomUUID()}`, chainTrail });
    await expectSameAnswers((chainTrail) => [onCluster(chainTrail), inMemory(chainTrail)], 10);
  });

  it('lists and counts the runs of each node', async () => {
    const { client, close } = await driver.connectCluster(cluster.urls);
    onTestFinished(close);
    const store = redisStore({ client, prefix: `test-${randomUUID()}` });
    const runs = Array.from({ length: 40 }, () => randomUUID());
    for (const run of runs) await step(store, run, { create: {} });
    expect(await store.count({ workflow: 'checkout', forMs: 0 })).toMatchObject({
      states: [{ state: 'has_items', runs: 40 }],
    });
    const found: string[] = [];
    for await (const run of store.runs({ workflow: 'checkout', state: 'has_items' }))
      found.push(run);
    expect(found.toSorted()).toEqual(runs.toSorted());
  });
});

describe('redisStore() on a cluster', () => {
  it('spreads runs over every node, and keeps each whole on one', async () => {
    const client = new Cluster([...cluster.urls]);
    const prefix = `test-${randomUUID()}`;
    const store = redisStore({ client, prefix });
    const runs = Array.from({ length: 60 }, () => randomUUID());
    for (const run of runs) await step(store, run, { create: {} });
    client.disconnect();

    const nodes = await Promise.all(cluster.urls.map((url) => keysOn(url, `${prefix}:*`)));
    const isRun = (key: string): boolean => key.includes(':run:');
    for (const keys of nodes) {
      expect(keys.filter(isRun).length).toBeGreaterThan(0);
      // Beside its runs each bucket has an index and its members.
      const buckets = new Set(keys.map((key) => /\{\w+\}/.exec(key)?.[0]));
      expect(keys.filter((key) => !isRun(key))).toHaveLength(2 * buckets.size);
    }
    expect(nodes.flat().filter(isRun)).toHaveLength(runs.length);
  });
});

async function keysOn(url: string, pattern: string): Promise<string[]> {
  const redis = new Redis(url);
  try {
    return await redis.keys(pattern);
  } finally {
    redis.disconnect();
  }
}
