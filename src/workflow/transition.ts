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
