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
import { startRedis } from '../services/redis.ts';
import { sharedPostgres, sharedRedis } from '../services/shared.ts';
import { heardAtLast, listenTo } from './hearing.ts';
import { type SilentProxy, startSilentProxy } from './silent-proxy.ts';

const NO_ANSWER = /^no answer within 300 ms$/;

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
    { reconnect = async () => {}, cause = /own heartbeat within 300 ms/ } = {},
  ): Promise<void> {
    expect(listening.hears?.()).toBe(false);
    const hearing = await listenTo(listening);
    onTestFinished(() => hearing.stop());
    expect(listening.hears?.()).toBe(true);
    proxy.fallSilent();
    await expect.poll(() => listening.hears?.(), { interval: 5 }).toBe(false);
    await heardAtLast(publishing, hearing);
    expect(errors).toMatchObject([
      { name: 'BusUnavailable', cause: { message: expect.stringMatching(cause) } },
    ]);
    await reconnect();
    await expect.poll(() => listening.hears?.(), { timeout: 5000 }).toBe(true);
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
      // The connection that publishes fell silent too, and that one is the caller's to mend.
      { cause: NO_ANSWER, reconnect: async () => far.disconnect(true) },
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
      {
        cause: NO_ANSWER,
        async reconnect() {
          far.destroy();
          await far.connect();
        },
      },
    );
  });

  it('does not hear while its own messages are lost, though those of others arrive', async () => {
    const url = await sharedRedis();
    const proxy = await startProxy(url);
    const [near, far, subscriber] = [new Redis(url), new Redis(proxy.url), new Redis(url)];
    onTestFinished(() => {
      for (const client of [near, far, subscriber]) client.disconnect();
    });
    const options = { channel: randomUUID(), heartbeatMs: 100, onError: () => {} };
    const bus = redisBus({ client: far, subscriber, ...options });
    const hearing = await listenTo(bus);
    onTestFinished(() => hearing.stop());
    proxy.fallSilent();
    await expect.poll(() => bus.hears?.()).toBe(false);
    await redisBus({ client: near, ...options }).publish('"a"');
    await expect.poll(() => hearing.heard).toEqual(['"a"']);
    expect(bus.hears?.()).toBe(false);
    far.disconnect(true);
    await expect.poll(() => bus.hears?.(), { timeout: 5000 }).toBe(true);
  });
});

describe('a bus that publishes to another server than the one that it listens to', () => {
  it('never hears', async () => {
    const [here, there] = await Promise.all([startRedis(), startRedis()]);
    onTestFinished(async () => void (await Promise.all([here.stop(), there.stop()])));
    const [client, subscriber] = [new Redis(here.url), new Redis(there.url)];
    onTestFinished(() => void (client.disconnect() ?? subscriber.disconnect()));
    const errors: unknown[] = [];
    const bus = redisBus({
      client,
      subscriber,
      heartbeatMs: 100,
      onError: (error) => errors.push(error),
    });
    const leaving = new AbortController();
    const listening = bus.subscribe(() => {}, leaving.signal);
    await expect.poll(() => errors).toMatchObject([{ cause: { message: /own heartbeat/ } }]);
    expect(bus.hears?.()).toBe(false);
    leaving.abort();
    await listening;
  });
});

describe('a standing link', () => {
  /** A link to a server that is away until the test brings it up, unless the test says else. */
  function startLink({ heartbeatMs = 30_000, away = true } = {}) {
    const server = { away, isDeaf: false };
    const open: LinkEvents[] = [];
    const sent: string[] = [];
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
      send: async (text) => {
        if (server.away) throw new Error('the server is away');
        sent.push(text);
        if (!server.isDeaf) open.at(-1)?.message(text);
      },
      onMessage: (text) => heard.push(text),
      onError: (error) => errors.push(error),
      heartbeatMs,
    });
    onTestFinished(() => link.close());
    return { server, open, sent, heard, errors, link };
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

  it('hears once its first heartbeat comes back, and not once the server took its word', async () => {
    const { server, open, sent, link } = startLink({ away: false });
    server.isDeaf = true;
    await expect.poll(() => sent.length).toBe(1);
    expect(link.hears).toBe(false);
    open.at(-1)?.message('a hint of another instance');
    open.at(-1)?.message(sent[0]?.replace(/.{6}$/, '0000"}') ?? '');
    expect(link.hears).toBe(false);
    open.at(-1)?.message(sent[0] ?? '');
    expect(link.hears).toBe(true);
    await link.listening;
  });

  it('does not hear until a new heartbeat comes back, where the driver reported a fault', async () => {
    const { server, open, sent, errors, link } = startLink({ away: false });
    await link.listening;
    server.isDeaf = true;
    open.at(-1)?.failing(new Error('broken'));
    expect(link.hears).toBe(false);
    open.at(-1)?.message(sent[0] ?? '');
    expect(link.hears).toBe(false);
    await expect.poll(() => sent.length).toBe(2);
    open.at(-1)?.message(sent[1] ?? '');
    expect([link.hears, errors.length, open.length]).toEqual([true, 1, 1]);
  });

  it('opens anew where no heartbeat comes back, and hears on the new connection', async () => {
    const { server, open, errors, link } = startLink({ away: false, heartbeatMs: 100 });
    await link.listening;
    server.isDeaf = true;
    await expect.poll(() => link.hears).toBe(false);
    server.isDeaf = false;
    await expect.poll(() => link.hears).toBe(true);
    expect(open.length).toBeGreaterThan(1);
    expect(errors).toMatchObject([{ cause: { message: /own heartbeat within 100 ms/ } }]);
  });

  it('passes no heartbeat on as a message, its own or of another instance', async () => {
    const { open, sent, heard, link } = startLink({ away: false });
    const other = startLink({ away: false });
    await Promise.all([link.listening, other.link.listening]);
    for (const text of [...sent, ...other.sent]) open.at(-1)?.message(text);
    open.at(-1)?.message('a');
    expect(heard).toEqual(['a']);
  });

  it('sends no heartbeat once it is closed', async () => {
    const { sent, link } = startLink({ away: false, heartbeatMs: 100 });
    await expect.poll(() => sent.length).toBeGreaterThan(1);
    await link.close();
    const before = sent.length;
    // Another link, which goes on, says when two heartbeats' time is over.
    const other = startLink({ away: false, heartbeatMs: 100 });
    await expect.poll(() => other.sent.length).toBeGreaterThan(2);
    expect([link.hears, sent.length]).toEqual([false, before]);
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
