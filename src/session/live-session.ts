/**
 * What this process knows of its sessions: requests in flight, streams, late answers. All of it can
 * be lost without losing a run. Hides which sessions are forgotten, and when.
 */

import { type Clock, type Placed, putNewest, type UseOrder, YieldOrder } from '../basics/clock.ts';
import { type Relay, Streams, topicOf } from '../notify/relay.ts';
import type { QueuedRequest } from '../step/turns.ts';
import type { SessionRecord } from '../stores/store.ts';
import { LateResponses } from '../wire/call.ts';
import { type JsonObject, type ListKind, listChanged, type RequestId } from '../wire/json-rpc.ts';
import type { Tap } from '../wire/tap.ts';
import type { Seat } from './callers.ts';

/** The HTTP request that a call came in, as far as the call's wait depends on it. */
export interface CallersRequest {
  /** Whether the client's connection has ended. */
  readonly isGone: boolean;
  /** The size of its body, in bytes. */
  readonly size: number;
  /** As in {@link QueuedRequest}. */
  notifyOfWait?(clock: Clock): (() => void) | undefined;
}

/** A request of the session that is not answered yet. Once cancelled, it is not forwarded. */
export class InFlight implements QueuedRequest {
  readonly #request: CallersRequest | undefined;
  #onOver: () => void;
  #ended = false;
  #steps = 0;
  #uncertain = 0;
  #cancelled = false;
  /** Both are made when they are needed: most requests need neither. */
  #onCancel: Set<() => void> | undefined;
  #onNotice: Set<() => void> | undefined;

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

  notifyOfWait(clock: Clock): (() => void) | undefined {
    return this.#request?.notifyOfWait?.(clock);
  }

