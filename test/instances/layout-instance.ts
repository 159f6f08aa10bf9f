import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import Database from 'libsql';
import pg from 'pg';
import { createClient } from 'redis';
import * as z from 'zod';
import { fsmGate, sessionStore } from '../../src/index.ts';
import { runsOf, workflowHealth } from '../../src/runs/index.ts';
import type { StateStore } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import { startUpstream } from '../helpers/upstream.ts';

/** Where the stores of a test are, and the file in which its handlers write. */
export interface LayoutPlaces {
  readonly redis: { readonly url: string; readonly prefix: string };
  readonly postgres: { readonly url: string; readonly schema: string };
  readonly sqlite: string;
  readonly documents: string;
  readonly ledger: string;
}

export type Kind = Exclude<keyof LayoutPlaces, 'ledger'>;

/** What an instance says once it serves: by kind of store its address, and what did not start. */
export interface LayoutInstance {
  readonly urls: Partial<Record<Kind, string>>;
  readonly refused: Partial<Record<Kind, string>>;
}

/** What its parent tells it: that steps which wait may go on, or that it shall end in order. */
export type LayoutOrder = 'go on' | 'end';

/**
 * One instance of an app on each kind of store. The test has built it, with a layout of its choice.
 * A step with `waits` waits for the parent.
 */
const [documentsBuild = '', given = ''] = process.argv.slice(2);
const places = JSON.parse(given) as LayoutPlaces;
const refused: LayoutInstance['refused'] = {};
const released = latch();

const stores: Record<Kind, () => Promise<StateStore>> = {
  async redis() {
    const client = createClient({ url: places.redis.url });
    client.on('error', () => {});
    await client.connect();
    return redisStore({ client, prefix: places.redis.prefix });
  },
  async postgres() {
    const pool = new pg.Pool({ connectionString: places.postgres.url, max: 2 });
    pool.on('error', () => {});
    const store = postgresStore({ pool, schema: places.postgres.schema });
    // Other apps migrate elsewhere, so their instances serve in any case.
    await store.migrate().catch((error) => {
      refused.postgres = String(error);
    });
    return store;
  },
  sqlite: async () => sqliteStore({ database: new Database(places.sqlite) }),
  // A file is a backend of documents too: in this build, only their layout is another one.
  async documents() {
    const module = await import(join(documentsBuild, 'src/stores/sqlite.js'));
    return (module as { sqliteStore: typeof sqliteStore }).sqliteStore({
      database: new Database(places.documents),
    });
  },
};

function shopServer(kind: Kind): McpServer {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  const inputSchema = { client: z.string(), waits: z.boolean() };
  for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay'])
    server.registerTool(tool, { inputSchema }, async ({ client, waits }) => {
      const call = `${kind} ${client} ${tool}`;
      appendFileSync(places.ledger, `${call}\n`);
      process.send?.(call);
      if (waits) await released.opened;
      return { content: [{ type: 'text', text: `${tool} done` }] };
    });
  return server;
}

const served = Object.keys(stores).map(async (each) => {
  const kind = each as Kind;
  const store = await stores[kind]().catch((error) => {
    refused[kind] = String(error);
  });
  if (store === undefined) return [];
  const gate = checkoutGate();
  const sessions = sessionStore({ store, onError: console.error });
  const runs = [runsOf(gate, { sessions })];
  const health = workflowHealth({ runs, stuckAfterMs: 60_000, maxAgeMs: 0 });
  const { url } = await startUpstream({
    shape: { mode: 'stateless', answers: 'json' },
    before: [(req, res, next) => (req.path === '/health' ? health(req, res) : next())],
    middlewares: [sessions, fsmGate(gate, { leaseMs: 400 })],
    makeServer: () => shopServer(kind),
  });
  return [{ kind, url: url.href, sessions }];
});
const apps = (await Promise.all(served)).flat();

process.on('message', async (order: LayoutOrder) => {
  if (order === 'go on') return released.open();
  await Promise.all(apps.map(({ sessions }) => sessions.close({ drainMs: 20_000 })));
  setImmediate(() => process.exit(0));
});
const urls = Object.fromEntries(apps.map(({ kind, url }) => [kind, url]));
process.send?.({ urls, refused } satisfies LayoutInstance);
