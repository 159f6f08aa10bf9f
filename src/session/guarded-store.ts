import type { AtomicStateStore, TransactionalStateStore } from '../stores/store.ts';
import type { Clock } from './clock.ts';

/** A store could not be asked, or not in time. Its own error is the cause, and stays on this side of the wire. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

type CommitIn = TransactionalStateStore<unknown>['commitIn'];

/** A store whose every call has a deadline; `commitIn` is there where the store has it. */
export interface GuardedStore extends AtomicStateStore {
  readonly commitIn?: CommitIn;
}

/** The store with a deadline on every call: a store that hangs must not hang a request. */
export function guardStore(store: AtomicStateStore, deadlineMs: number, clock: Clock): GuardedStore {
  const bounded = <T>(operation: string, call: () => Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      const stop = clock.after(deadlineMs, () =>
        reject(new StoreUnavailable(`the store did not answer ${operation} within ${deadlineMs} ms`)),
      );
      const fail = (cause: unknown): void => {
        stop();
        reject(new StoreUnavailable(`the store failed to ${operation}`, { cause }));
      };
      try {
        call().then((value) => {
          stop();
          resolve(value);
        }, fail);
      } catch (error) {
        fail(error);
      }
    });
  const inTransaction = isTransactional(store)
    ? { commitIn: (...args: Parameters<CommitIn>) => bounded('commit', () => store.commitIn(...args)) }
    : {};
  return {
    ...inTransaction,
    open: (...args) => bounded('open', () => store.open(...args)),
    read: (...args) => bounded('read', () => store.read(...args)),
    claim: (...args) => bounded('claim', () => store.claim(...args)),
    commit: (...args) => bounded('commit', () => store.commit(...args)),
    renew: (...args) => bounded('renew', () => store.renew(...args)),
    release: (...args) => bounded('release', () => store.release(...args)),
    delete: (...args) => bounded('delete', () => store.delete(...args)),
    history: (...args) => bounded('history', () => store.history(...args)),
  };
}

function isTransactional(store: AtomicStateStore): store is TransactionalStateStore<unknown> {
  return 'commitIn' in store && typeof store.commitIn === 'function';
}
