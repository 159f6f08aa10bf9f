import {
  Client,
  type ClientOptions,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer, type ServerOptions } from '@modelcontextprotocol/server';
import express, { type RequestHandler } from 'express';
import * as z from 'zod';
import type { Middleware } from '../../src/index.ts';
import { type RawResponse, send, type WireMessage } from './raw.ts';
import { listen } from './serve.ts';

export const STATELESS = '2026-07-28';
export const CLAIM = 'io.modelcontextprotocol/protocolVersion';

/** An app of SDK v2, which serves both eras on one route. */
export interface TwoErasApp {
  readonly url: URL;
  /** The calls of the tools' handlers, in order: the tool's name and its arguments. */
  readonly calls: { readonly tool: string; readonly args: Record<string, unknown> }[];
  /** Every handler of that tool waits for it before it returns. */
  readonly gates: Map<string, Promise<void>>;
  /** Whether a handler learned that its client had left. */
  readonly aborted: string[];
  readonly handler: ReturnType<typeof createMcpHandler>;
  close(): Promise<void>;
}

export interface TwoErasOptions {
  /** Mounted in front of everything. */
  readonly before?: readonly RequestHandler[];
  readonly middlewares?: readonly Middleware[];
  /** Mounted between the middlewares and the MCP route. */
  readonly behind?: readonly RequestHandler[];
  readonly serverOptions?: ServerOptions;
  /** Registers more tools. */
  readonly register?: (server: McpServer, app: Pick<TwoErasApp, 'calls'>) => void;
}

/** Sets `req.auth` as authentication does, by the user in the header `x-user`. */
export const authenticate: RequestHandler = (req, _res, next) => {
  const user = req.headers['x-user'];
  if (typeof user === 'string') {
    const extra = { iss: 'https://issuer.example', sub: user };
    Object.assign(req, { auth: { token: 'secret', clientId: 'app', scopes: [], extra } });
  }
  next();
};

export async function startTwoEras(options: TwoErasOptions = {}): Promise<TwoErasApp> {
  const calls: TwoErasApp['calls'] = [];
  const gates: TwoErasApp['gates'] = new Map();
  const aborted: string[] = [];
  const handler = createMcpHandler(
    () => {
      const server = new McpServer({ name: 'shop', version: '1.0.0' }, options.serverOptions);
      for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']) {
        const inputSchema = z.object({ sku: z.string().optional(), fail: z.boolean().optional() });
        server.registerTool(
          name,
          { description: `Does ${name}.`, inputSchema },
          async (args, context) => {
            calls.push({ tool: name, args });
            context.mcpReq.signal.addEventListener('abort', () => aborted.push(name));
            await gates.get(name);
            return {
              content: [{ type: 'text', text: `${name} done` }],
              isError: args.fail === true,
            };
          },
        );
      }
      options.register?.(server, { calls });
      return server;
    },
    { keepAliveMs: 0 },
  );
  const app = express();
  const { before = [], middlewares = [], behind = [] } = options;
  app.use(authenticate, ...before);
  if (middlewares.length > 0) app.all('/mcp', ...(middlewares as readonly RequestHandler[]));
  for (const handler of behind) app.use('/mcp', handler);
  const node = toNodeHandler(handler);
  app.all('/mcp', (req, res) => node(req, res, req.body));
  const { url, close } = await listen(app);
  return { url, calls, gates, aborted, handler, close };
}

let lastId = 0;

/**
 * A stateless request as a client of SDK v2 sends it. `changes` are headers to set; an empty one is
 * left out.
 */
export function stateless(
  method: string,
  params: Record<string, unknown> = {},
  { user, changes = {}, capabilities = {} }: StatelessOptions = {},
) {
  lastId += 1;
  const meta = {
    [CLAIM]: STATELESS,
    'io.modelcontextprotocol/clientCapabilities': capabilities,
    ...(params._meta as object),
  };
  const body = { jsonrpc: '2.0', id: lastId, method, params: { ...params, _meta: meta } };
  const name = params.name ?? params.uri ?? params.taskId;
  const headers: Record<string, string> = {
    'mcp-protocol-version': STATELESS,
    'mcp-method': method,
    ...(typeof name === 'string' && { 'mcp-name': name }),
    ...(user !== undefined && { 'x-user': user }),
    ...changes,
  };
  for (const [header, value] of Object.entries(headers)) if (value === '') delete headers[header];
  return { headers, body };
}

export interface StatelessOptions {
  readonly user?: string;
  readonly changes?: Record<string, string>;
  readonly capabilities?: Record<string, unknown>;
}

/** Sends a stateless request, and reads the response to its end. */
export function ask(
  url: URL,
  method: string,
  params: Record<string, unknown> = {},
  options: StatelessOptions = {},
): Promise<RawResponse> {
  return send(url, stateless(method, params, options));
}

/** A stateless call of a tool, and its result's text. */
export async function callStateless(
  url: URL,
  name: string,
  args: Record<string, unknown> = {},
  options: StatelessOptions = {},
): Promise<{ text: string; isError: boolean; result: WireMessage; status: number }> {
  const { messages, status } = await ask(url, 'tools/call', { name, arguments: args }, options);
  const result = (messages.at(-1)?.result ?? {}) as WireMessage;
  const content = (result.content ?? []) as { text?: string }[];
  const text = content.map((each) => each.text).join('\n');
  return { text, isError: result.isError === true, result, status };
}

/** The real client of SDK v2, connected as a user. */
export async function connectV2(
  url: URL,
  user?: string,
  options: ClientOptions = {},
): Promise<Client> {
  const client = new Client({ name: 'test', version: '1.0.0' }, options);
  const headers = user === undefined ? {} : { 'x-user': user };
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  return client;
}

export const AUTO = { versionNegotiation: { mode: 'auto' } } as const satisfies ClientOptions;
export const PINNED = {
  versionNegotiation: { mode: { pin: STATELESS } },
} as const satisfies ClientOptions;
