import { randomUUID } from 'node:crypto';
import { Redis as Upstash } from '@upstash/redis';
import { Redis } from 'ioredis';
import { Redis as Redis5 } from 'ioredis5';
import { createClient, createClientPool, RESP_TYPES } from 'redis';
import { afterAll, afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { redisBus } from '../../src/bus/redis.ts';
import { BusUnavailable } from '../../src/notify/bus.ts';
import { latch } from '../helpers/latch.ts';
import { isFree } from '../services/ports.ts';
import { startRedis } from '../services/redis.ts';
import { sharedRedis } from '../services/shared.ts';
import { describeBus } from './describe-bus.ts';
import { heardAtLast, heardBefore, listenTo } from './hearing.ts';
import { PUB_SUB_DRIVERS, type PubSubClient, type PubSubDriver } from './redis-clients.ts';

/** A server of our own, which these tests may kill. */
const redis = await startRedis();
afterAll(() => redis.stop());

const NODE_REDIS = PUB_SUB_DRIVERS.filter(({ name }) => name.startsWith('node-redis'));

const open: PubSubClient[] = [];
const connect = async (driver: PubSubDriver, url: string) => {
  const connection = await driver.connect(url);
  open.push(connection);
  return connection.client;
};
const closeAll = () => {
  for (const connection of open.splice(0)) connection.close();
};
afterEach(async () => {
  closeAll();
  // A test that fails while it is down must not fail the others.
  if (await isFree(redis.port)) await redis.restart();
});

for (const driver of PUB_SUB_DRIVERS) {
  describeBus(`redisBus() through ${driver.name}`, async () => {
    const url = await sharedRedis();
    const channel = randomUUID();
    return {
      connect: async (onError) =>
        redisBus({ client: await connect(driver, url), channel, onError }),
      close: async () => closeAll(),
    };
  });

  describeBus(`redisBus() through ${driver.name} with a subscriber of the caller's`, async () => {
    const url = await sharedRedis();
    const channel = randomUUID();
    return {
      connect: async (onError) =>
        redisBus({
          client: await connect(driver, url),
          subscriber: await connect(driver, url),
          channel,
          onError,
        }),
      close: async () => closeAll(),
    };
  });
}

describe.each(PUB_SUB_DRIVERS)('redisBus() through $name', { timeout: 30_000 }, (driver) => {
  it('goes on after a kill and restart of the server, and rejects messages meanwhile', async () => {
    const errors: unknown[] = [];
    const onError = (error: unknown) => errors.push(error);
    const [here, there] = [
      redisBus({ client: await connect(driver, redis.url), onError }),
      redisBus({ client: await connect(driver, redis.url), onError }),
    ];
    const hearings = [await listenTo(here), await listenTo(there)];
    onTestFinished(async () => {
      for (const { stop } of hearings) await stop();
    });
    for (let outage = 1; outage <= 2; outage += 1) {
      errors.length = 0;
      await redis.kill9();
      await expect.poll(() => errors.length, { timeout: 10_000 }).toBeGreaterThan(0);
      await expect(here.publish('"lost"')).rejects.toBeInstanceOf(BusUnavailable);
      const refusal = () => here.publish('"lost"').catch(({ cause }: Error) => String(cause));
      await expect.poll(refusal, { timeout: 10_000 }).toMatch(/the client is not connected/);
      expect(errors).toSatisfy((all: unknown[]) =>
        all.every((error) => error instanceof BusUnavailable),
      );
      await redis.restart();
      await heardAtLast(here, ...hearings);
      await heardAtLast(there, ...hearings);
      // A bus says the same error again only once it hears itself.
      for (const bus of [here, there])
        await expect.poll(() => bus.hears?.(), { timeout: 20_000 }).toBe(true);
    }
  });

  it('listens once the server comes up, where it was down at first', async () => {
    const client = await connect(driver, redis.url);
    await redis.kill9();
    const bus = redisBus({ client, onError: () => {} });
    const listening = listenTo(bus);
    await redis.restart();
    const hearing = await listening;
    await heardAtLast(bus, hearing);
    await hearing.stop();
  });

  it('opens a new connection where the server closes one', async () => {
    const client = await connect(driver, redis.url);
    const bus = redisBus({ client, onError: () => {} });
    const hearing = await listenTo(bus);
    await killSubscribers(redis.url);
    await heardAtLast(bus, hearing);
    await hearing.stop();
  });

  it('leaves no connection open once it has no listeners', async () => {
    const bus = redisBus({ client: await connect(driver, redis.url) });
    const [one, other] = [await listenTo(bus), await listenTo(bus)];
    expect(await subscribers(redis.url)).toBe(1);
    await one.stop();
    expect(await subscribers(redis.url)).toBe(1);
    await other.stop();
    await expect.poll(() => subscribers(redis.url)).toBe(0);
  });

  it('leaves no connection open where the caller aborts while it connects', async () => {
    const client = await connect(driver, redis.url);
    const before = await connections(redis.url);
    const bus = redisBus({ client, onError: () => {} });
    for (let times = 1; times <= 5; times += 1) {
      const giveUp = new AbortController();
      const listening = bus.subscribe(() => {}, giveUp.signal);
      giveUp.abort();
      await (await listening)();
    }
    await expect.poll(() => connections(redis.url)).toBe(before);
  });

  it('hears nothing from another channel', async () => {
    const client = await connect(driver, redis.url);
    const [one, other] = [
      redisBus({ client, channel: 'one' }),
      redisBus({ client, channel: 'other' }),
    ];
    const hearing = await listenTo(one);
    await other.publish('"a"');
    expect(await heardBefore('"last"', one, hearing)).toEqual([]);
    await hearing.stop();
  });

  it("keeps the caller's subscriber connected, with its other subscriptions", async () => {
    const client = await connect(driver, redis.url);
    const subscriber = await connect(driver, redis.url);
    const [one, other] = [
      redisBus({ client, subscriber, channel: 'one' }),
      redisBus({ client, subscriber, channel: 'other' }),
    ];
    const [gone, kept] = [await listenTo(one), await listenTo(other)];
    expect(await heardBefore('"first"', other, kept)).toEqual([]);
    await gone.stop();
    expect(await heardBefore('"last"', other, kept)).toEqual(['"first"']);
    expect(gone.heard).toEqual([]);
    await kept.stop();
    expect(String(await subscriber.ping())).toMatch(/pong/i);
  });
});

describe('redisBus()', { timeout: 30_000 }, () => {
  it.each(NODE_REDIS)(
    'leaves no connection of $name open where the caller leaves while it reconnects',
    async (driver) => {
      const client = await connect(driver, redis.url);
      const before = await connections(redis.url);
      for (let times = 1; times <= 5; times += 1) {
        const broken = latch();
        const bus = redisBus({ client, onError: broken.open });
        const hearing = await listenTo(bus);
        await killSubscribers(redis.url);
        await broken.opened;
        await hearing.stop();
      }
      await expect.poll(() => connections(redis.url)).toBe(before);
    },
  );

  it('listens again where node-redis gives up its connection', async () => {
    const client = createClient({ url: redis.url, socket: { reconnectStrategy: false } });
    client.on('error', () => {});
    await client.connect();
    const bus = redisBus({ client, onError: () => {} });
    const hearing = await listenTo(bus);
    await killSubscribers(redis.url);
    await heardAtLast(bus, hearing);
    await hearing.stop();
    client.destroy();
  });

  it('listens again where ioredis gives up, also with settings made for commands', async () => {
    const client = new Redis(redis.url, {
      autoResubscribe: false,
      enableOfflineQueue: false,
      keyPrefix: 'app:',
      lazyConnect: true,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    });
    await client.connect();
    const bus = redisBus({ client, onError: () => {} });
    const hearing = await listenTo(bus);
    await killSubscribers(redis.url);
    await heardAtLast(bus, hearing);
    await hearing.stop();
    client.disconnect();
  });

  it.each([
    ['ioredis 6', (url: string) => new Redis(url, { autoResubscribe: false })],
    ['ioredis 5', (url: string) => new Redis5(url, { autoResubscribe: false })],
  ] as const)(
    'subscribes again on a subscriber of %s that does not do so itself',
    async (_, connectTo) => {
      const client = new Redis(redis.url);
      const subscriber = connectTo(redis.url);
      const bus = redisBus({ client, subscriber, onError: () => {} });
      const hearing = await listenTo(bus);
      await killSubscribers(redis.url);
      await heardAtLast(bus, hearing);
      await hearing.stop();
      subscriber.disconnect();
      client.disconnect();
    },
  );

  it('publishes through one driver to a subscriber of the other, also one of bytes', async () => {
    const client = new Redis(redis.url);
    const subscriber = createClient({
      url: redis.url,
      commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
    });
    await subscriber.connect();
    const bus = redisBus({ client, subscriber });
    const hearing = await listenTo(bus);
    expect(await heardBefore('"é"', bus, hearing)).toEqual([]);
    await hearing.stop();
    subscriber.destroy();
    client.disconnect();
  });

  it('waits for a subscriber that is not connected yet', async () => {
    const client = createClient({ url: redis.url });
    await client.connect();
    const subscriber = client.duplicate();
    const bus = redisBus({ client, subscriber });
    const listening = listenTo(bus);
    await subscriber.connect();
    const hearing = await listening;
    expect(await heardBefore('"last"', bus, hearing)).toEqual([]);
    await hearing.stop();
    subscriber.destroy();
    client.destroy();
  });
});

describe('redisBus() options', () => {
  const client = new Redis({ lazyConnect: true });

  it('refuse a client of Upstash, and say why', () => {
    const upstash = new Upstash({ url: 'http://127.0.0.1:1', token: 't' });
    expect(() => redisBus({ client: upstash as never })).toThrow(
      /Upstash has no subscriptions over REST/,
    );
  });

  it('refuse a pool, which cannot subscribe', () => {
    const pool = createClientPool();
    expect(() => redisBus({ client: pool as never })).toThrow(
      /client: expected a client .+ not a pool/,
    );
    expect(() => redisBus({ client, subscriber: pool as never })).toThrow(
      /subscriber: expected a client/,
    );
  });

  it.each([undefined, null, 'redis://127.0.0.1', {}])('refuse %j as a client', (value) => {
    expect(() => redisBus({ client: value as never })).toThrow(
      /client: expected a client of node-redis or/,
    );
  });

  it.each(['', 'ä', 'a\nb', 'x'.repeat(64)])('refuse %j as a channel', (channel) => {
    expect(() => redisBus({ client, channel })).toThrow(
      /channel: expected 1 to 63 printable characters/,
    );
  });

  it.each([0, 99, 1.5, 2 ** 31])('refuse to test the connection every %d ms', (heartbeatMs) => {
    expect(() => redisBus({ client, heartbeatMs })).toThrow(/heartbeatMs: .+ got/);
  });

  it('name an unknown key with the nearest right one', () => {
    expect(() => redisBus({ client, chanel: 'a' } as never)).toThrow(
      /"chanel", did you mean "channel"/,
    );
  });

  it('take an explicit undefined for the default', async () => {
    const url = await sharedRedis();
    const publisher = new Redis(url);
    const options = {
      subscriber: undefined,
      channel: undefined,
      heartbeatMs: undefined,
      onError: undefined,
    };
    const hearing = await listenTo(redisBus({ client: publisher, ...options }));
    await publisher.publish('interlock', '"a"');
    await expect.poll(() => hearing.heard).toEqual(['"a"']);
    await hearing.stop();
    publisher.disconnect();
  });
});

function killSubscribers(url: string): Promise<unknown> {
  return onServer(url, (server) => server.call('CLIENT', 'KILL', 'TYPE', 'pubsub'));
}

async function connections(url: string): Promise<number> {
  const list = await onServer(url, (server) => server.call('CLIENT', 'LIST'));
  return String(list).trim().split('\n').length;
}

async function subscribers(url: string): Promise<unknown> {
  const counts = await onServer(url, (server) => server.pubsub('NUMSUB', 'interlock'));
  return counts[1];
}

async function onServer<T>(url: string, ask: (server: Redis) => Promise<T>): Promise<T> {
  const server = new Redis(url);
  try {
    return await ask(server);
  } finally {
    server.disconnect();
  }
}
