/**
 * One response, from the upstream through the filters to the client. What no filter changes passes
 * byte for byte. Hides how bodies are read and sent, and what the upstream sees of its client.
 */

import { STATUS_CODES } from 'node:http';
import { NOTHING } from './body.ts';
import { answersIn, type Call, hasAnswer } from './call.ts';
import type { AskedPage, Filter } from './filter.ts';
import {
  announceBody,
  announceStream,
  type BodyMode,
  bodyModeOf,
  dropBodyHeaders,
  errorOfStatus,
  RESPONSE_FAULTS,
  type RequestPort,
  ResponseTooLarge,
  requestHeader,
  setRequestHeader,
  stateLength,
  succeeded,
  whyUnreadable,
} from './headers.ts';
import { isContradictory, isRequestId, type JsonObject, unreadable } from './json-rpc.ts';
import { type Message, Payload } from './message.ts';
import type { Host, OnSent, Originals, ResponsePort, ResponseSink } from './node-host.ts';
import {
  formatEvent,
  parseSseEvent,
  type SseEvent,
  SseSplitter,
  singleDataOf,
  sseEventOf,
  withoutByteOrderMark,
} from './sse.ts';
import { after, inOrder, isPromise, type MaybePromise, resume, TaskLine } from './task-line.ts';

/** The request that a response answers, and the filters that see it. An `Exchange` is one. */
export interface ResponseOwner {
  readonly req: RequestPort;
  readonly messages: readonly Call[];
  readonly isBatch: boolean;
  /** Set where the request asks for one page of tools and nothing else. */
  readonly page?: AskedPage | undefined;
  /** In the order of their stages. */
  readonly filters: readonly Filter[];
  /** The largest event or JSON body that is held for inspection, in bytes. */
  readonly maxMessageBytes: number;
  /** Must not throw. */
  onError(error: unknown): void;
}

/** A JSON body's messages; or that the body is a remembered page, and not the upstream's bytes. */
type JsonRead = Payload | 'recalled' | undefined;
type OwnBody = JsonObject | readonly JsonObject[] | Uint8Array | undefined;

const NO_PIECES: readonly Uint8Array[] = [];
const NONE: readonly JsonObject[] = [];
const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');
const ENCODING = 'accept-encoding';

/** How many bytes may wait for a filter before the upstream must wait: as many as Node allows. */
const HIGH_WATER_MARK = 16 * 1024;

/**
 * A write is handled at once, or, while a filter still works on an earlier one, after that. Where
 * anything throws or rejects on the way, the client gets an error instead of the rest.
 */
export class Tap implements ResponseSink {
  readonly res: ResponsePort;
  mode: BodyMode = 'pending';
  /** The stream had an event id: a client can resume it after it was cut. */
  resumable = false;
  /** We opened the answer as an event stream, before the upstream gave its head. */
  opened = false;
  /** The upstream has given its status and headers. */
  headTaken = false;
  /** The upstream is done. */
  ended = false;
  /** The whole body of an error answer that a filter has held back. */
  heldError: Buffer | undefined;
  /** A write returned `false`, and `drain` was not emitted since. */
  owesDrain = false;

  /** How far the response to the client is. While `preparing`, the filters change its headers. */
  #phase: 'unsent' | 'preparing' | 'sent' | 'ended' = 'unsent';
  /**
   * Whose body the client gets. `early`: ours, while the filters still read what the upstream
   * writes. `own`: ours, and the upstream is not read any more.
   */
  #source: 'upstream' | 'early' | 'own' = 'upstream';
  /**
   * Where the client is, and what the upstream knows of it. `kept`: it is here, and the upstream
   * shall not notice if it leaves. `departed`: it left unnoticed. `released`: it left unnoticed,
   * and the upstream was notified since. `closed`: it left, and the upstream saw it at once.
   */
  #client: 'here' | 'kept' | 'departed' | 'released' | 'closed' = 'here';

  readonly #host: Host;
  readonly #asked: ResponseOwner;
  readonly #original: Originals;
  readonly #line: TaskLine<this>;
  /** The client's `accept-encoding`, which is put back when the headers go. */
  readonly #encoding: string | undefined;

