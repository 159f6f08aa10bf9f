import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import express from 'express';
import * as fc from 'fast-check';
import { mcpProxy } from '../../packages/cli/src/proxy.ts';
import { fsmGate, StateMachineGate, sessionStore } from '../../src/index.ts';
import { listen } from '../../test/helpers/serve.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

const call = (id: number, tool: string) =>
  `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"${tool}","arguments":{}}}`;
/** Headers of one connection, and some that a client says are. */
const HEADERS = [
  'Connection: close',
  'Connection: keep-alive, Upgrade',
  'Connection: x-mine, te, , content-type',
  'Connection: content-length, transfer-encoding, host',
  'X-Mine: of this connection',
  'Upgrade: websocket',
  'Upgrade: h2c',
  'HTTP2-Settings: AAMAAABkAAQAAP__',
  'Keep-Alive: timeout=5',
  'Proxy-Connection: keep-alive',
  'TE: trailers',
  'Trailer: x-late',
  'Expect: 100-continue',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
  'Sec-WebSocket-Version: 13',
  'Via: 1.1 other',
];
/** No proxy may send these on. */
const HOP_BY_HOP = ['upgrade', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'expect'];

const asked = fc.record({
  method: fc.constantFrom('POST', 'POST', 'POST', 'GET', 'DELETE', 'OPTIONS', 'PUT'),
  tool: fc.constantFrom('pay', 'look'),
  headers: fc.subarray(HEADERS, { maxLength: 4 }),
  /** `torn` ends in the middle of the body, and `bad chunk` is no HTTP. */
  framing: fc.constantFrom(
    'length',
    'length',
    'chunked',
    'chunked with a trailer',
    'torn',
    'bad chunk',
  ),
} as const);

const ANSWER = '{"jsonrpc":"2.0","id":7,"result":{"content":[]}}';
const chunked = (text: string, end = '0\r\n\r\n') =>
  `transfer-encoding: chunked\r\n\r\n${text.length.toString(16)}\r\n${text}\r\n${end}`;
const sized = (text: string, length = text.length) => `content-length: ${length}\r\n\r\n${text}`;
const EVENT = `event: message\ndata: ${ANSWER}\n\n`;
/** What the server behind writes after its status and headers, before it closes. */
const BODIES = [
  sized(ANSWER),
  chunked(ANSWER),
  chunked(ANSWER, '0\r\nx-late: 1\r\n\r\n'),
  `\r\n${ANSWER}`,
  sized(''),
  '\r\n',
  // Broken: too short, too long, a bad chunk, none at the end, two lengths, both framings.
  sized(ANSWER, ANSWER.length + 10),
  sized(ANSWER, 5),
  `transfer-encoding: chunked\r\n\r\nzz\r\n${ANSWER}\r\n0\r\n\r\n`,
  chunked(ANSWER, ''),
  chunked(ANSWER, '5\r\nab'),
  `content-length: 3\r\n${sized(ANSWER)}`,
  `content-length: 3\r\n${chunked(ANSWER)}`,
  // A second answer, which is to no request.
  `${sized(ANSWER)}HTTP/1.1 200 OK\r\n${sized('stolen')}`,
];
const served = fc.record({
  status: fc.constantFrom(
    ...['200 OK', '200 OK', '200 OK', '202 Accepted', '204 No Content', '304 Not Modified'],
    ...['302 Found', '404 Not Found', '500 Oops', '101 Switching Protocols', '600 What', '99 Low'],
  ),
  before: fc.constantFrom(
    '',
    '',
    '',
    'HTTP/1.1 100 Continue\r\n\r\n',
    'HTTP/1.1 103 Early\r\n\r\n',
    'no HTTP\r\n\r\n',
    'HTTP/1.1 101 S\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n',
  ),
  headers: fc.subarray(
    [
      'connection: close',
      'connection: upgrade',
      'upgrade: websocket',
      'location: /mcp',
      'keep-alive: timeout=5',
      'trailer: x-late',
      'x-power: 1',
    ],
    { maxLength: 3 },
  ),
  body: fc.constantFrom(
    ...[BODIES[0], BODIES[1], ...BODIES].map((body) => `content-type: application/json\r\n${body}`),
    `content-type: text/event-stream\r\n${chunked(EVENT)}`,
    `content-type: text/event-stream\r\n\r\n${EVENT}`,
    `content-type: text/event-stream\r\n${chunked(EVENT, '')}`,
  ),
  /** How much of it is written. */
  part: fc.oneof(
    { weight: 3, arbitrary: fc.constant(1) },
    fc.double({ min: 0, max: 1, noNaN: true }),
  ),
  end: fc.constantFrom('end', 'end', 'reset'),
} as const);
const exchange = fc.record({ asked, served });
type Exchange = typeof exchange extends fc.Arbitrary<infer T> ? T : never;

/** A request that tells whether the connection is in step: its answer comes next, and nothing else. */
const MARK = 'GET /mark HTTP/1.1\r\nHost: a\r\n\r\n';
/** Nothing in here takes longer than a few milliseconds, but the machine may be busy. */
const PATIENCE_MS = 10_000;
const INITIALIZE =
  '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",' +
  '"capabilities":{},"clientInfo":{"name":"fuzz","version":"1"}}}';
