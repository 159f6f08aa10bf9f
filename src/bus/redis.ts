import * as z from 'zod/mini';
import { hasMethods, lazily, lazyOptions, parseOptions } from '../basics/options.ts';
import type { NotificationBus } from '../notify/bus.ts';
import {
  type Link,
  type LinkEvents,
  type RemoteBusOptions,
  remoteBus,
  remoteBusShape,
} from './remote-bus.ts';

export interface RedisBusOptions extends RemoteBusOptions {
  /**
   * A client of node-redis or ioredis that publishes, for one server or a cluster. The caller
   * connects it, handles its errors and closes it.
   */
  readonly client: RedisPubSub;
  /**
   * A second client of either driver, which listens: a connection that subscribes can do little
   * else. The caller owns it too. Give ioredis `autoResubscribe: false`, since the bus subscribes
   * again itself: a connection that closes while ioredis does so ends the process. Default:
   * `client.duplicate()`, while there are listeners.
   */
  readonly subscriber?: RedisPubSub | undefined;
}

const clientSchema = lazily(() =>
  z.custom<RedisPubSub>(
    (client) => isNodeRedisPubSub(client) || isIoredisPubSub(client),
    'expected a client of node-redis or ioredis, and not a pool ' +
      '(Upstash has no subscriptions over REST)',
  ),
);

const optionsSchema = lazyOptions(() => ({
  client: clientSchema(),
  subscriber: z.optional(clientSchema()),
  ...remoteBusShape(),
}));

/**
 * A bus over publish/subscribe of Redis, with one server or a cluster. It uses classic channels,
 * not sharded ones. A message reaches all instances that listen at that moment, in any database of
 * the server, so each app needs a channel of its own.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown
 */
export function redisBus(options: RedisBusOptions): NotificationBus {
  const parsed = parseOptions('redisBus() options', optionsSchema, options);
  const { client, subscriber, channel, heartbeatMs, onError } = parsed;
  return remoteBus({
    send: async (message) => {
      if (isAway(client)) throw new Error('the client is not connected to Redis');
      await client.publish(channel, message);
    },
    open: (events) =>
      subscriber ? linkThrough(subscriber, channel, events) : linkLike(client, channel, events),
    heartbeatMs,
    onError,
  });
}

/** The part of node-redis that the bus uses: of `createClient()` or `createCluster()`. */
export interface NodeRedisPubSub {
  publish(channel: string, message: string): Promise<unknown>;
  duplicate(overrides?: object): NodeRedisPubSub;
  connect(): Promise<unknown>;
  subscribe(channel: string, listener: (message: unknown) => void): Promise<unknown>;
  unsubscribe(channel: string, listener: (message: unknown) => void): Promise<unknown>;
  ping(): Promise<unknown>;
  on(event: 'connect' | 'error', listener: (error: unknown) => void): unknown;
  destroy(): void;
  /** A cluster's options have another shape. */
  readonly options?: { readonly socket?: object | undefined } | undefined;
  readonly isOpen: boolean;
  /** The cluster of version 5 does not have it. */
  readonly isReady?: boolean;
  /** Only a single connection has it. */
  unref?(): void;
}

/** The part of ioredis that the bus uses: of a `Redis` or a `Cluster`. */
export interface IoredisPubSub {
  publish(channel: string, message: string): Promise<unknown>;
  /** Takes options; a cluster takes nodes and options. */
  duplicate(first?: object, second?: object): IoredisPubSub;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  ping(): Promise<unknown>;
  on(event: 'message', listener: (channel: string, message: string) => void): unknown;
  on(event: 'ready' | 'error' | 'end', listener: (error: unknown) => void): unknown;
  off(event: 'message', listener: (channel: string, message: string) => void): unknown;
  off(event: 'ready', listener: () => void): unknown;
  disconnect(): void;
  readonly status: string;
  readonly isCluster: boolean;
  /** The socket of a single connection, while it has one. */
  readonly stream?: { unref?(): void };
}

type RedisPubSub = NodeRedisPubSub | IoredisPubSub;

/** A pool of node-redis can publish but not subscribe, and has no `sSubscribe`. */
function isNodeRedisPubSub(client: unknown): client is NodeRedisPubSub {
  return hasMethods(client, 'publish', 'duplicate', 'sSubscribe');
}

