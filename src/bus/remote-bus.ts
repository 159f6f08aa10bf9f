import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import * as z from 'zod/mini';
import { Reported } from '../basics/clock.ts';
import { integerOption, lazily } from '../basics/options.ts';
import {
  BusListeners,
  BusUnavailable,
  checkMessage,
  type NotificationBus,
  onErrorOption,
} from '../notify/bus.ts';

/** The options of each bus over a network. */
export interface RemoteBusOptions {
  /**
   * The name that all instances of an app share: 1 to 63 printable ASCII characters. Default
   * `'interlock'`.
   */
  readonly channel?: string | undefined;
  /**
   * How often the bus sends itself a message while it has listeners, in milliseconds, at least 100.
   * It counts as receiving only while those come back. Default 30,000.
   */
  readonly heartbeatMs?: number | undefined;
  /**
   * Called when the bus does not receive its own messages, once for each different error, and with
   * the errors that listeners throw. Default: `console.error`.
   */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** The schema of {@link RemoteBusOptions}, with its defaults. */
export const remoteBusShape = lazily(() => ({
  channel: z._default(
    z.string().check(z.regex(/^[ -~]{1,63}$/, 'expected 1 to 63 printable characters of ASCII')),
    'interlock',
  ),
  heartbeatMs: z._default(integerOption(100, 2 ** 31 - 1), 30_000),
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
export function remoteBus({ onError, ...parts }: RemoteBusParts): NotificationBus {
  const { send } = parts;
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

/** One connection that receives messages. */
export interface Link {
  /** Resolves once the server has taken its subscription; rejects where it never will. */
  readonly listening: Promise<unknown>;
  /**
   * Resolves if it still answers, for the time in which no heartbeat can be sent. `undefined` where
   * only the driver knows.
   */
  readonly check?: (() => Promise<unknown>) | undefined;
  /** Ends it, also while it does not receive yet. */
  close(): unknown;
}

/** What happens to a link. */
export interface LinkEvents {
  message(text: string): void;
  /** It broke, and the driver mends it. */
  failing(cause: unknown): void;
  /** Something happened to it, such as a new subscription of the driver's: test it at once. */
  doubted(): void;
  /** It broke for good. */
  lost(cause: unknown): void;
}

interface StandingLinkOptions {
  readonly open: (events: LinkEvents) => Link;
  /** Sends as the bus does, on another connection than the link's. */
  readonly send: (message: string) => Promise<unknown>;
  /** Called with all messages but heartbeats. */
  readonly onMessage: (text: string) => void;
  /** Called once for each different error, until the link receives again. */
  readonly onError: (error: unknown) => void;
  /** How long after a heartbeat that came back the next one is sent, in milliseconds. */
  readonly heartbeatMs: number;
}

/**
 * The beginning of a heartbeat. All instances receive it, and those of a version that does not know
 * it drop it as a hint that they cannot read.
 */
const HEARTBEAT = '{"mcp-interlock":"heartbeat","id":"';

const ANSWER_WITHIN_MS = 5000;
/** Why a link is given up whose heartbeat was sent. */
const DEAF =
  'the listening connection must reach the server that the other one publishes to, and no pooler ' +
  'in transaction mode: it did not get its own heartbeat';
const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 2000;

/**
 * Opens a new link whenever one is lost. Its timers do not keep the process alive.
 *
 * A subscription that the server has taken proves little: behind a pooler in transaction mode
 * nothing arrives, and the session may even list the channel. So the link counts as receiving only
 * while the heartbeats that it sends come back to it. They go out on another connection: PostgreSQL
 * gives a session its own notifications with the answer, which such a pooler passes on.
 */
export class StandingLink {
  /** Resolves once a heartbeat has come back for the first time. */
  readonly listening: Promise<void>;
  readonly #options: StandingLinkOptions;
  #reported = new Reported();
  #markListening = (): void => {};
  #link: Link | undefined;
  /** The server has taken the link's subscription. */
  #isOpen = false;
  /** The heartbeat that was sent and did not come back yet. */
  #awaited: string | undefined;
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

  /** Whether the last heartbeat came back to this link, and nothing failed since. */
  get hears(): boolean {
    return this.#hears;
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer);
    const link = this.#giveUp();
    if (link !== undefined) await this.#end(link);
  }

  #open(): void {
    const link = this.#options.open({
      message: (text) => this.#receive(link, text),
      failing: (cause) => this.#tryLater(link, cause),
      doubted: () => this.#beat(link),
      lost: (cause) => this.#replace(link, cause),
    });
    this.#link = link;
    link.listening.then(
      () => {
        if (link === this.#link) this.#isOpen = true;
        this.#beat(link);
      },
      (error) => this.#replace(link, error),
    );
  }

  /** Drops messages of an old link: the new link may have brought the same, or newer ones. */
  #receive(link: Link, text: string): void {
    if (link !== this.#link) return;
    if (!text.startsWith(HEARTBEAT)) this.#options.onMessage(text);
    else if (text === this.#awaited) {
      this.#awaited = undefined;
      this.#hears = true;
      this.#failures = 0;
      this.#reported = new Reported();
      this.#markListening();
      this.#later(this.#options.heartbeatMs, () => this.#beat(link));
    }
  }

  /** Sends a heartbeat, in place of one that is under way. The link has to receive it in time. */
  #beat(link: Link): void {
    if (link !== this.#link || !this.#isOpen) return;
    clearTimeout(this.#timer);
    const text = `${HEARTBEAT}${randomUUID()}"}`;
    this.#awaited = text;
    const { send, heartbeatMs } = this.#options;
    const withinMs = Math.min(heartbeatMs, ANSWER_WITHIN_MS);
    const deaf = (): void => this.#replace(link, new Error(`${DEAF} within ${withinMs} ms`));
    withinDeadline(send(text), Math.min(heartbeatMs, PUBLISH_WITHIN_MS)).then(
      () => {
        if (text === this.#awaited) this.#later(withinMs, deaf);
      },
      (cause) => {
        if (text === this.#awaited) void this.#checkUnreceived(link, cause, withinMs);
      },
    );
  }

  /** No heartbeat could be sent. A link that still answers is kept: others may reach it. */
  async #checkUnreceived(link: Link, cause: unknown, withinMs: number): Promise<void> {
    this.#tryLater(link, cause);
    try {
      await withinDeadline(Promise.resolve(link.check?.()), withinMs);
    } catch (error) {
      this.#replace(link, error);
    }
  }

  #replace(link: Link, cause: unknown): void {
    if (link !== this.#link) return;
    this.#report(cause);
    this.#giveUp();
    void this.#end(link);
    this.#retry(() => this.#open());
  }

  /** Sends the next heartbeat soon, if the link is open by then. */
  #tryLater(link: Link, cause: unknown): void {
    if (link !== this.#link) return;
    this.#report(cause);
    this.#awaited = undefined;
    if (this.#isOpen) this.#retry(() => this.#beat(link));
  }

  /** Reports a server that is away for an hour once, and not for each try. */
  #report(cause: unknown): void {
    this.#hears = false;
    if (!this.#reported.isNew(String(cause))) return;
    const message =
      'the bus does not get its own messages: until it does, hints between instances may be lost';
    this.#options.onError(new BusUnavailable(message, { cause }));
  }

  #giveUp(): Link | undefined {
    const link = this.#link;
    this.#link = undefined;
    this.#isOpen = false;
    this.#awaited = undefined;
    this.#hears = false;
    return link;
  }

  async #end(link: Link): Promise<void> {
    try {
      await withinDeadline(Promise.resolve(link.close()), ANSWER_WITHIN_MS);
    } catch {
      // It was gone already, or cannot be reached: the driver or the server will find out.
    }
  }

  #retry(task: () => void): void {
    this.#later(retryDelayMs(this.#failures), task);
    this.#failures += 1;
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
