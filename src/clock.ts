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

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, task) {
    const timer = setTimeout(task, Math.min(ms, LONGEST_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};
