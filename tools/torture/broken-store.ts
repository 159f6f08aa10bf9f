import type { AtomicStateStore } from '../../src/index.ts';
import { DEFECTS as PLANTED } from '../checker/defects.ts';
import { seeded } from '../checker/random.ts';

export const DEFECTS = [
  'claims-all',
  'forgets-commits',
  'new-keys',
  'lets-held-expire',
  'loses-records',
] as const;
/** A deliberate defect, to see that the torture finds it. */
export type Defect = (typeof DEFECTS)[number];

/** The store with one promise of its contract broken. */
export function brokenStore(store: AtomicStateStore, defect: Defect): AtomicStateStore {
  return PLANTED[defect].store(store, seeded(process.pid, defect));
}
