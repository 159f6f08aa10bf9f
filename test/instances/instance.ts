import { Redis } from '@upstash/redis';
import Database from 'libsql';
import pg from 'pg';
import { createClient } from 'redis';
import { postgresBus } from '../../src/bus/postgres.ts';
import { redisBus } from '../../src/bus/redis.ts';
import { fsmGate, sessionStore } from '../../src/index.ts';
import { type Runs, runsOf, workflowHealth } from '../../src/runs/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { upstashStore } from '../../src/stores/upstash.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { startUpstream } from '../helpers/upstream.ts';

/**
 * One instance of an app, in its own process. It makes a server and a transport for each request,
 * and shares a store with the other instances. Prints its address. `HANGS` names a tool whose
 * handler never ends. `/health` shows its runs, and to operators their keys.
 */
async function backend(kind: string, url: string, name: string) {
  if (kind === 'redis') {
    const client = createClient({ url });
    client.on('error', () => {});
    await client.connect();
    return {
      store: redisStore({ client, prefix: name }),
      bus: redisBus({ client, channel: name }),
    };
  }
  if (kind === 'sqlite') return { store: sqliteStore({ database: new Database(url) }) };
  if (kind === 'upstash') {
    const redis = new Redis({ url, token: process.env.TOKEN ?? '', retry: false });
    return { store: upstashStore({ redis, prefix: name }) };
  }
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  pool.on('error', () => {});
  const store = postgresStore({ pool, schema: name });
  await store.migrate();
  return { store, bus: postgresBus({ pool, channel: name }) };
}

const [kind = '', url = '', name = ''] = process.argv.slice(2);
process.on('unhandledRejection', (error) => {
  console.error(error);
  process.exit(70);
});
const { LEASE_MS, HANGS } = process.env;
const times = LEASE_MS === undefined ? {} : { leaseMs: Number(LEASE_MS) };
const workflow = checkoutGate();
const sessions = sessionStore(await backend(kind, url, name));
const health = workflowHealth({
  runs: [runsOf(workflow, { sessions }) as Runs],
  stuckAfterMs: 60_000,
  maxAgeMs: 0,
  authorize: ({ headers }) => headers.authorization === 'operator',
});
const upstream = await startUpstream({
  shape: { mode: 'stateless', answers: 'json', express: 5 },
  before: [(req, res, next) => (req.path === '/health' ? health(req, res) : next())],
  middlewares: [sessions, fsmGate(workflow, times)],
});
if (HANGS !== undefined) upstream.ledger.gates.set(HANGS, new Promise(() => {}));
console.log(upstream.url.href);
