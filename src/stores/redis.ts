import * as z from 'zod/mini';
import { atCaller } from '../basics/errors.ts';
import { hasMethods, lazyOptions, parseOptions } from '../basics/options.ts';
import type { Evaluate } from './redis/runs.ts';
import {
  type ScriptedStateStore,
  type ScriptedStoreOptions,
  scriptedStore,
  scriptedStoreOptions,
} from './redis/scripted-store.ts';

/**
 * What the store uses of node-redis: of `createClient()`, `createCluster()` or a pool of clients.
 */
export interface NodeRedisClient {
  evalSha(sha1: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

/** What the store uses of ioredis: a `Redis` or a `Cluster`. */
export interface IoredisClient {
  evalsha(sha1: string, keyCount: number, ...keysAndArguments: string[]): Promise<unknown>;
  eval(script: string, keyCount: number, ...keysAndArguments: string[]): Promise<unknown>;
}

export interface RedisStoreOptions extends ScriptedStoreOptions {
  /**
   * A client of node-redis or ioredis. The caller connects it, handles its `error` events and
   * closes it.
   */
  readonly client: NodeRedisClient | IoredisClient;
}

const schema = lazyOptions(() => ({
  client: z.custom<RedisStoreOptions['client']>(
    (client) => isNodeRedis(client) || isIoredis(client),
    'expected a client of node-redis or ioredis (for @upstash/redis there is upstashStore())',
  ),
  ...scriptedStoreOptions(),
}));

/**
 * Keeps runs in Redis 5 or later, alone or as a cluster, so that steps are exact across processes.
 * A step takes two round trips, or three where this process does not know the run, and goes by the
 * server's clock.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for a client that is neither node-redis nor
 * ioredis.
 */
export function redisStore(options: RedisStoreOptions): ScriptedStateStore {
  return atCaller(redisStore, () => {
    const { client, ...rest } = parseOptions('redisStore() options', schema, options);
    return scriptedStore(isNodeRedis(client) ? throughNodeRedis(client) : throughIoredis(client), {
      ...rest,
      savePoints: () => savePointsOf(client),
    });
  });
}

function throughNodeRedis(client: NodeRedisClient): Evaluate {
  return ({ source, sha1 }, bySource, keys, args) => {
    const options = { keys, arguments: args };
    return bySource ? client.eval(source, options) : client.evalSha(sha1, options);
  };
}

function throughIoredis(client: IoredisClient): Evaluate {
  return ({ source, sha1 }, bySource, keys, args) =>
    bySource
      ? client.eval(source, keys.length, ...keys, ...args)
      : client.evalsha(sha1, keys.length, ...keys, ...args);
}

/** Of one server: those of a cluster have the same settings. */
async function savePointsOf(client: RedisStoreOptions['client']): Promise<unknown> {
  const { configGet, config } = client as {
    configGet?: (name: string) => Promise<object>;
    config?: (command: string, name: string) => Promise<object>;
  };
  // An object of one setting, or a list of its name and its value.
  const found = await (configGet?.call(client, 'save') ?? config?.call(client, 'GET', 'save'));
  return found && Object.values(found).at(-1);
}

function isNodeRedis(client: unknown): client is NodeRedisClient {
  return hasMethods(client, 'eval', 'evalSha');
}

/** The client of Upstash has two methods of the same names, with other parameters. */
function isIoredis(client: unknown): client is IoredisClient {
  return hasMethods(client, 'eval', 'evalsha', 'defineCommand');
}
