import type { Clock } from '../clock.ts';
import { InterlockError } from '../errors.ts';
import { showValue } from '../options.ts';

interface Timer {
  readonly at: number;
  readonly task: () => void;
}

/** A clock that stands still until a test moves it. */
export class TestClock implements Clock {
  #now: number;
  readonly #timers = new Set<Timer>();
  readonly #begin: () => Promise<void>;

  /** @param begin what must have happened before time goes on */
  constructor(now: number, begin: () => Promise<void>) {
    this.#now = now;
    this.#begin = begin;
  }

  /** Milliseconds since the epoch. */
  readonly now = (): number => this.#now;

  readonly after = (ms: number, task: () => void): (() => void) => {
    const timer = { at: this.#now + ms, task };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  };

  /**
   * Lets so many milliseconds pass. What is due meanwhile happens in order, each with what follows
   * from it, before this resolves.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for anything but a number from 0 on
   */
  async advance(ms: number): Promise<void> {
    if (typeof ms !== 'number' || !(ms >= 0 && Number.isFinite(ms)))
      throw new InterlockError(
        'ERR_INTERLOCK_CONFIG',
        `clock.advance(): expected milliseconds, from 0 on, got ${showValue(ms)}`,
      );
    await this.#begin();
    const end = this.#now + ms;
    for (let next = this.#nextUntil(end); next !== undefined; next = this.#nextUntil(end)) {
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.task();
      await turns();
    }
    this.#now = Math.max(this.#now, end);
    await turns();
  }

  #nextUntil(end: number): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers)
      if (timer.at <= end && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  }
}

/** Leaves room for what is under way in this process, such as the renewal of a lease. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}
