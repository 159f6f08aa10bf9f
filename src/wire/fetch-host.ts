import { configError } from '../basics/errors.ts';
import { showValue } from '../basics/options.ts';
import {
  type Amended,
  type BodyFailure,
  type BodyPort,
  NOTHING,
  parseBody,
  REST,
  tooLarge,
  unfitBytes,
  unfitMedia,
} from './body.ts';
import type { RequestPort } from './headers.ts';
import { unreadable } from './json-rpc.ts';
import type { JsonText } from './json-text.ts';
import type { Host, OnSent, Originals, ResponsePort, ResponseSink } from './node-host.ts';
import type { MaybePromise } from './task-line.ts';
import { type ResponseWatcher, type WitnessLimits, watchFetched } from './witness.ts';

/** A handler of the Fetch API. */
type Handle = (request: Request) => Response | Promise<Response>;

/**
 * A client's `Request` and its `Response`. The handler gets another request, and its response runs
 * through the pipeline.
 */
export class FetchHost implements Host {
  readonly request: RequestPort;
  readonly response: FetchResponse;
  /** The Fetch API hides which version of HTTP it is. */
  readonly unserved = undefined;
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
  /** Shows the response to those that watch it. */
  #show = (response: Response): MaybePromise<Response> => response;

  /** @param onError called for a handler that fails after its response has ended */
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

  get source(): Request {
    return this.#client;
  }

