import { EventEmitter } from 'node:events';
import type {
  IncomingMessage,
  OutgoingHttpHeader,
  OutgoingHttpHeaders,
  ServerResponse,
} from 'node:http';
import { InterlockError } from '../errors.ts';
import { type BodyFailure, type BodyPort, dropRest, RequestBody } from './body.ts';
import type { HeadPort, RequestPort } from './headers.ts';
import type { MaybePromise } from './task-line.ts';

/** A response that the pipeline can answer with. */
export interface ResponsePort extends HeadPort {
  /** Cuts it off where it is. */
  destroy(): unknown;
}

/** Called when bytes are on their way, or cannot be any more. */
export type Done = ((error?: Error | null) => void) | undefined;

/** The response's own methods, as they were before they were patched. */
export interface Originals {
  writeHead(status: number, message?: string): unknown;
  write(bytes: Uint8Array, done?: Done): boolean;
  end(bytes?: Uint8Array): unknown;
  flushHeaders(): void;
  emit(event: string, ...args: unknown[]): boolean;
  /** Calls back once all of it is on its way to the client, or nobody is left to read it. */
  onceFinished(done: () => void): void;
  /** Other headers go than those that the upstream has set so far, which it still finds there. */
  keepHeaders(): void;
}

/** Where the upstream's calls go instead. */
export interface ResponseSink {
  readonly headTaken: boolean;
  readonly ended: boolean;
  /** Other headers went out before the upstream gave its own, which have nowhere to go any more. */
  readonly headLost: boolean;
  /** A write was answered with `false`, and `drain` was not emitted since. */
  readonly owesDrain: boolean;
  readonly departed: boolean;
  readonly closeWithheld: boolean;
  /**
   * The status and headers are on the response. `withEnd` where nothing but `end` made them due:
   * Node states the length then.
   */
  takeHead(statusMessage: string | undefined, withEnd: boolean): void;
  write(bytes: Buffer, done: Done): boolean;
  /** `last` is empty where nothing was given. */
  end(last: Buffer, done: Done): void;
  flush(): void;
  /** Whoever stands in front can take more. */
  flowAgain(): void;
  /** `drain` is being emitted. */
  drained(): void;
  /** The connection closed. `true` keeps the event from the upstream. */
  close(): boolean;
  /** The upstream destroyed the response by itself. */
  destroy(): void;
}

/**
 * One HTTP request and its response, whatever serves them: all that the pipeline knows of Node or
 * of the Fetch API.
 */
export interface Host {
  readonly request: RequestPort;
  readonly response: ResponsePort;
  /** Whether the client's connection has ended, told or not. */
  isGone(): boolean;
  /**
   * Whether no upstream can read the body any more: it is a stream, and broke with its connection.
   */
  isBodyLost(): boolean;
  /** Whether this side ended it: a handler that destroys its socket gives no answer any more. */
  isCutHere(): boolean;
  /** Reads the body of a POST, at most `limit` bytes of it. */
  readBody(limit: number): MaybePromise<BodyPort | BodyFailure>;
  /** No upstream will read the body that was put back, and an open connection must not keep it. */
  dropBody(): void;
  /** Leads what the upstream answers into a sink; what is returned leads to the client. */
  redirect(sink: ResponseSink): Originals;
  /** Answers a request that no part of the pipeline has seen. */
  refuse(status: number, json: string): void;
}

/**
 * Answers at once, whatever is still to come of the request. Its connection ends then: nobody knows
 * where the next request on it begins.
 */
function refuse(req: IncomingMessage, res: ServerResponse, status: number, answer: Buffer): void {
  const headers = { 'content-type': 'application/json', 'content-length': answer.length };
  if (req.complete || req.destroyed || req.httpVersionMajor !== 1) {
    res.writeHead(status, headers).end(answer);
    return;
  }
  res.writeHead(status, { ...headers, connection: 'close' }).write(answer);
  dropRest(req, () => res.end());
}

/**
 * A client that leaves ends its side, which the socket has read then, or breaks the connection,
 * which the socket has failed with. Where neither happened, somebody here destroyed it.
 */
