/**
 * A gate between a client and a server that both speak stdio. Hides that the gate itself serves
 * HTTP exchanges: each message of the client becomes a POST to `gateFetch()`. Its handler writes
 * the message to the server, and answers with a stream of what the server writes about it.
 *
 * | the server writes | it goes to the stream of |
 * |---|---|
 * | a response | its request |
 * | progress | the request with its token |
 * | a change that the client subscribed to (2026-07-28) | its `subscriptions/listen` |
 * | a question to a person or a model | a step that runs, whose run is busy until the answer |
 * | anything else | the session, which is a GET |
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { notForwarded } from 'mcp-interlock';
import type { FetchHandler } from 'mcp-interlock/fetch';
import { STATELESS_SINCE } from '../../../src/wire/headers.ts';
import {
  errorResponse,
  IDEMPOTENCY_KEY,
  isObject,
  JSON_RPC,
  type JsonObject,
  META_CLAIM,
  META_PREFIX,
} from '../../../src/wire/json-rpc.ts';
import { withValueAt } from '../../../src/wire/json-text.ts';
import { formatEvent, parseSseEvent, SseSplitter } from '../../../src/wire/sse.ts';
import { Lines, type LongLine } from './stdio-lines.ts';

/** What a bridge joins, and what it reports. */
export interface BridgeOptions {
  readonly client: { readonly input: Readable; readonly output: Writable };
  readonly server: { readonly input: Writable; readonly output: Readable };
  /** Puts the gate in front of a handler. */
  readonly gate: (handler: FetchHandler) => (request: Request) => Promise<Response>;
  /** The longest line, in bytes. */
  readonly maxLineBytes: number;
  /** What the server's instructions for a model end with. */
  readonly instructions: string;
  /** Reports a line that was not passed on. */
  readonly onFault: (message: string) => void;
  /** Is given the client's folders, where the server asks for them. */
  readonly onRoots: (uris: readonly string[]) => void;
  /** Adds to an answer of the gate itself, before the client gets it. */
  readonly amend: (answer: string) => Promise<string>;
}

/** Where the gate is. No request leaves the process. */
const HERE = 'http://stdio.invalid/mcp';
const SESSION = 'mcp-session-id';
/** Marks an answer of our own to a question of the server. Only the gate gets it. */
const GIVEN_UP = 'x-given-up';
const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
const POST = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
} as const;
/** While a person does not answer, other steps of the run are busy so long, in milliseconds. */
const QUESTION_MS = 60_000;
/** A server may still answer so long what its client cancelled, in milliseconds. */
const CANCELLED_MS = 10_000;
/** What a server asks a person or a model by its client. */
const QUESTIONS: readonly unknown[] = ['elicitation/create', 'sampling/createMessage'];

/** A stream of the handler's, until it is over or no longer read. */
class Outlet {
  #stream: ReadableStreamDefaultController<Uint8Array> | undefined;

  get isOpen(): boolean {
    return this.#stream !== undefined;
  }

  open(headers: Readonly<Record<string, string>>): Response {
    const body = new ReadableStream<Uint8Array>({
      start: (stream) => {
        this.#stream = stream;
      },
      cancel: () => {
        this.#stream = undefined;
      },
    });
    return new Response(body, { headers: { 'content-type': 'text/event-stream', ...headers } });
  }

  send(line: string): void {
    // Outside of a line's end CR is space in JSON, and would end a line of the event.
    this.#stream?.enqueue(Buffer.from(formatEvent(line.replaceAll('\r', ' '))));
  }

  end(): void {
    this.#stream?.close();
    this.#stream = undefined;
  }
}

/** A request of the client, or a batch, until the client has its answers. */
class Asked extends Outlet {
  /** The ids without an answer, as JSON. */
  readonly ids: Set<string>;
  readonly message: JsonObject;
  readonly isStateless: boolean;
  readonly abort = new AbortController();
  /** Whether the gate forwarded it as a step. */
  isStep = false;
  isCancelled = false;
  /** The server had it, and its answer cannot come any more. */
  isCut = false;

