import * as z from 'zod/mini';
import { atCaller } from '../basics/errors.ts';
import {
  clockOption,
  flagOption,
  integerOption,
  lazyOptions,
  parseOptions,
} from '../basics/options.ts';
import { MemoryStore } from './memory-store.ts';
import type { AtomicStateStore } from './store.ts';

export interface MemoryStoreOptions {
  /**
   * How many runs the store keeps. Default 10,000. For one more it evicts the least recently used
   * run as a whole, and first those without a principal. An evicted run is unknown. The store
   * spares runs that are held or frozen or have a live claim, even if it then exceeds the limit.
   */
  readonly maxRuns?: number | undefined;
  /** The clock, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Chains the trail of each run by hashes, which `verifyTrail()` checks. Default `false`. */
  readonly chainTrail?: boolean | undefined;
}

const optionsSchema = lazyOptions(() => ({
  maxRuns: z._default(integerOption(1), 10_000),
  now: clockOption(),
  chainTrail: flagOption(),
}));

/**
 * Keeps runs in this process, and loses them with it: for one process and for tests. Steps are
 * exact between all users of one store object. Sets no timers.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown.
 */
export function memoryStore(options: MemoryStoreOptions = {}): AtomicStateStore {
  return atCaller(memoryStore, () => {
    return new MemoryStore(parseOptions('memoryStore()', optionsSchema, options));
  });
}

/** Whether the store loses its runs with this process, and shares them with no other process. */
export function isMemoryStore(store: AtomicStateStore): boolean {
  return store instanceof MemoryStore;
}