function isIoredisPubSub(client: unknown): client is IoredisPubSub {
  return hasMethods(client, 'publish', 'duplicate', 'defineCommand');
}

/** A driver without its server keeps commands for later. But a hint is better lost than late. */
function isAway(client: RedisPubSub): boolean {
  if (isNodeRedisPubSub(client)) return client.isReady === false;
  return ['close', 'reconnecting', 'end'].includes(client.status);
}

/** Subscribes on a connection that the caller owns. */
function linkThrough(
  subscriber: RedisPubSub,
  channel: string,
  { message, doubted, failing }: LinkEvents,
): Link {
  if (isNodeRedisPubSub(subscriber)) {
    const onText = (text: unknown): void => message(String(text));
    return {
      listening: subscriber.subscribe(channel, onText),
      close: () => subscriber.unsubscribe(channel, onText),
    };
  }
  const onMessage = (to: string, text: string): void => {
    if (to === channel) message(text);
  };
  // Where the driver has subscribed again by itself, this changes nothing.
  const onReady = (): void => void subscriber.subscribe(channel).then(doubted, failing);
  subscriber.on('message', onMessage);
  subscriber.on('ready', onReady);
  return {
    listening: subscriber.subscribe(channel),
    close: () => {
      subscriber.off('message', onMessage);
      subscriber.off('ready', onReady);
      return subscriber.unsubscribe(channel);
    },
  };
}

/** Subscribes on a connection of the bus's own, with the caller's settings. */
function linkLike(client: RedisPubSub, channel: string, events: LinkEvents): Link {
  return isNodeRedisPubSub(client)
    ? linkLikeNodeRedis(client, channel, events)
    : linkLikeIoredis(client, channel, events);
}

/**
 * A single connection does not reconnect: the bus opens the next one. A client of node-redis that
 * reconnects may be connecting at any time, and one that is destroyed meanwhile connects all the
 * same and stays open.
 */
function linkLikeNodeRedis(client: NodeRedisPubSub, channel: string, events: LinkEvents): Link {
  const isCluster = client.unref === undefined;
  const socket = { ...client.options?.socket, reconnectStrategy: false };
  const connection = isCluster ? client.duplicate() : client.duplicate({ socket });
  connection.on('error', (error) => {
    if (!connection.isOpen) events.lost(error);
    // The error may be of a node on which nothing listens, and it comes with each try to reconnect.
    else if (isCluster) events.doubted();
    else events.failing(error);
  });
  const connected = new Promise((resolve) => connection.on('connect', resolve));
  const connecting = connection.connect();
  const listen = async (): Promise<void> => {
    await connecting;
    await connection.subscribe(channel, (text) => events.message(String(text)));
    connection.unref?.();
  };
  return {
    listening: listen(),
    // A cluster would ask any of its nodes, and not the one on which it listens.
    check: isCluster ? undefined : () => connection.ping(),
    close: async () => {
      if (!isCluster) await Promise.race([connected, connecting.catch(() => {})]);
      connection.destroy();
    },
  };
}

/**
 * The caller's settings may be meant for commands, which should fail and not wait. The bus
 * subscribes again itself: ioredis drops the promise of its own subscription, so that a connection
 * which ends meanwhile ends the process.
 */
const PATIENT = {
  autoResubscribe: false,
  enableOfflineQueue: true,
  lazyConnect: false,
  maxRetriesPerRequest: null,
};

function linkLikeIoredis(client: IoredisPubSub, channel: string, events: LinkEvents): Link {
  const { isCluster } = client;
  const connection = isCluster ? client.duplicate([], PATIENT) : client.duplicate(PATIENT);
  const listening = new Promise<void>((resolve) => {
    const subscribed = (): void => {
      resolve();
      events.doubted();
      connection.stream?.unref?.();
    };
    connection.on('ready', () => connection.subscribe(channel).then(subscribed, events.lost));
  });
  connection.on('message', (_channel, text) => events.message(text));
  connection.on('error', events.failing);
  connection.on('end', () => events.lost(new Error('the driver gave the connection up')));
  return {
    listening,
    check: isCluster ? undefined : () => connection.ping(),
    close: () => connection.disconnect(),
  };
}
