import { isPrincipalRun } from '../session/run-key.ts';
import type { Position } from '../workflow/position.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig } from './gate-config.ts';
import { type Move, moveTo } from './move.ts';

/** The trail's event of a run that began anew. */
const RESTART = 'restart';

/**
 * A run that begins anew has no call in common with the one before: no key of an earlier try is
 * handed out again.
 */
export const ANEW = { settles: 'all' } as const;

/** How a gate takes runs that have ended. */
type EndRule = Pick<GateConfig, 'workflow' | 'whenEnded'>;

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
export function restartOf(workflow: Workflow, from: string, actor: string | undefined): Move {
  const actions = workflow.dueActions(true);
  const said = { event: RESTART, ...(actor !== undefined && { actor }) };
  return moveTo(workflow, from, { position: workflow.start, actions }, said);
}
