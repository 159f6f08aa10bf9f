import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { binary } from './binaries.ts';
import { freePort } from './ports.ts';
import { startPostgres, startStandby } from './postgres.ts';
import { redisCli, startRedis } from './redis.ts';
import { startRedisCluster } from './redis-cluster.ts';
import { type Service, startServer } from './server-process.ts';

const run = promisify(execFile);

/** Servers, or a disk, under a store: one fails, and another one takes its place. */
export interface Failover {
  /** The kind of failure in the plural, such as `failovers`. */
  readonly what: string;
  /** The addresses for clients: sentinels, nodes, or one that follows the primary. */
  readonly urls: readonly string[];
  /** `kill -9` of a primary, without a word to the others; or fills the disk. */
  kill9(): Promise<void>;
  /** Resolves once another server is the primary, and the dead one begins to follow it. */
  failOver(): Promise<void>;
  /** Resolves once a replica has all data of the primary, ready for the next failure. */
  isWhole(): Promise<void>;
  stop(): Promise<void>;
}

const SENTINELS = 3;
/** The name of the primary for the sentinels. */
export const PRIMARY = 'interlock';
const PATIENCE_MS = 60_000;

/**
 * A primary and two replicas. For the three sentinels a server is dead after half a second of
 * silence.
 */
