import { InterlockError } from '../errors.ts';
import { rightNames } from '../names.ts';
import { isTable, showValue } from '../options.ts';
import type { Uncertain } from '../stores/store.ts';
import {
  type AnyBinding,
  type AnyEventSource,
  type CallTest,
  type Guard,
  isVisibleIn,
  namedEvents,
  senderIn,
} from './binding.ts';
import { resolveStates, showState } from './bound-states.ts';
import { isReserved } from './chart-tree.ts';
import type { BoundState, Model } from './position.ts';

/**
 * Checks a binding against the workflow.
 *
 * @returns the binding as the machine takes it: of a flat one, with plain names
 * @throws InterlockError `ERR_INTERLOCK_BINDING` as {@link resolveStates}; unless the machine is
 * flat, `ERR_INTERLOCK_EVENT` for an event that nothing in it handles
 */
export function checkBinding(model: Model, binding: AnyBinding): AnyBinding {
  const { tool } = binding;
  const states = resolveStates(model, `tool ${showValue(tool)}`, binding.states);
  const resolved = states === binding.states ? binding : Object.freeze({ ...binding, states });
  if (model.isFlat) return resolved;
  for (const event of namedEvents(binding)) {
    if (!isReserved(event) && model.handlers(event).length > 0) continue;
    const message = `workflow "${model.id}": tool ${showValue(tool)} sends ${showValue(event)}, which no state handles`;
    throw new InterlockError(
      'ERR_INTERLOCK_EVENT',
      `${message}; ${rightNames(event, model.events)}`,
    );
  }
  return resolved;
}

/** What is odd about a binding without being wrong. */
export interface Oddity {
  readonly code: 'tool-rebound' | 'event-unhandled';
  readonly tool: string;
  /** In a developer's words. */
  readonly message: string;
}

/**
 * What is odd about binding a tool again: the new bindings do not replace the old ones. That is
 * meant where `when` tells the calls apart, and within one declaration.
 */
export function rebindingWarnings(
  model: Model,
  known: readonly AnyBinding[],
  added: readonly AnyBinding[],
): Oddity[] {
  const isWhole = ({ when }: AnyBinding): boolean => when === undefined;
  if (!known.some(isWhole) || !added.some(isWhole)) return [];
  const [{ tool: name } = { tool: '' }] = known;
  const tool = showValue(name);
  const states = [...known, ...added].flatMap((binding) => binding.states);
  const names = new Set(states.map(showState));
  const message =
    `workflow "${model.id}": tool ${tool} is bound again, ` +
    'which adds to its binding and does not replace it: ' +
    `now it is available in ${[...names].join(', ')}. ` +
    `If that is meant, say it at once: bind(tool(${tool}).bindState(…).bindState(…))`;
  return [{ code: 'tool-rebound', tool: name, message }];
}

/**
 * What is odd about a binding without being wrong: an event that none of its states handles moves
 * nothing.
 */
export function bindingWarnings(model: Model, binding: AnyBinding): Oddity[] {
  const { tool } = binding;
  return namedEvents(binding).flatMap((event): Oddity[] => {
    const handling = model.handlers(event);
    if (model.canBeIn(binding.states, handling)) return [];
    const message = `workflow "${model.id}": tool ${showValue(tool)} sends ${showValue(event)}, which`;
    const why =
      handling.length === 0
        ? `no state handles; ${rightNames(event, model.events)}`
        : `none of its states handles; states that do are ${handling.map(showValue).join(', ')}`;
    return [{ code: 'event-unhandled', tool, message: `${message} ${why}` }];
  });
}

/** How one call of a bound tool is gated: all the bindings that are about it, added up. */
export interface CallBinding {
  /** The states in which the call is allowed. */
  readonly states: readonly BoundState[];
  /** Whether its outcome can move the run. */
  readonly moves: boolean;
  /**
   * What its outcome sends in `state`, if anything: an event, or a function that says which.
   * Default: that of a success.
   */
  eventIn(state: string, outcome?: 'success' | 'failure'): AnyEventSource | undefined;
  /** How many failures leave the run in `state`, before the next one sends its event. */
  retriesIn(state: string): number;
  /** The functions among what its outcomes may send. */
  readonly sources: readonly Exclude<AnyEventSource, string>[];
  /** Each of them must let the call through. */
  readonly guards: readonly Guard[];
  /** The bindings, where one of them says who sees the tool. */
  readonly veils: readonly AnyBinding[] | undefined;
  /**
   * What the bindings say about an outcome that nobody saw: `'hold'` where one of them does,
   * `'retry'` where all of them do, else `undefined`.
   */
  readonly uncertain: Uncertain | undefined;
}

