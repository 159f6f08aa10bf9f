import type { Relay } from '../notify/relay.ts';
import { Streams } from '../notify/streams.ts';
import type { SessionRecord } from '../stores/store.ts';
import {
  idKey,
  type JsonObject,
  type ListKind,
  listChanged,
  type RequestId,
} from '../wire/json-rpc.ts';
import { LateResponses } from '../wire/late-responses.ts';
import type { ResponseTap } from '../wire/response-tap.ts';
import { type CallersRequest, InFlight } from './in-flight.ts';
import type { Seat } from './quotas.ts';

const MAX_QUESTIONS = 100;

/** What this process knows of one session: all of it can be lost without losing the run. */
export class LiveSession {
  readonly run: string;
  readonly streams = new Streams();
  /** Responses that a client left while a step of theirs runs on. */
  readonly departed = new Set<ResponseTap>();
  /** Responses that may come, or come again, on a resuming GET stream. */
  readonly late = new LateResponses();
  /** Its place among those that are counted; none where it is no session, or not known any more. */
  seat: Seat<LiveSession> | undefined;
  record: SessionRecord;
  /** When the store last confirmed the session. */
  checkedAt: number;
  #moves = 0;
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
  addStream(tap: ResponseTap): void {
    this.streams.add(tap);
    this.#relay?.opened(this);
  }

  removeStream(tap: ResponseTap): void {
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
