import type { Done, Originals } from '../node-response.ts';
import type { ResponsePort } from '../ports.ts';

/** How many bytes wait for a client that does not read, before the handler has to wait too. */
const HIGH_WATER_MARK = 16 * 1024;

export interface ResponseListeners {
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
export class FetchResponse implements ResponsePort, Originals {
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
    if (bytes.length > 0) body.enqueue(bytes);
    return (body.desiredSize ?? 0) > 0;
  }

  end(bytes?: Uint8Array): void {
    if (this.#over) return;
    this.#over = true;
    // In one piece, so that the host can state its length.
    if (this.#body === undefined)
      this.#makeWith(bytes === undefined ? null : new Uint8Array(bytes));
    else {
      if (bytes !== undefined) this.#body.enqueue(bytes);
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
