import { EventEmitter } from 'node:events';
import {
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { InterlockError } from '../basics/errors.ts';
import {
  type BodyFailure,
  type BodyPort,
  bytesOf,
  dropRest,
  NOTHING,
  RequestBody,
} from './body.ts';
import { type HeaderList, type HeadPort, pairsOf, type RequestPort } from './headers.ts';
import type { MaybePromise } from './task-line.ts';
import { type ResponseWatcher, type WitnessLimits, watchResponse } from './witness.ts';

/**
 * Serves one HTTP request: Node's HTTP server or the Fetch API. It hides from the pipeline which of
 * the two that is.
 */
export interface Host {
  readonly request: RequestPort;
  readonly response: ResponsePort;
  /** What handlers get: Node's request, or the `Request` of the Fetch API. */
  readonly source: object;
  /** The version of HTTP, where the middlewares cannot serve it. */
  readonly unserved: string | undefined;
  /** Whether the client's connection has ended, even where no event has reported it yet. */
  readonly isGone: boolean;
  /** Whether the upstream cannot read the body any more: the stream broke with its connection. */
  isBodyLost(): boolean;
  /** Whether our side ended the connection: a handler that destroys its socket cannot answer. */
  isCutHere(): boolean;
  /** Reads a POST's body of at most `limit` bytes. */
  readBody(limit: number): MaybePromise<BodyPort | BodyFailure>;
  /** The same for a request that passes as it is: the next reader finds its body unread. */
  peekBody(limit: number): MaybePromise<BodyPort | BodyFailure>;
  /** Frees the body that was put back: no upstream will read it. */
  dropBody(): void;
  /** Shows the response to a watcher. It goes its own way, and no watcher can stop it. */
  watch(watcher: ResponseWatcher, limits: WitnessLimits, onError: (error: unknown) => void): void;
  /** Leads the upstream's calls into a sink. The returned methods lead to the client. */
  redirect(sink: ResponseSink): Originals;
  /** Answers a request that never enters the pipeline. */
  refuse(status: number, json: string): void;
  /** Cuts a request off whose exchange could not be opened. */
  fail(error: unknown, onError: (error: unknown) => void): void;
}

/**
 * A response whose head the pipeline may change until it is sent. The upstream cannot change it any
 * more once it has given its own.
 */
export interface ResponsePort extends HeadPort {
  /** Whether Node refuses a body of another length than stated. */
  readonly strictContentLength?: boolean;
  /** Sends what a compressing middleware in front holds back. */
  flush?(): void;
  /** Cuts the response off. */
  destroy(): unknown;
}

/** Called when the bytes were sent, or with an error when they cannot be. */
export type OnSent = ((error?: Error | null) => void) | undefined;

/** The response's own methods, which lead to the client. */
export interface Originals {
  writeHead(status: number, message?: string): unknown;
  write(bytes: Uint8Array, done?: OnSent): boolean;
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
  /** The client has a stream of ours already, in which the upstream's answer goes on. */
  readonly opened: boolean;
  readonly headTaken: boolean;
  readonly ended: boolean;
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
  write(bytes: Buffer, done: OnSent): boolean;
  /** `last` may be empty. */
  end(last: Buffer, done: OnSent): void;
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
  setHeader(name: string, value: unknown): unknown;
  appendHeader(name: string, value: unknown): unknown;
  setHeaders(headers: unknown): unknown;
  removeHeader(name: string): unknown;
}

/** Node's request and response. The response's patched methods find their sink here. */
export class NodeHost implements Host, Originals, ResponsePort {
  readonly request: IncomingMessage;
  /** These three are there after `redirect()`. */
  before!: Before;
  /** Takes the upstream's calls. */
  sink!: ResponseSink;
  /** The response's own `destroyed`, which the upstream may not see. */
  destroyed!: boolean;
  readonly res: ServerResponse;
  /**
   * A middleware or host in front is at work: what it calls on the response is not the upstream's.
   * Where we answered before the upstream gave its head, the two differ about `headersSent`: a
   * compressing one would write the head once more.
   */
  isInFront = false;
  /** The status of the answer, once the upstream has given its head. */
  #status: number | undefined;
  /** The head went on to Node, and to the middlewares in front: who may change it is theirs. */
  #isHeadPassed = false;
  /** We set a header ourselves. */
  #isOurs = false;
  #kept: OutgoingHttpHeaders | undefined;
  #withEnd = false;

  constructor(req: IncomingMessage, res: ServerResponse) {
    this.request = req;
    this.res = res;
  }

  get response(): ResponsePort {
    return this;
  }

  get source(): IncomingMessage {
    return this.request;
  }

  /**
   * Node's responses of HTTP/2 end, close and fail in other ways than those of HTTP/1. A step whose
   * client leaves is kept by the ways of HTTP/1 alone.
   */
  get unserved(): string | undefined {
    const { httpVersion, httpVersionMajor } = this.request;
    return httpVersionMajor > 1 ? `HTTP/${httpVersion}` : undefined;
  }

  get isGone(): boolean {
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
    // An adapter that only resembles Node's server may bring a socket that reports nothing.
    if (httpVersionMajor !== 1 || socket?.destroyed !== true || socket.readableEnded) return false;
    const failure: NodeJS.ErrnoException | null = socket.errored ?? null;
    const isOfTheConnection = failure?.syscall === 'read' || failure?.syscall === 'write';
    // `HPE_` is an error of Node's parser: the client sent something else than HTTP.
    return !isOfTheConnection && failure?.code?.startsWith('HPE_') !== true;
  }

  readBody(limit: number): MaybePromise<BodyPort | BodyFailure> {
    return RequestBody.read(this.request, limit);
  }

  peekBody(limit: number): MaybePromise<BodyPort | BodyFailure> {
    return RequestBody.read(this.request, limit);
  }

  dropBody(): void {
    this.request.resume();
  }

  watch(watcher: ResponseWatcher, limits: WitnessLimits, onError: (error: unknown) => void): void {
    watchResponse(this.res, watcher, limits, onError);
  }

  redirect(sink: ResponseSink): Originals {
    const { writeHead, write, end, flushHeaders, emit, on, destroy } = this.res;
    const { setHeader, appendHeader, setHeaders, removeHeader } = this.res;
    const ofHead = { setHeader, appendHeader, setHeaders, removeHeader };
    this.before = { writeHead, write, end, flushHeaders, emit, on, destroy, ...ofHead } as Before;
    this.destroyed = this.res.destroyed;
    this.sink = sink;
    patchResponse(this.res, this);
    return this;
  }

  /**
   * Answers at once, without reading the rest of the request. In HTTP/1 the connection must end
   * then: we cannot know where its next request would begin.
   */
  refuse(status: number, json: string): void {
    const [req, res, answer] = [this.request, this.res, Buffer.from(json)];
    const headers = { 'content-type': 'application/json', 'content-length': answer.length };
    if (req.complete || req.destroyed || req.httpVersionMajor !== 1) {
      res.writeHead(status, headers).end(answer);
      return;
    }
    res.writeHead(status, { ...headers, connection: 'close' }).write(answer);
    dropRest(req, () => res.end());
  }

  fail(error: unknown, onError: (error: unknown) => void): void {
    onError(error);
    this.res.destroy();
  }

  writeHead(status: number, reason?: string): void {
    this.#isHeadPassed = true;
    this.before.writeHead.call(this.res, status, reason);
    // The upstream has not given its own head, so that goes nowhere.
    if (!this.sink.headTaken) Object.assign(this.res, unsentHeaders(this, this.#kept ?? {}));
  }

  write(bytes: Uint8Array, done?: OnSent): boolean {
    const { write } = this.before;
    const res = this.res;
    this.isInFront = true;
    try {
      return done === undefined ? write.call(res, bytes) : write.call(res, bytes, done);
    } finally {
      this.isInFront = false;
    }
  }

  end(bytes?: Uint8Array): void {
    this.isInFront = true;
    try {
      this.before.end.call(this.res, bytes);
    } finally {
      this.isInFront = false;
    }
  }

  flushHeaders(): void {
    this.before.flushHeaders.call(this.res);
  }

  emit(event: string, ...args: unknown[]): boolean {
    return this.before.emit.call(this.res, event, ...args);
  }

  onceFinished(done: () => void): void {
    if (this.res.writableFinished) process.nextTick(done);
    else this.res.once('finish', done);
  }

  keepHeaders(): void {
    this.#kept = this.res.getHeaders();
  }

  // --- The response, for the pipeline ------------------------------------------------------------

  get req(): IncomingMessage {
    return this.res.req;
  }

  get statusCode(): number {
    return this.#status ?? this.res.statusCode;
  }

  /** Node sets the response's own when the head is sent. Until then the upstream reads its own. */
  set statusCode(status: number) {
    this.#status = status;
  }

  get strictContentLength(): boolean {
    return this.res.strictContentLength;
  }

  getHeader(name: string): ReturnType<HeadPort['getHeader']> {
    return this.res.getHeader(name);
  }

  hasHeader(name: string): boolean {
    return this.res.hasHeader(name);
  }

  getHeaderNames(): readonly string[] {
    return this.res.getHeaderNames();
  }

  setHeader(name: string, value: number | string): void {
    this.#isOurs = true;
    try {
      this.res.setHeader(name, value);
    } finally {
      this.#isOurs = false;
    }
  }

  removeHeader(name: string): void {
    this.#isOurs = true;
    try {
      this.res.removeHeader(name);
    } finally {
      this.#isOurs = false;
    }
  }

  flush(): void {
    (this.res as { flush?: () => void }).flush?.();
  }

  destroy(): void {
    this.res.destroy();
  }

  // --- The response, for the upstream ------------------------------------------------------------

  /**
   * Throws as Node does where the upstream has given its head. We may hold it back still, and
   * change it ourselves.
   *
   * @param isLost whether the upstream's head goes nowhere
   */
  assertOpen(verb: 'set' | 'append' | 'remove', isLost = false): void {
    if (this.#isOurs || !this.sink.headTaken) return;
    // Node throws by itself, unless a middleware in front holds the head back and may add to it.
    if (this.#isHeadPassed && !isLost) return;
    throw headersSent(verb);
  }

  /** @param isEnd whether `end` is the upstream's first call */
  needHead(isEnd = false): void {
    if (this.sink.headTaken) return;
    this.#withEnd = isEnd;
    // Through the response, as Node does: a middleware behind us may have patched `writeHead`.
    this.res.writeHead(this.res.statusCode);
  }

  takeHead(reason: string | undefined): void {
    const res = this.res;
    this.#status = res.statusCode;
    res.statusMessage = reason ?? (res.statusMessage || STATUS_CODES[res.statusCode] || 'unknown');
    this.sink.takeHead(res.statusMessage, this.#withEnd);
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
  host.before.on.call(res, 'drain', () => host.sink.flowAgain());
}

const METHODS = {
  _implicitHeader(this: Patched) {
    this[PATCH].needHead();
  },
  writeHead(this: Patched, status: number, reason?: string | HeaderList, headers?: HeaderList) {
    const host = this[PATCH];
    if (host.sink.headTaken) throw headersSent('write');
    this.statusCode = status;
    setResponseHeaders(this, typeof reason === 'string' ? headers : (reason ?? headers));
    host.takeHead(typeof reason === 'string' ? reason : undefined);
    return this;
  },
  setHeader(this: Patched, name: string, value: unknown) {
    this[PATCH].assertOpen('set');
    return this[PATCH].before.setHeader.call(this, name, value);
  },
  appendHeader(this: Patched, name: string, value: unknown) {
    this[PATCH].assertOpen('append');
    return this[PATCH].before.appendHeader.call(this, name, value);
  },
  setHeaders(this: Patched, headers: unknown) {
    this[PATCH].assertOpen('set');
    return this[PATCH].before.setHeaders.call(this, headers);
  },
  removeHeader(this: Patched, name: string) {
    this[PATCH].assertOpen('remove');
    return this[PATCH].before.removeHeader.call(this, name);
  },
  write(this: Patched, chunk: unknown, encoding?: unknown, callback?: unknown) {
    const host = this[PATCH];
    const bytes = toBytes(chunk, encoding);
    const done = callbackIn(undefined, encoding, callback);
    if (host.isInFront) return host.before.write.call(this, bytes, done);
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
    const isTaken = host.emit(event, ...args);
    // Node closes a finished response in the next tick. Hosts that fake one may never close it.
    if (event === 'finish') process.nextTick(closeFinished, host.sink);
    return isTaken;
  },
  destroy(this: Patched, error?: Error) {
    const host = this[PATCH];
    if (!host.isInFront) host.sink.destroy();
    return host.before.destroy.call(this, error);
  },
};

function closeFinished(sink: ResponseSink): void {
  sink.close();
}

/** Sets the headers of `writeHead`. A name that is listed twice keeps both values. */
function setResponseHeaders(res: ServerResponse, headers: HeaderList | undefined): void {
  if (!headers) return;
  const named: string[] = [];
  for (const [name, value] of pairsOf(headers)) {
    const text = typeof value === 'number' ? String(value) : value;
    const key = name.toLowerCase();
    if (named.includes(key)) res.appendHeader(name, text);
    else res.setHeader(name, text);
    named.push(key);
  }
}

function onResponse(
  this: ServerResponse,
  event: string,
  listener: ResponseListener,
): ServerResponse {
  if (event === 'drain') EventEmitter.prototype.on.call(this, event, listener);
  else (this as Patched)[PATCH].before.on.call(this, event, listener);
  return this;
}

/**
 * Header methods for an upstream whose response was answered by us. It still sets and reads its
 * headers without an error, until it gives its head. They say how to read its body, and are not
 * sent.
 */
function unsentHeaders(
  host: NodeHost,
  kept: OutgoingHttpHeaders,
): Partial<Record<keyof ServerResponse, unknown>> {
  const headers = new Map<string, unknown>(Object.entries(kept));
  const givenAs = (name: string): unknown => headers.get(name.toLowerCase());
  return {
    setHeader(this: ServerResponse, name: string, value: unknown) {
      host.assertOpen('set', true);
      headers.set(name.toLowerCase(), value);
      return this;
    },
    appendHeader(this: ServerResponse, name: string, value: unknown) {
      host.assertOpen('append', true);
      headers.set(name.toLowerCase(), [givenAs(name) ?? [], value].flat());
      return this;
    },
    setHeaders(this: ServerResponse, given: Iterable<[string, unknown]>) {
      host.assertOpen('set', true);
      for (const [name, value] of given) headers.set(name.toLowerCase(), value);
      return this;
    },
    removeHeader(name: string) {
      host.assertOpen('remove', true);
      headers.delete(name.toLowerCase());
    },
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
  headersSent: seen(({ sink, isInFront }) => sink.headTaken || isInFront),
  writableEnded: seen(({ sink }) => sink.ended),
  // A client that left reads nothing, and the upstream must not take that for its own failure.
  writableFinished: seen(
    ({ res, sink }) => sink.ended && (plain(res, 'writableFinished') || sink.departed),
  ),
  writableNeedDrain: seen(({ sink }) => sink.owesDrain),
  closed: seen(({ res, sink }) => plain(res, 'closed') === true && !sink.closeWithheld),
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

function toBytes(chunk: unknown, encoding: unknown): Buffer {
  const bytes = bytesOf(chunk, encoding);
  if (bytes !== undefined) return bytes;
  throw nodeError(
    'ERR_INVALID_ARG_TYPE',
    'A chunk of a response must be a string or a Uint8Array',
    TypeError,
  );
}

/** The first of them that is a function. */
function callbackIn(chunk: unknown, encoding: unknown, callback: unknown): OnSent {
  if (typeof chunk === 'function') return chunk as OnSent;
  if (typeof encoding === 'function') return encoding as OnSent;
  return typeof callback === 'function' ? (callback as OnSent) : undefined;
}

function refuseWrite(code: string, done: OnSent): false {
  if (done !== undefined) process.nextTick(done, nodeError(code, 'The response has ended'));
  return false;
}

function headersSent(verb: string): Error {
  const message = `Cannot ${verb} headers after they are sent to the client`;
  return nodeError('ERR_HTTP_HEADERS_SENT', message);
}

/** The error that Node gives for the same misuse, with its code. */
function nodeError(code: string, message: string, Kind: ErrorConstructor = Error): Error {
  return Object.assign(new Kind(message), { code });
}
