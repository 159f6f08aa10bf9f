/**
 * A trail as a conversation for a model: hides which entries a model must see, who says each of
 * them, and in which words.
 */
import type { TrailEntry } from '../stores/store.ts';
import type { StateMachineGate } from './gate.ts';
import type { Workflow } from './workflow.ts';

/** One thing that happened, as it is told to a model. */
export interface TrailMessage {
  /** `assistant`: what the model called. `user`: what came of a failure, and what others did. */
  readonly role: 'assistant' | 'user';
  readonly content: string;
  /** The entry's place in the trail. */
  readonly seq: number;
}

/** What the model is to answer with: one of the tools that are available, by its name. */
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

/** A conversation that a model can go on with. */
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
   * What the model is not to see: names of tools or events, or a function that is given an entry.
   * An entry is also left out where the move that led to its state is: the model would be told
   * where it went from, and not how it came there. Default: nothing.
   */
  readonly omit?: readonly string[] | ((entry: TrailEntry) => boolean) | undefined;
}

/**
 * Makes a conversation of a trail, for a model that is to go on with the run. A call is the
 * assistant's; whatever moved the run from outside is the user's. What a call failed with is told
 * to the model as the user's answer, so that it can do better. Of arguments and payloads it says
 * what the trail has. Pure: it asks no store.
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

/** A trail says neither whose run it is nor what its data are, so `visible` is asked of nobody. */
function availableIn(workflow: Workflow, state: string): readonly string[] {
  const viewer = { run: undefined, principal: undefined, onError: () => {} };
  const sight = workflow.sight({ state }, viewer);
  return workflow.available(state).filter((tool) => sight?.hidden.has(tool) !== true);
}

function omittedBy(names: readonly string[]): (entry: TrailEntry) => boolean {
  const omitted = new Set(names);
  return ({ tool, event }) =>
    (tool !== undefined && omitted.has(tool)) || (event !== null && omitted.has(event));
}

function messagesOf(entry: TrailEntry): TrailMessage[] {
  const { seq, tool, args, from, outcome } = entry;
  if (tool === undefined || outcome === undefined)
    return [{ role: 'user', content: moved(entry), seq }];
  const given = args === undefined ? '' : ` with ${JSON.stringify(args)}`;
  const called = `Called ${JSON.stringify(tool)}${given} in ${JSON.stringify(from)}`;
  if (outcome === 'succeeded')
    return [{ role: 'assistant', content: `${called}. ${arrived(entry)}`, seq }];
  return [
    { role: 'assistant', content: `${called}.`, seq },
    { role: 'user', content: feedback(entry, tool), seq },
  ];
}

function moved(entry: TrailEntry): string {
  const { event, payload } = entry;
  const said = payload === undefined ? '' : ` with ${JSON.stringify(payload)}`;
  const what = event === null ? 'The run was changed' : `${JSON.stringify(event)} happened${said}`;
  return `${what}. ${arrived(entry)}`;
}

function arrived({ from, to }: TrailEntry): string {
  const state = JSON.stringify(to ?? from);
  return to === undefined || to === from
    ? `The run is still in ${state}.`
    : `The run is in ${state} now.`;
}

/** What a model is told of a call that did not succeed. */
function feedback(entry: TrailEntry, tool: string): string {
  const { outcome, kind, attempt } = entry;
  const why = kind === undefined ? '' : ` (${kind})`;
  const name = JSON.stringify(tool);
  switch (outcome) {
    case 'failed':
      return `${name} failed${why}, attempt ${attempt}. ${arrived(entry)}`;
    case 'refused':
      return `${name} was refused${why}. ${arrived(entry)}`;
    case 'input_required':
      return `${name} asked for more input. ${arrived(entry)}`;
    case 'not_run':
      return `${name} did not run${why}. ${arrived(entry)}`;
    default:
      return `What ${name} came to is unknown${why}. ${arrived(entry)}`;
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
