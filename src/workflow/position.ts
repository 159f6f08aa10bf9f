/**
 * Where a run stands, and what may be said of that: hides how expressions of states are read,
 * checked, worked out and put into words.
 */
import { distinct } from '../basics/collections.ts';
import { InterlockError, type InterlockErrorCode } from '../basics/errors.ts';
import { rightNames } from '../basics/names.ts';
import { isTable, showValue } from '../basics/options.ts';
import type { Json, TrailOutcome } from '../stores/store.ts';
import type { ChartTree } from './chart.ts';
import type { Decided } from './facts.ts';
import type { Ledger } from './ledger.ts';
import type { Past } from './verdict.ts';

/** Where a run stands: its snapshot without what the store keeps beside it. */
export interface Position {
  /**
   * The state of a flat machine; of a statechart the text of all its active states, such as
   * `order.(billing.due|packing.started)`.
   */
  readonly state: string;
  /** What the workflow needs to go on beside its state. Absent where there is nothing. */
  readonly context?: Json;
}

/** An action that a statechart names. `onAction` does it, after the move was saved. */
export interface FsmAction {
  readonly type: string;
  readonly params?: Json;
}

/** What an event does to a position. */
export interface Next {
  readonly position: Position;
  /** Whether the state is another one. The context may have changed even where this is `false`. */
  readonly changed: boolean;
  /** Whether a transition took the event. */
  readonly handled: boolean;
  /** Whether a flat machine left its state and entered it again. Default: no. */
  readonly reentered?: boolean;
  /** In the machine's order. */
  readonly actions: readonly FsmAction[];
}

/** The states of a statechart that carry this tag. */
export interface StateTag<T extends string = string> {
  readonly tag: T;
}

/**
 * Where a binding wants a run to be:
 * - a name: in that state, or for a statechart in any state inside it;
 * - `'*'`: in any state;
 * - `{ tag }`: in a state with that tag;
 * - `{ all }`, `{ any }` and `{ not }`: all of these, any of these, or not this.
 */
export type StateExpression<S extends string = string, T extends string = string> =
  | S
  | '*'
  | StateTag<T>
  | { readonly all: readonly StateExpression<S, T>[] }
  | { readonly any: readonly StateExpression<S, T>[] }
  | { readonly not: StateExpression<S, T> };

/** An expression once its names are checked, so that their types no longer matter. */
export type BoundState = StateExpression;

/** The state or states of a binding. Of several, one is enough. */
export type BoundStates<S extends string, T extends string> =
  | StateExpression<S, T>
  | readonly StateExpression<S, T>[];

/** A machine of any kind: flat, a statechart, or rules of order. Pure, and it never changes. */
export interface Model {
  readonly id: string;
  /** Where every run begins. */
  readonly start: Position;
  /** The actions of entering the first states, once for every run. */
  readonly startActions: readonly FsmAction[];
  /**
   * What a binding may name: the states of a flat machine, the path of each state of a statechart.
   */
  readonly names: readonly string[];
  readonly tags: readonly string[];
  /** Whether the names are all the states that a run can be in, so that a store can test them. */
  readonly isFlat: boolean;
  /** The nested states of a statechart. Absent for other machines. */
  readonly chart?: ChartTree;
  /** Every event that some state handles. In a statechart it may end in a wildcard. */
  readonly events: readonly string[];
  /** When a run leaves the state by itself; `undefined` where it never does. */
  deadline(state: string): Deadline | undefined;
  /** The states that have one. */
  readonly deadlines: readonly string[];
  /** Whether a run can be in this state. */
  has(state: string): boolean;
  /**
   * For a statechart only: the text of all states that are active where a run enters the state of
   * this path; `undefined` where there is none.
   */
  entered?(path: string): string | undefined;
  /** Whether a run in this state has come to its end. Never in an unknown state. */
  isFinal(state: string): boolean;
  /** Whether one of `bound` is true in `state`. Never in an unknown state. */
  isIn(state: string, bound: readonly BoundState[]): boolean;
  /** The events that a run's state may handle; a guard may still stop them. */
  eventsIn(state: string): readonly string[];
  /** The states that handle the event, in the order of the definition; `['*']` for any state. */
  handlers(event: string): readonly string[];
  /**
   * Whether one of `bound` and one of `names` can be true in the same state. Where the machine has
   * too many states to try them all, the answer is `true`.
   */
  canBeIn(bound: readonly BoundState[], names: readonly string[]): boolean;
  /**
   * Whether guards stop every transition that the state has for the event: without a payload, and
   * with the run's current data. `false` where the state does not handle the event.
   *
   * @throws Error where a guard throws
   */
  isStopped(position: Position, event: string): boolean;
  /**
   * @param call for rules: the call that sends the event, as a {@link Decided}
   * @throws Error where the machine's own code throws, or asks for what has no pure form
   */
  next(position: Position, event: string, payload?: Json, call?: Decided): Next;
  /**
   * Where transitions without an event lead from a position that was given other data. Absent where
   * there are none.
   *
   * @throws Error as {@link next}
   */
  settle?(position: Position): Next;
  /** What rules have a machine's runs, or their own, keep of calls. */
  readonly ledger?: Ledger | undefined;
  /**
   * For rules only: whether a run of any build may have this text as its state. It is for people:
   * where the run stands follows from its facts.
   */
  mayStore?(state: string): boolean;
  /** For rules only: what holds in a state; `undefined` for an unknown state. */
  doneIn?(state: string): readonly string[] | undefined;
  /** For rules only: what the end of a call does to the names that hold. */
  changesOf?(tool: string, end: EndKind): Changes;
  /** For rules only: whether a name in a state may come to hold, or not, by time alone. */
  isTimed?(name: string): boolean;
  /**
   * For rules only: whether a state may have become another one by a move, or without one by time
   * alone. What depends on values, counts and times may hold afterwards or not.
   */
  mayBecome?(before: string, after: string, move?: EntryMove): boolean;
  /** For rules only: the tools whose success a tool undoes. */
  undoneBy?(tool: string): readonly string[];
  /** For rules only: a position that was saved at a time, with what holds at another one. */
  standAt?(position: Position, now: number, unknown?: Past['unknown']): Position;
  /** For rules only: the position with a call that has ended, also one that failed. */
  decided?(position: Position, call: Decided): Position;
  /** For rules only: what its run did before, at a time. */
  pastOf?(position: Position, now: number, unknown?: Past['unknown']): Past | undefined;
}

