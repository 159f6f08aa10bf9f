import { BackPressure } from './back-pressure.ts';
import type { BodyReader, ReaderLimits } from './body-reader.ts';
import { IGNORE, readerFor } from './body-readers.ts';
import type { Host } from './host.ts';
import type { JsonObject } from './json-rpc.ts';
import { OwnAnswer } from './own-answer.ts';
import type { ResponsePort } from './ports.ts';
import type { BodyMode, ResponseObserver } from './response-observer.ts';
import { ResponseOut } from './response-out.ts';
import type { Originals, ResponseSink } from './response-patch.ts';
import { eventOf } from './sse-reader.ts';
import { TaskLine } from './task-line.ts';
import { VirtualClose } from './virtual-close.ts';
import { type Done, nodeError } from './write-arguments.ts';

/**
 * Reads an upstream's response as it is written and sends it on, changed where the observer changes
 * it. Bytes that nobody changes go on as they came.
 */
export class ResponseTap implements ResponseSink {
  readonly res: ResponsePort;
  mode: BodyMode = 'pending';
  /** Whether an event id was seen: a client can resume this stream after it was cut. */
  resumable = false;
  /** Whether the upstream has given its status and headers. */
  headTaken = false;
  /** Whether the upstream is done. */
  ended = false;

  readonly #observer: ResponseObserver;
  readonly #limits: ReaderLimits;
  readonly #host: Host;
  readonly #original: Originals;
  readonly #line: TaskLine;
  readonly #out: ResponseOut;
  readonly #pressure: BackPressure;
  readonly #close: VirtualClose;
  readonly #own: OwnAnswer;
  #reader: BodyReader = IGNORE;
  /** Something else is sent in place of the upstream's body, or of the rest of it. */
  #replaced = false;
  /** The client has an answer already, and what the upstream still says is only looked at. */
  #answeredEarly = false;