  constructor(ids: readonly string[], message: JsonObject) {
    super();
    this.ids = new Set(ids);
    this.message = message;
    this.isStateless = statelessHeaders(message) !== undefined;
  }

  cut(): void {
    this.isCut ||= this.isOpen;
    this.end();
  }
}

/** A request of the server that the client has not answered. */
interface Question {
  readonly method: unknown;
  readonly stopTimer: () => void;
}

export class Bridge {
  readonly #options: BridgeOptions;
  readonly #gate: (request: Request) => Promise<Response>;
  /** By each of their ids. */
  readonly #asked = new Map<string, Asked>();
  readonly #questions = new Map<string, Question>();
  #session: string | undefined;
  #sessionStream = new Outlet();
  /** Ends once the last message of the client was taken up. */
  #queue: Promise<void> = Promise.resolve();
  #queued = 0;
  #hasEnded = false;

  constructor(options: BridgeOptions) {
    this.#options = options;
    this.#gate = options.gate((request) => this.#forward(request));
  }

  /** Whether a message of the client waits, or the client for an answer. */
  get isBusy(): boolean {
    const isAwaited = ({ isCancelled, message }: Asked): boolean =>
      !isCancelled && message.method !== 'subscriptions/listen';
    return this.#queued > 0 || [...this.#asked.values()].some(isAwaited);
  }

