import type { AtomicStateStore } from '../stores/store.ts';
import type { Clock } from './clock.ts';

/** A store could not be asked, or not in time. Its own error is the cause, and stays on this side of the wire. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

/** The store with a deadline on every call: a store that hangs must not hang a request. */
export function guardStore(store: AtomicStateStore, deadlineMs: number, clock: Clock): AtomicStateStore {
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
  return {
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
