import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express, type Request, type RequestHandler, type Response } from 'express';
import { fsmGate, StateMachineGate, sessionStore, stateSync } from 'mcp-interlock';
import * as z from 'zod';
import type { Setup } from './setups.ts';

/** Sends its port to the parent, and then its CPU time in microseconds whenever it is asked for it. */
const setup: Setup = JSON.parse(process.argv[2] ?? '');

function makeServer(): McpServer {
  const server = new McpServer({ name: 'cart', version: '1.0.0' });
  for (const name of [
    'cart.add_item',
    'cart.checkout',
    'cart.pay',
    'cart.view',
    ...moreNames(setup.tools - 5),
  ]) {
    const inputSchema = { sku: z.string(), quantity: z.number().int().min(1).default(1) };
    server.registerTool(name, { description: `Does ${name}.`, inputSchema }, async ({ sku }) => ({
      content: [{ type: 'text', text: `${name} of ${sku} done` }],
    }));
  }
  server.registerTool('cart.slow', { inputSchema: { sku: z.string() } }, async () => {
    await delay(200);
    return { content: [] };
  });
  return server;
}

function moreNames(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `catalogue.tool_${index}`);
}

function gates(): RequestHandler[] {
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
    .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
    .bindTool('cart.pay', ['payment'], 'PAY')
    .bindTool('cart.slow', ['empty', 'has_items'], 'ADD_ITEM');
  const policies = [
    { match: 'cart.add_item', invalidates: ['cart.*'] },
    { match: 'catalogue.*', cacheControl: 'immutable' as const },
  ];
  return [sessionStore(), fsmGate(checkout), stateSync({ policies })];
}

async function stateless(req: Request, res: Response): Promise<void> {
  const server = makeServer();
  const transport = new StreamableHTTPServerTransport({
    enableJsonResponse: setup.answers === 'json',
  });
  res.on('close', () => {
    void transport.close();
    void server.close();
  });
  await server.connect(transport as never);
  await transport.handleRequest(req, res, req.body);
}

const transports = new Map<string, StreamableHTTPServerTransport>();

async function stateful(req: Request, res: Response): Promise<void> {
  let transport = transports.get(String(req.headers['mcp-session-id']));
  if (transport === undefined) {
    const made = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      enableJsonResponse: setup.answers === 'json',
      onsessioninitialized: (id) => void transports.set(id, made),
    });
    await makeServer().connect(made as never);
    transport = made;
  }
  await transport.handleRequest(req, res, req.body);
}

const app: Express = express();
if (setup.parser !== false) app.use(express.json());
if (setup.variant === 'gated') app.use('/mcp', ...gates());
app.all('/mcp', setup.mode === 'stateless' ? stateless : stateful);

const listening = app.listen(0, '127.0.0.1', () =>
  process.send?.((listening.address() as AddressInfo).port),
);
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send?.(user + system);
});
process.on('disconnect', () => process.exit());