function isCutHere({ httpVersionMajor, socket }: IncomingMessage): boolean {
  // Streams of HTTP/2 share one socket, which says nothing of a single one.
  if (httpVersionMajor !== 1 || socket?.destroyed !== true || socket.readableEnded) return false;
  const failure: NodeJS.ErrnoException | null = socket.errored ?? null;
  const isOfTheConnection = failure?.syscall === 'read' || failure?.syscall === 'write';
  // The parser's own errors: what the client sent after its request is no HTTP.
  return !isOfTheConnection && failure?.code?.startsWith('HPE_') !== true;
}

/** Node's methods, in the one of their forms that is used here. */
interface Before {
  readonly writeHead: Originals['writeHead'];
  readonly write: Originals['write'];
  readonly end: Originals['end'];
  readonly flushHeaders: Originals['flushHeaders'];
  readonly emit: Originals['emit'];
  on(event: string, listener: ResponseListener): unknown;
  destroy(error?: Error): unknown;
}

/**
 * Node's own request and response, and what the patched methods of the response work with: where
 * they lead now, and where they led before.
 */
export class NodeHost implements Host, Originals {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Where the upstream's calls go. There are none before `redirect()`. */
  sink!: ResponseSink;
  /** What the response says of itself, which may be kept from the upstream. */
  destroyed: boolean;
  readonly #before: Before;
  #kept: OutgoingHttpHeaders | undefined;
  #withEnd = false;

  constructor(req: IncomingMessage, res: ServerResponse) {
    const { writeHead, write, end, flushHeaders, emit, on, destroy } = res;
    this.#before = { writeHead, write, end, flushHeaders, emit, on, destroy } as Before;
    this.request = req;
    this.response = res;
    this.destroyed = res.destroyed;
  }

  isGone(): boolean {
    return this.request.socket?.destroyed === true;
  }

  isBodyLost(): boolean {
    const { destroyed, readableEnded } = this.request;
    return destroyed && !readableEnded;
  }

  isCutHere(): boolean {
    return isCutHere(this.request);
  }

  readBody(limit: number): MaybePromise<BodyPort | BodyFailure> {
    return RequestBody.read(this.request, limit);
  }

  dropBody(): void {
    this.request.resume();
  }

  redirect(sink: ResponseSink): Originals {
    this.sink = sink;
    patchResponse(this.response, this);
    return this;
  }

  refuse(status: number, json: string): void {
    refuse(this.request, this.response, status, Buffer.from(json));
  }

