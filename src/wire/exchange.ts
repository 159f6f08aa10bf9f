import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Events } from '../events.ts';
import type { Amended, BodyFailure, BodyPort } from './body.ts';
import { answersIn, type Call, type CallsOfBody, readCalls } from './call.ts';
import { type Answer, AskedPage, type Filter, tell, withFilter } from './filter.ts';
import { headerSaysStateless, namesFault, type RequestPort, requestHeader } from './headers.ts';
import { errorResponse, JSON_RPC, type ListKind, listChanged } from './json-rpc.ts';
import type { Message } from './message.ts';
import { type Host, NodeHost } from './node-host.ts';
import { nameOf } from './pages.ts';
import { type ResponseOwner, Tap } from './tap.ts';
import { after, inOrder, isPromise, type MaybePromise } from './task-line.ts';

/** What an exchange may hold in memory. */
export interface WireLimits {
  /** The largest request body, in bytes. */
  readonly maxBodyBytes: number;
  /** The most messages in one batch. */
  readonly maxBatch: number;
  /** The largest message of a response that is held for inspection, in bytes. */
  readonly maxMessageBytes: number;
}

/** Those who are told what no client is told of. They must not throw. */
export interface Observers {
  readonly onError: (error: unknown) => void;
  readonly onWarning: (warning: string) => void;
  /** What happens; `onError` is a view of it. */
  readonly events: Events;
}

export const DEFAULT_LIMITS: WireLimits = {
  maxBodyBytes: 4 * 1024 * 1024,
  maxBatch: 50,
  maxMessageBytes: 16 * 1024 * 1024,
};

/** What is left of a batch. */
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

const isRequest = ({ kind }: Call): boolean => kind === 'request';
const isLeft = (call: Call): boolean => call.isLeft;

const NO_MESSAGES: CallsOfBody = { isBatch: false, messages: [], isStale: false };

/**
 * What one part of the code keeps with an object of somebody else, out of everybody's sight. A
 * `WeakMap` would do the same, at a price: with one entry for each request in flight it cost the
 * garbage collector more than all else that the middlewares do.
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

const exchangeNote = new Note<IncomingMessage | Request, Exchange>();
const PLAIN = { enumerable: false };

/**
 * One HTTP request and its response, shared by every middleware that it passes: read once, written
 * once.
 */
export class Exchange implements ResponseOwner {
  readonly req: RequestPort;
  readonly tap: Tap;
  readonly messages: readonly Call[];
  readonly requests: readonly Call[];
  readonly isBatch: boolean;
  readonly page: AskedPage | undefined;
  readonly maxMessageBytes: number;
  /** What the middlewares do in it, in the order of their stages. */
  filters: readonly Filter[] = [];
  /** Whether one of the middlewares judges it now: nothing of it is forwarded to the upstream. */
  isJudged = false;
  /** Those of the `sessionStore()` that it passed, for the middlewares behind. */
  observers: Observers | undefined;
  /** What the rooms above keep with it. Only the room that puts something here knows what it is. */
  readonly kept: {
    admission: object | undefined;
    gates: ReadonlyMap<string, object> | undefined;
    subscription: object | undefined;
  } = { admission: undefined, gates: undefined, subscription: undefined };
  readonly #host: Host;
  readonly #body: BodyPort | undefined;
  readonly #onError: (error: unknown) => void;
  /**
   * How much was changed when the upstream was last told; less than nothing where it must be told
   * in any case.
   */
  #forwardedChanges: number;
  /** The middlewares that a list's request has passed, by name. */
  #passed = '';

  private constructor(
    host: Host,
    body: BodyPort | undefined,
    incoming: CallsOfBody,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ) {
    this.req = host.request;
    this.#host = host;
    this.#body = body;
    this.messages = incoming.messages;
    this.requests = incoming.messages.every(isRequest)
      ? incoming.messages
      : incoming.messages.filter(isRequest);
    this.isBatch = incoming.isBatch;
    this.page = AskedPage.of(incoming.messages);
    this.#forwardedChanges = incoming.isStale ? -1 : 0;
    this.maxMessageBytes = limits.maxMessageBytes;
    this.#onError = onError;
    this.tap = new Tap(host, this);
  }

  /** The exchange of this request; the first middleware opens it. */
  static of(
    req: IncomingMessage,
    res: ServerResponse,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ): MaybePromise<Exchange | undefined> {
    const known = exchangeNote.of(req);
    // A copy of a request has what its original has, and is not what the body is amended on.
    if (known?.req === req) return known;
    return after(Exchange.open(new NodeHost(req, res), limits, onError), (opened) => {
      if (opened === undefined) return undefined;
      // Express gives each request a shape of its own, to which adding a property is slow. Changing
      // an attribute first makes a dictionary of it, to which it is not, for what is behind too. A
      // request has no status message.
      Object.defineProperty(req, 'statusMessage', PLAIN);
      exchangeNote.put(req, opened);
      return opened;
    });
  }

  /**
   * The exchange that an earlier middleware opened for this request, or for the one that it is a
   * copy of.
   */
  static known(req: IncomingMessage | Request): Exchange | undefined {
    return exchangeNote.of(req);
  }

  /** `gateFetch()` gives its handler another request, which names this exchange too. */
  noteAs(request: Request): void {
    exchangeNote.put(request, this);
  }