  /** The upstream's status and reason, which belong together. */
  #status: number | undefined;
  #reason: string | undefined;
  #statesLength = false;
  #hasWritten = false;
  #blocked = false;
  /** Bytes that wait for a filter. */
  #waiting = 0;
  /** Callbacks of writes that did not go out, because the connection broke. */
  readonly #broken: NonNullable<OnSent>[] = [];
  #answersTaken = false;
  /** Requests whose responses were sent on the stream. */
  readonly #responded: Call[] = [];
  /** A JSON body so far; or events that wait for the first response, as it decides the headers. */
  #buffered: Buffer[] | undefined;
  #bufferedBytes = 0;
  #splitter: SseSplitter | undefined;
  #isFirstEvent = true;

  constructor(host: Host, asked: ResponseOwner) {
    this.res = host.response;
    this.#host = host;
    this.#asked = asked;
    this.#line = new TaskLine(this);
    this.#original = host.redirect(this);
    // We cannot inspect a compressed response, so we ask the upstream for a plain one. A middleware
    // in front may still compress it. Without the header, no upstream compresses.
    const encoding = requestHeader(asked.req, ENCODING);
    if (encoding === undefined || encoding === 'identity') return;
    this.#encoding = encoding;
    setRequestHeader(asked.req, ENCODING, 'identity');
  }

  // --- For the rooms above -----------------------------------------------------------------------

  /** Whether the client left without the upstream's notice. */
  get departed(): boolean {
    return this.#client === 'departed' || this.#client === 'released';
  }

  /** Whether the client gets nothing more of the upstream's: it left, or was answered early. */
  get isCutOff(): boolean {
    return this.#source !== 'upstream' || this.departed;
  }

  /** Whether the upstream knows that the client left. */
  get closed(): boolean {
    return this.#client === 'closed' || this.#client === 'released';
  }

  /** Whether all of the response was written. */
  get isWhole(): boolean {
    return this.#phase === 'ended';
  }

