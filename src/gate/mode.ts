/**
 * Whether a gate enforces a call of a run, or only observes it. Hides who has said so: the gate's
 * option, an operator, or the run itself. A run that ends by itself keeps what held at its first
 * call. The run of a principal does not end, so it goes by what holds now.
 */
import { matchGlob } from '../basics/glob.ts';
import { isPrincipalRun } from '../basics/names.ts';
import { isTable } from '../basics/options.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { WorkflowFreeze } from '../step/switch.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { openContext, sealContext } from '../workflow/envelope.ts';
import type { Position } from '../workflow/position.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** `true`: each tool. `false`: none. A list: those that one of its names or globs matches. */
export type Enforced = boolean | readonly string[];

/** A gate, and what its option enforces. */
interface EnforcingGate {
  readonly enforce: Enforced;
  readonly workflow: Workflow;
}

/** What a run keeps, where not all of its tools are enforced. */
export interface RunMark {
  /** The tools that are enforced, as the option had them at the run's first call. */
  readonly enforced?: readonly string[];
  /** A call ran whose event its state does not handle. */
  readonly strayed?: true;
  /** Whether a call of it would have been refused. */
  readonly refused?: true;
  readonly [member: string]: unknown;
}

/** What operators read of a run that is observed. */
export interface ObservedMark {
  /** The tools whose calls are refused all the same. */
  readonly enforced: readonly string[];
  /** Whether a call of it would have been refused. */
  readonly refused: boolean;
  /** Whether a call ran whose event its state does not handle: where it stands may be wrong. */
  readonly strayed: boolean;
}

const MARK = 'mcp-interlock/observed';

/** What a run keeps; `undefined` where it is enforced. A store may have anything. */
export function markOf({ context }: Pick<Position, 'context'>): RunMark | undefined {
  const mark = openContext(context)[MARK];
  if (mark === undefined) return undefined;
  return isTable(mark) ? (mark as RunMark) : {};
}

export function withMark({ state, context }: Position, mark: RunMark): Position {
  return { state, ...sealContext({ ...openContext(context), [MARK]: mark as unknown as Json }) };
}

/** What a gate does with runs that begin now, as far as this process knows. */
export function modeNow({ enforce, workflow }: EnforcingGate, store: GuardedStore): Enforced {
  return modeSaid(enforce, store.switchOf(workflow.id)?.known);
}

/** The same by what operators said. */
export function modeSaid(option: Enforced, said: WorkflowFreeze | 'unread' | undefined): Enforced {
  if (typeof said !== 'object' || said.mode === undefined) return option;
  if (!said.mode.enforce) return false;
  return option === false ? true : option;
}

/**
 * What a gate enforces of a run.
 *
 * @param option as the gate's option says
 * @param said what operators said of all runs
 * @param saved where the run stands; `undefined` where the next call begins it
 */
export function enforcedOf(
  option: Enforced,
  said: WorkflowFreeze | 'unread' | undefined,
  run: string,
  saved: Pick<Position, 'context'> | undefined,
): Enforced {
  const now = modeSaid(option, said);
  if (now === false || saved === undefined) return now;
  const mark = markOf(saved);
  if (mark === undefined) return true;
  // Where it stands may be wrong, so that nothing would lead on.
  const isKnown = mark.strayed !== true;
  if (isKnown && ((typeof said === 'object' && said.mode?.living === true) || isPrincipalRun(run)))
    return now;
  return mark.enforced ?? false;
}

/** Whether a gate enforces less of a run than of one that begins now. */
export function isStillObserved(
  { enforce, workflow }: EnforcingGate,
  { run, store }: { readonly run: string; readonly store: GuardedStore },
  snapshot: FsmSnapshot,
): boolean {
  const said = store.switchOf(workflow.id)?.known;
  const now = modeSaid(enforce, said);
  const enforced = enforcedOf(enforce, said, run, snapshot);
  if (now === false || enforced === true || enforced === now) return false;
  return now === true || !now.every((each) => enforced !== false && enforced.includes(each));
}

/** The warning of such runs. */
export function stillObserved(workflow: string, count = ''): string {
  return (
    `runs of "${workflow}" that began while the gate observed are still observed${count}. ` +
    'runs.enforce({ living: true }) or "mcp-interlock enforce --living" ends that, but for ' +
    'runs that strayed: those need runs.restart()'
  );
}

/**
 * Whether a gate lets a whole request pass as it is: it enforces no run, and operators have stopped
 * nothing. Where the store does not say so soon, what it said last counts.
 */
export function passesAll(
  option: Enforced,
  store: GuardedStore,
  { id }: Workflow,
): MaybePromise<boolean> {
  const set = store.switchOf(id);
  const passes = (known: WorkflowFreeze | 'unread' = 'unread'): boolean => {
    if (known === 'unread') return option === false;
    const isStopped = known.all !== undefined || known.tools.size > 0;
    return !isStopped && modeSaid(option, known) === false;
  };
  // Where a call is judged, the judge asks the store itself.
  return option === true && !passes(set?.known) ? false : after(set?.soon(), passes);
}

/** Whether a tool is among those that are enforced. */
export function enforces(enforced: Enforced, tool: string): boolean {
  if (typeof enforced === 'boolean') return enforced;
  return enforced.some((each) => each === tool || matchGlob(each, tool));
}

/**
 * Whether an enforced tool depends on more of this one than that it succeeded. Then its calls take
 * the run's claim, though none of them is refused.
 */
export function isStepFor(workflow: Workflow, enforced: readonly string[], tool: string): boolean {
  if (!workflow.isOrder) return workflow.callKind(tool) === 'step';
  const own = workflow.keyOf(tool);
  return workflow.order?.needsSteps(own, (each) => enforces(enforced, each)) === true;
}