const BEGUN =
  '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},' +
  '"serverInfo":{"name":"fuzz","version":"1"}}}';

/**
 * A client and a server write bytes on sockets of their own; between them are a gate and the proxy.
 */
export const proxy: Target = {
  name: 'proxy',
  what: 'each request gets one answer, nothing hangs, and what is of one connection stays there',
  inputs: 60,
  async open(): Promise<OpenTarget> {
    const behind = await Upstream.start();
    const gate = new StateMachineGate({
      id: 'bill',
      initial: 'due',
      states: { due: { on: { PAID: 'paid' } }, paid: {} },
    }).bindTool('pay', 'due', 'PAID');
    const quiet = { onError: () => {}, onWarning: () => {} };
    const app = express()
      .get('/mark', (_req, res) => void res.end('marked'))
      .all('/mcp', sessionStore(quiet), fsmGate(gate, quiet), mcpProxy(behind.url));
    const front = await listen(app);
    return {
      property: fc.asyncProperty(exchange, (each) => playOut(each, Number(front.url.port), behind)),
      describe: ({ asked: one, served: two }: Exchange) =>
        `${requestOf(one, 'S')}\n---\n${answerOf(two)}`.replaceAll('\r', ''),
      close: async () => {
        await front.close();
        behind.close();
      },
    };
  },
};

async function playOut({ asked: one, served: two }: Exchange, port: number, behind: Upstream) {
  // A held run would refuse the calls of later inputs.
  behind.next = { ...two, isBeginning: true };
  const begun = await fetch(`http://127.0.0.1:${port}/mcp`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: BOTH },
    body: INITIALIZE,
  });
  await begun.text();
  behind.next = two;
  behind.got.length = 0;
  const client = await Client.open(port);
  try {
    client.write(requestOf(one, begun.headers.get('mcp-session-id') ?? ''));
    // Of a request that is not whole Node may wait for the rest, until its client leaves.
    const isPart = one.framing === 'torn' || one.framing === 'bad chunk';
    if (isPart) client.end();
    const answer = await client.answer();
    // Of an answer that breaks off the gate may hold back what came, and the connection ends.
    const breaksOff = !isWhole(two) && behind.got.length > 0 && answerOf(two).includes('\r\n\r\n');
    if (answer === 'none' && !isPart && !breaksOff) broken('a request got no answer');
    const isCut = answer === 'cut';
    if (isCut && isWhole(two) && !isPart) broken('an answer broke off that the server gave whole');
    if (typeof answer === 'object' && !isPart)
      await client.assertInStep(answer, one.headers.includes('Connection: close'));
    for (const { head, rest } of behind.got) {
      if (rest !== '') broken('the server got bytes after the request', rest);
      const named = namedBy(one);
      const kept = head.filter((name) => HOP_BY_HOP.includes(name) || named.includes(name));
      if (kept.length > 0) broken(`the server got headers of the client's connection: ${kept}`);
    }
    if (behind.got.length > 1) broken('the server got more than one request');
  } finally {
    client.close();
  }
}

/** What the client's `Connection` names, but for the framing. */
function namedBy({ headers }: Exchange['asked']): readonly string[] {
  const isNamed = headers.some((each) => each.startsWith('Connection: x-mine'));
  return isNamed ? ['x-mine'] : [];
}

function isWhole({ status, before, body, part, end, headers }: Exchange['served']): boolean {
  const isFinal = /^(?:200|404|500)/.test(status) && (before === '' || before.includes(' 10[03] '));
  const isFramed = BODIES.slice(0, 6).some((each) => body.endsWith(`json\r\n${each}`));
  return isFinal && isFramed && part === 1 && end === 'end' && headers.length === 0;
}

const BOTH = 'application/json, text/event-stream';

function requestOf({ method, tool, headers, framing }: Exchange['asked'], session: string): string {
  const body = call(7, tool);
  const lines = [
    `${method} /mcp HTTP/1.1`,
    'Host: shop.example',
    'Content-Type: application/json',
    `Accept: ${BOTH}`,
    `Mcp-Session-Id: ${session}`,
    ...headers,
  ].join('\r\n');
  switch (framing) {
    case 'length':
      return `${lines}\r\n${sized(body)}`;
    case 'torn':
      return `${lines}\r\n${sized(body).slice(0, -9)}`;
    case 'chunked':
      return `${lines}\r\n${chunked(body)}`;
    case 'chunked with a trailer':
      return `${lines}\r\n${chunked(body, '0\r\nx-late: 1\r\n\r\n')}`;
    case 'bad chunk':
      return `${lines}\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n${body}\r\n0\r\n\r\n`;
  }
}

function answerOf({ status, before, headers, body, part }: Exchange['served']): string {
  const whole = `${before}HTTP/1.1 ${status}\r\n${headers.map((each) => `${each}\r\n`).join('')}${body}`;
  return whole.slice(0, Math.ceil(part * whole.length));
}

