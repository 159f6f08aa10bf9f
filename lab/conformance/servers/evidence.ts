import type { AtomicStateStore } from '../../../src/stores/index.ts';

/** Counts what a store is asked: the sign that middlewares stand in the way. */
export function countCalls(store: AtomicStateStore): {
  store: AtomicStateStore;
  calls: () => number;
} {
  let count = 0;
  const counting = new Proxy(store, {
    get(target, key) {
      const member: unknown = Reflect.get(target, key);
      if (typeof member !== 'function') return member;
      return (...args: unknown[]) => {
        count += 1;
        return Reflect.apply(member, target, args);
      };
    },
  });
  return { store: counting, calls: () => count };
}
