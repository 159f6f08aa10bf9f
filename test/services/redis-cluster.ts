import { execFile } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { binary } from './binaries.ts';
import { freePort, isFree } from './ports.ts';
import { startRedis } from './redis.ts';
import type { Service } from './server-process.ts';

const run = promisify(execFile);

/** A cluster's nodes gossip on a second port, which is this much higher than the first. */
const BUS_OFFSET = 10_000;

export interface RedisCluster {
  /** One address for each node. */
  readonly urls: readonly string[];
  readonly ports: readonly number[];
  readonly nodes: readonly Service[];
  stop(): Promise<void>;
}

/** Starts a Redis Cluster of so many masters on the loopback interface; resolves once every slot is served. */
export async function startRedisCluster(size = 3): Promise<RedisCluster> {
  const nodes: Awaited<ReturnType<typeof startRedis>>[] = [];
  const stop = async () => {
    await Promise.all(nodes.map((node) => node.stop()));
  };
  try {
    while (nodes.length < size) {
      const settings = { 'cluster-enabled': 'yes', 'cluster-node-timeout': '2000' };
      nodes.push(await startRedis({ port: await clusterPort(), settings }));
    }
    const ports = nodes.map((node) => node.port);
    await joinUp(ports);
    return { urls: nodes.map((node) => node.url), ports, nodes, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function clusterPort(): Promise<number> {
  return freePort((port) => port + BUS_OFFSET < 65_536 && isFree(port + BUS_OFFSET));
}

async function joinUp(ports: readonly number[]): Promise<void> {
  const addresses = ports.map((port) => `127.0.0.1:${port}`);
  await redisCli(['--cluster', 'create', ...addresses, '--cluster-replicas', '0', '--cluster-yes']);
  for (const port of ports) {
    while (
      !(await redisCli(['-p', String(port), 'cluster', 'info'])).includes('cluster_state:ok')
    ) {
      await delay(50);
    }
  }
}

async function redisCli(args: readonly string[]): Promise<string> {
  const { stdout } = await run(binary('redis', 'redis-cli'), args);
  return stdout;
}
