import { InterlockError } from '../errors.ts';
import { showValue } from '../options.ts';
import {
  type Amended,
  type BodyFailure,
  type BodyPort,
  parseBody,
  REST,
  tooLarge,
  unfitBytes,
  unfitMedia,
} from './body.ts';
import type { RequestPort } from './headers.ts';
import type { JsonText } from './json-text.ts';
import type { Done, Host, Originals, ResponsePort, ResponseSink } from './node-host.ts';

/** A handler of the Fetch API. */
export type Handle = (request: Request) => Response | Promise<Response>;

const NOTHING = Buffer.alloc(0);

/**
 * A `Request` and the `Response` that becomes of it. The handler is given another request, and what
 * it answers runs through the pipeline.
 */
export class FetchHost implements Host {
  readonly request: RequestPort;
  readonly response: FetchResponse;
  readonly #client: Request;
  readonly #onError: (error: unknown) => void;
  readonly #handlers = new AbortController();
  readonly #onAbort = (): void => this.#connectionClosed();
  #body: FetchBody | undefined;
  #sink: ResponseSink | undefined;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #wake: () => void = () => {};
  #isGone = false;
  #handler: 'running' | 'done' | 'cut off' = 'running';

  /** `onError` is told of a handler that fails when there is no response left to fail. */
  constructor(client: Request, auth: unknown, onError: (error: unknown) => void) {
    this.#client = client;
    this.#onError = onError;
    this.request = requestPort(client, auth);
    this.response = new FetchResponse(client.method, {
      onDestroy: () => this.#sink?.destroy(),
      onFlow: () => this.#sink?.flowAgain(),
      onClosed: () => this.#connectionClosed(),
      onEvent: (event) => (event === 'close' ? this.#cutOff() : this.#wake()),
    });
    client.signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  isGone(): boolean {
    return this.#isGone || this.#client.signal.aborted;
  }

  /** The handler's request has the body as bytes. */
  isBodyLost(): boolean {
    return false;
  }

  /** A handler has nothing to cut but its own answer, which fails then. */
  isCutHere(): boolean {
    return false;
  }

  async readBody(limit: number): Promise<BodyPort | BodyFailure> {
    const body = await FetchBody.read(this.#client, this.request, limit);
    if (body instanceof FetchBody) this.#body = body;
    // Nobody reads it, but the host waits for a response.
    if (body === 'aborted') this.refuse(400, '');
    return body;
  }

  dropBody(): void {
    this.#body = undefined;
  }

  redirect(sink: ResponseSink): Originals {
    this.#sink = sink;
    return this.response;
  }

  refuse(status: number, json: string): void {
    this.response.setHeader('content-type', 'application/json');
    this.response.writeHead(status);
    this.response.end(Buffer.from(json));
  }

  /**
   * Asks the handler. What it throws is the response's failure, as it would be without the
   * pipeline.
   */
  async forward(handle: Handle): Promise<void> {
    const { signal } = this.#handlers;
    try {
      await this.#pass(
        await handle(handlersRequest(this.#client, this.request, this.#body, signal)),
      );
    } catch (error) {
      this.fail(error);
    }
    // Nobody reads it, but the host waits for a response.
    if (this.#handler === 'cut off') this.response.end();
  }

  fail(error: unknown): void {
    if (this.#handler === 'cut off') return;
    if (this.response.over) this.#onError(error);
    else this.response.destroy(error);
  }

  async #pass(response: Response): Promise<void> {
    const sink = this.#sink;
    if (sink === undefined) return;
    if (!isResponse(response)) throw notAResponse(response);
    this.response.take(response);
    sink.takeHead(response.statusText === '' ? undefined : response.statusText, false);
    if (response.body !== null) {
      sink.flush();
      await this.#pump(response.body.getReader(), sink);
    }
    if (this.#handler === 'cut off') return;
    this.#handler = 'done';
    sink.end(NOTHING, undefined);
  }

  /** Reads no faster than the client does, and than the messages are looked at. */
  async #pump(reader: ReadableStreamDefaultReader<Uint8Array>, sink: ResponseSink): Promise<void> {
    this.#reader = reader;
    if (this.#handler === 'cut off') return this.#stopReading();
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      const { buffer, byteOffset, byteLength } = read.value;
      const flows = sink.write(Buffer.from(buffer, byteOffset, byteLength), undefined);
      if (!flows) await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  #stopReading(): void {
    // A stream that fails to stop is no failure of anybody who waits.
    this.#reader?.cancel().catch(() => {});
  }

  /** The client left, or has all of the response. In a step the handler does not learn of it. */
  #connectionClosed(): void {
    this.#isGone = true;
    this.#client.signal.removeEventListener('abort', this.#onAbort);
    if (this.#sink?.close() !== true) this.#cutOff();
  }

  /** Tells a handler that is not done that nobody waits for it any more. */
  #cutOff(): void {
    if (this.#handler !== 'running') return;
    this.#handler = 'cut off';
    this.#handlers.abort();
    this.#stopReading();
    this.#wake();
  }
}

/** Not by its class: hosts and frameworks bring their own. */
function isResponse(value: unknown): value is Response {
  return (
    typeof value === 'object' &&
    value !== null &&
    'status' in value &&
    'headers' in value &&
    'body' in value
  );
}

function notAResponse(value: unknown): InterlockError {
  const message = `gateFetch(): the handler must return a Response; it returned ${showValue(value)}`;
  return new InterlockError('ERR_INTERLOCK_CONFIG', message);
}

/** How many bytes wait for a client that does not read, before the handler has to wait too. */
const HIGH_WATER_MARK = 16 * 1024;

interface ResponseListeners {
  /** The client can take more. */
  onFlow(): void;
  /** The client does not read on, or the response is complete. */
  onClosed(): void;
  /** The pipeline cuts the response off. */
  onDestroy(): void;
  /** The pipeline calls an event out to whoever answers: `drain` or `close`. */
  onEvent(event: string): void;
}

/**
 * The `Response` that the client is given: made when its headers go, and written to as Node's is.
 */
class FetchResponse implements ResponsePort, Originals {
  readonly req: { readonly method: string };
  statusCode = 200;
  /** Rejects where the response was cut off before its headers went. */
  readonly made: Promise<Response>;
  readonly #listeners: ResponseListeners;
  #headers = new Headers();
  #reason: string | undefined;
  #make!: (response: Response) => void;
  #refuse!: (error: unknown) => void;
  #body: ReadableStreamDefaultController<Uint8Array> | undefined;
  #over = false;

  constructor(method: string, listeners: ResponseListeners) {
    this.req = { method };
    this.#listeners = listeners;
    this.made = new Promise((resolve, reject) => {
      this.#make = resolve;
      this.#refuse = reject;
    });
  }

  /** Nothing can be written any more. */
  get over(): boolean {
    return this.#over;
  }

  /** Takes over the status and headers of the handler's response. */
  take({ status, headers }: Response): void {
    this.statusCode = status;
    this.#headers = new Headers(headers);
  }

  getHeader(name: string): string | undefined {
    return this.#headers.get(name) ?? undefined;
  }

  setHeader(name: string, value: number | string): void {
    this.#headers.set(name, String(value));
  }

  hasHeader(name: string): boolean {
    return this.#headers.has(name);
  }

  removeHeader(name: string): void {
    this.#headers.delete(name);
  }

  writeHead(status: number, reason?: string): void {
    this.statusCode = status;
    this.#reason = reason;
  }

  flushHeaders(): void {
    this.#open();
  }

  write(bytes: Uint8Array, done?: Done): boolean {
    const body = this.#open();
    if (done !== undefined) queueMicrotask(done);
    if (this.#over) return true;
    // A copy: the reader may write to it or transfer it, and a cache may have the original.
    if (bytes.length > 0) body.enqueue(new Uint8Array(bytes));
    return (body.desiredSize ?? 0) > 0;
  }

  end(bytes?: Uint8Array): void {
    if (this.#over) return;
    this.#over = true;
    // In one piece, so that the host can state its length.
    if (this.#body === undefined)
      this.#makeWith(bytes === undefined ? null : new Uint8Array(bytes));
    else {
      if (bytes !== undefined) this.#body.enqueue(new Uint8Array(bytes));
      this.#body.close();
    }
    queueMicrotask(() => this.#listeners.onClosed());
  }

  emit(event: string): boolean {
    this.#listeners.onEvent(event);
    return true;
  }

  onceFinished(done: () => void): void {
    queueMicrotask(done);
  }

  /** A handler's headers come all at once, with its response. */
  keepHeaders(): void {}

  destroy(error: unknown = new Error('the response was cut off')): void {
    if (this.#over) return;
    this.#over = true;
    this.#listeners.onDestroy();
    if (this.#body === undefined) this.#refuse(error);
    else this.#body.error(error);
    this.#listeners.onClosed();
  }

  #open(): ReadableStreamDefaultController<Uint8Array> {
    if (this.#body !== undefined) return this.#body;
    let opened!: ReadableStreamDefaultController<Uint8Array>;
    const source = {
      start: (controller: ReadableStreamDefaultController<Uint8Array>) => {
        opened = controller;
      },
      pull: () => this.#listeners.onFlow(),
      cancel: () => {
        this.#over = true;
        this.#listeners.onClosed();
      },
    };
    const size = (bytes: Uint8Array) => bytes.byteLength;
    const stream = new ReadableStream(source, { highWaterMark: HIGH_WATER_MARK, size });
    this.#body = opened;
    this.#makeWith(stream);
    return opened;
  }

  #makeWith(body: ReadableStream<Uint8Array> | Uint8Array<ArrayBuffer> | null): void {
    const init = {
      status: this.statusCode,
      headers: this.#headers,
      statusText: this.#reason ?? '',
    };
    // "The server MUST NOT send content in the response" to HEAD (RFC 9110, section 9.3.2).
    const isHead = this.req.method === 'HEAD';
    if (isHead && body instanceof ReadableStream) void body.cancel();
    this.#make(new Response(isHead ? null : body, init));
  }
}

type StreamBytes = Uint8Array<ArrayBuffer>;
type StreamReader = ReadableStreamDefaultReader<Uint8Array>;

/** A `Request`'s body, read once. The handler is given another request, with these bytes. */
class FetchBody implements BodyPort {
  readonly value: unknown;
  readonly text: string;
  readonly others: readonly JsonText[] = [];
  bytes: StreamBytes;

  private constructor({ value, text }: JsonText, bytes: StreamBytes) {
    this.value = value;
    this.text = text;
    this.bytes = bytes;
  }

  /** @throws TypeError where somebody has read the body before. */
  static async read(
    request: Request,
    port: RequestPort,
    limit: number,
  ): Promise<FetchBody | BodyFailure> {
    if (request.bodyUsed || request.body?.locked) {
      throw new TypeError('the body of a request was read before gateFetch() was given it');
    }
    const unfit = unfitMedia(port) ?? unfitBytes(port, limit);
    if (unfit !== undefined) {
      if (request.body !== null) dropRest(request.body.getReader());
      return unfit;
    }
    const bytes = await readAll(request, limit);
    if (bytes === 'aborted') return bytes;
    if (bytes === 'too-large') return tooLarge(limit);
    const parsed = parseBody(bytes);
    return 'status' in parsed ? parsed : new FetchBody(parsed, bytes);
  }

  replace({ text }: Amended): void {
    this.bytes = new TextEncoder().encode(text);
  }
}

async function readAll(
  { body }: Request,
  limit: number,
): Promise<StreamBytes | 'too-large' | 'aborted'> {
  if (body === null) return new Uint8Array(0);
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = body.getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      size += read.value.length;
      if (size > limit) {
        dropRest(reader);
        return 'too-large';
      }
      chunks.push(read.value);
    }
  } catch {
    return 'aborted';
  }
  return joined(chunks, size);
}

/** Reads on beside the answer, for a while: as {@link REST} says. */
function dropRest(reader: StreamReader): void {
  const drop = async (): Promise<void> => {
    let left = REST.bytes;
    for (let read = await reader.read(); !read.done && left > 0; read = await reader.read())
      left -= read.value.length;
    await stop();
  };
  const stop = (): Promise<void> => {
    clearTimeout(timer);
    return reader.cancel();
  };
  const ignore = (): void => {};
  const timer = setTimeout(() => void stop().catch(ignore), REST.ms);
  timer.unref();
  void drop().catch(() => clearTimeout(timer));
}

function joined(chunks: readonly Uint8Array[], size: number): StreamBytes {
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

/** What the pipeline sees of a `Request`, and what it makes of its headers. */
function requestPort(request: Request, auth: unknown): RequestPort {
  const headers: Record<string, string> = Object.create(null);
  for (const [name, value] of request.headers) headers[name] = value;
  return { method: request.method, url: request.url, headers, auth };
}

/**
 * The request that the handler is given: the client's, with the headers and the body that the
 * pipeline left.
 */
function handlersRequest(
  request: Request,
  port: RequestPort,
  body: FetchBody | undefined,
  signal: AbortSignal,
): Request {
  const { method, url } = request;
  const headers = headersOf(port);
  if (body !== undefined && headers.has('content-length')) {
    headers.set('content-length', String(body.bytes.length));
  }
  const init = { method, headers, signal };
  const made = new Request(
    url,
    body === undefined ? { ...init, ...unreadBody(request) } : { ...init, body: body.bytes },
  );
  // Where `withMcpAuth()` of `mcp-handler` puts it, and looks for it.
  if (port.auth !== undefined) Object.assign(made, { auth: port.auth });
  return made;
}

/**
 * Only a POST carries messages (MCP 2025-11-25, Transports): a body that nobody looked at must not
 * reach the MCP server in another way.
 */
function unreadBody({ method, body }: Request): RequestInit {
  if (body === null || ['GET', 'HEAD', 'DELETE'].includes(method)) return {};
  return { body, duplex: 'half' };
}

function headersOf({ headers }: RequestPort): Headers {
  const made = new Headers();
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined) made.set(name, String(value));
  return made;
}
