/**
 * Ways from state to state by calls of bound tools: hides how the shortest one is found, and what
 * is kept of each search.
 */
import { distinct, memoise } from '../basics/collections.ts';
import { lazily } from '../basics/options.ts';
import { type AnyBinding, eventsSent, isChosen } from './binding.ts';
import type { BoundState, Model, Position } from './position.ts';

/** What a search has come to, and the call that led there first. */
export interface Reached {
  readonly last: { readonly tool: string; readonly from: Reached } | undefined;
}

/** The tools to call, in order, from where the search began. */
export function toolsTo(end: Reached): readonly string[] {
  const tools: string[] = [];
  for (let { last } = end; last !== undefined; last = last.from.last) tools.push(last.tool);
  return Object.freeze(tools.reverse());
}

interface Arrival extends Reached {
  readonly position: Position;
}

/** What successful calls can reach from one state. */
interface Reach {
  /** Every state in reach, nearest first. */
  readonly arrivals: ReadonlyMap<string, Arrival>;
  /** Paths found before, by the list of states itself: a binding always has the same list. */
  readonly paths: WeakMap<readonly BoundState[], { readonly path: readonly string[] | undefined }>;
}

/**
 * How many entries of each kind are kept. With very many tools or states, the rest is found anew.
 */
const MOST_KEPT = 100_000;

/** A statechart may have more states than a hint is worth looking at. */
const MOST_COMBINATIONS = 200;

/** Where a successful call of a tool may lead. */
export interface Leads {
  /** The other states that it may lead to. */
  readonly to: readonly Position[];
  /** Whether it may also leave the run in its state. */
  readonly mayStay: boolean;
  /** Those of `to` where the only event leads that a success may send. */
  readonly sure: ReadonlySet<string>;
}

/**
 * Where calls of bound tools lead, and the shortest ways. For a flat machine each state's are
 * worked out once. For a statechart they also depend on the run's context, so nothing is kept.
 */
