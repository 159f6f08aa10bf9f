/** The store on any server that runs Redis' Lua. Hides which options both of them have. */
import * as z from 'zod/mini';
import { flagOption, integerOption, lazily } from '../../basics/options.ts';
import { DocumentStore } from '../document/document-store.ts';
import type { AtomicStateStore } from '../store.ts';
import { type Evaluate, RedisRuns, type RedisRunsSettings } from './runs.ts';

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
  trailLimit: z._default(integerOption(50), 1000),
  chainTrail: flagOption(),
}));

/** The store on any server that runs Redis' Lua. */
export function scriptedStore(
  evaluate: Evaluate,
  { chainTrail, ...settings }: RedisRunsSettings & { readonly chainTrail: boolean },
): ScriptedStateStore {
  const runs = new RedisRuns(evaluate, settings);
  const store = new DocumentStore(runs, Date.now, chainTrail) as DocumentStore &
    Required<AtomicStateStore>;
  return Object.assign(store, {
    evictedKeys: () => runs.evictedKeys(),
    rebuildIndex: () => runs.rebuild(),
  });
}
