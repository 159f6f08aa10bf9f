import type { Model, Next, Position } from './position.ts';
import { eventsOf, type Machine, statesHandling } from './transition.ts';

/** A flat machine, run by the engine of our own. */
export function flatModel(machine: Machine): Model {
  const { id, initial, states } = machine;
  const names = Object.freeze([...states.keys()]);
  return {
    id,
    start: Object.freeze({ state: initial }),
    startActions: [],
    names,
    tags: [],
    isFlat: true,
    events: [...eventsOf(machine)],
    deadline: (state) => states.get(state)?.after,
    deadlines: names.filter((name) => states.get(name)?.after !== undefined),
    has: (state) => states.has(state),
    isFinal: (state) => states.get(state)?.isFinal === true,
    isIn: (state, bound) => bound.includes(state),
    eventsIn: (state) => [...(states.get(state)?.on.keys() ?? [])],
    handlers: (event) => statesHandling(machine, event),
    canBeIn: (bound, others) => others.some((state) => bound.includes(state)),
    // Its transitions have no guards.
    isStopped: () => false,
    next: (position, event) => next(machine, position, event),
  };
}

function next({ states }: Machine, position: Position, event: string): Next {
  const target = states.get(position.state)?.on.get(event);
  if (target === undefined) return { position, changed: false, handled: false, actions: [] };
  const changed = target !== position.state;
  return {
    position: changed ? { ...position, state: target } : position,
    changed,
    handled: true,
    actions: [],
  };
}
