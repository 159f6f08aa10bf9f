import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { isAtomicStore } from '../../../src/internal.ts';
import type { Documents } from '../../../src/stores/document.ts';
import {
  type AtomicStateStore,
  adaptStateStore,
  type ClaimRequest,
  type ClaimResult,
  type ClaimView,
  type CommitRequest,
  type CommitResult,
  type Json,
  type RecordRequest,
  type SessionRecord,
  type StateStore,
  type StepDescription,
  type TrailDraft,
  type TrailEntry,
} from '../../../src/stores/index.ts';

/**
 * How far a store's promises reach.
 * - `'processes'`: everything holds between all processes on the same data.
 * - `'restarts'`: runs and snapshots outlive the process; claims, keys and trail do not. A store of
 *   `load` and `save` can promise no more.
 * - `'process'`: nothing outlives the process, and the tests do not call `reopen`.
 */
export type StoreScope = 'processes' | 'restarts' | 'process';

/** The store that `makeStore` makes for each test. */
export interface StoreUnderTest {
  /** A store of `load` and `save` is tested behind `adaptStateStore()`, by the suite's clock. */
  readonly store: StateStore;
  /** Moves the store's clock, where it can be injected. Default: the suite waits. */
  readonly advance?: ((ms: number) => Promise<void> | void) | undefined;
  /** A second view of the same data, as another process or a restarted one would have it. */
  readonly reopen?: (() => Promise<StateStore>) | undefined;
  /**
   * A second view as of a process whose own clock is so many milliseconds ahead, or behind where
   * the number is negative. For a store that goes by its backend's clock. Without it the suite does
   * not ask what a wrong clock does.
   */
  readonly reopenWithClock?: ((offMs: number) => Promise<StateStore>) | undefined;
  /** The driver of a `documentStore()`: the suite also asks its methods one by one. */
  readonly documents?: Documents | undefined;
  /** Frees this store and its views. */
  close(): Promise<void>;
}

/** What a test has: its own store, its own run key, and a way to let time pass. */
export interface StoreStage {
  readonly store: AtomicStateStore;
  readonly run: string;
  /** Whether time only passes when the test says so. */
  readonly clockIsInjected: boolean;
  /** Whether the store chains its trails by hashes. */
  readonly isChained: boolean;
  /**
   * A time to live, in milliseconds: longer than the operations of one test take, and short enough
   * to wait for.
   */
  readonly soon: number;
  /** Whether the operations took so long that a lease or a life of {@link soon} was over. */
  readonly wasTooSlow: boolean;
  /** Returns once at least `ms` have passed on the store's clock. */
  wait(ms: number): Promise<void>;
  reopen(): Promise<AtomicStateStore>;
  /** As {@link StoreUnderTest.reopenWithClock}. */
  readonly reopenWithClock: ((offMs: number) => Promise<AtomicStateStore>) | undefined;
  readonly documents: Documents | undefined;
}

/** Registers one test of the contract. */
export type Promises = (promise: string, body: (stage: StoreStage) => Promise<void>) => void;

export const HOUR = 3_600_000;
/** A lease that no test outlives. */
export const LONG = 60_000;
/** A lease that a test waits for. */
export const SHORT = 60;
/** A short life on an idle machine, and on a very busy one. */
export const SOON = 1_000;
export const LATEST = 16_000;
/** A timer may fire a little before the time has passed on a server's clock. */
const TIMER_SLACK = 25;

export function stageFor(
  { store, advance, reopen, reopenWithClock, documents }: StoreUnderTest,
  scope: StoreScope,
  isChained: boolean,
  soon = SOON,
): StoreStage {
  const isAtomic = isAtomicStore(store);
  const began = performance.now();
  let waited = 0;
  let time = Date.now();
  const now = (): number => time;
  const adapted = (plain: StateStore): AtomicStateStore =>
    isAtomicStore(plain) ? plain : adaptStateStore(plain, { now, onWarning() {} });
  assert.ok(
    isAtomic || scope !== 'processes',
    "a store of load and save makes steps exact within one process only: say scope: 'restarts'",
  );
  return {
    store: adapted(store),
    run: randomUUID(),
    isChained,
    clockIsInjected: !isAtomic || advance !== undefined,
    soon,
    get wasTooSlow() {
      return !this.clockIsInjected && performance.now() - began - waited > soon / 2;
    },
    wait: async (ms) => {
      const asked = performance.now();
      if (!isAtomic) time += ms;
      if (advance) await advance(ms);
      else if (isAtomic) await sleep(ms + TIMER_SLACK);
      waited += performance.now() - asked;
    },
    reopen: async () => {
      assert.ok(reopen, "makeStore() gives no reopen(): add it, or say scope: 'process'");
      return adapted(await reopen());
    },
    reopenWithClock: reopenWithClock && (async (offMs) => adapted(await reopenWithClock(offMs))),
    documents,
  };
}

/**
 * A claim of `cart.pay` in a run of `checkout`, with its own token. Tests name only what matters to
 * them.
 */
export function claimOf(run: string, changes: ClaimChanges = {}): ClaimRequest {
  const { step, ...rest } = changes;
  return {
    run,
    workflow: 'checkout',
    token: randomUUID(),
    step: stepOf(step),
    states: undefined,
    initial: { state: 'empty', updatedAt: 0 },
    leaseMs: LONG,
    ttlMs: HOUR,
    ...rest,
  };
}

