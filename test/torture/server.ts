/**
 * One server process: a real Express app with the official SDK behind `sessionStore()` and two gates. Takes its settings as
 * JSON, sends its port to its parent, and ends with it.
 */
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express, type Request, type RequestHandler, type Response } from 'express';
import * as z from 'zod';
import { currentStep, fsmGate, sessionStore } from '../../src/index.ts';
import { brokenStore } from './broken-store.ts';
import { appendLine, type LedgerLine } from './ledger.ts';
import type { ServerSettings } from './server-process.ts';
import { openStore } from './stores.ts';
import { checkoutGate, rallyGate, TOOL_NAMES } from './workflows.ts';

const settings: ServerSettings = JSON.parse(process.argv[2] ?? '');
const { name, ledger, leaseMs, waitMs, defect } = settings;
let executions = 0;

/** Notes that it began, takes its time, and notes its effect. */
async function work(tool: string, step: number, ms: number, meta: object | undefined): Promise<string> {
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
}

function makeServer(): McpServer {
  const server = new McpServer({ name: 'torture', version: '1.0.0' });
  const done = (text: string) => ({ content: [{ type: 'text' as const, text }] });
  const inputSchema = { step: z.number(), ms: z.number() };
  for (const tool of TOOL_NAMES) {
    server.registerTool(tool, { inputSchema }, async ({ step, ms }, { _meta }) =>
      done(await work(tool, step, ms, _meta)),
    );
  }
  server.registerTool('cart.view', { inputSchema }, async () => done('cart.view'));
  return server;
}

async function mcp(req: Request, res: Response): Promise<void> {
  const server = makeServer();
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: undefined,
    enableJsonResponse: true,
  });
  res.on('close', () => {
    void transport.close();
    void server.close();
  });
  await server.connect(transport as never);
  await transport.handleRequest(req, res, req.body);
}

const { store } = await openStore(settings.store);
const used = defect === undefined ? store : brokenStore(store, defect);
// What no client is told is nobody's business here: what comes of it is what is checked.
const onError = (): void => {};
const times = { leaseMs, waitMs, onError };
const gates = [checkoutGate(), rallyGate()].map((gate) => fsmGate(gate, times));

const app: Express = express();
app.use(express.json());
app.use('/mcp', ...([sessionStore({ store: used, onError }), ...gates] as RequestHandler[]));
app.post('/mcp', mcp);

const server = app.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
// A connection that is closed for being idle would look like a crash to its client.
server.keepAliveTimeout = 0;
process.on('disconnect', () => process.exit());