/** The server behind: it writes what it was told, once it has read a request, and closes. */
class Upstream {
  readonly url: string;
  /** The names of the headers of each request, and what came behind it. */
  readonly got: { readonly head: readonly string[]; rest: string }[] = [];
  next: (Exchange['served'] & { readonly isBeginning?: boolean }) | undefined;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
    server.on('connection', (socket) => this.#serve(socket));
  }

  static async start(): Promise<Upstream> {
    const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Upstream(server);
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket.on('close', () => this.#sockets.delete(socket)));
    let text = '';
    let entry: { readonly head: readonly string[]; rest: string } | undefined;
    socket.on('error', () => {});
    socket.on('end', () => socket.end());
    socket.on('data', (bytes) => {
      text += bytes.toString('latin1');
      const read = messageIn(text);
      if (entry !== undefined && read !== undefined) entry.rest = read.rest;
      if (entry !== undefined || read === undefined) return;
      const { next } = this;
      entry = { head: [...read.head.keys()], rest: read.rest };
      this.got.push(entry);
      if (next === undefined) socket.destroy();
      else if (next.isBeginning)
        socket.end(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${sized(BEGUN)}`);
      else
        socket.write(answerOf(next), () => {
          if (next.end === 'reset') socket.resetAndDestroy();
          else socket.end();
        });
    });
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

interface Read {
  readonly status: number;
  readonly head: ReadonlyMap<string, string>;
  /** What comes behind the message. */
  readonly rest: string;
}

/** The first whole message of a text, as HTTP frames it; `undefined` where it is not whole yet. */
function messageIn(text: string, isOver = false): Read | undefined {
  const [line = '', ...lines] = text.slice(0, text.indexOf('\r\n\r\n')).split('\r\n');
  if (!text.includes('\r\n\r\n')) return undefined;
  const body = text.slice(text.indexOf('\r\n\r\n') + 4);
  const head = new Map(
    lines.map((each) => {
      const at = each.indexOf(':');
      return [each.slice(0, at).toLowerCase(), each.slice(at + 1).trim()] as const;
    }),
  );
  const status = Number(/^HTTP\/1\.1 (\d+)/.exec(line)?.[1] ?? 0);
  if ((status >= 100 && status < 200) || status === 204 || status === 304)
    return { status, head, rest: body };
  if (head.get('transfer-encoding') === 'chunked') {
    for (let at = 0; ; ) {
      const end = body.indexOf('\r\n', at);
      if (end === -1) return undefined;
      const size = Number.parseInt(body.slice(at, end), 16);
      if (size === 0) {
        const last = body.indexOf('\r\n\r\n', end - 0);
        return last === -1 ? undefined : { status, head, rest: body.slice(last + 4) };
      }
      at = end + 2 + size + 2;
      if (Number.isNaN(size) || at > body.length) return undefined;
    }
  }
  const length = head.get('content-length');
  if (length !== undefined)
    return body.length < Number(length)
      ? undefined
      : { status, head, rest: body.slice(Number(length)) };
  // A request without framing has no body; an answer lasts until its connection closes.
  if (status === 0 || isOver) return { status, head, rest: status === 0 ? body : '' };
  return undefined;
}

/** One connection of a client. */
class Client {
  readonly #socket: Socket;
  #text = '';
  #isOver = false;
  #wake: () => void = () => {};

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (bytes) => {
      this.#text += bytes.toString('latin1');
      this.#wake();
    });
    for (const event of ['end', 'close', 'error'])
      socket.on(event, () => {
        this.#isOver = true;
        this.#wake();
      });
  }

  static async open(port: number): Promise<Client> {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    return new Client(socket);
  }

  write(text: string): void {
    this.#socket.write(text, 'latin1');
  }

  end(): void {
    this.#socket.end();
  }

  close(): void {
    this.#socket.destroy();
  }

  /**
   * Takes the next final answer; `none` where the connection closed before one began, `cut` where it
   * closed in the middle.
   */
  async answer(): Promise<Read | 'none' | 'cut'> {
    const end = performance.now() + PATIENCE_MS;
    for (;;) {
      const read = messageIn(this.#text, this.#isOver);
      if (read !== undefined) {
        this.#text = read.rest;
        if (read.status >= 200) return read;
        continue;
      }
      if (this.#isOver) return this.#text === '' ? 'none' : 'cut';
      const left = end - performance.now();
      if (left <= 0) return broken('a request hangs', JSON.stringify(this.#text));
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  /** Breaks where more than that answer came. */
  async assertInStep({ head }: Read, isLast: boolean): Promise<void> {
    if (this.#text !== '') broken('bytes came after the answer', this.#text);
    if (!isLast && head.get('connection') !== 'close' && !this.#isOver) this.write(MARK);
    const next = await this.answer();
    if (next === 'none') return;
    if (
      next === 'cut' ||
      next.status !== 200 ||
      next.rest !== '' ||
      next.head.get('x-powered-by') !== 'Express' ||
      next.head.get('content-length') !== '6'
    )
      broken('a second answer came to one request', JSON.stringify(next));
  }
}
