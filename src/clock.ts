/**
 * Hides what runs out: the time that passes, which a test can move, and the order in which things
 * were last used, the oldest of which make way.
 */

/** Time, so that a test can move it. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /**
   * Runs `task` once after `ms` milliseconds; the returned function calls it off. Never keeps a
   * process alive.
   */
  after(ms: number, task: () => void): () => void;
}

/** How long a run lives after its last use: long enough for an order that waits over night. */
export const DEFAULT_IDLE_MS = 24 * 60 * 60 * 1000;

/** Node's timers count to this, 24 days, and fire at once for more. */
export const LONGEST_MS = 2 ** 31 - 1;

/** A duration as a model is told of it: `24 hours`, `1 minute`, `20 seconds`. */
export function inWords(ms: number): string {
  const minutes = ms / 60_000;
  if (minutes >= 120) return counted(Math.floor(minutes / 60), 'hour');
  return minutes >= 1
    ? counted(Math.floor(minutes), 'minute')
    : counted(Math.ceil(ms / 1000), 'second');
}

function counted(count: number, unit: string): string {
  return `${count} ${unit}${count === 1 ? '' : 's'}`;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, task) {
    const timer = setTimeout(task, Math.min(ms, LONGEST_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};

/**
 * What stands in an order of use: between its neighbours, or nowhere. Only the order writes them.
 */
export interface Placed<P> {
  older?: P | undefined;
  newer?: P | undefined;
}

/**
 * Things in the order of their last use, each of which can be found again by itself. A ring that
 * links the newest one to the oldest, since the order of a `Map` costs a search through its deleted
 * entries each time that its first one is asked for.
 */
export class UseOrder<P extends Placed<P>> {
  #oldest: P | undefined;

  get oldest(): P | undefined {
    return this.#oldest;
  }

  /** Makes it the newest one, whether it was in the order or not. */
  touch(place: P): void {
    this.remove(place);
    const oldest = this.#oldest ?? place;
    const newest = this.#oldest?.older ?? place;
    place.newer = oldest;
    place.older = newest;
    oldest.older = place;
    newest.newer = place;
    this.#oldest = oldest;
  }

  /** Takes it out, if it is in. */
  remove(place: P): void {
    const { older, newer } = place;
    if (older === undefined || newer === undefined) return;
    older.newer = newer;
    newer.older = older;
    if (this.#oldest === place) this.#oldest = newer === place ? undefined : newer;
    place.older = undefined;
    place.newer = undefined;
  }
}

/**
 * Two orders of use: what belongs to no principal makes way before all that belongs to one. Looked
 * at in that order, so many of each, since nothing limits how many of the first kind there are that
 * cannot make way.
 */
export class YieldOrder<P extends Placed<P>> {
  readonly #nameless = new UseOrder<P>();
  readonly #owned = new UseOrder<P>();
  readonly inTurn: readonly UseOrder<P>[] = [this.#nameless, this.#owned];

  of(isOwned: boolean): UseOrder<P> {
    return isOwned ? this.#owned : this.#nameless;
  }
}