export async function startRedisSentinel(): Promise<Failover> {
  const started: Service[] = [];
  const stop = async () => {
    await Promise.all(started.map((service) => service.stop()));
  };
  const keep = <S extends Service>(service: S): S => {
    started.push(service);
    return service;
  };
  try {
    const first = keep(await startRedis({ appendfsync: 'always' }));
    const replicaof = `127.0.0.1 ${first.port}`;
    const nodes = [first];
    while (nodes.length < 3) {
      const settings = { replicaof };
      nodes.push(keep(await startRedis({ appendfsync: 'always', settings })));
    }
    const sentinels: number[] = [];
    while (sentinels.length < SENTINELS) {
      const port = await freePort();
      keep(await startSentinel(port, first.port));
      sentinels.push(port);
    }
    const primary = async (): Promise<number> => {
      const answers = await Promise.all(sentinels.map(primaryBySentinel));
      const [port = 0] = answers;
      return answers.every((each) => each === port) ? port : 0;
    };
    const isWhole = () =>
      until('the replicas follow', async () => {
        const port = await primary();
        return (
          (await roleOf(port)) === 'master' &&
          (await replicasOf(port)) === nodes.length - 1 &&
          (await knownReplicas(sentinels)) === nodes.length - 1
        );
      });
    await isWhole();
    let dead: (typeof nodes)[number] | undefined;
    return {
      what: 'failovers',
      urls: sentinels.map((port) => `redis://127.0.0.1:${port}`),
      async kill9() {
        const port = await primary();
        dead = nodes.find((node) => node.port === port);
        await dead?.kill9();
      },
      async failOver() {
        const old = dead?.port;
        await until('a replica is promoted', async () => {
          const port = await primary();
          return port !== 0 && port !== old && (await roleOf(port)) === 'master';
        });
        await dead?.restart();
      },
      isWhole,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Three masters with a replica each. `kill9()` kills the live master with the most slots. */
export async function startReplicatedCluster(): Promise<Failover> {
  const cluster = await startRedisCluster({ masters: 3, replicas: 1, appendfsync: 'always' });
  const { nodes, ports } = cluster;
  let dead = -1;
  let turn = 0;
  const masters = async (): Promise<number[]> => {
    const roles = await Promise.all(ports.map(roleOf));
    return ports.filter((_, index) => roles[index] === 'master');
  };
  return {
    what: 'failovers',
    urls: cluster.urls,
    async kill9() {
      const ready = await masters();
      dead = ports.indexOf(ready[turn++ % ready.length] ?? -1);
      await nodes[dead]?.kill9();
    },
    async failOver() {
      const others = ports.filter((_, index) => index !== dead);
      await until('a replica is promoted', async () => {
        const states = await Promise.all(others.map(clusterState));
        return states.every((state) => state === 'ok') && (await masters()).length === 3;
      });
      await nodes[dead]?.restart();
    },
    isWhole: () =>
      until('every master has its replica', async () => {
        const states = await Promise.all(ports.map(clusterState));
        const served = await masters();
        const replies = await Promise.all(served.map(replicasOf));
        return (
          states.every((state) => state === 'ok') &&
          served.length === 3 &&
          replies.every((count) => count === 1)
        );
      }),
    stop: cluster.stop,
  };
}

/** A standby must allow as many connections as its primary. */
const SETTINGS = { settings: { max_connections: '200' } };

export interface PostgresPairOptions {
  /** Whether a commit waits for the standby: `synchronous_standby_names` names it. */
  readonly isSynchronous: boolean;
}

/** A primary and a hot standby behind one address, which leads to the standby after a failover. */
export async function startPostgresPair({ isSynchronous }: PostgresPairOptions): Promise<Failover> {
  const cleanUps: (() => Promise<void>)[] = [];
  const stop = async () => {
    for (const cleanUp of cleanUps.reverse()) await cleanUp();
  };
  type Node = Awaited<ReturnType<typeof startPostgres>>;
  const follow = async (primary: Node): Promise<Node> => {
    const standby = await startStandby(primary.port, SETTINGS);
    cleanUps.push(() => standby.stop());
    await until('the standby streams', async () => {
      const rows = await ask(
        primary.url,
        "select 1 from pg_stat_replication where state = 'streaming'",
      );
      return rows.length > 0;
    });
    // Only now: until the standby streams, a synchronous primary would commit nothing.
    if (isSynchronous) await setSetting(primary.url, 'synchronous_standby_names', '*');
    return standby;
  };
  try {
    let primary = await startPostgres(SETTINGS);
    cleanUps.push(() => primary.stop());
    let standby = await follow(primary);
    const address = await startSwitch(primary.port);
    cleanUps.push(address.stop);
    return {
      what: 'failovers',
      urls: [`postgresql://postgres@127.0.0.1:${address.port}/postgres`],
      async kill9() {
        await primary.kill9();
        address.hangUp();
      },
      async failOver() {
        const dead = primary;
        await ask(standby.url, 'select pg_promote()');
        if (isSynchronous) await setSetting(standby.url, 'synchronous_standby_names', '');
        primary = standby;
        address.pointTo(primary.port);
        standby = await follow(primary);
        await dead.stop();
      },
      isWhole: () =>
        until('the standby has everything', async () => {
          const sync = isSynchronous ? " and sync_state = 'sync'" : '';
          const rows = await ask(
            primary.url,
            `select 1 from pg_stat_replication where state = 'streaming'${sync}`,
          );
          return rows.length > 0;
        }),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * A small disk with a database file. `kill9()` fills it to the last byte, for a second. Needs the
 * right to mount a file system.
 */
export async function startSmallDisk(): Promise<Failover> {
  const folder = await mkdtemp(join(tmpdir(), 'interlock-disk-'));
  await run('mount', ['-t', 'tmpfs', '-o', 'size=48m', 'tmpfs', folder]);
  const ballast = join(folder, 'ballast');
  return {
    what: 'full disks',
    urls: [join(folder, 'runs.db')],
    // `dd` fails once there is no room left.
    kill9: () => run('dd', ['if=/dev/zero', `of=${ballast}`, 'bs=4k']).then(noop, noop),
    async failOver() {
      await delay(1_000);
      await rm(ballast);
    },
    isWhole: async () => {},
    async stop() {
      await run('umount', ['--lazy', folder]);
      await rm(folder, { recursive: true });
    },
  };
}

function noop(): void {}

async function startSentinel(port: number, primary: number): Promise<Service> {
  const folder = await mkdtemp(join(tmpdir(), 'interlock-sentinel-'));
  const file = join(folder, 'sentinel.conf');
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${folder}`,
    `sentinel monitor ${PRIMARY} 127.0.0.1 ${primary} 2`,
    `sentinel down-after-milliseconds ${PRIMARY} 500`,
    `sentinel failover-timeout ${PRIMARY} 3000`,
    `sentinel parallel-syncs ${PRIMARY} 2`,
  ];
  // Each has its own file, since sentinels rewrite it.
  await run('/bin/sh', ['-c', 'printf "%s\\n" "$@" > "$0"', file, ...lines]);
  return startServer(`redis://127.0.0.1:${port}`, {
    command: binary('redis', 'redis-server'),
    args: [file, '--sentinel'],
    folder,
    stopSignal: 'SIGTERM',
    abortSignal: 'SIGKILL',
    probe: async () => {
      if ((await primaryBySentinel(port)) === 0) throw new Error('it knows no primary yet');
    },
  });
}

async function primaryBySentinel(port: number): Promise<number> {
  const reply = await cli(port, 'sentinel', 'get-master-addr-by-name', PRIMARY);
  return Number(reply.split('\n')[1] ?? 0);
}

/** How many replicas every one of the sentinels has found. */
async function knownReplicas(sentinels: readonly number[]): Promise<number> {
  const counts = await Promise.all(
    sentinels.map(async (port) => {
      const replicas = await cli(port, 'sentinel', 'replicas', PRIMARY);
      return replicas.split('\n').filter((line) => line === 'runid').length;
    }),
  );
  return Math.min(...counts);
}

async function roleOf(port: number): Promise<string> {
  return (await cli(port, 'role')).split('\n')[0] ?? '';
}

/** How many replicas stream from this server. */
async function replicasOf(port: number): Promise<number> {
  return (await cli(port, 'info', 'replication')).split('\n').filter(isOnline).length;
}

function isOnline(line: string): boolean {
  return /^slave\d+:.*state=online/.test(line);
}

async function clusterState(port: number): Promise<string> {
  return /cluster_state:(\w+)/.exec(await cli(port, 'cluster', 'info'))?.[1] ?? '';
}

/** Empty where the server does not answer. */
function cli(port: number, ...args: readonly string[]): Promise<string> {
  return redisCli(['-p', String(port), ...args]).catch(() => '');
}

async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 2000 });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end().catch(() => {});
  }
}

async function setSetting(url: string, name: string, value: string): Promise<void> {
  await ask(url, `alter system set ${name} = '${value}'`);
  await ask(url, 'select pg_reload_conf()');
}

async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`);
    await delay(50);
  }
}

interface Switch {
  readonly port: number;
  pointTo(port: number): void;
  /** Closes every connection, as happens when another host takes over an address. */
  hangUp(): void;
  stop(): Promise<void>;
}

/**
 * One address that leads to one server after the other, as a virtual IP address or a load balancer
 * does.
 */
async function startSwitch(first: number): Promise<Switch> {
  let target = first;
  const sockets = new Set<Socket>();
  const hangUp = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  const server = createServer((client) => {
    const upstream = connect(target, '127.0.0.1');
    client.pipe(upstream).pipe(client);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        client.destroy();
        upstream.destroy();
        sockets.delete(socket);
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    pointTo(port) {
      target = port;
      hangUp();
    },
    hangUp,
    async stop() {
      hangUp();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