  constructor(host: Host, observer: ResponseObserver, limits: ReaderLimits) {
    const { response: res } = host;
    this.res = res;
    this.#host = host;
    this.#observer = observer;
    this.#limits = limits;
    this.#line = new TaskLine(
      () => this.#pressure.idle(),
      (error) => this.#fail(error),
    );
    this.#original = host.redirect(this);
    this.#close = new VirtualClose({
      onDepart: () => this.#onDepart(),
      onClose: () => this.#onClose(),
      emitClose: () => void this.#original.emit('close'),
    });
    this.#out = new ResponseOut({
      res,
      original: this.#original,
      beforeHead: () => observer.onHead(),
      isGone: () => this.#close.gone,
      writeError: () =>
        this.#close.withheld ? undefined : nodeError('ERR_STREAM_DESTROYED', 'The client left'),
      onEnd: () => {
        if (this.#isDone) this.#close.release();
      },
    });
    this.#own = new OwnAnswer(res, this.#out, limits.isBatch);
    this.#pressure = new BackPressure(
      this.#out,
      this.#line,
      () => void this.#original.emit('drain'),
    );
  }

  /** Whether the client left, unseen by the upstream. */
  get departed(): boolean {
    return this.#close.departed;
  }

  /** Whether the client has left it to the upstream alone: it went away, or was answered early. */
  get isLeft(): boolean {
    return this.#replaced || this.#close.departed;
  }

  /**
   * From now on a client that leaves does not cut the upstream off: it sees a healthy response
   * until it is done.
   */
  withholdClose(): void {
    this.#close.withhold();
  }

  /** Lets the upstream know of a departure that was withheld. */
  releaseClose(): void {
    this.#close.release();
  }

  /**
   * Puts a message of the middleware's own on the stream, between two events. Any other body has no
   * room for it.
   */
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
    this.#host.dropBody();
    this.#line.add(() => this.#own.give(status, body));
  }

  /**
   * Ends the response early, with these as its last messages. What the upstream still writes is
   * looked at, and where a close is withheld it does not notice. A raw body stays the upstream's.
   */
  abandon(messages: JsonObject[]): void {
    if (this.#out.ended || this.mode === 'raw') return;
    this.#replaced = true;
    this.#answeredEarly = true;
    if (!this.headTaken) this.#original.keepHeaders();
    this.#line.add(async () => {
      await this.#own.giveLast(messages, this.#observer);
      this.#pressure.flowAgain();
    });
  }

  // --- ResponseSink: what the upstream calls -------------------------------------------------

  get owesDrain(): boolean {
    return this.#pressure.owesDrain;
  }

  get headLost(): boolean {
    return this.#out.headSent && !this.headTaken;
  }

  get closeWithheld(): boolean {
    return this.#close.withheld;
  }

  takeHead(statusMessage: string | undefined, withEnd: boolean): void {
    this.headTaken = true;
    if (this.#isDeaf) return;
    if (!this.#replaced) this.#out.noteHead(statusMessage, withEnd);
    this.#open();
  }

  write(bytes: Buffer, done: Done): boolean {
    this.#read((reader) => reader.write(bytes));
    if (done !== undefined) this.#line.add(() => this.#out.afterWrites(done));
    return this.#pressure.answerWrite(bytes.length);
  }

  end(last: Buffer, done: Done): void {
    this.ended = true;
    this.#read((reader) => reader.end(last));
    if (this.#answeredEarly) this.#line.add(() => this.#close.release());
    if (done !== undefined) this.#line.add(() => this.#onceFinished(done));
  }

  flush(): void {
    this.#read((reader) => reader.flush());
    // Headers that go with the first event are one packet, and one system call, less.
    setImmediate(() => this.#line.add(() => this.#out.flush()));
  }

  flowAgain(): void {
    this.#pressure.flowAgain();
  }

  drained(): void {
    this.#pressure.drained();
  }

  close(): boolean {
    if (!this.#out.ended && this.#host.isCutHere()) this.#close.release();
    return this.#close.connectionClosed(this.#out.ended && this.#isDone);
  }

  destroy(): void {
    this.#close.release();
  }

  // --- The way of the bytes -------------------------------------------------------------------

  /** Whether nothing is to come from the upstream any more. */
  get #isDone(): boolean {
    return !this.#answeredEarly || this.ended;
  }

  /** Whether nothing that comes is even looked at. */
  get #isDeaf(): boolean {
    return this.#replaced && !this.#answeredEarly;
  }

  #open(): void {
    this.mode = this.#classify();
    this.#reader = readerFor(this.mode, {
      res: this.res,
      out: this.#out,
      observer: this.#observer,
      limits: this.#limits,
      isReplaced: () => this.#replaced,
      onEventId: () => {
        this.resumable = true;
      },
    });
    this.#read((reader) => reader.begin());
  }

  #classify(): BodyMode {
    try {
      return this.#observer.classify(this.res);
    } catch (error) {
      this.#observer.onError(error);
      return 'unreadable';
    }
  }

  #read(step: (reader: BodyReader) => ReturnType<BodyReader['end']>): void {
    this.#line.add(() => (this.#isDeaf ? undefined : step(this.#reader)));
  }

  #onDepart(): void {
    this.#observer.onDepart();
    // A pump that waits for the client to read would wait for ever, and the outcome would be lost.
    this.#pressure.drained();
    this.#out.settleWrites();
    this.#original.emit('drain');
  }

  #onClose(): void {
    this.#out.settleWrites();
    this.#observer.onClose();
  }

  /**
   * Where another response goes out in place of the upstream's, or nobody reads it, there is
   * nothing to wait for.
   */
  #onceFinished(done: NonNullable<Done>): void {
    const isOwn = this.#replaced || this.mode === 'stream' || this.mode === 'empty';
    if (isOwn || this.#close.departed) process.nextTick(done);
    else this.#original.onceFinished(done);
  }

  /**
   * Fails closed: whoever waits for a response is told that there is none, and nothing else of the
   * body goes out.
   */
  async #fail(error: unknown): Promise<void> {
    this.#observer.onError(error);
    const isStream = this.mode === 'sse' || this.mode === 'stream';
    this.#replaced = true;
    if (!this.#out.ended) this.mode = 'unreadable';
    if (this.#answeredEarly) {
      this.#answeredEarly = false;
      this.#close.release();
    }
    try {
      await this.#own.refuse(this.#observer, isStream);
    } catch (second) {
      this.#observer.onError(second);
      this.res.destroy();
    }
  }
}
