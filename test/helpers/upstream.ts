import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  type EventStore,
  StreamableHTTPServerTransport,
} from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express5, { type Express, type Request, type RequestHandler, type Response } from 'express';
import express4 from 'express4';
import * as z from 'zod';
import type { GateFetchOptions } from '../../src/doors/fetch.ts';
import type { Middleware } from '../../src/index.ts';
import { fetchRoute } from './fetch-upstream.ts';
import { listen } from './serve.ts';

/** How the upstream is built. Apps serve MCP with the official SDK in each of these ways. */
export interface UpstreamShape {
  /**
   * `stateful`: a transport for each session. `stateless`: a server and a transport for each
   * request.
   */
  readonly mode: 'stateful' | 'stateless';
  readonly answers: 'sse' | 'json';
  /**
   * What the middlewares are mounted in. All but Express, the default, use `gateFetch()`.
   * `mcp-handler` is stateless, and answers in SSE.
   */
  readonly host?: 'express' | 'hono' | 'sdk' | 'mcp-handler';
  readonly express: 4 | 5;
  /** Whether `express.json()` is mounted in front of the middlewares. */
  readonly parser: boolean;
}

export const SHAPES: readonly UpstreamShape[] = (['stateful', 'stateless'] as const).flatMap(
  (mode) =>
    (['sse', 'json'] as const).flatMap((answers) =>
      ([4, 5] as const).flatMap((express) =>
        [true, false].map((parser) => ({ mode, answers, express, parser })),
      ),
    ),
);

/** Express and each kind of handler of the Fetch API. */
export const HOSTS = [
  { host: 'express', mode: 'stateful', answers: 'sse' },
  { host: 'express', mode: 'stateless', answers: 'json' },
  { host: 'hono', mode: 'stateful', answers: 'sse' },
  { host: 'hono', mode: 'stateful', answers: 'json' },
  { host: 'hono', mode: 'stateless', answers: 'sse' },
  { host: 'sdk', mode: 'stateful', answers: 'sse' },
  { host: 'mcp-handler', mode: 'stateless', answers: 'sse' },
] as const;

/** The handlers of the Fetch API, as shapes beside those of Express. */
export const FETCH_SHAPES = HOSTS.filter(({ host }) => host !== 'express').map((shape) => ({
  express: 5 as const,
  parser: false,
  ...shape,
}));

export function shapeName({
  mode,
  answers,
  host = 'express',
  express,
  parser,
}: UpstreamShape): string {
  if (host !== 'express') return `${mode}, ${answers}, ${host}`;
  return `${mode}, ${answers}, Express ${express}, ${parser ? 'parsed' : 'unparsed'} body`;
}

/** The calls of the tools' handlers, in order. */
export interface Ledger {
  readonly calls: string[];
  /** Every handler of that tool waits for it before it returns. */
  readonly gates: Map<string, Promise<void>>;
}

export interface Upstream {
  readonly url: URL;
  readonly app: Express;
  readonly ledger: Ledger;
  close(): Promise<void>;
}

export interface UpstreamOptions {
  readonly shape?: Partial<UpstreamShape>;
  readonly middlewares?: readonly Middleware[];
  /** Mounted in front of everything. */
  readonly before?: readonly RequestHandler[];
  /** Mounted between the middlewares and the MCP route. */
  readonly behind?: readonly RequestHandler[];
  readonly eventStore?: () => EventStore;
  /** Names the sessions of a stateful upstream. Default: by UUIDs. */
  readonly sessionIdGenerator?: () => string;
  /** Options of `gateFetch()`. */
  readonly fetch?: GateFetchOptions;
  readonly makeServer?: (ledger: Ledger) => McpServer;
}

/**
 * A cart server. No gate binds `cart.view`; `cart.slow` reports progress; `cart.fail` always fails.
 */
