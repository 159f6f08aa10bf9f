import { randomUUID } from 'node:crypto';
import type { AtomicStateStore } from '../../src/index.ts';

export const DEFECTS = ['claims-all', 'forgets-commits', 'new-keys'] as const;
/** A deliberate defect, to see that the torture finds it. */
export type Defect = (typeof DEFECTS)[number];

/** The store with one promise of its contract broken. */
export function brokenStore(store: AtomicStateStore, defect: Defect): AtomicStateStore {
  const broken: Record<Defect, Partial<AtomicStateStore>> = {
    // Says that the lease is taken, whoever has it and whatever the state is.
    'claims-all': {
      claim: async (request) => {
        const result = await store.claim(request);
        if (result.status === 'unknown' || result.status === 'claimed') return result;
        return { status: 'claimed', snapshot: result.snapshot, idempotencyKey: randomUUID() };
      },
    },
    // Every so often lets the step go, and says that it is saved.
    'forgets-commits': {
      commit: async (request) => {
        if (Math.random() > 0.1) return store.commit(request);
        await store.release(request, request.token);
        return { status: 'committed', version: 1 };
      },
    },
    // Has no memory for steps whose outcome is unknown.
    'new-keys': {
      claim: async (request) => {
        const result = await store.claim(request);
        return result.status === 'claimed' ? { ...result, idempotencyKey: randomUUID() } : result;
      },
    },
  };
  // The methods of the store are its own: they are called on it, whatever kind of object it is.
  const bound = Object.fromEntries(
    (['open', 'read', 'claim', 'commit', 'renew', 'release', 'delete', 'history'] as const).map(
      (name) => [name, store[name].bind(store)],
    ),
  ) as unknown as AtomicStateStore;
  return { ...bound, ...broken[defect] };
}
