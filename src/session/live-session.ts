import { Streams } from '../notify/streams.ts';
import type { SessionRecord } from '../stores/store.ts';
import { idKey, type JsonObject, type RequestId } from '../wire/json-rpc.ts';
import { LateResponses } from '../wire/late-responses.ts';
import type { ResponseTap } from '../wire/response-tap.ts';
import type { Cancellation } from './turns.ts';

/** A request of the session that is not answered yet. Once it is cancelled it is not forwarded, if it has not been. */
export class InFlight implements Cancellation {
  readonly #onOver: () => void;
  readonly #isGone: () => boolean;
  #ended = false;
  #steps = 0;
  #cancelled = false;
  readonly #onCancel = new Set<() => void>();
  readonly #onNotice = new Set<() => void>();

  /** `onOver` is called when its id is free again; `isGone` says whether the client's connection is. */
  constructor(onOver: () => void = () => {}, isGone: () => boolean = () => false) {
    this.#onOver = onOver;
    this.#isGone = isGone;
  }

  get cancelled(): boolean {
    return this.#cancelled || this.#isGone();
  }

  /** Its response has ended, or its connection has. A step that is still under way may have its result come elsewhere. */
  end(): void {
    this.#ended = true;
    if (this.#steps === 0) this.#onOver();
  }

  /** It runs as a step until the returned function is called. */
  beginStep(): () => void {
    this.#steps++;
    let over = false;
    return () => {
      if (over) return;
      over = true;
      this.#steps--;
      if (this.#ended) this.end();
    };
  }

  onCancel(callback: () => void): () => void {
    if (this.#cancelled) callback();
    else this.#onCancel.add(callback);
    return () => this.#onCancel.delete(callback);
  }

  /** Calls back when the client says that it cancels, and not when it goes away: that does not cut a step off. */
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
  readonly departed = new Set<ResponseTap>();
  /** Responses that may come, or come again, on a resuming GET stream. */
  readonly late = new LateResponses();
  record: SessionRecord;
  /** When the store last confirmed the session. */
  checkedAt: number;
  #moves = 0;
  readonly #inFlight = new Map<string, InFlight>();
  readonly #questions = new Map<string, readonly (() => void)[]>();

  constructor(run: string, record: SessionRecord, checkedAt: number) {
    this.run = run;
    this.record = record;
    this.checkedAt = checkedAt;
  }

  get idle(): boolean {
    return this.#inFlight.size === 0 && this.streams.size === 0 && this.departed.size === 0;
  }

  /** How often the run has moved here: tells whether what was read of it still holds. */
  get moves(): number {
    return this.#moves;
  }

  noteMove(): void {
    this.#moves++;
  }

  /** Registers a request; `undefined` where its id is in flight already, so that the two could not be told apart. */
  begin(id: RequestId, isGone?: () => boolean): InFlight | undefined {
    const key = idKey(id);
    if (this.#inFlight.has(key)) return undefined;
    const entry = new InFlight(() => void this.#inFlight.delete(key), isGone);
    this.#inFlight.set(key, entry);
    return entry;
  }

  /** The request of that id, while it is in flight. */
  inFlight(id: RequestId): InFlight | undefined {
    return this.#inFlight.get(idKey(id));
  }

  /** `notifications/cancelled` names a request by its id. */
  cancel(id: RequestId): void {
    this.#inFlight.get(idKey(id))?.cancel();
  }

  /** Calls back when the client answers this request of the upstream's. */
  onAnswer(id: RequestId, callback: () => void): void {
    const key = idKey(id);
    this.#questions.set(key, [...(this.#questions.get(key) ?? []), callback]);
    const [oldest] = this.#questions.keys();
    if (this.#questions.size > MAX_QUESTIONS && oldest !== undefined) this.#questions.delete(oldest);
  }

  answered(id: RequestId): void {
    const key = idKey(id);
    const callbacks = this.#questions.get(key) ?? [];
    this.#questions.delete(key);
    for (const callback of callbacks) callback();
  }

  /** A server message that belongs to no request of its own. */
  notify(message: JsonObject): boolean {
    return this.streams.send(message);
  }

  /** A resuming GET is here: the upstream must learn that the old stream is gone, or it answers 409. */
  releaseDeparted(): void {
    for (const tap of [...this.departed]) {
      if (!tap.resumable) continue;
      this.departed.delete(tap);
      tap.releaseClose();
    }
  }
}

/** The sessions that this process knows, the least recently used forgotten first. */
export class SessionTable {
  readonly #sessions = new Map<string, LiveSession>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  get(run: string): LiveSession | undefined {
    const session = this.#sessions.get(run);
    if (session !== undefined) {
      this.#sessions.delete(run);
      this.#sessions.set(run, session);
    }
    return session;
  }

  set(session: LiveSession): void {
    this.#sessions.set(session.run, session);
    if (this.#sessions.size <= this.#max) return;
    for (const [run, candidate] of this.#sessions) {
      if (!candidate.idle || candidate === session) continue;
      this.#sessions.delete(run);
      return;
    }
  }

  delete(run: string): void {
    this.#sessions.delete(run);
  }
}
