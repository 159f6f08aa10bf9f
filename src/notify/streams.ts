import type { Clock } from '../clock.ts';
import type { JsonObject } from '../wire/json-rpc.ts';
import type { Tap } from '../wire/tap.ts';

/**
 * The GET streams of one session in this process. A message goes out on one of them only: "The
 * server MUST send each of its JSON-RPC messages on only one of the connected streams" (MCP
 * 2025-11-25, Transports, "Multiple Connections").
 */
export class Streams {
  readonly #open: Tap[] = [];
  /** When the newest one was opened, in milliseconds since the epoch. */
  openedAt = 0;
  /** Until then another instance speaks to the client. */
  mutedUntil = 0;
  #mutedBy = '';
  /**
   * What nobody was there to hear, one of a kind: a client whose connections broke learns it when
   * it is back.
   */
  readonly #unheard = new Map<unknown, JsonObject>();

  get size(): number {
    return this.#open.length;
  }

  add(tap: Tap): void {
    if (this.#open.includes(tap)) return;
    this.#open.push(tap);
    for (const message of this.#unheard.values()) tap.inject(message);
    this.#unheard.clear();
  }

  remove(tap: Tap): void {
    const at = this.#open.indexOf(tap);
    if (at !== -1) this.#open.splice(at, 1);
  }

  /**
   * Sends on the newest stream: an older one may be what a reconnecting client left behind. `false`
   * where there is none; then the message waits for the next one.
   */
  send(message: JsonObject): boolean {
    const newest = this.#open.at(-1);
    if (newest === undefined) this.#unheard.set(message.method, message);
    else newest.inject(message);
    return newest !== undefined;
  }

  /** Whether this instance is the one to speak on. */
  audible(now: number): boolean {
    return this.#open.length > 0 && now >= this.mutedUntil;
  }

  /** Another instance has a newer stream. */
  mute(by: string, until: number): void {
    this.#mutedBy = by;
    this.mutedUntil = until;
  }

  unmute(by: string): void {
    if (this.#mutedBy === by) this.mutedUntil = 0;
  }

  /** Ends the streams that the middleware serves, when the session ends. */
  endAll(): void {
    for (const tap of this.#open.splice(0)) tap.abandon([]);
  }
}

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
  hold(tap: Tap, last: JsonObject): () => void {
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

/**
 * Puts a comment on a stream of the middleware's own now and then, until the returned function is
 * called.
 */
export function keepAlive(tap: Tap, clock: Clock, everyMs: number): () => void {
  let stop: () => void;
  const beat = (): void => {
    tap.keepAlive();
    stop = clock.after(everyMs, beat);
  };
  stop = clock.after(everyMs, beat);
  return () => stop();
}
