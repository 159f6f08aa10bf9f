import type { AddressInfo } from 'node:net';
import express from 'express';
import Database from 'libsql';
import { fsmGate, StateMachineGate, sessionStore, stateSync } from 'mcp-interlock';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { mcpHandler } from './mcp-handler.ts';

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

const store = sqliteStore({ database: new Database(process.env.RUNS_DB ?? 'runs.db') });
const policies = [
  { match: 'cart_view', cacheControl: 'no-store' as const },
  { match: 'cart_*', invalidates: ['cart_view'] },
];

const sessions = sessionStore({ store });

const app = express();
app.all('/mcp', sessions, fsmGate(checkout), stateSync({ policies }), mcpHandler);

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`Listening on http://127.0.0.1:${port}/mcp`);
});

// Steps that run come to their end. New ones read that they may try again, and find the next
// process then.
process.once('SIGTERM', async () => {
  await sessions.close({ drainMs: 20_000 });
  server.close();
});
