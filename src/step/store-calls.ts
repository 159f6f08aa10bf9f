/**
 * Calls to a store that may hang or fail. Hides their deadlines, and how often a commit or a
 * release is tried again.
 */
import type { Clock } from '../clock.ts';
import { InterlockError } from '../errors.ts';
import type { Events } from '../events.ts';
import { newToken } from '../names.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  ReleaseOptions,
  RunKey,
  TransactionalStateStore,
} from '../stores/store.ts';
import { WorkflowSwitch } from './switch.ts';

/** The call did not run, or waits for an input: the next try gets the same idempotency key. */
export const KEEPS_KEY = { settles: false } as const;

/** How long to wait before each further try, in milliseconds. */
const RETRY_MS = [50, 100, 200, 400, 800, 1600] as const;

/**
 * A store failed, or did not answer in time. Its own error is the `cause`, and no client sees it.
 */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

type CommitIn = TransactionalStateStore<unknown>['commitIn'];

/** A store whose calls have deadlines. It has `commitIn` where the store has it. */
export interface GuardedStore extends AtomicStateStore {
  readonly commitIn?: CommitIn;
  /** The switch of a workflow; `undefined` where the store keeps none. */
  switchOf(workflow: string): WorkflowSwitch | undefined;
  /**
   * Resolves if the store grants claims. One that was granted in the last ten seconds is proof
   * enough. Else this process asks for one in a run of its own, once for all callers, and keeps the
   * answer as long. Rejects where the store refuses it or fails.
   */
  prove(): Promise<void>;
}

/** How long a granted claim proves that a store grants claims, in milliseconds. */
const PROOF_MS = 10_000;

/** The run in which processes test a store. No client can name it, and no gate counts it. */
const PROBE = { run: 'mcp-interlock probe', workflow: 'mcp-interlock probe' } as const;
const PROBE_LEASE_MS = PROOF_MS / 2;
const PROBE_LIFE_MS = 60_000;

/** A call that takes longer than this, or than half of its deadline, is told of as slow. */
const SLOW_MS = 1_000;

/**
 * Puts a deadline on every call, so that a store that hangs does not hang a request. The events
 * tell of calls that fail, and of slow ones.
 */