  /**
   * Its response has ended, or its connection has. Its id stays in flight while a step of it runs,
   * whose result may come on another stream.
   */
  end(): void {
    this.#ended = true;
    if (this.#steps > 0) return;
    this.#onOver();
    this.#onOver = () => {};
  }

  /**
   * It runs as a step until the returned function is called.
   *
   * @param mustEnd whether the step must not be interrupted, because it may not be tried again
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
    this.#onCancel ??= new Set();
    if (this.#cancelled) callback();
    else this.#onCancel.add(callback);
    return () => this.#onCancel?.delete(callback);
  }

  /** Calls back when the client cancels the request, and not when it merely leaves. */
  onNotice(callback: () => void): void {
    this.#onNotice ??= new Set();
    this.#onNotice.add(callback);
  }

  /** The client cancelled it. */
  cancel(): void {
    this.leave();
    callOnce(this.#onNotice);
  }

  /** The client left. */
  leave(): void {
    this.#cancelled = true;
    callOnce(this.#onCancel);
  }
}

function callOnce(callbacks: Set<() => void> | undefined): void {
  const called = [...(callbacks ?? [])];
  callbacks?.clear();
  for (const callback of called) callback();
}

const MAX_QUESTIONS = 100;

/** The conversation that a session's lists show. */
export interface ShownRun {
  /** The run's key: that of the last call which named one, as far as this process knows. */
  readonly run: string;
  /** Whether the session has named different ones. */
  readonly isMany: boolean;
  /** As the store counts it. */
  readonly version: number;
}

/** One session. */
export class LiveSession {
  readonly run: string;
  readonly streams = new Streams();
  /** Responses that the client left while a step of theirs goes on. */
  readonly departed = new Set<Tap>();
  /** Responses that may come, or come again, on a GET that resumes a stream. */
  readonly late = new LateResponses();
  /** Its place among its caller's sessions; `undefined` where it is not counted, or forgotten. */
  seat: Seat<LiveSession> | undefined;
  record: SessionRecord;
  /** When the store last confirmed the session. */
  checkedAt: number;
  /**
   * The conversation that its lists show. `own`: it has a run of its own, which it keeps.
   * `undefined`: it has named none, or that is not known here yet.
   */
  shown: ShownRun | 'own' | undefined;
  /** How many tools it called since it was notified of a new list that it has not asked for. */
  callsSinceNotified: number | undefined;
  /**
   * How many tools it has called. Of its calls on another instance, that one reports the first two
   * where a bus joins them.
   */
  calls = 0;
  /** Whether its first call had an id of a conversation. */
  hasId = false;
  /** How often it has listed the tools in this process. */
  lists = 0;
  /** Whether it has listed the tools since it was notified that they changed. */
  listsAgain = false;
  /** Whether another instance opened it, or this process forgot it in between. */
  isAdopted = false;
  /** Whether it was ended, or has expired. */
  isOver = false;
  /** Whether ids in its requests may name runs. */
  isServed = false;
  /** How often this process has moved the run: says whether what was read of it still holds. */
  moves = 0;
  /**
   * Whether the upstream may still answer a request whose id is free again. Where the client uses
   * that id again, the answer could come on the later request's stream.
   */
  hasStrays = false;
  readonly #inFlight = new Map<RequestId, InFlight>();
  readonly #questions = new Map<RequestId, readonly (() => void)[]>();

  readonly #relay: Relay | undefined;
  #unfollow: (() => void) | undefined;
  #followed: string | undefined;

  constructor(run: string, record: SessionRecord, checkedAt: number, relay?: Relay) {
    this.run = run;
    this.#relay = relay;
    this.record = record;
    this.checkedAt = checkedAt;
  }

  /** The conversation that its lists show, where one is known here. */
  get conversation(): ShownRun | undefined {
    return typeof this.shown === 'object' ? this.shown : undefined;
  }

  /** Whether a request of it is in flight. */
  get running(): boolean {
    return this.#inFlight.size > 0;
  }

  get idle(): boolean {
    return !this.running && this.streams.size === 0 && this.departed.size === 0;
  }

  /** Registers a request. `undefined` where its id is in flight: the two would be alike. */
  begin(id: RequestId, request?: CallersRequest): InFlight | undefined {
    if (this.#inFlight.has(id)) return undefined;
    const end = (): void => {
      this.#inFlight.delete(id);
      if (!this.running) this.seat?.offer();
    };
    const entry = new InFlight(end, request);
    if (!this.running) this.seat?.withdraw();
    this.#inFlight.set(id, entry);
    return entry;
  }

  /** The request of that id, while it is in flight. */
  inFlight(id: RequestId): InFlight | undefined {
    return this.#inFlight.get(id);
  }

  /** The client cancelled the request of that id. `false` where it is not in flight here. */
  cancel(id: RequestId): boolean {
    const entry = this.#inFlight.get(id);
    entry?.cancel();
    return entry !== undefined;
  }

  /** Calls back when the client answers the upstream's request of that id. */
  onAnswer(id: RequestId, callback: () => void): void {
    const callbacks = [...(this.#questions.get(id) ?? []), callback];
    putNewest(this.#questions, id, callbacks, MAX_QUESTIONS);
  }

  answered(id: RequestId): void {
    const callbacks = this.#questions.get(id) ?? [];
    this.#questions.delete(id);
    for (const callback of callbacks) callback();
  }

  /** It called a tool, here or on another instance. */
  noteCall(hasId: boolean): void {
    if (this.calls++ === 0) this.hasId = hasId;
  }

  /** It listed the tools, here or on another instance. */
  noteList(): void {
    if (this.callsSinceNotified !== undefined) this.listsAgain = true;
    this.callsSinceNotified = undefined;
  }

  /** Sends the client a message that answers no request, on its newest stream in any process. */
  notify(message: JsonObject): void {
    if (this.#relay === undefined) this.streams.send(message);
    else this.#relay.notify(this, message);
  }

  /** Notifies the client which of its lists have changed. */
  notifyChanged(lists: readonly ListKind[]): void {
    if (lists.includes('tools')) this.callsSinceNotified ??= 0;
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
    this.unfollow();
  }

  /**
   * Listens to what others do to a run, once, and while it has streams. It follows one run.
   *
   * @param listen begins to listen, and returns what ends it
   */
  follow(run: string, listen: () => () => void): void {
    if (this.#followed === run) return;
    this.unfollow();
    this.#followed = run;
    this.#unfollow = listen();
  }

  unfollow(): void {
    this.#unfollow?.();
    this.#unfollow = undefined;
    this.#followed = undefined;
  }

  /**
   * A GET resumes the stream. The upstream must learn first that the old one is gone: otherwise it
   * answers 409.
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
  /** How many sessions to know at most. More are known while more are in use. */
  readonly maxSessions: number;
  /** How long after its last use a session expires, in milliseconds. */
  readonly idleMs: number;
  /** Whether to find sessions by their topics on the bus. */
  readonly hasTopics?: boolean;
}

interface SessionEntry extends Placed<SessionEntry> {
  readonly session: LiveSession;
  readonly order: UseOrder<SessionEntry>;
  usedAt: number;
}

/** How many of the oldest sessions each use looks at. Two, so that more leave than come. */
const LOOKS = 2;

/**
 * The sessions that this process knows. Each use of one forgets others that have expired. Where
 * there are too many, the least recently used is forgotten: first those without a principal, of
 * which a client may open any number. A session that is in use stays.
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

  /** Finds a session. That does not count as a use. */
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

  /** Adds a session, in place of one of the same run. */
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

  /** A session that is in use becomes the newest one, so that those behind it are looked at. */
  #forgetOldest(current: LiveSession, now: number): void {
    for (const order of this.#order.inTurn) {
      for (let looks = 0; looks < LOOKS; looks++) {
        const { oldest } = order;
        if (oldest === undefined || oldest.session === current) break;
        const hasExpired = now - oldest.usedAt >= this.#idleMs;
        if (!hasExpired && this.size <= this.#max) break;
        if (!oldest.session.idle) {
          this.#touch(oldest, now);
          continue;
        }
        oldest.session.isOver = hasExpired;
        this.delete(oldest.session.run);
      }
    }
  }

  #touch(entry: SessionEntry, now: number): void {
    entry.usedAt = now;
    entry.order.touch(entry);
  }
}
