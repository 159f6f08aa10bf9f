import type { Step } from '../session/step.ts';
import type { Loop, LoopShield } from '../workflow/loop-shield.ts';
import type { Position } from '../workflow/position.ts';
import type { GateConfig } from './gate-config.ts';
import { moveTo } from './move.ts';
import type { NotAdmitted } from './not-admitted.ts';
import { saveUnforwarded } from './take-effect.ts';

/** The trail's event of a run that fell back to a state. */
const LOOP = 'loop';

/**
 * What the shield makes of a call: the position to go on from, the call counted in; or, where it
 * was one too many, where the run fell back to.
 */
export async function countCall(
  config: GateConfig,
  shield: LoopShield,
  step: Step,
  position: Position,
): Promise<Position | NotAdmitted> {
  const count = shield.count(position, { tool: step.tool, digest: step.digest }, step.now);
  if (!count.isLoop) return count.position;
  const next = shield.fallBack(position);
  const event = shield.fallbackEvent ?? LOOP;
  const { tool, key } = step;
  const due = config.workflow.dueActions(step.isFirst);
  const reached = { position: next.position, actions: [...due, ...next.actions] };
  const move = moveTo(config.workflow, position.state, reached, { event, tool });
  if (!(await saveUnforwarded(config, step, move))) return { reason: 'unavailable' };
  const { calls } = count;
  tell(
    shield,
    { run: key.run, workflow: key.workflow, tool, state: position.state, calls, max: shield.max },
    config.onError,
  );
  return { reason: 'loop', snapshot: { ...next.position, updatedAt: step.now }, moved: move };
}

/** A listener's failure harms nobody. */
function tell({ onLoop }: LoopShield, loop: Loop, onError: (error: unknown) => void): void {
  try {
    Promise.resolve(onLoop?.(loop)).catch(onError);
  } catch (error) {
    onError(error);
  }
}
