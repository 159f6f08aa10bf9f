import { once } from 'node:events';
import * as z from 'zod';
import {
  BusListeners,
  BusUnavailable,
  checkMessage,
  type NotificationBus,
  onErrorOption,
} from '../notify/bus.ts';
import { withinDeadline } from './deadline.ts';
import { type Link, type LinkEvents, StandingLink } from './standing-link.ts';

/** Options that each bus over a network takes. */
export interface RemoteBusOptions {
  /**
   * What the instances of one app share: 1 to 63 printable characters of ASCII. Default
   * `'interlock'`.
   */
  readonly channel?: string | undefined;
  /**
   * How often the connection that listens is tested, in milliseconds, at least 100. Default 30,000.
   */
  readonly heartbeatMs?: number | undefined;
  /**
   * Told when the bus no longer hears, once for each way in which it fails, and of a listener's own
   * errors. Default: `console.error`.
   */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** The schema of {@link RemoteBusOptions}, with its defaults. */
export const remoteBusShape = {
  channel: z
    .string()
    .regex(/^[ -~]{1,63}$/, 'expected 1 to 63 printable characters of ASCII')
    .default('interlock'),
  heartbeatMs: z
    .int()
    .min(100)
    .max(2 ** 31 - 1)
    .default(30_000),
  onError: onErrorOption,
};

export interface RemoteBusParts {
  readonly send: (message: string) => Promise<unknown>;
  readonly open: (events: LinkEvents) => Link;
  readonly heartbeatMs: number;
  readonly onError: (error: unknown) => void;
}

/** As long as a store has, at most. */
export const PUBLISH_WITHIN_MS = 2000;

/**
 * A bus with one connection for all its listeners, opened for the first of them and closed after
 * the last.
 */
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
        throw new BusUnavailable('the bus could not hand a message over', { cause });
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
  };
}
