import * as z from 'zod';
import { parseOptions } from '../options.ts';
import { scriptedStore } from './redis/scripted-store.ts';
import type { AtomicStateStore } from './store.ts';

/** What the store uses of `@upstash/redis`. */
export interface UpstashClient {
  evalsha(sha1: string, keys: string[], args: string[]): Promise<unknown>;
  eval(script: string, keys: string[], args: string[]): Promise<unknown>;
}

export interface UpstashStoreOptions {
  /** A client of `@upstash/redis`: `new Redis({ url, token })` or `Redis.fromEnv()`. */
  readonly redis: UpstashClient;
  /** Before every key of the store, without braces. Default `'interlock'`. */
  readonly prefix?: string | undefined;
  /** How many trail entries each workflow of a run keeps, at least 50. Default 1,000. */
  readonly trailLimit?: number | undefined;
}

const schema = z.strictObject({
  redis: z.custom<UpstashClient>(isUpstash, 'expected a client of @upstash/redis'),
  prefix: z
    .string()
    .regex(/^[^{}]*$/, 'expected a prefix without braces')
    .default('interlock'),
  trailLimit: z.int().min(50).default(1000),
});

/**
 * Keeps runs in Upstash Redis over its REST interface, and so from serverless functions too. Every
 * operation is one script and one HTTP request. The client may retry by itself and may parse
 * replies or not: neither changes an answer.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for another client.
 */
export function upstashStore(options: UpstashStoreOptions): AtomicStateStore {
  const { redis, ...rest } = parseOptions('upstashStore() options', schema, options);
  return scriptedStore(
    ({ source, sha1 }, bySource, keys, args) =>
      bySource ? redis.eval(source, keys, args) : redis.evalsha(sha1, keys, args),
    rest,
  );
}

/**
 * Every method that takes a command of ioredis has a counterpart of the same name there; only
 * ioredis defines commands.
 */
function isUpstash(client: unknown): boolean {
  if (typeof client !== 'object' || client === null) return false;
  const isFunction = (name: string) => typeof Reflect.get(client, name) === 'function';
  return isFunction('eval') && isFunction('evalsha') && !isFunction('defineCommand');
}
