import type { ResponseOut } from './response-out.ts';
import type { TaskLine } from './task-line.ts';

/** Tells an upstream when to wait and when to go on: while somebody thinks about a message, and while the client does not keep up. */
export class BackPressure {
  readonly #out: ResponseOut;
  readonly #line: TaskLine;
  readonly #emitDrain: () => void;
  #owesDrain = false;

  constructor(out: ResponseOut, line: TaskLine, emitDrain: () => void) {
    this.#out = out;
    this.#line = line;
    this.#emitDrain = emitDrain;
  }

  /** A write was answered with `false`, and `drain` was not emitted since. */
  get owesDrain(): boolean {
    return this.#owesDrain;
  }

  /** What `write` returns. */
  answerWrite(): boolean {
    if (!this.#flows) this.#owesDrain = true;
    return this.#flows;
  }

  /** Whoever stands in front can take more. */
  flowAgain(): void {
    this.#out.unblock();
    this.offerDrain();
  }

  /** Somebody else emits `drain`. */
  drained(): void {
    this.#out.unblock();
    this.#owesDrain = false;
  }

  offerDrain(): void {
    if (!this.#owesDrain || !this.#flows) return;
    this.#owesDrain = false;
    // In a turn of its own: what the upstream's listener throws is not this response's failure.
    process.nextTick(this.#emitDrain);
  }

  get #flows(): boolean {
    return this.#out.gone || (!this.#line.busy && !this.#out.blocked);
  }
}
