import type { Clock } from '../basics/clock.ts';
import type { Events } from '../basics/events.ts';
import type { Amended, BodyFailure, BodyPort } from './body.ts';
import { answersIn, type BodyMessages, type Call, readCalls } from './call.ts';
import { type Answer, AskedPage, type Filter } from './filter.ts';
import { headerSaysStateless, namesFault, type RequestPort, requestHeader } from './headers.ts';
import { errorResponse, JSON_RPC, type ListKind, listChanged } from './json-rpc.ts';
import type { Message } from './message.ts';
import type { Host } from './node-host.ts';
import { uniqueNameOf } from './pages.ts';
import { type ResponseOwner, Tap } from './tap.ts';
import { after, inOrder, isPromise, type MaybePromise } from './task-line.ts';
import { WaitNotice } from './wait-notice.ts';
import type { SeenRequest } from './witness.ts';

/** What an exchange may hold in memory. */
export interface WireLimits {
  /** The largest request body, in bytes. */
  readonly maxBodyBytes: number;
  /** The most messages in one batch. */
  readonly maxBatch: number;
  /** The largest message of a response that is held for inspection, in bytes. */
  readonly maxMessageBytes: number;
}

/** The app's observers: they get what no client gets. They must not throw. */
export interface Observers {
  readonly onError: (error: unknown) => void;
  readonly onWarning: (warning: string) => void;
  /** All that happens; `onError` is a view of it. */
  readonly events: Events;
}

export const DEFAULT_LIMITS: WireLimits = {
  maxBodyBytes: 4 * 1024 * 1024,
  maxBatch: 50,
  maxMessageBytes: 16 * 1024 * 1024,
};

/** The messages of a batch that the upstream still gets. */
class AmendedBatch implements Amended {
  readonly #left: readonly Call[];

  constructor(left: readonly Call[]) {
    this.#left = left;
  }

  get text(): string {
    return `[${this.#left.map(({ message }) => message.text).join(',')}]`;
  }

  get value(): unknown {
    return this.#left.map(({ message }) => message.value);
  }
}

const isRequestCall = ({ kind }: Call): boolean => kind === 'request';
const isForwardable = (call: Call): boolean => call.isForwardable;

const NO_MESSAGES: BodyMessages = { isBatch: false, messages: [], isStale: false };

/**
 * Private data on an object that we do not own. A `WeakMap` would cost more: with one entry for
 * each request in flight, its garbage collection took longer than all our other work.
 */
export class Note<Owner extends object, Value> {
  readonly #key = Symbol('mcp-interlock.note');

