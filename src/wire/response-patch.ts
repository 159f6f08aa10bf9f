import type { IncomingMessage, OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from 'node:http';

/** The response's own methods, as they were before they were patched. */
export interface Originals {
  writeHead(status: number, message?: string): unknown;
  write(bytes: Uint8Array): boolean;
  end(bytes?: Uint8Array): unknown;
  flushHeaders(): void;
  emit(event: string, ...args: unknown[]): boolean;
}

/** Where the upstream's calls go instead. */
export interface ResponseSink {
  write(bytes: Buffer): boolean;
  end(): void;
  flush(): void;
  /** The connection closed. `true` keeps the event from the upstream. */
  close(): boolean;
  /** The upstream destroyed the response by itself. */
  destroy(): void;
  readonly headTaken: boolean;
  readonly ended: boolean;
  readonly closeWithheld: boolean;
  /** `writeHead` was called; the status and headers are on the response, and nothing is sent yet. */
  takeHead(statusMessage: string | undefined): void;
}

type HeaderList = OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined;

/**
 * Redirects a response's methods into a sink, in place: a router closes over its `res`, so it cannot be given another one.
 * What the upstream can see of the response (`headersSent`, `writableEnded`, `destroyed`) stays as if nobody had patched it.
 */
export function patchResponse(res: ServerResponse<IncomingMessage>, sink: ResponseSink): Originals {
  const original = {
    writeHead: res.writeHead.bind(res) as Originals['writeHead'],
    write: res.write.bind(res) as Originals['write'],
    end: res.end.bind(res) as Originals['end'],
    flushHeaders: res.flushHeaders.bind(res),
    emit: res.emit.bind(res) as Originals['emit'],
  };
  const destroy = res.destroy.bind(res);
  let destroyed = res.destroyed;

  const patched = {
    writeHead(status: number, reason?: string | HeaderList, headers?: HeaderList) {
      if (sink.headTaken) throw alreadySent();
      res.statusCode = status;
      setHeaders(res, typeof reason === 'string' ? headers : reason);
      sink.takeHead(typeof reason === 'string' ? reason : undefined);
      return res;
    },
    write(chunk: unknown, encoding?: unknown, callback?: unknown) {
      const flowing = sink.write(toBytes(chunk, encoding));
      callLater(encoding, callback);
      return flowing;
    },
    end(chunk?: unknown, encoding?: unknown, callback?: unknown) {
      if (sink.ended) return res;
      if (chunk !== undefined && chunk !== null && typeof chunk !== 'function') {
        sink.write(toBytes(chunk, encoding));
      }
      sink.end();
      callLater(chunk, encoding, callback);
      return res;
    },
    flushHeaders: () => sink.flush(),
    emit: (event: string, ...args: unknown[]) =>
      event === 'close' && sink.close() ? false : original.emit(event, ...args),
    destroy(error?: Error) {
      sink.destroy();
      return destroy(error);
    },
  };
  Object.assign(res, patched);
  Object.defineProperties(res, {
    headersSent: { configurable: true, get: () => sink.headTaken },
    writableEnded: { configurable: true, get: () => sink.ended },
    destroyed: {
      configurable: true,
      get: () => destroyed && !sink.closeWithheld,
      set: (value: boolean) => {
        destroyed = value;
      },
    },
  });
  return original;
}

function setHeaders(res: ServerResponse, headers: HeaderList): void {
  if (headers === undefined || headers === null) return;
  if (!Array.isArray(headers)) {
    for (const [name, value] of Object.entries(headers)) {
      if (value !== undefined) res.setHeader(name, value);
    }
    return;
  }
  // Either [name, value] pairs or one flat list; a name that comes twice keeps both values.
  const flat = headers.flat() as string[];
  const named = new Set<string>();
  for (let i = 0; i + 1 < flat.length; i += 2) {
    const name = String(flat[i]);
    if (named.has(name.toLowerCase())) res.appendHeader(name, String(flat[i + 1]));
    else res.setHeader(name, String(flat[i + 1]));
    named.add(name.toLowerCase());
  }
}

function toBytes(chunk: unknown, encoding: unknown): Buffer {
  if (typeof chunk === 'string') {
    return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8');
  }
  if (chunk instanceof Uint8Array) return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  throw new TypeError('a response chunk must be a string or a Uint8Array');
}

function callLater(...candidates: unknown[]): void {
  const callback = candidates.find((candidate) => typeof candidate === 'function');
  if (callback !== undefined) process.nextTick(callback as () => void);
}

function alreadySent(): Error {
  return Object.assign(new Error('Cannot write headers after they are sent to the client'), {
    code: 'ERR_HTTP_HEADERS_SENT',
  });
}
