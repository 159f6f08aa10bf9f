/**
 * The backend's time between its answers. Hides the offset of this process' clocks.
 */

/** How long an answer's time is good for the next ones, and how far two clocks drift apart then. */
const GOOD_MS = 60_000;
const DRIFT_MS = 10;

/** By so much the two clocks of a process may differ before one of them has jumped. */
const JUMP_MS = 250;

/** By so much the backend may be elsewhere than estimated before its clock has jumped. */
export const WRONG_MS = 1_000;

/** The clocks of this process, in milliseconds. A test can move them. */
interface ProcessClocks {
  /** Since the epoch. */
  readonly now: () => number;
  /** Since any time; it never goes back. It may stand still while the machine sleeps. */
  readonly monotonic: () => number;
}

/** What the backend said, and what the clocks of this process said then. */
interface Received {
  readonly now: number;
  /** By how much it may be wrong: the backend looked at its clock somewhere in a trip. */
  readonly doubt: number;
  readonly wall: number;
  readonly monotonic: number;
}

/** What time it is for the backend. */
export class BackendTime {
  readonly #clocks: ProcessClocks;
  /** The quickest of the last answers. */
  #known: Received | undefined;
  /** Whether the backend has never given a time, though it has answered. */
  #isClockless = false;
  #latest = 0;

  constructor(clocks: ProcessClocks) {
    this.#clocks = clocks;
  }

  /** For {@link given}: when the process asks. */
  asked(): number {
    return this.#clocks.monotonic();
  }

  /** The time of an answer, now that it is here. Of a backend without a clock, the process' own. */
  given(now: number | undefined, askedAt: number): number {
    const monotonic = this.#clocks.monotonic();
    const wall = this.#clocks.now();
    if (now === undefined) {
      this.#isClockless = this.#known === undefined;
      return this.estimate() ?? wall;
    }
    this.#isClockless = false;
    const doubt = (monotonic - askedAt) / 2;
    const known = this.#known && this.#since(this.#known, monotonic, wall);
    const isBetter = known === undefined || doubt <= known.doubt;
    // A slow answer says less, unless it shows that the backend's clock has jumped.
    if (isBetter || Math.abs(known.now - (now + doubt)) > known.doubt + doubt + DRIFT_MS)
      this.#known = { now: now + doubt, doubt, wall, monotonic };
    return this.#notBefore(now);
  }

  /** What time it is now, or `undefined` where only the backend can say. */
  estimate(): number | undefined {
    const wall = this.#clocks.now();
    if (this.#isClockless) return wall;
    const known = this.#known && this.#since(this.#known, this.#clocks.monotonic(), wall);
    return known && this.#notBefore(Math.floor(known.now));
  }

  /** What an answer says of now, or `undefined` where it is too old or a clock has jumped. */
  #since(
    received: Received,
    monotonic: number,
    wall: number,
  ): Pick<Received, 'now' | 'doubt'> | undefined {
    const passed = monotonic - received.monotonic;
    // A machine that slept, or a clock that was set: the estimate would be anything.
    if (passed > GOOD_MS || Math.abs(passed - (wall - received.wall)) > JUMP_MS) return undefined;
    return { now: received.now + passed, doubt: received.doubt };
  }

  /** Answers give rising times, unless the backend's clock was set back by more than an error. */
  #notBefore(now: number): number {
    if (now < this.#latest && this.#latest - now < WRONG_MS) return this.#latest;
    this.#latest = now;
    return now;
  }
}