  writeHead(status: number, reason?: string): void {
    this.#before.writeHead.call(this.response, status, reason);
    if (this.sink.headLost) Object.assign(this.response, headersOfNobody(this.#kept ?? {}));
  }

  write(bytes: Uint8Array, done?: Done): boolean {
    const { write } = this.#before;
    const res = this.response;
    return done === undefined ? write.call(res, bytes) : write.call(res, bytes, done);
  }

  end(bytes?: Uint8Array): void {
    this.#before.end.call(this.response, bytes);
  }

  flushHeaders(): void {
    this.#before.flushHeaders.call(this.response);
  }

  emit(event: string, ...args: unknown[]): boolean {
    return this.#before.emit.call(this.response, event, ...args);
  }

  on(event: string, listener: ResponseListener): unknown {
    return this.#before.on.call(this.response, event, listener);
  }

  destroy(error?: Error): unknown {
    return this.#before.destroy.call(this.response, error);
  }

  onceFinished(done: () => void): void {
    if (this.response.writableFinished) process.nextTick(done);
    else this.response.once('finish', done);
  }

  keepHeaders(): void {
    this.#kept = this.response.getHeaders();
  }

  /** `isEnd` where nothing was written before. */
  needHead(isEnd = false): void {
    if (this.sink.headTaken) return;
    this.#withEnd = isEnd;
    // By its name on the response, as Node does: somebody mounted behind may wait for it.
    this.response.writeHead(this.response.statusCode);
  }

  takeHead(reason: string | undefined): void {
    this.sink.takeHead(reason, this.#withEnd);
  }
}

const PATCH = Symbol('mcp-interlock.patch');
type Patched = ServerResponse & { [PATCH]: NodeHost };
type ResponseListener = (...args: unknown[]) => void;

/**
 * Redirects a response's methods into a sink, in place: a router closes over its `res`, so it
 * cannot be given another one. What the upstream can see of the response (`headersSent`,
 * `writableEnded`, `destroyed`) stays as if nobody had patched it.
 *
 * All responses share the methods. Express gives each response a shape of its own, to which adding
 * a property is slow; redefining `destroyed` first makes a dictionary of it, to which it is not.
 *
 * @throws InterlockError `ERR_INTERLOCK_MOUNT` where it was patched for another request object
 */
function patchResponse(res: ServerResponse, host: NodeHost): void {
  if (PATCH in res) throw patchedBefore();
  Object.defineProperties(res, VISIBLE_STATE);
  Object.assign(res, METHODS);
  (res as Patched)[PATCH] = host;
  // A compressing middleware in front leads `drain` to its own stream, which drains in place of the
  // response; the upstream still waits for the response's.
  if (!Object.hasOwn(res, 'on')) return;
  Object.assign(res, { on: onResponse });
  host.on('drain', () => host.sink.flowAgain());
}

const METHODS = {
  _implicitHeader(this: Patched) {
    this[PATCH].needHead();
  },
  writeHead(this: Patched, status: number, reason?: string | HeaderList, headers?: HeaderList) {
    const host = this[PATCH];
    if (host.sink.headTaken) throw nodeError('ERR_HTTP_HEADERS_SENT', 'Cannot write headers twice');
    host.response.statusCode = status;
    setResponseHeaders(host.response, typeof reason === 'string' ? headers : (reason ?? headers));
    host.takeHead(typeof reason === 'string' ? reason : undefined);
    return this;
  },
  write(this: Patched, chunk: unknown, encoding?: unknown, callback?: unknown) {
    const host = this[PATCH];
    const bytes = toBytes(chunk, encoding);
    const done = callbackIn(encoding, callback);
    if (host.sink.ended) return refuseWrite('ERR_STREAM_WRITE_AFTER_END', done);
    host.needHead();
    return host.sink.write(bytes, done);
  },
  end(this: Patched, chunk?: unknown, encoding?: unknown, callback?: unknown) {
    const host = this[PATCH];
    const given =
      chunk !== undefined && chunk !== null && chunk !== '' && typeof chunk !== 'function';
    const last = given ? toBytes(chunk, encoding) : NOTHING;
    const done = callbackIn(chunk, encoding, callback);
    if (host.sink.ended) {
      refuseWrite(given ? 'ERR_STREAM_WRITE_AFTER_END' : 'ERR_STREAM_ALREADY_FINISHED', done);
      return this;
    }
    host.needHead(true);
    host.sink.end(last, done);
    return this;
  },
  flushHeaders(this: Patched) {
    const host = this[PATCH];
    host.needHead();
    host.sink.flush();
  },
  emit(this: Patched, event: string, ...args: unknown[]) {
    const host = this[PATCH];
    if (event === 'close' && host.sink.close()) return false;
    if (event === 'drain') host.sink.drained();
    return host.emit(event, ...args);
  },
  destroy(this: Patched, error?: Error) {
    const host = this[PATCH];
    host.sink.destroy();
    return host.destroy(error);
  },
};

/**
 * The headers that `writeHead` takes: an object, a flat list of names and values, or a list of
 * pairs.
 */
type HeaderList =
  | OutgoingHttpHeaders
  | OutgoingHttpHeader[]
  | (readonly [string, OutgoingHttpHeader])[]
  | undefined;

/**
 * Sets the headers that `writeHead` was given. In a list, a name that comes twice keeps both
 * values.
 */
function setResponseHeaders(res: ServerResponse, headers: HeaderList): void {
  const named = new Set<string>();
  for (const [name, value] of entriesOf(headers ?? {})) {
    if (value === undefined) continue;
    const text = typeof value === 'number' ? String(value) : value;
    const key = name.toLowerCase();
    if (named.has(key)) res.appendHeader(name, text);
    else res.setHeader(name, text);
    named.add(key);
  }
}

function entriesOf(headers: NonNullable<HeaderList>): [string, OutgoingHttpHeader | undefined][] {
  if (!Array.isArray(headers)) return Object.entries(headers);
  if (Array.isArray(headers[0])) return headers as [string, OutgoingHttpHeader][];
  const entries: [string, OutgoingHttpHeader | undefined][] = [];
  for (let i = 0; i < headers.length; i += 2) {
    entries.push([String(headers[i]), headers[i + 1] as OutgoingHttpHeader]);
  }
  return entries;
}

function onResponse(
  this: ServerResponse,
  event: string,
  listener: ResponseListener,
): ServerResponse {
  if (event === 'drain') EventEmitter.prototype.on.call(this, event, listener);
  else (this as Patched)[PATCH].on(event, listener);
  return this;
}

/**
 * An upstream that answers after it was given up on sees no error of its own making, and the
 * headers that it gives. They say how its body is to be read, and go nowhere.
 */
function headersOfNobody(
  kept: OutgoingHttpHeaders,
): Partial<Record<keyof ServerResponse, unknown>> {
  const headers = new Map<string, unknown>(Object.entries(kept));
  const givenAs = (name: string): unknown => headers.get(name.toLowerCase());
  return {
    setHeader(this: ServerResponse, name: string, value: unknown) {
      headers.set(name.toLowerCase(), value);
      return this;
    },
    appendHeader(this: ServerResponse, name: string, value: unknown) {
      headers.set(name.toLowerCase(), [givenAs(name) ?? [], value].flat());
      return this;
    },
    setHeaders(this: ServerResponse, given: Iterable<[string, unknown]>) {
      for (const [name, value] of given) headers.set(name.toLowerCase(), value);
      return this;
    },
    removeHeader: (name: string) => void headers.delete(name.toLowerCase()),
    getHeader: givenAs,
    hasHeader: (name: string) => headers.has(name.toLowerCase()),
    getHeaderNames: () => [...headers.keys()],
    getHeaders: () => Object.fromEntries(headers),
  };
}

const VISIBLE_STATE: PropertyDescriptorMap = {
  destroyed: {
    ...seen(({ destroyed, sink }) => destroyed && !sink.closeWithheld),
    set(this: Patched, value: boolean) {
      this[PATCH].destroyed = value;
    },
  },
  headersSent: seen(({ sink }) => sink.headTaken),
  writableEnded: seen(({ sink }) => sink.ended),
  // Whoever left will not read it, and the upstream must not take that for a failure of its own.
  writableFinished: seen(
    ({ response: res, sink }) => sink.ended && (plain(res, 'writableFinished') || sink.departed),
  ),
  writableNeedDrain: seen(({ sink }) => sink.owesDrain),
  closed: seen(({ response: res, sink }) => plain(res, 'closed') === true && !sink.closeWithheld),
};

function seen(look: (host: NodeHost) => unknown): PropertyDescriptor {
  return {
    configurable: true,
    get(this: Patched) {
      return look(this[PATCH]);
    },
  };
}

function plain(res: ServerResponse, name: string): unknown {
  return Reflect.get(Object.getPrototypeOf(res) as object, name, res);
}

function patchedBefore(): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_MOUNT',
    'a request object was replaced between two of the middlewares, which must be given the same one',
  );
}

const NOTHING = Buffer.alloc(0);

function toBytes(chunk: unknown, encoding: unknown): Buffer {
  if (typeof chunk === 'string') {
    return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8');
  }
  if (chunk instanceof Uint8Array)
    return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  throw nodeError(
    'ERR_INVALID_ARG_TYPE',
    'A chunk of a response must be a string or a Uint8Array',
    TypeError,
  );
}

function callbackIn(...candidates: unknown[]): Done {
  return candidates.find((candidate) => typeof candidate === 'function') as Done;
}

function refuseWrite(code: string, done: Done): false {
  if (done !== undefined) process.nextTick(done, nodeError(code, 'The response has ended'));
  return false;
}

/** The errors that Node gives for the same misuse, by their codes. */
function nodeError(code: string, message: string, Kind: ErrorConstructor = Error): Error {
  return Object.assign(new Kind(message), { code });
}
