import type { ServerResponse } from 'node:http';
import { isObject, type JsonObject } from './json-rpc.ts';
import { elementSpans, rootSpan } from './json-text.ts';
import { Message } from './message.ts';
import { type Originals, patchResponse, type ResponseSink } from './response-patch.ts';
import { formatEvent, parseEvent, SseSplitter } from './sse.ts';
import { after, inOrder, isPromise, type MaybePromise, TaskLine } from './task-line.ts';

/**
 * How a response's body is treated: `sse` event by event as it streams, `json` whole, `raw` not at all; `stream` and `empty` when the
 * middleware answers instead of the upstream; `unreadable` when it ought to be inspected and cannot be.
 */
export type BodyMode = 'pending' | 'sse' | 'json' | 'raw' | 'stream' | 'empty' | 'unreadable';

/** What the exchange decides about a response while it passes. */
export interface ResponseObserver {
  /** The upstream's status and headers are known, and nothing is sent. */
  classify(res: ServerResponse): BodyMode;
  /** Right before the headers go. Last chance to change them; may wait. */
  onHead(): MaybePromise<void>;
  /** Whether these bytes could hold a message that somebody must see. Cheap; `true` when in doubt. */
  wants(bytes: Buffer): boolean;
  onMessage(message: Message): MaybePromise<void>;
  /** The upstream is done. What is returned still goes out, as further messages. */
  onEnd(): MaybePromise<JsonObject[]>;
  /** The middleware's answers that belong into this response, handed out once. */
  takeAnswers(): JsonObject[];
  /** What the client is told instead of a body that nobody could inspect. */
  onUnreadable(): MaybePromise<JsonObject[]>;
  /** The client left while {@link ResponseTap.withholdClose} held. */
  onDepart(): void;
  /** The connection closed, or the upstream finished after the client had left. Called once. */
  onClose(): void;
  onError(error: unknown): void;
}

export interface TapOptions {
  /** The largest event or JSON body that is held for inspection, in bytes. */
  readonly maxMessageBytes: number;
  /** Whether headers wait for the first message: an `initialize` that fails mints no session. */
  readonly holdHead: boolean;
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
  headTaken = false;
  ended = false;
  departed = false;

  readonly #observer: ResponseObserver;
  readonly #options: TapOptions;
  readonly #original: Originals;
  readonly #line: TaskLine;
  readonly #splitter = new SseSplitter();
  #body: Buffer[] = [];
  #bodyBytes = 0;
  #statusMessage: string | undefined;
  #headSent = false;
  #headHeld: boolean;
  #flushed = false;
  #finished = false;
  #guarded = false;
  #closed = false;
  #owesDrain = false;

