import { topicOf } from '../notify/relay.ts';
import { type Placed, type UseOrder, YieldOrder } from '../use-order.ts';
import type { LiveSession } from './live-session.ts';
import type { Seat } from './quotas.ts';

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
