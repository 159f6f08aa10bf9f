import { once } from 'node:events';
import * as z from 'zod/mini';
import {
  BusListeners,
  BusUnavailable,
  checkMessage,
  type NotificationBus,
  onErrorOption,
} from '../notify/bus.ts';
import { lazily } from '../options.ts';

/** The options of each bus over a network. */
export interface RemoteBusOptions {
  /**
   * The name that all instances of an app share: 1 to 63 printable ASCII characters. Default
   * `'interlock'`.
   */
  readonly channel?: string | undefined;
  /** How often the bus tests its connection, in milliseconds, at least 100. Default 30,000. */
  readonly heartbeatMs?: number | undefined;
  /**
   * Called when the bus no longer hears, once for each different error, and with the errors that
   * listeners throw. Default: `console.error`.
   */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** The schema of {@link RemoteBusOptions}, with its defaults. */
export const remoteBusShape = lazily(() => ({
  channel: z._default(
    z.string().check(z.regex(/^[ -~]{1,63}$/, 'expected 1 to 63 printable characters of ASCII')),
    'interlock',
  ),
  heartbeatMs: z._default(z.int().check(z.minimum(100), z.maximum(2 ** 31 - 1)), 30_000),
  onError: onErrorOption(),
}));

interface RemoteBusParts {
  readonly send: (message: string) => Promise<unknown>;
  readonly open: (events: LinkEvents) => Link;
  readonly heartbeatMs: number;
  readonly onError: (error: unknown) => void;
}

/** In milliseconds: as long as a store may take. */
export const PUBLISH_WITHIN_MS = 2000;

/** A bus with one connection, which opens with the first listener and closes after the last. */
export function remoteBus({ send, onError, ...parts }: RemoteBusParts): NotificationBus {
  const listeners = new BusListeners(onError);
  const onMessage = (text: string): void => listeners.deliver(text);
  let link: StandingLink | undefined;

  return {
    async publish(message) {
      checkMessage(message);
      try {
        await withinDeadline(send(message), PUBLISH_WITHIN_MS);
      } catch (cause) {
        throw new BusUnavailable('the bus could not send a message', { cause });
      }
    },

    async subscribe(listener, signal) {
      link ??= new StandingLink({ ...parts, onMessage, onError });
      const remove = listeners.add(listener);
      const stop = async (): Promise<void> => {
        if (!remove() || listeners.size > 0) return;
        const last = link;
        link = undefined;
        await last?.close();
      };
      const aborted = signal && !signal.aborted ? [once(signal, 'abort')] : [];
      if (!signal?.aborted) await Promise.race([link.listening, ...aborted]);
      if (signal?.aborted) await stop();
      return stop;
    },

    hears: () => link?.hears === true,
  };
}

/** One connection that hears messages. */
export interface Link {
  /** Resolves once it hears; rejects where it never will. */
  readonly listening: Promise<unknown>;
  /** Resolves if it still hears. `undefined` where only the driver can tell. */
  readonly check?: (() => Promise<unknown>) | undefined;
  /** Ends it, also while it does not hear yet. */
  close(): unknown;
}

/** What happens to a link. */
export interface LinkEvents {
  message(text: string): void;
  /** It broke, and the driver mends it. */
  failing(cause: unknown): void;
  /** It hears again. */
  mended(): void;
  /** It broke for good. */
  lost(cause: unknown): void;
}

interface StandingLinkOptions {
  readonly open: (events: LinkEvents) => Link;
  readonly onMessage: (text: string) => void;
  /** Called once for each different error, until the link hears again. */
  readonly onError: (error: unknown) => void;
  /** How often the link is tested, in milliseconds. */
  readonly heartbeatMs: number;
}

const ANSWER_WITHIN_MS = 5000;
const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 2000;

/** Opens a new link whenever one is lost. Its timers do not keep the process alive. */
export class StandingLink {
  /** Resolves once it hears for the first time. */
  readonly listening: Promise<void>;
  readonly #options: StandingLinkOptions;
  readonly #reported = new Set<string>();
  #markListening = (): void => {};
  #link: Link | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #hears = false;

  constructor(options: StandingLinkOptions) {
    this.#options = options;
    this.listening = new Promise((resolve) => {
      this.#markListening = resolve;
    });
    this.#open();
  }

  /** Whether the link hears at the moment, as far as the driver has told. */
  get hears(): boolean {
    return this.#hears;
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#hears = false;
    const link = this.#link;
    this.#link = undefined;
    if (link !== undefined) await this.#end(link);
  }

  #open(): void {
    const link = this.#options.open({
      message: (text) => this.#hear(link, text),
      failing: (cause) => this.#report(link, cause),
      mended: () => this.#mended(link),
      lost: (cause) => this.#replace(link, cause),
    });
    this.#link = link;
    link.listening.then(
      () => this.#opened(link),
      (error) => this.#replace(link, error),
    );
  }

  /** Drops messages of an old link: the new link may have brought the same, or newer ones. */
  #hear(link: Link, text: string): void {
    if (link === this.#link) this.#options.onMessage(text);
  }

  #opened(link: Link): void {
    if (link !== this.#link) return;
    this.#failures = 0;
    this.#mended(link);
    this.#markListening();
    this.#checkLater(link);
  }

  #checkLater(link: Link): void {
    const { check } = link;
    if (check === undefined) return;
    const { heartbeatMs } = this.#options;
    this.#later(heartbeatMs, async () => {
      try {
        await withinDeadline(check(), Math.min(heartbeatMs, ANSWER_WITHIN_MS));
      } catch (error) {
        return this.#replace(link, error);
      }
      if (link === this.#link) this.#checkLater(link);
    });
  }

  #replace(link: Link, cause: unknown): void {
    if (link !== this.#link) return;
    this.#report(link, cause);
    this.#link = undefined;
    void this.#end(link);
    this.#later(retryDelayMs(this.#failures), () => this.#open());
    this.#failures += 1;
  }

  /** Reports a server that is away for an hour once, and not for each try. */
  #report(link: Link, cause: unknown): void {
    if (link !== this.#link) return;
    this.#hears = false;
    if (this.#reported.has(String(cause))) return;
    this.#reported.add(String(cause));
    const message = 'the bus does not hear: until it does, hints from other instances are lost';
    this.#options.onError(new BusUnavailable(message, { cause }));
  }

  #mended(link: Link): void {
    if (link !== this.#link) return;
    this.#hears = true;
    this.#reported.clear();
  }

  async #end(link: Link): Promise<void> {
    try {
      await withinDeadline(Promise.resolve(link.close()), ANSWER_WITHIN_MS);
    } catch {
      // It was gone already, or cannot be reached: the driver or the server will find out.
    }
  }

  #later(ms: number, task: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(task, ms);
    this.#timer.unref();
  }
}

/** Doubles with each failure. It is random, so that many instances do not return at once. */
export function retryDelayMs(failures: number, random: () => number = Math.random): number {
  const longest = Math.min(FIRST_RETRY_MS * 2 ** failures, LAST_RETRY_MS);
  return (longest * (1 + random())) / 2;
}

/** The answer, or a rejection after `ms` milliseconds. A later answer is dropped. */
export function withinDeadline<T>(answer: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
    timer.unref();
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
