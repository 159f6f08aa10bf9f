import { InterlockError } from '../errors.ts';
import { understood } from './admit.ts';
import { moveFromOutside, type OutsideMover } from './outside-move.ts';
import { storedIn } from './state-now.ts';
import { tellIfHeld } from './unknown-outcome.ts';

/** The runs that may have outlived the time of their state. */
export async function* overdueRuns({ store, workflow }: OutsideMover): AsyncIterable<string> {
  if (store.runs === undefined) {
    throw new InterlockError(
      'ERR_INTERLOCK_STORE',
      'sweep(): this store cannot list runs by their state; give the runs that are to be looked at',
    );
  }
  for (const [state, forMs] of workflow.deadlines)
    yield* store.runs({ workflow: workflow.id, state, forMs });
}

/**
 * Moves a run whose state's time is over. One that is busy is left alone: whoever has it looks at
 * the time as well.
 */
export async function expireFromOutside(mover: OutsideMover, run: string): Promise<boolean> {
  const { id } = mover.workflow;
  const record = await mover.store.read(run, mover.ttlMs, id);
  const entry = storedIn(record, id);
  tellIfHeld({ run, workflow: id }, entry?.claim, mover);
  if (entry === undefined || entry.claim?.live === true) return false;
  const position = understood(mover, entry.snapshot);
  // It must not keep a sweep from those behind it.
  if (position === undefined) return false;
  const snapshot = { ...position, updatedAt: entry.snapshot.updatedAt };
  if (mover.workflow.overdue(snapshot, record?.now ?? mover.clock.now()) === undefined)
    return false;
  // The claim alone applies it, since it looks at the time first.
  const result = await moveFromOutside(mover, run, { name: 'sweep' }, () => undefined);
  return result === 'unchanged';
}