  /**
   * `undefined` where it has been answered already (the body was refused) or where nobody is left
   * to answer.
   */
  static open(
    host: Host,
    limits: WireLimits,
    onError: (error: unknown) => void,
  ): MaybePromise<Exchange | undefined> {
    if (host.request.method !== 'POST')
      return new Exchange(host, undefined, NO_MESSAGES, limits, onError);
    return after(host.readBody(limits.maxBodyBytes), (body) =>
      Exchange.#judge(host, body, limits, onError),
    );
  }

  static #judge(
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
   * About how much memory the body takes up, in bytes. One that a parser left is as long as its
   * header says, unless the parser unpacked it.
   */
  get size(): number {
    if (this.#body === undefined) return 0;
    if (this.#body.text !== undefined) return this.#body.text.length;
    const isPacked = requestHeader(this.req, 'content-encoding') !== undefined;
    const stated = isPacked ? 0 : Number(requestHeader(this.req, 'content-length') ?? 0);
    return stated || this.messages.reduce((sum, { message }) => sum + message.text.length, 0);
  }

  /**
   * Whether the client's connection has ended. Node tells of that late, and not at all while
   * earlier requests of the connection are still to be answered.
   */
  get isGone(): boolean {
    return this.#host.isGone();
  }

  /** Requests that the upstream has been or will be asked. */
  get forwardable(): readonly Call[] {
    const { requests } = this;
    return requests.every(isLeft) ? requests : requests.filter(isLeft);
  }

  join(filter: Filter): void {
    this.filters = withFilter(this.filters, filter);
    if (!this.tap.closed) return;
    tell({ filters: [filter], onError: (error) => this.onError(error) }, (each) =>
      each.onClose?.(),
    );
  }

  /** Tells the observer. What that throws is its own affair. */
  onError(error: unknown): void {
    try {
      this.#onError(error);
    } catch {}
  }

  /**
   * The host could not hand the request on after all: nothing of it ran. All filters know before
   * the host says anything else.
   */
  notForwarded(): Promise<unknown> {
    return Promise.all(this.filters.map((filter) => filter.onNotForwarded?.()));
  }

  /** Answers the whole request here with a JSON-RPC error for each request in it. */
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

  /**
   * Hands the request on to whoever is mounted next, or answers it where nothing of it is left, or
   * where the answer is at hand.
   *
   * @param stage the middleware that it has passed
   */
  forward(next: () => void, stage?: object): void {
    // Who comes later hears no `close` any more: a proxy would hold the stream open for ever.
    if (this.req.method === 'GET' && this.isGone) return;
    const left = this.messages.filter(({ isLeft }) => isLeft);
    if (this.messages.length > 0 && left.length === 0) {
      this.#answerHere();
      return;
    }
    // Since MCP 2026-07-28 a client that leaves has cancelled; and a proxy would wait for its body.
    if (this.isGone && headerSaysStateless(this.req) && this.#host.isBodyLost()) {
      this.tap.releaseClose();
      return;
    }
    if (this.page === undefined) {
      this.#handOn(left, next);
      return;
    }
    if (stage !== undefined) this.#passed += ` ${nameOf(stage)}`;
    const fail = (error: unknown) => void this.#failClosed(error);
    const go = (ready: Answer) => {
      if (ready === undefined) this.#handOn(left, next);
      else this.tap.respond(200, ready.at(-1), ready.slice(0, -1));
    };
    let ready: MaybePromise<Answer>;
    try {
      ready = this.page.answer(this.filters, this.#passed);
    } catch (error) {
      fail(error);
      return;
    }
    if (isPromise(ready)) void ready.then(go, fail);
    else go(ready);
  }

  #handOn(left: readonly Call[], next: () => void): void {
    try {
      this.#rewriteBody(left);
    } catch (error) {
      void this.#failClosed(error);
      return;
    }
    next();
  }

  /**
   * Tells the client on this very stream that its lists changed, of each once, in front of the
   * message that is being passed on.
   */
  announceListChange(message: Message, lists: readonly ListKind[]): boolean {
    if (this.tap.mode !== 'sse' || this.tap.isLeft) return false;
    for (const told of lists.map((kind) => listChanged(kind))) {
      if (!message.before.some(({ method }) => method === told.method)) message.before.push(told);
    }
    return true;
  }

  #answerHere(): void {
    const answers = answersIn(this.messages);
    if (answers.length === 0) this.tap.respond(202, undefined);
    else this.tap.respond(200, this.isBatch ? answers : answers[0]);
  }

  /**
   * Tells the upstream what is left and what became of it, each time that something changed since
   * it was last told.
   */
  #rewriteBody(left: readonly Call[]): void {
    const changes = this.messages.reduce(
      (sum, each) => sum + each.message.edits + (each.isLeft ? 0 : 1),
      0,
    );
    if (changes === this.#forwardedChanges) return;
    this.#forwardedChanges = changes;
    const [first] = left;
    if (this.isBatch) this.#body?.replace(new AmendedBatch(left));
    else if (first !== undefined) this.#body?.replace(first.message);
  }

  async #failClosed(error: unknown): Promise<void> {
    this.onError(error);
    try {
      await this.reject(500, JSON_RPC.INTERNAL_ERROR, 'Internal error');
    } catch (second) {
      this.onError(second);
      this.tap.res.destroy();
    }
  }
}
