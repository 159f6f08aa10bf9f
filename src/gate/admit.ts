import type { NotClaimed } from '../session/claim.ts';
import type { Step } from '../session/step.ts';
import type { CallBinding } from '../workflow/call.ts';
import type { Position } from '../workflow/position.ts';
import type { GateConfig } from './gate-config.ts';

/** A stored position as the gate understands it; `undefined` where it does not, which is told to `onError`. */
export function understood(
  { workflow, onError }: Pick<GateConfig, 'workflow' | 'onError'>,
  stored: Position,
): Position | undefined {
  try {
    return workflow.adopt(stored);
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/**
 * Tests a claimed run where the store could not: the states of a statechart cannot be listed, and those of an older deployment are not
 * known by name. The claim is let go where the call is not allowed after all.
 */
export async function admit(
  config: GateConfig,
  binding: CallBinding,
  step: Step,
): Promise<Position | NotClaimed> {
  const position = understood(config, step.snapshot);
  const { workflow } = config;
  const isTested = workflow.claimable(binding) !== undefined;
  if (position !== undefined && (isTested || workflow.allows(position.state, binding))) return position;
  await step.release();
  if (position === undefined) return { reason: 'unavailable' };
  return { reason: 'state', snapshot: { ...position, updatedAt: step.snapshot.updatedAt } };
}
