/**
 * Whether a run allows something where it stands: a call, a tool in a list, a prompt, a resource.
 * Hides which reason comes first. What stops a run as a whole, each door reads off its standing.
 */
import type { RefusalReason, StopReason } from '../basics/events.ts';
import type { Refused } from '../step/step.ts';
import type { ReadRefusalReason } from '../workflow/advice.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { BoundRead } from '../workflow/reads.ts';
import type { Part } from '../workflow/verdict.ts';
import type { Absent, Standing } from './standing.ts';

/** For these nothing passes, also not where the gate only observes. */
export const NEVER_PASSED: ReadonlySet<Refused['reason']> = new Set([
  ...(['frozen', 'cancelled', 'unknown'] as const),
]);

/**
 * What is asked of a run: a call of a tool. With `binding`, one with its arguments: if it needs the
 * run's claim, it has it, or the store tests it. Without, any call: for lists and explanations.
 */
export interface Ask {
  readonly tool: string;
  readonly binding?: CallBinding;
}

/** Why a call does not go on, and where its run stands, as far as that is known. */
export interface RefusedCall extends Refused {
  readonly standing?: Standing | undefined;
  /** The state that the run has left for this call, because its deadline has passed. */
  readonly left?: string | undefined;
  /** The parts of the tool's rules that refuse it. */
  readonly parts?: readonly Part[] | undefined;
}

/**
 * The first reason against a call; `undefined` where nothing known refuses it. Arguments, loops and
 * the app's guards are asked after that, because they need the call.
 */
export function decide(
  standing: Standing | Absent,
  { tool, binding }: Ask,
): RefusalReason | 'unknown' | undefined {
  const barred = barredAt(standing);
  if (barred !== undefined || typeof standing === 'string') return barred;
  const { workflow, underWay } = standing;
  if (binding !== undefined) {
    // Only a bound tool begins an ended run anew.
    const isOver = binding === workflow.shield?.unboundCalls && standing.beginsAnew;
    return standing.opens(tool, binding) && !isOver ? undefined : 'state';
  }
  if (underWay === 'running' && workflow.claiming.has(workflow.keyOf(tool))) return 'busy';
  if (underWay === 'held' && standing.closes(tool)) return 'held';
  const spent = standing.spent.get(workflow.keyOf(tool));
  if (spent !== undefined) return reasonOf(spent);
  if (!standing.shows(tool)) return 'state';
  const always = workflow.matchAlways(tool);
  return always !== undefined && isStopped(standing, always) ? 'guard' : undefined;
}

/**
 * The first reason against a prompt or a resource, each of whose bindings must allow it. A list of
 * what is enforced names tools alone.
 */
export function decideRead(
  standing: Standing | Absent,
  bound: readonly BoundRead[],
  isEnforced: boolean,
): ReadRefusalReason | 'unknown' | undefined {
  const barred = barredAt(standing);
  if (!isEnforced && (barred === undefined || !NEVER_PASSED.has(barred))) return undefined;
  if (barred !== undefined || typeof standing === 'string') return barred;
  return bound.every((each) => standing.opens(each.name, each)) ? undefined : 'state';
}

/** Why a list that hides what is not available leaves a tool out. */
export function whyHidden(standing: Standing | Absent, tool: string): RefusalReason {
  const barred = barredAt(standing);
  if (barred !== undefined) return barred === 'unknown' ? 'no-run' : barred;
  if (typeof standing !== 'object') return 'state';
  if (standing.closes(tool)) return 'held';
  const spent = standing.spent.get(standing.workflow.keyOf(tool));
  return spent === undefined ? 'state' : reasonOf(spent);
}

function reasonOf({ part }: Part): 'limit' | 'guard' {
  return part === 'limit' ? part : 'guard';
}

/** Why nothing can be asked of the run at all. */
function barredAt(standing: Standing | Absent): Absent | StopReason | undefined {
  return typeof standing === 'string' ? standing : standing.stopped?.reason;
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
