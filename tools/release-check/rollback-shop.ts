/**
 * Runs in a user's project as one release of the package: `shop.ts DRIVER ADDRESS TOKEN` serves a
 * shop on `PORT`, whose runs are kept behind that driver. A header names the run.
 */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Request, type Response } from 'express';
import {
  type AtomicStateStore,
  fsmGate,
  runKey,
  StateMachineGate,
  sessionStore,
} from 'mcp-interlock';

const [driver = '', address = '', token = ''] = process.argv.slice(2);

const STORES: Readonly<Record<string, () => Promise<AtomicStateStore>>> = {
  async libsql() {
    const { default: Database } = await import('libsql');
    const { sqliteStore } = await import('mcp-interlock/stores/sqlite');
    return sqliteStore({ database: new Database(address) });
  },
  async redis() {
    const { createClient } = await import('redis');
    const { redisStore } = await import('mcp-interlock/stores/redis');
    const client = createClient({ url: address });
    await client.connect();
    return redisStore({ client });
  },
  async pg() {
    const { default: pg } = await import('pg');
    const { postgresStore } = await import('mcp-interlock/stores/postgres');
    const store = postgresStore({ pool: new pg.Pool({ connectionString: address, max: 2 }) });
    await store.migrate();
    return store;
  },
  async '@upstash/redis'() {
    const { Redis } = await import('@upstash/redis');
    const { upstashStore } = await import('mcp-interlock/stores/upstash');
    return upstashStore({ redis: new Redis({ url: address, token }) });
  },
};

async function serveShop(req: Request, res: Response): Promise<void> {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  const done = () => ({ content: [{ type: 'text' as const, text: 'Done.' }] });
  for (const tool of ['add_item', 'checkout', 'pay']) server.registerTool(tool, {}, done);
  const transport = new StreamableHTTPServerTransport({});
  await server.connect(transport);
  await transport.handleRequest(req, res, req.body);
}

const gate = StateMachineGate.fromOrder(
  { add_item: {}, checkout: { after: 'add_item' }, pay: { after: 'checkout' } },
  { id: 'shop' },
);
const store = await STORES[driver]?.();
if (store === undefined) throw new Error(`no store for ${driver}`);
const key = runKey({
  name: 'order',
  of: ({ http }) => String(http.headers['x-order']),
  anonymous: true,
});
const app = express();
app.use(express.json());
app.all('/mcp', sessionStore({ store, key }), fsmGate(gate), serveShop);
app.listen(Number(process.env.PORT), '127.0.0.1');
