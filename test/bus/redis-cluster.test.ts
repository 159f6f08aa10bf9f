import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { redisBus } from '../../src/bus/redis.ts';
import { startRedisCluster } from '../services/redis-cluster.ts';
import { describeBus } from './describe-bus.ts';
import { heardAtLast, listenTo } from './hearing.ts';
import { PUB_SUB_DRIVERS, type PubSubClient, type PubSubDriver } from './redis-clients.ts';

const cluster = await startRedisCluster({ masters: 3 });
afterAll(() => cluster.stop());

const open: PubSubClient[] = [];
const connect = async (driver: PubSubDriver) => {
  const connection = await driver.connectCluster(cluster.urls);
  open.push(connection);
  return connection.client;
};
const closeAll = () => {
  for (const connection of open.splice(0)) connection.close();
};
afterEach(closeAll);

for (const driver of PUB_SUB_DRIVERS) {
  describeBus(
    `redisBus() on a cluster through ${driver.name}`,
    async () => {
      const channel = randomUUID();
      return {
        connect: async (onError) => redisBus({ client: await connect(driver), channel, onError }),
        close: async () => closeAll(),
      };
    },
    { ordered: false },
  );
}

describe.each(PUB_SUB_DRIVERS)(
  'redisBus() on a cluster through $name',
  { timeout: 30_000 },
  (driver) => {
    it('goes on after a kill and restart of the node that it listens on', async () => {
      const bus = redisBus({ client: await connect(driver), onError: () => {} });
      const hearing = await listenTo(bus);
      const listening = await Promise.all(cluster.urls.map(subscribers));
      expect(listening.filter((count) => count === 1)).toHaveLength(1);
      const node = cluster.nodes[listening.indexOf(1)];
      await node?.kill9();
      await node?.restart();
      await heardAtLast(bus, hearing);
      await hearing.stop();
      await expect
        .poll(async () => Promise.all(cluster.urls.map(subscribers)))
        .toEqual(cluster.urls.map(() => 0));
    });
  },
);

async function subscribers(url: string): Promise<unknown> {
  const server = new Redis(url);
  try {
    const counts = await server.pubsub('NUMSUB', 'interlock');
    return counts[1];
  } finally {
    server.disconnect();
  }
}