/** A move, as its entry in a trail records it. */
export interface EntryMove {
  readonly event: string | null;
  readonly tool?: string | undefined;
  readonly outcome?: TrailOutcome | undefined;
}

/**
 * How a call ended. `sent`: an event from outside, or the failure of another tool, counts as it.
 */
export type EndKind = 'succeeded' | 'failed' | 'sent';

/** What may hold or not after a call. */
export interface MayChange {
  readonly name: string;
  readonly turn: 'values' | 'a count';
  /** How it is where nothing but the order of calls has a say, or a call is closed soonest. */
  readonly isUsual: boolean;
}

/** What the end of a call does to what holds: all that is known of it without the run's facts. */
export interface Changes {
  /** What surely holds afterwards. */
  readonly adds: readonly string[];
  readonly mayAdd: readonly MayChange[];
  /** What surely does not, unless it is in `adds`. */
  readonly removes: readonly string[];
  readonly mayRemove: readonly MayChange[];
}

/** When a run leaves a state by itself, and to which state. */
export interface Deadline {
  /** How long after the run entered the state, in milliseconds. */
  readonly ms: number;
  readonly target: string;
}

/** What sending an event did. */
export interface TransitionResult<S extends string = string> {
  /**
   * Whether the state is another one now. An event that the state does not handle changes nothing.
   */
  changed: boolean;
  previousState: S;
  currentState: S;
}

/** A change of state as `onTransition` callbacks see it. */
export interface Move<S extends string = string> extends TransitionResult<S> {
  /** The event that led to it. */
  event: string;
  /** The key of the run that moved; absent where a standalone gate moved. */
  run?: string;
}

/** Means any state. No state of a machine may have this name. */
export const ANY_STATE = '*';

/** A name or a tag in an expression. */
type Atom = string | StateTag;

/** Whether an expression is true, given which names and tags are. */
export function holds(expression: BoundState, isTrue: (atom: Atom) => boolean): boolean {
  if (typeof expression === 'string') return expression === ANY_STATE || isTrue(expression);
  if ('all' in expression) return expression.all.every((each) => holds(each, isTrue));
  if ('any' in expression) return expression.any.some((each) => holds(each, isTrue));
  if ('not' in expression) return !holds(expression.not, isTrue);
  return isTrue(expression);
}

/** The names and tags in an expression. */
export function atomsOf(expression: BoundState): readonly Atom[] {
  if (typeof expression === 'string' || 'tag' in expression) return [expression];
  if ('not' in expression) return atomsOf(expression.not);
  return ('all' in expression ? expression.all : expression.any).flatMap(atomsOf);
}

/** The names in a value that may be an expression; {@link parseStates} refuses any other value. */
export function namesIn(value: unknown): readonly string[] {
  if (typeof value === 'string') return [value];
  if (!isTable(value)) return [];
  const { all, any: some, not } = value;
  return [all, some]
    .flatMap((each) => (Array.isArray(each) ? each : []))
    .concat(not ?? [])
    .flatMap(namesIn);
}

/**
 * A frozen copy of a binding's states.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` unless it is one expression, or a list of them
 */
export function parseStates(what: string, states: unknown): readonly BoundState[] {
  const list: readonly unknown[] = Array.isArray(states) ? states : [states];
  const parsed = (list.length === 0 ? [states] : list).map((each) => parseExpression(what, each));
  return Object.freeze(distinct(parsed));
}

