/**
 * Who is notified in this process that lists of a run changed. Hides how a run's clients are found,
 * and how they are notified once a store that was away is back.
 */
import { type Clock, putNewest } from '../basics/clock.ts';
import { topicOf } from '../notify/relay.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import type { LiveSession } from './live-session.ts';

/** A stream that is notified which lists of a run changed. */
export interface ListListener {
  readonly notify: (lists: readonly ListKind[]) => void;
  /** The session that the stream belongs to, if any. */
  readonly session?: LiveSession | undefined;
}

/** The listeners of runs that several connections share, by the run's topic on the bus. */
export class Audiences {
  readonly #listeners = new Map<string, Set<ListListener>>();

  /** Adds a listener, until the returned function is called. */
  add(run: string, listener: ListListener): () => void {
    const topic = topicOf(run);
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(topic) === listeners)
        this.#listeners.delete(topic);
    };
  }

  sizeOf(run: string): number {
    return this.#listeners.get(topicOf(run))?.size ?? 0;
  }

  /** Ends the streams of all listeners. */
  endAll(): void {
    const all = [...this.#listeners.values()].flatMap((listeners) => [...listeners]);
    for (const { session } of all) session?.streams.endAll();
  }

  /** Notifies the listeners of a run, except a session that knows already. */
  notify(run: string, lists: readonly ListKind[], except?: object): void {
    this.notifyTopic(topicOf(run), lists, except);
  }

  notifyTopic(topic: string, lists: readonly ListKind[], except?: object): void {
    for (const { notify, session } of [...(this.#listeners.get(topic) ?? [])]) {
      if (session === undefined || session !== except) notify(lists);
    }
  }
}

/** What {@link MissedLists} needs. */
export interface MissedListsConfig {
  readonly store: Pick<GuardedStore, 'read'>;
  readonly ttlOf: (run: string) => number;
  readonly clock: Clock;
  /** How many runs to remember at most. One more, and the oldest is forgotten. */
  readonly maxRuns: number;
  /** Notifies the clients of a run, so that they list again. */
  readonly notify: (run: string, lists: readonly ListKind[]) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * The first delay before the store is asked again. It doubles with each failure, up to the most.
 */
const FIRST_MS = 500;
const MOST_DELAY_MS = 15_000;
/** After this long without an incomplete list, the delay begins anew. */
const CALM_MS = 60_000;
/** Clients are notified in portions, so that they do not all ask the store at once. */
const NOTIFIED_AT_ONCE = 100;
const PAUSE_MS = 100;

/**
 * The runs whose lists went out incomplete, because the store could not be asked. Once it is back,
 * their clients are notified. One timer asks the store for all of them.
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

  /** These lists of the run went out incomplete. */
  add(run: string, lists: readonly ListKind[]): void {
    const { clock, maxRuns } = this.#config;
    putNewest(this.#runs, run, new Set([...(this.#runs.get(run) ?? []), ...lists]), maxRuns);
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

  /** The process ends. */
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

  /** Reads one of the runs, as a list would: only that shows that lists are complete again. */
  async #ask(): Promise<void> {
    const [run] = this.#runs.keys();
    if (run === undefined) return;
    const { store, ttlOf } = this.#config;
    this.#isAsking = true;
    const isBack = await store.read(run, ttlOf(run)).then(
      () => true,
      () => false,
    );
    this.#isAsking = false;
    if (isBack) this.#notifySome();
    else this.#delayMs = Math.min(this.#delayMs * 2, MOST_DELAY_MS);
    if (this.#runs.size > 0) this.#askIn(isBack ? PAUSE_MS : this.#delayMs);
  }

  #notifySome(): void {
    for (const [run, lists] of [...this.#runs].slice(0, NOTIFIED_AT_ONCE)) {
      this.#runs.delete(run);
      try {
        this.#config.notify(run, [...lists]);
      } catch (error) {
        this.#config.onError(error);
      }
    }
  }
}