  of(owner: Owner): Value | undefined {
    return Reflect.get(owner, this.#key) as Value | undefined;
  }

  put(owner: Owner, value: Value): void {
    Object.defineProperty(owner, this.#key, { value, configurable: true });
  }
}

const exchangeNote = new Note<object, Exchange>();

/**
 * Where the note of a request lies: on its stream state, which a `Request` lacks. Express gives
 * each request its own hidden class, so that a property on the request would cost 1.6 kB.
 */
export function notePlaceOf(req: object): object {
  return (req as { readonly _readableState?: object })._readableState ?? req;
}

/**
 * What a middleware does with an exchange. Nothing is handed on where it gives `false` or
 * `undefined`: then it answered. It gives a promise only where it has to wait.
 */
export type Enter = (exchange: Exchange, observers: Observers) => MaybePromise<unknown>;

/** A middleware without its host: what Node's form and `gateFetch()` share. */
export interface Stage {
  readonly limits: WireLimits;
  /** Its own observers. */
  readonly observers: Observers;
  /** The observers behind a `sessionStore()` that has these: always the same object for them. */
  observersBehind(others: Observers): Observers;
  readonly enter: Enter;
  /** Calls what comes behind it, where that has to run inside of something. */
  forward?(exchange: Exchange, next: () => void): void;
}

/** In the order in which a response runs through them. */
const STAGES = ['session', 'gate', 'sync'] as const;

/**
 * One HTTP request and its response, which all middlewares of a route share. So the body is read
 * once, and the response is written once.
 */
export class Exchange implements ResponseOwner {
  readonly req: RequestPort;
  readonly tap: Tap;
  readonly messages: readonly Call[];
  readonly requests: readonly Call[];
  readonly isBatch: boolean;
  readonly page: AskedPage | undefined;
  readonly maxMessageBytes: number;
  /** One for each middleware that has a part in it, in the order of their stages. */
  filters: readonly Filter[] = [];
  /** The observers of the `sessionStore()` in front, for the middlewares behind it. */
  observers: Observers | undefined;
  /** These three belong to the rooms above: only the room that sets one knows its type. */
  admission: object | undefined;
  gates: ReadonlyMap<string, object> | undefined;
  subscription: object | undefined;
  readonly #host: Host;
  readonly #body: BodyPort | undefined;
  readonly #onError: (error: unknown) => void;
  #isJudged = false;
  /** How many changes the body had when it was last written; -1 where it must be written anyway. */
  #forwardedChanges: number;
  /** The names of the middlewares that a request for a list has passed. */
  #passed = '';
  #waitNotice: WaitNotice | undefined;

  private constructor(
    host: Host,
    body: BodyPort | undefined,
    incoming: BodyMessages,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ) {
    this.req = host.request;
    this.#host = host;
    this.#body = body;
    this.messages = incoming.messages;
    this.requests = incoming.messages.every(isRequestCall)
      ? incoming.messages
      : incoming.messages.filter(isRequestCall);
    this.isBatch = incoming.isBatch;
    this.page = AskedPage.of(incoming.messages);
    this.#forwardedChanges = incoming.isStale ? -1 : 0;
    this.maxMessageBytes = limits.maxMessageBytes;
    this.#onError = onError;
    this.tap = new Tap(host, this);
    // A copy of a request shares its original's stream state, and keeps its own note.
    const shared = notePlaceOf(this.req);
    exchangeNote.put(exchangeNote.of(shared) === undefined ? shared : this.req, this);
  }

  /** The exchange that a middleware opened for this request, or for its original. */
  static known(req: object): Exchange | undefined {
    const shared = exchangeNote.of(notePlaceOf(req));
    return shared?.req === req ? shared : (exchangeNote.of(req) ?? shared);
  }

  /** `gateFetch()` gives its handler another `Request`: it belongs to this exchange too. */
  noteAs(request: Request): void {
    exchangeNote.put(request, this);
  }

  /**
   * The exchange of this request. The first middleware opens it. `undefined` where the body was
   * refused, or the client left before it had sent all of it.
   */
  static of(
    host: Host,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ): MaybePromise<Exchange | undefined> {
    const known = Exchange.known(host.request);
    // A copy of a request carries its original's note, but needs an amended body of its own.
    if (known?.req === host.request) return known;
    if (host.request.method !== 'POST')
      return new Exchange(host, undefined, NO_MESSAGES, limits, onError);
    const body = host.readBody(limits.maxBodyBytes);
    return isPromise(body)
      ? Exchange.#openLater(host, body, limits, onError)
      : Exchange.#openWith(host, body, limits, onError);
  }

  static async #openLater(
    host: Host,
    body: Promise<BodyPort | BodyFailure>,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ): Promise<Exchange | undefined> {
    return Exchange.#openWith(host, await body, limits, onError);
  }

  static #openWith(
    host: Host,
    body: BodyPort | BodyFailure,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ): Exchange | undefined {
    if (body === 'aborted') return undefined;
    if ('status' in body) {
      host.refuse(
        body.status,
        JSON.stringify(errorResponse(null, JSON_RPC.PARSE_ERROR, body.message)),
      );
      return undefined;
    }
    const incoming = readCalls(body, limits.maxBatch);
    if ('status' in incoming) {
      host.refuse(incoming.status, JSON.stringify(incoming.body));
      return undefined;
    }
    const fault = namesFault(host.request, incoming.messages);
    if (fault !== undefined) {
      const id = incoming.isBatch ? undefined : incoming.messages[0]?.id;
      host.refuse(400, JSON.stringify(errorResponse(id ?? null, fault.code, fault.message)));
      return undefined;
    }
    return new Exchange(host, body, incoming, limits, onError);
  }

