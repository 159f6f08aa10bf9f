/**
 * Several workflows on one route: hides how a way is found whose every call all of them allow, and
 * how far the search goes.
 */
import { putNewest } from '../basics/clock.ts';
import type { BoundState, Position } from './position.ts';
import type { Sight } from './visible.ts';
import { NOT_KNOWN, type Reached, toolsTo, type Way } from './ways.ts';
import type { Workflow } from './workflow.ts';

/** Where a run stands in one of the workflows on a route. */
export interface Stand {
  readonly workflow: Workflow;
  /** As its clients see it; `undefined` where it is not known. */
  readonly position: Position | undefined;
  /** Whether a run that ends starts again. */
  readonly beginsAnew: boolean;
  /** What the client in question sees of it; absent where all clients see the same. */
  readonly sight?: Sight | undefined;
  /** The tools of which each call is refused now, in any state. Absent: none. */
  readonly closed?: ReadonlySet<string> | undefined;
  /** The tools that are at a limit now. Absent: none. */
  readonly spent?: ReadonlyMap<string, unknown> | undefined;
}

/**
 * For each workflow, in the order of the stands, lists of states: its position must be in one state
 * of each list.
 */
export type Goal = readonly (readonly (readonly BoundState[])[])[];

/**
 * The limits of a search through several workflows: combinations of states, fewer with a
 * statechart, and calls.
 */
const MOST_COMBINATIONS = 500;
const MOST_CHART_COMBINATIONS = 200;
const MOST_CALLS = 5_000;

/** The searches from so many places are kept. */
const MOST_SEARCHES = 20;

/** How many names of available tools are kept, over all combinations of states. */
const MOST_NAMES = 100_000;

/**
 * Several workflows on one route. Each call must be allowed by all of them, so what is available,
 * and the way to the rest, must hold for all together.
 */
export class Together {
  readonly #workflows: readonly Workflow[];
  readonly #searches = new Map<string, Search>();
  readonly #available = new Map<string, readonly string[]>();
  #names = 0;

  /** @param workflows the first one's tools come first, and its calls among equally short ways */
  constructor(workflows: readonly Workflow[]) {
    this.#workflows = workflows;
  }

  /**
   * The tools that some workflow binds, and that all show the client. Those of a workflow whose
   * position is not known are left out.
   */
  available(stands: readonly Stand[]): readonly string[] {
    const available = this.#availableIn(stands);
    const hidden = stands.flatMap(({ sight, closed, spent }) => [
      ...(sight?.hidden ?? []),
      ...(closed ?? []),
      ...(spent?.keys() ?? []),
    ]);
    return hidden.length === 0 ? available : available.filter((tool) => !hidden.includes(tool));
  }

