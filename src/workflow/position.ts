import type { Json } from '../stores/store.ts';
import type { ChartTree } from './chart-tree.ts';

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

/**
 * Something that a statechart asks to be done. It names it only: `onAction` does it, after the move
 * was saved.
 */
export interface FsmAction {
  readonly type: string;
  readonly params?: Json;
}

/** What an event does to a position. */
export interface Next {
  readonly position: Position;
  /** Whether the state is another one. The context may be another one all the same. */
  readonly changed: boolean;
  /** Whether there was a transition for the event. */
  readonly handled: boolean;
  /** In the order in which the machine names them. */
  readonly actions: readonly FsmAction[];
}

/** The states of a statechart that carry this tag. */
export interface StateTag<T extends string = string> {
  readonly tag: T;
}

/**
 * What a binding may say of a run: that it is in a state (of a statechart also in one around it),
 * in one that carries a tag, in all of several, in any of several, not in one; or `'*'`, in
 * whichever.
 */
export type StateExpression<S extends string = string, T extends string = string> =
  | S
  | '*'
  | StateTag<T>
  | { readonly all: readonly StateExpression<S, T>[] }
  | { readonly any: readonly StateExpression<S, T>[] }
  | { readonly not: StateExpression<S, T> };

/** The same, where nobody asks any more what the names are. */
export type BoundState = StateExpression;

/** The state or states of a binding; of several, one is enough. */
export type BoundStates<S extends string, T extends string> =
  | StateExpression<S, T>
  | readonly StateExpression<S, T>[];

/**
 * What there is to know about a machine, whether it is flat or a statechart. Pure, and unchanging.
 */
export interface Model {
  readonly id: string;
  /** Where every run begins. */
  readonly start: Position;
  /** What entering the first states asks to be done, for every run once. */
  readonly startActions: readonly FsmAction[];
  /**
   * What a binding may name: the states of a flat machine, the path of each state of a statechart.
   */
  readonly names: readonly string[];
  readonly tags: readonly string[];
  /** Whether the names are all the states that a run can be in, so that a store can test them. */
  readonly isFlat: boolean;
  /** Its states, one inside the other. Of a statechart only. */
  readonly chart?: ChartTree;
  /** Every event that is handled somewhere. Of a statechart it may end in a wildcard. */
  readonly events: readonly string[];
  /** When a run leaves the state by itself, if it does. */
  deadline(state: string): Deadline | undefined;
  /** The states that have one. */
  readonly deadlines: readonly string[];
  /** Whether a run can be in this state. */
  has(state: string): boolean;
  /** Whether a run in this state has come to its end. Never in an unknown state. */
  isFinal(state: string): boolean;
  /** Whether one of `bound` is true of a run in `state`. Never in an unknown state. */
  isIn(state: string, bound: readonly BoundState[]): boolean;
  /** The events that can be handled in a run's state, as far as the state alone can tell. */
  eventsIn(state: string): readonly string[];
  /** What handles the event at all, in the order of the definition; `['*']` where any state does. */
  handlers(event: string): readonly string[];
  /**
   * Whether there may be a state in which one of `bound` is true, and one of `names` as well. Of
   * machines with too many states to look at, that is said of what no look can tell.
   */
  canBeIn(bound: readonly BoundState[], names: readonly string[]): boolean;
  /**
   * Whether the state handles the event, and each of its transitions for it has a guard that says
   * no: without a payload, and as the run's data are now. Not where it does not handle the event at
   * all.
   *
   * @throws Error where a guard throws
   */
  isStopped(position: Position, event: string): boolean;
  /**
   * @param memory what rules of order remember of the call that sends the event
   * @throws Error where the machine's own code throws, or asks for what has no pure form
   */
  next(position: Position, event: string, payload?: Json, memory?: unknown): Next;
  /** What is done in a state; `undefined` in an unknown one. Of rules of order only. */
  doneIn?(state: string): readonly string[] | undefined;
  /** Which names an event makes true and which ones false. Of rules of order only. */
  effectOf?(event: string): {
    readonly adds: string | undefined;
    readonly removes: readonly string[];
  };
}

/**
 * A validated workflow definition: what {@link FsmConfig} says, copied so that nobody can change
 * it.
 */
export interface Machine {
  readonly id: string;
  readonly initial: string;
  readonly states: ReadonlyMap<string, MachineState>;
}

export interface MachineState {
  /** Where each event leads that this state handles. */
  readonly on: ReadonlyMap<string, string>;
  /** Where it leads by itself, and after how long. */
  readonly after?: Deadline;
  readonly isFinal: boolean;
}

/** A state that is left by itself. */
export interface Deadline {
  /** How long after it was entered, in milliseconds. */
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
  /** The key of the run that moved; absent where a standalone gate did. */
  run?: string;
}

/** The states that handle `event`, in the order of the definition. */
export function statesHandling(machine: Machine, event: string): string[] {
  return [...machine.states].filter(([, { on }]) => on.has(event)).map(([name]) => name);
}

/** Every event that some state handles. */
export function eventsOf(machine: Machine): Set<string> {
  return new Set([...machine.states.values()].flatMap(({ on }) => [...on.keys()]));
}