/** Adds bindings up. There must be at least one. */
export function combine(model: Model, bindings: readonly AnyBinding[]): CallBinding {
  return Object.freeze({
    states: Object.freeze([...new Set(bindings.flatMap(({ states }) => states))]),
    moves: bindings.some(({ success, failure }) => success !== undefined || failure !== undefined),
    eventIn: (state: string, outcome: 'success' | 'failure' = 'success') =>
      senderIn(model, bindings, state, outcome)?.[outcome],
    retriesIn: (state: string) => senderIn(model, bindings, state, 'failure')?.retries ?? 0,
    sources: Object.freeze(
      bindings
        .flatMap(({ success, failure }) => [success, failure])
        .filter((source) => typeof source === 'function'),
    ),
    guards: Object.freeze(bindings.flatMap(({ guard }) => guard ?? [])),
    veils: bindings.some(({ visible }) => visible !== undefined) ? bindings : undefined,
    uncertain: strictest(bindings),
  });
}

/**
 * The bindings that are about a call with these arguments. No arguments are taken as `{}`.
 *
 * @throws Error where that cannot be told: the arguments are no object, or a `when` throws or
 * returns no boolean. The call must be refused then.
 */
export function bindingsOfCall(
  bindings: readonly AnyBinding[],
  args: unknown,
): readonly AnyBinding[] {
  return bindings.filter(({ tool, when }) => when === undefined || passes(tool, when, args ?? {}));
}

function passes(tool: string, when: CallTest, args: unknown): boolean {
  if (!isTable(args))
    throw new Error(
      `the arguments of tool ${showValue(tool)} are ${showValue(args)}, not an object`,
    );
  const answer: unknown = when(args);
  if (typeof answer === 'boolean') return answer;
  // A promise that nobody waits for would end the process if it were rejected.
  Promise.resolve(answer).catch(() => {});
  throw new Error(
    `a "when" of tool ${showValue(tool)} returned ${showValue(answer)}, not a boolean`,
  );
}

function strictest(bindings: readonly AnyBinding[]): Uncertain | undefined {
  if (bindings.some(({ uncertain }) => uncertain === 'hold')) return 'hold';
  return bindings.every(({ uncertain }) => uncertain === 'retry') ? 'retry' : undefined;
}

/** The tools that are gated in one and the same way whatever their arguments. */
export function combineUnconditional(
  model: Model,
  tools: ReadonlyMap<string, readonly AnyBinding[]>,
): Map<string, CallBinding> {
  const always = [...tools].filter(([, bindings]) =>
    bindings.every(({ when }) => when === undefined),
  );
  return new Map(always.map(([tool, bindings]) => [tool, combine(model, bindings)]));
}

/** The bound tools that are shown in a state. States that show the same tools share one. */
interface ToolView {
  readonly list: readonly string[];
  readonly set: ReadonlySet<string>;
}

const NOTHING: ToolView = { list: Object.freeze([]), set: new Set() };

/** A statechart's states are combinations: a process remembers no more of them than this. */
const MOST_VIEWS = 10_000;

/** What each state shows, worked out once. */
export class ToolViews {
  readonly #model: Model;
  readonly #tools: ReadonlyMap<string, readonly AnyBinding[]>;
  readonly #byState = new Map<string, ToolView>();
  readonly #byTools = new Map<string, ToolView>([['[]', NOTHING]]);

  constructor(model: Model, tools: ReadonlyMap<string, readonly AnyBinding[]>) {
    this.#model = model;
    this.#tools = tools;
  }

  /** An unknown state shows nothing. */
  of(state: string): ToolView {
    const known = this.#byState.get(state);
    if (known !== undefined) return known;
    if (!this.#model.has(state)) return NOTHING;
    const shown = [...this.#tools].filter(([, bindings]) =>
      isVisibleIn(this.#model, bindings, state),
    );
    const view = this.#shared(shown.map(([tool]) => tool));
    if (this.#byState.size >= MOST_VIEWS) this.#byState.clear();
    this.#byState.set(state, view);
    return view;
  }

  #shared(list: readonly string[]): ToolView {
    const key = JSON.stringify(list);
    const view = this.#byTools.get(key) ?? { list: Object.freeze(list), set: new Set(list) };
    this.#byTools.set(key, view);
    return view;
  }
}