  /** Resolves once the client has closed its output. */
  async readClient(): Promise<void> {
    const { client, server } = this.#options;
    await this.#read(client.input, server.input, {
      line: (text, messages) => this.#fromClient(text, messages),
      tooLong: ({ id }) => {
        const isFree = id !== undefined && !this.#asked.has(id);
        if (isFree) this.#answer(id, JSON_RPC.INVALID_REQUEST, 'The message is too long');
      },
    });
  }

  /** Resolves once the server has closed its output. What it has not answered, it never will. */
  async readServer(): Promise<void> {
    const { client, server } = this.#options;
    await this.#read(server.output, client.output, {
      line: (text, messages) => this.#fromServer(text, messages),
      // Without an id it may have been the answer to any request.
      tooLong: ({ id }) => {
        const asked = id === undefined ? undefined : this.#asked.get(id);
        for (const each of asked === undefined ? this.#asked.values() : [asked]) each.cut();
      },
    });
    this.#hasEnded = true;
    for (const asked of this.#asked.values()) asked.cut();
  }

  /** Ends the session, and the stream that belongs to it. */
  async end(): Promise<void> {
    for (const { stopTimer } of this.#questions.values()) stopTimer();
    if (this.#session === undefined) return;
    const headers = { [SESSION]: this.#session };
    await this.#gate(new Request(HERE, { method: 'DELETE', headers }));
    this.#sessionStream.end();
  }

  /** Reads lines, no faster than the other side takes them. */
  async #read(
    from: Readable,
    to: Writable,
    reader: { line(text: string, messages: Messages): void; tooLong(line: LongLine): void },
  ): Promise<void> {
    const { server, maxLineBytes, onFault } = this.#options;
    const who = from === server.output ? 'server' : 'client';
    const lines = new Lines(maxLineBytes, {
      line: (text) => {
        const messages = messagesIn(text);
        if (messages !== undefined) reader.line(text, messages);
        else onFault(`the ${who} wrote what is no message: ${shown(text)}`);
      },
      tooLong: (long) => {
        onFault(`a line of the ${who} has ${long.bytes} bytes, and may have ${maxLineBytes}`);
        reader.tooLong(long);
      },
    });
    try {
      for await (const chunk of from) {
        lines.push(chunk as Buffer);
        if (to.writableNeedDrain) await Promise.race([once(to, 'drain'), once(to, 'close')]);
      }
    } catch {
      // It broke off: there is no more to read.
    }
    lines.end();
  }

  // --- From the client ---------------------------------------------------------------------------

  #fromClient(line: string, messages: Messages): void {
    // A request that is under way may wait for it.
    if (messages.every(isResponse)) {
      for (const each of messages) this.#noteAnswer(each);
      void this.#post(line, this.#sessionHeaders);
      return;
    }
    this.#queued += 1;
    this.#queue = this.#queue.then(async () => {
      await this.#take(line, messages);
      this.#queued -= 1;
    });
  }

  /** Resolves once the next message may be taken up: it must not overtake this one. */
  async #take(line: string, messages: Messages): Promise<void> {
    const [message] = messages;
    const headers = statelessHeaders(message) ?? this.#sessionHeaders;
    const ids = messages.filter(isRequest).map(idOf);
    if (ids.length === 0) {
      if (message.method === 'notifications/cancelled' && this.#cancel(message, line)) return;
      return this.#post(line, headers);
    }
    const taken = ids.find((id) => this.#asked.has(id));
    if (taken !== undefined)
      return this.#answer(taken, JSON_RPC.INVALID_REQUEST, 'A request of this id is under way');
    const asked = new Asked(ids, message);
    for (const id of ids) this.#asked.set(id, asked);
    const served = this.#serve(line, headers, asked);
    // What follows an `initialize` needs its session.
    if (message.method === 'initialize') await served;
    else await new Promise(setImmediate);
  }

  /** `true` where that is all: in the stateless era the end of its stream cancels a request. */
  #cancel(message: JsonObject, line: string): boolean {
    const asked = this.#asked.get(JSON.stringify(inParams(message, 'requestId')));
    if (asked === undefined) return false;
    asked.isCancelled = true;
    if (!asked.isStateless) {
      // Most servers do not answer what was cancelled.
      setTimeout(() => asked.cut(), CANCELLED_MS).unref();
      return false;
    }
    if (asked.isOpen) this.#write(line);
    asked.abort.abort();
    return true;
  }

  async #serve(line: string, headers: Headers, asked: Asked): Promise<void> {
    await this.#post(line, headers, asked);
    asked.end();
    for (const [id, each] of this.#asked) if (each === asked) this.#asked.delete(id);
    if (!asked.isCut || asked.isCancelled) return;
    const why = this.#hasEnded ? 'The server has ended' : "The server's answer cannot be read";
    for (const id of asked.ids) this.#answer(id, JSON_RPC.INTERNAL_ERROR, why);
  }

  async #post(line: string, headers: Headers, asked?: Asked): Promise<void> {
    const signal = asked?.abort.signal ?? null;
    const init = { method: 'POST', headers: { ...POST, ...headers }, body: line, signal };
    try {
      const response = await this.#gate(new Request(HERE, init));
      await this.#pass(response, asked);
      if (asked?.message.method === 'initialize') await this.#begin(response.headers);
    } catch (error) {
      if (asked?.abort.signal.aborted) return;
      if (asked !== undefined) asked.isCut = true;
      this.#options.onFault(`a message could not be handled: ${String(error)}`);
    }
  }

  get #sessionHeaders(): Headers {
    return this.#session === undefined ? {} : { [SESSION]: this.#session };
  }

  /** Opens the stream of a session, where there is one now. */
  async #begin(headers: Response['headers']): Promise<void> {
    this.#session = headers.get(SESSION) ?? undefined;
    if (this.#session === undefined) return;
    this.#sessionStream.end();
    const accept = 'text/event-stream';
    const get = new Request(HERE, { headers: { accept, ...this.#sessionHeaders } });
    const stream = await this.#gate(get);
    void this.#pass(stream).catch(() => {});
  }

  /** Passes what the gate answers on to the client. */
  async #pass(response: Response, asked?: Asked): Promise<void> {
    const { status, headers, body } = response;
    if (body === null) return;
    if (headers.get('content-type')?.startsWith('text/event-stream') !== true) {
      const text = await response.text();
      if (asked !== undefined) await this.#toClient(withId(text, asked), asked);
      else if (status >= 400) this.#options.onFault(`a message was refused: ${shown(text)}`);
      return;
    }
    const events = new SseSplitter();
    for await (const chunk of body)
      for (const block of events.push(Buffer.from(chunk))) {
        const { data, type } = parseSseEvent(block.toString());
        if (data && type === 'message') await this.#toClient(data, asked);
      }
  }

  async #toClient(text: string, asked: Asked | undefined): Promise<void> {
    const line = text.includes(META_PREFIX) ? await this.#options.amend(text) : text;
    if (asked?.abort.signal.aborted) return;
    // The gate says itself that the outcome of a step is unknown.
    if (asked?.isCut)
      for (const each of messagesIn(text) ?? []) if (isResponse(each)) asked.ids.delete(idOf(each));
    this.#options.client.output.write(`${line.replace(/[\r\n]+/g, ' ')}\n`);
  }

  #answer(id: string, code: number, message: string): void {
    const text = JSON.stringify(errorResponse(JSON.parse(id), code, message));
    this.#options.client.output.write(`${text}\n`);
  }

  // --- To the server -----------------------------------------------------------------------------

  /** The handler behind the gate. */
  async #forward(request: Request): Promise<Response> {
    const { method, headers, signal } = request;
    if (method === 'GET') return this.#sessionStream.open({});
    if (method === 'DELETE' || headers.has(GIVEN_UP)) return new Response(null, { status: 202 });
    const text = await request.text();
    if (this.#hasEnded || !this.#options.server.input.writable) {
      await notForwarded(request);
      const gone = errorResponse(null, JSON_RPC.INTERNAL_ERROR, 'The server has ended');
      return Response.json(gone, { status: 502 });
    }
    const left = (messagesIn(text) ?? []).filter(isRequest).map(idOf);
    const [asked] = left.map((id) => this.#asked.get(id));
    if (asked === undefined) {
      this.#write(text);
      return new Response(null, { status: 202 });
    }
    // The gate has answered the others of a batch.
    for (const id of asked.ids) if (!left.includes(id)) asked.ids.delete(id);
    asked.isStep = text.includes(IDEMPOTENCY_KEY);
    signal.addEventListener('abort', () => asked.cut());
    const isOpening = asked.message.method === 'initialize';
    const answer = asked.open(isOpening ? { [SESSION]: randomUUID() } : {});
    this.#write(text);
    return answer;
  }

  #write(line: string): void {
    this.#options.server.input.write(`${line}\n`);
  }

  // --- From the server ---------------------------------------------------------------------------

  #fromServer(line: string, messages: Messages): void {
    const [first] = messages;
    if (!isResponse(first)) {
      if (isRequest(first)) this.#noteQuestion(first);
      const outlet = this.#outletOf(first);
      if (outlet === undefined) this.#options.client.output.write(`${line}\n`);
      else outlet.send(line);
      return;
    }
    const asked = this.#asked.get(idOf(first));
    if (asked?.isOpen) {
      asked.send(this.#withInstructions(line, asked.message, first));
      for (const each of messages) asked.ids.delete(idOf(each));
      if (asked.ids.size === 0) asked.end();
    } else if (asked?.isCancelled !== true)
      this.#options.onFault(`the server answered no request that is open: ${shown(line)}`);
  }

  /** Where a request or notification of the server goes. `undefined`: no stream is open. */
  #outletOf(message: JsonObject): Outlet | undefined {
    const open = [...new Set(this.#asked.values())].filter(({ isOpen }) => isOpen);
    const subscription = inParams(message, '_meta', SUBSCRIPTION);
    const token = inParams(message, 'progressToken');
    const own = open.find(
      (each) =>
        (subscription !== undefined && each.message.id === subscription) ||
        (token !== undefined && inParams(each.message, '_meta', 'progressToken') === token) ||
        (each.isStep && QUESTIONS.includes(message.method)),
    );
    return own ?? (this.#sessionStream.isOpen ? this.#sessionStream : open[0]);
  }

  /** A question must not keep a run busy for ever. */
  #noteQuestion(message: JsonObject): void {
    const { id, method } = message;
    const giveUp = (): void => {
      const answer = JSON.stringify({ jsonrpc: '2.0', id, result: {} });
      void this.#post(answer, { ...this.#sessionHeaders, [GIVEN_UP]: 'yes' });
    };
    const timer = QUESTIONS.includes(method) ? setTimeout(giveUp, QUESTION_MS).unref() : undefined;
    this.#questions.get(idOf(message))?.stopTimer();
    this.#questions.set(idOf(message), { method, stopTimer: () => clearTimeout(timer) });
  }

  #noteAnswer(message: JsonObject): void {
    const { result } = message;
    const question = this.#questions.get(idOf(message));
    question?.stopTimer();
    this.#questions.delete(idOf(message));
    const roots = question?.method === 'roots/list' && isObject(result) ? result.roots : undefined;
    if (Array.isArray(roots))
      this.#options.onRoots(roots.filter(isObject).map(({ uri }) => String(uri)));
  }

  #withInstructions(line: string, { method }: JsonObject, { result }: JsonObject): string {
    if ((method !== 'initialize' && method !== 'server/discover') || !isObject(result)) return line;
    const { instructions = '' } = result;
    const all = `${instructions}\n\n${this.#options.instructions}`.trim();
    return withValueAt(line, ['result', 'instructions'], JSON.stringify(all));
  }
}

