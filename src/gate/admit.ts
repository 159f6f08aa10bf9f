import type { Step } from '../session/step.ts';
import type { FsmSnapshot } from '../stores/store.ts';
import type { GuardedCall } from '../workflow/binding.ts';
import type { CallBinding } from '../workflow/call.ts';
import type { Position } from '../workflow/position.ts';
import type { GateConfig } from './gate-config.ts';
import { askGuards } from './guard.ts';

/** Why a call may not go on although its run could be claimed, or asked where it stands. */
export interface NotAdmitted {
  readonly reason: 'state' | 'guard' | 'unavailable';
  readonly snapshot?: FsmSnapshot | undefined;
  /** The guard's own. */
  readonly words?: string | undefined;
}

/** What a guard is asked beside where the run stands. */
export type AskedCall = Omit<GuardedCall, 'state' | 'context'>;

/** How long the guards of one call may take. */
const GUARDS_MS = 5_000;

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

/** Asks the guards of a call about a run that stands at `position`; `undefined` where they let it through. */
export async function refusedByGuard(
  { workflow, clock, onError }: GateConfig,
  { guards }: Pick<CallBinding, 'guards'>,
  { updatedAt, ...position }: FsmSnapshot,
  call: AskedCall,
): Promise<NotAdmitted | undefined> {
  if (guards.length === 0) return undefined;
  const about = { ...call, state: position.state, context: workflow.dataOf(position) };
  const refusal = await askGuards(guards, about, { clock, deadlineMs: GUARDS_MS, onError });
  return refusal && { reason: 'guard', snapshot: { ...position, updatedAt }, words: refusal.words };
}

/**
 * Tests a claimed run where the store could not: the states of a statechart cannot be listed, and those of an older deployment are not
 * known by name. Then asks the guards. The claim is let go where the call is not allowed after all.
 */
export async function admit(
  config: GateConfig,
  binding: CallBinding,
  step: Step,
  call: AskedCall,
): Promise<Position | NotAdmitted> {
  const position = understood(config, step.snapshot);
  const { workflow } = config;
  const isTested = workflow.claimable(binding) !== undefined;
  if (position === undefined) {
    await step.release();
    return { reason: 'unavailable' };
  }
  const snapshot = { ...position, updatedAt: step.snapshot.updatedAt };
  const isAllowed = isTested || workflow.allows(position.state, binding);
  const refused = isAllowed
    ? await refusedByGuard(config, binding, snapshot, call)
    : { reason: 'state' as const, snapshot };
  if (refused === undefined) return position;
  await step.release();
  return refused;
}
