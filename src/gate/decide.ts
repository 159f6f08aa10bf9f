/**
 * Whether a run allows something where it stands. Each door asks here: calls, lists, prompts,
 * resources, the status tool, the app's own pages. Hides which reason comes first.
 */
import type { RefusalReason } from '../events.ts';
import type { Refused } from '../step/step.ts';
import type { ReadRefusalReason } from '../workflow/advice.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { BoundRead } from '../workflow/reads.ts';
import type { Absent, Standing } from './standing.ts';

/** What is asked of a run. */
export type Ask =
  /** A call with its arguments. If it needs the run's claim, it has it, or the store tests it. */
  | { readonly kind: 'call'; readonly tool: string; readonly binding: CallBinding }
  /** Any call of a tool: for lists and explanations, before there is a call. */
  | { readonly kind: 'tool'; readonly tool: string }
  /** A prompt or a resource. Each of its bindings must allow it. */
  | { readonly kind: 'read'; readonly bound: readonly BoundRead[] };

/** Why a call does not go on, and where its run stands, as far as that is known. */
export interface RefusedCall extends Refused {
  readonly standing?: Standing | undefined;
}

/**
 * The first reason against it; `undefined` where nothing known refuses it. Arguments, loops and the
 * app's guards are asked after that, because they need the call.
 */
export function decide(
  standing: Standing | Absent,
  ask: Extract<Ask, { kind: 'read' }>,
): ReadRefusalReason | 'unknown' | undefined;
export function decide(
  standing: Standing | Absent,
  ask: Ask,
): RefusalReason | 'unknown' | undefined;
export function decide(
  standing: Standing | Absent,
  ask: Ask,
): RefusalReason | 'unknown' | undefined {
  if (typeof standing === 'string') return standing;
  if (standing.frozen !== undefined) return 'frozen';
  if (ask.kind === 'call') return standing.opens(ask.tool, ask.binding) ? undefined : 'state';
  if (ask.kind === 'read')
    return ask.bound.every((each) => standing.opens(each.name, each)) ? undefined : 'state';
  const { workflow, underWay } = standing;
  const { tool } = ask;
  if (underWay === 'running' && workflow.claiming.has(tool)) return 'busy';
  if (underWay === 'held' && standing.closed?.has(tool)) return 'held';
  if (!standing.shows(tool)) return 'state';
  const binding = workflow.matchAlways(tool);
  return binding !== undefined && isStopped(standing, binding) ? 'guard' : undefined;
}

/** Whether the machine's own guards stop the event of a success. One that throws does. */
export function isStopped({ rules, workflow, position }: Standing, binding: CallBinding): boolean {
  try {
    return workflow.isStopped(position, binding);
  } catch (error) {
    rules.onError(error);
    return true;
  }
}
