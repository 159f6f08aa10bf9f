/**
 * The backend's time between its answers. Hides the offset of this process' clocks.
 */

/** How long an answer's time is good for the next ones: two clocks drift apart by a few ms then. */
const GOOD_MS = 60_000;

/** By so much the two clocks of a process may differ before one of them has jumped. */
const JUMP_MS = 250;

/** By so much the backend may be elsewhere than estimated before its clock has jumped. */
export const WRONG_MS = 1_000;

/** The clocks of this process, in milliseconds. A test can move them. */
export interface ProcessClocks {
  /** Since the epoch. */
  readonly now: () => number;
  /** Since any time; it never goes back. It may stand still while the machine sleeps. */
  readonly monotonic: () => number;
}

/** What time it is for the backend. */
export class BackendTime {
  readonly #clocks: ProcessClocks;
  /** What the backend said last, and what the clocks of this process said then. */
  #known: { readonly now: number; readonly wall: number; readonly monotonic: number } | undefined;
  /** Whether the backend has never told a time, though it has answered. */
  #isClockless = false;
  #latest = 0;

  constructor(clocks: ProcessClocks) {
    this.#clocks = clocks;
  }

  /** For {@link told}: when the process asks. */
  asked(): number {
    return this.#clocks.monotonic();
  }

  /** The time of an answer, now that it is here. Of a backend without a clock, the process' own. */
  told(now: number | undefined, askedAt: number): number {
    const monotonic = this.#clocks.monotonic();
    const wall = this.#clocks.now();
    if (now === undefined) {
      this.#isClockless = this.#known === undefined;
      return this.estimate() ?? wall;
    }
    this.#isClockless = false;
    // The backend looked at its clock somewhere between the question and the answer.
    const middle = Math.round(now + (monotonic - askedAt) / 2);
    this.#known = { now: middle, wall, monotonic };
    return this.#notBefore(now);
  }

  /** What time it is now, or `undefined` where only the backend can say. */
  estimate(): number | undefined {
    if (this.#isClockless) return this.#clocks.now();
    if (this.#known === undefined) return undefined;
    const passed = this.#clocks.monotonic() - this.#known.monotonic;
    const byWall = this.#clocks.now() - this.#known.wall;
    // A machine that slept, or a clock that was set: the estimate would be anything.
    if (passed > GOOD_MS || Math.abs(passed - byWall) > JUMP_MS) return undefined;
    return this.#notBefore(Math.round(this.#known.now + passed));
  }

  /** Answers give rising times, unless the backend's clock was set back by more than an error. */
  #notBefore(now: number): number {
    if (now < this.#latest && this.#latest - now < WRONG_MS) return this.#latest;
    this.#latest = now;
    return now;
  }
}
