import { isPrincipalRun } from '../ids.ts';
import type { Json } from '../stores/store.ts';
import type { Position } from '../workflow/position.ts';
import { AFTER, RESTART } from '../workflow/stored.ts';
import type { Understood, Workflow } from '../workflow/workflow.ts';
import { begunWith } from './begin.ts';
import { moveTo, type StepMove } from './move.ts';

/** What becomes of a run in a final state: it stays there, or the next call begins it anew. */
export type WhenEnded = 'keep' | 'restart';

/** How a gate takes runs that have ended. */
interface EndRule {
  readonly workflow: Workflow;
  /** Default: by what names the run. */
  readonly whenEnded: WhenEnded | undefined;
}

/** A run that begins anew has no call in common with the one before: earlier keys are forgotten. */
export const ANEW = { settles: 'all' } as const;

/**
 * Whether the next call begins a run anew that has ended. Unless the app says, a principal's does,
 * who has no other; where runs are named by sessions and handles a new one is to be had.
 */
export function beginsAnew({ workflow, whenEnded }: EndRule, run: string): boolean {
  const rule = whenEnded ?? (isPrincipalRun(run) ? 'restart' : 'keep');
  // One that begins in a final state would begin anew for ever.
  return rule === 'restart' && !workflow.hasEnded(workflow.initial);
}

/**
 * Where a run stands for its clients: one that the next call begins anew is at its start already.
 */
export function shownPosition<P extends Position>(
  rule: EndRule,
  run: string,
  position: P,
): P | Position {
  const { workflow } = rule;
  return workflow.hasEnded(position.state) && beginsAnew(rule, run) ? workflow.start : position;
}

/** The same of a state alone. */
export function shownState(rule: EndRule, run: string, state: string): string {
  return shownPosition(rule, run, { state }).state;
}

/** Where a run is when it begins anew. Version and trail go on. */
export function restartOf(
  workflow: Workflow,
  from: Position,
  actor: string | undefined,
  data?: Json,
): StepMove {
  const position = begunWith(workflow, workflow.start, data);
  const actions = workflow.dueActions(true);
  const said = { event: RESTART, actor };
  const move = moveTo(workflow, from, { position, actions }, said);
  return { ...move, isRestart: true };
}

/** A move that a run makes by itself, before a call can have it. */
export interface OwnMove {
  readonly move: StepMove;
  readonly options?: typeof ANEW;
}

/** Whether a run has ended, and stays there unless it begins anew. */
export function isAtEnd(workflow: Workflow, { position, left }: Understood): boolean {
  return left === undefined && workflow.hasEnded(position.state);
}

/**
 * The move of a run whose state's time is over, or that has ended and begins anew.
 *
 * @param restarts who begins it anew; without it, a run that has ended stays as it is
 * @param data what it begins anew with. Default: the machine's own
 */
export function ownMove(
  workflow: Workflow,
  known: Understood,
  restarts: { readonly actor: string | undefined } | undefined,
  data?: Json,
): OwnMove | undefined {
  const { position, left } = known;
  if (left !== undefined) return { move: moveTo(workflow, position, left, { event: AFTER }) };
  if (restarts === undefined || !isAtEnd(workflow, known)) return undefined;
  return { move: restartOf(workflow, position, restarts.actor, data), options: ANEW };
}