export type ClaimChanges = Partial<Omit<ClaimRequest, 'step'>> & {
  readonly step?: Partial<StepDescription>;
};

function stepOf(changes: Partial<StepDescription> = {}): StepDescription {
  return { tool: 'cart.pay', digest: 'digest-1', uncertain: 'hold', ...changes };
}

/** The commit that ends `claim`, by default in `has_items`. */
export function commitOf(claim: ClaimRequest, changes: Partial<CommitRequest> = {}): CommitRequest {
  return {
    run: claim.run,
    workflow: claim.workflow,
    token: claim.token,
    snapshot: { state: 'has_items' },
    trail: { from: 'empty', to: 'has_items', event: 'ADD_ITEM', tool: claim.step.tool },
    ttlMs: HOUR,
    ...changes,
  };
}

/** A record of `lookup`, which goes from any state of a run's `checkout` to another one. */
export function recordingOf(
  run: string,
  from: number,
  to: string,
  changes: Partial<RecordRequest> = {},
): RecordRequest {
  const context: Json = { of: to };
  return {
    run,
    workflow: 'checkout',
    token: randomUUID(),
    from,
    initial: { state: 'empty', updatedAt: 0 },
    snapshot: { state: to, context },
    trail: { from: 'empty', to, event: 'lookup', tool: 'lookup', outcome: 'succeeded' },
    ttlMs: HOUR,
    ...changes,
  };
}

/** The trail entry of a claim's attempt that moves nothing. */
export function attemptOf(
  { step: { tool, digest } }: Pick<ClaimRequest, 'step'>,
  changes: Partial<TrailDraft> = {},
): TrailDraft {
  const { from = 'empty', event = null, ...rest } = changes;
  return { from, event, outcome: 'failed', kind: 'tool_error', tool, digest, ...rest };
}

/** A whole attempt that moves nothing: a claim, and its release with an entry. */
export async function failedStep(
  store: AtomicStateStore,
  run: string,
  changes: ClaimChanges = {},
  draft: Partial<TrailDraft> = {},
): Promise<ClaimRequest> {
  const request = claimOf(run, changes);
  await claimed(store, request);
  await store.release(request, request.token, { entry: attemptOf(request, draft) });
  return request;
}

/** The trail of a run's `checkout`, without the stamps of the store. */
export async function saidIn(
  store: AtomicStateStore,
  run: string,
  workflow = 'checkout',
): Promise<TrailDraft[]> {
  return (await store.history({ run, workflow })).map(saidOf);
}

function saidOf({ seq: _, version: __, attempt: ___, at, previous: ____, ...rest }: TrailEntry) {
  assert.ok(Number.isFinite(at), `${at}`);
  const { hash: _____, ...said } = rest;
  return said;
}

/** The answer to a commit that arrives again. */
export function repeated(version: number): CommitResult {
  return { status: 'committed', version, repeated: true };
}

export async function opened(stage: StoreStage, session: SessionRecord = {}): Promise<string> {
  await stage.store.open(stage.run, session, HOUR);
  return stage.run;
}

/** Claims and expects to get it. */
export async function claimed(store: AtomicStateStore, request: ClaimRequest): Promise<Claimed> {
  const result = await store.claim(request);
  assert.equal(
    result.status,
    'claimed',
    `expected the claim to be taken, not ${JSON.stringify(result)}`,
  );
  return result as Claimed;
}

/** The claim of a run's `checkout`, as a read gives it. */
export async function readClaim({
  store,
  run,
}: Pick<StoreStage, 'store' | 'run'>): Promise<ClaimView> {
  const claim = (await store.read(run, HOUR))?.workflows.checkout?.claim;
  assert.ok(claim, 'expected a claim');
  return claim;
}

type Claimed = Extract<ClaimResult, { status: 'claimed' }>;

/** Compares two answers, but not their times. */
export function sameAnswer(
  { now: _, ...actual }: Claimed,
  { now: __, ...expected }: Claimed,
): void {
  same(actual, expected);
}

/** One whole step: claim and commit. Resolves to its version. */
export async function step(
  store: AtomicStateStore,
  run: string,
  changes: ClaimChanges = {},
  commit: Partial<CommitRequest> = {},
): Promise<number> {
  const request = claimOf(run, changes);
  await claimed(store, request);
  const result = await store.commit(commitOf(request, commit));
  assert.equal(
    result.status,
    'committed',
    `expected the commit to be taken, not ${JSON.stringify(result)}`,
  );
  return (result as { version: number }).version;
}

/** The status of a claim with a new token, which says whether a step may begin now. */
export async function claimStatus(
  store: AtomicStateStore,
  run: string,
  changes: ClaimChanges = {},
) {
  return (await store.claim(claimOf(run, changes))).status;
}

/** Compares as JSON: prototypes, key order and `undefined` properties make no difference. */
export function same(actual: unknown, expected: unknown, message?: string): void {
  assert.deepStrictEqual(asJson(actual), asJson(expected), message);
}

function asJson(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

/** Of 50 claims one is taken, and the others are busy. */
export function oneTaken(results: readonly ClaimResult[]): void {
  const found = (wanted: string): number => count(results, ({ status }) => status === wanted);
  assert.deepEqual([found('claimed'), found('busy')], [1, 49]);
}

export function count<T>(values: readonly T[], test: (value: T) => boolean): number {
  return values.filter(test).length;
}
