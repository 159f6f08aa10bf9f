import { type Relay, Streams, topicOf } from '../notify/relay.ts';
import type { WaitingCall } from '../step/turns.ts';
import type { SessionRecord } from '../stores/store.ts';
import { type Placed, type UseOrder, YieldOrder } from '../use-order.ts';
import { LateResponses } from '../wire/call.ts';
import {
  idKey,
  type JsonObject,
  type ListKind,
  listChanged,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Tap } from '../wire/tap.ts';
import type { Seat } from './callers.ts';

/** The HTTP request that a call came in, as far as its wait depends on it. */
export interface CallersRequest {
  /** Whether the client's connection has ended. */
  readonly isGone: boolean;
  /** Of the body, in bytes. */
  readonly size: number;
}

/**
 * A request of the session that is not answered yet. Once it is cancelled it is not forwarded, if
 * it has not been.
 */
export class InFlight implements WaitingCall {
  readonly #request: CallersRequest | undefined;
  #onOver: () => void;
  #ended = false;
  #steps = 0;
  #uncertain = 0;
  #cancelled = false;
  readonly #onCancel = new Set<() => void>();
  readonly #onNotice = new Set<() => void>();

  /** `onOver` is called once, when its id is free again. */
  constructor(onOver: () => void = () => {}, request?: CallersRequest) {
    this.#onOver = onOver;
    this.#request = request;
  }

  get cancelled(): boolean {
    return this.#cancelled || this.#request?.isGone === true;
  }

  get bytes(): number {
    return this.#request?.size ?? 0;
  }

