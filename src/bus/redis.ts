import * as z from 'zod';
import type { NotificationBus } from '../notify/bus.ts';
import { parseOptions } from '../options.ts';
import {
  isAway,
  isIoredis,
  isNodeRedis,
  linkLike,
  linkThrough,
  type RedisPubSub,
} from './redis-clients.ts';
import { type RemoteBusOptions, remoteBus, remoteBusShape } from './remote-bus.ts';

export type { IoredisPubSub, NodeRedisPubSub } from './redis-clients.ts';

export interface RedisBusOptions extends RemoteBusOptions {
  /**
   * A client of node-redis or ioredis, of one server or of a cluster, which publishes. The caller
   * connects it, listens to its errors and closes it.
   */
  readonly client: RedisPubSub;
  /**
   * A second one that listens, of either driver and the caller's too, since a connection that
   * subscribes can do little else. Give one of ioredis `autoResubscribe: false`, because the bus
   * subscribes again by itself: ioredis drops the promise of its own try, and ends the process
   * where the connection is closed during it. Default: `client.duplicate()` while there are
   * listeners.
   */
  readonly subscriber?: RedisPubSub | undefined;
}

const clientSchema = z.custom<RedisPubSub>(
  (client) => isNodeRedis(client) || isIoredis(client),
  'expected a client of node-redis or ioredis, and not a pool (Upstash has no subscriptions over REST)',
);

const optionsSchema = z.strictObject({
  client: clientSchema,
  subscriber: clientSchema.optional(),
  ...remoteBusShape,
});

/**
 * A bus over the publish/subscribe of Redis, alone or as a cluster (classic channels, not sharded
 * ones). A message goes to whoever listens at that moment, in any database of the server; the
 * channel tells apps apart.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown.
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
