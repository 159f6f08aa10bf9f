import * as z from 'zod/mini';
import { functionOption, parseOptions } from '../options.ts';
import { MemoryStore } from './memory-store.ts';
import type { AtomicStateStore } from './store.ts';

export interface MemoryStoreOptions {
  /**
   * How many runs are kept. Default 10,000. With one more, the least recently used run is evicted
   * as a whole and is unknown from then on: one without a principal, as long as there are any. A
   * run in which a claim lives is spared, and the limit exceeded where there are too many of them.
   */
  readonly maxRuns?: number | undefined;
  /** The clock, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Chains the trail of each run by hashes, which `verifyTrail()` checks. Default `false`. */
  readonly chainTrail?: boolean | undefined;
}

const optionsSchema = z.strictObject({
  maxRuns: z._default(z.int().check(z.minimum(1)), 10_000),
  now: z._default(functionOption<() => number>(), () => Date.now),
  chainTrail: z._default(z.boolean(), false),
});

/**
 * Keeps runs in this process, and loses them with it: for one process and for tests. Steps are
 * exact between all users of one store object. Sets no timers.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown.
 */
export function memoryStore(options: MemoryStoreOptions = {}): AtomicStateStore {
  return new MemoryStore(parseOptions('memoryStore()', optionsSchema, options));
}

/**
 * Whether the store is one that loses its runs with this process, and shares them with no other.
 */
export function isMemoryStore(store: AtomicStateStore): boolean {
  return store instanceof MemoryStore;
}
