import type { LiveSession } from './live-session.ts';

/** The sessions that this process knows, the least recently used forgotten first. */
export class SessionTable {
  readonly #sessions = new Map<string, LiveSession>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
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
    this.#sessions.set(session.run, session);
    if (this.#sessions.size <= this.#max) return;
    for (const [run, candidate] of this.#sessions) {
      if (!candidate.idle || candidate === session) continue;
      this.#sessions.delete(run);
      return;
    }
  }

  delete(run: string): void {
    this.#sessions.delete(run);
  }
}
