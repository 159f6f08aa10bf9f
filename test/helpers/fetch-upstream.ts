import { randomUUID } from 'node:crypto';
import { StreamableHTTPTransport } from '@hono/mcp';
import { getRequestListener } from '@hono/node-server';
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { EventStore } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import type { McpServer as McpServer2 } from '@modelcontextprotocol/server';
import type { RequestHandler } from 'express';
import { Hono } from 'hono';
import { createMcpHandler } from 'mcp-handler';
import * as z from 'zod';
import { type GateFetchOptions, gateFetch } from '../../src/doors/fetch.ts';
import type { Middleware } from '../../src/index.ts';
import { type Ledger, runCartTool, type UpstreamShape } from './upstream.ts';

type Fetch = (request: Request) => Promise<Response>;

/** The server of a handler. */
export interface FetchServing {
  readonly shape: UpstreamShape;
  readonly ledger: Ledger;
  readonly makeServer: () => McpServer;
  readonly eventStore?: (() => EventStore) | undefined;
}

/**
 * A route of the tests' Node server: an MCP handler of the Fetch API behind the middlewares, of the
 * kind that the shape names.
 */
export function fetchRoute(
  serving: FetchServing,
  middlewares: readonly Middleware[],
  options: GateFetchOptions | undefined,
): RequestHandler {
  const handler = HANDLERS[serving.shape.host as keyof typeof HANDLERS](serving);
  const [first, ...others] = middlewares;
  const gated: Fetch =
    first === undefined ? handler : gateFetch(handler, [first, ...others], options);
  const listener = getRequestListener(gated);
  return (req, res) => void listener(req, res);
}

const HANDLERS = { hono: honoHandler, 'mcp-handler': mcpHandler, sdk: sdkHandler } as const;

/** The transports of the sessions of one handler. */
function sessionsOf<T>({ eventStore, shape }: FetchServing) {
  const transports = new Map<string, T>();
  const options = (transport: () => T) => ({
    enableJsonResponse: shape.answers === 'json',
    ...(eventStore === undefined ? {} : { eventStore: eventStore(), retryInterval: 20 }),
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (id: string) => void transports.set(id, transport()),
    onsessionclosed: (id: string) => void transports.delete(id),
  });
  return { transports, options };
}

/** The transport of version 1 of the SDK for the Fetch API. */
function sdkHandler(serving: FetchServing): Fetch {
  const { transports, options } = sessionsOf<WebStandardStreamableHTTPServerTransport>(serving);
  return async (request) => {
    const known = transports.get(request.headers.get('mcp-session-id') ?? '');
    if (known !== undefined) return known.handleRequest(request);
    const transport: WebStandardStreamableHTTPServerTransport =
      new WebStandardStreamableHTTPServerTransport(options(() => transport));
    await serving.makeServer().connect(transport as never);
    return transport.handleRequest(request);
  };
}

/** A route of `mcp-handler` for Next.js: SDK v2, with a server for each request. */
function mcpHandler({ ledger }: FetchServing): Fetch {
  return createMcpHandler((server) => registerCart(server, ledger), {
    serverInfo: { name: 'cart', version: '1.0.0' },
  });
}

/** A Hono app that serves MCP with `@hono/mcp`. */
function honoHandler(serving: FetchServing): Fetch {
  const { transports, options } = sessionsOf<StreamableHTTPTransport>(serving);
  const { shape, makeServer } = serving;
  const app = new Hono();
  app.all('/mcp', async (c) => {
    const known = transports.get(c.req.header('mcp-session-id') ?? '');
    if (known !== undefined) return known.handleRequest(c);
    const isStateless = shape.mode === 'stateless';
    if (isStateless && c.req.method !== 'POST') return c.json({}, 405, { allow: 'POST' });
    const transport: StreamableHTTPTransport = new StreamableHTTPTransport(
      isStateless ? { enableJsonResponse: shape.answers === 'json' } : options(() => transport),
    );
    await makeServer().connect(transport as never);
    return transport.handleRequest(c);
  });
  return async (request) => app.fetch(request);
}

/** The tools of `cartServer()`, for version 2 of the SDK. */
function registerCart(server: McpServer2, ledger: Ledger): void {
  for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']) {
    const inputSchema = z.object({ sku: z.string().optional(), fail: z.boolean().optional() });
    server.registerTool(
      name,
      { description: `Does ${name}.`, inputSchema },
      ({ fail }, { mcpReq }) => {
        const progressToken = mcpReq._meta?.progressToken;
        return runCartTool(ledger, name, fail, async () => {
          if (progressToken === undefined) return;
          const params = { progressToken, progress: 1, total: 2 };
          await mcpReq.notify({ method: 'notifications/progress', params });
        });
      },
    );
  }
}
