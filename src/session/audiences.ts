import type { Clock } from '../clock.ts';
import { topicOf } from '../notify/relay.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import type { LiveSession } from './live-session.ts';

/**
 * Somebody who is told which of a run's lists changed, and the session that they belong to, if any.
 */
export interface Listener {
  readonly tell: (lists: readonly ListKind[]) => void;
  readonly session?: LiveSession | undefined;
}

/**
 * Who hears in this process of runs that several connections share, by the names that such runs
 * have on the bus.
 */
export class Audiences {
  readonly #listeners = new Map<string, Set<Listener>>();

  /** Adds somebody, until the returned function is called. */
  add(run: string, listener: Listener): () => void {
    const topic = topicOf(run);
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(topic) === listeners)
        this.#listeners.delete(topic);
    };
  }

  /** How many listen to a run. */
  sizeOf(run: string): number {
    return this.#listeners.get(topicOf(run))?.size ?? 0;
  }

  /** Ends the streams of those who listen. */
  endAll(): void {
    const all = [...this.#listeners.values()].flatMap((listeners) => [...listeners]);
    for (const { session } of all) session?.streams.endAll();
  }

  /** Tells everybody of that run, but for a session that knows already. */
  tell(run: string, lists: readonly ListKind[], except?: object): void {
    this.tellTopic(topicOf(run), lists, except);
  }

  tellTopic(topic: string, lists: readonly ListKind[], except?: object): void {
    for (const { tell, session } of [...(this.#listeners.get(topic) ?? [])]) {
      if (session === undefined || session !== except) tell(lists);
    }
  }
}

/** What is needed to see a store come back, and to tell clients that it is. */
export interface MissedListsConfig {
  readonly store: Pick<GuardedStore, 'read'>;
  readonly ttlMs: number;
  readonly clock: Clock;
  /** The most runs that are remembered. With one more, the one that waits longest is forgotten. */
  readonly maxRuns: number;
  /** Tells the clients of a run to list again. */
  readonly tell: (run: string, lists: readonly ListKind[]) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * How long after a list the store is first asked again; each time that it fails, twice as long, up
 * to {@link MOST_DELAY_MS}.
 */
const FIRST_MS = 500;
const MOST_DELAY_MS = 15_000;
/** After so long without a miss, the next one is a trouble of its own. */
const CALM_MS = 60_000;
/**
 * A store that is just back is not asked by all clients at once: so many are told, and after a
 * pause so many more.
 */
const TOLD_AT_ONCE = 100;
const PAUSE_MS = 100;

/**
 * The runs whose lists were served without what their state shows, because the store could not be
 * asked. Once it can be, their clients are told to list again. One question to the store, on one
 * timer, stands for all of them.
 */
export class MissedLists {
  readonly #config: MissedListsConfig;
  readonly #runs = new Map<string, Set<ListKind>>();
  #stop: (() => void) | undefined;
  #isAsking = false;
  #delayMs = FIRST_MS;
  #lastMiss = Number.NEGATIVE_INFINITY;

  constructor(config: MissedListsConfig) {
    this.#config = config;
  }

  /** Lists of the run went out incomplete. */
  add(run: string, lists: readonly ListKind[]): void {
    const { clock, maxRuns } = this.#config;
    this.#runs.set(run, new Set([...(this.#runs.get(run) ?? []), ...lists]));
    const [oldest] = this.#runs.keys();
    if (this.#runs.size > maxRuns && oldest !== undefined) this.#runs.delete(oldest);
    const now = clock.now();
    const isQuiet = this.#stop === undefined && !this.#isAsking;
    if (isQuiet && now - this.#lastMiss >= CALM_MS) this.#delayMs = FIRST_MS;
    this.#lastMiss = now;
    if (isQuiet) this.#askIn(this.#delayMs);
  }

  /** The run has ended. */
  forget(run: string): void {
    this.#runs.delete(run);
    if (this.#runs.size === 0) this.#rest();
  }

  /** Asks no more: the process ends. */
  close(): void {
    this.#runs.clear();
    this.#rest();
  }

  #rest(): void {
    this.#stop?.();
    this.#stop = undefined;
  }

  #askIn(ms: number): void {
    this.#stop = this.#config.clock.after(ms, () => {
      this.#stop = undefined;
      void this.#ask();
    });
  }

  /**
   * What one of those who wait would ask is asked: nothing but that says that their lists are whole
   * again.
   */
  async #ask(): Promise<void> {
    const [run] = this.#runs.keys();
    if (run === undefined) return;
    const { store, ttlMs } = this.#config;
    this.#isAsking = true;
    const isBack = await store.read(run, ttlMs).then(
      () => true,
      () => false,
    );
    this.#isAsking = false;
    if (isBack) this.#tellSome();
    else this.#delayMs = Math.min(this.#delayMs * 2, MOST_DELAY_MS);
    if (this.#runs.size > 0) this.#askIn(isBack ? PAUSE_MS : this.#delayMs);
  }

  #tellSome(): void {
    for (const [run, lists] of [...this.#runs].slice(0, TOLD_AT_ONCE)) {
      this.#runs.delete(run);
      try {
        this.#config.tell(run, [...lists]);
      } catch (error) {
        this.#config.onError(error);
      }
    }
  }
}