  /**
   * About how many bytes of memory the body takes. A parsed body is as long as its header says,
   * unless it came compressed.
   */
  get size(): number {
    if (this.#body === undefined) return 0;
    if (this.#body.text !== undefined) return this.#body.text.length;
    const isPacked = requestHeader(this.req, 'content-encoding') !== undefined;
    const stated = isPacked ? 0 : Number(requestHeader(this.req, 'content-length') ?? 0);
    return stated || this.messages.reduce((sum, { message }) => sum + message.text.length, 0);
  }

  /**
   * Whether the client's connection has ended. Node emits `close` late, and not before it has
   * answered the connection's earlier requests.
   */
  get isGone(): boolean {
    return this.#host.isGone;
  }

  /** The requests that the upstream has or will get. */
  get forwardable(): readonly Call[] {
    const { requests } = this;
    for (const each of requests) if (!each.isForwardable) return requests.filter(isForwardable);
    return requests;
  }

  /** Whether a middleware is judging it: the upstream has seen nothing of it yet. */
  get isJudged(): boolean {
    return this.#isJudged;
  }

  /**
   * A call of it waits for another one, until the returned function is called. `undefined` where
   * its client cannot be notified.
   */
  notifyOfWait(clock: Clock): (() => void) | undefined {
    this.#waitNotice ??= WaitNotice.of(this, clock);
    return this.#waitNotice?.begin();
  }

  /** Adds a filter, by stage, and within a stage in the order of mounting. */
  join(filter: Filter): void {
    const { filters } = this;
    const stage = STAGES.indexOf(filter.stage);
    let at = filters.length;
    for (; at > 0; at--) {
      const earlier = filters[at - 1];
      if (earlier !== undefined && STAGES.indexOf(earlier.stage) <= stage) break;
    }
    this.filters = filters.toSpliced(at, 0, filter);
    if (this.tap.closed) this.tap.reportClose([filter]);
  }

  /** Reports to the app's observer. What the observer throws goes no further. */
  onError(error: unknown): void {
    try {
      this.#onError(error);
    } catch {}
  }

  /**
   * The app could not hand the request on, so nothing of it ran. All filters know that before
   * anything else happens.
   */
  notForwarded(): Promise<unknown> {
    return Promise.all(this.filters.map((filter) => filter.onNotForwarded?.()));
  }

  /** Answers every request in the body with a JSON-RPC error. */
  reject(status: number, code: number, message: string): MaybePromise<void> {
    const ids = this.forwardable.map((each) => each.id ?? null);
    const errors = (ids.length === 0 ? [null] : ids).map((id) => errorResponse(id, code, message));
    return after(
      inOrder(this.forwardable, (each) => each.answerWith({})),
      () =>
        this.tap.respond(
          status,
          this.isBatch && ids.length > 0 ? errors : (errors[0] ?? undefined),
        ),
    );
  }

  /** Runs the stages one after another, from `at` on, and then what stands behind them. */
  passAll(stages: readonly Stage[], next: () => void, at = 0): void {
    const stage = stages[at];
    if (stage === undefined) next();
    else if (at === stages.length - 1) this.pass(stage, next);
    else this.pass(stage, () => this.passAll(stages, next, at + 1));
  }

  /**
   * Runs one stage, and then what stands behind it. Where the stage fails, nothing is forwarded,
   * and `onError` gets the error. What `next` throws is the app's, and escapes.
   */
  pass(stage: Stage, next: () => void): void {
    const front = this.observers;
    const observers = front ? stage.observersBehind(front) : stage.observers;
    let entered: MaybePromise<unknown>;
    this.#isJudged = true;
    try {
      entered = stage.enter(this, observers);
    } catch (error) {
      this.#fail(error, observers);
      return;
    }
    if (isPromise(entered)) this.#passLater(stage, entered, observers, next);
    else this.#goOn(stage, entered, next);
  }

  /** A function of its own: its closures would cost each request memory that need not wait. */
  #passLater(
    stage: Stage,
    entered: Promise<unknown>,
    observers: Observers,
    next: () => void,
  ): void {
    void entered.then(
      (goesOn) => this.#goOn(stage, goesOn, next),
      (error) => this.#fail(error, observers),
    );
  }

  /** Where the upstream has answered already, there is no room for an error. */
  #fail(error: unknown, { onError }: Observers): void {
    if (!this.tap.headTaken) {
      void this.#failClosed(error, onError);
      return;
    }
    onError(error);
    this.tap.res.destroy();
  }

