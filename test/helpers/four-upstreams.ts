import { randomUUID } from 'node:crypto';
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node';
import { McpServer } from '@modelcontextprotocol/server';
import express, { type RequestHandler } from 'express';
import * as z from 'zod';
import type { Middleware } from '../../src/index.ts';
import { listen } from './serve.ts';
import { authenticate, startTwoEras } from './two-eras.ts';
import { type Ledger, runCartTool, startUpstream } from './upstream.ts';

/** A running server of the cart's tools. */
export interface AnyUpstream {
  readonly url: URL;
  /** The tools whose handlers ran, in order. */
  calls(): string[];
  close(): Promise<void>;
}

export interface UpstreamKind {
  readonly name: string;
  /** Whether it makes sessions for its clients. */
  readonly hasSessions: boolean;
  /** Whether it serves MCP 2026-07-28 too. */
  readonly isStateless: boolean;
  start(middlewares: readonly Middleware[]): Promise<AnyUpstream>;
}

/**
 * The ways in which the SDKs serve MCP over Streamable HTTP. They disagree about requests that
 * contradict themselves.
 */
export const FOUR_UPSTREAMS: readonly UpstreamKind[] = [
  {
    name: 'createMcpHandler() of SDK v2',
    hasSessions: false,
    isStateless: true,
    async start(middlewares) {
      const app = await startTwoEras({ middlewares });
      return { url: app.url, calls: () => app.calls.map(({ tool }) => tool), close: app.close };
    },
  },
  {
    name: 'a stateful transport of SDK v1',
    hasSessions: true,
    isStateless: false,
    start: (middlewares) => startV1('stateful', middlewares),
  },
  {
    name: 'a stateless transport of SDK v1',
    hasSessions: false,
    isStateless: false,
    start: (middlewares) => startV1('stateless', middlewares),
  },
  {
    name: 'a stateful transport of SDK v2',
    hasSessions: true,
    isStateless: false,
    start: startStatefulV2,
  },
];

async function startV1(
  mode: 'stateful' | 'stateless',
  middlewares: readonly Middleware[],
): Promise<AnyUpstream> {
  const { url, ledger, close } = await startUpstream({
    shape: { mode },
    before: [authenticate],
    middlewares,
  });
  return { url, calls: () => ledger.calls, close };
}

async function startStatefulV2(middlewares: readonly Middleware[]): Promise<AnyUpstream> {
  const ledger: Ledger = { calls: [], gates: new Map() };
  const transports = new Map<string, NodeStreamableHTTPServerTransport>();
  const app = express();
  app.use(authenticate);
  if (middlewares.length > 0) app.all('/mcp', ...(middlewares as readonly RequestHandler[]));
  app.all('/mcp', async (req, res) => {
    let transport = transports.get(String(req.headers['mcp-session-id']));
    if (transport === undefined) {
      const created = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (session) => void transports.set(session, created),
        onsessionclosed: (session) => void transports.delete(session),
      });
      transport = created;
      await cartServer(ledger).connect(created);
    }
    await transport.handleRequest(req, res, req.body);
  });
  const { url, close } = await listen(app);
  return { url, calls: () => ledger.calls, close };
}

function cartServer(ledger: Ledger): McpServer {
  const server = new McpServer({ name: 'cart', version: '1.0.0' });
  for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']) {
    const inputSchema = z.object({ sku: z.string().optional(), fail: z.boolean().optional() });
    server.registerTool(name, { description: `Does ${name}.`, inputSchema }, ({ fail }) =>
      runCartTool(ledger, name, fail, async () => {}),
    );
  }
  return server;
}
