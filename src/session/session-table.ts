import { topicOf } from '../notify/relay.ts';
import type { LiveSession } from './live-session.ts';

/** The sessions that this process knows, the least recently used forgotten first. */
export class SessionTable {
  readonly #sessions = new Map<string, LiveSession>();
  /** By what they are called on the bus; kept only where there is one. */
  readonly #topics: Map<string, LiveSession> | undefined;
  readonly #max: number;

  constructor(max: number, hasTopics = false) {
    this.#max = max;
    this.#topics = hasTopics ? new Map() : undefined;
  }

  byTopic(topic: string): LiveSession | undefined {
    return this.#topics?.get(topic);
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
    const known = this.#sessions.get(session.run) === session;
    this.#sessions.set(session.run, session);
    if (!known) this.#topics?.set(topicOf(session.run), session);
    if (this.#sessions.size <= this.#max) return;
    for (const [run, candidate] of this.#sessions) {
      if (!candidate.idle || candidate === session) continue;
      this.delete(run);
      return;
    }
  }

  each(visit: (session: LiveSession) => void): void {
    for (const session of this.#sessions.values()) visit(session);
  }

  delete(run: string): void {
    this.#sessions.delete(run);
    this.#topics?.delete(topicOf(run));
  }
}
