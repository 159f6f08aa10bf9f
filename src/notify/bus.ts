import * as z from 'zod/mini';
import { functionOption, parseOptions } from '../options.ts';

/**
 * Carries hints between the instances of one app. A message that is lost loses a hint, never a
 * state, so nothing is sent again and nothing is kept for those who do not listen.
 */
export interface NotificationBus {
  /**
   * Sends a short text to every instance, this one included or not: at most 1 KiB in UTF-8 and
   * without control characters, as `JSON.stringify()` writes it. Rejects where it could not be
   * handed over within two seconds, though it may arrive all the same. Messages that are awaited
   * one after the other arrive in that order, except through a cluster.
   */
  publish(message: string): Promise<void>;

  /**
   * Calls `listener` for each message from now on, through reconnections, until the returned
   * function is called. Resolves once it listens, and goes on trying until then, or until `signal`
   * is aborted: then it resolves at once, the listener is not called any more, and nothing of it
   * keeps the process alive.
   */
  subscribe(
    listener: (message: string) => void,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>>;

  /** Whether it hears at the moment what is published. Without this method that is not known. */
  hears?(): boolean;
}

/**
 * A bus could not hand a message over, or does not hear at the moment. The driver's own error is
 * the cause.
 */
export class BusUnavailable extends Error {
  override readonly name = 'BusUnavailable';
}

/**
 * The longest message, in bytes of UTF-8. PostgreSQL takes less than 8,000, and a hint needs few.
 */
const MAX_MESSAGE_BYTES = 1024;

/**
 * Every bus carries the same texts, though some would take more: PostgreSQL has no NUL, and UTF-8
 * no half of a pair.
 */
export function checkMessage(message: string): void {
  const bytes = Buffer.byteLength(message);
  if (bytes > MAX_MESSAGE_BYTES) {
    throw new RangeError(
      `A message on the bus has at most ${MAX_MESSAGE_BYTES} bytes, got ${bytes}`,
    );
  }
  if (/\p{Surrogate}/u.test(message) || [...message].some((character) => character < ' ')) {
    throw new TypeError('A message on the bus has neither control characters nor lone surrogates');
  }
}

/**
 * Those who listen on one bus. One that throws harms neither the others nor the connection that a
 * message came on.
 */
export class BusListeners {
  readonly #listeners = new Set<(message: string) => void>();
  readonly #onError: (error: unknown) => void;

  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
  }

  get size(): number {
    return this.#listeners.size;
  }

  /**
   * The returned function says whether the listener was still there. The same one may be added
   * twice.
   */
  add(listener: (message: string) => void): () => boolean {
    const entry = (message: string): void => listener(message);
    this.#listeners.add(entry);
    return () => this.#listeners.delete(entry);
  }

  deliver(message: string): void {
    for (const listener of this.#listeners) {
      try {
        listener(message);
      } catch (error) {
        this.#onError(error);
      }
    }
  }
}

/**
 * The schema of `onError`: told of what nobody else is told of. One that throws is heard on the
 * console.
 */
export const onErrorOption = z.pipe(
  z._default(
    functionOption<(error: unknown) => void>(),
    () => (error: unknown) => console.error(error),
  ),
  z.transform((observer) => (error: unknown) => {
    try {
      observer(error);
    } catch (second) {
      console.error(second);
    }
  }),
);

export interface LocalBusOptions {
  /** Told of the error of a listener that throws. Default: `console.error`. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

const optionsSchema = z.strictObject({ onError: onErrorOption });

/** A bus within one process: all who have this object, and nobody else. */
export function localBus(options: LocalBusOptions = {}): NotificationBus {
  const { onError } = parseOptions('localBus() options', optionsSchema, options);
  const listeners = new BusListeners(onError);
  return {
    async publish(message) {
      checkMessage(message);
      // Later, as from a network: a listener never runs inside the call that published.
      await undefined;
      listeners.deliver(message);
    },
    async subscribe(listener) {
      const remove = listeners.add(listener);
      return async () => {
        remove();
      };
    },
    hears: () => true,
  };
}
