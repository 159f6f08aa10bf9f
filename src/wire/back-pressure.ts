import type { ResponseOut } from './response-out.ts';
import type { TaskLine } from './task-line.ts';

/**
 * How many bytes may wait while somebody thinks; what Node holds back before it asks a writer to
 * wait.
 */
const HIGH_WATER_MARK = 16 * 1024;

/**
 * Tells an upstream when to wait and when to go on: while somebody thinks about a message, and
 * while the client does not keep up.
 */
export class BackPressure {
  readonly #out: ResponseOut;
  readonly #line: TaskLine;
  readonly #emitDrain: () => void;
  #owesDrain = false;
  /** Bytes that came while somebody thought. */
  #waiting = 0;

  constructor(out: ResponseOut, line: TaskLine, emitDrain: () => void) {
    this.#out = out;
    this.#line = line;
    this.#emitDrain = emitDrain;
  }

  /** A write was answered with `false`, and `drain` was not emitted since. */
  get owesDrain(): boolean {
    return this.#owesDrain;
  }

  /**
   * What a write of so many bytes returns. An upstream that need not wait ends its response with
   * its last event, in one packet.
   */
  answerWrite(bytes: number): boolean {
    this.#waiting = this.#line.busy ? this.#waiting + bytes : 0;
    if (!this.#flows) this.#owesDrain = true;
    return this.#flows;
  }

  /** Whoever stands in front can take more. */
  flowAgain(): void {
    this.#out.unblock();
    this.#offerDrain();
  }

  /** Somebody else emits `drain`. */
  drained(): void {
    this.#out.unblock();
    this.#owesDrain = false;
  }

  /** Nobody thinks any more. */
  idle(): void {
    this.#waiting = 0;
    this.#offerDrain();
  }

  #offerDrain(): void {
    if (!this.#owesDrain || !this.#flows) return;
    this.#owesDrain = false;
    // In a turn of its own: what the upstream's listener throws is not this response's failure.
    process.nextTick(this.#emitDrain);
  }

  get #flows(): boolean {
    return (
      this.#out.gone || this.#out.ended || (this.#waiting <= HIGH_WATER_MARK && !this.#out.blocked)
    );
  }
}
