import { AsyncLocalStorage } from 'node:async_hooks';
import type { AtomicStateStore } from '../../src/stores/store.ts';

/** By how many milliseconds the clock is off in what is called now. */
const off = new AsyncLocalStorage<number>();

const rightNow = Date.now;
Date.now = () => rightNow() + (off.getStore() ?? 0);

/** The store of a process whose clock is off, in all that its operations call. */
export function withWrongClock<Store extends AtomicStateStore>(store: Store, offMs: number): Store {
  return new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      return (...args: unknown[]) => off.run(offMs, () => member.apply(target, args));
    },
  });
}