export function guardStore(
  store: AtomicStateStore,
  deadlineMs: number,
  clock: Clock,
  events: Events,
): GuardedStore {
  const slowMs = Math.min(SLOW_MS, deadlineMs / 2);
  /** One for all calls: each call would make a closure of it that it hardly ever needs. */
  const refuse = (
    reject: (error: Error) => void,
    error: StoreUnavailable,
    operation: string,
    askedAt: number | undefined,
  ): void => {
    if (askedAt !== undefined) {
      const durationMs = clock.now() - askedAt;
      events.publish({ type: 'store.failed', operation, durationMs, error });
    }
    reject(error);
  };
  const bounded = <T>(
    operation: string,
    call: () => Promise<T>,
    onAnswer?: (value: T, isLate: boolean) => void,
  ): Promise<T> =>
    new Promise((resolve, reject) => {
      let late = false;
      const askedAt = events.isOn ? clock.now() : undefined;
      const stop = clock.after(deadlineMs, () => {
        late = true;
        const error = new StoreUnavailable(
          `the store did not answer ${operation} within ${deadlineMs} ms`,
        );
        refuse(reject, error, operation, askedAt);
      });
      const succeed = (value: T): void => {
        stop();
        onAnswer?.(value, late);
        if (late) return;
        resolve(value);
        const durationMs = askedAt === undefined ? 0 : clock.now() - askedAt;
        if (durationMs > slowMs) events.publish({ type: 'store.slow', operation, durationMs });
      };
      const fail = (cause: unknown): void => {
        stop();
        if (late) return;
        // Ours tell a developer's mistake, and logs often have the text of an error alone.
        const why = cause instanceof InterlockError ? `: ${cause.message}` : '';
        const error = new StoreUnavailable(`the store failed to ${operation}${why}`, { cause });
        refuse(reject, error, operation, askedAt);
      };
      try {
        call().then(succeed, fail);
      } catch (error) {
        fail(error);
      }
    });
  const inTransaction = isTransactional(store)
    ? {
        commitIn: (...args: Parameters<CommitIn>) =>
          bounded('commit', () => store.commitIn(...args)),
      }
    : {};
  /** When the store granted a claim last, and when this process tested it last. */
  let grantedAt = Number.NEGATIVE_INFINITY;
  let proof: { readonly askedAt: number; readonly answer: Promise<void> } | undefined;
  // A clock may go back.
  const isFresh = (at: number): boolean => Math.abs(clock.now() - at) < PROOF_MS;
  const { runs, append, held, stuck, count, list, purge, anonymize } = store;
  const { readSwitch, swapSwitch } = store;
  // Without a note of the claim: a probe that fails to release must not prove that all is well.
  const own: Parameters<typeof claimProbe>[0] = {
    claim: (request) => bounded('claim', () => store.claim(request)),
    release: (...args) => bounded('release', () => store.release(...args)),
  };
  const switches = new Map<string, WorkflowSwitch>();
  const guarded: GuardedStore = {
    contract: store.contract,
    ...inTransaction,
    // No deadline: these take as long as there is something to do.
    ...(runs && { runs: (query) => runs.call(store, query) }),
    ...(purge && { purge: (query) => purge.call(store, query) }),
    ...(anonymize && {
      anonymize: (run) => bounded('anonymize', () => anonymize.call(store, run)),
    }),
    ...(append && { append: (...args) => bounded('append', () => append.apply(store, args)) }),
    ...(held && { held: (query) => bounded('held', () => held.call(store, query)) }),
    ...(stuck && { stuck: (query) => bounded('stuck', () => stuck.call(store, query)) }),
    ...(count && { count: (query) => bounded('count', () => count.call(store, query)) }),
    ...(list && { list: (query) => bounded('list', () => list.call(store, query)) }),
    ...(readSwitch && {
      readSwitch: (name) => bounded('readSwitch', () => readSwitch.call(store, name)),
    }),
    ...(swapSwitch && {
      swapSwitch: (...args) => bounded('swapSwitch', () => swapSwitch.apply(store, args)),
    }),
    open: (...args) => bounded('open', () => store.open(...args)),
    read: (...args) => bounded('read', () => store.read(...args)),
    claim: (request) =>
      bounded<ClaimResult>(
        'claim',
        () => store.claim(request),
        // A store of the app's own may answer anything.
        (result: ClaimResult | undefined, isLate) => {
          if (result?.status !== 'claimed') return;
          grantedAt = clock.now();
          if (isLate) letGoLate(guarded, request, clock);
        },
      ),
    switchOf: (workflow) => {
      const known = switches.get(workflow);
      const { readSwitch: read, swapSwitch: swap } = guarded;
      if (known !== undefined || read === undefined || swap === undefined) return known;
      const made = new WorkflowSwitch(workflow, { readSwitch: read, swapSwitch: swap }, clock);
      switches.set(workflow, made);
      return made;
    },
    prove: () => {
      if (isFresh(grantedAt)) return Promise.resolve();
      if (proof === undefined || !isFresh(proof.askedAt))
        proof = { askedAt: clock.now(), answer: claimProbe(own) };
      return proof.answer;
    },
    commit: (request) => bounded('commit', () => store.commit(request)),
    renew: (...args) => bounded('renew', () => store.renew(...args)),
    record: (...args) => bounded('record', () => store.record(...args)),
    freeze: (request) => bounded('freeze', () => store.freeze(request)),
    release: (...args) => bounded('release', () => store.release(...args)),
    end: (...args) => bounded('end', () => store.end(...args)),
    delete: (...args) => bounded('delete', () => store.delete(...args)),
    history: (...args) => bounded('history', () => store.history(...args)),
  };
  return guarded;
}

/** Claims and releases the run of processes' own. Another process's live claim proves as much. */
async function claimProbe(store: Pick<GuardedStore, 'claim' | 'release'>): Promise<void> {
  const token = newToken();
  const { status } = await store.claim({
    ...PROBE,
    token,
    step: { tool: '', digest: '', uncertain: 'retry' },
    states: undefined,
    initial: { state: '', updatedAt: 0 },
    create: {},
    leaseMs: PROBE_LEASE_MS,
    ttlMs: PROBE_LIFE_MS,
  });
  if (status === 'claimed') await store.release(PROBE, token);
  else if (status !== 'busy') throw new StoreUnavailable(`the store answers a claim: ${status}`);
}

/**
 * The store granted the claim after its deadline, from a driver's queue perhaps: no step will use
 * it. Errors are not told again, since `onError` has heard of the deadline.
 */
function letGoLate(
  store: GuardedStore,
  { run, workflow, token }: ClaimRequest,
  clock: Clock,
): void {
  void releaseClaim({ store, key: { run, workflow }, token, clock, onError() {} }, KEEPS_KEY);
}

function isTransactional(store: AtomicStateStore): store is TransactionalStateStore<unknown> {
  return 'commitIn' in store && typeof store.commitIn === 'function';
}

