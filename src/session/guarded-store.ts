import type { AtomicStateStore, ClaimRequest, TransactionalStateStore } from '../stores/store.ts';
import type { Clock } from './clock.ts';
import { releaseClaim } from './release-claim.ts';
import { UNBEGUN } from './unbegun.ts';

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

/** The store with a deadline on every call: a store that hangs must not hang a request. */
export function guardStore(
  store: AtomicStateStore,
  deadlineMs: number,
  clock: Clock,
): GuardedStore {
  const bounded = <T>(
    operation: string,
    call: () => Promise<T>,
    onLate: (value: T) => void = () => {},
  ): Promise<T> =>
    new Promise((resolve, reject) => {
      let late = false;
      const stop = clock.after(deadlineMs, () => {
        late = true;
        reject(
          new StoreUnavailable(`the store did not answer ${operation} within ${deadlineMs} ms`),
        );
      });
      const succeed = (value: T): void => {
        stop();
        if (late) onLate(value);
        else resolve(value);
      };
      const fail = (cause: unknown): void => {
        stop();
        reject(new StoreUnavailable(`the store failed to ${operation}`, { cause }));
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
  const { runs } = store;
  const guarded: GuardedStore = {
    ...inTransaction,
    // A sweep reads on for as long as its caller goes on.
    ...(runs && { runs: (query) => runs.call(store, query) }),
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