export function cartServer(ledger: Ledger): McpServer {
  const server = new McpServer({ name: 'cart', version: '1.0.0' });
  for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']) {
    const inputSchema = { sku: z.string().optional(), fail: z.boolean().optional() };
    server.registerTool(name, { description: `Does ${name}.`, inputSchema }, ({ fail }, extra) => {
      const progressToken = extra._meta?.progressToken;
      return runCartTool(ledger, name, fail, async () => {
        if (progressToken === undefined) return;
        const params = { progressToken, progress: 1, total: 2 };
        await extra.sendNotification({ method: 'notifications/progress', params });
      });
    });
  }
  return server;
}

/**
 * What each tool does: it reports progress, waits for the test, and succeeds unless it has to fail.
 */
export async function runCartTool(
  ledger: Ledger,
  name: string,
  fail: boolean | undefined,
  report: () => Promise<void>,
) {
  await report();
  ledger.calls.push(name);
  await ledger.gates.get(name);
  const content = (text: string) => [{ type: 'text' as const, text }];
  return fail === true
    ? { content: content(`${name} failed`), isError: true }
    : { content: content(`${name} done`) };
}

/** Starts a real Express app that serves MCP on a free port of the loopback interface. */
export async function startUpstream(options: UpstreamOptions = {}): Promise<Upstream> {
  const shape: UpstreamShape = {
    mode: 'stateful',
    answers: 'sse',
    express: 5,
    parser: false,
    ...options.shape,
  };
  const express = (shape.express === 4 ? express4 : express5) as typeof express5;
  const ledger: Ledger = { calls: [], gates: new Map() };
  const app = express();
  for (const handler of options.before ?? []) app.use(handler);
  if (shape.parser) app.use(express.json({ limit: '8mb' }));
  const make = (): McpServer => (options.makeServer ?? cartServer)(ledger);
  const middlewares = options.middlewares ?? [];
  if (shape.host !== undefined && shape.host !== 'express') {
    const serving = { shape, ledger, makeServer: make, eventStore: options.eventStore };
    app.all('/mcp', fetchRoute(serving, middlewares, options.fetch));
  } else if (middlewares.length > 0) app.all('/mcp', ...(middlewares as readonly RequestHandler[]));
  for (const handler of options.behind ?? []) app.use('/mcp', handler);
  app.all(
    '/mcp',
    shape.mode === 'stateful' ? statefulRoute(make, shape, options) : statelessRoute(make, shape),
  );
  const { url, close } = await listen(app);
  return { url, app, ledger, close };
}

function statefulRoute(make: () => McpServer, shape: UpstreamShape, options: UpstreamOptions) {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  return async (req: Request, res: Response): Promise<void> => {
    const id = req.headers['mcp-session-id'];
    let transport = typeof id === 'string' ? transports.get(id) : undefined;
    if (transport === undefined) {
      const eventStore = options.eventStore?.();
      const created = new StreamableHTTPServerTransport({
        sessionIdGenerator: options.sessionIdGenerator ?? randomUUID,
        enableJsonResponse: shape.answers === 'json',
        onsessioninitialized: (session) => void transports.set(session, created),
        onsessionclosed: (session) => void transports.delete(session),
        ...(eventStore === undefined ? {} : { eventStore, retryInterval: 20 }),
      });
      transport = created;
      await make().connect(created as never);
    }
    await transport.handleRequest(req, res, req.body);
  };
}

function statelessRoute(make: () => McpServer, shape: UpstreamShape) {
  return async (req: Request, res: Response): Promise<void> => {
    if (req.method !== 'POST') {
      res
        .status(405)
        .set('Allow', 'POST')
        .json({
          jsonrpc: '2.0',
          error: { code: -32000, message: 'Method not allowed.' },
          id: null,
        });
      return;
    }
    const server = make();
    const transport = new StreamableHTTPServerTransport({
      enableJsonResponse: shape.answers === 'json',
    });
    res.on('close', () => {
      void transport.close();
      void server.close();
    });
    await server.connect(transport as never);
    await transport.handleRequest(req, res, req.body);
  };
}
