/**
 * Calls to a store that may hang or fail. Hides their deadlines, and how often a commit or a
 * release is tried again.
 */
import { type Clock, Reported } from '../basics/clock.ts';
import { InterlockError } from '../basics/errors.ts';
import type { Events } from '../basics/events.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  ReleaseOptions,
  RunKey,
  TransactionalStateStore,
} from '../stores/store.ts';
import type { Workflow } from '../workflow/workflow.ts';
import { ClaimWithheld, StoreProof, StoreUnavailable } from './store-proof.ts';
import { WorkflowSwitch } from './switch.ts';

export { StoreUnavailable };

/** The call did not run, or waits for an input: the next try gets the same idempotency key. */
export const KEEPS_KEY = { settles: false } as const;

/** How long to wait before each further try, in milliseconds. */
const RETRY_MS = [50, 100, 200, 400, 800, 1600] as const;

type CommitIn = TransactionalStateStore<unknown>['commitIn'];

/** A store whose calls have deadlines. It has `commitIn` where the store has it. */
export interface GuardedStore extends AtomicStateStore {
  readonly commitIn?: CommitIn;
  /** Whether it loses its runs with this process. */
  readonly isMemory: boolean;
  /** The workflows that this process has noted in the store. */
  readonly noted: WeakSet<Workflow>;
  /** The switch of a workflow; `undefined` where the store keeps none. */
  switchOf(workflow: string): WorkflowSwitch | undefined;
  /** @param before the snapshot from which the next one was made: the store has taken it */
  commit(request: CommitRequest, before?: FsmSnapshot): Promise<CommitResult>;
  /**
   * Resolves if the store takes writes, and rejects if not: by its newest answers, or else by a
   * trial.
   */
  prove(): Promise<void>;
}

/** The operations whose failure puts the store in doubt. Lists may fail for their index alone. */
const REVEALING: ReadonlySet<string> = new Set<keyof AtomicStateStore>([
  ...(['open', 'read', 'claim', 'commit', 'renew', 'record', 'release'] as const),
]);

/** A call that takes longer than this, or than half of its deadline, is reported as slow. */
const SLOW_MS = 1_000;

/**
 * Puts a deadline on every call, so that a store that hangs does not hang a request. The events
 * report calls that fail, and slow ones.
 *
 * @param isMemory see {@link GuardedStore.isMemory}
 */
export function guardStore(
  store: AtomicStateStore,
  deadlineMs: number,
  clock: Clock,
  events: Events,
  isMemory = false,
): GuardedStore {
  const slowMs = Math.min(SLOW_MS, deadlineMs / 2);
  /** One for all calls: each call would make a closure of it that it hardly ever needs. */
  const refuse = (
    reject: (error: Error) => void,
    error: StoreUnavailable,
    operation: string,
    askedAt: number | undefined,
  ): void => {
    if (REVEALING.has(operation)) proof.doubt();
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
    onFailure?: () => void,
  ): Promise<T> =>
    new Promise((resolve, reject) => {
      let late = false;
      const askedAt = events.isOn ? clock.now() : undefined;
      const stop = clock.after(deadlineMs, () => {
        late = true;
        onFailure?.();
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
        onFailure?.();
        // Ours report a developer's mistake, and logs often have the text of an error alone.
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
  const { runs, append, held, unsettled, stuck, count, list, purge, anonymize } = store;
  const { readSwitch, swapSwitch, evictedKeys } = store;
  const proof = new StoreProof(
    {
      claim: (request) => bounded('claim', () => store.claim(request)),
      delete: (run) => bounded('delete', () => store.delete(run)),
    },
    clock,
  );
  const askClaim = (request: ClaimRequest): Promise<ClaimResult> =>
    bounded<ClaimResult>(
      'claim',
      () => store.claim(request),
      // A store of the app's own may answer anything.
      (result: ClaimResult | undefined, isLate) => {
        if (result?.status !== 'claimed') return;
        if (isLate) letGoLate(guarded, request, clock);
        else proof.claimed();
      },
    );
  /** A list that is asked for each second reports a broken run once. */
  const broken = new Reported();
  const onError = (error: unknown, kept: string): void => {
    if (broken.isNew(kept)) events.onError(error);
  };
  const switches = new Map<string, WorkflowSwitch>();
  const guarded: GuardedStore = {
    isMemory,
    noted: new WeakSet(),
    contract: store.contract,
    ...inTransaction,
    // No deadline: these take as long as there is something to do.
    ...(runs && { runs: (query) => runs.call(store, { onError, ...query }) }),
    ...(purge && { purge: (query) => purge.call(store, { onError, ...query }) }),
    ...(anonymize && {
      anonymize: (run) => bounded('anonymize', () => anonymize.call(store, run)),
    }),
    ...(append && { append: (...args) => bounded('append', () => append.apply(store, args)) }),
    ...(held && {
      held: (query) => bounded('held', () => held.call(store, { onError, ...query })),
    }),
    ...(unsettled && {
      unsettled: (query) =>
        bounded('unsettled', () => unsettled.call(store, { onError, ...query })),
    }),
    ...(stuck && {
      stuck: (query) => bounded('stuck', () => stuck.call(store, { onError, ...query })),
    }),
    ...(count && { count: (query) => bounded('count', () => count.call(store, query)) }),
    ...(list && {
      list: (query) => bounded('list', () => list.call(store, { onError, ...query })),
    }),
    ...(evictedKeys && {
      evictedKeys: () => bounded('evictedKeys', () => evictedKeys.call(store)),
    }),
    ...(readSwitch && {
      readSwitch: (name) => bounded('readSwitch', () => readSwitch.call(store, name)),
    }),
    ...(swapSwitch && {
      swapSwitch: (...args) => bounded('swapSwitch', () => swapSwitch.apply(store, args)),
    }),
    open: (...args) => bounded('open', () => store.open(...args)),
    read: (...args) => bounded('read', () => store.read(...args)),
    claim: (request) =>
      proof.isAwaited ? proof.admit().then(() => askClaim(request)) : askClaim(request),
    switchOf: (workflow) => {
      const known = switches.get(workflow);
      const { readSwitch: read, swapSwitch: swap } = guarded;
      if (known !== undefined || read === undefined || swap === undefined) return known;
      const own = { readSwitch: read, swapSwitch: swap };
      const made = new WorkflowSwitch(workflow, own, clock, (found) => {
        const had = found === 'none' ? 'had lost the switch' : 'had an older switch';
        const error = new Error(
          `the store ${had} of ${JSON.stringify(workflow)}, and this process wrote its own back: ` +
            'the store may have lost runs too',
        );
        events.fail(error, () => ({ type: 'workflow.restored', workflow, found }));
      });
      switches.set(workflow, made);
      return made;
    },
    prove: () => proof.prove(),
    commit: (request, before) =>
      bounded<CommitResult>(
        'commit',
        () => store.commit(request),
        (result: CommitResult | undefined) => {
          if (result?.status === 'committed' && !result.repeated) proof.committed(request);
        },
        () => proof.uncommitted(request, before),
      ),
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

/**
 * The store granted the claim after its deadline, from a driver's queue perhaps: no step will use
 * it. Errors are not reported again, since `onError` has got that of the deadline.
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
 * Whether a call certainly did not reach the store. Only the driver's own error says so: one
 * further down may be that of a later try, after one that arrived.
 */
function wasNeverSent(failure: unknown): boolean {
  if (failure instanceof ClaimWithheld) return true;
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
