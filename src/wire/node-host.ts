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

/**
 * Serves one HTTP request: Node's HTTP server or the Fetch API. It hides from the pipeline which of
 * the two that is.
 */
export interface Host {
  readonly request: RequestPort;
  readonly response: ResponsePort;
  /** Whether the client's connection has ended, even where no event has told so yet. */
  isGone(): boolean;
  /** Whether the upstream cannot read the body any more: the stream broke with its connection. */
  isBodyLost(): boolean;
  /** Whether our side ended the connection: a handler that destroys its socket cannot answer. */
  isCutHere(): boolean;
  /** Reads a POST's body of at most `limit` bytes. */
  readBody(limit: number): MaybePromise<BodyPort | BodyFailure>;
  /** Frees the body that was put back: no upstream will read it. */
  dropBody(): void;
  /** Leads the upstream's calls into a sink. The returned methods lead to the client. */
  redirect(sink: ResponseSink): Originals;
  /** Answers a request that never enters the pipeline. */
  refuse(status: number, json: string): void;
}

/** A response that the pipeline can send or cut off. */
export interface ResponsePort extends HeadPort {
  destroy(): unknown;
}

/** Called when the bytes were sent, or with an error when they cannot be. */
export type Done = ((error?: Error | null) => void) | undefined;

/** The response's own methods, which lead to the client. */
export interface Originals {
  writeHead(status: number, message?: string): unknown;
  write(bytes: Uint8Array, done?: Done): boolean;
  end(bytes?: Uint8Array): unknown;
  flushHeaders(): void;
  emit(event: string, ...args: unknown[]): boolean;
  /** Calls back once the whole response was sent, or the client has left. */
  onceFinished(done: () => void): void;
  /** Other headers are sent, and the upstream shall still see those that it has set so far. */
  keepHeaders(): void;
}

/** Takes the upstream's calls of its response. */
export interface ResponseSink {
  readonly headTaken: boolean;
  readonly ended: boolean;
  /** Other headers were sent before the upstream gave its own, which go nowhere. */
  readonly headLost: boolean;
  /** A write returned `false`, and `drain` was not emitted since. */
  readonly owesDrain: boolean;
  /** The client left without the upstream's notice. */
  readonly departed: boolean;
  /** The upstream does not know yet that the client left. */
  readonly closeWithheld: boolean;
  /**
   * The upstream's status and headers are set on the response.
   *
   * @param withEnd whether `end` is its first call: then Node would state the body's length
   */
  takeHead(statusMessage: string | undefined, withEnd: boolean): void;
  write(bytes: Buffer, done: Done): boolean;
  /** `last` may be empty. */
  end(last: Buffer, done: Done): void;
  flush(): void;
  /** The client, or a middleware in front, can take more. */
  flowAgain(): void;
  /** `drain` is being emitted. */
  drained(): void;
  /** The connection closed. `true` where the upstream must not notice. */
  close(): boolean;
  /** The upstream destroyed the response. */
  destroy(): void;
}

/** Node's own methods, each in the one form that we call. */
interface Before {
  readonly writeHead: Originals['writeHead'];
  readonly write: Originals['write'];
  readonly end: Originals['end'];
  readonly flushHeaders: Originals['flushHeaders'];
  readonly emit: Originals['emit'];
  on(event: string, listener: ResponseListener): unknown;
  destroy(error?: Error): unknown;
}

/** Node's request and response. The response's patched methods find their sink here. */
export class NodeHost implements Host, Originals {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Takes the upstream's calls, which begin after `redirect()`. */
  sink!: ResponseSink;
  /** The response's own `destroyed`, which the upstream may not see. */
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

