import type { Step } from '../session/step.ts';
import type { FsmSnapshot } from '../stores/store.ts';
import type { Next } from '../workflow/position.ts';
import { AFTER } from '../workflow/upkeep.ts';
import type { GateConfig } from './gate-config.ts';
import { type Move, moveTo } from './move.ts';
import { saveUnforwarded } from './take-effect.ts';

/**
 * Saves that a claimed run left its state by itself, if its time is over, as a move of its own. The claim is spent then: whoever wanted it asks again,
 * of the state that the run is in now.
 */
export async function expire(
  config: Pick<GateConfig, 'workflow' | 'onError'>,
  step: Step,
): Promise<Move | 'failed' | undefined> {
  const due = dueOf(config.workflow, step);
  if (due === undefined) return undefined;
  const move = moveTo(due.from, due.next, { event: AFTER });
  return (await saveUnforwarded(config, step, move)) ? move : 'failed';
}

/** Judged from where this deployment says that the run stands. One that it does not understand is left alone, and refused by whoever goes on. */
function dueOf(
  workflow: GateConfig['workflow'],
  { snapshot, now }: Step,
): { readonly from: string; readonly next: Next } | undefined {
  let known: FsmSnapshot;
  try {
    known = { ...workflow.adopt(snapshot), updatedAt: snapshot.updatedAt };
  } catch {
    return undefined;
  }
  const next = workflow.overdue(known, now);
  return next && { from: known.state, next };
}
