import type { ServerResponse } from 'node:http';
import { type BodyReader, IGNORE, ownStreamReader, type ReaderContext, rawReader } from './body-reader.ts';
import { JsonReader } from './json-reader.ts';
import type { JsonObject } from './json-rpc.ts';
import type { BodyMode, ResponseObserver } from './response-observer.ts';
import { ResponseOut } from './response-out.ts';
import { type Done, type Originals, patchResponse, type ResponseSink } from './response-patch.ts';
import { eventOf, SseReader } from './sse-reader.ts';
import { TaskLine } from './task-line.ts';
import { VirtualClose } from './virtual-close.ts';

export interface TapOptions {
  /** The largest event or JSON body that is held for inspection, in bytes. */
  readonly maxMessageBytes: number;
  /** Whether headers wait for the first response: an `initialize` that fails mints no session. */
  readonly holdHead: boolean;
  /** Whether the request was a batch, whose answers are a batch too. */
  readonly isBatch: boolean;
}

/**
 * Reads an upstream's response as it is written and sends it on, changed where the observer changes it. Bytes that nobody
 * changes go on as they came.
 */
export class ResponseTap implements ResponseSink {
  readonly res: ServerResponse;
  mode: BodyMode = 'pending';
  /** Whether an event id was seen: a client can resume this stream after it was cut. */
  resumable = false;
  /** Whether the upstream has given its status and headers. */
  headTaken = false;
  /** Whether the upstream is done. */
  ended = false;
  owesDrain = false;

  readonly #observer: ResponseObserver;
  readonly #options: TapOptions;
  readonly #original: Originals;
  readonly #line: TaskLine;
  readonly #out: ResponseOut;
  readonly #close: VirtualClose;
  #reader: BodyReader = IGNORE;
  #replaced = false;

