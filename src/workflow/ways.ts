import type { AnyBinding } from './binding.ts';
import type { BoundState, Model, Position } from './position.ts';

/**
 * How a state is reached by calling tools: the last tool of a shortest way, and the state before
 * it.
 */
interface Arrival {
  readonly position: Position;
  readonly last: { readonly tool: string; readonly from: string } | undefined;
}

/** A shortest way to every state that successful calls can reach from one state, nearest first. */
export type Reach = ReadonlyMap<string, Arrival>;

/** A statechart has more states than a search for a hint is worth. */
const MOST_COMBINATIONS = 200;

/** Where a successful call of a tool may lead. */
export interface Leads {
  /** The other states that it may lead to. */
  readonly to: readonly Position[];
  /** Whether it may also leave the run in its state. */
  readonly mayStay: boolean;
}

/**
 * Searches the machine breadth first along the events that calls of bound tools send. Equally short
 * ways are told apart by the order in which the tools were bound.
 */
export function reachFrom(
  model: Model,
  tools: ReadonlyMap<string, readonly AnyBinding[]>,
  start: Position,
): Reach {
  const reach = new Map<string, Arrival>([[start.state, { position: start, last: undefined }]]);
  // A map iterates over what is added meanwhile, so it is the queue as well.
  for (const [from, { position }] of reach) {
    if (!model.isFlat && reach.size > MOST_COMBINATIONS) break;
    for (const [tool, bindings] of tools) {
      for (const next of leadsOf(model, bindings, position)?.to ?? []) {
        if (!reach.has(next.state)) reach.set(next.state, { position: next, last: { tool, from } });
      }
    }
  }
  return reach;
}

/**
 * Where a successful call of a tool with these bindings may lead; `undefined` where none is
 * allowed. The first binding that is about a call decides, so nothing after a binding that is about
 * every call can. A function may send whatever is handled there.
 */
export function leadsOf(
  model: Model,
  bindings: readonly AnyBinding[],
  from: Position,
): Leads | undefined {
  const open = bindings.filter(({ states }) => model.isIn(from.state, states));
  const senders = open.filter(({ success }) => success !== undefined);
  const decisive = senders.findIndex(({ when }) => when === undefined);
  const possible = decisive === -1 ? senders : senders.slice(0, decisive + 1);
  const to: Position[] = [];
  let mayStay = decisive === -1 && senders.length < open.length;
  for (const { success } of possible) {
    const isNamed = typeof success === 'string';
    mayStay ||= !isNamed;
    for (const event of isNamed ? [success] : model.eventsIn(from.state)) {
      const next = positionAfter(model, from, event, isNamed);
      if (next === 'stays') mayStay = true;
      else if (next !== undefined) to.push(next);
    }
  }
  return to.length > 0 || mayStay ? { to, mayStay } : undefined;
}

/**
 * The tools to call, in order, for the nearest of `states`; `undefined` where none can be reached.
 */
export function shortestPath(
  model: Model,
  reach: Reach,
  states: readonly BoundState[],
): readonly string[] | undefined {
  for (const [state, arrival] of reach) {
    if (model.isIn(state, states)) return pathOf(reach, arrival);
  }
  return undefined;
}

function pathOf(reach: Reach, arrival: Arrival): readonly string[] {
  const path: string[] = [];
  for (let last = arrival.last; last !== undefined; last = reach.get(last.from)?.last)
    path.push(last.tool);
  return Object.freeze(path.reverse());
}

/**
 * A machine whose code cannot do without the payload that there is not, or throws, leads nowhere.
 * An event that is known before the call, and that the machine's guards stop, has the call refused.
 */
function positionAfter(
  model: Model,
  from: Position,
  event: string,
  isKnown: boolean,
): Position | 'stays' | undefined {
  try {
    if (isKnown && model.isStopped(from, event)) return undefined;
    const { position } = model.next(from, event);
    return position.state === from.state ? 'stays' : position;
  } catch {
    return isKnown ? undefined : 'stays';
  }
}

/** What is known of the ways to a place. */
export interface Way {
  /** The tools to call, in order; `undefined` where no way is known. */
  readonly path: readonly string[] | undefined;
  /** Whether no path means no way. */
  readonly foreseen: boolean;
}

/** Where a tool is to be found, and what it takes to get there from the start of a run. */
export interface Whereabouts extends Way {
  readonly workflow: string;
  readonly states: readonly BoundState[];
  /** Whether only some calls of the tool are gated. */
  readonly isGrouped: boolean;
}

/** `wayTo` says how such states are reached from the start of a run. */
export function whereaboutsOf(
  workflow: string,
  bindings: readonly Pick<AnyBinding, 'states' | 'when'>[],
  wayTo: (states: readonly BoundState[]) => Way,
): Whereabouts {
  const named = bindings.flatMap((binding) => binding.states);
  const states = named.filter(
    (state, index) => named.findIndex((each) => isSame(each, state)) === index,
  );
  return {
    workflow,
    states,
    ...wayTo(states),
    isGrouped: bindings.every(({ when }) => when !== undefined),
  };
}

function isSame(a: BoundState, b: BoundState): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
