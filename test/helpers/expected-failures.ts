/**
 * The promises of the store contract that a built-in store on a server does not keep yet: its Lua
 * or SQL holds the rules a second time. They go with it, once it stands on `documentStore()`.
 */
import { it } from 'vitest';
import type { DescribeStateStoreOptions } from '../../src/testing/index.ts';

type Broken = 'redis' | 'postgres';

const _SERVERS = ['redis', 'postgres'] as const;

/** By the promise's title, as the contract registers it; `redis` is Upstash's store too. */
const EXPECTED_FAILURES: Readonly<Record<string, readonly Broken[]>> = {};

/** Vitest's `it` for one of these stores. A promise that is kept, though listed, fails its test. */
export function itOf(store: Broken): DescribeStateStoreOptions['it'] {
  return (promise, body, timeoutMs) => {
    const isBroken = EXPECTED_FAILURES[promise]?.includes(store);
    return isBroken ? it.fails(promise, body, timeoutMs) : it(promise, body, timeoutMs);
  };
}