  /**
   * A client that leaves ends its side, which the socket reads, or breaks the connection, which is
   * an error of the socket. Where there was neither, code of this process destroyed the socket.
   */
  isCutHere(): boolean {
    const { httpVersionMajor, socket } = this.request;
    // Streams of HTTP/2 share one socket, which tells nothing of a single stream.
    if (httpVersionMajor !== 1 || socket?.destroyed !== true || socket.readableEnded) return false;
    const failure: NodeJS.ErrnoException | null = socket.errored ?? null;
    const isOfTheConnection = failure?.syscall === 'read' || failure?.syscall === 'write';
    // `HPE_` is an error of Node's parser: the client sent something else than HTTP.
    return !isOfTheConnection && failure?.code?.startsWith('HPE_') !== true;
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

  /**
   * Answers at once, without reading the rest of the request. In HTTP/1 the connection must end
   * then: we cannot tell where its next request would begin.
   */
  refuse(status: number, json: string): void {
    const [req, res, answer] = [this.request, this.response, Buffer.from(json)];
    const headers = { 'content-type': 'application/json', 'content-length': answer.length };
    if (req.complete || req.destroyed || req.httpVersionMajor !== 1) {
      res.writeHead(status, headers).end(answer);
      return;
    }
    res.writeHead(status, { ...headers, connection: 'close' }).write(answer);
    dropRest(req, () => res.end());
  }

  writeHead(status: number, reason?: string): void {
    this.#before.writeHead.call(this.response, status, reason);
    if (this.sink.headLost) Object.assign(this.response, unsentHeaders(this.#kept ?? {}));
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

  /** @param isEnd whether `end` is the upstream's first call */
  needHead(isEnd = false): void {
    if (this.sink.headTaken) return;
    this.#withEnd = isEnd;
    // Through the response, as Node does: a middleware behind us may have patched `writeHead`.
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
 * Redirects a response's methods into a sink. It patches the response itself, since a router keeps
 * its `res` and takes no other. The upstream sees `headersSent`, `writableEnded` and `destroyed` as
 * on an unpatched response.
 *
 * All responses share the methods. Express gives each response its own hidden class, so that V8
 * adds properties slowly. To redefine `destroyed` first turns it into a dictionary, which grows
 * fast.
 *
 * @throws InterlockError `ERR_INTERLOCK_MOUNT` where it was patched for another request object
 */
function patchResponse(res: ServerResponse, host: NodeHost): void {
  if (PATCH in res) {
    throw new InterlockError(
      'ERR_INTERLOCK_MOUNT',
      'the request object was replaced between two of the middlewares: give both the same one',
    );
  }
  Object.defineProperties(res, VISIBLE_STATE);
  Object.assign(res, METHODS);
  (res as Patched)[PATCH] = host;
  // A compressing middleware in front leads listeners of `drain` to its own stream, which drains in
  // place of the response. We listen there, and the upstream's listeners stay on the response.
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
    const done = callbackIn(undefined, encoding, callback);
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

/** The headers of `writeHead`: an object, a flat list of names and values, or a list of pairs. */
type HeaderList =
  | OutgoingHttpHeaders
  | OutgoingHttpHeader[]
  | (readonly [string, OutgoingHttpHeader])[]
  | undefined;

/** Sets the headers of `writeHead`. A name that is listed twice keeps both values. */
function setResponseHeaders(res: ServerResponse, headers: HeaderList): void {
  if (!headers) return;
  const named: string[] = [];
  if (!Array.isArray(headers)) {
    for (const name of Object.keys(headers)) setOnce(res, named, name, headers[name]);
  } else if (Array.isArray(headers[0])) {
    for (const [name, value] of headers as [string, OutgoingHttpHeader][])
      setOnce(res, named, name, value);
  } else {
    for (let i = 0; i < headers.length; i += 2)
      setOnce(res, named, String(headers[i]), headers[i + 1] as OutgoingHttpHeader);
  }
}

/** @param named the names so far, in lower case */
function setOnce(
  res: ServerResponse,
  named: string[],
  name: string,
  value: OutgoingHttpHeader | undefined,
): void {
  if (value === undefined) return;
  const text = typeof value === 'number' ? String(value) : value;
  const key = name.toLowerCase();
  if (named.includes(key)) res.appendHeader(name, text);
  else res.setHeader(name, text);
  named.push(key);
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
 * Header methods for an upstream whose response was answered by us. It still sets and reads its
 * headers without an error. They tell how to read its body, and are not sent.
 */
function unsentHeaders(kept: OutgoingHttpHeaders): Partial<Record<keyof ServerResponse, unknown>> {
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
  // A client that left reads nothing, and the upstream must not take that for its own failure.
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

/** The first of them that is a function. */
function callbackIn(chunk: unknown, encoding: unknown, callback: unknown): Done {
  if (typeof chunk === 'function') return chunk as Done;
  if (typeof encoding === 'function') return encoding as Done;
  return typeof callback === 'function' ? (callback as Done) : undefined;
}

function refuseWrite(code: string, done: Done): false {
  if (done !== undefined) process.nextTick(done, nodeError(code, 'The response has ended'));
  return false;
}

/** The error that Node gives for the same misuse, with its code. */
function nodeError(code: string, message: string, Kind: ErrorConstructor = Error): Error {
  return Object.assign(new Kind(message), { code });
}
