import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { postgresBus } from '../../src/bus/postgres.ts';
import { redisBus } from '../../src/bus/redis.ts';
import { type LinkEvents, retryDelayMs, StandingLink } from '../../src/bus/remote-bus.ts';
import type { NotificationBus } from '../../src/notify/bus.ts';
import { sharedPostgres, sharedRedis } from '../services/shared.ts';
import { heardAtLast, listenTo } from './hearing.ts';
import { type SilentProxy, startSilentProxy } from './silent-proxy.ts';

describe('a bus whose network forgot the connection that listens, without telling either side', {
  timeout: 30_000,
}, () => {
  async function startProxy(url: string): Promise<SilentProxy & { readonly url: string }> {
    const proxy = await startSilentProxy(Number(new URL(url).port));
    onTestFinished(() => proxy.stop());
    const through = new URL(url);
    through.port = String(proxy.port);
    return { ...proxy, url: through.href };
  }

  async function expectRecovery(
    listening: NotificationBus,
    publishing: NotificationBus,
    proxy: SilentProxy,
    errors: readonly unknown[],
  ): Promise<void> {
    expect(listening.hears?.()).toBe(false);
    const hearing = await listenTo(listening);
    onTestFinished(() => hearing.stop());
    expect(listening.hears?.()).toBe(true);
    proxy.fallSilent();
    await expect.poll(() => listening.hears?.(), { interval: 5 }).toBe(false);
    await heardAtLast(publishing, hearing);
    expect(listening.hears?.()).toBe(true);
    expect(errors).toMatchObject([
      { name: 'BusUnavailable', cause: { message: 'no answer within 300 ms' } },
    ]);
  }

  it('finds out and listens again, over PostgreSQL', async () => {
    const errors: unknown[] = [];
    const url = await sharedPostgres();
    const proxy = await startProxy(url);
    const pool = new Pool({ connectionString: url });
    onTestFinished(() => pool.end());
    const options = {
      pool,
      channel: randomUUID(),
      heartbeatMs: 300,
      onError: (error: unknown) => errors.push(error),
    };
    const listenPool = new Pool({ connectionString: proxy.url });
    await expectRecovery(
      postgresBus({ ...options, listenPool }),
      postgresBus(options),
      proxy,
      errors,
    );
  });

  it('finds out and listens again, over Redis through ioredis', async () => {
    const errors: unknown[] = [];
    const url = await sharedRedis();
    const proxy = await startProxy(url);
    const [near, far] = [new Redis(url), new Redis(proxy.url)];
    onTestFinished(() => void (near.disconnect() ?? far.disconnect()));
    const options = {
      channel: randomUUID(),
      heartbeatMs: 300,
      onError: (error: unknown) => errors.push(error),
    };
    await expectRecovery(
      redisBus({ client: far, ...options }),
      redisBus({ client: near, ...options }),
      proxy,
      errors,
    );
  });

  it('finds out and listens again, over Redis through node-redis', async () => {
    const errors: unknown[] = [];
    const url = await sharedRedis();
    const proxy = await startProxy(url);
    const [near, far] = [createClient({ url }), createClient({ url: proxy.url })];
    await Promise.all([near.connect(), far.connect()]);
    onTestFinished(() => void (near.destroy() ?? far.destroy()));
    const options = {
      channel: randomUUID(),
      heartbeatMs: 300,
      onError: (error: unknown) => errors.push(error),
    };
    await expectRecovery(
      redisBus({ client: far, ...options }),
      redisBus({ client: near, ...options }),
      proxy,
      errors,
    );
  });
});

describe('a standing link', () => {
  /** A link to a server that is away until the test brings it up. */
  function startLink() {
    const server = { away: true };
    const open: LinkEvents[] = [];
    const heard: string[] = [];
    const errors: unknown[] = [];
    const link = new StandingLink({
      open: (events) => {
        open.push(events);
        const listening = server.away
          ? Promise.reject(new Error('the server is away'))
          : Promise.resolve();
        return { listening, close: () => {} };
      },
      onMessage: (text) => heard.push(text),
      onError: (error) => errors.push(error),
      heartbeatMs: 30_000,
    });
    onTestFinished(() => link.close());
    return { server, open, heard, errors, link };
  }

  it('reports an outage once, and not for each try, and the next one again', async () => {
    const { server, open, errors, link } = startLink();
    const report = { name: 'BusUnavailable', cause: { message: 'the server is away' } };
    await expect.poll(() => open.length, { timeout: 5000 }).toBeGreaterThan(2);
    expect(errors).toMatchObject([report]);
    server.away = false;
    await link.listening;
    server.away = true;
    open.at(-1)?.lost(new Error('the server is away'));
    await expect.poll(() => open.length, { timeout: 5000 }).toBeGreaterThan(5);
    expect(errors).toMatchObject([report, report]);
  });

  it('hears nothing more on a connection that it gave up', async () => {
    const { server, open, heard, link } = startLink();
    server.away = false;
    await link.listening;
    const old = open.at(-1);
    old?.message('a');
    old?.lost(new Error('broken'));
    await expect.poll(() => open.at(-1)).not.toBe(old);
    old?.message('late');
    open.at(-1)?.message('b');
    expect(heard).toEqual(['a', 'b']);
  });

  it('tries no more once it is closed', async () => {
    const { server, open, heard, errors, link } = startLink();
    server.away = false;
    await link.listening;
    const tries = open.length;
    const last = open.at(-1);
    await link.close();
    last?.lost(new Error('closed'));
    last?.message('late');
    expect([open.length, heard, errors.length]).toEqual([tries, [], 1]);
  });
});

describe('the delay before a lost connection is opened again', () => {
  const fraction = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

  it('is between 50 ms and two seconds, after any number of failures', () => {
    fc.assert(
      fc.property(fc.nat({ max: 10_000 }), fraction, (failures, random) => {
        const delay = retryDelayMs(failures, () => random);
        expect(delay).toBeGreaterThanOrEqual(50);
        expect(delay).toBeLessThanOrEqual(2000);
      }),
    );
  });

  it('doubles with each failure up to its longest', () => {
    const delays = Array.from({ length: 7 }, (_, failures) => retryDelayMs(failures, () => 0));
    expect(delays).toEqual([50, 100, 200, 400, 800, 1000, 1000]);
  });

  it('differs between instances that failed together', () => {
    const delays = Array.from({ length: 100 }, () => retryDelayMs(5));
    expect(Math.max(...delays) - Math.min(...delays)).toBeGreaterThan(100);
  });
});
