import type { AddressInfo } from 'node:net';
import express from 'express';
import { fsmGate, type InterlockEvent, StateMachineGate, sessionStore } from 'mcp-interlock';
import { runsOf, workflowHealth } from 'mcp-interlock/runs';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { Pool } from 'pg';
import { mcpHandler } from '../express-checkout/mcp-handler.ts';
import { startTelemetry } from './telemetry.ts';

const checkout = new StateMachineGate({
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD_ITEM: 'has_items' } },
    has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
    payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
    confirmed: { type: 'final' },
  },
})
  .bindTool('cart_add_item', ['empty', 'has_items'], 'ADD_ITEM')
  .bindTool('cart_checkout', ['has_items'], 'CHECKOUT')
  .bindTool('cart_pay', ['payment'], 'PAY');

const pool = new Pool({ connectionString: process.env.DATABASE_URL });
const store = postgresStore({ pool, schema: process.env.SCHEMA, chainTrail: true });
await store.migrate();

/** What must reach a person. The rest is in traces and metrics. */
const loud: readonly string[] = ['step.held', 'step.unrecorded', 'store.failed'];

function alarm(event: InterlockEvent): void {
  if (loud.includes(event.type)) console.error(JSON.stringify({ alarm: event.type, ...event }));
}

const sessions = sessionStore({ store, onEvent: alarm });
const runs = runsOf(checkout, { sessions });
const telemetry = startTelemetry([runs]);
const health = workflowHealth({
  runs: [runs],
  stuckAfterMs: 15 * 60_000,
  authorize: ({ headers }) => headers.authorization === `Bearer ${process.env.OPERATOR_TOKEN}`,
});

const app = express();
app.get('/live', health.live);
app.get('/ready', health);
app.all(
  '/mcp',
  sessions,
  fsmGate(checkout, { statusTool: 'checkout_status', trail: { refusals: true } }),
  mcpHandler,
);

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`Listening on http://127.0.0.1:${port}/mcp`);
});

// A deployment: steps come to their end, so no run is held. New calls read that they may try again,
// and find the next process then.
process.once('SIGTERM', async () => {
  await sessions.close({ drainMs: 20_000 });
  server.close();
  server.closeAllConnections();
  await telemetry.stop();
  await pool.end();
});
