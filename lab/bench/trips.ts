/**
 * What stores send and wait for: round trips of a step in the ways that apps are deployed, bytes,
 * and what many steps of one run take. A relay stands before each server, counts, and adds a
 * millisecond each way, as a network would.
 *
 * `npm run bench:trips`. A trip is what a client sends until the server answers. The switch's own
 * trips are not among them, since a process asks for it at most once a second.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { Redis as Upstash } from '@upstash/redis';
import { Redis } from 'ioredis';
import pg from 'pg';
import { claimOf, commitOf, LONG } from '../../packages/testing/src/fixtures.ts';
import { gateFetch } from '../../src/doors/fetch.ts';
import { fsmGate, StateMachineGate, sessionStore, tool } from '../../src/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { upstashStore } from '../../src/stores/upstash.ts';
import { startUpstashRest } from '../../test/services/upstash-rest.ts';

/** How long a relay holds each piece back, each way. */
const LATENCY_MS = 0.5;

/** What went through a relay. */
interface Counts {
  readonly trips: number;
  readonly sent: number;
}

/** A store's server, seen through a relay. */
export interface Place {
  /** A store as another process would have it, with a connection of its own. */
  open(): Promise<AtomicStateStore>;
  counts(): Counts;
  close(): Promise<void>;
}

