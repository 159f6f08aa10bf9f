import { Redis as Upstash } from '@upstash/redis';
import { Redis as Ioredis } from 'ioredis';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { describe, expect, it } from 'vitest';
import { sessionStore } from '../src/index.ts';
import { postgresStore } from '../src/stores/postgres.ts';
import { redisStore } from '../src/stores/redis.ts';
import { upstashStore } from '../src/stores/upstash.ts';

const ioredis = new Ioredis({ lazyConnect: true });
const upstash = new Upstash({ url: 'https://example.test', token: 'none' });

describe("a driver's client in the wrong place", () => {
  it.each([
    ['ioredis', ioredis, 'redisStore({ client })'],
    ['node-redis', createClient(), 'redisStore({ client })'],
    ['@upstash/redis', upstash, 'upstashStore({ redis })'],
    ['pg', new Pool(), 'postgresStore({ pool })'],
  ])('of %s, given as the store, is told which store wraps it', (_, client, wrapper) => {
    expect(() => sessionStore({ store: client as never })).toThrow(`wrap it in ${wrapper}`);
  });

  it.each([
    [redisStore, ioredis, 'redisStore({ client })'],
    [redisStore, createClient(), 'redisStore({ client })'],
    [upstashStore, upstash, 'upstashStore({ redis })'],
    [postgresStore, new Pool(), 'postgresStore({ pool })'],
  ])('in place of the options is told how to write it', (make, client, written) => {
    expect(() => (make as (options: unknown) => unknown)(client)).toThrow(`write ${written}`);
  });
});