  /** What is available to a client that sees all that the states show. */
  #availableIn(stands: readonly Stand[]): readonly string[] {
    const [only, ...others] = stands;
    if (only === undefined) return [];
    if (others.length === 0) return shownBy(only);
    // Quoted, since a state may have any name.
    const key = JSON.stringify(stands.map(({ position }) => position?.state ?? null));
    const known = this.#available.get(key);
    if (known !== undefined) return known;
    const bound = new Set(stands.flatMap(shownBy));
    const available = [...bound].filter((tool) =>
      stands.every(({ workflow, position }) =>
        position === undefined ? !workflow.isBound(tool) : workflow.isVisible(tool, position.state),
      ),
    );
    this.#names += available.length + 1;
    if (this.#names > MOST_NAMES) {
      this.#available.clear();
      this.#names = available.length + 1;
    }
    this.#available.set(key, Object.freeze(available));
    return available;
  }

  /**
   * The shortest way to where all workflows allow what is asked for. All of them allow each call on
   * it.
   *
   * @param tool what is asked for, where it is a tool: the way leads to where the client also sees
   * it
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
          this.#is(i, goal, each, stands[i]?.beginsAnew === true) &&
          !(tool !== undefined && search.hides(i, tool, each)),
      ),
    );
    const foreseen = search.isWhole && this.#workflows.every(({ foresees }) => foresees);
    return { path, foreseen };
  }

  /**
   * The way of the first workflow alone, where no other workflow has a say in it. That way is kept
   * already.
   */
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

  #is(index: number, goal: Goal, { state }: Position, beginsAnew: boolean): boolean {
    const workflow = this.#workflows[index];
    const lists = goal[index] ?? [];
    // No client is shown such an end, since the next call begins the run anew.
    if (beginsAnew && lists.length > 0 && workflow?.hasEnded(state)) return false;
    return lists.every((states) => workflow?.allows(state, { states }) === true);
  }

  #searchFrom(from: readonly Position[], stands: readonly Stand[]): Search {
    const sights = stands.map(({ sight }) => sight);
    // Ways that depend on what one client sees are not kept for others.
    const isKept =
      this.#workflows.every(({ model }) => model.isFlat) &&
      sights.every((each) => each === undefined);
    const restarts = stands.map(({ beginsAnew }) => beginsAnew);
    const start = isKept ? from.map(({ state }) => ({ state })) : from;
    if (!isKept)
      return new Search(this.#workflows, restarts, start, MOST_CHART_COMBINATIONS, sights);
    const key = `${restarts.join()} ${combinationKey(start)}`;
    const known = this.#searches.get(key);
    if (known !== undefined) return known;
    const search = new Search(this.#workflows, restarts, start, MOST_COMBINATIONS);
    putNewest(this.#searches, key, search, MOST_SEARCHES);
    return search;
  }
}

function shownBy({ workflow, position }: Stand): readonly string[] {
  return position === undefined ? [] : workflow.available(position.state);
}

/** A combination of positions. */
interface Node extends Reached {
  readonly positions: readonly Position[];
}

/**
 * A breadth-first search through all workflows at once. A later question goes on where the last one
 * stopped.
 */
class Search {
  readonly #workflows: readonly Workflow[];
  readonly #restarts: readonly boolean[];
  readonly #most: number;
  /** What the client sees of each workflow's run, where clients differ. */
  readonly #sights: readonly (Sight | undefined)[];
  /** What the client sees at the positions that the search has visited. */
  readonly #seenAt = new WeakMap<Position, Sight>();
  readonly #nodes: Node[];
  readonly #seen: Set<string>;
  #expanded = 0;
  #calls = 0;
  /** Whether it has skipped nothing so far. */
  isWhole = true;

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
    this.#seen = new Set([combinationKey(from)]);
  }

  /** Whether the client does not see the tool at that position of a workflow. */
  hides(i: number, tool: string, position: Position): boolean {
    const sight = this.#sights[i];
    if (sight === undefined) return false;
    const there = this.#seenAt.get(position) ?? sight.at(position);
    this.#seenAt.set(position, there);
    return there.hidden.has(this.#workflows[i]?.keyOf(tool) ?? tool);
  }

  find(isThere: (positions: readonly Position[]) => boolean): readonly string[] | undefined {
    for (let i = 0; ; i++) {
      while (i >= this.#nodes.length && this.#expandNext());
      const node = this.#nodes[i];
      if (node === undefined) return undefined;
      if (isThere(node.positions)) return toolsTo(node);
    }
  }

  /** `false` where nothing is left to visit. */
  #expandNext(): boolean {
    const node = this.#nodes[this.#expanded];
    if (node === undefined) return false;
    this.#expanded++;
    for (const tool of this.#movers(node)) {
      if (this.#nodes.length >= this.#most || this.#calls >= MOST_CALLS) {
        this.isWhole = false;
        this.#expanded = this.#nodes.length;
        return false;
      }
      this.#calls++;
      for (const positions of this.#reachedBy(tool, node.positions)) {
        const key = combinationKey(positions);
        if (this.#seen.has(key)) continue;
        this.#seen.add(key);
        this.#nodes.push({ positions, last: { tool, from: node } });
      }
    }
    return true;
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
   * Where a success of the tool may lead in all workflows at once; nowhere where one of them
   * refuses it.
   */
  #reachedBy(tool: string, positions: readonly Position[]): readonly (readonly Position[])[] {
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
    // Each workflow has its own `when`. The search cannot know whether some arguments satisfy both.
    if (grouped > 0 && bound > 1) this.isWhole = false;
    return grouped > 1 ? [] : all;
  }

  #optionsOf(i: number, workflow: Workflow, tool: string, from: Position): readonly Position[] {
    // No way goes through an end: advice must not give up what a run has come to.
    if (this.#restarts[i] && workflow.hasEnded(from.state)) return [];
    const leads = workflow.leads(from).get(tool);
    if (leads === undefined || this.hides(i, tool, from)) return [];
    return leads.mayStay ? [from, ...leads.to] : leads.to;
  }
}

function combinationKey(positions: readonly Position[]): string {
  let key = '';
  for (const { state } of positions) key += `${state.length}:${state}`;
  return key;
}
