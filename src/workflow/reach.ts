import type { Binding } from './binding.ts';
import { type Machine, nextState } from './transition.ts';

/** How a state is reached by calling tools: the last tool of a shortest way, and the state before it. */
interface Arrival {
  /** Position in breadth-first order: of two arrivals the lower one is never farther. */
  readonly order: number;
  readonly last: { readonly tool: string; readonly from: string } | undefined;
}

/** A shortest way to every state that successful calls can reach from one state. */
export type Reach = ReadonlyMap<string, Arrival>;

/**
 * Searches the machine breadth first along the events that calls of bound tools send. Equally short ways are told
 * apart by the order in which the tools were bound.
 */
export function reachFrom(
  machine: Machine,
  tools: ReadonlyMap<string, readonly Binding[]>,
  start: string,
): Reach {
  const reach = new Map<string, Arrival>([[start, { order: 0, last: undefined }]]);
  // A map iterates over what is added meanwhile, so it is the queue as well.
  for (const from of reach.keys()) {
    for (const [tool, bindings] of tools) {
      for (const event of eventsPossible(bindings, from)) {
        const state = nextState(machine, from, event);
        if (!reach.has(state)) reach.set(state, { order: reach.size, last: { tool, from } });
      }
    }
  }
  return reach;
}

/** The tools to call, in order, for the nearest of `states`; `undefined` where none can be reached. */
export function shortestPath(reach: Reach, states: readonly string[]): readonly string[] | undefined {
  let nearest: Arrival | undefined;
  for (const state of states) {
    const arrival = reach.get(state);
    if (arrival !== undefined && arrival.order < (nearest?.order ?? Number.POSITIVE_INFINITY))
      nearest = arrival;
  }
  return nearest && pathOf(reach, nearest);
}

function pathOf(reach: Reach, arrival: Arrival): readonly string[] {
  const path: string[] = [];
  for (let last = arrival.last; last !== undefined; last = reach.get(last.from)?.last) path.push(last.tool);
  return Object.freeze(path.reverse());
}

/**
 * The events that some successful call of a tool sends in `state`. The first binding that is about a call decides, so
 * nothing after a binding that is about every call can.
 */
function eventsPossible(bindings: readonly Binding[], state: string): string[] {
  const senders = bindings.filter(({ states, success }) => success !== undefined && states.includes(state));
  const decisive = senders.findIndex(({ when }) => when === undefined);
  const possible = decisive === -1 ? senders : senders.slice(0, decisive + 1);
  return possible.flatMap(({ success }) => success ?? []);
}
