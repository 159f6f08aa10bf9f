import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { postgresBus } from '../../src/bus/postgres.ts';
import { redisBus } from '../../src/bus/redis.ts';
import { retryDelayMs } from '../../src/bus/standing-link.ts';
import type { NotificationBus } from '../../src/notify/bus.ts';
import { sharedPostgres, sharedRedis } from '../services/shared.ts';
import { heardAtLast, listenTo } from './hearing.ts';
import { type SilentProxy, startSilentProxy } from './silent-proxy.ts';

describe('a bus whose network forgot the connection that listens, without telling either side', () => {
  const errors: unknown[] = [];
  const onError = (error: unknown) => errors.push(error);
  const cleanUps: (() => unknown)[] = [];
  beforeEach(() => {
    errors.length = 0;
  });
  afterEach(async () => {
    for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  });

  async function startProxy(url: string): Promise<SilentProxy & { readonly url: string }> {
    const proxy = await startSilentProxy(Number(new URL(url).port));
    cleanUps.push(() => proxy.stop());
    const through = new URL(url);
    through.port = String(proxy.port);
    return { ...proxy, url: through.href };
  }

  async function expectRecovery(
    listening: NotificationBus,
    publishing: NotificationBus,
    proxy: SilentProxy,
  ): Promise<void> {
    const hearing = await listenTo(listening);
    cleanUps.push(hearing.stop);
    proxy.fallSilent();
    await heardAtLast(publishing, hearing);
    expect(errors).toMatchObject([{ name: 'BusUnavailable', cause: { message: 'no answer within 300 ms' } }]);
  }

  it('finds out and listens again, over PostgreSQL', async () => {
    const url = await sharedPostgres();
    const proxy = await startProxy(url);
    const pool = new Pool({ connectionString: url });
    cleanUps.push(() => pool.end());
    const options = { pool, channel: randomUUID(), heartbeatMs: 300, onError };
    const listenPool = new Pool({ connectionString: proxy.url });
    await expectRecovery(postgresBus({ ...options, listenPool }), postgresBus(options), proxy);
  });

  it('finds out and listens again, over Redis through ioredis', async () => {
    const url = await sharedRedis();
    const proxy = await startProxy(url);
    const [near, far] = [new Redis(url), new Redis(proxy.url)];
    cleanUps.push(() => near.disconnect() ?? far.disconnect());
    const options = { channel: randomUUID(), heartbeatMs: 300, onError };
    await expectRecovery(
      redisBus({ client: far, ...options }),
      redisBus({ client: near, ...options }),
      proxy,
    );
  });

  it('finds out and listens again, over Redis through node-redis', async () => {
    const url = await sharedRedis();
    const proxy = await startProxy(url);
    const [near, far] = [createClient({ url }), createClient({ url: proxy.url })];
    await Promise.all([near.connect(), far.connect()]);
    cleanUps.push(() => near.destroy() ?? far.destroy());
    const options = { channel: randomUUID(), heartbeatMs: 300, onError };
    await expectRecovery(
      redisBus({ client: far, ...options }),
      redisBus({ client: near, ...options }),
      proxy,
    );
  });
});

describe('the delay before a lost connection is opened again', () => {
  const fraction = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

  it('is between 50 ms and two seconds, however often it failed', () => {
    fc.assert(
      fc.property(fc.nat({ max: 10_000 }), fraction, (failures, random) => {
        const delay = retryDelayMs(failures, () => random);
        expect(delay).toBeGreaterThanOrEqual(50);
        expect(delay).toBeLessThanOrEqual(2000);
      }),
    );
  });

  it('doubles with each failure until it is at its longest', () => {
    const delays = Array.from({ length: 7 }, (_, failures) => retryDelayMs(failures, () => 0));
    expect(delays).toEqual([50, 100, 200, 400, 800, 1000, 1000]);
  });

  it('differs between instances that failed together', () => {
    const delays = Array.from({ length: 100 }, () => retryDelayMs(5));
    expect(Math.max(...delays) - Math.min(...delays)).toBeGreaterThan(100);
  });
});