  constructor(res: ServerResponse, observer: ResponseObserver, options: TapOptions) {
    this.res = res;
    this.#observer = observer;
    this.#options = options;
    this.#line = new TaskLine(
      () => this.#offerDrain(),
      (error) => this.#fail(error),
    );
    this.#original = patchResponse(res, this);
    this.#close = new VirtualClose({
      onDepart: () => this.#onDepart(),
      onClose: () => observer.onClose(),
      emitClose: () => void this.#original.emit('close'),
    });
    this.#out = new ResponseOut({
      res,
      original: this.#original,
      beforeHead: () => observer.onHead(),
      isGone: () => this.#close.gone,
      onEnd: () => this.#close.release(),
    });
  }

  /** Whether the client left, unseen by the upstream. */
  get departed(): boolean {
    return this.#close.departed;
  }

  /** From now on a client that leaves does not cut the upstream off: it sees a healthy response until it is done. */
  withholdClose(): void {
    this.#close.withhold();
  }

  /** Lets the upstream know of a departure that was withheld. */
  releaseClose(): void {
    this.#close.release();
  }

  /** Puts a message of the middleware's own on the stream, between two events. Any other body has no room for it. */
  inject(message: JsonObject): void {
    this.#line.add(() => this.#reader.inject(eventOf(message)));
  }

  /** A comment line, which clients skip: keeps proxies from closing a quiet stream. */
  keepAlive(): void {
    this.#line.add(() => this.#reader.inject(Buffer.from(': keep-alive\n\n')));
  }

  /** Answers the request without the upstream. */
  respond(status: number, body: JsonObject | JsonObject[] | undefined): void {
    this.headTaken = true;
    this.ended = true;
    this.mode = 'empty';
    this.#replaced = true;
    this.#line.add(() => this.#answer(status, body));
  }

  /** Ends the response early, with these as its last messages, whatever the upstream still writes. A raw body stays the upstream's. */
  abandon(messages: JsonObject[]): void {
    if (this.#out.ended || this.mode === 'raw') return;
    this.#replaced = true;
    this.#line.add(async () => {
      if (this.#out.ended) return;
      if (this.#out.headSent) return this.#endStream(messages);
      await this.#answer(messages.length === 0 ? 202 : 200, this.#inShape(messages));
    });
  }

  // --- ResponseSink: what the upstream calls -------------------------------------------------

  get headLost(): boolean {
    return this.#out.headSent && !this.headTaken;
  }

  get closeWithheld(): boolean {
    return this.#close.withheld;
  }

  takeHead(statusMessage: string | undefined, implicit: boolean): void {
    this.headTaken = true;
    if (this.#replaced) return;
    this.#out.noteHead(statusMessage, implicit);
    this.#open();
  }

  write(bytes: Buffer, done: Done): boolean {
    this.#read((reader) => reader.write(bytes));
    if (done !== undefined) this.#line.add(() => this.#out.afterWrites(done));
    if (this.#flows) return true;
    this.owesDrain = true;
    return false;
  }

  end(last: Buffer, done: Done): void {
    this.ended = true;
    this.#read((reader) => reader.end(last));
    if (done !== undefined) this.#line.add(() => this.#onceFinished(done));
  }

  flush(): void {
    this.#read((reader) => reader.flush());
  }

  flowAgain(): void {
    this.#out.unblock();
    this.#offerDrain();
  }

  drained(): void {
    this.#out.unblock();
    this.owesDrain = false;
  }

  close(): boolean {
    return this.#close.connectionClosed(this.#out.ended);
  }

  destroy(): void {
    this.#close.release();
  }

  // --- The way of the bytes -------------------------------------------------------------------

  #open(): void {
    this.mode = this.#classify();
    this.#reader = this.#readerFor(this.mode);
    if (this.mode === 'sse') this.res.removeHeader('content-length');
    if (this.mode === 'stream') {
      this.#out.dropBodyHeaders();
      this.#line.add(() => this.#out.flush());
    }
    if (this.mode === 'empty') this.#line.add(() => this.#out.endWith(undefined));
    if (this.mode === 'unreadable') {
      this.#line.add(() => {
        throw new Error('a response is of a type or an encoding that cannot be inspected');
      });
    }
  }

  #classify(): BodyMode {
    try {
      return this.#observer.classify(this.res);
    } catch (error) {
      this.#observer.onError(error);
      return 'unreadable';
    }
  }

  #readerFor(mode: BodyMode): BodyReader {
    const context: ReaderContext = {
      res: this.res,
      out: this.#out,
      observer: this.#observer,
      maxMessageBytes: this.#options.maxMessageBytes,
      isBatch: this.#options.isBatch,
      isReplaced: () => this.#replaced,
      onEventId: () => {
        this.resumable = true;
      },
    };
    if (mode === 'sse') return new SseReader(context, this.#options.holdHead);
    if (mode === 'json') return new JsonReader(context);
    if (mode === 'raw') return rawReader(context);
    return mode === 'stream' ? ownStreamReader(context) : IGNORE;
  }

  #read(step: (reader: BodyReader) => ReturnType<BodyReader['end']>): void {
    this.#line.add(() => (this.#replaced ? undefined : step(this.#reader)));
  }

  get #flows(): boolean {
    return this.#close.gone || (!this.#line.busy && !this.#out.blocked);
  }

  #offerDrain(): void {
    if (!this.owesDrain || !this.#flows) return;
    this.owesDrain = false;
    // In a turn of its own: what the upstream's listener throws is not this response's failure.
    process.nextTick(() => this.#original.emit('drain'));
  }

  #onDepart(): void {
    this.#observer.onDepart();
    // A pump that waits for the client to read would wait for ever, and the outcome would be lost.
    this.drained();
    this.#original.emit('drain');
  }

  #onceFinished(done: NonNullable<Done>): void {
    if (this.#close.departed || this.res.writableFinished) process.nextTick(done);
    else this.res.once('finish', done);
  }

  #answer(status: number, body: JsonObject | JsonObject[] | undefined): void | Promise<void> {
    this.res.statusCode = status;
    return this.#out.endWith(body === undefined ? undefined : JSON.stringify(body));
  }

  #inShape(messages: JsonObject[]): JsonObject | JsonObject[] | undefined {
    return messages.length > 1 || (this.#options.isBatch && messages.length > 0) ? messages : messages[0];
  }

  async #endStream(messages: readonly JsonObject[]): Promise<void> {
    for (const message of messages) this.#out.writeEvent(eventOf(message));
    await this.#out.end();
  }

  /** Fails closed: whoever waits for a response is told that there is none, and nothing else of the body goes out. */
  async #fail(error: unknown): Promise<void> {
    this.#observer.onError(error);
    try {
      await this.#refuse();
    } catch (second) {
      this.#observer.onError(second);
      this.res.destroy();
    }
  }

  async #refuse(): Promise<void> {
    if (this.#out.ended) return;
    this.#replaced = true;
    const wasStream = this.mode === 'sse' || this.mode === 'stream';
    this.mode = 'unreadable';
    const messages = await this.#observer.onUnreadable();
    if (this.#out.headSent) return this.#endStream(wasStream ? messages : []);
    await this.#answer(502, this.#inShape(messages));
  }
}
