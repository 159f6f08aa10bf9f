import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { onTestFinished } from 'vitest';
import { memoryStore } from '../../src/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { sharedRedis } from '../services/shared.ts';
import { makePostgresSchema } from './postgres-schema.ts';
import { makeSqliteFile } from './sqlite-file.ts';

/** Each call opens what the others have, as another process would. */
export type OpenStore = () => AtomicStateStore;

/** Backends that several processes share, each empty at first. They are gone after the test. */
export const FOUR_STORES: Readonly<Record<string, () => OpenStore | Promise<OpenStore>>> = {
  memory() {
    const shared = memoryStore();
    return () => shared;
  },
  SQLite() {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    return () => sqliteStore({ database: file.connect() });
  },
  async Redis() {
    const client = new Redis(await sharedRedis());
    onTestFinished(() => client.disconnect());
    const prefix = `four ${randomUUID()}`;
    return () => redisStore({ client, prefix });
  },
  async PostgreSQL() {
    const { connect, schema, drop } = await makePostgresSchema();
    onTestFinished(drop);
    const pool = connect();
    await postgresStore({ pool, schema }).migrate();
    return () => postgresStore({ pool, schema });
  },
};
