import { createHook } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import { Session } from 'node:inspector/promises';
import { SourceMap } from 'node:module';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createMcpHandler, McpServer as McpServerV2 } from '@modelcontextprotocol/server';
import express, { type Express, type Request, type RequestHandler, type Response } from 'express';
import { fsmGate, principalKey, StateMachineGate, sessionStore, stateSync } from 'mcp-interlock';
import * as z from 'zod';
import type { Traced } from './server-process.ts';
import type { Setup } from './setups.ts';

/** Sends its port to the parent, and then answers what it is asked about itself. */
const setup: Setup = JSON.parse(process.argv[2] ?? '');

/** Every tool of the app, each of which says that it was done. */
const NAMES = [
  ...['cart.add_item', 'cart.clear', 'cart.checkout', 'cart.pay', 'cart.price', 'cart.view'],
  ...Array.from({ length: setup.tools - 7 }, (_, index) => `catalogue.tool_${index}`),
];
const inputSchema = z.object({ sku: z.string(), quantity: z.number().int().min(1).default(1) });
const done = (name: string, sku: string) => {
  return { content: [{ type: 'text' as const, text: `${name} of ${sku} done` }] };
};

function makeServer(): McpServer {
  const server = new McpServer({ name: 'cart', version: '1.0.0' });
  for (const name of NAMES) {
    const config = { description: `Does ${name}.`, inputSchema: inputSchema.shape };
    server.registerTool(name, config, async ({ sku }) => done(name, sku));
  }
  server.registerTool('cart.slow', { inputSchema: inputSchema.shape }, async () => {
    await delay(200);
    return { content: [] };
  });
  return server;
}

function makeServerV2(): McpServerV2 {
  const server = new McpServerV2({ name: 'cart', version: '1.0.0' });
  for (const name of NAMES) {
    const config = { description: `Does ${name}.`, inputSchema };
    server.registerTool(name, config, async ({ sku }) => done(name, sku));
  }
  return server;
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
    .bindTool('cart.clear', ['has_items'], 'CLEAR')
    .bindTool('cart.price', ['empty', 'has_items', 'payment', 'confirmed'])
    .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
    .bindTool('cart.pay', ['payment'], 'PAY')
    .bindTool('cart.slow', ['empty', 'has_items'], 'ADD_ITEM');
  const policies = [
    { match: 'cart.add_item', invalidates: ['cart.*'] },
    { match: 'catalogue.*', cacheControl: 'immutable' as const },
  ];
  const byUser = { key: principalKey(), principal: (req: Request) => req.get('x-user') };
  const sessions = sessionStore(setup.sdk === 'v2' ? byUser : {});
  return [sessions, fsmGate(checkout), stateSync({ policies })];
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

function handler(): RequestHandler {
  if (setup.sdk === 'v1') return setup.mode === 'stateless' ? stateless : stateful;
  const node = toNodeHandler(createMcpHandler(makeServerV2, { keepAliveMs: 0 }));
  return (req, res) => void node(req, res, req.body);
}

const app: Express = express();
if (setup.parser !== false) app.use(express.json());
app.all('/mcp', ...(setup.variant === 'gated' ? gates() : []), handler());

/** What was asked about this process, and how it is found out. */
const questions = {
  /** CPU time in microseconds. */
  cpu: () => {
    const { user, system } = process.cpuUsage();
    return user + system;
  },
  /** From now on promises and entered files are counted. */
  trace: async () => {
    await counting.begin();
    return 0;
  },
  traced: () => counting.end(),
};

class Counting {
  readonly #session = new Session();
  readonly #hook = createHook({
    init: (_id, type) => {
      if (type === 'PROMISE') this.#promises++;
    },
  });
  #promises = 0;

  async begin(): Promise<void> {
    this.#session.connect();
    await this.#session.post('Profiler.enable');
    await this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    // What ran until now does not count.
    await this.#session.post('Profiler.takePreciseCoverage');
    this.#promises = 0;
    this.#hook.enable();
  }

  /** The promises, and the files of ours in which a function ran. */
  async end(): Promise<Traced> {
    this.#hook.disable();
    const { result } = await this.#session.post('Profiler.takePreciseCoverage');
    const dist = new URL('../dist/', import.meta.url).href;
    const files = result.filter(({ url }) => url.startsWith(dist)).flatMap(sourcesEntered);
    return { promises: this.#promises, files: new Set(files).size };
  }
}

/** The files of `src/` that a built module's called functions came from, by the module's map. */
function sourcesEntered({ url, functions }: Profiler.ScriptCoverage): string[] {
  const called = functions.filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0);
  if (called.length === 0) return [];
  const path = fileURLToPath(url);
  const map = new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8')));
  const text = readFileSync(path, 'utf8');
  return called.flatMap(({ ranges }) => {
    const before = text.slice(0, ranges[0]?.startOffset).split('\n');
    const entry = map.findEntry(before.length - 1, before.at(-1)?.length ?? 0);
    const isOurs = 'originalSource' in entry && entry.originalSource.includes('/src/');
    return isOurs ? [entry.originalSource] : [];
  });
}

const counting = new Counting();

const listening = app.listen(0, '127.0.0.1', () =>
  process.send?.((listening.address() as AddressInfo).port),
);
process.on('message', async (question: keyof typeof questions) => {
  process.send?.(await questions[question]());
});
process.on('disconnect', () => process.exit());
