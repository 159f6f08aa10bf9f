import { Redis as Redis6 } from 'ioredis';
import { Redis as Redis5 } from 'ioredis5';
import Database from 'libsql';
import { Pool } from 'pg';
import { createClient as createClient6 } from 'redis';
import { createClient as createClient5 } from 'redis5';
import { postgresBus } from '../../src/bus/postgres.ts';
import { type NodeRedisPubSub, redisBus } from '../../src/bus/redis.ts';
import { fsmGate, type NotificationBus, sessionStore } from '../../src/index.ts';
import type { StateStore } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { type NodeRedisClient, redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { startUpstream } from '../helpers/upstream.ts';

/**
 * An app as the docs build one, while its database server comes and goes. It waits for no
 * connection, listens to its driver's `error` events, and catches nothing else. SIGTERM ends it in
 * order. Prints its address.
 */
interface Backend {
  readonly store: StateStore;
  readonly bus?: NotificationBus;
  close(): unknown;
}

const quiet = { heartbeatMs: 100, onError: () => {} };

function throughIoredis(client: Redis5 | Redis6): Backend {
  client.on('error', () => {});
  return {
    store: redisStore({ client }),
    bus: redisBus({ client, ...quiet }),
    close: () => client.disconnect(),
  };
}

function throughNodeRedis(client: NodeRedisPubSub & NodeRedisClient): Backend {
  client.on('error', () => {});
  // Rejects if the app destroys the client before it has connected.
  client.connect().catch(() => {});
  return {
    store: redisStore({ client }),
    bus: redisBus({ client, ...quiet }),
    close() {
      client.destroy();
      // A client that is destroyed while it connects still connects, and keeps the process alive.
      setTimeout(process.exit, 500);
    },
  };
}

function throughPg(connectionString: string): Backend {
  const pool = new Pool({ connectionString });
  pool.on('error', () => {});
  const store = postgresStore({ pool });
  return { store, bus: postgresBus({ pool, ...quiet }), close: () => pool.end() };
}

function throughLibsql(file: string): Backend {
  const database = new Database(file);
  process.once('SIGUSR2', () => database.close());
  return { store: sqliteStore({ database }), close: () => {} };
}

const BACKENDS: Readonly<Record<string, (address: string) => Backend>> = {
  'ioredis 6': (url) => throughIoredis(new Redis6(url)),
  'ioredis 5': (url) => throughIoredis(new Redis5(url)),
  'node-redis 6': (url) => throughNodeRedis(createClient6({ url })),
  'node-redis 5': (url) => throughNodeRedis(createClient5({ url })),
  pg: throughPg,
  libsql: throughLibsql,
};

const [driver = '', address = ''] = process.argv.slice(2);
const backend = BACKENDS[driver]?.(address);
if (backend === undefined) throw new Error(`no such driver: ${driver}`);
const { store, bus } = backend;
const sessions = sessionStore({ store, bus, onError: () => {} });
const upstream = await startUpstream({
  shape: { mode: 'stateless', answers: 'json' },
  middlewares: [sessions, fsmGate(checkoutGate(), { onError: () => {} })],
});
process.once('SIGTERM', async () => {
  await sessions.close();
  await backend.close();
  await upstream.close();
});
console.log(upstream.url.href);
