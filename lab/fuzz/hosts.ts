import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import express, { type Express, type RequestHandler } from 'express';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  fsmGate,
  principalKey,
  StateMachineGate,
  sessionKey,
  sessionStore,
  stateSync,
} from '../../src/index.ts';
import { type RawAnswer, type RawRequest, SESSION, sendRaw } from './raw-request.ts';
import type { Got } from './readers.ts';
import { broken } from './target.ts';

/** What came of a request. */
export interface Passed {
  readonly answer: RawAnswer;
  /** What reached the server, in order. */
  readonly got: readonly Got[];
}

const BOTH = 'application/json, text/event-stream';
const TOOLS = ['cart.pay', 'cart.add', 'cart.view', 'cart'];
const INITIALIZE = JSON.stringify({
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'fuzz', version: '1' },
  },
});

/**
 * Every run stays in `empty`, where the steps of `cart.add` may run and fail, and all else that is
 * bound is hidden.
 */
function gate() {
  return new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: {
      empty: { on: { ADD: 'filled' } },
      filled: { on: { PAY: 'paid' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('cart.add', ['empty', 'filled'], 'ADD')
    .bindTool('cart.pay', ['filled'], 'PAY')
    .bindResource('docs://vault/secret.txt', ['filled'])
    .bindResource('docs://receipts/**', ['filled'])
    .bindResource('file:///srv/private/*', ['filled'])
    .bindTool('cart', ['filled'], { success: 'PAY', when: ({ action }) => action === 'pay' });
}

/** A server that only notes what it would run, behind the middlewares. */
export class Host {
  readonly name: string;
  readonly #url: URL;
  readonly #got: Got[];
  readonly #errors: unknown[];
  readonly #close: () => Promise<void>;
  #session = '';

  constructor(name: string, app: Listening, got: Got[], errors: unknown[]) {
    this.name = name;
    this.#url = app.url;
    this.#close = app.close;
    this.#got = got;
    this.#errors = errors;
  }

  async begin(): Promise<this> {
    const answer = await fetch(this.#url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
      },
      body: INITIALIZE,
    });
    await answer.text();
    this.#session = answer.headers.get('mcp-session-id') ?? '';
    if (this.#session === '') throw new Error(`${this.name} gave no session`);
    return this;
  }

  /**
   * Sends a request, and gives back what the server behind the gate got of it. Breaks where the
   * answer is none that a client may get.
   */
  async send(request: RawRequest): Promise<Passed> {
    this.#got.length = 0;
    this.#errors.length = 0;
    const headers = request.headers.map((each) => (each === SESSION ? this.#session : each));
    const answer = await sendRaw(this.#url, { ...request, headers });
    const { status, text, type } = answer;
    if (status >= 500) broken(`${this.name} answered ${status}`);
    if (type.startsWith('application/json') && text !== '') JSON.parse(text);
    const [error] = this.#errors.filter(
      (each) => !/arguments of .* not an object/.test(String(each)),
    );
    if (error !== undefined) broken(`${this.name} told onError: ${error}`);
    return { answer, got: [...this.#got] };
  }

  /** Sends what a well-behaved client sends in its session. */
  post(messages: unknown): Promise<Passed> {
    const headers = ['content-type', 'application/json', 'accept', BOTH, 'mcp-session-id', SESSION];
    return this.send({
      method: 'POST',
      headers,
      body: Buffer.from(JSON.stringify(messages)),
      cuts: [],
    });
  }

  close(): Promise<void> {
    return this.#close();
  }
}

interface Listening {
  readonly url: URL;
  close(): Promise<void>;
}

async function listen(app: Express): Promise<Listening> {
  const server = app.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  const close = (): Promise<void> => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(() => resolve()));
  };
  return { url: new URL(`http://127.0.0.1:${port}/mcp`), close };
}

/** The middlewares, with an ear for what they complain about. */
function guards(errors: unknown[]) {
  const observers = { onError: (error: unknown) => void errors.push(error), onWarning: () => {} };
  return [
    sessionStore({ key: [sessionKey(), principalKey()], ...observers }),
    fsmGate(gate(), observers),
    stateSync({ policies: [], ...observers }),
  ] as const;
}

/** A server that reads the bytes itself. */
export async function startBare(): Promise<Host> {
  const got: Got[] = [];
  const errors: unknown[] = [];
  const app = express();
  app.all(
    '/mcp',
    ...(guards(errors) as unknown as RequestHandler[]),
    (req, res) => void record(req, res, got),
  );
  return new Host('the bare host', await listen(app), got, errors).begin();
}

/** A server behind the body parsers that apps mount in front of everything. */
export async function startParsed(): Promise<Host> {
  const got: Got[] = [];
  const errors: unknown[] = [];
  const app = express();
  const verify = (req: IncomingMessage, _res: ServerResponse, bytes: Buffer): void => {
    Object.assign(req, { rawBody: bytes });
  };
  app.use(express.json({ verify }), express.urlencoded({ extended: true, verify }));
  app.all(
    '/mcp',
    ...(guards(errors) as unknown as RequestHandler[]),
    (req, res) => void record(req, res, got),
  );
  const failed: express.ErrorRequestHandler = (error, _req, res, _next) => {
    res.status(error.status ?? 500).end();
  };
  app.use(failed);
  return new Host('the host with parsers', await listen(app), got, errors).begin();
}

/** A handler of the Fetch API. */
export async function startFetch(): Promise<Host> {
  const got: Got[] = [];
  const errors: unknown[] = [];
  const [first, ...others] = guards(errors);
  const gated = gateFetch(
    async (request) => {
      const body = Buffer.from(await request.arrayBuffer());
      got.push({ method: request.method, rawHeaders: [...request.headers].flat(), body });
      const { status, text } = answerTo(body);
      return new Response(text || null, {
        status,
        headers: { 'content-type': 'application/json' },
      });
    },
    [first, ...others],
  );
  const listener = getRequestListener(gated);
  const app = express();
  app.all('/mcp', (req, res) => void listener(req, res));
  return new Host('the Fetch host', await listen(app), got, errors).begin();
}

/** Notes what came, and answers every request in it as a failure, so that no run ever moves. */
async function record(
  req: IncomingMessage & { body?: unknown; rawBody?: Buffer },
  res: ServerResponse,
  got: Got[],
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  const body = chunks.length > 0 ? Buffer.concat(chunks) : (req.rawBody ?? Buffer.alloc(0));
  const { method = '', rawHeaders } = req;
  const entry: Got = { method, rawHeaders: [...rawHeaders], body };
  got.push(req.body === undefined ? entry : { ...entry, parsed: req.body });
  const { status, text } = answerTo(
    body.length > 0 ? body : Buffer.from(JSON.stringify(req.body ?? null)),
  );
  res.writeHead(status, { 'content-type': 'application/json' }).end(text);
}

function answerTo(body: Buffer): { readonly status: number; readonly text: string } {
  let value: unknown;
  try {
    value = JSON.parse(body.toString());
  } catch {
    return { status: 400, text: '' };
  }
  const messages = [value].flat() as { id?: unknown; method?: unknown }[];
  const answers = messages
    .filter((message) => message?.id !== undefined && message.method !== undefined)
    .map(({ id, method }) => ({ jsonrpc: '2.0', id, result: resultOf(method) }));
  if (answers.length === 0) return { status: 202, text: '' };
  return { status: 200, text: JSON.stringify(Array.isArray(value) ? answers : answers[0]) };
}

function resultOf(method: unknown): object {
  if (method === 'initialize') {
    return {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 'fuzz', version: '1' },
    };
  }
  if (method === 'tools/list')
    return { tools: TOOLS.map((name) => ({ name, inputSchema: { type: 'object' } })) };
  if (method === 'tools/call') return { content: [{ type: 'text', text: 'no' }], isError: true };
  return {};
}
