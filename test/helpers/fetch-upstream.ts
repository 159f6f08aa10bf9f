import { randomUUID } from 'node:crypto';
import { StreamableHTTPTransport } from '@hono/mcp';
import { getRequestListener } from '@hono/node-server';
import type { McpServer as McpServer2 } from '@modelcontextprotocol/server';
import type { RequestHandler } from 'express';
import { Hono } from 'hono';
import { createMcpHandler } from 'mcp-handler';
import * as z from 'zod';
import { type FetchHandler, type GateFetchOptions, gateFetch } from '../../src/fetch.ts';
import type { Middleware } from '../../src/index.ts';
import { cartServer, type Ledger, runCartTool, type UpstreamShape } from './upstream.ts';

type Fetch = (request: Request) => Promise<Response>;

/** An MCP handler of the Fetch API, as the shape wants it, behind the middlewares: as a route of the Node server that tests talk to. */
export function fetchRoute(
  shape: UpstreamShape,
  ledger: Ledger,
  middlewares: readonly Middleware[],
  options: GateFetchOptions | undefined,
): RequestHandler {
  const handler = shape.host === 'hono' ? honoHandler(shape, ledger) : mcpHandler(ledger);
  const [first, ...others] = middlewares;
  const gated: Fetch = first === undefined ? handler : gateFetch(handler, [first, ...others], options);
  const listener = getRequestListener(gated, { overrideGlobalObjects: false });
  return (req, res) => void listener(req, res);
}

/** A route of `mcp-handler`, as one writes it in Next.js: SDK v2, a server for each request. */
export function mcpHandler(ledger: Ledger): Fetch {
  return createMcpHandler((server) => registerCart(server, ledger), {
    serverInfo: { name: 'cart', version: '1.0.0' },
  });
}

/** A Hono app that serves MCP with `@hono/mcp`. */
export function honoHandler(shape: UpstreamShape, ledger: Ledger): Fetch {
  const app = new Hono();
  const transports = new Map<string, StreamableHTTPTransport>();
  const enableJsonResponse = shape.answers === 'json';
  app.all('/mcp', async (c) => {
    if (shape.mode === 'stateless') {
      if (c.req.method !== 'POST') return c.json({ error: 'Method not allowed' }, 405, { allow: 'POST' });
      const transport = new StreamableHTTPTransport({ enableJsonResponse });
      await cartServer(ledger).connect(transport as never);
      return transport.handleRequest(c);
    }
    const known = transports.get(c.req.header('mcp-session-id') ?? '');
    if (known !== undefined) return known.handleRequest(c);
    const transport = new StreamableHTTPTransport({
      enableJsonResponse,
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => void transports.set(id, transport),
      onsessionclosed: (id) => void transports.delete(id),
    });
    await cartServer(ledger).connect(transport as never);
    return transport.handleRequest(c);
  });
  return async (request) => app.fetch(request);
}

/** The tools of `cartServer()`, for version 2 of the SDK. */
function registerCart(server: McpServer2, ledger: Ledger): void {
  for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']) {
    const inputSchema = z.object({ sku: z.string().optional(), fail: z.boolean().optional() });
    server.registerTool(name, { description: `Does ${name}.`, inputSchema }, ({ fail }, { mcpReq }) => {
      const progressToken = mcpReq._meta?.progressToken;
      return runCartTool(ledger, name, fail, async () => {
        if (progressToken === undefined) return;
        const params = { progressToken, progress: 1, total: 2 };
        await mcpReq.notify({ method: 'notifications/progress', params });
      });
    });
  }
}

export type { FetchHandler };
