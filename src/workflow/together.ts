import type { BoundState, Position } from './position.ts';
import type { Sight } from './visible.ts';
import type { Way } from './ways.ts';
import type { Workflow } from './workflow.ts';

/** Where a run stands in one of the workflows on a route. */
export interface Stand {
  readonly workflow: Workflow;
  /** As its clients see it; `undefined` where that is not known. */
  readonly position: Position | undefined;
  /** Whether a run that ends is at its start again. */
  readonly beginsAnew: boolean;
  /** What the client that is told sees of it; absent where every client sees the same. */
  readonly sight?: Sight | undefined;
}

/**
 * What each workflow asks of a position, in the order of the stands: to be in one of the states of
 * each list.
 */
export type Goal = readonly (readonly (readonly BoundState[])[])[];

/**
 * How far a way through several workflows is searched for: combinations of states, fewer with a
 * statechart, and calls.
 */
const MOST_COMBINATIONS = 500;
const MOST_CHART_COMBINATIONS = 200;
const MOST_CALLS = 5_000;

/** From so many places what was searched is kept. */
const MOST_SEARCHES = 20;

/** How many names are kept of the tools that several workflows show together. */
const MOST_NAMES = 100_000;

const NOT_KNOWN: Way = { path: undefined, foreseen: false };

/**
 * Several workflows on one route, of which each call must be allowed by all. What is said of one
 * alone leads to calls that another refuses: so it is said of all together.
 */
export class Together {
  readonly #workflows: readonly Workflow[];
  readonly #searches = new Map<string, Search>();
  readonly #available = new Map<string, readonly string[]>();
  #names = 0;

  /**
   * The first one is the one that speaks: its tools come first, and among equally short ways its
   * calls.
   */
  constructor(workflows: readonly Workflow[]) {
    this.#workflows = workflows;
  }

  /**
   * The tools that some workflow binds, and that all of them show the client. Where one is in a
   * position that is not known, its tools are left out.
   */
  available(stands: readonly Stand[]): readonly string[] {
    const available = this.#availableIn(stands);
    const hidden = stands.flatMap(({ sight }) => [...(sight?.hidden ?? [])]);
    return hidden.length === 0 ? available : available.filter((tool) => !hidden.includes(tool));
  }

