/**
 * What a run's trail says by itself. It hides which entries are moves of the machine, and how
 * entries become a conversation with a model.
 */

import type { StateMachineGate } from '../../../src/index.ts';
import {
  AFTER,
  BEGIN,
  FREEZE,
  isGlob,
  isTable,
  RESTART,
  UNFREEZE,
  type Workflow,
} from '../../../src/internal.ts';
import type { Json, TrailEntry } from '../../../src/stores/index.ts';

/** Where a trail differs from what the gate would have written. */
export interface TrailReplayFault {
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
export interface TrailReplay {
  /** The stored state that the last move led to; the oldest `from` where the trail has no move. */
  readonly state: string;
  /** The run's version then. */
  readonly version: number;
  /** How many entries are moves. A move may stay in its state. */
  readonly moves: number;
  readonly faults: readonly TrailReplayFault[];
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
): TrailReplay {
  const workflow = gate.compile();
  const faults: TrailReplayFault[] = [];
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
): TrailReplayFault['fault'] | undefined {
  const { seq, from, to, workflowVersion } = entry;
  if (before !== undefined && seq !== before.seq + 1) return 'missing';
  // Another deployment may have another name for the same state.
  const isSameDeployment = before === undefined || before.workflowVersion === workflowVersion;
  const isThere = from === state || workflow.model.mayBecome?.(state, from) === true;
  if (!isThere && isSameDeployment && !isFreeze(entry)) return 'from';
  if (to === undefined || workflowVersion !== workflow.version) return undefined;
  if (!workflow.model.has(to)) return 'state';
  return isMoveOf(workflow, entry, to) ? undefined : 'event';
}

/** Whether an operator stopped the run there, or let it go on: beside a step that may move it. */
function isFreeze({ event, to }: TrailEntry): boolean {
  return to === undefined && (event === FREEZE || event === UNFREEZE);
}

/** Whether the entry's event leads there, as far as that is known without the run's data. */
function isMoveOf(workflow: Workflow, entry: TrailEntry, to: string): boolean {
  const { from, event, payload, kind, outcome } = entry;
  if (!workflow.model.has(from)) return true;
  if (outcome === 'refused' && kind === 'loop') return true;
  // A machine may have an event of the same name as such a move. Then either is possible.
  if (isOwnMove(workflow, entry, to)) return true;
  const isByRules = workflow.model.mayBecome?.(from, to, entry);
  if (isByRules !== undefined) return isByRules;
  if (event === null) return from === to;
  if (!workflow.handles(from, event)) return from === to;
  return (
    !workflow.model.isFlat || workflow.next({ state: from }, event, payload).position.state === to
  );
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
  /** Of a user's message about a call that failed, was refused or did not run; else absent. */
  readonly failure?: TryFailure | undefined;
}

/** Why a try came to nothing, as an app reads it. The message's `content` says the same. */
export interface TryFailure {
  /**
   * The entry's `kind`, such as `tool_error`, `rpc_error`, `guard` or `arguments`; its `outcome`
   * where it has none.
   */
  readonly type: string;
  /**
   * What `trail.errors` kept of a failure, or the words of a refusal. Empty where the trail has
   * none. A tool may have written them: they are data, and no instructions.
   */
  readonly errors: readonly Json[];
  /** The entry's `attempt`. A refused call is none, and has the number of those before it. */
  readonly attempt: number;
}

/** A tool as the upstream's list has it. Other members do not matter. */
export interface ToolWithSchema {
  readonly name: string;
  readonly inputSchema?: Readonly<Record<string, unknown>> | undefined;
}

/** The schema of one tool's arguments. */
export interface ArgumentsSchema {
  readonly type: 'object';
  readonly [keyword: string]: unknown;
}

/** The schema of the model's answer: the name of a tool that is available, and its arguments. */
export interface NextToolSchema {
  readonly type: 'object';
  readonly oneOf: readonly {
    readonly properties: {
      readonly tool: { readonly const: string };
      readonly arguments: ArgumentsSchema;
    };
    /** With `arguments` where the tool requires any. */
    readonly required: readonly ['tool'] | readonly ['tool', 'arguments'];
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
  /**
   * The tools as the upstream lists them. `output` then has the schema of each tool's arguments,
   * and also names those that a glob binds. References within a schema lead to its new place in
   * `output`, and its `$schema` is left out. A tool that is not among them may have any arguments.
   * Default: none.
   */
  readonly tools?: readonly ToolWithSchema[] | undefined;
}

/**
 * Makes a conversation of a trail, so that a model can go on with the run. The assistant says what
 * was called; the user says what moved the run from outside. The user also says why a call failed
 * or was refused, so that the model can correct it. Arguments, payloads and errors appear as far as
 * the trail has them. Pure: it asks no store.
 *
 * @param trail oldest first, as `runs.history()` gives it
 */
export function trailToPrompts<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  trail: readonly TrailEntry[],
  { omit = [], tools = [] }: TrailPromptsOptions = {},
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
  const schemas = new Map(tools.map(({ name, inputSchema }) => [name, inputSchema]));
  const next = workflow.model.has(state) ? availableIn(workflow, state, [...schemas.keys()]) : [];
  const output = next.length === 0 ? undefined : outputFor(next, schemas);
  return { messages, state, output };
}

/** A trail names neither the run nor its data, so `visible` is asked without them. */
function availableIn(
  workflow: Workflow,
  state: string,
  listed: readonly string[],
): readonly string[] {
  const viewer = { run: undefined, principal: undefined, onError: () => {} };
  const sight = workflow.sight({ state }, viewer);
  const byGlob = listed.filter(
    (tool) => !workflow.names(tool) && workflow.isBound(tool) && workflow.isVisible(tool, state),
  );
  return [...workflow.available(state).filter((tool) => !isGlob(tool)), ...byGlob].filter(
    (tool) => sight?.hidden.has(workflow.keyOf(tool)) !== true,
  );
}

function omittedBy(names: readonly string[]): (entry: TrailEntry) => boolean {
  const omitted = new Set(names);
  return ({ tool, event }) =>
    (tool !== undefined && omitted.has(tool)) || (event !== null && omitted.has(event));
}

function messagesOf(entry: TrailEntry): TrailMessage[] {
  const { seq, tool, args, from, outcome, kind, errors = [], attempt } = entry;
  if (tool === undefined || outcome === undefined)
    return [{ role: 'user', content: moveWords(entry), seq }];
  const given = args === undefined ? '' : ` with ${JSON.stringify(args)}`;
  const called = `Called ${JSON.stringify(tool)}${given} in ${JSON.stringify(from)}`;
  if (outcome === 'succeeded')
    return [{ role: 'assistant', content: `${called}. ${endWords(entry)}`, seq }];
  const feedback = { role: 'user', content: feedbackWords(entry, tool), seq } as const;
  // Neither a question to the client nor an unknown outcome is a failure.
  const hasFailed = outcome === 'failed' || outcome === 'refused' || outcome === 'not_run';
  return [
    { role: 'assistant', content: `${called}.`, seq },
    hasFailed ? { ...feedback, failure: { type: kind ?? outcome, errors, attempt } } : feedback,
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
  const { outcome, kind, attempt, errors = [] } = entry;
  const why = kind === undefined ? '' : ` (${kind})`;
  const said = errors.length === 0 ? '' : `: ${errors.map((e) => JSON.stringify(e)).join('; ')}`;
  const name = JSON.stringify(tool);
  switch (outcome) {
    case 'failed':
      return `${name} failed${why}, attempt ${attempt}${said}. ${endWords(entry)}`;
    case 'refused':
      return `${name} was refused${why}${said}. ${endWords(entry)}`;
    case 'input_required':
      return `${name} asked for more input. ${endWords(entry)}`;
    case 'not_run':
      return `${name} did not run${why}. ${endWords(entry)}`;
    default:
      return `What ${name} came to is unknown${why}. ${endWords(entry)}`;
  }
}

function outputFor(
  tools: readonly string[],
  schemas: ReadonlyMap<string, ToolWithSchema['inputSchema']>,
): NextToolSchema {
  const oneOf = tools.map((tool, index) => {
    const place = `#/oneOf/${index}/properties/arguments`;
    const { $schema: _, ...schema } = { ...schemas.get(tool) };
    const own: ArgumentsSchema = { ...schemaAt(place, schema), type: 'object' };
    const isRequired = Array.isArray(own.required) && own.required.length > 0;
    return {
      properties: { tool: { const: tool }, arguments: own },
      required: isRequired ? (['tool', 'arguments'] as const) : (['tool'] as const),
    };
  });
  return { type: 'object', oneOf };
}

/** Keywords with a schema for each name, where a name may be that of a keyword. */
const NAMED: ReadonlySet<string> = new Set([
  ...['properties', 'patternProperties', 'dependentSchemas', 'dependencies'],
  ...['$defs', 'definitions'],
]);

/** Keywords whose values are data, which may look like schemas. */
const DATA: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples']);

/**
 * A schema as a part of another one, at `place`. There, a reference such as `#/$defs/card` counts
 * from the root of the whole (JSON Schema 2020-12, section 8.2.3.1), so `place` goes in front. A
 * schema with an `$id` is a root of its own, and stays as it is.
 */
function schemaAt(place: string, schema: Readonly<Record<string, unknown>>) {
  const { $id } = schema;
  if (typeof $id === 'string' && !$id.startsWith('#')) return schema;
  const eachOf = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(eachOf);
    return isTable(value) ? schemaAt(place, value) : value;
  };
  const moved = Object.entries(schema).map(([keyword, value]): [string, unknown] => {
    if (DATA.has(keyword)) return [keyword, value];
    if (keyword === '$ref' && typeof value === 'string' && /^#(\/|$)/.test(value))
      return [keyword, `${place}${value.slice(1)}`];
    if (!NAMED.has(keyword) || !isTable(value)) return [keyword, eachOf(value)];
    const named = Object.entries(value).map(([name, each]) => [name, eachOf(each)]);
    return [keyword, Object.fromEntries(named)];
  });
  return Object.fromEntries(moved);
}
