import * as z from 'zod/mini';
import { isPool, lazily, parseOptions } from '../basics/options.ts';
import type { NotificationBus } from '../notify/bus.ts';
import {
  type Link,
  type LinkEvents,
  PUBLISH_WITHIN_MS,
  type RemoteBusOptions,
  remoteBus,
  remoteBusShape,
  withinDeadline,
} from './remote-bus.ts';

/** The part of a `Pool` of `pg` that the bus uses. */
export interface PostgresBusPool {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
  connect(): Promise<PostgresBusClient>;
  connect(callback: (error: Error | undefined, client?: PostgresBusClient) => void): void;
  readonly options?: { readonly max?: number | undefined };
}

/** The part of a pool's client that the bus uses. */
export interface PostgresBusClient {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
  on(event: 'notification', listener: (message: PostgresNotification) => void): unknown;
  on(event: 'error' | 'end', listener: (error: unknown) => void): unknown;
  release(destroy?: boolean): void;
  unref?(): void;
}

interface PostgresNotification {
  readonly channel: string;
  readonly payload?: string | undefined;
}

export interface PostgresBusOptions extends RemoteBusOptions {
  /** A `Pool` of `pg` that publishes. The caller makes it, handles its errors and ends it. */
  readonly pool: PostgresBusPool;
  /**
   * Gives the connection that listens, which is kept while there are listeners and counts towards
   * the pool's `max`. It must not go through a pooler in transaction mode, such as PgBouncer or
   * Supavisor: nothing arrives there, and the bus receives nothing. Give a pool of one connection
   * with the server's own address. Default: `pool`.
   */
  readonly listenPool?: PostgresBusPool | undefined;
}

const poolSchema = lazily(() => z.custom<PostgresBusPool>(isPool, 'expected a Pool of pg'));

const optionsSchema = lazily(() =>
  z
    .strictObject({ pool: poolSchema(), listenPool: z.optional(poolSchema()), ...remoteBusShape() })
    .check(
      z.refine(({ pool, listenPool = pool }) => listenPool !== pool || pool.options?.max !== 1, {
        path: ['pool'],
        error: 'expected more than one connection, because one listens, or a listenPool',
      }),
    ),
);

const NOTIFY_EACH = 'SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message';

/**
 * A bus over `LISTEN` and `NOTIFY` of PostgreSQL. It reaches every instance that listens in the
 * same database. It sends in transactions of its own, one at a time: until a transaction that
 * notifies has committed, all others that notify must wait.
 *
 * Unsubscribe before `pool.end()`, which waits for the connection that listens.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown, or a pool
 * of one connection
 */
export function postgresBus(options: PostgresBusOptions): NotificationBus {
  const parsed = parseOptions('postgresBus() options', optionsSchema, options);
  const { pool, listenPool = pool, channel, heartbeatMs, onError } = parsed;
  return remoteBus({
    send: inBatches((messages) => pool.query(NOTIFY_EACH, [channel, messages]), PUBLISH_WITHIN_MS),
    open: (events) => listen(listenPool, channel, events),
    heartbeatMs,
    onError,
  });
}

function listen(pool: PostgresBusPool, channel: string, events: LinkEvents): Link {
  const connecting = connect(pool, (client) => {
    client.on('error', events.lost);
    client.on('end', () => events.lost(new Error('the server ended the connection')));
    client.on('notification', ({ channel: to, payload }) => {
      if (to === channel) events.message(payload ?? '');
    });
  });
  const start = async (): Promise<void> => {
    const client = await connecting;
    await client.query(`LISTEN "${channel.replaceAll('"', '""')}"`);
    client.unref?.();
  };
  return {
    listening: start(),
    check: async () => (await connecting).query('SELECT 1'),
    // Closed, not returned to the pool: its next user has no use for our notifications.
    close: async () => (await connecting).release(true),
  };
}

/**
 * Checks a client out, and has `prepare` listen to it in the same tick. A server that dies may let
 * the client in and end it in one packet. Its `error` event comes before a promise's handlers run,
 * and without a listener it would end the process.
 */
function connect(
  pool: PostgresBusPool,
  prepare: (client: PostgresBusClient) => void,
): Promise<PostgresBusClient> {
  return new Promise((resolve, reject) => {
    let isTaken = false;
    const take = (client: PostgresBusClient): void => {
      if (isTaken) return;
      isTaken = true;
      prepare(client);
      resolve(client);
    };
    const answer: unknown = pool.connect((error, client) => {
      if (client === undefined) reject(error);
      else take(client);
    });
    // A pool that only resembles pg's may take no callback. One that wraps pg's gives a promise of
    // nothing beside the callback.
    if (answer instanceof Promise)
      answer.then((client: PostgresBusClient | undefined) => client && take(client)).catch(reject);
  });
}

interface Waiting {
  readonly message: string;
  resolve(): void;
  reject(cause: unknown): void;
}

const MAX_BATCH = 100;

/**
 * Sends one batch at a time. Messages that come meanwhile wait for the next batch. A failure fails
 * them too: while a server does not answer, they would pile up.
 */
function inBatches(
  send: (messages: string[]) => Promise<unknown>,
  deadlineMs: number,
): (message: string) => Promise<void> {
  const waiting: Waiting[] = [];
  let sending = false;

  async function sendAll(): Promise<void> {
    sending = true;
    while (waiting.length > 0) {
      const batch = takeBatch(waiting);
      try {
        await withinDeadline(send([...batch.keys()]), deadlineMs);
        for (const { resolve } of batch.values()) resolve();
      } catch (cause) {
        for (const { reject } of [...batch.values(), ...waiting.splice(0)]) reject(cause);
      }
    }
    sending = false;
  }

  return (message) =>
    new Promise((resolve, reject) => {
      waiting.push({ message, resolve, reject });
      if (!sending) void sendAll();
    });
}

/** Takes no message twice: PostgreSQL delivers equal ones of a transaction only once. */
function takeBatch(waiting: Waiting[]): Map<string, Waiting> {
  const batch = new Map<string, Waiting>();
  for (const next of waiting) {
    if (batch.size === MAX_BATCH || batch.has(next.message)) break;
    batch.set(next.message, next);
  }
  waiting.splice(0, batch.size);
  return batch;
}