type Headers = Readonly<Record<string, string>>;

/** A batch, or one message. */
type Messages = readonly [JsonObject, ...JsonObject[]];

/** The messages of a line; `undefined` where it is none. */
function messagesIn(line: string): Messages | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  const [first, ...others]: readonly unknown[] = Array.isArray(value) ? value : [value];
  return isMessage(first) && others.every(isMessage) ? [first, ...others] : undefined;
}

function isMessage(value: unknown): value is JsonObject {
  if (!isObject(value) || value.jsonrpc !== '2.0') return false;
  const isAnswer = 'id' in value && ('result' in value || 'error' in value);
  return typeof value.method === 'string' || (value.method === undefined && isAnswer);
}

function isResponse({ method }: JsonObject): boolean {
  return method === undefined;
}

function isRequest({ id, method }: JsonObject): boolean {
  return method !== undefined && id !== undefined;
}

function idOf({ id }: JsonObject): string {
  return JSON.stringify(id);
}

function inParams({ params }: JsonObject, ...path: readonly string[]): unknown {
  return path.reduce<unknown>((value, key) => (isObject(value) ? value[key] : undefined), params);
}

/** A message that names its version stands alone. Over HTTP its headers repeat what it says. */
function statelessHeaders(message: JsonObject): Headers | undefined {
  const version = inParams(message, '_meta', META_CLAIM);
  if (typeof version !== 'string' || version < STATELESS_SINCE) return undefined;
  const [name] = ['name', 'uri', 'taskId'].map((key) => inParams(message, key));
  return {
    'mcp-protocol-version': version,
    'mcp-method': String(message.method),
    // Encoded as MCP says ("Value Encoding"): a header has few characters.
    ...(typeof name === 'string' && {
      'mcp-name': `=?base64?${Buffer.from(name).toString('base64')}?=`,
    }),
  };
}

/** An answer to a whole exchange names no request; on stdio it has to. */
function withId(text: string, { ids, message }: Asked): string {
  const isAlone = ids.size <= 1 && text.startsWith('{') && /"id":null\b/.test(text);
  return isAlone ? withValueAt(text, ['id'], idOf(message)) : text;
}

/** The beginning of a line, for a log. */
function shown(line: string): string {
  return JSON.stringify(line.length > 200 ? `${line.slice(0, 200)}…` : line);
}