  #goOn(stage: Stage, goesOn: unknown, next: () => void): void {
    this.#isJudged = false;
    if (goesOn !== undefined && goesOn !== false) this.forward(next, stage);
  }

  /**
   * Calls the next handler; or answers the request, where nothing of it is left to forward or the
   * list is cached.
   *
   * @param stage the middleware that the request has passed
   */
  forward(next: () => void, stage?: Stage): void {
    let left = 0;
    for (const each of this.messages) if (each.isForwardable) left += 1;
    if (this.messages.length > 0 && left === 0) {
      this.#answerHere();
      return;
    }
    if (this.isGone) {
      // A handler that comes too late for `close` never gets it: a proxy would hold the stream.
      if (this.req.method === 'GET') return;
      // In the stateless era a client that leaves has cancelled. A proxy would wait for its body.
      if (headerSaysStateless(this.req) && this.#host.isBodyLost()) {
        this.tap.releaseClose();
        return;
      }
    }
    if (this.page === undefined) this.#handOn(next, stage);
    else this.#askForPage(this.page, next, stage);
  }

  /** Answers with the page, where a filter has it; otherwise the upstream is asked. */
  #askForPage(page: AskedPage, next: () => void, stage: Stage | undefined): void {
    if (stage !== undefined) this.#passed += ` ${uniqueNameOf(stage)}`;
    const fail = (error: unknown) => void this.#failClosed(error);
    const go = (ready: Answer) => {
      if (ready === undefined) this.#handOn(next, stage);
      else this.tap.respond(200, ready.at(-1), ready.slice(0, -1));
    };
    let ready: MaybePromise<Answer>;
    try {
      ready = page.answer(this.filters, this.#passed);
    } catch (error) {
      fail(error);
      return;
    }
    if (isPromise(ready)) void ready.then(go, fail);
    else go(ready);
  }

  #handOn(next: () => void, stage: Stage | undefined): void {
    let changes = 0;
    for (const each of this.messages) changes += each.message.edits + (each.isForwardable ? 0 : 1);
    if (changes !== this.#forwardedChanges) {
      this.#forwardedChanges = changes;
      try {
        this.#rewriteBody();
      } catch (error) {
        void this.#failClosed(error);
        return;
      }
    }
    if (stage?.forward === undefined) next();
    else stage.forward(this, next);
  }

  /**
   * Notifies the client on this stream that lists changed, in front of the message that is on its
   * way. Each list is reported once. `false` where the response is no stream, or the client has
   * left.
   */
  announceListChange(message: Message, lists: readonly ListKind[]): boolean {
    if (this.tap.mode !== 'sse' || this.tap.isCutOff) return false;
    for (const note of lists.map((kind) => listChanged(kind))) {
      if (!message.before.some(({ method }) => method === note.method)) message.before.push(note);
    }
    return true;
  }

  #answerHere(): void {
    const answers = answersIn(this.messages);
    if (answers.length === 0) this.tap.respond(202, undefined);
    else this.tap.respond(200, this.isBatch ? answers : answers[0]);
  }

  /** Writes the messages that are left into the body. */
  #rewriteBody(): void {
    const left = this.messages.filter(isForwardable);
    const [first] = left;
    if (this.isBatch) this.#body?.replace(new AmendedBatch(left));
    else if (first !== undefined) this.#body?.replace(first.message);
  }

  /** @param onError must not throw */
  async #failClosed(
    error: unknown,
    onError = (each: unknown): void => this.onError(each),
  ): Promise<void> {
    onError(error);
    try {
      await this.reject(500, JSON_RPC.INTERNAL_ERROR, 'Internal error');
    } catch (second) {
      onError(second);
      this.tap.res.destroy();
    }
  }
}

/** Reads a request that passes as it is. At once where its body was read before. */
export function seeRequest(
  host: Host,
  { maxBodyBytes, maxBatch }: WireLimits,
): MaybePromise<SeenRequest> {
  const { request: req, source } = host;
  const none = { req, source, messages: [], isBatch: false };
  if (req.method !== 'POST') return { ...none, isUnread: false };
  return after(host.peekBody(maxBodyBytes), (body) => {
    const unread = { ...none, isUnread: true };
    if (body === 'aborted' || 'status' in body) return unread;
    const calls = readCalls(body, maxBatch);
    return 'status' in calls ? unread : { ...none, ...calls, isUnread: false };
  });
}
