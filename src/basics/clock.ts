/**
 * Hides how things get old: by a clock, which a test can move, and by the order of their last use.
 */
import { isSession } from './names.ts';

/** The time and timers. A test can give another one. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /**
   * Runs `task` once after `ms` milliseconds. The returned function cancels it. The timer keeps no
   * process alive.
   */
  after(ms: number, task: () => void): () => void;
}

/** How long a run lives after its last use. An order may wait over night. */
export const DEFAULT_IDLE_MS = 24 * 60 * 60 * 1000;

/** The longest time of a timer in Node: 24 days. A longer one fires at once. */
export const LONGEST_MS = 2 ** 31 - 1;

/** A duration in a text for models: `24 hours`, `1 minute`, `20 seconds`. */
export function inWords(ms: number): string {
  const minutes = ms / 60_000;
  if (minutes >= 120) return counted(Math.floor(minutes / 60), 'hour');
  return minutes >= 1
    ? counted(Math.floor(minutes), 'minute')
    : counted(Math.ceil(ms / 1000), 'second');
}

/** A window in words, to the millisecond: `2 minutes`, `90 seconds`, `1500 ms`. */
export function windowWords(ms: number): string {
  for (const [unit, size] of UNITS) if (ms % size === 0) return counted(ms / size, unit);
  return `${ms} ms`;
}

/** How long to wait, never too short: `3 min 10 s`, `2 h 5 min`, `1 s`. */
export function waitWords(ms: number): string {
  const seconds = Math.max(1, Math.ceil(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return parts(Math.floor(seconds / 60), 'min', seconds % 60, 's');
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 48 * 60) return parts(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
  const hours = Math.ceil(minutes / 60);
  return parts(Math.floor(hours / 24), 'days', hours % 24, 'h');
}

const UNITS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1_000],
] as const;

function parts(whole: number, unit: string, rest: number, small: string): string {
  return rest === 0 ? `${whole} ${unit}` : `${whole} ${unit} ${rest} ${small}`;
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
 * Puts the value under the key, as the newest of the map. With more than `most` of them the oldest
 * goes. For maps that change seldom: a {@link UseOrder} is faster.
 */
export function putNewest<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= most) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}

/**
 * What was reported already. It counts so many things at most: clients choose the names in some of
 * them, and could fill the log and the memory.
 */
export class Reported {
  readonly #reported = new Set<string>();
  readonly #most: number;

  constructor(most = 1_000) {
    this.#most = most;
  }

  /** Whether it is still to be reported. From now on it counts as reported. */
  isNew(what: string): boolean {
    if (this.#reported.size >= this.#most || this.#reported.has(what)) return false;
    this.#reported.add(what);
    return true;
  }
}

/** A thing in an order of use, with its neighbours there. Only the order writes them. */
export interface Placed<P> {
  older?: P | undefined;
  newer?: P | undefined;
}

/**
 * Things in the order of their last use. Any of them can be moved or removed at once.
 *
 * It is a ring, in which the newest links to the oldest. A `Map` would be slower: it searches
 * through its deleted entries each time that its first one is asked for.
 */
export class UseOrder<P extends Placed<P>> {
  #oldest: P | undefined;

  get oldest(): P | undefined {
    return this.#oldest;
  }

  /** Makes it the newest, also where it was not in the order yet. */
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

  /** Does nothing where it is not in the order. */
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
 * Two orders of use. What belongs to no principal makes way before what belongs to one.
 *
 * A search for room looks at the same number of both. Nothing limits how many of the first kind
 * cannot make way, and they would use up the whole search.
 */
export class YieldOrder<P extends Placed<P>> {
  readonly #nameless = new UseOrder<P>();
  readonly #owned = new UseOrder<P>();
  readonly inTurn: readonly UseOrder<P>[] = [this.#nameless, this.#owned];

  of(isOwned: boolean): UseOrder<P> {
    return isOwned ? this.#owned : this.#nameless;
  }
}

/** While a greater share of a run's time to live remains, a store may leave its expiry as it is. */
export const LEAST_LEFT = 0.9;

/**
 * How long a run lives after its last use, in milliseconds. A session's ends with the session. Each
 * other run is there as long as rules look back.
 */
export function lifeOf(run: string, idleMs: number, longestWindow: number): number {
  if (isSession(run) || longestWindow <= idleMs * LEAST_LEFT) return idleMs;
  return Math.ceil(longestWindow / LEAST_LEFT);
}
