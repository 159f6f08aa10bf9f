import { type Placed, UseOrder } from '../use-order.ts';

/** Whose session it is, as far as sessions are counted. What is `undefined` is not limited. */
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

/** Sessions that count together, and those of them that nothing is under way in. */
class Group<S> {
  readonly key: string;
  count = 0;
  readonly free = new UseOrder<Place<S>>();

  constructor(key: string) {
    this.key = key;
  }
}

interface Place<S> extends Placed<Place<S>> {
  readonly seat: Seat<S>;
  readonly group: Group<S>;
}

/** A limit as one caller meets it: how many `counted` may be, and whose sessions make way for his. */
interface Quota {
  readonly counted: string;
  readonly own: string;
  readonly limit: number;
}

/** One session among those that are counted. */
export class Seat<S> {
  readonly #places: readonly Place<S>[];
  readonly #onLeave: () => void;
  #holder: S | undefined;
  #isFree = false;
  #left = false;

  constructor(groups: readonly Group<S>[], onLeave: () => void) {
    this.#places = groups.map((group) => {
      return { seat: this, group, older: undefined, newer: undefined };
    });
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
    for (const place of this.#places) place.group.free.touch(place);
  }

  /** Something is under way in the session, or may be: it does not make way. */
  withdraw(): void {
    this.#isFree = false;
    for (const place of this.#places) place.group.free.remove(place);
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
 * How many sessions each principal and each client has in this process. Where there are too many, a
 * caller's new session takes the place of one of his own: nobody can end another caller's sessions.
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
    return this.#full(owner).some(({ own }) => this.#groups.get(own)?.free.oldest === undefined);
  }

  /**
   * A seat for one more session of the owner, for which one of his own makes way where he has too many:
   * `end` ends it, or leaves it if it is in use. `undefined` where none can make way.
   */
  async makeRoom(owner: Owner, end: (holder: S) => Promise<void>): Promise<Seat<S> | undefined> {
    for (;;) {
      const seat = this.reserve(owner);
      if (seat !== undefined) return seat;
      const oldest = this.#next(owner);
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
    return this.#full(owner).length > 0 ? undefined : this.seat(owner);
  }

  /** A seat for a session that exists already, whether it is one too many or not. */
  seat(owner: Owner): Seat<S> {
    const quotas = this.#quotasOf(owner);
    const groups = [...new Set(quotas.flatMap(({ counted, own }) => [counted, own]))].map((key) =>
      this.#group(key),
    );
    for (const group of groups) group.count++;
    const own = groups.filter(({ key }) => quotas.some((quota) => quota.own === key));
    return new Seat(own, () => {
      for (const group of groups) if (--group.count === 0) this.#groups.delete(group.key);
    });
  }

  /** That of the owner's least recently used session that can make way. */
  #next(owner: Owner): Seat<S> | undefined {
    const [quota] = this.#full(owner);
    return quota && this.#groups.get(quota.own)?.free.oldest?.seat;
  }

  #full(owner: Owner): Quota[] {
    return this.#quotasOf(owner).filter(
      ({ counted, limit }) => (this.#groups.get(counted)?.count ?? 0) >= limit,
    );
  }

  #quotasOf({ principal, client }: Owner): Quota[] {
    const { maxSessionsPerPrincipal, maxSessionsPerClient } = this.#limits;
    const quotas: Quota[] = [];
    if (principal !== undefined) {
      const key = `principal ${principal}`;
      quotas.push({ counted: key, own: key, limit: maxSessionsPerPrincipal });
    }
    if (client !== undefined) {
      const own = `of ${JSON.stringify([client, principal ?? null])}`;
      quotas.push({ counted: `client ${client}`, own, limit: maxSessionsPerClient });
    }
    return quotas;
  }

  #group(key: string): Group<S> {
    const group = this.#groups.get(key) ?? new Group<S>(key);
    this.#groups.set(key, group);
    return group;
  }
}
