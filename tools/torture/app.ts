import type { Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express, type Request, type RequestHandler, type Response } from 'express';
import * as z from 'zod';
import { type AtomicStateStore, currentStep, fsmGate, sessionStore } from '../../src/index.ts';
import { appendLine, type LedgerLine } from './ledger.ts';
import { checkoutGate, rallyGate, TOOL_NAMES } from './workflows.ts';

export interface AppSettings {
  /** Names the server in the ledger; never used again. */
  readonly name: string;
  /** The ledger's file. */
  readonly ledger: string;
  readonly leaseMs: number;
  readonly waitMs: number;
}

export interface RunningApp {
  readonly port: number;
  readonly http: HttpServer;
}

/** A real Express app with the official SDK, a server and a transport for each request, behind `sessionStore()` and two gates. */
export async function startApp(
  settings: AppSettings,
  store: AtomicStateStore,
): Promise<RunningApp> {
  const { leaseMs, waitMs } = settings;
  // What no client is told is nobody's business here: what comes of it is what is checked.
  const onError = (): void => {};
  const gates = [checkoutGate(), rallyGate()].map((gate) =>
    fsmGate(gate, { leaseMs, waitMs, onError }),
  );
  const handler = makeHandler(settings);

  const app: Express = express();
  app.use(express.json());
  app.use('/mcp', ...([sessionStore({ store, onError }), ...gates] as RequestHandler[]));
  app.post('/mcp', (req, res) => serve(handler, req, res));
  const http = app.listen(0, '127.0.0.1');
  // A connection that is closed for being idle would look like a crash to its client.
  http.keepAliveTimeout = 0;
  await new Promise((resolve) => http.once('listening', resolve));
  return { port: (http.address() as AddressInfo).port, http };
}

async function serve(handler: Handler, req: Request, res: Response): Promise<void> {
  const server = makeServer(handler);
  // Without a session of its own, since whichever process is called has never seen the last one's.
  const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
  res.on('close', () => {
    void transport.close();
    void server.close();
  });
  await server.connect(transport as never);
  await transport.handleRequest(req, res, req.body);
}

function makeServer(handler: Handler): McpServer {
  const server = new McpServer({ name: 'torture', version: '1.0.0' });
  const done = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  const inputSchema = { step: z.number(), ms: z.number() };
  for (const tool of TOOL_NAMES) {
    server.registerTool(tool, { inputSchema }, async ({ step, ms }, { _meta }) =>
      done(await handler(tool, step, ms, _meta)),
    );
  }
  server.registerTool('cart.view', { inputSchema }, async () => done('cart.view'));
  return server;
}

type Handler = (
  tool: string,
  step: number,
  ms: number,
  meta: object | undefined,
) => Promise<string>;

/** A handler that notes that it began, takes its time, and notes its effect. */
function makeHandler({ name, ledger }: AppSettings): Handler {
  let executions = 0;
  return async (tool, step, ms, meta) => {
    const current = currentStep();
    const line: Omit<LedgerLine, 'phase' | 'at'> = {
      attempt: `${name}.${++executions}`,
      server: name,
      run: current?.run ?? '',
      tool,
      state: current?.state ?? '',
      step,
      key: current?.idempotencyKey ?? '',
      metaKey: String(Reflect.get(meta ?? {}, 'mcp-interlock/idempotencyKey')),
    };
    appendLine(ledger, { phase: 'start', at: Date.now(), ...line });
    await delay(ms);
    appendLine(ledger, { phase: 'end', at: Date.now(), ...line });
    return line.attempt;
  };
}
