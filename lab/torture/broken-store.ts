import type { AtomicStateStore } from '../../src/stores/index.ts';
import { DEFECTS as PLANTED, replacing } from '../checker/defects.ts';
import { seeded } from '../checker/random.ts';

export const DEFECTS = [
  'claims-all',
  'forgets-commits',
  'new-keys',
  'lets-held-expire',
  'loses-records',
  'reads-switch-once',
] as const;
/** A deliberate defect, to see that the torture finds it. */
export type Defect = (typeof DEFECTS)[number];

/** The store with one promise of its contract broken. */
export function brokenStore(store: AtomicStateStore, defect: Defect): AtomicStateStore {
  if (defect !== 'reads-switch-once')
    return PLANTED[defect].store(store, seeded(process.pid, defect));
  // Only a process beside the operator's own shows it, and only after a second.
  const first = new Map<string, ReturnType<NonNullable<AtomicStateStore['readSwitch']>>>();
  return replacing(store, {
    readSwitch: (workflow) => {
      const answer =
        first.get(workflow) ?? store.readSwitch?.(workflow) ?? Promise.resolve(undefined);
      first.set(workflow, answer);
      return answer;
    },
  });
}
