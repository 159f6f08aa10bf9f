import { Redis as Upstash } from '@upstash/redis';
import { Cluster, Redis as Ioredis } from 'ioredis';
import Database from 'libsql';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { describe, expect, it } from 'vitest';
import { postgresBus } from '../src/bus/postgres.ts';
import { redisBus } from '../src/bus/redis.ts';
import { localBus, memoryStore, sessionStore } from '../src/index.ts';
import { postgresStore } from '../src/stores/postgres.ts';
import { redisStore } from '../src/stores/redis.ts';
import { sqliteStore } from '../src/stores/sqlite.ts';
import { upstashStore } from '../src/stores/upstash.ts';

const ioredis = new Ioredis({ lazyConnect: true });
const upstash = new Upstash({ url: 'https://example.test', token: 'none' });

const cluster = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true });
const nodeRedis = createClient();
const pool = new Pool();
const database = new Database(':memory:');

/** As JavaScript may call it, where no compiler refuses the types. */
type Loose = (...args: readonly unknown[]) => unknown;

describe("a driver's client in the wrong place", () => {
  it.each([
    ['ioredis', ioredis, 'a client of ioredis', 'redisStore({ client })'],
    ['ioredis, of a cluster', cluster, 'a client of ioredis', 'redisStore({ client })'],
    ['node-redis', nodeRedis, 'a client of node-redis', 'redisStore({ client })'],
    ['@upstash/redis', upstash, 'a client of @upstash/redis', 'upstashStore({ redis })'],
    ['pg', pool, 'a Pool or Client of pg', 'postgresStore({ pool })'],
    ['libsql', database, 'an SQLite database', 'sqliteStore({ database })'],
  ])('of %s, given as the store, is told which store wraps it', (_, client, name, wrapper) => {
    const given = `the store is ${name}, not a store: wrap it in ${wrapper}`;
    expect(() => sessionStore({ store: client as never })).toThrow(given);
    const instead = `got ${name}; write sessionStore({ store: ${wrapper} })`;
    expect(() => (sessionStore as Loose)(client)).toThrow(instead);
  });

  it.each([
    [redisStore, ioredis, 'redisStore({ client })'],
    [redisStore, cluster, 'redisStore({ client })'],
    [redisStore, nodeRedis, 'redisStore({ client })'],
    [upstashStore, upstash, 'upstashStore({ redis })'],
    [postgresStore, pool, 'postgresStore({ pool })'],
    [sqliteStore, database, 'sqliteStore({ database })'],
    [sqliteStore, 'runs.db', 'sqliteStore({ database })'],
    [redisBus, ioredis, 'redisBus({ client })'],
    [redisBus, cluster, 'redisBus({ client })'],
    [redisBus, nodeRedis, 'redisBus({ client })'],
    [postgresBus, pool, 'postgresBus({ pool })'],
  ])('in place of the options is told how to write it', (make, client, written) => {
    expect(() => (make as Loose)(client)).toThrow(`write ${written}`);
  });

  it.each([
    [redisStore, upstash, 'write upstashStore({ redis })'],
    [upstashStore, ioredis, 'write redisStore({ client })'],
    [sqliteStore, pool, 'write postgresStore({ pool })'],
    [redisBus, pool, 'write postgresBus({ pool })'],
    [postgresBus, nodeRedis, 'write redisBus({ client })'],
  ])('of another driver is told which one takes it', (make, client, written) => {
    expect(() => (make as Loose)(client)).toThrow(written);
  });

  it.each([
    [ioredis, 'a client of ioredis'],
    [nodeRedis, 'a client of node-redis'],
    [upstash, 'a client of @upstash/redis'],
    [pool, 'a Pool or Client of pg'],
  ])('given as the bus is told what makes a bus of it', (client, name) => {
    expect(() => sessionStore({ bus: client as never })).toThrow(
      `expected a bus, such as redisBus({ client }) or postgresBus({ pool }), got ${name}`,
    );
  });

  it('has its password kept out of the message', () => {
    const url = 'redis://admin:s3cret@cache.test:6379';
    for (const make of [redisStore, sessionStore]) {
      const given = make === sessionStore ? { store: url } : url;
      expect(() => (make as Loose)(given)).toThrow('got "redis://…@cache.test:6379"');
    }
  });
});

describe('a store or a bus in place of the options', () => {
  it('is told which option it is', () => {
    const plain = { load: async () => undefined, save: async () => {} };
    for (const store of [memoryStore(), postgresStore({ pool }), plain])
      expect(() => (sessionStore as Loose)(store)).toThrow('; write sessionStore({ store })');
    expect(() => (sessionStore as Loose)(localBus())).toThrow(
      'got a bus; write sessionStore({ bus })',
    );
  });
});
