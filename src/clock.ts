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
