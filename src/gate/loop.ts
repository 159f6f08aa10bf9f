import type { Step } from '../session/step.ts';
import type { Loop, LoopShield } from '../workflow/loop-shield.ts';
import type { Position } from '../workflow/position.ts';
import type { GateConfig } from './gate-config.ts';
import type { Move } from './move.ts';
import type { NotAdmitted } from './not-admitted.ts';
import { takeEffect } from './take-effect.ts';

/** The trail's event of a run that fell back to a state. */
const LOOP = 'loop';

/** What the shield makes of a call: the position to go on from, the call counted in; or, where it was one too many, where the run fell back to. */
export async function countCall(
  config: GateConfig,
  shield: LoopShield,
  step: Step,
  position: Position,
): Promise<Position | NotAdmitted> {
  const count = shield.count(position, { tool: step.tool, digest: step.digest }, step.now);
  if (!count.isLoop) return count.position;
  const { workflow, onError } = config;
  const { position: reached, actions } = shield.fallBack(position);
  const event = shield.fallbackEvent ?? LOOP;
  const trail = { from: position.state, to: reached.state, event, tool: step.tool };
  const move: Move = { snapshot: { ...reached }, trail, actions };
  if ((await saved(step, move)) !== 'committed') return { reason: 'unavailable' };
  takeEffect(workflow, move, step.key.run, onError);
  const { tool, key } = step;
  const { calls } = count;
  tell(
    shield,
    { run: key.run, workflow: key.workflow, tool, state: position.state, calls, max: shield.max },
    onError,
  );
  return { reason: 'loop', snapshot: { ...reached, updatedAt: step.now }, moved: move };
}

async function saved(step: Step, { snapshot, trail }: Move): Promise<string> {
  return step.commitUnforwarded({ snapshot, trail }).catch(() => 'failed');
}

/** A listener's failure harms nobody. */
function tell({ onLoop }: LoopShield, loop: Loop, onError: (error: unknown) => void): void {
  try {
    Promise.resolve(onLoop?.(loop)).catch(onError);
  } catch (error) {
    onError(error);
  }
}
