import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createMcpHandler, McpServer as McpServerV2 } from '@modelcontextprotocol/server';
import express, { type Express, type Request, type RequestHandler, type Response } from 'express';
import type { Clock, OrderRules } from 'mcp-interlock';
import * as z from 'zod';
import { Allocations } from './allocations.ts';
import { Counting } from './counting.ts';
import { type FloorBindings, floorGate } from './floor-gate.ts';
import type { ServerSetup } from './server-process.ts';

/** Sends its port to the parent, and then answers what it is asked about itself. */
const setup: ServerSetup = JSON.parse(process.argv[2] ?? '');
const backend =
  setup.store &&
  (await (await import('./stores.ts')).openBackend(setup.store, setup.address ?? ''));
if (setup.ambient && setup.variant === 'gated') await import('mcp-interlock/ambient');

/** Every tool of the app, each of which says that it was done. */
const NAMES = [
  ...['cart.add_item', 'cart.clear', 'cart.checkout', 'cart.pay', 'cart.price', 'cart.view'],
  ...Array.from(
    { length: setup.tools - (setup.sdk === 'v1' ? 8 : 6) },
    (_, index) => `catalogue.tool_${index}`,
  ),
];
const inputSchema = z.object({ sku: z.string(), quantity: z.number().int().min(1).default(1) });
/** Whose handlers keep a state of their own where no gate does it for them. */
const KEEPERS = ['cart.add_item', 'cart.clear'];
const LOOKUPS = ['cart.price', 'cart.view'];

async function run(name: string, sku: string) {
  if (setup.variant === 'bare' && KEEPERS.includes(name)) await backend?.getAndSet(sku, name);
  if (setup.lookupMs !== undefined && LOOKUPS.includes(name)) await delay(setup.lookupMs);
  return { content: [{ type: 'text' as const, text: `${name} of ${sku} done` }] };
}

function makeServer(): McpServer {
  const server = new McpServer({ name: 'cart', version: '1.0.0' });
  for (const name of NAMES) {
    const config = { description: `Does ${name}.`, inputSchema: inputSchema.shape };
    server.registerTool(name, config, ({ sku }) => run(name, sku));
  }
  server.registerTool('cart.slow', { inputSchema: inputSchema.shape }, async () => {
    await delay(200);
    return { content: [] };
  });
  server.registerTool('cart.report', { inputSchema: { bytes: z.number() } }, ({ bytes }) => {
    return { content: [{ type: 'text', text: 'x'.repeat(bytes) }] };
  });
  return server;
}

function makeServerV2(): McpServerV2 {
  const server = new McpServerV2({ name: 'cart', version: '1.0.0' });
  for (const name of NAMES) {
    const config = { description: `Does ${name}.`, inputSchema };
    server.registerTool(name, config, ({ sku }) => run(name, sku));
  }
  return server;
}

/** The states of the requests, and others that they never come to. */
function states() {
  const others = Array.from({ length: setup.states ?? 0 }, (_, at) => {
    return [`extra_${at}`, { on: { NEXT: `extra_${(at + 1) % (setup.states ?? 1)}` } }] as const;
  });
  return {
    empty: { on: { ADD_ITEM: 'has_items' } },
    has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
    payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
    confirmed: { type: 'final' },
    ...Object.fromEntries(others),
  } as const;
}

/** A step after another one; or of the same article, in a window, and up to a sum in another one. */
function rules(): OrderRules<string, string> {
  const isPlain = setup.rules === 'plain';
  // Some ten calls are in such a window, as in one of minutes where people call.
  const within = '50ms';
  return {
    'cart.add_item': {},
    'cart.clear': isPlain
      ? { after: 'cart.add_item' }
      : {
          after: { tool: 'cart.add_item', within: '2m', same: ['sku'] },
          limit: [
            { times: 1_000, within },
            { sum: 'quantity', below: 60_000, within },
          ],
        },
  };
}

