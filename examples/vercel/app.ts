import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { Redis } from '@upstash/redis';
import express, { type Request, type Response } from 'express';
import { fsmGate, sessionStore } from 'mcp-interlock';
import { upstashStore } from 'mcp-interlock/stores/upstash';
import { cartServer } from './lib/cart.ts';
import { checkout } from './lib/checkout.ts';

// The store has two seconds for each call. The five retries that the client makes by default would
// take longer.
const redis = Redis.fromEnv({ retry: { retries: 2, backoff: (count) => 50 * 2 ** count } });

const app = express();

app.all(
  ['/mcp', '/api/mcp'],
  // No function lives long enough to serve a stream of its own.
  sessionStore({ store: upstashStore({ redis }), serveStreams: false }),
  // Less than the function's `maxDuration`, so that the client gets an answer before the function
  // is stopped.
  fsmGate(checkout, { maxStepMs: 50_000, leaseMs: Number(process.env.LEASE_MS) || undefined }),
  mcpHandler,
);

async function mcpHandler(req: Request, res: Response): Promise<void> {
  if (req.method !== 'POST') return void res.writeHead(405, { allow: 'POST' }).end();
  const server = cartServer(redis, String(req.headers['mcp-session-id']));
  const transport = new StreamableHTTPServerTransport();
  res.on('close', () => void server.close());
  await server.connect(transport as Transport);
  await transport.handleRequest(req, res, req.body);
}

export default app;