/** Counts a trip where the client speaks after the server did. */
async function relayTo(port: number, host: string) {
  const counted = { trips: 0, sent: 0 };
  const later = (write: () => void) => setTimeout(write, LATENCY_MS);
  const server = createServer((client) => {
    const upstream = connect(port, host);
    let isAnswered = true;
    for (const socket of [client, upstream]) socket.setNoDelay(true).on('error', () => {});
    client.on('data', (bytes) => {
      if (isAnswered) counted.trips++;
      isAnswered = false;
      counted.sent += bytes.length;
      later(() => upstream.write(bytes));
    });
    upstream.on('data', (bytes) => {
      isAnswered = true;
      later(() => client.write(bytes));
    });
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    counts: () => ({ ...counted }),
    close: () => server.close(),
  };
}

export async function redisPlace(url: string): Promise<Place> {
  const { hostname, port } = new URL(url);
  const relay = await relayTo(Number(port), hostname);
  const prefix = `trips-${randomUUID()}`;
  const clients: Redis[] = [];
  return {
    async open() {
      const client = new Redis(relay.port, { enableReadyCheck: false });
      clients.push(client);
      await client.ping();
      return redisStore({ client, prefix });
    },
    counts: relay.counts,
    async close() {
      for (const client of clients) client.disconnect();
      relay.close();
    },
  };
}

export async function upstashPlace(redisUrl: string): Promise<Place> {
  const rest = await startUpstashRest(redisUrl);
  const { hostname, port, protocol } = new URL(rest.url);
  const relay = await relayTo(Number(port), hostname);
  const prefix = `trips-${randomUUID()}`;
  return {
    async open() {
      const url = `${protocol}//127.0.0.1:${relay.port}`;
      return upstashStore({ redis: new Upstash({ url, token: rest.token }), prefix });
    },
    counts: relay.counts,
    async close() {
      await rest.stop();
      relay.close();
    },
  };
}

export async function postgresPlace(connectionString: string): Promise<Place> {
  const { hostname, port } = new URL(connectionString);
  const relay = await relayTo(Number(port), hostname);
  const through = new URL(connectionString);
  [through.hostname, through.port] = ['127.0.0.1', String(relay.port)];
  const pools: pg.Pool[] = [];
  return {
    async open() {
      const pool = new pg.Pool({ connectionString: through.href });
      pools.push(pool);
      await pool.query('SELECT 1');
      const store = postgresStore({ pool });
      await store.migrate();
      return store;
    },
    counts: relay.counts,
    async close() {
      await Promise.all(pools.map((pool) => pool.end()));
      relay.close();
    },
  };
}

const gate = new StateMachineGate({
  id: 'trips',
  initial: 'a',
  states: { a: { on: { GO: 'b' } }, b: { on: { GO: 'a' } } },
})
  .bind(tool('go').bindState('a', { success: 'GO' }).bindState('b', { success: 'GO' }))
  .bind(tool('look').bindState('a').bindState('b'));

/** An app with its own store, as one instance has it. */
class Instance {
  readonly #handle: (request: Request) => Promise<Response>;
  #sent = 0;

  constructor(store: AtomicStateStore) {
    const upstream = async (request: Request): Promise<Response> => {
      const { id, method } = (await request.json()) as { id: number; method: string };
      const info = { protocolVersion: '2025-06-18', capabilities: {} };
      const serverInfo = { name: 'trips', version: '1' };
      const result = method === 'initialize' ? { ...info, serverInfo } : { content: [] };
      const headers = method === 'initialize' ? { 'mcp-session-id': randomUUID() } : undefined;
      return Response.json({ jsonrpc: '2.0', id, result }, headers && { headers });
    };
    this.#handle = gateFetch(upstream, [sessionStore({ store }), fsmGate(gate)]);
  }

  /** The new session's id. */
  async begin(): Promise<string> {
    const params = {
      protocolVersion: '2025-06-18',
      capabilities: {},
      clientInfo: { name: 'trips', version: '1' },
    };
    const response = await this.#send('initialize', params);
    await response.text();
    return response.headers.get('mcp-session-id') ?? '';
  }

  async call(session: string, name = 'go'): Promise<void> {
    const answer = await (await this.#send('tools/call', { name }, session)).text();
    if (!answer.includes('"content":[]')) throw new Error(answer);
  }

  #send(method: string, params: object, session?: string): Promise<Response> {
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...(session && { 'mcp-session-id': session }),
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id: this.#sent++, method, params });
    return this.#handle(new Request('http://127.0.0.1/mcp', { method: 'POST', headers, body }));
  }
}

/** Trips of a step, by how the app is deployed. Half a trip stands for the switch's, now and then. */
export interface StepTrips {
  readonly 'one instance': number;
  readonly 'four instances in turn': number;
  readonly 'a fresh process, its first step': number;
  readonly 'one instance with many live runs': number;
}

/** @param live how many runs the last row has alive */
export async function stepTrips(place: Place, live: number): Promise<StepTrips> {
  const instance = async () => new Instance(await place.open());
  /** Of the trips of each play the median: that of the switch falls into few of them. */
  const median = async (times: number, play: (at: number) => Promise<unknown>) => {
    const trips: number[] = [];
    for (let at = 0; at < times; at++) {
      const before = place.counts().trips;
      await play(at);
      trips.push(place.counts().trips - before);
    }
    return trips.sort((a, b) => a - b)[Math.floor(times / 2)] ?? Number.NaN;
  };

  const one = await instance();
  const session = await one.begin();
  for (let i = 0; i < 3; i++) await one.call(session);
  const alone = await median(15, () => one.call(session));

  const four = await Promise.all([instance(), instance(), instance(), instance()]);
  const shared = (await four[0]?.begin()) ?? '';
  for (let i = 0; i < 8; i++) await four[i % 4]?.call(shared);
  const inTurn = await median(16, async (at) => four[at % 4]?.call(shared));

  // Each has met another run before, so that it knows the server and the switch.
  const fresh = await Promise.all(Array.from({ length: 5 }, instance));
  const sessions: string[] = [];
  for (const each of fresh) {
    await each.call(await each.begin());
    sessions.push(await one.begin());
  }
  const first = await median(fresh.length, async (at) => fresh[at]?.call(sessions[at] ?? ''));

  // By the store alone: a session that has paused for seconds is read anew before its step.
  const store = await place.open();
  const claimAndCommit = async (run: string) => {
    const claim = claimOf(run, { create: {} });
    await store.claim(claim);
    await store.commit(commitOf(claim));
  };
  const many = Array.from({ length: live }, () => randomUUID());
  for (let at = 0; at < live; at += 50)
    await Promise.all(many.slice(at, at + 50).map(claimAndCommit));
  const among = await median(15, (at) => claimAndCommit(many[Math.floor((at * live) / 15)] ?? ''));
  return {
    'one instance': alone,
    'four instances in turn': inTurn,
    'a fresh process, its first step': first,
    'one instance with many live runs': among,
  };
}

/** Bytes that a store sends, with a run whose data has so many bytes. */
export async function bytesOf(place: Place, data: number) {
  const store = await place.open();
  const run = randomUUID();
  const context = { facts: 'x'.repeat(data) };
  const stepOnce = async (changes: object = {}) => {
    const claim = claimOf(run, { create: {}, ...changes });
    await store.claim(claim);
    await store.commit(commitOf(claim, { snapshot: { state: 'has_items', context } }));
  };
  // By then the store remembers as many spent tokens as it ever does.
  for (let steps = 0; steps < 40; steps++) await stepOnce();
  const before = place.counts().sent;
  await stepOnce();
  const step = place.counts().sent - before;
  const claim = claimOf(run);
  await store.claim(claim);
  const begun = place.counts().sent;
  await store.renew(claim, claim.token, LONG);
  const renewal = place.counts().sent - begun;
  await store.release(claim, claim.token);
  return { step, renewal };
}

/** How long 80 steps of 40 workflows of one run take, each workflow's two on other instances. */
async function sideBySide(place: Place): Promise<number> {
  const stores = await Promise.all([1, 2, 3, 4].map(() => place.open()));
  const run = randomUUID();
  await stores[0]?.open(run, {}, LONG);
  const chain = async (at: number) => {
    for (const turn of [0, 1]) {
      const store = stores[(at + turn) % 4] as AtomicStateStore;
      const claim = claimOf(run, { workflow: `workflow ${at}` });
      const { status } = await store.claim(claim);
      if (status !== 'claimed') throw new Error(status);
      await store.commit(commitOf(claim));
    }
  };
  await Promise.all(Array.from({ length: 40 }, (_, at) => chain(at)));
  const began = performance.now();
  await Promise.all(Array.from({ length: 40 }, (_, at) => chain(at)));
  return performance.now() - began;
}

/** How long 20 lookups of one run take that are sent at once. */
async function lookups(place: Place): Promise<number> {
  const one = new Instance(await place.open());
  const session = await one.begin();
  await one.call(session);
  const all = () => Promise.all(Array.from({ length: 20 }, () => one.call(session, 'look')));
  await all();
  const began = performance.now();
  await all();
  return performance.now() - began;
}

/** The bytes of write-ahead log of one claim of a run whose data has 30 kB. */
async function logOfClaim(connectionString: string): Promise<number> {
  const pool = new pg.Pool({ connectionString });
  const store = postgresStore({ pool });
  await store.migrate();
  const run = randomUUID();
  const first = claimOf(run, { create: {} });
  await store.claim(first);
  const context = { facts: Array.from({ length: 1_000 }, () => randomUUID().slice(0, 28)) };
  await store.commit(commitOf(first, { snapshot: { state: 'has_items', context } }));
  // A page that changes first after a checkpoint is logged whole.
  const claim = async () => {
    const request = claimOf(run);
    await store.claim(request);
    return request;
  };
  const warm = await claim();
  await store.release(warm, warm.token);
  const position = async () =>
    (await pool.query('SELECT pg_current_wal_insert_lsn() AS at')).rows[0].at as string;
  const from = await position();
  const request = await claim();
  const to = await position();
  await store.release(request, request.token);
  const { rows } = await pool.query('SELECT pg_wal_lsn_diff($1, $2)::int AS bytes', [to, from]);
  await pool.end();
  return rows[0].bytes;
}

async function main(): Promise<void> {
  const { startRedis } = await import('../../test/services/redis.ts');
  const { startPostgres } = await import('../../test/services/postgres.ts');
  const [redis, postgres] = await Promise.all([startRedis(), startPostgres()]);
  const places = {
    Redis: () => redisPlace(redis.url),
    Upstash: () => upstashPlace(redis.url),
    PostgreSQL: () => postgresPlace(postgres.url),
  };
  try {
    for (const [name, open] of Object.entries(places)) {
      const place = await open();
      console.log(name, await stepTrips(place, 5_000));
      console.log(name, 'bytes sent, without data', await bytesOf(place, 0));
      console.log(name, 'bytes sent, with 12 kB of data', await bytesOf(place, 12_000));
      console.log(
        name,
        '80 steps of 40 workflows of a run',
        Math.round(await sideBySide(place)),
        'ms',
      );
      console.log(name, '20 lookups at once', Math.round(await lookups(place)), 'ms');
      await place.close();
    }
    console.log(
      'PostgreSQL, log of a claim of a 30 kB run',
      await logOfClaim(postgres.url),
      'bytes',
    );
  } finally {
    await Promise.all([redis.stop(), postgres.stop()]);
  }
}

if (process.argv[1] === import.meta.filename) await main();
