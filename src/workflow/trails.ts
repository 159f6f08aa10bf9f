/**
 * What a run's trail tells by itself. It hides which entries are moves of the machine, and how
 * entries become a conversation with a model.
 */
import { isGlob } from '../glob.ts';
import type { TrailEntry } from '../stores/store.ts';
import type { StateMachineGate } from './gate.ts';
import { AFTER, BEGIN, FREEZE, RESTART, UNFREEZE } from './stored.ts';
import type { Workflow } from './workflow.ts';

/** Where a trail differs from what the gate would have written. */
export interface ReplayFault {
  /** The index in the array that was given. */
  readonly index: number;
  readonly seq: number;
  /**
   * - `missing`: the entry before it is missing
   * - `from`: it begins in another state than the one before it ended in
   * - `state`: it leads to no state of the machine
   * - `event`: its event does not lead there
   */
  readonly fault: 'missing' | 'from' | 'state' | 'event';
}

/** Where a trail leads. */
export interface Replay {
  /** The stored state that the last move led to; the oldest `from` where the trail has no move. */
  readonly state: string;
  /** The run's version then. */
  readonly version: number;
  /** How many entries are moves. A move may stay in its state. */
  readonly moves: number;
  readonly faults: readonly ReplayFault[];
}

/**
 * Follows a trail from its oldest entry's `from` to the state that its run is in. It needs no
 * store, and no entries older than those that the store kept.
 *
 * It cannot replay a run's data, since a trail has no results. A statechart's guards read data, so
 * its moves are taken from the trail. An `event` fault then means that the state does not handle
 * the event. Moves that another `version` of the gate made are not checked.
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
  // Another deployment may have another name for the same state.
  const isSameDeployment = before === undefined || before.workflowVersion === workflowVersion;
  if (from !== state && isSameDeployment && !isFreeze(entry)) return 'from';
  if (to === undefined || workflowVersion !== workflow.version) return undefined;
  if (!workflow.hasState(to)) return 'state';
  return isMoveOf(workflow, entry, to) ? undefined : 'event';
}

/** Whether an operator stopped the run there, or let it go on: beside a step that may move it. */
function isFreeze({ event, to }: TrailEntry): boolean {
  return to === undefined && (event === FREEZE || event === UNFREEZE);
}

/** Whether the entry's event leads there, as far as one can tell without the run's data. */
function isMoveOf(workflow: Workflow, entry: TrailEntry, to: string): boolean {
  const { from, event, payload, kind, outcome } = entry;
  if (!workflow.hasState(from)) return true;
  if (event === null) return from === to;
  if (outcome === 'refused' && kind === 'loop') return true;
  // A machine may have an event of the same name as such a move. Then either is possible.
  if (isOwnMove(workflow, entry, to)) return true;
  if (!workflow.handles(from, event)) return from === to;
  return !workflow.isFlat || workflow.next({ state: from }, event, payload).position.state === to;
}

/** Whether a deadline, a beginning or a restart made the move. */
function isOwnMove(workflow: Workflow, { from, event }: TrailEntry, to: string): boolean {
  if (event === RESTART) return to === workflow.initial || workflow.starts.includes(to);
  if (event === BEGIN && to === from) return true;
  const left = workflow.overdue({ state: from, updatedAt: 0 }, Number.POSITIVE_INFINITY);
  return event === AFTER && left?.position.state === to;
}

/** One entry of a trail, or a part of it, in words for a model. */
export interface TrailMessage {
  /** `assistant`: what the model called. `user`: what a call failed with, and what others did. */
  readonly role: 'assistant' | 'user';
  readonly content: string;
  /** The entry's place in the trail. */
  readonly seq: number;
}

/** The schema of the model's answer: the name of a tool that is available. */
export interface NextToolSchema {
  readonly type: 'object';
  readonly oneOf: readonly {
    readonly properties: {
      readonly tool: { readonly const: string };
      readonly arguments: { readonly type: 'object' };
    };
    readonly required: readonly ['tool'];
  }[];
}

/** A conversation for a model to go on with. */
export interface TrailPrompts {
  readonly messages: readonly TrailMessage[];
  /** The state that the trail leads to. */
  readonly state: string;
  /** The JSON Schema of the next call; `undefined` where no tool is available. */
  readonly output: NextToolSchema | undefined;
}

