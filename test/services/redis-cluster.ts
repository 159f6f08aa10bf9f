import { setTimeout as delay } from 'node:timers/promises';
import { freePort, isFree } from './ports.ts';
import { type RedisOptions, redisCli, startRedis } from './redis.ts';
import type { Service } from './server-process.ts';

/** A node gossips on a second port, which is higher than its first one by this number. */
const BUS_OFFSET = 10_000;

export interface RedisCluster {
  /** One address for each node. */
  readonly urls: readonly string[];
  readonly ports: readonly number[];
  readonly nodes: readonly Service[];
  stop(): Promise<void>;
}

export interface RedisClusterOptions extends Pick<RedisOptions, 'appendfsync'> {
  /** Default 3. */
  readonly masters?: number;
  /** How many replicas each master has. Default none. */
  readonly replicas?: number;
}

/** Starts a Redis Cluster on the loopback interface. Resolves once it serves every slot. */
export async function startRedisCluster({
  masters = 3,
  replicas = 0,
  ...durability
}: RedisClusterOptions = {}): Promise<RedisCluster> {
  const size = masters * (1 + replicas);
  const nodes: Awaited<ReturnType<typeof startRedis>>[] = [];
  const stop = async () => {
    await Promise.all(nodes.map((node) => node.stop()));
  };
  try {
    while (nodes.length < size) {
      const settings = { 'cluster-enabled': 'yes', 'cluster-node-timeout': '2000' };
      nodes.push(await startRedis({ port: await clusterPort(), settings, ...durability }));
    }
    const ports = nodes.map((node) => node.port);
    await joinUp(ports, replicas);
    return { urls: nodes.map((node) => node.url), ports, nodes, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function clusterPort(): Promise<number> {
  return freePort((port) => port + BUS_OFFSET < 65_536 && isFree(port + BUS_OFFSET));
}

async function joinUp(ports: readonly number[], replicas: number): Promise<void> {
  const addresses = ports.map((port) => `127.0.0.1:${port}`);
  const each = ['--cluster-replicas', String(replicas), '--cluster-yes'];
  await redisCli(['--cluster', 'create', ...addresses, ...each]);
  for (const port of ports) {
    while (
      !(await redisCli(['-p', String(port), 'cluster', 'info'])).includes('cluster_state:ok')
    ) {
      await delay(50);
    }
  }
}
