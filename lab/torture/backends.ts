import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeDynamodbTable, startDynamodb } from '../../test/services/dynamodb.ts';
import { startEtcd } from '../../test/services/etcd.ts';
import {
  type Failover,
  startPostgresPair,
  startRedisSentinel,
  startReplicatedCluster,
  startSmallDisk,
} from '../../test/services/failover.ts';
import { startMariadb } from '../../test/services/mariadb.ts';
import { startPostgres } from '../../test/services/postgres.ts';
import { type RedisOptions, startRedis } from '../../test/services/redis.ts';
import type { Service } from '../../test/services/server-process.ts';
import { RestProcess } from './rest-process.ts';
import type { StoreAddress, StoreName } from './stores.ts';

/** A store's real service, private to this run of the torture. */
export interface Backend {
  readonly address: StoreAddress;
  /**
   * Whether several processes can share it, so that there is something left of a run when one of
   * them dies.
   */
  readonly isShared: boolean;
  /** How many moves of a run it keeps at least. */
  readonly keeps: number;
  /** Absent where there is no server that could be killed. */
  readonly server?: KillableServer;
  /** Whether a notification bus goes through it that one proxy can cut. */
  readonly hasBus?: boolean;
  /** Absent where no other server takes the place of a dead one. */
  readonly failover?: Failover;
  stop(): Promise<void>;
}

export interface KillableServer {
  /** `kill -9`. */
  kill9(): Promise<void>;
  /** Resolves once it answers again. */
  restart(): Promise<void>;
}

/** How soon a store writes to the disk what it has promised. Only `full` keeps it. */
export type Durability = 'full' | 'relaxed' | 'none';

export function startBackend(name: StoreName, durability: Durability): Promise<Backend> {
  const starters: Record<StoreName, () => Promise<Backend>> = {
    redis: () => redisBackend('redis', durability),
    ioredis: () => redisBackend('ioredis', durability),
    upstash: () => upstashBackend(durability),
    postgres: () => postgresBackend(durability),
    sqlite: async () => sqliteBackend(),
    memory: async () => ({
      address: { name: 'memory', url: '' },
      isShared: false,
      keeps: 50,
      stop: async () => {},
    }),
    dynamodb: () => dynamodbBackend(),
    mariadb: async () => serverBackend('mariadb', await mariadbService(durability)),
    // It has no weaker setting.
    etcd: async () => serverBackend('etcd', await startEtcd()),
    'redis-sentinel': () => failoverBackend(name, startRedisSentinel()),
    'ioredis-sentinel': () => failoverBackend(name, startRedisSentinel()),
    'redis-cluster': () => failoverBackend(name, startReplicatedCluster()),
    'ioredis-cluster': () => failoverBackend(name, startReplicatedCluster()),
    'postgres-standby': () => failoverBackend(name, startPostgresPair({ isSynchronous: false })),
    'postgres-synchronous-standby': () =>
      failoverBackend(name, startPostgresPair({ isSynchronous: true })),
    'sqlite-full-disk': () => failoverBackend(name, startSmallDisk()),
  };
  return starters[name]();
}

function redisService(durability: Durability) {
  const settings: Record<Durability, RedisOptions> = {
    full: { appendfsync: 'always' },
    relaxed: { appendfsync: 'everysec' },
    none: {},
  };
  return startRedis(settings[durability]);
}

function postgresService(durability: Durability) {
  const settings: Record<Durability, Record<string, string>> = {
    full: {},
    relaxed: { synchronous_commit: 'off' },
    none: { synchronous_commit: 'off', fsync: 'off' },
  };
  return startPostgres({ settings: settings[durability] });
}

function mariadbService(durability: Durability) {
  const settings: Record<Durability, Record<string, string>> = {
    full: {},
    relaxed: { innodb_flush_log_at_trx_commit: '2' },
    none: { innodb_flush_log_at_trx_commit: '0' },
  };
  return startMariadb({ settings: settings[durability] });
}

/** A server behind the example of a store of one's own. */
function serverBackend(name: 'mariadb' | 'etcd', server: Service): Backend {
  return {
    address: { name, url: server.url },
    isShared: true,
    keeps: 100,
    server,
    stop: () => server.stop(),
  };
}

async function redisBackend(name: 'redis' | 'ioredis', durability: Durability): Promise<Backend> {
  const server = await redisService(durability);
  return {
    address: { name, url: server.url },
    isShared: true,
    keeps: 1000,
    server,
    hasBus: true,
    stop: () => server.stop(),
  };
}

async function upstashBackend(durability: Durability): Promise<Backend> {
  const redis = await redisService(durability);
  const rest = await RestProcess.start(redis.url);
  let kills = 0;
  return {
    address: { name: 'upstash', url: rest.url, token: rest.token },
    isShared: true,
    keeps: 1000,
    server: {
      // In turns a service that answers with an error, and one that is not there.
      async kill9() {
        await Promise.all([redis.kill9(), kills++ % 2 === 0 ? undefined : rest.kill9()]);
      },
      async restart() {
        await redis.restart();
        if (kills % 2 === 0) await rest.restart();
        await rest.answers();
      },
    },
    async stop() {
      await rest.kill9();
      await redis.stop();
    },
  };
}

async function postgresBackend(durability: Durability): Promise<Backend> {
  const server = await postgresService(durability);
  return {
    address: { name: 'postgres', url: server.url },
    isShared: true,
    keeps: Number.POSITIVE_INFINITY,
    server,
    hasBus: true,
    stop: () => server.stop(),
  };
}

function sqliteBackend(): Backend {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-sqlite-'));
  return {
    address: { name: 'sqlite', url: join(folder, 'runs.db') },
    isShared: true,
    keeps: Number.POSITIVE_INFINITY,
    stop: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** As dynalite emulates it. */
/** Without a server to kill: the emulator is in memory, and would come back empty. */
async function dynamodbBackend(): Promise<Backend> {
  const server = await startDynamodb();
  await makeDynamodbTable(server.url, 'runs');
  const stop = () => server.stop();
  return {
    address: { name: 'dynamodb', url: server.url },
    isShared: true,
    keeps: 128,
    stop,
  };
}

async function failoverBackend(name: StoreName, starting: Promise<Failover>): Promise<Backend> {
  const failover = await starting;
  return {
    address: { name, url: failover.urls.join(',') },
    isShared: true,
    keeps: 1000,
    failover,
    stop: failover.stop,
  };
}
