import type { Clock } from '../clock.ts';
import type { JsonObject } from '../wire/json-rpc.ts';
import type { ResponseTap } from '../wire/response-tap.ts';
import { keepAlive } from './keep-alive.ts';

/** Streams that stay open although their upstream is done with them. */
export class HeldStreams {
  readonly #clock: Clock;
  readonly #keepAliveMs: number;
  readonly #ends = new Set<() => void>();

  constructor({ clock, keepAliveMs }: { readonly clock: Clock; readonly keepAliveMs: number }) {
    this.#clock = clock;
    this.#keepAliveMs = keepAliveMs;
  }

  /**
   * Keeps one from looking dead, and ends it with `last` where all are ended, until the returned
   * function is called.
   */
  hold(tap: ResponseTap, last: JsonObject): () => void {
    const end = (): void => tap.abandon([last]);
    const stopBeating = keepAlive(tap, this.#clock, this.#keepAliveMs);
    this.#ends.add(end);
    return () => {
      stopBeating();
      this.#ends.delete(end);
    };
  }

  endAll(): void {
    for (const end of [...this.#ends]) end();
  }
}
