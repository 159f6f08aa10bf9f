import { topicOf } from '../notify/relay.ts';
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
