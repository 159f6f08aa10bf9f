import type { Clock } from '../../src/index.ts';

/** A clock with timers that stands still until a test moves it. */
export class ManualClock implements Clock {
  #now = 1_700_000_000_000;
  #rung = 0;
  readonly #timers = new Set<{ at: number; task: () => void }>();

  readonly now = (): number => this.#now;

  readonly after = (ms: number, task: () => void): (() => void) => {
    const timer = { at: this.#now + ms, task };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  };

  /** Sets the time, as an administrator does: each timer fires as much later as before. */
  jump(ms: number): void {
    this.#now += ms;
    for (const timer of this.#timers) timer.at += ms;
  }

  /** How many timers have fired. */
  get rung(): number {
    return this.#rung;
  }

  /** How many timers wait. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Moves on, and runs the timers of that time in order. Returns their number. */
  advance(ms: number): number {
    const end = this.#now + ms;
    for (let ran = 0; ; ran++) {
      const [next] = [...this.#timers]
        .filter((timer) => timer.at <= end)
        .sort((a, b) => a.at - b.at);
      if (next === undefined) {
        this.#now = end;
        return ran;
      }
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      this.#rung += 1;
      next.task();
    }
  }
}

/** A clock without timers that stands still until a test moves it. */
export class ManualTime {
  #now: number;

  constructor(start = 1_700_000_000_000) {
    this.#now = start;
  }

  readonly now = (): number => this.#now;

  readonly advance = (ms: number): void => {
    this.#now += ms;
  };
}
