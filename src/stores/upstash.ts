import * as z from 'zod/mini';
import { atCaller } from '../basics/errors.ts';
import { hasMethods, lazyOptions, parseOptions } from '../basics/options.ts';
import {
  type ScriptedStateStore,
  type ScriptedStoreOptions,
  scriptedStore,
  scriptedStoreOptions,
} from './redis/scripted-store.ts';

/** What the store uses of `@upstash/redis`. */
export interface UpstashClient {
  evalsha(sha1: string, keys: string[], args: string[]): Promise<unknown>;
  eval(script: string, keys: string[], args: string[]): Promise<unknown>;
}

export interface UpstashStoreOptions extends ScriptedStoreOptions {
  /** A client of `@upstash/redis`: `new Redis({ url, token })` or `Redis.fromEnv()`. */
  readonly redis: UpstashClient;
}

const schema = lazyOptions(() => ({
  redis: z.custom<UpstashClient>(isUpstash, 'expected a client of @upstash/redis'),
  ...scriptedStoreOptions(),
}));

/**
 * Keeps runs in Upstash Redis over its REST interface, which serverless functions can use too.
 * A step takes two HTTP requests, or three where this process does not know the run. The client may
 * retry by itself and may parse replies: the answers stay the same.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for another client.
 */
export function upstashStore(options: UpstashStoreOptions): ScriptedStateStore {
  return atCaller(upstashStore, () => {
    const { redis, ...rest } = parseOptions('upstashStore() options', schema, options);
    return scriptedStore(
      ({ source, sha1 }, bySource, keys, args) =>
        bySource ? redis.eval(source, keys, args) : redis.evalsha(sha1, keys, args),
      rest,
    );
  });
}

/** ioredis has methods of the same names, and defines commands too. */
function isUpstash(client: unknown): boolean {
  return hasMethods(client, 'eval', 'evalsha') && !hasMethods(client, 'defineCommand');
}
