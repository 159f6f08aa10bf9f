import { Streams } from '../notify/streams.ts';
import type { SessionRecord } from '../stores/store.ts';
import { idKey, type JsonObject, type RequestId } from '../wire/json-rpc.ts';
import { LateResponses } from '../wire/late-responses.ts';
import type { ResponseTap } from '../wire/response-tap.ts';
import type { Cancellation } from './turns.ts';

/** A request of the session that is not answered yet. */
export class InFlight implements Cancellation {
  #cancelled = false;
  readonly #callbacks = new Set<() => void>();

  get cancelled(): boolean {
    return this.#cancelled;
  }

  onCancel(callback: () => void): () => void {
    if (this.#cancelled) callback();
    else this.#callbacks.add(callback);
    return () => this.#callbacks.delete(callback);
  }

  cancel(): void {
    this.#cancelled = true;
    for (const callback of [...this.#callbacks]) callback();
    this.#callbacks.clear();
  }
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
  readonly #inFlight = new Map<string, InFlight>();
  readonly #questions = new Map<string, () => void>();

  constructor(run: string, record: SessionRecord, checkedAt: number) {
    this.run = run;
    this.record = record;
    this.checkedAt = checkedAt;
  }

  get idle(): boolean {
    return this.#inFlight.size === 0 && this.streams.size === 0 && this.departed.size === 0;
  }

  /** Registers a request; `undefined` where its id is in flight already, so that the two could not be told apart. */
  begin(id: RequestId): InFlight | undefined {
    const key = idKey(id);
    if (this.#inFlight.has(key)) return undefined;
    const entry = new InFlight();
    this.#inFlight.set(key, entry);
    return entry;
  }

  end(id: RequestId): void {
    this.#inFlight.delete(idKey(id));
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
    this.#questions.set(idKey(id), callback);
    const [oldest] = this.#questions.keys();
    if (this.#questions.size > MAX_QUESTIONS && oldest !== undefined) this.#questions.delete(oldest);
  }

  answered(id: RequestId): void {
    const key = idKey(id);
    this.#questions.get(key)?.();
    this.#questions.delete(key);
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