/** The claim to release, and its store. */
export interface Releasing {
  readonly store: Pick<AtomicStateStore, 'release'>;
  readonly key: RunKey;
  readonly token: string;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/** A claim whose release is not confirmed yet. */
interface Unreleased {
  readonly claim: Releasing;
  /** Whether the store has granted it: then it holds its run. */
  readonly isGranted: boolean;
  readonly options: ReleaseOptions;
  /** Called once the store was asked to release it for the first time. */
  readonly onTried: () => void;
}

/** The claims of one run that wait to be released, one after the other. */
class ReleaseLine {
  readonly #waiting: Unreleased[] = [];
  readonly #onEmpty: () => void;
  #failures = 0;
  #isAsking = false;
  #stopPause: (() => void) | undefined;

  constructor(onEmpty: () => void) {
    this.#onEmpty = onEmpty;
  }

  /** The store is asked at once for a claim that it has granted. */
  add(each: Unreleased): void {
    const { isGranted } = each;
    if (isGranted) this.#waiting.unshift(each);
    else this.#waiting.push(each);
    const isPaused = this.#stopPause !== undefined;
    if (!this.#isAsking && (isGranted || !isPaused)) void this.#ask();
  }

  #pause(clock: Clock): void {
    const pause = RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)] ?? 0;
    this.#stopPause = clock.after(pause, () => void this.#ask());
  }

  async #ask(): Promise<void> {
    this.#stopPause?.();
    this.#stopPause = undefined;
    this.#isAsking = true;
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      const { claim, options, onTried } = next;
      try {
        await claim.store.release(claim.key, claim.token, options);
        this.#failures = 0;
      } catch (error) {
        claim.onError(error);
        const again = { ...next, onTried() {} };
        // What the store has granted holds its run until then.
        if (next.isGranted) this.#waiting.unshift(again);
        else this.#waiting.push(again);
        this.#isAsking = false;
        this.#pause(claim.clock);
        this.#failures++;
        onTried();
        return;
      }
      onTried();
    }
    this.#isAsking = false;
    this.#onEmpty();
  }
}

/** The lines of each store, by run. */
const releaseLines = new WeakMap<Releasing['store'], Map<string, ReleaseLine>>();

/**
 * Releases a claim. A store that fails is asked again in the background while the process lives.
 * For other calls take a claim that stays for a step with an unknown outcome. The store gets one
 * such call for a run at a time: else each refused call of an outage would add calls to it.
 *
 * Resolves once the store was asked for the first time.
 */
export function releaseClaim(claim: Releasing, options: ReleaseOptions): Promise<void> {
  return new Promise((onTried) => lineOf(claim).add({ claim, isGranted: true, options, onTried }));
}

/** Releases a claim in the background. The store may have granted it, and did not say so. */
export function releaseUnanswered(claim: Releasing, failure: unknown): void {
  if (wasNeverSent(failure)) return;
  lineOf(claim).add({ claim, isGranted: false, options: KEEPS_KEY, onTried() {} });
}

function lineOf({ store, key: { run } }: Releasing): ReleaseLine {
  const lines = releaseLines.get(store) ?? new Map<string, ReleaseLine>();
  releaseLines.set(store, lines);
  const line = lines.get(run) ?? new ReleaseLine(() => lines.delete(run));
  lines.set(run, line);
  return line;
}

/** Codes of a connection that was never made. */
const NO_CONNECTION: readonly unknown[] = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'];

/**
 * Whether a call certainly did not reach the store. Only the driver's own error tells: one further
 * down may be that of a later try, after one that arrived.
 */
function wasNeverSent(failure: unknown): boolean {
  const cause = failure instanceof StoreUnavailable ? failure.cause : undefined;
  return cause instanceof Error && 'code' in cause && NO_CONNECTION.includes(cause.code);
}

export interface PersistOptions {
  readonly clock: Clock;
  /** How long a failing store is asked again, in milliseconds. */
  readonly forMs: number;
  readonly onError: (error: unknown) => void;
}

/**
 * Saves what must not be lost: a store that fails is asked again for a while. Rejects with its last
 * failure.
 */
export function persist<T>(call: () => Promise<T>, options: PersistOptions): Promise<T> {
  const { clock, forMs, onError } = options;
  const until = clock.now() + forMs;
  return call().catch((error) => callAgain(error, call, { clock, until, onError }));
}

/** As {@link persist}, after a first failure and until that time. */
export async function callAgain<T>(
  failure: unknown,
  call: () => Promise<T>,
  { clock, until, onError }: Omit<PersistOptions, 'forMs'> & { readonly until: number },
): Promise<T> {
  let error = failure;
  for (let attempt = 0; ; attempt++) {
    onError(error);
    const pause = RETRY_MS[attempt];
    // The first retry ignores the clock: a process that was frozen may have missed the answer.
    if (pause === undefined || (attempt > 0 && clock.now() + pause > until)) throw error;
    await new Promise<void>((resolve) => clock.after(pause, resolve));
    try {
      return await call();
    } catch (cause) {
      error = cause;
    }
  }
}
