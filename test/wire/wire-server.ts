import {
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import express5, { type RequestHandler } from 'express';
import untypedExpress4 from 'express4';
import { onTestFinished } from 'vitest';
import { DEFAULT_LIMITS, Exchange, type WireLimits } from '../../src/wire/exchange.ts';
import type { Filter } from '../../src/wire/filter.ts';
import { NodeHost } from '../../src/wire/node-host.ts';

/** As far as they are used here, its types are those of Express 5. */
export const express4 = untypedExpress4 as typeof express5;

export type Upstream = (req: IncomingMessage & { body?: unknown }, res: ServerResponse) => unknown;
export type Host = 'node' | 'express 4' | 'express 5';

export const HOSTS: readonly Host[] = ['node', 'express 4', 'express 5'];

export interface WireServer {
  readonly url: URL;
  readonly server: Server;
  /** The errors that the filters and the wire reported. */
  readonly errors: unknown[];
  /** The exchanges, in the order in which they began. */
  readonly exchanges: Exchange[];
}

export interface WireOptions {
  /** `false` leaves the upstream bare. */
  readonly wired?: boolean;
  /** The filters of each exchange. */
  readonly filters?: (exchange: Exchange) => readonly Filter[];
  readonly limits?: Partial<WireLimits>;
  readonly onError?: (error: unknown) => void;
  readonly host?: Host;
  /** Mounted in front, and between the exchange and the upstream; with Express only. */
  readonly front?: readonly RequestHandler[];
  readonly behind?: readonly RequestHandler[];
}

/** A middleware that does what all of ours do: opens the exchange, joins it and hands it on. */
export function wiring(
  filters: WireOptions['filters'],
  errors: unknown[],
  onExchange: (exchange: Exchange) => void = () => {},
  limits: Partial<WireLimits> = {},
  onError: (error: unknown) => void = () => {},
): RequestHandler {
  const note = (error: unknown): void => {
    errors.push(error);
    onError(error);
  };
  return async (req, res, next) => {
    const exchange = await Exchange.of(
      new NodeHost(req, res),
      { ...DEFAULT_LIMITS, ...limits },
      note,
    );
    if (exchange === undefined) return;
    onExchange(exchange);
    for (const filter of filters?.(exchange) ?? []) exchange.join(filter);
    exchange.forward(() => next());
  };
}

/** Serves an upstream behind the wire on a free port until the test ends. */
export async function serve(upstream: Upstream, options: WireOptions = {}): Promise<WireServer> {
  const {
    wired = true,
    host = 'node',
    front = [],
    behind = [],
    filters,
    limits,
    onError,
  } = options;
  const errors: unknown[] = [];
  const exchanges: Exchange[] = [];
  const middleware = wiring(
    filters,
    errors,
    (exchange) => void exchanges.push(exchange),
    limits,
    onError,
  );
  const own = wired ? [middleware] : [];
  let server: Server;
  if (host === 'node' && front.length === 0 && behind.length === 0) {
    server = createServer((req, res) => {
      const next = (): void => void upstream(req, res);
      if (wired) void middleware(req as never, res as never, next);
      else next();
    });
  } else {
    const app = (host === 'express 4' ? express4 : express5)();
    app.disable('x-powered-by');
    app.use(
      ...([...front, ...own, ...behind, (req, res) => upstream(req, res)] as RequestHandler[]),
    );
    server = createServer(app);
  }
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const { port } = server.address() as AddressInfo;
  return { url: new URL(`http://127.0.0.1:${port}/mcp`), server, errors, exchanges };
}

export interface Asked {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  /** Written one after another, each in a write of its own. */
  readonly body?: string | Buffer | readonly (string | Buffer)[];
}

/** A response to the byte. */
export interface Answer {
  readonly status: number;
  readonly reason: string;
  /** In their order, without the date. */
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** Whether all of it came. */
  readonly complete: boolean;
}

/** A `tools/list` and a `tools/call` whose text no test reads. */
export const LIST = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}';
export const CALL =
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{}}}';

export async function ask(url: URL, asked: Asked = {}): Promise<Answer> {
  const reading = await open(url, asked);
  await reading.done;
  const {
    rawHeaders: raw,
    statusCode: status = 0,
    statusMessage: reason = '',
    complete,
  } = reading.response;
  const pairs = Array.from(
    { length: raw.length / 2 },
    (_, i) => [raw[2 * i], raw[2 * i + 1]] as [string, string],
  );
  return {
    status,
    reason,
    headers: pairs.filter(([name]) => name !== 'Date'),
    body: reading.bytes,
    complete,
  };
}

/** A response that is being read. */
export interface Reading {
  readonly response: IncomingMessage;
  readonly bytes: Buffer;
  /** Settles once the text has come, and not by time. */
  until(text: string): Promise<void>;
  /** Settles when the response ended or was cut off. */
  readonly done: Promise<void>;
  /** Hangs up. */
  cut(): void;
}

export async function open(url: URL, asked: Asked = {}): Promise<Reading> {
  const sent = send(url, asked);
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    sent.once('response', resolve).once('error', reject);
  });
  sent.on('error', () => {});
  const chunks: Buffer[] = [];
  const waiting = new Set<() => void>();
  response.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    for (const look of [...waiting]) look();
  });
  response.on('error', () => {});
  const done = new Promise<void>((resolve) => response.once('close', () => resolve()));
  return {
    response,
    done,
    get bytes() {
      return Buffer.concat(chunks);
    },
    until: (text) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (!Buffer.concat(chunks).includes(text)) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        look();
      }),
    cut: () => void sent.destroy(),
  };
}

/** Sends a request and ignores the answer. */
export function send(url: URL, { method = 'POST', headers = {}, body = [] }: Asked) {
  const pieces = typeof body === 'string' || Buffer.isBuffer(body) ? [body] : body;
  const type = pieces.length === 0 ? {} : { 'content-type': 'application/json' };
  const sent = request(url, { method, agent: false, headers: { ...type, ...headers } });
  if (typeof body === 'string' || Buffer.isBuffer(body)) return sent.end(body);
  for (const piece of pieces) sent.write(piece);
  return sent.end();
}

/** The head of a POST, for a test that writes to a socket. */
export function rawHead(length: number, ...headers: readonly string[]): string {
  const lines = ['POST /mcp HTTP/1.1', 'host: x', `content-length: ${length}`, ...headers];
  return `${lines.join('\r\n')}\r\ncontent-type: application/json\r\n\r\n`;
}

export function header(answer: Answer, name: string): string | undefined {
  return answer.headers.find(([key]) => key.toLowerCase() === name)?.[1];
}

/** A filter that sees everything and changes nothing. */
export const ONLOOKER: Filter = { stage: 'sync', wants: () => true, onMessage() {} };

/** A filter that sets a member in each message with a result. */
export const MARKER: Filter = {
  stage: 'sync',
  wants: () => true,
  onMessage(message) {
    if (message.at('result') !== undefined) message.set(['result', 'marked'], true);
  },
};