  /** The same by the states alone. */
  #availableIn(stands: readonly Stand[]): readonly string[] {
    const [only, ...others] = stands;
    if (only === undefined) return [];
    if (others.length === 0) return shownBy(only);
    const key = stands.map(placeOf).join(' ');
    const known = this.#available.get(key);
    if (known !== undefined) return known;
    const bound = new Set(stands.flatMap(shownBy));
    const available = [...bound].filter((tool) => stands.every((stand) => shows(stand, tool)));
    this.#names += available.length + 1;
    if (this.#names > MOST_NAMES) {
      this.#available.clear();
      this.#names = available.length + 1;
    }
    this.#available.set(key, Object.freeze(available));
    return available;
  }

  /**
   * The shortest way to where all workflows allow what is asked for. Each call on it is allowed by
   * all of them.
   *
   * @param tool what is asked for, where it is a tool: the way leads to where the client sees it
   */
  wayTo(goal: Goal, stands: readonly Stand[], tool?: string): Way {
    const from = stands.map(({ position }) => position);
    if (!from.every((position) => position !== undefined)) return NOT_KNOWN;
    const isSeenByAll = stands.every(({ sight }) => sight === undefined);
    const alone = isSeenByAll ? this.#wayOfFirst(goal, from[0]) : undefined;
    if (alone !== undefined) return alone;
    const search = this.#searchFrom(from, stands);
    const path = search.find((positions) =>
      positions.every(
        (each, i) =>
          this.#is(i, goal, each) && !(tool !== undefined && search.hides(i, tool, each)),
      ),
    );
    const foreseen = search.isWhole && this.#workflows.every(({ foresees }) => foresees);
    return { path, foreseen };
  }

  /** The first workflow's own way, where no other one has a say in it: it is remembered already. */
  #wayOfFirst(goal: Goal, from: Position | undefined): Way | undefined {
    const [first, ...others] = this.#workflows;
    const [[states, ...more] = [], ...demands] = goal;
    if (first === undefined || from === undefined || states === undefined || more.length > 0)
      return undefined;
    if (demands.some((lists) => lists.length > 0)) return undefined;
    const way = first.wayTo(states, from);
    const { path } = way;
    if (path === undefined && others.length > 0) return undefined;
    const isFree = path?.every((tool) => !others.some((other) => other.isBound(tool))) ?? true;
    return isFree ? way : undefined;
  }

  #is(index: number, goal: Goal, { state }: Position): boolean {
    const workflow = this.#workflows[index];
    return (goal[index] ?? []).every((states) => workflow?.allows(state, { states }) === true);
  }

  #searchFrom(from: readonly Position[], stands: readonly Stand[]): Search {
    const sights = stands.map(({ sight }) => sight);
    // What one client sees is not kept for others.
    const isKept =
      this.#workflows.every(({ isFlat }) => isFlat) && sights.every((each) => each === undefined);
    const restarts = stands.map(({ beginsAnew }) => beginsAnew);
    const start = isKept ? from.map(({ state }) => ({ state })) : from;
    if (!isKept)
      return new Search(this.#workflows, restarts, start, MOST_CHART_COMBINATIONS, sights);
    const key = `${restarts.join()} ${keyOf(start)}`;
    const known = this.#searches.get(key);
    if (known !== undefined) return known;
    const search = new Search(this.#workflows, restarts, start, MOST_COMBINATIONS);
    const [oldest] = this.#searches.keys();
    if (this.#searches.size >= MOST_SEARCHES && oldest !== undefined) this.#searches.delete(oldest);
    this.#searches.set(key, search);
    return search;
  }
}

/** A state may be called anything, so its name is quoted. */
function placeOf({ position }: Stand): string {
  return position === undefined ? 'unknown' : JSON.stringify(position.state);
}

function shownBy({ workflow, position }: Stand): readonly string[] {
  return position === undefined ? [] : workflow.available(position.state);
}

function shows({ workflow, position }: Stand, tool: string): boolean {
  return position === undefined
    ? !workflow.isBound(tool)
    : workflow.isVisible(tool, position.state);
}

/** A combination of positions, and how it was reached first. */
interface Node {
  readonly positions: readonly Position[];
  readonly last: { readonly tool: string; readonly from: Node } | undefined;
}

/**
 * A search breadth first through all workflows at once, which goes on where the last question left
 * it.
 */
class Search {
  readonly #workflows: readonly Workflow[];
  readonly #restarts: readonly boolean[];
  readonly #most: number;
  /** What the client sees of each workflow's run, where not every client sees the same. */
  readonly #sights: readonly (Sight | undefined)[];
  /** The same at the positions that were looked at. */
  readonly #seenAt = new WeakMap<Position, Sight>();
  readonly #nodes: Node[];
  readonly #seen: Set<string>;
  #expanded = 0;
  #calls = 0;
  #isWhole = true;

  constructor(
    workflows: readonly Workflow[],
    restarts: readonly boolean[],
    from: readonly Position[],
    most: number,
    sights: readonly (Sight | undefined)[] = [],
  ) {
    this.#workflows = workflows;
    this.#sights = sights;
    this.#restarts = restarts;
    this.#most = most;
    this.#nodes = [{ positions: from, last: undefined }];
    this.#seen = new Set([keyOf(from)]);
  }

  /** Whether it has left nothing out so far. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Whether the client does not see a tool that is available in that position of a workflow. */
  hides(i: number, tool: string, position: Position): boolean {
    const sight = this.#sights[i];
    if (sight === undefined) return false;
    const there = this.#seenAt.get(position) ?? sight.at(position);
    this.#seenAt.set(position, there);
    return there.hidden.has(tool);
  }

  find(isThere: (positions: readonly Position[]) => boolean): readonly string[] | undefined {
    for (let i = 0; ; i++) {
      while (i >= this.#nodes.length && this.#expandNext());
      const node = this.#nodes[i];
      if (node === undefined) return undefined;
      if (isThere(node.positions)) return pathOf(node);
    }
  }

  /** `false` where there is nothing left to look at. */
  #expandNext(): boolean {
    const node = this.#nodes[this.#expanded];
    if (node === undefined) return false;
    this.#expanded++;
    for (const tool of this.#movers(node)) {
      if (this.#nodes.length >= this.#most || this.#calls >= MOST_CALLS) {
        this.#isWhole = false;
        this.#expanded = this.#nodes.length;
        return false;
      }
      this.#calls++;
      for (const positions of this.#after(tool, node.positions)) this.#add(positions, tool, node);
    }
    return true;
  }

  #add(positions: readonly Position[], tool: string, from: Node): void {
    const key = keyOf(positions);
    if (this.#seen.has(key)) return;
    this.#seen.add(key);
    this.#nodes.push({ positions, last: { tool, from } });
  }

  /** The tools whose success moves one of the workflows. */
  #movers({ positions }: Node): Set<string> {
    const movers = new Set<string>();
    for (const [i, workflow] of this.#workflows.entries()) {
      for (const [tool, { to }] of workflow.leads(positions[i] as Position))
        if (to.length > 0) movers.add(tool);
    }
    return movers;
  }

  /**
   * Where a success of the tool may lead in all workflows at once; nowhere where one of them does
   * not allow it.
   */
  #after(tool: string, positions: readonly Position[]): readonly (readonly Position[])[] {
    let all: (readonly Position[])[] = [positions];
    let bound = 0;
    let grouped = 0;
    for (const [i, workflow] of this.#workflows.entries()) {
      if (!workflow.isBound(tool)) continue;
      bound++;
      if (workflow.isGrouped(tool)) grouped++;
      const options = this.#optionsOf(i, workflow, tool, positions[i] as Position);
      all = options.flatMap((option) => all.map((some) => some.with(i, option)));
    }
    // Which arguments suit one of them is its own business; whether some suit both, nobody can
    // tell.
    if (grouped > 0 && bound > 1) this.#isWhole = false;
    return grouped > 1 ? [] : all;
  }

  #optionsOf(i: number, workflow: Workflow, tool: string, from: Position): readonly Position[] {
    const leads = workflow.leads(from).get(tool);
    if (leads === undefined || this.hides(i, tool, from)) return [];
    const to = leads.to.map((next) =>
      this.#restarts[i] && workflow.hasEnded(next.state) ? workflow.start : next,
    );
    return leads.mayStay ? [from, ...to] : to;
  }
}

function keyOf(positions: readonly Position[]): string {
  let key = '';
  for (const { state } of positions) key += `${state.length}:${state}`;
  return key;
}

function pathOf(node: Node): readonly string[] {
  const path: string[] = [];
  for (let { last } = node; last !== undefined; last = last.from.last) path.push(last.tool);
  return Object.freeze(path.reverse());
}
