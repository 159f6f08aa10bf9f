import type { Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express, type Request, type RequestHandler, type Response } from 'express';
import * as z from 'zod';
import { fsmGate, sessionStore } from '../../src/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { appendTo, type Handler, makeHandler } from '../checker/ledger.ts';
import { gateOf } from '../checker/machines.ts';
import { gateOfRules, RULED_TOOLS } from './rulebook.ts';
import { MACHINES, TOOL_NAMES } from './workflows.ts';

export interface AppSettings {
  /** Names the server in the ledger; never used again. */
  readonly name: string;
  /** The ledger's file. */
  readonly ledger: string;
  readonly leaseMs: number;
  readonly waitMs: number;
  /** What is bound: three machines, or rules. Default: the machines. */
  readonly binds?: 'machines' | 'rules' | undefined;
}

export interface RunningApp {
  readonly port: number;
  readonly http: HttpServer;
}

/** What the server lists: one tool that no gate binds, beside the others. */
export const SERVED = [...TOOL_NAMES, 'cart.view'];

/**
 * A real Express app with the official SDK, a server and a transport for each request, behind
 * `sessionStore()` and three gates, or one of rules.
 */
export async function startApp(
  settings: AppSettings,
  store: AtomicStateStore,
): Promise<RunningApp> {
  const { leaseMs, waitMs, binds = 'machines' } = settings;
  // The checks look at effects alone, so errors that no client hears of go unheard.
  const onError = (): void => {};
  const bound = binds === 'rules' ? [gateOfRules()] : Object.values(MACHINES).map(gateOf);
  // Its clients call without listing before, which is warned of.
  const options = { leaseMs, waitMs, onError, onWarning() {} };
  const gates = bound.map((each) => fsmGate(each, options));
  const tools = binds === 'rules' ? RULED_TOOLS : SERVED;
  const handler = makeHandler(settings.name, appendTo(settings.ledger));

  const app: Express = express();
  app.use(express.json());
  app.use('/mcp', ...([sessionStore({ store, onError }), ...gates] as RequestHandler[]));
  app.post('/mcp', (req, res) => serve(handler, tools, req, res));
  const http = app.listen(0, '127.0.0.1');
  // A connection that is closed for being idle would look like a crash to its client.
  http.keepAliveTimeout = 0;
  await new Promise((resolve) => http.once('listening', resolve));
  return { port: (http.address() as AddressInfo).port, http };
}

async function serve(
  handler: Handler,
  tools: readonly string[],
  req: Request,
  res: Response,
): Promise<void> {
  const server = makeServer(handler, tools);
  // Without a session of its own: the next call may reach another process.
  const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
  res.on('close', () => {
    void transport.close();
    void server.close();
  });
  await server.connect(transport as never);
  await transport.handleRequest(req, res, req.body);
}

/** The members that only some tools have are those that rules read. */
const inputSchema = {
  step: z.number(),
  ms: z.number(),
  fail: z.boolean().optional(),
  amount: z.number().optional(),
  by: z.string().optional(),
  item: z.string().optional(),
  account: z.string().optional(),
  from_account: z.string().optional(),
  total_cents: z.number().optional(),
};

function makeServer(handle: Handler, tools: readonly string[]): McpServer {
  const server = new McpServer({ name: 'torture', version: '1.0.0' });
  for (const tool of tools) {
    server.registerTool(tool, { inputSchema }, (args, { _meta, requestInfo }) => {
      const run = String(requestInfo?.headers['mcp-session-id'] ?? '');
      return handle({ tool, args, run, meta: _meta });
    });
  }
  return server;
}
