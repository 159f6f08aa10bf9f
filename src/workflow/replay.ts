/**
 * Where a trail leads by itself: hides which of its entries are moves of the machine, and which are
 * moves that no event of the machine makes.
 */
import type { TrailEntry } from '../stores/store.ts';
import type { StateMachineGate } from './gate.ts';
import { AFTER, BEGIN, RESTART } from './stored.ts';
import type { Workflow } from './workflow.ts';

/** Why a trail is not what the gate would have written. */
export interface ReplayFault {
  /** The index in the array that was given. */
  readonly index: number;
  readonly seq: number;
  /**
   * `missing`: an entry before it is not there. `from`: it begins elsewhere than the one before it
   * ended. `state`: it leads to no state of the machine. `event`: the machine would not have gone
   * there by that event.
   */
  readonly fault: 'missing' | 'from' | 'state' | 'event';
}

/** Where a trail leads. */
export interface Replay {
  /**
   * The state that the last move led to, as it is stored; the oldest `from` where there is none.
   */
  readonly state: string;
  /** The run's version then. */
  readonly version: number;
  /** How many entries are moves, those within a state among them. */
  readonly moves: number;
  readonly faults: readonly ReplayFault[];
}

/**
 * Follows a trail from its oldest entry's `from` to the state that its run is in. It needs no
 * store, and no more of the trail than is kept. The run's data are not replayed, since results are
 * not kept: so a statechart, whose guards read data, is followed by what the trail says, and a
 * fault is told only where no state it is in handles the event. The moves of another `version` of
 * the gate are followed without question.
 *
 * @param entries oldest first, as `runs.history()` gives them
 */
export function replayTrail<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  entries: readonly TrailEntry[],
): Replay {
  const workflow = gate.compile();
  const faults: ReplayFault[] = [];
  let state = entries[0]?.from ?? workflow.initial;
  let moves = 0;
  for (const [index, entry] of entries.entries()) {
    const fault = faultOf(workflow, entry, entries[index - 1], state);
    if (fault !== undefined) faults.push({ index, seq: entry.seq, fault });
    if (entry.to === undefined) continue;
    moves++;
    state = entry.to;
  }
  return { state, version: entries.at(-1)?.version ?? 0, moves, faults };
}

function faultOf(
  workflow: Workflow,
  entry: TrailEntry,
  before: TrailEntry | undefined,
  state: string,
): ReplayFault['fault'] | undefined {
  const { seq, from, to, workflowVersion } = entry;
  if (before !== undefined && seq !== before.seq + 1) return 'missing';
  // A newer deployment may call the same state otherwise.
  const isSameDeployment = before === undefined || before.workflowVersion === workflowVersion;
  if (from !== state && isSameDeployment) return 'from';
  if (to === undefined || workflowVersion !== workflow.version) return undefined;
  if (!workflow.hasState(to)) return 'state';
  return isMoveOf(workflow, entry, to) ? undefined : 'event';
}

/** Whether the machine goes there, as far as that can be told without the run's data. */
function isMoveOf(workflow: Workflow, entry: TrailEntry, to: string): boolean {
  const { from, event, payload, kind, outcome } = entry;
  if (!workflow.hasState(from)) return true;
  if (event === null) return from === to;
  if (outcome === 'refused' && kind === 'loop') return true;
  // A machine may have an event of either name: then both moves are possible.
  if (isOwnMove(workflow, entry, to)) return true;
  if (!workflow.handles(from, event)) return from === to;
  return !workflow.isFlat || workflow.next({ state: from }, event, payload).position.state === to;
}

/** Whether it is a move that a run makes by itself, or that begins it anew. */
function isOwnMove(workflow: Workflow, { from, event }: TrailEntry, to: string): boolean {
  if (event === RESTART) return to === workflow.initial;
  if (event === BEGIN && to === from) return true;
  const left = workflow.overdue({ state: from, updatedAt: 0 }, Number.POSITIVE_INFINITY);
  return event === AFTER && left?.position.state === to;
}