  constructor(res: ServerResponse, observer: ResponseObserver, options: TapOptions) {
    this.res = res;
    this.#observer = observer;
    this.#options = options;
    this.#headHeld = options.holdHead;
    this.#line = new TaskLine(
      () => this.#onIdle(),
      (error) => this.#fail(error),
    );
    this.#original = patchResponse(res, this);
  }

  /** From now on a client that leaves does not cut the upstream off: it sees a healthy response until it is done. */
  withholdClose(): void {
    this.#guarded = true;
  }

  /** Lets the upstream know of a departure that was withheld. */
  releaseClose(): void {
    this.#guarded = false;
    if (!this.departed || this.#closed) return;
    this.#closed = true;
    this.#original.emit('close');
    this.#observer.onClose();
  }

  /** Puts a message of the middleware's own on the stream, between two events. */
  inject(message: JsonObject): void {
    this.#line.add(() => this.#emit(Buffer.from(formatEvent(JSON.stringify(message)))));
  }

  /** A comment line, which clients skip: keeps proxies from closing a quiet stream. */
  keepAlive(): void {
    this.#line.add(() => this.#emit(Buffer.from(': keep-alive\n\n')));
  }

  /** Answers the request without the upstream. */
  respond(status: number, body: JsonObject | JsonObject[] | undefined): void {
    this.mode = 'empty';
    this.res.statusCode = status;
    this.headTaken = true;
    this.#headHeld = false;
    if (body !== undefined) this.res.setHeader('content-type', 'application/json');
    this.#endWith(body === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(body)));
  }

  /** Ends the response early, with these as its last messages, whatever the upstream still writes. */
  abandon(messages: JsonObject[]): void {
    if (this.#finished) return;
    if (this.mode === 'sse' && this.#headSent) {
      this.mode = 'stream';
      for (const message of messages) this.inject(message);
      this.#line.add(() => this.#close());
    } else if (this.mode !== 'raw') {
      this.respond(messages.length === 0 ? 202 : 200, messages.length > 1 ? messages : messages[0]);
    }
  }

  // --- ResponseSink: what the upstream calls -------------------------------------------------

  get closeWithheld(): boolean {
    return this.departed && this.#guarded && !this.#closed;
  }

  takeHead(statusMessage: string | undefined): void {
    this.headTaken = true;
    this.#statusMessage = statusMessage;
    if (this.mode === 'pending') this.#open();
  }

  write(bytes: Buffer): boolean {
    if (this.mode === 'pending') this.#open();
    if (this.mode === 'sse') this.#writeEvents(bytes);
    else if (this.mode === 'json') this.#hold(bytes);
    else if (this.mode === 'raw') this.#line.add(() => this.#emit(bytes));
    if (!this.#line.busy && !this.res.writableNeedDrain) return true;
    this.#owesDrain = true;
    return this.departed;
  }

  flush(): void {
    if (this.mode === 'pending') this.#open();
    this.#flushed = true;
    if (this.mode === 'sse' && !this.#headHeld) this.#line.add(() => this.#flushHead());
  }

  end(): void {
    if (this.mode === 'pending') this.#open();
    this.ended = true;
    if (this.mode !== 'stream' && this.mode !== 'empty') this.#line.add(() => this.#finish());
  }

  destroy(): void {
    this.#guarded = false;
  }

  close(): boolean {
    if (this.#guarded && !this.departed && !this.#finished) {
      this.departed = true;
      this.#observer.onDepart();
      // A pump that waits for the client to read would wait for ever, and the outcome would be lost.
      this.#original.emit('drain');
    }
    if (this.closeWithheld) return true;
    if (!this.#closed) {
      this.#closed = true;
      this.#observer.onClose();
    }
    return false;
  }

  // --- The way of the bytes -------------------------------------------------------------------

  #open(): void {
    this.headTaken = true;
    this.mode = this.#observer.classify(this.res);
    if (this.mode === 'sse') this.res.removeHeader('content-length');
    if (this.mode === 'stream' || this.mode === 'empty' || this.mode === 'unreadable')
      this.#dropBodyHeaders();
    if (this.mode === 'stream') this.#line.add(() => this.#flushHead());
    if (this.mode === 'empty') this.#line.add(() => this.#endWith(Buffer.alloc(0)));
    if (this.mode === 'unreadable') this.#line.add(() => this.#refuseBody());
  }

  #writeEvents(bytes: Buffer): void {
    for (const block of this.#splitter.push(bytes)) this.#line.add(() => this.#passBlock(block));
    if (this.#splitter.heldBytes > this.#options.maxMessageBytes) this.#line.add(() => this.#refuseBody());
  }

  #hold(bytes: Buffer): void {
    this.#body.push(bytes);
    this.#bodyBytes += bytes.length;
    if (this.#bodyBytes <= this.#options.maxMessageBytes) return;
    this.#body = [];
    this.mode = 'unreadable';
    this.#dropBodyHeaders();
    this.#line.add(() => this.#refuseBody());
  }

  #passBlock(block: Buffer): MaybePromise<void> {
    if (this.mode !== 'sse') return;
    if (!this.#observer.wants(block)) return this.#emit(block);
    const event = parseEvent(block.toString());
    if (event.hasId) this.resumable = true;
    if (!event.data || event.type !== 'message') return this.#emit(block);
    const value = parseObject(event.data);
    // Nothing that cannot be read goes through: it could be the very list that must be filtered.
    if (value === undefined) return this.#observer.onError(new Error('an event is not a JSON-RPC message'));
    const message = new Message(value, event.data);
    return after(this.#observer.onMessage(message), () => {
      this.#headHeld = false;
      const before = message.before.map((each) => formatEvent(JSON.stringify(each))).join('');
      if (!message.changed)
        return this.#emit(before === '' ? block : Buffer.concat([Buffer.from(before), block]));
      return this.#emit(Buffer.from(before + formatEvent(message.text, event.otherLines)));
    });
  }

  /** Sends bytes, with the headers in front where they have not gone yet. */
  #emit(bytes: Buffer): MaybePromise<void> {
    if (this.#headHeld) {
      this.#body.push(bytes);
      return;
    }
    return after(this.#sendHead(), () => this.#send(bytes));
  }

  #sendHead(): MaybePromise<void> {
    if (this.#headSent) return;
    this.#headSent = true;
    return after(this.#observer.onHead(), () => {
      const held = this.mode === 'sse' ? [...this.#answerEvents(), ...this.#body] : [];
      if (this.mode === 'sse') this.#body = [];
      if (this.departed || this.mode === 'json') return;
      this.#original.writeHead(this.res.statusCode, this.#statusMessage);
      for (const bytes of held) this.#send(bytes);
    });
  }

  #flushHead(): MaybePromise<void> {
    return after(this.#sendHead(), () => {
      if (!this.departed) this.#original.flushHeaders();
    });
  }

  #answerEvents(): Buffer[] {
    return this.#observer.takeAnswers().map((each) => Buffer.from(formatEvent(JSON.stringify(each))));
  }

  #send(bytes: Buffer): void {
    if (!this.departed && bytes.length > 0) this.#original.write(bytes);
  }

  #finish(): MaybePromise<void> {
    if (this.#finished) return;
    if (this.mode === 'json') return this.#finishJson();
    this.#headHeld = false;
    return after(this.mode === 'sse' ? this.#lastBlock() : undefined, () =>
      after(this.#observer.onEnd(), (messages) =>
        after(this.#sendHead(), () => {
          if (this.mode === 'sse')
            for (const each of messages) this.#send(Buffer.from(formatEvent(JSON.stringify(each))));
          this.#close();
        }),
      ),
    );
  }

  /** An event that no blank line ended is never dispatched by a client, so it is not passed on. */
  #lastBlock(): MaybePromise<void> {
    const rest = this.#splitter.rest();
    if (rest.length > 0 && !this.#observer.wants(rest)) return this.#emit(rest);
  }

  #finishJson(): MaybePromise<void> {
    const body = Buffer.concat(this.#body);
    const messages = parseBody(body);
    if (messages === undefined) return this.#refuseBody();
    const isBatch = body.length > 0 && body.toString('latin1').trimStart().startsWith('[');
    return after(
      inOrder(messages, (message) => this.#observer.onMessage(message)),
      () =>
        after(this.#observer.onEnd(), (extra) => {
          const added = [...extra, ...this.#observer.takeAnswers()];
          if (added.length === 0 && !messages.some((message) => message.changed)) return this.#endWith(body);
          const texts = [...messages.map((each) => each.text), ...added.map((each) => JSON.stringify(each))];
          this.#becomeJson();
          return this.#endWith(
            Buffer.from(isBatch || texts.length > 1 ? `[${texts.join(',')}]` : (texts[0] ?? '')),
          );
        }),
    );
  }

  #becomeJson(): void {
    this.#dropBodyHeaders();
    if (this.res.statusCode === 202 || this.res.statusCode === 204) this.res.statusCode = 200;
    if (!this.res.hasHeader('content-type')) this.res.setHeader('content-type', 'application/json');
  }

  #refuseBody(): MaybePromise<void> {
    if (this.#finished) return;
    this.mode = 'unreadable';
    return after(this.#observer.onUnreadable(), (messages) => {
      if (this.#headSent) {
        for (const each of messages) this.#send(Buffer.from(formatEvent(JSON.stringify(each))));
        return this.#close();
      }
      this.res.statusCode = 502;
      this.res.setHeader('content-type', 'application/json');
      return this.#endWith(Buffer.from(JSON.stringify(messages.length === 1 ? messages[0] : messages)));
    });
  }

  /** Headers that describe bytes which will not be sent. */
  #dropBodyHeaders(): void {
    for (const name of ['content-length', 'content-encoding', 'etag', 'transfer-encoding'])
      this.res.removeHeader(name);
  }

  #endWith(body: Buffer): MaybePromise<void> {
    if (this.#finished) return;
    this.#finished = true;
    return after(this.#observer.onHead(), () => {
      this.#headSent = true;
      if (!this.departed) {
        if (!this.res.hasHeader('content-length') && body.length > 0) {
          this.res.setHeader('content-length', body.length);
        }
        this.#original.writeHead(this.res.statusCode, this.#statusMessage);
        this.#original.end(body.length > 0 ? body : undefined);
      }
      this.releaseClose();
    });
  }

  #close(): void {
    if (this.#finished) return;
    this.#finished = true;
    if (!this.departed) this.#original.end();
    this.releaseClose();
  }

  #onIdle(): void {
    if (!this.#owesDrain || this.res.writableNeedDrain) return;
    this.#owesDrain = false;
    this.#original.emit('drain');
  }

  #fail(error: unknown): void {
    this.#observer.onError(error);
    const refused = this.#refuseBody();
    if (isPromise(refused)) refused.catch((second) => this.#observer.onError(second));
  }
}

function parseObject(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The messages of a JSON body, single or batch; `undefined` where it is neither. */
function parseBody(body: Buffer): Message[] | undefined {
  if (body.length === 0) return [];
  const text = body.toString();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (isObject(value)) return [new Message(value, text)];
  if (!Array.isArray(value) || !value.every(isObject)) return undefined;
  const spans = elementSpans(text, rootSpan(text).start);
  return value.map((each, index) => new Message(each, text.slice(spans[index]?.start, spans[index]?.end)));
}