/** The bare server does not even import the package. */
async function gates(): Promise<RequestHandler[]> {
  const { fsmGate, memoryStore, principalKey, StateMachineGate, sessionStore, stateSync } =
    await import('mcp-interlock');
  const machine = () =>
    new StateMachineGate<string, string>({
      id: 'checkout',
      initial: 'empty',
      states: states(),
    })
      .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
      .bindTool('cart.clear', ['has_items'], 'CLEAR')
      .bindTool('cart.price', ['empty', 'has_items', 'payment', 'confirmed'])
      .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
      .bindTool('cart.pay', ['payment'], 'PAY');
  const checkout: ReturnType<typeof machine> =
    setup.rules === undefined ? machine() : StateMachineGate.fromOrder(rules(), { id: 'checkout' });
  if (setup.sdk === 'v1' && setup.rules === undefined) {
    checkout.bindTool('cart.slow', ['empty', 'has_items'], 'ADD_ITEM');
    checkout.bindTool('cart.report', ['empty', 'has_items']);
  }
  for (let at = 0; at < (setup.bound ?? 0); at++) checkout.bindTool(`extra.tool_${at}`, 'payment');
  const policies = [
    { match: 'cart.add_item', invalidates: ['cart.*'] },
    { match: 'catalogue.*', cacheControl: 'immutable' as const },
  ];
  const byUser = { key: principalKey(), principal: (req: Request) => req.get('x-user') };
  const store = backend?.store ?? memoryStore({ maxRuns: 20_000 });
  // Its clock stands still on a way: what a process asks for twice a second is on none of them.
  const now = Date.now();
  const clock: Clock = {
    now: () => now,
    after(ms, task) {
      const timer = setTimeout(task, ms).unref();
      return () => clearTimeout(timer);
    },
  };
  const many = { maxSessions: 20_000, store, ...(setup.isWalked && { clock }) };
  const sessions = sessionStore(setup.sdk === 'v2' ? { ...byUser, ...many } : many);
  return [
    sessions,
    fsmGate(checkout, {
      listCache: setup.listCache ?? false,
      ...(setup.observes && { enforce: false }),
    }),
    ...(setup.syncs === false ? [] : [stateSync({ policies })]),
  ];
}

const FLOOR: FloorBindings = {
  'cart.add_item': { states: ['empty', 'has_items'], to: 'has_items' },
  'cart.clear': { states: ['has_items'], to: 'empty' },
  'cart.price': { states: ['empty', 'has_items', 'payment', 'confirmed'] },
  'cart.checkout': { states: ['has_items'], to: 'payment' },
  'cart.pay': { states: ['payment'], to: 'confirmed' },
};

const FRONTS: Readonly<Record<ServerSetup['variant'], () => Promise<RequestHandler[]>>> = {
  bare: async () => [],
  gated: gates,
  floor: async () => [floorGate('empty', FLOOR)],
};

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

function handler(): RequestHandler {
  if (setup.sdk === 'v1') return setup.mode === 'stateless' ? stateless : stateful;
  const node = toNodeHandler(createMcpHandler(makeServerV2, { keepAliveMs: 0 }));
  return (req, res) => void node(req, res, req.body);
}

const app: Express = express();
if (setup.parser !== false) app.use(express.json());
app.all('/mcp', ...(await FRONTS[setup.variant]()), handler());

const counting = new Counting();
const allocations = new Allocations();

/** What was asked about this process, and how it is found out. */
const questions = {
  /** CPU time in microseconds. */
  cpu: () => {
    const { user, system } = process.cpuUsage();
    return user + system;
  },
  /** Bytes that the process keeps, in and outside of the heap. */
  memory: () => {
    globalThis.gc?.();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  },
  /** From now on promises are counted. */
  count: () => {
    counting.begin();
    return 0;
  },
  counted: () => counting.end(),
  /** From now on the functions of ours that are entered are listed. */
  walk: () => {
    globalThis.entered = [];
    return 0;
  },
  walked: async () => {
    // What a request leaves behind runs on after its answer: it counts too.
    await delay(50);
    const entered = globalThis.entered;
    globalThis.entered = undefined;
    return entered;
  },
  /** From now on allocated bytes are added up. */
  sample: async () => {
    await allocations.begin();
    return 0;
  },
  sampled: () => allocations.end(),
};

const listening = app.listen(0, '127.0.0.1', () =>
  process.send?.((listening.address() as AddressInfo).port),
);
process.on('message', async (question: keyof typeof questions) => {
  process.send?.(await questions[question]());
});
process.on('disconnect', () => process.exit());