  /** What the client gets. Rejects where the handler throws before its response has begun. */
  get answer(): Promise<Response> {
    return this.response.made.then((response) => this.#show(response));
  }

  get isGone(): boolean {
    return this.#isGone || this.#client.signal.aborted;
  }

  /** The handler's request carries the body as bytes, so no stream can break. */
  isBodyLost(): boolean {
    return false;
  }

  /** A handler has no connection to destroy. */
  isCutHere(): boolean {
    return false;
  }

  async readBody(limit: number): Promise<BodyPort | BodyFailure> {
    const body = await FetchBody.read(this.#client, this.request, limit);
    if (body instanceof FetchBody) this.#body = body;
    // The client has left, but the host still waits for a response.
    if (body === 'aborted') this.refuse(400, '');
    return body;
  }

  peekBody(limit: number): Promise<BodyPort | BodyFailure> {
    const reading = async (): Promise<BodyPort | BodyFailure> =>
      FetchBody.read(this.#client.clone(), this.request, limit);
    return reading().catch(() => 'aborted');
  }

  dropBody(): void {
    this.#body = undefined;
  }

  watch(watcher: ResponseWatcher, limits: WitnessLimits, onError: (error: unknown) => void): void {
    const inner = this.#show;
    this.#show = async (response) => watchFetched(await inner(response), watcher, limits, onError);
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

  /** Calls the handler. Where it throws, the response fails, as it would without the pipeline. */
  async forward(handle: Handle): Promise<void> {
    const { signal } = this.#handlers;
    if (this.#sink === undefined) {
      // No middleware has a part in it: it gets the client's request, and the client its response.
      const { auth } = this.request;
      if (auth !== undefined) Object.assign(this.#client, { auth });
      this.response.pass((async () => handle(this.#client))());
      return;
    }
    try {
      await this.#pass(
        await handle(handlersRequest(this.#client, this.request, this.#body, signal)),
      );
    } catch (error) {
      if (!this.#isBegun) this.fail(error);
      else {
        // The client has a response, which would break off without a word.
        this.#onError(error);
        await this.#pass(new Response(null, { status: 500 }));
      }
    }
    // The client has left, but the host still waits for a response.
    if (this.#handler === 'cut off') this.response.end();
  }

  fail(error: unknown): void {
    if (this.#handler === 'cut off') return;
    if (this.response.over) this.#onError(error);
    else this.response.destroy(error);
  }

  /** Whether the client waits on a stream of ours for an answer that has not begun. */
  get #isBegun(): boolean {
    const { opened = false, headTaken = true } = this.#sink ?? {};
    return opened && !headTaken && !this.response.over && this.#handler === 'running';
  }

  async #pass(response: Response): Promise<void> {
    const sink = this.#sink;
    if (sink === undefined) return;
    if (!isResponse(response)) {
      throw configError(
        `gateFetch(): the handler must return a Response; it returned ${showValue(response)}`,
      );
    }
    const fault = faultOf(response);
    if (fault !== undefined) {
      this.#onError(fault);
      void response.body?.cancel().catch(() => {});
      return this.#pass(Response.json(unreadable(null), { status: 502 }));
    }
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

  /** Reads no faster than the client reads, and than the filters work. */
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
    // No caller waits for the stream, so its failure to stop concerns none.
    this.#reader?.cancel().catch(() => {});
  }

  /** The client left, or has all of the response. During a step the handler must not notice. */
  #connectionClosed(): void {
    this.#isGone = true;
    this.#client.signal.removeEventListener('abort', this.#onAbort);
    if (this.#sink?.close() !== true) this.#cutOff();
  }

  /** Aborts a handler that is still running: the client has left. */
  #cutOff(): void {
    if (this.#handler !== 'running') return;
    this.#handler = 'cut off';
    this.#handlers.abort();
    this.#stopReading();
    this.#wake();
  }
}

/** Not by its class: hosts and frameworks bring a `Response` class of their own. */
function isResponse(value: unknown): value is Response {
  return (
    typeof value === 'object' &&
    value !== null &&
    'status' in value &&
    'headers' in value &&
    'body' in value
  );
}

/** Why no host can send the response: `Response.error()`, status 101, or 204 with a body. */
function faultOf({ status, statusText, headers, body }: Response): unknown {
  try {
    new Response(body === null ? null : '', { status, statusText, headers });
  } catch (error) {
    return new Error(`gateFetch(): no client can be sent the handler's response, ${status}`, {
      cause: error,
    });
  }
}

/** How many bytes may wait for a slow client before the handler must wait too. */
const HIGH_WATER_MARK = 16 * 1024;

interface ResponseListeners {
  /** The client can take more. */
  onFlow(): void;
  /** The client reads no more, or the response is complete. */
  onClosed(): void;
  /** The pipeline cuts the response off. */
  onDestroy(): void;
  /** The pipeline emits an event to the handler's side: `drain` or `close`. */
  onEvent(event: string): void;
}

/** The client's `Response`, made when its headers are sent, and written to like Node's. */
class FetchResponse implements ResponsePort, Originals {
  readonly req: { readonly method: string };
  statusCode = 200;
  /** Rejects where the response was cut off before its headers were sent. */
  readonly made: Promise<Response>;
  readonly #listeners: ResponseListeners;
  #headers = new Headers();
  #reason: string | undefined;
  #make!: (response: MaybePromise<Response>) => void;
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

  /** Answers with a response that no middleware changes. */
  pass(response: Promise<Response>): void {
    this.#make(response);
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

  getHeaderNames(): readonly string[] {
    return [...this.#headers.keys()];
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

  write(bytes: Uint8Array, done?: OnSent): boolean {
    const body = this.#open();
    if (done !== undefined) queueMicrotask(done);
    if (this.#over) return true;
    // A copy: the reader may change or transfer the bytes, and a cache may hold them.
    if (bytes.length > 0) body.enqueue(new Uint8Array(bytes));
    return (body.desiredSize ?? 0) > 0;
  }

  end(bytes?: Uint8Array): void {
    if (this.#over) return;
    this.#over = true;
    // A body in one piece, so that the host can state its length.
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

  /** Nothing to keep: a handler's headers come all at once, with its response. */
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
    try {
      this.#make(new Response(isHead ? null : body, init));
    } catch (error) {
      // Else the host would wait for ever.
      this.#refuse(error);
      throw error;
    }
  }
}

type StreamBytes = Uint8Array<ArrayBuffer>;
type StreamReader = ReadableStreamDefaultReader<Uint8Array>;

/** The body of the client's `Request`, read once. The handler's request gets these bytes. */
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

  /** @throws TypeError where other code has read the body before */
  static async read(
    request: Request,
    port: RequestPort,
    limit: number,
  ): Promise<FetchBody | BodyFailure> {
    if (request.bodyUsed || request.body?.locked) {
      throw new TypeError(
        'the body of a request was read before gateFetch() was given it: read a clone() of it',
      );
    }
    const unfit = unfitMedia(port) ?? unfitBytes(port, limit);
    if (unfit !== undefined) {
      if (request.body !== null) cancelRest(request.body.getReader());
      return unfit;
    }
    const bytes = await readAll(request, limit);
    if (!(bytes instanceof Uint8Array)) return bytes;
    const parsed = parseBody(bytes);
    return 'status' in parsed ? parsed : new FetchBody(parsed, bytes);
  }

  replace({ text }: Amended): void {
    this.bytes = new TextEncoder().encode(text);
  }
}

async function readAll({ body }: Request, limit: number): Promise<StreamBytes | BodyFailure> {
  if (body === null) return new Uint8Array(0);
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = body.getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      size += read.value.length;
      if (size > limit) {
        cancelRest(reader);
        return tooLarge(limit);
      }
      chunks.push(read.value);
    }
  } catch {
    return 'aborted';
  }
  return joined(chunks, size);
}

/** Reads and drops the rest of a body while the answer is sent, up to {@link REST}. */
function cancelRest(reader: StreamReader): void {
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

/** The request that the pipeline reads, with headers that it may change. */
function requestPort(request: Request, auth: unknown): RequestPort {
  const headers: Record<string, string> = Object.create(null);
  for (const [name, value] of request.headers) headers[name] = value;
  return { method: request.method, url: request.url, headers, auth };
}

/** The handler's request: the client's, with the headers and the body that the pipeline left. */
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
  // `withMcpAuth()` of `mcp-handler` puts it there, and reads it there.
  if (port.auth !== undefined) Object.assign(made, { auth: port.auth });
  return made;
}

/**
 * Passes on a body that the pipeline did not read. A GET or a DELETE loses its body: it would bring
 * messages to the MCP server that no gate judged. Only a POST carries them (MCP 2025-11-25,
 * Transports).
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
