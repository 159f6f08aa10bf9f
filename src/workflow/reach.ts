import type { AnyBinding } from './binding.ts';
import type { BoundState, Model, Position } from './position.ts';

/** How a state is reached by calling tools: the last tool of a shortest way, and the state before it. */
interface Arrival {
  readonly position: Position;
  readonly last: { readonly tool: string; readonly from: string } | undefined;
}

/** A shortest way to every state that successful calls can reach from one state, nearest first. */
export type Reach = ReadonlyMap<string, Arrival>;

/** A statechart has more states than a search for a hint is worth. */
const MOST_COMBINATIONS = 200;

/**
 * Searches the machine breadth first along the events that calls of bound tools send. Equally short ways are told
 * apart by the order in which the tools were bound.
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
      for (const event of eventsPossible(model, bindings, from)) {
        const next = positionAfter(model, position, event);
        if (next !== undefined && !reach.has(next.state))
          reach.set(next.state, { position: next, last: { tool, from } });
      }
    }
  }
  return reach;
}

/** The tools to call, in order, for the nearest of `states`; `undefined` where none can be reached. */
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

/** A machine whose code does without the payload that there is not, or throws, leads nowhere. */
function positionAfter(model: Model, position: Position, event: string): Position | undefined {
  try {
    return model.next(position, event).position;
  } catch {
    return undefined;
  }
}

/**
 * The events that some successful call of a tool may send in `state`. The first binding that is about a call decides, so
 * nothing after a binding that is about every call can. A function may send whatever is handled there.
 */
function eventsPossible(
  model: Model,
  bindings: readonly AnyBinding[],
  state: string,
): readonly string[] {
  const senders = bindings.filter(
    (each) => each.success !== undefined && model.isIn(state, each.states),
  );
  const decisive = senders.findIndex(({ when }) => when === undefined);
  const possible = decisive === -1 ? senders : senders.slice(0, decisive + 1);
  return possible.flatMap(({ success }) =>
    typeof success === 'string' ? success : success === undefined ? [] : model.eventsIn(state),
  );
}
