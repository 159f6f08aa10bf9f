import * as z from 'zod/mini';
import { functionOption, lazyOptions, parseOptions } from '../../../src/internal.ts';
import { claimPromises, idempotencyPromises } from './claims.ts';
import { commitPromises } from './commits.ts';
import { driverPromises } from './drivers.ts';
import {
  LATEST,
  type Promises,
  SOON,
  type StoreScope,
  type StoreUnderTest,
  stageFor,
} from './fixtures.ts';
import { freezePromises } from './freezes.ts';
import {
  frozenRunPromises,
  restartFrozenRunPromises,
  sharedFrozenRunPromises,
} from './frozen-runs.ts';
import { hostilePromises } from './hostile.ts';
import {
  clockPromises,
  leasePromises,
  sharedPromises,
  sharedTimePromises,
  timePromises,
} from './leases.ts';
import { sweepPromises } from './listed.ts';
import { listingPromises, movingListingPromises, sharedListingPromises } from './listings.ts';
import { restartPromises, runPromises } from './lives.ts';
import { nextRunPromises } from './next-runs.ts';
import { pinnedListingPromises, pinPromises, sharedPinPromises } from './pins.ts';
import { recordPromises } from './records.ts';
import { restartSwitchPromises, sharedSwitchPromises, switchPromises } from './switches.ts';
import { chainPromises, sharedChainPromises, trailPromises } from './trail.ts';
import { sharedUsePromises, usePromises } from './uses.ts';

export {
  type AssertGatedOptions,
  assertGated,
  type Gated,
  type GatedTarget,
  type NodeApp,
} from './assert-gated.ts';
export type { StoreScope, StoreUnderTest } from './fixtures.ts';
export type { ClientEra, RpcError } from './mcp-client.ts';
export {
  type AnyGate,
  type TestAnswer,
  type TestGate,
  type TestGateOptions,
  type TestOutcome,
  type TestRefusal,
  testGate,
} from './test-gate.ts';
export { NO_ANSWER, type TestClock, type TestResult, type TestTool } from './test-world.ts';

export interface DescribeStateStoreOptions {
  /** The `describe` of your test runner: Vitest, Jest, Mocha, `node:test`. */
  readonly describe: (name: string, body: () => void) => unknown;
  /** The `it` or `test` of your test runner. */
  readonly it: (name: string, body: () => Promise<void>, timeoutMs: number) => unknown;
  /** Default `'processes'`, which needs `reopen`. */
  readonly scope?: StoreScope | undefined;
  /** Whether the store chains its trails by hashes. Default `false`. */
  readonly chainTrail?: boolean | undefined;
  /**
   * How many bytes a run may have in the store, its newest entries of the trail included. The suite
   * writes none that is larger. Default 2,000,000.
   */
  readonly maxBytes?: number | undefined;
  /**
   * How long one test may take, in milliseconds. The suite gives it to `it` as the third argument.
   * Default 30,000.
   */
  readonly timeoutMs?: number | undefined;
}

const optionsSchema = lazyOptions(() => ({
  describe: functionOption<DescribeStateStoreOptions['describe']>(),
  it: functionOption<DescribeStateStoreOptions['it']>(),
  scope: z._default(z.enum(['processes', 'restarts', 'process']), 'processes'),
  chainTrail: z._default(z.boolean(), false),
  maxBytes: z._default(z.int().check(z.minimum(100_000)), 2_000_000),
  timeoutMs: z._default(z.number().check(z.positive()), 30_000),
}));

/**
 * The contract of `AtomicStateStore` as tests, for your own store under your own test runner. A
 * store of `load` and `save` takes the scope `'restarts'`. Each promise of the contract is a test
 * that gets a store from `makeStore` and closes it. The stores may share data, since no two tests
 * use one run key. The suite asserts with `node:assert`, and takes a few seconds where it cannot
 * advance the store's clock.
 *
 * ```ts
 * import { describe, it } from 'vitest';
 *
 * describeStateStore('my store', async () => ({ store, reopen, close }), { describe, it });
 * ```
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is missing, wrong or unknown.
 */
export function describeStateStore(
  name: string,
  makeStore: () => Promise<StoreUnderTest>,
  options: DescribeStateStoreOptions,
): void {
  const { describe, it, scope, chainTrail, maxBytes, timeoutMs } = parseOptions(
    'describeStateStore()',
    optionsSchema,
    options,
  );
  const promises: Promises = (promise, body) => {
    const test = async () => {
      for (let soon = SOON; ; soon *= 4) {
        const made = await makeStore();
        const stage = stageFor(made, scope, chainTrail, soon);
        try {
          await body(stage);
          return;
        } catch (error) {
          // On a busy machine a lease or a life may have ended too early: try a longer one.
          if (!stage.wasTooSlow || soon >= LATEST) throw error;
        } finally {
          await made.close();
        }
      }
    };
    it(promise, test, timeoutMs);
  };
  describe(`${name} keeps the store contract`, () => {
    describe('the driver', () => driverPromises(promises));
    describe('runs', () => runPromises(promises));
    describe('claims', () => claimPromises(promises));
    describe('leases', () => leasePromises(promises));
    describe('commits', () => commitPromises(promises));
    describe('records', () => recordPromises(promises));
    describe('freezes', () => freezePromises(promises));
    describe('frozen runs', () => frozenRunPromises(promises));
    describe('switches', () => switchPromises(promises, maxBytes));
    describe('what is unknown', () => pinPromises(promises));
    describe('idempotency keys', () => idempotencyPromises(promises));
    describe('what steps would use', () => usePromises(promises));
    describe('trail', () => trailPromises(promises));
    if (chainTrail) describe('chained trail', () => chainPromises(promises));
    describe('times', () => timePromises(promises));
    describe('runs in a state', () => sweepPromises(promises));
    describe('what is under way', () => {
      listingPromises(promises);
      pinnedListingPromises(promises);
    });
    describe('any string, any JSON', () => hostilePromises(promises, maxBytes));
    if (scope === 'processes') {
      describe('several processes', () => {
        sharedPromises(promises);
        nextRunPromises(promises);
        sharedFrozenRunPromises(promises);
        sharedSwitchPromises(promises);
        sharedPinPromises(promises);
        sharedUsePromises(promises);
        sharedTimePromises(promises);
        clockPromises(promises);
        sharedListingPromises(promises);
        movingListingPromises(promises);
        if (chainTrail) sharedChainPromises(promises);
      });
    }
    if (scope === 'process') return;
    describe('restarts', () => {
      restartPromises(promises);
      restartFrozenRunPromises(promises);
      restartSwitchPromises(promises);
    });
  });
}