  /**
   * Its response has ended, or its connection has. A step that is still under way may have its
   * result come elsewhere.
   */
  end(): void {
    this.#ended = true;
    if (this.#steps > 0) return;
    this.#onOver();
    this.#onOver = () => {};
  }

  /**
   * It runs as a step until the returned function is called. `mustEnd` where nobody may find out
   * later, by trying it again, what an interrupted one came to.
   */
  beginStep(mustEnd: boolean): () => void {
    this.#steps++;
    if (mustEnd) this.#uncertain++;
    let over = false;
    return () => {
      if (over) return;
      over = true;
      this.#steps--;
      if (mustEnd) this.#uncertain--;
      if (this.#ended) this.end();
    };
  }

  /** Whether it runs as a step that must not be interrupted. */
  get mustEnd(): boolean {
    return this.#uncertain > 0;
  }

  onCancel(callback: () => void): () => void {
    if (this.#cancelled) callback();
    else this.#onCancel.add(callback);
    return () => this.#onCancel.delete(callback);
  }

  /**
   * Calls back when the client says that it cancels, and not when it goes away: that does not cut a
   * step off.
   */
  onNotice(callback: () => void): void {
    this.#onNotice.add(callback);
  }

  /** The client said so. */
  cancel(): void {
    this.leave();
    callOnce(this.#onNotice);
  }

  /** The client is gone. */
  leave(): void {
    this.#cancelled = true;
    callOnce(this.#onCancel);
  }
}

function callOnce(callbacks: Set<() => void>): void {
  const called = [...callbacks];
  callbacks.clear();
  for (const callback of called) callback();
}

const MAX_QUESTIONS = 100;

/** What this process knows of one session: all of it can be lost without losing the run. */
export class LiveSession {
  readonly run: string;
  readonly streams = new Streams();
  /** Responses that a client left while a step of theirs runs on. */
  readonly departed = new Set<Tap>();
  /** Responses that may come, or come again, on a resuming GET stream. */
  readonly late = new LateResponses();
  /** Its place among those that are counted; none where it is no session, or not known any more. */
  seat: Seat<LiveSession> | undefined;
  record: SessionRecord;
  /** When the store last confirmed the session. */
  checkedAt: number;
  #moves = 0;
  #hasStrays = false;
  readonly #inFlight = new Map<string, InFlight>();
  readonly #questions = new Map<string, readonly (() => void)[]>();

  readonly #relay: Relay | undefined;
  #unfollow: (() => void) | undefined;

  constructor(run: string, record: SessionRecord, checkedAt: number, relay?: Relay) {
    this.run = run;
    this.#relay = relay;
    this.record = record;
    this.checkedAt = checkedAt;
  }

  /** Whether a request of it is under way: it is not answered, or its step goes on. */
  get running(): boolean {
    return this.#inFlight.size > 0;
  }

  get idle(): boolean {
    return !this.running && this.streams.size === 0 && this.departed.size === 0;
  }

  /** How often the run has moved here: tells whether what was read of it still holds. */
  get moves(): number {
    return this.#moves;
  }

  /** The run moved, or may have. */
  noteMove(): void {
    this.#moves++;
  }

  /**
   * Whether the upstream may still answer a request whose id is free again: on the stream of a
   * later one, where the client uses that id again.
   */
  get hasStrays(): boolean {
    return this.#hasStrays;
  }

  noteStray(): void {
    this.#hasStrays = true;
  }

  /**
   * Registers a request; `undefined` where its id is in flight already, so that the two could not
   * be told apart.
   */
  begin(id: RequestId, request?: CallersRequest): InFlight | undefined {
    const key = idKey(id);
    if (this.#inFlight.has(key)) return undefined;
    const entry = new InFlight(() => this.#end(key), request);
    if (!this.running) this.seat?.withdraw();
    this.#inFlight.set(key, entry);
    return entry;
  }

  #end(key: string): void {
    this.#inFlight.delete(key);
    if (!this.running) this.seat?.offer();
  }

  /** The request of that id, while it is in flight. */
  inFlight(id: RequestId): InFlight | undefined {
    return this.#inFlight.get(idKey(id));
  }

  /**
   * `notifications/cancelled` names a request by its id. `false` where it is not in flight here.
   */
  cancel(id: RequestId): boolean {
    const entry = this.#inFlight.get(idKey(id));
    entry?.cancel();
    return entry !== undefined;
  }

  /** Calls back when the client answers this request of the upstream's. */
  onAnswer(id: RequestId, callback: () => void): void {
    const key = idKey(id);
    this.#questions.set(key, [...(this.#questions.get(key) ?? []), callback]);
    const [oldest] = this.#questions.keys();
    if (this.#questions.size > MAX_QUESTIONS && oldest !== undefined)
      this.#questions.delete(oldest);
  }

  answered(id: RequestId): void {
    const key = idKey(id);
    const callbacks = this.#questions.get(key) ?? [];
    this.#questions.delete(key);
    for (const callback of callbacks) callback();
  }

  /**
   * Tells the client something that belongs to no request of its own, on one stream: here, or where
   * its newest one is.
   */
  notify(message: JsonObject): void {
    if (this.#relay === undefined) this.streams.send(message);
    else this.#relay.notify(this, message);
  }

  /** Tells the client which of its lists are others now. */
  notifyChanged(lists: readonly ListKind[]): void {
    for (const kind of lists) this.notify(listChanged(kind));
  }

  /** A GET stream was opened here. */
  addStream(tap: Tap): void {
    this.streams.add(tap);
    this.#relay?.opened(this);
  }

  removeStream(tap: Tap): void {
    this.streams.remove(tap);
    if (this.streams.size > 0) return;
    this.#relay?.closed(this);
    this.#unfollow?.();
    this.#unfollow = undefined;
  }

  /**
   * Has the session told of what others do to its run, for as long as it has streams; `begin`
   * returns what ends that.
   */
  follow(begin: () => () => void): void {
    this.#unfollow ??= begin();
  }

  /**
   * A resuming GET is here: the upstream must learn that the old stream is gone, or it answers 409.
   */
  releaseDeparted(): void {
    for (const tap of [...this.departed]) {
      if (!tap.resumable) continue;
      this.departed.delete(tap);
      tap.releaseClose();
    }
  }
}

export interface SessionTableOptions {
  /** How many sessions are known, as long as enough of them may be forgotten. */
  readonly maxSessions: number;
  /** A session that was not used for this long has expired, in milliseconds. */
  readonly idleMs: number;
  /** Whether sessions are looked for by what they are called on the bus. */
  readonly hasTopics?: boolean;
}

interface SessionEntry extends Placed<SessionEntry> {
  readonly session: LiveSession;
  readonly order: UseOrder<SessionEntry>;
  usedAt: number;
}

/**
 * How many sessions of each kind one use, or one that is added, looks at. More than one leaves for
 * each that comes.
 */
const LOOKS = 2;

/**
 * The sessions that this process knows. Those that have expired leave as others are used, and the
 * least recently used one where there are too many, those without a principal first: nothing limits
 * how many of them one client opens. One in which something is under way stays.
 */
export class SessionTable {
  readonly #entries = new Map<string, SessionEntry>();
  readonly #order = new YieldOrder<SessionEntry>();
  readonly #topics: Map<string, LiveSession> | undefined;
  readonly #max: number;
  readonly #idleMs: number;

  constructor({ maxSessions, idleMs, hasTopics = false }: SessionTableOptions) {
    this.#max = maxSessions;
    this.#idleMs = idleMs;
    this.#topics = hasTopics ? new Map() : undefined;
  }

  get size(): number {
    return this.#entries.size;
  }

  byTopic(topic: string): LiveSession | undefined {
    return this.#topics?.get(topic);
  }

  /** To be looked for is no use. */
  get(run: string): LiveSession | undefined {
    return this.#entries.get(run)?.session;
  }

  /** A request of the session came. */
  use(session: LiveSession, now: number): void {
    const entry = this.#entries.get(session.run);
    if (entry?.session !== session) return;
    this.#touch(entry, now);
    if (!session.running) session.seat?.offer();
    this.#forgetOldest(session, now);
  }

  /** In place of what was there under its name. */
  add(session: LiveSession, seat: Seat<LiveSession>, now: number): void {
    this.delete(session.run);
    const order = this.#order.of(session.record.principal !== undefined);
    const entry: SessionEntry = { session, order, usedAt: now, older: undefined, newer: undefined };
    this.#entries.set(session.run, entry);
    order.touch(entry);
    this.#topics?.set(topicOf(session.run), session);
    session.seat = seat;
    seat.take(session);
    this.#forgetOldest(session, now);
  }

  each(visit: (session: LiveSession) => void): void {
    for (const { session } of this.#entries.values()) visit(session);
  }

  delete(run: string): void {
    const entry = this.#entries.get(run);
    if (entry === undefined) return;
    this.#entries.delete(run);
    entry.order.remove(entry);
    this.#topics?.delete(topicOf(run));
    entry.session.seat?.leave();
    entry.session.seat = undefined;
  }

  /** What is under way counts as a use, so that it keeps none of those behind it. */
  #forgetOldest(current: LiveSession, now: number): void {
    for (const order of this.#order.inTurn) {
      for (let looks = 0; looks < LOOKS; looks++) {
        const { oldest } = order;
        if (oldest === undefined || oldest.session === current) break;
        const hasExpired = now - oldest.usedAt >= this.#idleMs;
        if (!hasExpired && this.size <= this.#max) break;
        if (oldest.session.idle) this.delete(oldest.session.run);
        else this.#touch(oldest, now);
      }
    }
  }

  #touch(entry: SessionEntry, now: number): void {
    entry.usedAt = now;
    entry.order.touch(entry);
  }
}
