import * as z from 'zod/mini';
import { atCaller } from '../errors.ts';
import { hasMethods, lazily, lazyOptions, parseOptions } from '../options.ts';
import type { DocumentStore } from './document/document-store.ts';
import { storeOf } from './document.ts';
import { type Evaluate, RedisRuns } from './redis/runs.ts';
import type { AtomicStateStore } from './store.ts';

/** The options that both `redisStore()` and `upstashStore()` have. */
export interface ScriptedStoreOptions {
  /** Begins every key of the store; without braces. Default `'interlock'`. */
  readonly prefix?: string | undefined;
  /** How many trail entries each workflow of a run keeps, at least 50. Default 1,000. */
  readonly trailLimit?: number | undefined;
  /** Chains the trail of each run by hashes, which `verifyTrail()` checks. Default `false`. */
  readonly chainTrail?: boolean | undefined;
}

/** The store of `redisStore()` and of `upstashStore()`. */
export type ScriptedStateStore = Required<AtomicStateStore> & {
  /**
   * Makes the index anew, after its keys were evicted or deleted. Goes through all keys of the
   * server, and of each server of a cluster. Until the index is complete, steps go on, and `held`,
   * `stuck`, `count`, `list` and `runs` reject. Resolves to how many runs it found.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where a run or an index has another layout.
   */
  rebuildIndex(): Promise<number>;
};

export const scriptedStoreOptions = lazily(() => ({
  prefix: z._default(
    z.string().check(z.regex(/^[^{}]*$/, 'expected a prefix without braces')),
    'interlock',
  ),
  trailLimit: z._default(z.int().check(z.minimum(50)), 1000),
  chainTrail: z._default(z.boolean(), false),
}));

/** The store on any server that runs Redis' Lua. */
export function scriptedStore(
  evaluate: Evaluate,
  { chainTrail, ...settings }: { prefix: string; trailLimit: number; chainTrail: boolean },
): ScriptedStateStore {
  const runs = new RedisRuns(evaluate, settings);
  const store = storeOf(runs, Date.now, chainTrail) as DocumentStore & Required<AtomicStateStore>;
  return Object.assign(store, {
    evictedKeys: () => runs.evictedKeys(),
    rebuildIndex: () => runs.rebuild(),
  });
}

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
 * Every operation on a run is one script and one round trip, and goes by the server's clock.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for a client that is neither node-redis nor
 * ioredis.
 */
export function redisStore(options: RedisStoreOptions): ScriptedStateStore {
  return atCaller(redisStore, () => {
    const { client, ...rest } = parseOptions('redisStore() options', schema, options);
    return scriptedStore(
      isNodeRedis(client) ? throughNodeRedis(client) : throughIoredis(client),
      rest,
    );
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

function isNodeRedis(client: unknown): client is NodeRedisClient {
  return hasMethods(client, 'eval', 'evalSha');
}

/** The client of Upstash has two methods of the same names, with other parameters. */
function isIoredis(client: unknown): client is IoredisClient {
  return hasMethods(client, 'eval', 'evalsha', 'defineCommand');
}
