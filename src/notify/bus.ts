import * as z from 'zod/mini';
import { functionOption, lazily, lazyOptions, parseOptions } from '../basics/options.ts';

/**
 * Carries hints between the instances of one app. A lost message loses a hint, never a state. So a
 * bus need not send anything again, nor keep messages for instances that do not listen.
 */
export interface NotificationBus {
  /**
   * Sends a short text to every other instance, and maybe to this one. It has at most 1 KiB in
   * UTF-8 and no control characters, as `JSON.stringify()` writes it. Rejects where the bus did not
   * take it within two seconds; it may arrive all the same. Messages that the caller awaits one
   * after the other arrive in that order, except through a cluster.
   */
  publish(message: string): Promise<void>;

  /**
   * Calls `listener` for each message from now on, also after reconnections, until the returned
   * function is called. Tries until it receives, and then resolves. Where `signal` is aborted, it
   * resolves at once: the listener is not called any more, and nothing keeps the process alive.
   */
  subscribe(
    listener: (message: string) => void,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>>;

  /**
   * Whether the bus receives messages at the moment. A bus over a network does while the messages
   * that it sends itself come back. Without this method, that is not known.
   */
  hears?(): boolean;
}

/** A bus could not send a message, or does not receive its own ones. The cause says why. */
export class BusUnavailable extends Error {
  override readonly name = 'BusUnavailable';
}

/** In bytes of UTF-8. PostgreSQL takes up to 8,000, and a hint needs few. */
const MAX_MESSAGE_BYTES = 1024;

/**
 * Refuses a text that not every bus could carry: PostgreSQL has no NUL, and UTF-8 no half of a
 * surrogate pair.
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

/** The listeners of one bus. One that throws harms neither the others nor the bus's connection. */
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
   * Adds a listener, which may be there already. The returned function removes it, and says whether
   * it was still there.
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

/** The schema of `onError`. An observer that throws is reported on the console. */
export const onErrorOption = lazily(() =>
  z.pipe(
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
  ),
);

export interface LocalBusOptions {
  /** Called with the error of a listener that throws. Default: `console.error`. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

const optionsSchema = lazyOptions(() => ({ onError: onErrorOption() }));

/** A bus within one process: it reaches all that share this object. */
export function localBus(options: LocalBusOptions = {}): NotificationBus {
  const { onError } = parseOptions('localBus() options', optionsSchema, options);
  const listeners = new BusListeners(onError);
  return {
    async publish(message) {
      checkMessage(message);
      // As from a network: a listener never runs inside of the publisher's call.
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
