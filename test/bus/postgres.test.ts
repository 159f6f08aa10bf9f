import { randomUUID } from 'node:crypto';
import { Pool, type PoolClient } from 'pg';
import { afterAll, afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { postgresBus } from '../../src/bus/postgres.ts';
import { BusUnavailable } from '../../src/notify/bus.ts';
import { startPgBouncer } from '../services/pgbouncer.ts';
import { startPostgres } from '../services/postgres.ts';
import { sharedPostgres } from '../services/shared.ts';
import { describeBus } from './describe-bus.ts';
import { startDyingServer } from './dying-server.ts';
import { heardAtLast, heardBefore, listenTo } from './hearing.ts';
import { startSilentProxy } from './silent-proxy.ts';

/** A server of our own, which these tests may kill. */
const postgres = await startPostgres();
afterAll(() => postgres.stop());

const pools: Pool[] = [];
const connect = (url: string, max = 4) => {
  const pool = new Pool({ connectionString: url, max });
  // Where the server ends an idle connection, the caller's pool emits an error.
  pool.on('error', () => {});
  pools.push(pool);
  return pool;
};
const closeAll = async () => {
  for (const pool of pools.splice(0)) await pool.end();
};
afterEach(closeAll);

describeBus('postgresBus()', async () => {
  const url = await sharedPostgres();
  const channel = randomUUID();
  return {
    connect: async (onError) => postgresBus({ pool: connect(url), channel, onError }),
    close: closeAll,
  };
});

describe('postgresBus()', { timeout: 60_000 }, () => {
  it('goes on after a kill and restart of the server, and rejects messages meanwhile', async () => {
    const errors: unknown[] = [];
    const onError = (error: unknown) => errors.push(error);
    const here = postgresBus({ pool: connect(postgres.url), onError });
    const there = postgresBus({ pool: connect(postgres.url), onError });
    const hearings = [await listenTo(here), await listenTo(there)];
    for (let outage = 1; outage <= 2; outage += 1) {
      errors.length = 0;
      await postgres.kill9();
      await expect(here.publish('"lost"')).rejects.toBeInstanceOf(BusUnavailable);
      await expect.poll(() => errors.length).toBeGreaterThan(0);
      expect(errors).toSatisfy((all: unknown[]) =>
        all.every((error) => error instanceof BusUnavailable),
      );
      await postgres.restart();
      await heardAtLast(here, ...hearings);
      await heardAtLast(there, ...hearings);
    }
    for (const { stop } of hearings) await stop();
  });

  it('goes on after an orderly shutdown and restart of the server', async () => {
    const bus = postgresBus({ pool: connect(postgres.url), onError: () => {} });
    const hearing = await listenTo(bus);
    await postgres.restart();
    await heardAtLast(bus, hearing);
    await hearing.stop();
  });

  it('listens once the server comes up, where it was down at first', async () => {
    await postgres.kill9();
    const bus = postgresBus({ pool: connect(postgres.url), onError: () => {} });
    const listening = listenTo(bus);
    await postgres.restart();
    const hearing = await listening;
    await heardAtLast(bus, hearing);
    await hearing.stop();
  });

  it('opens a new connection where an administrator ended one, and reports it once', async () => {
    const errors: unknown[] = [];
    const bus = postgresBus({
      pool: connect(postgres.url),
      onError: (error) => errors.push(error),
    });
    const hearing = await listenTo(bus);
    await endListeners(postgres.url);
    await heardAtLast(bus, hearing);
    expect(errors).toMatchObject([{ name: 'BusUnavailable', cause: { code: '57P01' } }]);
    await hearing.stop();
  });

  it('survives the end of its connection where the pool has no error listener', async () => {
    const silent = new Pool({ connectionString: postgres.url, max: 2 });
    pools.push(silent);
    const bus = postgresBus({ pool: connect(postgres.url), listenPool: silent, onError: () => {} });
    const hearing = await listenTo(bus);
    await endListeners(postgres.url);
    await heardAtLast(bus, hearing);
    await hearing.stop();
  });

  it('survives a server that dies in the very packet in which it lets the bus in', async () => {
    const dying = await startDyingServer();
    const errors: unknown[] = [];
    const onError = (error: unknown) => errors.push(error);
    const bus = postgresBus({ pool: connect(dying.url), onError });
    const leaving = new AbortController();
    const left = bus.subscribe(() => {}, leaving.signal);
    await expect.poll(dying.clients, { timeout: 10_000 }).toBeGreaterThan(2);
    expect(errors).toMatchObject([{ name: 'BusUnavailable', cause: { code: '57P01' } }]);
    leaving.abort();
    await left;
    await closeAll();
    await dying.stop();
  });

  it('publishes on one connection of the pool, even where many messages wait', async () => {
    const pool = connect(postgres.url, 10);
    const bus = postgresBus({ pool, listenPool: connect(postgres.url) });
    const hearing = await listenTo(bus);
    const messages = Array.from({ length: 500 }, (_, index) => JSON.stringify({ index }));
    await Promise.all(messages.map((message) => bus.publish(message)));
    expect(await heardBefore('"last"', bus, hearing)).toEqual(messages);
    expect(pool.totalCount).toBe(1);
    await hearing.stop();
  });

  it('refuses all messages that wait behind one that could not be sent', async () => {
    const pool = connect(postgres.url);
    const bus = postgresBus({ pool });
    await pool.end();
    pools.splice(0);
    const results = await Promise.allSettled(
      ['"a"', '"b"', '"c"'].map((message) => bus.publish(message)),
    );
    expect(results).toMatchObject(
      ['"a"', '"b"', '"c"'].map(() => ({ reason: { name: 'BusUnavailable' } })),
    );
  });

  it('gives up a message without an answer, and sends the next on another connection', async () => {
    const proxy = await startSilentProxy(Number(new URL(postgres.url).port));
    const through = new URL(postgres.url);
    through.port = String(proxy.port);
    const pool = connect(through.href, 2);
    const bus = postgresBus({ pool, listenPool: connect(postgres.url) });
    const hearing = await listenTo(bus);
    await bus.publish('"a"');
    proxy.fallSilent();
    const [lost, behind] = await Promise.allSettled([bus.publish('"b"'), bus.publish('"c"')]);
    const reason = { name: 'BusUnavailable', cause: { message: 'no answer within 2000 ms' } };
    expect([lost, behind]).toMatchObject([{ reason }, { reason }]);
    await bus.publish('"d"');
    await expect.poll(() => hearing.heard).toEqual(['"a"', '"d"']);
    await hearing.stop();
    await proxy.stop();
  });

  it('listens on a pool of its own where one is given', async () => {
    const pool = connect(postgres.url, 1);
    const listenPool = connect(postgres.url, 1);
    const bus = postgresBus({ pool, listenPool });
    const hearing = await listenTo(bus);
    // The pool that publishes has sent the first heartbeat.
    expect([pool.totalCount, listenPool.totalCount]).toEqual([1, 1]);
    expect(await heardBefore('"last"', bus, hearing)).toEqual([]);
    await hearing.stop();
    expect([pool.totalCount, listenPool.totalCount]).toEqual([1, 0]);
  });

  it('leaves no connection open once it has no listeners', async () => {
    const pool = connect(postgres.url);
    const listenPool = connect(postgres.url);
    const bus = postgresBus({ pool, listenPool });
    const [one, other] = [await listenTo(bus), await listenTo(bus)];
    expect(await listeners(postgres.url)).toBe(1);
    await one.stop();
    expect(await listeners(postgres.url)).toBe(1);
    await other.stop();
    await expect.poll(() => listeners(postgres.url)).toBe(0);
    expect([listenPool.totalCount, pool.totalCount - pool.idleCount]).toEqual([0, 0]);
  });

  it('hears nothing from another channel, also with an odd name', async () => {
    const pool = connect(postgres.url);
    const names = ['Interlock', 'interlock', 'a"b; --', 'x'.repeat(63)];
    const buses = names.map((channel) =>
      postgresBus({ pool, listenPool: connect(postgres.url), channel }),
    );
    const hearings = await Promise.all(buses.map(listenTo));
    for (const [index, bus] of buses.entries()) await bus.publish(JSON.stringify(names[index]));
    for (const [index, { heard, stop }] of hearings.entries()) {
      await expect.poll(() => heard).toEqual([JSON.stringify(names[index])]);
      await stop();
    }
  });

  it('opens a new connection where its session does not listen any more', async () => {
    const listenPool = connect(postgres.url);
    const errors: unknown[] = [];
    const sessions: PoolClient[] = [];
    listenPool.on('acquire', (client) => sessions.push(client));
    const bus = postgresBus({
      pool: connect(postgres.url),
      listenPool,
      heartbeatMs: 200,
      onError: (error) => errors.push(error),
    });
    const hearing = await listenTo(bus);
    await sessions[0]?.query('UNLISTEN *');
    await expect
      .poll(() => errors)
      .toMatchObject([{ cause: { message: /pooler .+ did not get its own heartbeat/ } }]);
    await heardAtLast(bus, hearing);
    await hearing.stop();
  });
});

describe('postgresBus() behind PgBouncer', { timeout: 60_000 }, () => {
  const start = async (mode: 'session' | 'transaction'): Promise<string> => {
    const pooler = await startPgBouncer(postgres.url, mode);
    onTestFinished(() => pooler.stop());
    return pooler.url;
  };

  it('does not hear in transaction mode, where nothing arrives, and says why', async () => {
    const url = await start('transaction');
    const errors: unknown[] = [];
    const bus = postgresBus({
      pool: connect(url),
      heartbeatMs: 100,
      onError: (error) => errors.push(error),
    });
    const heard: string[] = [];
    const leaving = new AbortController();
    const listening = bus.subscribe((message) => heard.push(message), leaving.signal);
    let everHeard = false;
    for (let hint = 1; hint <= 100; hint += 1) {
      await bus.publish(JSON.stringify({ hint }));
      everHeard ||= bus.hears?.() === true;
    }
    await expect.poll(() => errors).toMatchObject([{ cause: { message: /pooler/ } }]);
    expect({ everHeard, heard, hears: bus.hears?.() }).toEqual({
      everHeard: false,
      heard: [],
      hears: false,
    });
    leaving.abort();
    await listening;
  });

  it('hears where a listenPool goes around it, and publishes through it', async () => {
    const bus = postgresBus({
      pool: connect(await start('transaction')),
      listenPool: connect(postgres.url),
      onError: () => {},
    });
    const hearing = await listenTo(bus);
    expect(bus.hears?.()).toBe(true);
    expect(await heardBefore('"last"', bus, hearing)).toEqual([]);
    await hearing.stop();
  });

  it('hears in session mode', async () => {
    const bus = postgresBus({ pool: connect(await start('session')), onError: () => {} });
    const hearing = await listenTo(bus);
    expect(bus.hears?.()).toBe(true);
    expect(await heardBefore('"last"', bus, hearing)).toEqual([]);
    await hearing.stop();
  });
});

describe('postgresBus() options', () => {
  const pool = new Pool();

  it.each([undefined, null, 'postgresql://127.0.0.1', {}])('refuse %j as a pool', (value) => {
    expect(() => postgresBus({ pool: value as never })).toThrow(/pool: expected a Pool of pg/);
  });

  it('refuse a pool of one connection, which would have to listen', () => {
    const single = new Pool({ max: 1 });
    expect(() => postgresBus({ pool: single })).toThrow(/pool: expected more than one connection/);
    expect(() => postgresBus({ pool: single, listenPool: single })).toThrow(/or a listenPool/);
    expect(() => postgresBus({ pool: single, listenPool: new Pool({ max: 1 }) })).not.toThrow();
  });

  it.each(['', 'ä', 'a\0b', 'x'.repeat(64)])('refuse %j as a channel', (channel) => {
    expect(() => postgresBus({ pool, channel })).toThrow(
      /channel: expected 1 to 63 printable characters/,
    );
  });

  it('name an unknown key with the nearest right one', () => {
    expect(() => postgresBus({ pool, listenPol: pool } as never)).toThrow(
      /"listenPol", did you mean "listen/,
    );
  });
});

const LISTENERS =
  "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()";

async function onServer(url: string, query: string): Promise<number | null> {
  const pool = new Pool({ connectionString: url });
  try {
    return (await pool.query(query)).rowCount;
  } finally {
    await pool.end();
  }
}

const listeners = (url: string) => onServer(url, LISTENERS);
const endListeners = (url: string) =>
  onServer(url, `SELECT pg_terminate_backend(pid) FROM (${LISTENERS}) AS listeners`);