  /** Requests that the upstream got and that no event has answered yet. */
  get unanswered(): readonly Call[] {
    const forwarded = this.#asked.messages.filter(isForwarded);
    return forwarded.filter((each) => !this.#responded.includes(each));
  }

  /** From now on the upstream does not notice if the client leaves: its response looks healthy. */
  withholdClose(): void {
    if (this.#client === 'here') this.#client = 'kept';
  }

  /** Reports a departure to the upstream, now or as soon as there is one. */
  releaseClose(): void {
    if (this.#client === 'kept') this.#client = 'here';
    if (this.#client !== 'departed') return;
    this.#client = 'released';
    try {
      this.#original.emit('close');
    } finally {
      this.#onClose();
    }
  }

  /** Puts a message of ours between two events of a stream. Other bodies have no room for it. */
  inject(message: JsonObject): void {
    this.#line.run(this.#inject, sseEventOf(message));
  }

  /** Writes a comment, which clients skip, so that no proxy closes a quiet stream. */
  keepAlive(): void {
    this.#line.run(this.#inject, KEEP_ALIVE);
  }

  /** Writes to one request before its answer. That goes on in the stream which the first opens. */
  notifyAhead(message: JsonObject): void {
    this.#line.add(() => {
      if (!this.opened) this.#open();
      if (this.opened) this.#sendEvent(sseEventOf(message));
    });
  }

  /**
   * Answers the request without the upstream.
   *
   * @param ahead the first pieces of a body of which `body` is the last
   */
  respond(status: number, body: OwnBody, ahead?: readonly Uint8Array[]): void {
    this.headTaken = true;
    this.ended = true;
    this.mode = 'empty';
    this.#source = 'own';
    this.#answersTaken = true;
    this.#host.dropBody();
    this.#line.add(() => this.#give(status, body, ahead));
  }

  /**
   * Ends the response early, with these as its last messages. The filters still read what the
   * upstream writes, and where its close is withheld, it does not notice. A raw body goes on.
   */
  abandon(messages: readonly JsonObject[]): void {
    if (this.#phase === 'ended' || this.mode === 'raw') return;
    this.#source = 'early';
    if (!this.headTaken) this.#original.keepHeaders();
    this.#line.add(() => after(this.#giveLast(messages), () => this.flowAgain()));
  }

  /** The client reads the body of no error, and it must read this one: it says not to try again. */
  showBody(): void {
    if (!this.#isSent) this.res.statusCode = 200;
  }

  // --- For the upstream --------------------------------------------------------------------------

  get closeWithheld(): boolean {
    return this.#client === 'departed';
  }

  takeHead(reason: string | undefined, withEnd: boolean): void {
    this.headTaken = true;
    if (this.#source === 'own') return;
    if (this.#source === 'upstream') {
      this.#status = this.res.statusCode;
      this.#reason = reason;
      this.#statesLength = withEnd;
    }
    this.mode = this.#classify();
    if (this.opened) this.#line.run(this.#ask, undefined);
    this.#line.run(this.#begin, undefined);
  }

  write(bytes: Buffer, done: OnSent): boolean {
    this.#line.run(this.#read, bytes);
    if (done !== undefined) this.#line.run(this.#afterWrites, done);
    // Few waiting bytes do not pause the upstream: its last event and end can go in one packet.
    this.#waiting = this.#line.busy ? this.#waiting + bytes.length : 0;
    const flows = this.#flows;
    if (!flows) this.owesDrain = true;
    return flows;
  }

  end(last: Buffer, done: OnSent): void {
    this.ended = true;
    this.#line.run(this.#readEnd, last);
    if (this.#source === 'early') this.#line.run(this.releaseClose, undefined);
    if (done !== undefined) this.#line.run(this.#onceFinished, done);
  }

  flush(): void {
    this.#line.run(this.#sendWantedHead, undefined);
    // Headers that go with the first event save a packet and a system call.
    setImmediate(() => this.#line.run(this.#flushHead, undefined));
  }

  /** The client, or a middleware in front, can take more. */
  flowAgain(): void {
    this.#blocked = false;
    this.#offerDrain();
  }

  /** `drain` is being emitted. */
  drained(): void {
    this.#blocked = false;
    this.owesDrain = false;
  }

  /** The connection closed. `true` where the upstream must not notice. */
  close(): boolean {
    const isEnded = this.#phase === 'ended';
    if (!isEnded && this.#host.isCutHere()) this.releaseClose();
    // Of a finished response there is nothing to keep.
    if (this.#client === 'kept' && !(isEnded && this.#isUpstreamDone)) this.#depart();
    if (this.#client === 'departed') return true;
    if (this.#client === 'here' || this.#client === 'kept') {
      this.#client = 'closed';
      this.#onClose();
    }
    return false;
  }

  destroy(): void {
    this.releaseClose();
  }

  // --- For the line of tasks ---------------------------------------------------------------------

  /** No task is waiting any more. */
  onIdle(): void {
    this.#waiting = 0;
    this.#offerDrain();
  }

  /** Fails closed: each unanswered request gets an error, and nothing else goes out. */
  async onFailed(error: unknown): Promise<void> {
    this.#asked.onError(error);
    const isStream = this.opened || this.mode === 'sse' || this.mode === 'stream';
    const wasEarly = this.#source === 'early';
    this.#source = 'own';
    if (this.#phase !== 'ended') this.mode = 'unreadable';
    if (wasEarly) this.releaseClose();
    try {
      await this.#refuse(isStream, error instanceof ResponseTooLarge ? error.said : undefined);
    } catch (second) {
      this.#asked.onError(second);
      this.res.destroy();
    }
  }

  // --- The body, as the upstream writes it -------------------------------------------------------

  #classify(): BodyMode {
    try {
      for (const filter of this.#asked.filters) {
        const taken = filter.takesOver?.(this.res);
        if (taken !== undefined) return taken;
      }
      const { messages } = this.#asked;
      const owesAnswers = !this.#answersTaken && messages.some(hasAnswer);
      const mode = bodyModeOf(this.res, messages.some(isForwarded), owesAnswers);
      return mode === 'raw' && (this.opened || this.#holdsError) ? 'json' : mode;
    } catch (error) {
      this.#asked.onError(error);
      return 'unreadable';
    }
  }

  get #holdsError(): boolean {
    const isError = this.res.statusCode >= 300;
    return isError && this.#asked.filters.some((filter) => filter.holdsErrors?.() === true);
  }

  #begin(): MaybePromise<void> {
    if (this.#source === 'own') return;
    switch (this.mode) {
      case 'unreadable':
        throw new Error(whyUnreadable(this.res));
      case 'empty':
        return this.#finishWith(undefined);
      case 'stream':
        dropBodyHeaders(this.res);
        return after(this.#sendHead(), () => this.#flushHead());
      case 'sse':
        this.res.removeHeader('content-length');
        this.#splitter = new SseSplitter();
        // An `initialize` that fails mints no session, so its headers wait for the response.
        if (this.#asked.messages.some(({ method }) => method === 'initialize')) this.#buffered = [];
    }
  }

  #read(bytes: Buffer): MaybePromise<void> {
    if (this.#source === 'own') return;
    if (this.mode === 'sse') return this.#readEvents(bytes);
    if (this.mode === 'json') this.#buffer(bytes);
    if (this.mode === 'raw') return after(this.#sendHead(), () => this.#send(bytes));
  }

  #readEnd(last: Buffer): MaybePromise<void> {
    if (this.#source === 'own') return;
    if (this.mode === 'json') return this.#endJson(last);
    if (this.mode === 'sse') return this.#endEvents(last);
    if (this.mode === 'raw') return after(this.#lastWords(), () => this.#finish(last));
  }

  /** The upstream wants its headers sent. */
  #sendWantedHead(): MaybePromise<void> {
    if (this.#source === 'own') return;
    if (this.mode === 'raw') return this.#sendHead();
    if (this.mode === 'sse' && this.#buffered === undefined) return this.#beginEvents();
  }

  #inject(event: Buffer): MaybePromise<void> {
    if (this.#source === 'own') return;
    if (this.mode === 'sse') return this.#passEvent(event);
    if (this.mode === 'stream') this.#sendEvent(event);
  }

  /** Keeps a part of a JSON body, which the filters read whole. */
  #buffer(bytes: Buffer): void {
    this.#bufferedBytes += bytes.length;
    this.#limit(this.#bufferedBytes, 'a response');
    this.#buffered ??= [];
    // A copy: the writer may use its memory again.
    this.#buffered.push(Buffer.from(bytes));
  }

  #endJson(last: Buffer): MaybePromise<void> {
    this.#limit(this.#bufferedBytes + last.length, 'a response');
    const begun = this.#buffered;
    if (last.length > 0) begun?.push(last);
    const body = begun && begun.length > 1 ? Buffer.concat(begun) : (begun?.[0] ?? last);
    const { page, filters } = this.#asked;
    if (this.#holdsError) this.heldError = body;
    if (page === undefined) return this.#readJson(undefined, body);
    return resume(page.recall(filters, body), this, this.#readJson, body);
  }

  #readJson(known: { bytes: Buffer } | undefined, body: Buffer): MaybePromise<void> {
    if (known !== undefined)
      return this.#finishJson(known.bytes, known.bytes.equals(body) ? undefined : 'recalled');
    const payload = this.#isWanted(body) ? this.#parse(body) : undefined;
    if (payload === undefined) return this.#finishJson(body, undefined);
    return resume(this.#onMessages(payload), this, this.#keepJson, body, payload);
  }

  #keepJson(_: unknown, body: Buffer, payload: Payload): MaybePromise<void> {
    this.#asked.page?.keep(this.#asked.filters, body, payload);
    return this.#finishJson(body, payload);
  }

  #finishJson(body: Buffer, read: JsonRead): MaybePromise<void> {
    return resume(this.#lastWords(), this, this.#addToJson, body, read);
  }

  #addToJson(words: readonly JsonObject[], body: Buffer, read: JsonRead): MaybePromise<void> {
    const answers = this.#takeAnswers();
    if (this.#source !== 'upstream') return;
    const more = answers.length > 0 ? [...words, ...answers] : words;
    if (read === 'recalled' && more.length === 0) return this.#finishWith(body);
    const known = read === 'recalled' ? undefined : read;
    if (this.opened) return this.#addToStream((known ?? this.#parse(body))?.messages ?? [], more);
    if (this.heldError !== undefined && more.length > 0)
      return this.#finishWith(Buffer.from(JSON.stringify(this.#inPlaceOf(known, more))));
    const payload = known ?? (more.length > 0 ? this.#parse(body) : undefined);
    if (payload === undefined || (more.length === 0 && !payload.changed)) return this.#finish(body);
    const { res } = this;
    // These statuses say that there is no body, and now there is one.
    if (res.statusCode === 202 || res.statusCode === 204) res.statusCode = 200;
    return this.#finishWith(Buffer.from(payload.textWith(more)));
  }

  /** A body goes on in the stream that we opened. Without an answer in it, its status is sent. */
  #addToStream(said: readonly Message[], more: readonly JsonObject[]): MaybePromise<void> {
    for (const { text, value, dropped } of said) {
      if (value.method === undefined) this.#noteSent(value.id);
      const isMessage = value.jsonrpc === '2.0' && value.id !== null;
      if (isMessage && !dropped) this.#sendEvent(Buffer.from(formatEvent(text)));
    }
    const left = this.unanswered.filter(({ id }) => !more.some((ours) => ours.id === id));
    const rest = left.map(({ id }) => errorOfStatus(id, this.res.statusCode, said[0]?.value.error));
    return this.#finishStream([...more, ...rest]);
  }

  /** `undefined` where the body need not be a message: an error, or another route's answer. */
  #parse(body: Buffer): Payload | undefined {
    const { messages, isBatch } = this.#asked;
    const payload = Payload.parse(body.toString(), isBatch);
    if (payload === undefined && messages.length > 0 && succeeded(this.res.statusCode))
      throw new Error(RESPONSE_FAULTS.noMessage);
    return payload;
  }

  #readEvents(bytes: Buffer): MaybePromise<void> {
    const splitter = this.#splitter;
    if (splitter === undefined) return;
    return after(
      inOrder(splitter.push(bytes), (block) => this.#look(block)),
      () => this.#limit(splitter.bufferedBytes, 'an event of a response'),
    );
  }

  #look(given: Buffer): MaybePromise<void> {
    this.#limit(given.length, 'an event of a response');
    // A byte order mark counts only at the very start, and we may put events in front.
    const block = this.#isFirstEvent ? withoutByteOrderMark(given) : given;
    this.#isFirstEvent = false;
    // No filter wants it: it need not be parsed.
    if (!this.#isWanted(block)) return after(this.#beginEvents(), () => this.#passEvent(block));
    const single = this.#asked.page && singleDataOf(block);
    if (single?.event.type !== 'message') return this.#inspect(block);
    return after(this.#asked.page?.recall(this.#asked.filters, single.data), (known) => {
      if (known === undefined) return this.#inspect(block, single.data);
      if (single.event.hasId) this.resumable = true;
      return after(this.#passEvent(single.with(known.bytes)), () => this.#noteSent(known.id));
    });
  }

  /** @param page the event's data, where that may be a page of tools */
  #inspect(block: Buffer, page?: Buffer): MaybePromise<void> {
    const event = parseSseEvent(block.toString());
    if (event.hasId) this.resumable = true;
    // An event without data only gives an id to resume after. One of another type is no message
    // (MCP, Transports, "Sending Messages").
    if (!event.data || event.type !== 'message') return this.#passEvent(block);
    const payload = Payload.parse(event.data);
    if (payload === undefined) {
      // No client can read it, and it might be part of a list that must be filtered.
      this.#asked.onError(new Error(RESPONSE_FAULTS.noEvent));
      return;
    }
    return after(this.#onMessages(payload), () => {
      if (page !== undefined) this.#asked.page?.keep(this.#asked.filters, page, payload);
      return this.#pass(payload, event, block);
    });
  }

  #pass(payload: Payload, event: SseEvent, block: Buffer): MaybePromise<void> {
    const { messages, changed } = payload;
    const ids = messages.map(({ value }) => value).filter(({ method }) => method === undefined);
    return after(ids.length > 0 ? this.#beginEvents() : undefined, () => {
      if (this.#source !== 'upstream') return;
      const own = changed ? Buffer.from(formatEvent(payload.textWith(), event.otherLines)) : block;
      const passed = messages.flatMap((message) => message.before).map(sseEventOf);
      if (messages.some((message) => !message.dropped)) passed.push(own);
      return after(this.#passEvent(passed.length === 1 ? own : Buffer.concat(passed)), () => {
        for (const { id } of ids) this.#noteSent(id);
      });
    });
  }

  #noteSent(id: unknown): void {
    for (const each of this.#asked.messages) if (each.id === id) this.#responded.push(each);
  }

  #endEvents(last: Buffer): MaybePromise<void> {
    return after(this.#readEvents(last), () => {
      // Without a blank line at its end, no client dispatches the event, so no filter must see it.
      const rest = this.#splitter?.rest() ?? NOTHING;
      const sent = rest.length > 0 && !this.#isWanted(rest) ? this.#passEvent(rest) : undefined;
      return after(sent, () => after(this.#lastWords(), (added) => this.#finishEvents(added)));
    });
  }

  #finishEvents(added: readonly JsonObject[]): MaybePromise<void> {
    if (this.#source !== 'upstream') return;
    return after(this.#beginEvents(), () => {
      for (const message of added) this.#sendEvent(sseEventOf(message));
      if (!this.#asked.filters.some((filter) => filter.staysOpen?.())) return this.#finish();
    });
  }

  /** Sends the headers, our own answers, and the events that waited for them. */
  #beginEvents(): MaybePromise<void> {
    if (this.#source !== 'upstream') return;
    return after(this.#sendHead(), () => {
      for (const answer of this.#takeAnswers()) this.#sendEvent(sseEventOf(answer));
      for (const bytes of this.#buffered ?? []) this.#sendEvent(bytes);
      this.#buffered = undefined;
    });
  }

  #passEvent(bytes: Buffer): MaybePromise<void> {
    if (this.#source !== 'upstream') return;
    if (this.#buffered === undefined)
      return after(this.#beginEvents(), () => this.#sendEvent(bytes));
    this.#buffered.push(Buffer.from(bytes));
    this.#bufferedBytes += bytes.length;
    this.#limit(this.#bufferedBytes, 'an event of a response');
  }

  #limit(bytes: number, what: string): void {
    if (bytes <= this.#asked.maxMessageBytes) return;
    const announced = this.mode === 'json' && this.res.getHeader('content-length');
    const size = Math.max(bytes, Number(announced || 0));
    throw new ResponseTooLarge(what, size, this.#asked.maxMessageBytes);
  }

  // --- To the filters ----------------------------------------------------------------------------

  /** Whether any filter must see these bytes. */
  #isWanted(bytes: Buffer): boolean {
    for (const filter of this.#asked.filters) if (filter.wants?.(bytes)) return true;
    return false;
  }

  #onMessages({ messages }: Payload): MaybePromise<void> {
    if (messages.length === 1) return this.#onMessage(messages[0] as Message);
    return inOrder(messages, (message) => this.#onMessage(message));
  }

  #onMessage(message: Message): MaybePromise<void> {
    if (isContradictory(message.value)) {
      // Clients disagree about which of the two counts, so our client gets neither.
      this.#asked.onError(new Error(RESPONSE_FAULTS.both));
      message.isContradictory = true;
      message.replace(unreadable(message.value.id));
    }
    return this.#ask(message);
  }

  /**
   * The messages that the filters add at the end.
   *
   * @param at the first filter to ask
   * @param said what the filters before it added
   */
  #lastWords(at = 0, said = NONE): MaybePromise<readonly JsonObject[]> {
    const { filters } = this.#asked;
    let words = said;
    for (let next = at; next < filters.length; next++) {
      const more = filters[next]?.onEnd?.();
      if (more === undefined) continue;
      if (isPromise(more)) return this.#lastWordsAfter(more, next + 1, words);
      if (more.length > 0) words = [...words, ...more];
    }
    return words;
  }

  async #lastWordsAfter(
    more: Promise<readonly JsonObject[]>,
    at: number,
    said: readonly JsonObject[],
  ): Promise<readonly JsonObject[]> {
    return this.#lastWords(at, [...said, ...(await more)]);
  }

  #prepareHead(): MaybePromise<void> {
    if (this.#phase !== 'unsent') return;
    this.#phase = 'preparing';
    if (this.#encoding !== undefined) setRequestHeader(this.#asked.req, ENCODING, this.#encoding);
    const asked = this.#ask();
    if (isPromise(asked)) return resume(asked, this, this.#reportIfClosed);
    this.#reportIfClosed();
  }

  /**
   * Shows a message to the filters, or the head, one after another. In the current turn, while none
   * of them has to wait.
   */
  #ask(message?: Message, at = 0): MaybePromise<void> {
    const { filters } = this.#asked;
    for (let next = at; next < filters.length; next++) {
      const filter = filters[next];
      const asked = message === undefined ? filter?.onHead?.() : filter?.onMessage?.(message);
      if (isPromise(asked)) return resume(asked, this, this.#askOthers, message, next + 1);
    }
  }

  #askOthers(_: unknown, message: Message | undefined, at: number): MaybePromise<void> {
    return this.#ask(message, at);
  }

  /** The client had left before, so a filter that has just begun must learn it now. */
  #reportIfClosed(): void {
    if (this.closed) this.reportClose();
  }

  #depart(): void {
    this.#client = 'departed';
    for (const filter of this.#asked.filters) {
      try {
        filter.onDepart?.();
      } catch (error) {
        this.#asked.onError(error);
      }
    }
    // An upstream that waits for the client to read would never end, and its outcome be lost.
    this.drained();
    this.#settleWrites();
    this.#original.emit('drain');
  }

  #onClose(): void {
    this.#settleWrites();
    this.reportClose();
  }

  /** Reports the departure to the filters. Where one throws, the others get it too. */
  reportClose(filters = this.#asked.filters): void {
    for (const filter of filters) {
      try {
        filter.onClose?.();
      } catch (error) {
        this.#asked.onError(error);
      }
    }
  }

  /** Our own answers, the first time that they are asked for. */
  #takeAnswers(): readonly JsonObject[] {
    const answers = this.#answersTaken ? NONE : answersIn(this.#asked.messages);
    this.#answersTaken = true;
    return answers;
  }

  // --- Our own body, in place of the upstream's or of the rest of it -----------------------------

  #give(status: number, body: OwnBody, ahead?: readonly Uint8Array[]): MaybePromise<void> {
    this.res.statusCode = status;
    if (body instanceof Uint8Array) return this.#finishWith(body, ahead);
    if (this.opened) return this.#finishStream(body === undefined ? [] : [body].flat());
    return this.#finishWith(body === undefined ? undefined : Buffer.from(JSON.stringify(body)));
  }

  /** Ends a stream with these messages; answers with them where nothing was sent yet. */
  #giveLast(messages: readonly JsonObject[]): MaybePromise<void> {
    if (this.#phase === 'ended') return;
    const all = [...this.#takeAnswers(), ...messages];
    if (this.#isSent) return this.#finishStream(all);
    return this.#give(all.length === 0 ? 202 : 200, this.#inShape(all));
  }

  /** Answers with errors. A JSON body that has begun has no place for them: it just ends. */
  async #refuse(isStream: boolean, why: string | undefined): Promise<void> {
    if (this.#phase === 'ended') return;
    const hasBegun = this.#isSent;
    for (const filter of this.#asked.filters) {
      try {
        await filter.onUnreadable?.();
      } catch (error) {
        this.#asked.onError(error);
      }
    }
    const rest = [...this.#takeAnswers(), ...this.unanswered.map(({ id }) => unreadable(id, why))];
    if (hasBegun) return this.#finishStream(isStream ? rest : []);
    await this.#give(502, this.#inShape(rest.length > 0 ? rest : [unreadable(null, why)]));
  }

  /** Our messages in place of an error answer, of which only answers to the requests stay. */
  #inPlaceOf(error: Payload | undefined, ours: readonly JsonObject[]): unknown {
    const ids = this.#asked.messages.map(({ id }) => id);
    const answers = (error?.messages ?? []).map(({ value }) => value);
    const all = [...answers.filter(({ id }) => isRequestId(id) && ids.includes(id)), ...ours];
    return this.#inShape(all.filter(({ id }, at) => all.findIndex((one) => one.id === id) === at));
  }

  #finishStream(messages: readonly JsonObject[]): MaybePromise<void> {
    for (const message of messages) this.#sendEvent(sseEventOf(message));
    return this.#finish();
  }

  #inShape(messages: readonly JsonObject[]): JsonObject | readonly JsonObject[] | undefined {
    const isArray = messages.length > 1 || (this.#asked.isBatch && messages.length > 0);
    return isArray ? messages : messages[0];
  }

  // --- To the client -----------------------------------------------------------------------------

  get #isSent(): boolean {
    return this.#phase === 'sent' || this.#phase === 'ended';
  }

  /** No client reads the response any more. */
  get #gone(): boolean {
    return this.#client !== 'here' && this.#client !== 'kept';
  }

  /** The filters have nothing more to read. Ask only where the response has `ended`. */
  get #isUpstreamDone(): boolean {
    return this.#source !== 'early' || this.ended;
  }

  #sendHead(): MaybePromise<void> {
    if (this.#isSent) return;
    return resume(this.#prepareHead(), this, this.#writeHead);
  }

  #writeHead(): void {
    if (this.#isSent) return;
    this.#phase = 'sent';
    const status = this.res.statusCode;
    const isChanged = this.#status !== undefined && this.#status !== status;
    this.#original.writeHead(status, isChanged ? STATUS_CODES[status] : this.#reason);
  }

  /** Opens the answer before the upstream gives its head. The filters get that one later. */
  #open(): void {
    if (this.headTaken || this.#phase !== 'unsent') return;
    this.opened = true;
    this.#original.keepHeaders();
    announceStream(this.res);
    if (this.#encoding !== undefined) setRequestHeader(this.#asked.req, ENCODING, this.#encoding);
    this.#writeHead();
    if (this.#encoding !== undefined) setRequestHeader(this.#asked.req, ENCODING, 'identity');
  }

  /** Flushes headers that were sent without any byte of a body. */
  #flushHead(): void {
    if (this.#phase === 'sent' && !this.#hasWritten && !this.#gone) this.#original.flushHeaders();
  }

  /**
   * Drops the bytes where the client has left. The headers and the end are still written, for the
   * middlewares in front.
   */
  #send(bytes: Uint8Array): void {
    if (bytes.length === 0 || this.#phase === 'ended' || this.#gone) return;
    this.#hasWritten = true;
    if (this.#original.write(bytes) === false) this.#blocked = true;
  }

  /** Writes an event, which no middleware in front may hold back. */
  #sendEvent(bytes: Uint8Array): void {
    this.#send(bytes);
    this.res.flush?.();
  }

  /** Ends the response. Where the headers were not sent yet, `ahead` and `last` are all of it. */
  #finish(last: Uint8Array = NOTHING, ahead = NO_PIECES): MaybePromise<void> {
    if (this.#phase === 'ended') return;
    const prepared = this.#prepareHead();
    if (isPromise(prepared)) return resume(prepared, this, this.#endWith, last, ahead);
    this.#endWith(undefined, last, ahead);
  }

  #endWith(_: unknown, last: Uint8Array, ahead: readonly Uint8Array[]): void {
    let { length } = last;
    for (const piece of ahead) length += piece.length;
    if (!this.#isSent && this.#statesLength) stateLength(this.res, length);
    if (!this.#isSent) this.#checkLength(length);
    this.#writeHead();
    // Not joined: copying a long list costs more than the rest of its answer.
    for (const piece of ahead) this.#send(piece);
    this.#phase = 'ended';
    try {
      this.#original.end(last.length > 0 && !this.#gone ? last : undefined);
    } catch (error) {
      // A body of another length than stated: else the client would wait for the rest for ever.
      this.res.destroy();
      throw error;
    }
    if (this.#isUpstreamDone) this.releaseClose();
  }

  /** Throws while an error can still be sent, where Node itself would throw at the end. */
  #checkLength(length: number): void {
    const isStrict = this.res.strictContentLength === true;
    const stated = this.res.getHeader('content-length');
    if (!isStrict || stated === undefined || Number(stated) === length) return;
    const hasBody = this.#asked.req.method !== 'HEAD' && this.res.statusCode !== 304;
    if (hasBody && !this.#gone)
      throw new Error(`the upstream stated ${Number(stated)} bytes, and sent ${length}`);
  }

  /** Ends the response with a JSON body in place of the upstream's, or with none. */
  #finishWith(json: Uint8Array | undefined, ahead?: readonly Uint8Array[]): MaybePromise<void> {
    if (this.#isSent) return this.#finish();
    announceBody(this.res, json !== undefined);
    this.#statesLength = true;
    return this.#finish(json, ahead);
  }

  // --- Back-pressure on the upstream, and its callbacks ------------------------------------------

  get #flows(): boolean {
    if (this.#gone || this.#phase === 'ended') return true;
    return this.#waiting <= HIGH_WATER_MARK && !this.#blocked;
  }

  #offerDrain(): void {
    if (!this.owesDrain || !this.#flows) return;
    this.owesDrain = false;
    // In its own tick: what the upstream's listener throws is not this response's failure.
    process.nextTick(() => this.#original.emit('drain'));
  }

  /** Calls back once all earlier writes were sent: a writer may pace itself by it. */
  #afterWrites(done: NonNullable<OnSent>): void {
    if (this.#phase !== 'sent') process.nextTick(done);
    else if (this.#gone) process.nextTick(done, this.#writeError);
    else {
      this.#original.write(NOTHING, (error) => {
        if (!error) done();
        else if (this.#gone) done(this.#writeError);
        else this.#broken.push(done);
      });
    }
  }

  /** The error of a write when the client is gone; none where the upstream must not notice. */
  get #writeError(): Error | undefined {
    if (this.closeWithheld) return undefined;
    return Object.assign(new Error('The client left'), { code: 'ERR_STREAM_DESTROYED' });
  }

  /** Calls the broken writes back: what the upstream may know of the connection is settled. */
  #settleWrites(): void {
    for (const done of this.#broken.splice(0)) process.nextTick(done, this.#writeError);
  }

  /** Calls back at once where the client gets another body, or none, than the upstream's. */
  #onceFinished(done: NonNullable<OnSent>): void {
    const isOwn = this.#source !== 'upstream' || this.mode === 'stream' || this.mode === 'empty';
    if (isOwn || this.departed) process.nextTick(done);
    else this.#original.onceFinished(done);
  }
}

const isForwarded = (each: Call): boolean => each.kind === 'request' && each.isForwardable;
