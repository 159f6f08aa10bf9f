import type { Clock } from '../clock.ts';
import type { Events } from '../events.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ReleaseOptions,
  RunKey,
  TransactionalStateStore,
} from '../stores/store.ts';

/** Nothing of the call ran, or it goes on with the next one: that keeps its idempotency key. */
export const UNBEGUN = { settles: false } as const;

/** How long to wait before a store that failed is asked again, each time. */
const RETRY_MS = [50, 100, 200, 400, 800, 1600] as const;
const MOST_RELEASES = 20;

/**
 * A store could not be asked, or not in time. Its own error is the cause, and stays on this side of
 * the wire.
 */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

type CommitIn = TransactionalStateStore<unknown>['commitIn'];

/** A store whose every call has a deadline; `commitIn` is there where the store has it. */
export interface GuardedStore extends AtomicStateStore {
  readonly commitIn?: CommitIn;
}

/** From how long on a call to the store is told of as slow, at most. */
const SLOW_MS = 1_000;

/**
 * The store with a deadline on every call: a store that hangs must not hang a request. The stream
 * is told of calls that fail, and of slow ones.
 */
export function guardStore(
  store: AtomicStateStore,
  deadlineMs: number,
  clock: Clock,
  events: Events,
): GuardedStore {
  const slowMs = Math.min(SLOW_MS, deadlineMs / 2);
  const bounded = <T>(
    operation: string,
    call: () => Promise<T>,
    onLate: (value: T) => void = () => {},
  ): Promise<T> =>
    new Promise((resolve, reject) => {
      let late = false;
      const askedAt = events.isOn ? clock.now() : undefined;
      const refuse = (error: StoreUnavailable): void => {
        if (askedAt !== undefined) {
          const durationMs = clock.now() - askedAt;
          events.publish({ type: 'store.failed', operation, durationMs, error });
        }
        reject(error);
      };
      const stop = clock.after(deadlineMs, () => {
        late = true;
        refuse(
          new StoreUnavailable(`the store did not answer ${operation} within ${deadlineMs} ms`),
        );
      });
      const succeed = (value: T): void => {
        stop();
        if (late) {
          onLate(value);
          return;
        }
        resolve(value);
        const durationMs = askedAt === undefined ? 0 : clock.now() - askedAt;
        if (durationMs > slowMs) events.publish({ type: 'store.slow', operation, durationMs });
      };
      const fail = (cause: unknown): void => {
        stop();
        if (!late) refuse(new StoreUnavailable(`the store failed to ${operation}`, { cause }));
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
  const { runs, append, held, stuck, count, list } = store;
  const guarded: GuardedStore = {
    ...inTransaction,
    // A sweep reads on for as long as its caller goes on.
    ...(runs && { runs: (query) => runs.call(store, query) }),
    ...(append && { append: (...args) => bounded('append', () => append.apply(store, args)) }),
    ...(held && { held: (query) => bounded('held', () => held.call(store, query)) }),
    ...(stuck && { stuck: (query) => bounded('stuck', () => stuck.call(store, query)) }),
    ...(count && { count: (query) => bounded('count', () => count.call(store, query)) }),
    ...(list && { list: (query) => bounded('list', () => list.call(store, query)) }),
    open: (...args) => bounded('open', () => store.open(...args)),
    read: (...args) => bounded('read', () => store.read(...args)),
    claim: (request) =>
      bounded(
        'claim',
        () => store.claim(request),
        ({ status }) => {
          if (status === 'claimed') letGoLate(guarded, request, clock);
        },
      ),
    commit: (...args) => bounded('commit', () => store.commit(...args)),
    renew: (...args) => bounded('renew', () => store.renew(...args)),
    release: (...args) => bounded('release', () => store.release(...args)),
    delete: (...args) => bounded('delete', () => store.delete(...args)),
    history: (...args) => bounded('history', () => store.history(...args)),
  };
  return guarded;
}

/**
 * A claim that was granted after its caller had given up, from a driver's queue perhaps: nobody
 * will run its step. What the store says was told when it was given up on.
 */
function letGoLate(
  store: GuardedStore,
  { run, workflow, token }: ClaimRequest,
  clock: Clock,
): void {
  void releaseClaim({ store, key: { run, workflow }, token, clock, onError() {} }, UNBEGUN);
}

function isTransactional(store: AtomicStateStore): store is TransactionalStateStore<unknown> {
  return 'commitIn' in store && typeof store.commitIn === 'function';
}

/** The claim that is let go, and where. */
export interface Releasing {
  readonly store: Pick<AtomicStateStore, 'release'>;
  readonly key: RunKey;
  readonly token: string;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/**
 * Lets a claim go. Where the store fails it is asked again in the background for a while: other
 * calls would take a claim that stays for a step with an unknown outcome.
 */
export async function releaseClaim(
  claim: Releasing,
  options: ReleaseOptions,
  attempt = 0,
): Promise<void> {
  const { store, key, token, clock, onError } = claim;
  try {
    await store.release(key, token, options);
  } catch (error) {
    onError(error);
    const pause = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] ?? 0;
    if (attempt < MOST_RELEASES)
      clock.after(pause, () => void releaseClaim(claim, options, attempt + 1));
  }
}

export interface PersistOptions {
  readonly clock: Clock;
  /** How long the store is asked again, in milliseconds. */
  readonly forMs: number;
  readonly onError: (error: unknown) => void;
}

/**
 * Has something saved that must not be lost: a store that fails is asked again for a while. Rejects
 * with its last failure.
 */
export function persist<T>(call: () => Promise<T>, options: PersistOptions): Promise<T> {
  const deadline = options.clock.now() + options.forMs;
  return call().catch((error) => callAgain(error, call, options, deadline));
}

async function callAgain<T>(
  failure: unknown,
  call: () => Promise<T>,
  { clock, onError }: PersistOptions,
  deadline: number,
): Promise<T> {
  let error = failure;
  for (let attempt = 0; ; attempt++) {
    onError(error);
    const pause = RETRY_MS[attempt];
    // Once more whatever the clock says: a process that was frozen may have missed an answer that
    // is there.
    if (pause === undefined || (attempt > 0 && clock.now() + pause > deadline)) throw error;
    await new Promise<void>((resolve) => clock.after(pause, resolve));
    try {
      return await call();
    } catch (cause) {
      error = cause;
    }
  }
}
