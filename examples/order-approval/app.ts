import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express } from 'express';
import { fsmGate, sessionStore } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import type { Pool } from 'pg';
import { bearer, type User, userOf } from './auth.ts';
import { Orders } from './orders.ts';
import { makeServer } from './tools.ts';
import { EVENTS_OF, orderGate, UNFINISHED } from './workflow.ts';

export interface OrderAppOptions {
  readonly pool: Pool;
  /** For the tables. */
  readonly schema: string;
  /** Who may come in, by their token. */
  readonly users: ReadonlyMap<string, User>;
  /** An order that stands still for longer is stuck. Default: an hour. */
  readonly stuckAfterMs?: number;
}

export async function orderApp({
  pool,
  schema,
  users,
  ...options
}: OrderAppOptions): Promise<Express> {
  const store = postgresStore({ pool, schema });
  const orders = new Orders(pool, schema);
  await store.migrate();
  await orders.migrate();

  const gate = orderGate();
  // An order waits for people, who may be away for a weekend.
  const sessions = sessionStore({ store, idleMs: 7 * 24 * 60 * 60 * 1000 });
  const runs = runsOf(gate, { sessions });

  const app = express();

  app.get('/health/workflows', async (_req, res) => {
    const stuck: Record<string, number> = {};
    for (const state of UNFINISHED) {
      const query = { workflow: gate.id, state, forMs: options.stuckAfterMs ?? 60 * 60 * 1000 };
      for await (const _ of store.runs(query)) stuck[state] = (stuck[state] ?? 0) + 1;
    }
    res.status(Object.keys(stuck).length === 0 ? 200 : 503).json({ stuck });
  });

  app.use(bearer(users));

  app.all('/mcp', sessions, fsmGate(gate), async (req, res) => {
    if (req.method !== 'POST') return void res.writeHead(405, { allow: 'POST' }).end();
    const server = makeServer(orders, runs, req.get('mcp-session-id') ?? '');
    const transport = new StreamableHTTPServerTransport();
    res.on('close', () => void server.close());
    await server.connect(transport as Parameters<typeof server.connect>[0]);
    await transport.handleRequest(req, res, req.body);
  });

  // The page on which a manager sees what waits.
  app.get('/approvals', async (req, res) => {
    if (userOf(req).role !== 'manager') return void res.sendStatus(403);
    const waiting = [];
    for await (const run of store.runs({ workflow: gate.id, state: 'awaiting_manager_approval' })) {
      const order = await orders.ofRun(run);
      if (order !== undefined) waiting.push({ order: order.id, total: order.total });
    }
    res.json(waiting);
  });

  // A button on that page, or the carrier's webhook.
  app.post('/orders/:order/events/:event', express.json(), async (req, res) => {
    const { name, role } = userOf(req);
    const event = EVENTS_OF[role].find((each) => each === req.params.event);
    if (event === undefined) return void res.sendStatus(403);
    const order = await orders.find(req.params.order);
    if (order === undefined) return void res.sendStatus(404);
    const payload = { note: String(req.body?.note ?? '') };
    const sent = await runs.send(order.run, event, { actor: name, payload });
    res.status(sent.sent ? 200 : 409).json(sent);
  });

  app.get('/orders/:order/history', async (req, res) => {
    if (userOf(req).role !== 'manager') return void res.sendStatus(403);
    const order = await orders.find(req.params.order);
    if (order === undefined) return void res.sendStatus(404);
    res.json(await runs.history(order.run));
  });

  return app;
}