/** A frozen copy of one expression. @throws InterlockError with `code` unless it is one */
export function parseExpression(
  what: string,
  value: unknown,
  code: InterlockErrorCode = 'ERR_INTERLOCK_BINDING',
): StateExpression {
  if (typeof value === 'string') return value;
  const entries = isTable(value) ? Object.entries(value) : [];
  const [[key, inner] = ['', undefined]] = entries;
  if (entries.length === 1) {
    if (key === 'tag' && typeof inner === 'string') return Object.freeze({ tag: inner });
    if (key === 'not') return Object.freeze({ not: parseExpression(what, inner, code) });
    if ((key === 'all' || key === 'any') && Array.isArray(inner) && inner.length > 0) {
      const parts = Object.freeze(inner.map((each) => parseExpression(what, each, code)));
      return Object.freeze(key === 'all' ? { all: parts } : { any: parts });
    }
  }
  const keys = Object.entries(isTable(value) ? value : {});
  const inside = keys.map(([name, each]) => `${name}: ${showValue(each)}`).join(', ');
  const got = keys.length === 0 ? showValue(value) : `{ ${inside} }`;
  const right = 'a name, { tag }, { all: […] }, { any: […] } or { not: … }';
  throw new InterlockError(
    code,
    `${what}: expected one state or more${isTable(value) ? `: ${right}` : ''}, got ${got}`,
  );
}

/**
 * A binding's states as the machine takes them: a flat machine takes plain names only.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for an unknown state or tag, and for an expression
 * that is true in no state of the workflow
 */
export function resolveStates(
  model: Model,
  what: string,
  states: readonly BoundState[],
): readonly BoundState[] {
  for (const state of states) {
    const fault = stateFault(model, state);
    if (fault !== undefined)
      throw new InterlockError('ERR_INTERLOCK_BINDING', `${what} is bound to ${fault}`);
  }
  if (!model.isFlat || states.every((each) => isName(model, each))) return states;
  const named = states.flatMap((each) =>
    isName(model, each) ? [each] : model.names.filter((name) => model.isIn(name, [each])),
  );
  return Object.freeze([...new Set(named)]);
}

function isName(model: Model, state: BoundState): boolean {
  return typeof state === 'string' && model.names.includes(state);
}

/** Why the workflow can never be in `state`, in words; `undefined` where it can. */
export function stateFault(model: Model, state: BoundState): string | undefined {
  for (const atom of atomsOf(state)) {
    const [name, known, kind] =
      typeof atom === 'string' ? [atom, model.names, 'state'] : [atom.tag, model.tags, 'tag'];
    if (atom === ANY_STATE || isAmong(name, known)) continue;
    const fault = `${showValue(name)}, which is no ${kind} of workflow "${model.id}"`;
    return `${fault}, ${rightNames(name, known)}`;
  }
  const isAtom = typeof state === 'string' || 'tag' in state;
  if (isAtom || model.canBeIn([state], [ANY_STATE])) return undefined;
  return `${showState(state)}, which is true in no state of workflow "${model.id}"`;
}

/** The names of each machine, which are many where rules are. */
const sets = new WeakMap<readonly string[], ReadonlySet<string>>();

function isAmong(name: string, names: readonly string[]): boolean {
  const set = sets.get(names) ?? new Set(names);
  sets.set(names, set);
  return set.has(name);
}

/** An expression in words for developers. */
export function showState(state: BoundState): string {
  if (typeof state === 'string') return showValue(state);
  if ('tag' in state) return `tag ${showValue(state.tag)}`;
  if ('not' in state) return `{ not: ${showState(state.not)} }`;
  const [word, parts] = 'all' in state ? ['all', state.all] : ['any', state.any];
  return `{ ${word}: [${parts.map(showState).join(', ')}] }`;
}

/** How words for a model name a place. */
export interface Preposition {
  readonly word: string;
  readonly say: (name: string) => string;
  readonly quote: (tag: string) => string;
}

/** Where an expression is true: `in "a" and "b"`, `in "a" or not in "b"`, `after pay`. */
export function stateWords(states: readonly BoundState[], at: Preposition): string {
  const [only, ...others] = states;
  return only !== undefined && others.length === 0 ? place(only, at) : places(states, 'or', at);
}

function place(state: BoundState, at: Preposition): string {
  if (state === ANY_STATE) return 'in any state';
  if (typeof state === 'string') return `${at.word} ${at.say(state)}`;
  if ('tag' in state) return `in a state with the tag ${at.quote(state.tag)}`;
  if ('all' in state) return places(state.all, 'and', at);
  if ('any' in state) return places(state.any, 'or', at);
  const { not } = state;
  const isAtom = typeof not === 'string' || 'tag' in not;
  return isAtom ? `not ${place(not, at)}` : `not (${place(not, at)})`;
}

/** Leaves the preposition out where the place before has the same: `in "a" or "b"`. */
function places(states: readonly BoundState[], word: 'and' | 'or', at: Preposition): string {
  const said = states.map((each) => {
    const isGroup = typeof each === 'object' && ('all' in each || 'any' in each);
    return isGroup && states.length > 1 ? `(${place(each, at)})` : place(each, at);
  });
  const start = `${at.word} `;
  const isSaid = (text: string, i: number): boolean =>
    i > 0 && text.startsWith(start) && said[i - 1]?.startsWith(start) === true;
  return said
    .map((text, i) => (isSaid(text, i) ? text.slice(start.length) : text))
    .join(` ${word} `);
}
