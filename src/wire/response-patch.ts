import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { type HeaderList, setResponseHeaders } from './headers.ts';

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
  /** The status and headers are on the response. `withEnd` where nothing but `end` made them due: Node states the length then. */
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
 * Redirects a response's methods into a sink, in place: a router closes over its `res`, so it cannot be given another one.
 * What the upstream can see of the response (`headersSent`, `writableEnded`, `destroyed`) stays as if nobody had patched it.
 */
export function patchResponse(res: ServerResponse, sink: ResponseSink): Originals {
  const original = {
    writeHead: res.writeHead.bind(res) as Originals['writeHead'],
    write: res.write.bind(res) as Originals['write'],
    end: res.end.bind(res) as Originals['end'],
    flushHeaders: res.flushHeaders.bind(res),
    emit: res.emit.bind(res) as Originals['emit'],
    onceFinished(done: () => void) {
      if (res.writableFinished) process.nextTick(done);
      else res.once('finish', done);
    },
  };
  // A compressing middleware in front leads this to its own stream, which drains in place of the response.
  res.on('drain', () => sink.flowAgain());
  Object.assign(res, headerMethods(res, sink), writeMethods(res, sink), lifeMethods(res, sink, original));
  Object.defineProperties(res, visibleState(res, sink));
  return original;
}

function writeMethods(res: ServerResponse, sink: ResponseSink) {
  let withEnd = false;
  const needHead = (isEnd = false): void => {
    if (sink.headTaken) return;
    withEnd = isEnd;
    // By its name on the response, as Node does: somebody mounted behind may wait for it.
    res.writeHead(res.statusCode);
  };
  return {
    _implicitHeader: () => needHead(),
    writeHead(status: number, reason?: string | HeaderList, headers?: HeaderList) {
      if (sink.headTaken) throw nodeError('ERR_HTTP_HEADERS_SENT', 'Cannot write headers twice');
      res.statusCode = status;
      setResponseHeaders(res, typeof reason === 'string' ? headers : (reason ?? headers));
      sink.takeHead(typeof reason === 'string' ? reason : undefined, withEnd);
      return res;
    },
    write(chunk: unknown, encoding?: unknown, callback?: unknown) {
      const bytes = toBytes(chunk, encoding);
      const done = callbackIn(encoding, callback);
      if (sink.ended) return refuseWrite('ERR_STREAM_WRITE_AFTER_END', done);
      needHead();
      return sink.write(bytes, done);
    },
    end(chunk?: unknown, encoding?: unknown, callback?: unknown) {
      const given = chunk !== undefined && chunk !== null && chunk !== '' && typeof chunk !== 'function';
      const last = given ? toBytes(chunk, encoding) : Buffer.alloc(0);
      const done = callbackIn(chunk, encoding, callback);
      if (sink.ended) {
        refuseWrite(given ? 'ERR_STREAM_WRITE_AFTER_END' : 'ERR_STREAM_ALREADY_FINISHED', done);
        return res;
      }
      needHead(true);
      sink.end(last, done);
      return res;
    },
    flushHeaders() {
      needHead();
      sink.flush();
    },
  };
}

/** An upstream that answers after it was given up on sees no error of its own making. */
function headerMethods(res: ServerResponse, sink: ResponseSink) {
  const unlessLost = <Args extends unknown[]>(method: (...args: Args) => unknown) => {
    return (...args: Args) => (sink.headLost ? res : method.apply(res, args));
  };
  const { setHeader, setHeaders, appendHeader, removeHeader } = res;
  return {
    setHeader: unlessLost(setHeader),
    setHeaders: unlessLost(setHeaders),
    appendHeader: unlessLost(appendHeader),
    removeHeader: unlessLost(removeHeader),
  };
}

function lifeMethods(res: ServerResponse, sink: ResponseSink, original: Originals) {
  const on = res.on.bind(res);
  const destroy = res.destroy.bind(res);
  return {
    // The upstream waits for this response's `drain`, whatever a middleware in front made of it.
    on: (event: string, listener: (...args: unknown[]) => void) =>
      event === 'drain' ? EventEmitter.prototype.on.call(res, event, listener) : on(event, listener),
    emit(event: string, ...args: unknown[]) {
      if (event === 'close' && sink.close()) return false;
      if (event === 'drain') sink.drained();
      return original.emit(event, ...args);
    },
    destroy(error?: Error) {
      sink.destroy();
      return destroy(error);
    },
  };
}

function visibleState(res: ServerResponse, sink: ResponseSink): PropertyDescriptorMap {
  let destroyed = res.destroyed;
  const plain = (name: string): unknown => Reflect.get(Object.getPrototypeOf(res) as object, name, res);
  const seen = (get: () => unknown) => ({ configurable: true, get });
  return {
    headersSent: seen(() => sink.headTaken),
    writableEnded: seen(() => sink.ended),
    // Whoever left will not read it, and the upstream must not take that for a failure of its own.
    writableFinished: seen(() => plain('writableFinished') || (sink.departed && sink.ended)),
    writableNeedDrain: seen(() => sink.owesDrain),
    closed: seen(() => plain('closed') === true && !sink.closeWithheld),
    destroyed: {
      ...seen(() => destroyed && !sink.closeWithheld),
      set(value: boolean) {
        destroyed = value;
      },
    },
  };
}

function toBytes(chunk: unknown, encoding: unknown): Buffer {
  if (typeof chunk === 'string') {
    return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8');
  }
  if (chunk instanceof Uint8Array) return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
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
export function nodeError(code: string, message: string, Kind: ErrorConstructor = Error): Error {
  return Object.assign(new Kind(message), { code });
}