export class Ways {
  readonly #model: Model;
  readonly #tools: ReadonlyMap<string, readonly AnyBinding[]>;
  /** The bound tools of each state of a flat machine, so that a search skips all others. */
  readonly #toolsIn = lazily(() => byState(this.#tools));
  // What is kept serves all runs in a state, so it is made without any run's data.
  readonly #leadsIn = memoise((state) => this.#leadsFrom({ state }), {
    most: MOST_KEPT,
    sizeOf: ({ size }) => size,
  });
  readonly #exitsIn = memoise((state) => this.#exitsFrom({ state }), {
    most: MOST_KEPT,
    sizeOf: ({ length }) => length,
  });
  readonly #reachIn = memoise((state) => this.#reachFrom({ state }), {
    most: MOST_KEPT,
    sizeOf: ({ arrivals }) => arrivals.size,
  });

  constructor(model: Model, tools: ReadonlyMap<string, readonly AnyBinding[]>) {
    this.#model = model;
    this.#tools = tools;
  }

  /**
   * The tools to call, in order, to get from a position to the nearest of `states`; `undefined`
   * where no way is known. Of equally short ways, the one whose tools were bound first.
   */
  pathTo(states: readonly BoundState[], from: Position): readonly string[] | undefined {
    const isKept = this.#model.isFlat;
    const { arrivals, paths } = isKept ? this.#reachIn(from.state) : this.#reachFrom(from);
    const known = paths.get(states);
    if (known !== undefined) return known.path;
    let path: readonly string[] | undefined;
    for (const [state, arrival] of arrivals) {
      if (!this.#model.isIn(state, states)) continue;
      path = toolsTo(arrival);
      break;
    }
    paths.set(states, { path });
    return path;
  }

  /** For each bound tool that a position allows, where a success may lead; in binding order. */
  leads(from: Position): ReadonlyMap<string, Leads> {
    return this.#model.isFlat ? this.#leadsIn(from.state) : this.#leadsFrom(from);
  }

  #leadsFrom(from: Position): ReadonlyMap<string, Leads> {
    const open = this.#model.isFlat ? this.#toolsIn().get(from.state) : this.#tools;
    const leads = new Map<string, Leads>();
    for (const [tool, bindings] of open ?? []) {
      const found = leadsOf(this.#model, bindings, from);
      if (found !== undefined) leads.set(tool, found);
    }
    return leads;
  }

  /**
   * Whether calls that are in flight may lead to one of `states`, each once at most, in any order,
   * and whether they succeed or fail. Not known, and so `false`, where they lead to very many: a
   * client chooses which calls are in flight, and each that waits asks anew.
   */
  mayLead(from: Position, tools: readonly string[], states: readonly BoundState[]): boolean {
    const found = new Set([from.state]);
    let level: readonly Position[] = [from];
    for (let made = 0; made < tools.length && level.length > 0; made++) {
      const next: Position[] = [];
      for (const tool of new Set(tools))
        for (const binding of this.#tools.get(tool) ?? [])
          for (const position of level)
            for (const to of outcomesOf(this.#model, binding, position)) {
              if (this.#model.isIn(to.state, states)) return true;
              if (found.has(to.state)) continue;
              if (made > 0 && found.size > MOST_COMBINATIONS) return false;
              found.add(to.state);
              next.push(to);
            }
      level = next;
    }
    return false;
  }

  /**
   * Searches breadth first, along the events that calls of bound tools send. A way on which fewer
   * calls may send another event goes before a shorter one.
   */
  #reachFrom(from: Position): Reach {
    const { isFlat } = this.#model;
    const start: Arrival = { position: from, last: undefined };
    const arrivals = new Map([[from.state, start]]);
    /** Goes on where the state is a new one, of no more than are worth looking at. */
    const arrive = (from: Arrival, { position, tool }: Exit): Arrival[] => {
      const isWorthIt = isFlat || arrivals.size <= MOST_COMBINATIONS;
      if (arrivals.has(position.state) || !isWorthIt) return [];
      const arrival = { position, last: { tool, from } };
      arrivals.set(position.state, arrival);
      return [arrival];
    };
    for (let level = [start]; level.length > 0; ) {
      const open: (readonly [from: Arrival, exit: Exit])[] = [];
      // A list also iterates over what is added meanwhile, so it serves as the queue.
      for (const from of level) {
        const { position } = from;
        for (const exit of isFlat ? this.#exitsIn(position.state) : this.#exitsFrom(position))
          if (exit.isSure) level.push(...arrive(from, exit));
          else open.push([from, exit]);
      }
      level = open.flatMap(([from, exit]) => arrive(from, exit));
    }
    return { arrivals, paths: new WeakMap() };
  }

  /** The other states that one call can lead to, each with the first and surest tool. */
  #exitsFrom(from: Position): readonly Exit[] {
    const exits = new Map<string, Exit>();
    for (const [tool, { to, sure }] of this.leads(from))
      for (const position of to) {
        const isSure = sure.has(position.state);
        const other = exits.get(position.state);
        if (other === undefined || (isSure && !other.isSure))
          exits.set(position.state, { position, tool, isSure });
      }
    return [...exits.values()];
  }
}

interface Exit {
  readonly position: Position;
  readonly tool: string;
  /** Whether only the event that leads there may be sent. */
  readonly isSure: boolean;
}

/** In binding order within each state. */
function byState(
  tools: ReadonlyMap<string, readonly AnyBinding[]>,
): ReadonlyMap<string, ReadonlyMap<string, readonly AnyBinding[]>> {
  const found = new Map<string, Map<string, readonly AnyBinding[]>>();
  for (const [tool, bindings] of tools) {
    for (const state of new Set(bindings.flatMap(({ states }) => states))) {
      const open = found.get(state as string) ?? new Map<string, readonly AnyBinding[]>();
      found.set(state as string, open.set(tool, bindings));
    }
  }
  return found;
}

/**
 * Where a success of a tool with these bindings may lead; `undefined` where no call is allowed. The
 * first binding that is about a call decides, so those after one without a `when` are not looked
 * at. A function may choose any event that the state handles.
 */
function leadsOf(model: Model, bindings: readonly AnyBinding[], from: Position): Leads | undefined {
  const open = bindings.filter(({ states }) => model.isIn(from.state, states));
  const senders = open.filter(({ success }) => success !== undefined);
  const decisive = senders.findIndex(({ when }) => when === undefined);
  const possible = decisive === -1 ? senders : senders.slice(0, decisive + 1);
  const to: Position[] = [];
  const sure = new Set<string>();
  let mayStay = decisive === -1 && senders.length < open.length;
  for (const binding of possible) {
    const events = eventsSent(binding, 'success') ?? model.eventsIn(from.state);
    const isNamed = !isChosen(binding.success);
    mayStay ||= !isNamed;
    for (const event of events) {
      const next = positionAfter(model, from, event, isNamed);
      if (next === 'stays') mayStay = true;
      else if (next !== undefined) {
        to.push(next);
        if (isNamed || binding.sends?.length === 1) sure.add(next.state);
      }
    }
  }
  return to.length > 0 || mayStay ? { to, mayStay, sure } : undefined;
}

/** The other states to which a call may lead by this binding, whether it succeeds or fails. */
function outcomesOf(model: Model, binding: AnyBinding, from: Position): readonly Position[] {
  if (!model.isIn(from.state, binding.states)) return [];
  return (['success', 'failure'] as const).flatMap((outcome) => {
    const events = eventsSent(binding, outcome) ?? model.eventsIn(from.state);
    const isKnown = !isChosen(binding[outcome]);
    const leads = events.map((event) => positionAfter(model, from, event, isKnown));
    return leads.filter((to): to is Position => typeof to === 'object');
  });
}

/**
 * Where one event leads. It leads nowhere where the machine's code throws, perhaps for want of a
 * payload. Where the machine's guards stop an event that is known before the call, the gate refuses
 * the call.
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

/** A way to some states, as far as one is known. */
export interface Way {
  /** The tools to call, in order; `undefined` where no way is known. */
  readonly path: readonly string[] | undefined;
  /** Whether no path means that no way exists. */
  readonly foreseen: boolean;
  /** What must come from outside beside these calls. Absent: nothing. */
  readonly waits?: readonly string[];
}

/** No way was found, though one may exist. */
export const NOT_KNOWN: Way = Object.freeze({ path: undefined, foreseen: false });

/** Where a tool is available, and the way there from the start of a run. */
export interface Whereabouts extends Way {
  readonly workflow: string;
  /** Whether the workflow is made of rules of order, whose states are sets of what is done. */
  readonly isOrder: boolean;
  readonly states: readonly BoundState[];
  /** Whether only some calls of the tool are gated. */
  readonly isGrouped: boolean;
}

/**
 * Where a tool with these bindings is available. `wayTo` finds the way to states from the start of
 * a run.
 */
export function whereaboutsOf(
  { id, isOrder }: { readonly id: string; readonly isOrder: boolean },
  bindings: readonly Pick<AnyBinding, 'states' | 'when'>[],
  wayTo: (states: readonly BoundState[]) => Way,
): Whereabouts {
  const named = bindings.flatMap((binding) => binding.states);
  const states = distinct(named);
  return {
    workflow: id,
    isOrder,
    states,
    ...wayTo(states),
    isGrouped: bindings.every(({ when }) => when !== undefined),
  };
}
