import { claimOf, commitOf, HOUR } from '../../packages/testing/src/fixtures.ts';
import { freezeOf, thawOf } from '../../packages/testing/src/freezes.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';

/** Every operation of a store once, in an order in which each succeeds. */
export function everyOperation(
  store: AtomicStateStore,
  run: string,
): Record<string, () => Promise<unknown>> {
  const [first, second] = [claimOf(run), claimOf(run)];
  const set = { value: { all: null }, revision: run };
  return {
    open: () => store.open(run, { principal: 'alice' }, HOUR, run),
    read: () => store.read(run, HOUR),
    claim: () => store.claim(first),
    renew: () => store.renew(first, first.token, 60_000),
    commit: () => store.commit(commitOf(first)),
    record: () =>
      store.record({
        ...commitOf(first, { token: `${first.token}-record` }),
        initial: first.initial,
        from: 1,
      }),
    freeze: () => store.freeze(freezeOf(run)),
    thaw: () => store.freeze(thawOf(run)),
    history: () => store.history(first),
    'another claim': () => store.claim(second),
    end: () => store.end(run),
    release: () => store.release(second, second.token),
    delete: () => store.delete(run),
    ...(store.swapSwitch && {
      swapSwitch: async () => store.swapSwitch?.(run, undefined, set),
      readSwitch: async () => store.readSwitch?.(run),
    }),
  };
}

/**
 * How many scripts or requests {@link everyOperation} takes on Redis and Upstash, where the process
 * knows the run and the server's time. A run whose session is over is read first, for `release`.
 */
export const TRIPS: Readonly<Record<string, number>> = {
  ...{ open: 1, read: 1, claim: 1, renew: 1, commit: 1, record: 1, freeze: 2, thaw: 2 },
  ...{ history: 1, 'another claim': 1, end: 2, release: 2, delete: 2 },
  ...{ swapSwitch: 2, readSwitch: 1 },
};

/** The operations that each store has, and no others. */
export const plainStore = (store: AtomicStateStore): AtomicStateStore => ({
  contract: 1,
  open: (...args) => store.open(...args),
  read: (...args) => store.read(...args),
  claim: (...args) => store.claim(...args),
  commit: (...args) => store.commit(...args),
  renew: (...args) => store.renew(...args),
  release: (...args) => store.release(...args),
  record: (...args) => store.record(...args),
  freeze: (...args) => store.freeze(...args),
  end: (...args) => store.end(...args),
  delete: (...args) => store.delete(...args),
  history: (...args) => store.history(...args),
});
