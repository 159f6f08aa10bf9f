import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis as Ioredis } from 'ioredis';
import { Pool } from 'pg';
import { createClient } from 'redis';
import { postgresBus } from '../../src/bus/postgres.ts';
import { redisBus } from '../../src/bus/redis.ts';
import type { NotificationBus } from '../../src/index.ts';
import { type Random, seeded } from '../checker/random.ts';
import type { PartResult } from './report.ts';
import type { StoreAddress } from './stores.ts';

export interface PartitionsScale {
  readonly partitions: number;
  /** How long the instance that listens is cut off, in milliseconds. */
  readonly lastMs: number;
}

/**
 * `cut`: connections are closed and refused. `stall`: they stay open, and nothing passes meanwhile.
 */
const KINDS = ['cut', 'stall'] as const;

/** So that a dead connection is noticed soon; the default is 30 s. */
const HEARTBEAT_MS = 1_000;
const HEARS_AGAIN_WITHIN_MS = 15_000;
const PUBLISH_EVERY_MS = 20;

/** An instance that listens is cut off from its bus, while another one goes on publishing. */
export async function partBus(
  address: StoreAddress,
  scale: PartitionsScale,
  seed: number,
): Promise<PartResult> {
  const proxy = await startProxy(Number(new URL(address.url).port));
  const cut = new URL(address.url);
  cut.port = String(proxy.port);
  const speaker = await openBus(address.name, address.url);
  const listener = await openBus(address.name, cut.href);
  const heard: number[] = [];
  try {
    const leave = await listener.bus.subscribe((text) => void heard.push(Number(text)));
    const publishing = publish(speaker.bus);
    const outcome = await partOften(proxy, heard, publishing, scale, seeded(seed, 'partitions'));
    await publishing.stop();
    await leave();
    const faults = [...outcome.faults, ...orderFaults(heard)];
    const longest = Math.round(Math.max(0, ...outcome.deaf));
    return {
      did: `${outcome.deaf.length} partitions of ${scale.lastMs} ms of an instance that listens`,
      measured:
        `${publishing.sent() - new Set(heard).size} of ${publishing.sent()} hints lost; ` +
        `it hears again at most ${longest} ms after the partition`,
      details: `one hint every ${PUBLISH_EVERY_MS} ms, heartbeat ${HEARTBEAT_MS} ms`,
      faults,
    };
  } finally {
    await Promise.all([speaker.close(), listener.close()]);
    await proxy.stop();
  }
}

async function partOften(
  proxy: Proxy,
  heard: readonly number[],
  publishing: Publishing,
  { partitions, lastMs }: PartitionsScale,
  random: Random,
): Promise<{ readonly deaf: number[]; readonly faults: string[] }> {
  const deaf: number[] = [];
  const faults: string[] = [];
  while (deaf.length < partitions) {
    const kind = random.pick(KINDS);
    await delay(random.between(200, 600));
    proxy.part(kind);
    await delay(lastMs);
    proxy.heal();
    const healed = performance.now();
    // What was sent before may still be on its way.
    const first = publishing.sent();
    while (!heard.some((hint) => hint > first)) {
      if (performance.now() - healed > HEARS_AGAIN_WITHIN_MS) {
        faults.push(`deaf: nothing was heard in ${HEARS_AGAIN_WITHIN_MS} ms after a ${kind}`);
        return { deaf, faults };
      }
      await delay(10);
    }
    deaf.push(performance.now() - healed);
  }
  return { deaf, faults };
}

/** A bus may lose hints, and repeats and reorders none. */
function orderFaults(heard: readonly number[]): string[] {
  return heard.flatMap((hint, at) => {
    const before = heard[at - 1] ?? 0;
    return hint > before ? [] : [`order: hint ${hint} was heard after ${before}`];
  });
}

interface Publishing {
  sent(): number;
  stop(): Promise<void>;
}

/** Numbers from 1, one after the other. */
function publish(bus: NotificationBus): Publishing {
  let last = 0;
  let isOver = false;
  const done = (async () => {
    while (!isOver) {
      last += 1;
      await bus.publish(String(last));
      await delay(PUBLISH_EVERY_MS);
    }
  })();
  return {
    sent: () => last,
    async stop() {
      isOver = true;
      await done;
      await delay(100);
    },
  };
}

interface OpenBus {
  readonly bus: NotificationBus;
  close(): Promise<unknown>;
}

async function openBus(name: StoreAddress['name'], url: string): Promise<OpenBus> {
  const ignore = (): void => {};
  const options = { heartbeatMs: HEARTBEAT_MS, onError: ignore };
  if (name === 'postgres') {
    const pool = new Pool({ connectionString: url, connectionTimeoutMillis: 1000 });
    pool.on('error', ignore);
    return { bus: postgresBus({ pool, ...options }), close: async () => void pool.end() };
  }
  if (name === 'ioredis') {
    const client = new Ioredis(url, { connectTimeout: 1000 }).on('error', ignore);
    return { bus: redisBus({ client, ...options }), close: async () => client.disconnect() };
  }
  const client = createClient({ url, socket: { connectTimeout: 1000 } }).on('error', ignore);
  await client.connect();
  return { bus: redisBus({ client, ...options }), close: async () => client.destroy() };
}

interface Proxy {
  readonly port: number;
  part(kind: (typeof KINDS)[number]): void;
  heal(): void;
  stop(): Promise<void>;
}

/** The network between one instance and its bus. */
async function startProxy(target: number): Promise<Proxy> {
  const sockets = new Set<Socket>();
  let state: 'whole' | (typeof KINDS)[number] = 'whole';
  const server = createServer((client) => {
    if (state === 'cut') return void client.destroy();
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
      if (state === 'stall') socket.pause();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    part(kind) {
      state = kind;
      for (const socket of sockets) kind === 'cut' ? socket.destroy() : socket.pause();
    },
    heal() {
      state = 'whole';
      for (const socket of sockets) socket.resume();
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
