import { type Placed, UseOrder } from '../use-order.ts';

/**
 * Whose session it is, as far as sessions are counted. Those of a principal count as his, wherever
 * they come from; others as their client's. What has neither is not limited.
 */
export interface Owner {
  readonly principal: string | undefined;
  /** What the app says that the request came from, such as an address. */
  readonly client: string | undefined;
}

export interface QuotaLimits {
  readonly maxSessionsPerPrincipal: number;
  readonly maxSessionsPerClient: number;
  readonly onWarning: (warning: string) => void;
}

const MANY_SESSIONS =
  'a caller has more sessions than maxSessionsPerPrincipal or maxSessionsPerClient: each new one ends the least recently used. ' +
  'Clients that open one for each call need another key than sessionKey()';

/** The sessions of one caller, and those of them that nothing is under way in. */
class Group<S> {
  readonly limit: number;
  count = 0;
  readonly free = new UseOrder<Seat<S>>();

  constructor(limit: number) {
    this.limit = limit;
  }
}

/** One session among those that are counted. */
export class Seat<S> implements Placed<Seat<S>> {
  /** Its neighbours among those that may make way. */
  older: Seat<S> | undefined;
  newer: Seat<S> | undefined;
  readonly #group: Group<S> | undefined;
  readonly #onLeave: () => void;
  #holder: S | undefined;
  #isFree = false;
  #left = false;

  constructor(group: Group<S> | undefined, onLeave: () => void) {
    this.#group = group;
    this.#onLeave = onLeave;
  }

  get holder(): S | undefined {
    return this.#holder;
  }

  /** Whether the session may make way for another one. */
  get isFree(): boolean {
    return this.#isFree;
  }

  /** The session was opened. */
  take(holder: S): void {
    this.#holder = holder;
    this.offer();
  }

  /** Nothing is under way in the session: of those that may make way it was used last. */
  offer(): void {
    if (this.#left) return;
    this.#isFree = true;
    this.#group?.free.touch(this);
  }

  /** Something is under way in the session, or may be: it does not make way. */
  withdraw(): void {
    this.#isFree = false;
    this.#group?.free.remove(this);
  }

  /** The session counts no more. */
  leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.withdraw();
    this.#onLeave();
  }
}

/**
 * How many sessions each caller has in this process. Where there are too many, a caller's new
 * session takes the place of one of his own, so no caller can end or bar another's sessions.
 * Nothing here takes longer where there are more of them.
 */
export class Quotas<S> {
  readonly #groups = new Map<string, Group<S>>();
  readonly #limits: QuotaLimits;
  #hasWarned = false;

  constructor(limits: QuotaLimits) {
    this.#limits = limits;
  }

  /** Whether the owner has as many as he may have, and none of them can make way. */
  isBarred(owner: Owner): boolean {
    const full = this.#full(owner);
    return full !== undefined && full.free.oldest === undefined;
  }

  /**
   * A seat for one more session of the owner, for which one of his own makes way where he has too
   * many: `end` ends it, or leaves it if it is in use. `undefined` where none can make way.
   */
  async makeRoom(owner: Owner, end: (holder: S) => Promise<void>): Promise<Seat<S> | undefined> {
    for (;;) {
      const seat = this.reserve(owner);
      if (seat !== undefined) return seat;
      const oldest = this.#full(owner)?.free.oldest;
      if (oldest?.holder === undefined) return undefined;
      oldest.withdraw();
      await end(oldest.holder).catch((error: unknown) => {
        oldest.offer();
        throw error;
      });
      if (!this.#hasWarned) this.#limits.onWarning(MANY_SESSIONS);
      this.#hasWarned = true;
    }
  }

  /** A seat for one more session of the owner, unless that is one too many. */
  reserve(owner: Owner): Seat<S> | undefined {
    return this.#full(owner) === undefined ? this.seat(owner) : undefined;
  }

  /** A seat for a session that exists already, whether it is one too many or not. */
  seat(owner: Owner): Seat<S> {
    const key = keyOf(owner);
    if (key === undefined) return new Seat<S>(undefined, () => {});
    const { maxSessionsPerPrincipal, maxSessionsPerClient } = this.#limits;
    const limit = owner.principal === undefined ? maxSessionsPerClient : maxSessionsPerPrincipal;
    const group = this.#groups.get(key) ?? new Group<S>(limit);
    this.#groups.set(key, group);
    group.count++;
    return new Seat(group, () => {
      if (--group.count === 0) this.#groups.delete(key);
    });
  }

  /** The owner's group, where it is as large as it may be. */
  #full(owner: Owner): Group<S> | undefined {
    const key = keyOf(owner);
    const group = key === undefined ? undefined : this.#groups.get(key);
    return group !== undefined && group.count >= group.limit ? group : undefined;
  }
}

function keyOf({ principal, client }: Owner): string | undefined {
  if (principal !== undefined) return `principal ${principal}`;
  return client === undefined ? undefined : `client ${client}`;
}
