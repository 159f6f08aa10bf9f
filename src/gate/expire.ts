import type { Step } from '../session/step.ts';
import { AFTER } from '../workflow/upkeep.ts';
import type { GateConfig } from './gate-config.ts';
import type { Move } from './move.ts';
import { takeEffect } from './take-effect.ts';

/**
 * Saves that a claimed run left its state by itself, if its time is over, as a move of its own. The claim is spent then: whoever wanted it asks again,
 * of the state that the run is in now.
 */
export async function expire(
  { workflow, onError }: Pick<GateConfig, 'workflow' | 'onError'>,
  step: Step,
): Promise<Move | 'failed' | undefined> {
  const next = workflow.overdue(step.snapshot, step.now);
  if (next === undefined) return undefined;
  const { position, actions } = next;
  const trail = { from: step.snapshot.state, to: position.state, event: AFTER };
  const move = { snapshot: { ...position }, trail, actions };
  try {
    const status = await step.commit({ snapshot: move.snapshot, trail });
    if (status !== 'committed') return 'failed';
  } catch (error) {
    onError(error);
    return 'failed';
  }
  takeEffect(workflow, move, step.key.run, onError);
  return move;
}
