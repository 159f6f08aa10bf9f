import type { Step } from '../session/step.ts';
import type { FsmSnapshot } from '../stores/store.ts';
import { AFTER } from '../workflow/stored.ts';
import { ANEW, restartOf } from './ends.ts';
import type { GateConfig } from './gate-config.ts';
import { type Move, moveTo } from './move.ts';
import { saveUnforwarded } from './take-effect.ts';

type Config = Pick<GateConfig, 'workflow' | 'onError'>;

/**
 * Saves that a claimed run left its state by itself, if its time is over, as a move of its own. The
 * claim is spent then: whoever wanted it asks again, of the state that the run is in now.
 */
export async function expire(config: Config, step: Step): Promise<Move | 'failed' | undefined> {
  const { workflow } = config;
  const known = adopted(workflow, step);
  const next = known && workflow.overdue(known, step.now);
  if (known === undefined || next === undefined) return undefined;
  const move = moveTo(workflow, known.state, next, { event: AFTER });
  return (await saveUnforwarded(config, step, move)) ? move : 'failed';
}

/** Saves that a claimed run begins anew, if it has ended, in the same way. */
export async function restart(
  config: Config,
  step: Step,
  actor: string | undefined,
): Promise<Move | 'failed' | undefined> {
  const { workflow } = config;
  const known = adopted(workflow, step);
  if (known === undefined || !workflow.hasEnded(known.state)) return undefined;
  const move = restartOf(workflow, known.state, actor);
  return (await saveUnforwarded(config, step, move, ANEW)) ? move : 'failed';
}

/**
 * Judged from where this deployment says that the run stands. One that it does not understand is
 * left alone, and refused by whoever goes on.
 */
function adopted(workflow: Config['workflow'], { snapshot }: Step): FsmSnapshot | undefined {
  try {
    return { ...workflow.adopt(snapshot), updatedAt: snapshot.updatedAt };
  } catch {
    return undefined;
  }
}