/** Options of {@link trailToPrompts}. */
export interface TrailPromptsOptions {
  /**
   * What to leave out: names of tools or events, or a function that answers `true` for an entry.
   * After an omitted move, the entries up to and including the next move are left out too. Else the
   * model would not know how the run came to their state. Default: nothing.
   */
  readonly omit?: readonly string[] | ((entry: TrailEntry) => boolean) | undefined;
}

/**
 * Makes a conversation of a trail, so that a model can go on with the run. The assistant says what
 * was called; the user says what moved the run from outside. The user also says what a call failed
 * with, so that the model can correct it. Arguments and payloads appear as far as the trail has
 * them. Pure: it asks no store.
 *
 * @param trail oldest first, as `runs.history()` gives it
 */
export function trailToPrompts<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  trail: readonly TrailEntry[],
  { omit = [] }: TrailPromptsOptions = {},
): TrailPrompts {
  const workflow = gate.compile();
  const isOmitted = typeof omit === 'function' ? omit : omittedBy(omit);
  const messages: TrailMessage[] = [];
  let state = trail[0]?.from ?? workflow.initial;
  let isOmittedBefore = false;
  for (const entry of trail) {
    const isOut = isOmitted(entry);
    if (!isOut && !isOmittedBefore) messages.push(...messagesOf(entry));
    if (entry.to === undefined) continue;
    isOmittedBefore = isOut;
    state = entry.to;
  }
  const available = workflow.hasState(state) ? availableIn(workflow, state) : [];
  return { messages, state, output: available.length === 0 ? undefined : schemaOf(available) };
}

/** A trail names neither the run nor its data, so `visible` is asked without them. */
function availableIn(workflow: Workflow, state: string): readonly string[] {
  const viewer = { run: undefined, principal: undefined, onError: () => {} };
  const sight = workflow.sight({ state }, viewer);
  return workflow
    .available(state)
    .filter((tool) => !isGlob(tool) && sight?.hidden.has(tool) !== true);
}

function omittedBy(names: readonly string[]): (entry: TrailEntry) => boolean {
  const omitted = new Set(names);
  return ({ tool, event }) =>
    (tool !== undefined && omitted.has(tool)) || (event !== null && omitted.has(event));
}

function messagesOf(entry: TrailEntry): TrailMessage[] {
  const { seq, tool, args, from, outcome } = entry;
  if (tool === undefined || outcome === undefined)
    return [{ role: 'user', content: moveWords(entry), seq }];
  const given = args === undefined ? '' : ` with ${JSON.stringify(args)}`;
  const called = `Called ${JSON.stringify(tool)}${given} in ${JSON.stringify(from)}`;
  if (outcome === 'succeeded')
    return [{ role: 'assistant', content: `${called}. ${endWords(entry)}`, seq }];
  return [
    { role: 'assistant', content: `${called}.`, seq },
    { role: 'user', content: feedbackWords(entry, tool), seq },
  ];
}

function moveWords(entry: TrailEntry): string {
  const { event, payload } = entry;
  const said = payload === undefined ? '' : ` with ${JSON.stringify(payload)}`;
  const what = event === null ? 'The run was changed' : `${JSON.stringify(event)} happened${said}`;
  return `${what}. ${endWords(entry)}`;
}

function endWords({ from, to }: TrailEntry): string {
  const state = JSON.stringify(to ?? from);
  return to === undefined || to === from
    ? `The run is still in ${state}.`
    : `The run is in ${state} now.`;
}

/** A call that did not succeed, in words for the model. */
function feedbackWords(entry: TrailEntry, tool: string): string {
  const { outcome, kind, attempt } = entry;
  const why = kind === undefined ? '' : ` (${kind})`;
  const name = JSON.stringify(tool);
  switch (outcome) {
    case 'failed':
      return `${name} failed${why}, attempt ${attempt}. ${endWords(entry)}`;
    case 'refused':
      return `${name} was refused${why}. ${endWords(entry)}`;
    case 'input_required':
      return `${name} asked for more input. ${endWords(entry)}`;
    case 'not_run':
      return `${name} did not run${why}. ${endWords(entry)}`;
    default:
      return `What ${name} came to is unknown${why}. ${endWords(entry)}`;
  }
}

function schemaOf(tools: readonly string[]): NextToolSchema {
  return {
    type: 'object',
    oneOf: tools.map((tool) => ({
      properties: { tool: { const: tool }, arguments: { type: 'object' } },
      required: ['tool'],
    })),
  };
}
