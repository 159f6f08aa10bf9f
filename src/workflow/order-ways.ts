/**
 * Ways through rules of order. It hides how one is found without a look at all sets of tools, which
 * are too many.
 */
import { type AnyBinding, eventNamed, isChosen } from './binding.ts';
import { type BoundState, holds, type Model, type Position } from './position.ts';
import { NOT_KNOWN, type Way } from './ways.ts';

/** A call that is allowed where `when` is true, and what its success changes. */
interface Action {
  readonly tool: string;
  readonly when: BoundState;
  readonly adds: readonly string[];
  readonly removes: readonly string[];
  /** What else it removes, if it uses up the last one. */
  readonly uses: readonly string[];
}

/** A tool that is to be done, or is not to be. */
interface Literal {
  readonly name: string;
  readonly isDone: boolean;
}

type Done = ReadonlySet<string>;

/** How many sets the search for the shortest way visits. Beyond that, any way will do. */
const MOST_SETS = 1_000;

/** A way with more calls than this for each action goes round in circles. */
const MOST_CALLS_EACH = 3;

/** The ways from so many states are kept. */
const MOST_STATES_KEPT = 1_000;

const NO_WAY: Way = Object.freeze({ path: undefined, foreseen: true });

/** The ways of one workflow that is made of rules of order. */
export class OrderWays {
  readonly #model: Model;
  readonly #actions: readonly Action[];
  /** Whether the effect of each call is known beforehand. */
  readonly #isWhole: boolean;
  readonly #ways = new Map<string, WeakMap<readonly BoundState[], Way>>();

  constructor(model: Model, tools: ReadonlyMap<string, readonly AnyBinding[]>) {
    this.#model = model;
    const bindings = [...tools.values()].flat();
    this.#actions = bindings.flatMap(({ tool, states, success }): Action[] => {
      const event = eventNamed(success);
      const effect = event === undefined ? undefined : model.effectOf?.(event);
      return effect === undefined ? [] : [{ tool, when: { any: states }, ...effect }];
    });
    this.#isWhole = !bindings.some(({ success }) => isChosen(success));
  }

  /** The tools to call, in order, until one of `states` is true. */
  wayTo(states: readonly BoundState[], { state }: Position): Way {
    const ways = this.#ways.get(state) ?? new WeakMap<readonly BoundState[], Way>();
    const known = ways.get(states);
    if (known !== undefined) return known;
    const way = this.#find({ any: states }, new Set(this.#model.doneIn?.(state)));
    if (this.#ways.size >= MOST_STATES_KEPT) this.#ways.clear();
    this.#ways.set(state, ways.set(states, way));
    return way;
  }

  #find(goal: BoundState, from: Done): Way {
    if (isTrue(goal, from)) return { path: Object.freeze([]), foreseen: true };
    const actions = helping(goal, this.#actions);
    // The costs assume that nothing is ever undone. So a goal of infinite cost is out of reach.
    const costs = new Costs(actions, from);
    if (costs.of(goal) === Number.POSITIVE_INFINITY) return this.#isWhole ? NO_WAY : NOT_KNOWN;
    const found = shortest(goal, actions, from);
    if (found === 'none') {
      // A run may have several successes of what is used up, so that a way leaves some.
      const isSure = shortest(goal, actions.flatMap(withLeft), from) === 'none';
      return this.#isWhole && isSure ? NO_WAY : NOT_KNOWN;
    }
    const path = found === 'too far' ? stepByStep(goal, actions, from) : found;
    return path === undefined ? NOT_KNOWN : { path: Object.freeze(path), foreseen: true };
  }
}

/** The actions that make true what the goal needs, or what another such action needs. */
function helping(goal: BoundState, actions: readonly Action[]): readonly Action[] {
  const needed = new Set<string>();
  const chosen = new Set<Action>();
  const goals = [goal];
  for (let each = goals.pop(); each !== undefined; each = goals.pop()) {
    for (const literal of literalsOf(each, true)) needed.add(literalKey(literal));
    for (const action of actions) {
      if (chosen.has(action) || !outcomes(action).some((each) => needed.has(literalKey(each))))
        continue;
      chosen.add(action);
      goals.push(action.when);
    }
  }
  // Binding order decides among equally short ways.
  return actions.filter((action) => chosen.has(action));
}

/** The action, and the same one where it leaves some of what it uses. */
function withLeft(action: Action): readonly Action[] {
  return action.uses.length === 0 ? [action] : [action, { ...action, uses: [] }];
}

/** Searches breadth first, as long as there are few sets. */
function shortest(
  goal: BoundState,
  actions: readonly Action[],
  from: Done,
): string[] | 'none' | 'too far' {
  interface Node {
    readonly done: Done;
    readonly last: { readonly tool: string; readonly node: Node } | undefined;
  }
  // Other names make no difference.
  const names = [...new Set(actions.flatMap((each) => outcomes(each).map(({ name }) => name)))];
  const keyOfSet = (done: Done): string => names.map((name) => (done.has(name) ? 1 : 0)).join('');
  const seen = new Set([keyOfSet(from)]);
  const nodes: Node[] = [{ done: from, last: undefined }];
  for (const node of nodes) {
    for (const action of actions) {
      if (!isTrue(action.when, node.done)) continue;
      const done = doneAfter(action, node.done);
      const key = keyOfSet(done);
      if (seen.has(key)) continue;
      seen.add(key);
      const next = { done, last: { tool: action.tool, node } };
      if (isTrue(goal, done)) return toolsTo(next);
      if (nodes.length >= MOST_SETS) return 'too far';
      nodes.push(next);
    }
  }
  return 'none';

  function toolsTo(end: Node): string[] {
    const tools: string[] = [];
    for (let { last } = end; last !== undefined; last = last.node.last) tools.push(last.tool);
    return tools.reverse();
  }
}

/**
 * Makes one call after the other, each one that the cheapest alternative still needs. Each call is
 * allowed where it is made, so the result is a way, though perhaps not the shortest.
 */
function stepByStep(
  goal: BoundState,
  actions: readonly Action[],
  from: Done,
): string[] | undefined {
  const path: string[] = [];
  let done = from;
  while (!isTrue(goal, done)) {
    if (path.length > MOST_CALLS_EACH * actions.length) return undefined;
    const costs = new Costs(actions, done);
    const action = nextAction(goal, new Set(), { actions, done, costs });
    if (action === undefined) return undefined;
    path.push(action.tool);
    done = doneAfter(action, done);
  }
  return path;
}

function nextAction(
  goal: BoundState,
  above: ReadonlySet<string>,
  at: { readonly actions: readonly Action[]; readonly done: Done; readonly costs: Costs },
): Action | undefined {
  for (const literal of missing(goal, true, at.done, at.costs)) {
    const key = literalKey(literal);
    if (above.has(key)) continue;
    const makers = at.actions
      .filter((action) => outcomes(action).some((each) => literalKey(each) === key))
      .map((action) => ({ action, cost: at.costs.of(action.when) }))
      .filter(({ cost }) => cost < Number.POSITIVE_INFINITY)
      .sort((a, b) => a.cost - b.cost);
    for (const { action } of makers) {
      if (isTrue(action.when, at.done)) return action;
      const first = nextAction(action.when, new Set([...above, key]), at);
      if (first !== undefined) return first;
    }
  }
  return undefined;
}

/**
 * What is missing to make the expression true, or false where that is wanted, in the cheapest way.
 */
function missing(goal: BoundState, wanted: boolean, done: Done, costs: Costs): readonly Literal[] {
  if (isTrue(goal, done) === wanted) return [];
  const [kind, parts] = partsOf(goal, wanted);
  if (kind === 'literal') return literalsOf(goal, wanted);
  if (kind === 'not') return missing(parts[0] ?? goal, !wanted, done, costs);
  if (kind === 'all') return parts.flatMap((each) => missing(each, wanted, done, costs));
  const [cheapest] = [...parts].sort((a, b) => costs.of(a, wanted) - costs.of(b, wanted));
  return cheapest === undefined ? [] : missing(cheapest, wanted, done, costs);
}

/**
 * Roughly how many calls it takes to make something true, if nothing were ever undone. What cannot
 * be made true costs infinity.
 */
class Costs {
  readonly #costs = new Map<string, number>();
  readonly #from: Done;

  constructor(actions: readonly Action[], from: Done) {
    this.#from = from;
    for (let isBetter = true; isBetter; ) {
      isBetter = false;
      for (const action of actions) {
        const cost = this.of(action.when) + 1;
        for (const literal of outcomes(action)) {
          if (cost >= this.#ofLiteral(literal)) continue;
          this.#costs.set(literalKey(literal), cost);
          isBetter = true;
        }
      }
    }
  }

  of(goal: BoundState, wanted = true): number {
    const [kind, parts] = partsOf(goal, wanted);
    if (kind === 'not') return this.of(parts[0] ?? goal, !wanted);
    if (kind === 'literal') {
      const [literal] = literalsOf(goal, wanted);
      return literal === undefined
        ? wanted
          ? 0
          : Number.POSITIVE_INFINITY
        : this.#ofLiteral(literal);
    }
    const costs = parts.map((each) => this.of(each, wanted));
    return kind === 'all' ? costs.reduce((a, b) => a + b, 0) : Math.min(...costs);
  }

  #ofLiteral(literal: Literal): number {
    if (this.#from.has(literal.name) === literal.isDone) return 0;
    return this.#costs.get(literalKey(literal)) ?? Number.POSITIVE_INFINITY;
  }
}

/**
 * Whether all parts of an expression, or any, must hold to make it true, or false where that is
 * wanted.
 */
function partsOf(
  goal: BoundState,
  wanted: boolean,
): readonly ['all' | 'any' | 'not' | 'literal', readonly BoundState[]] {
  if (typeof goal === 'string' || 'tag' in goal) return ['literal', []];
  if ('not' in goal) return ['not', [goal.not]];
  if ('all' in goal) return [wanted ? 'all' : 'any', goal.all];
  return [wanted ? 'any' : 'all', goal.any];
}

/** The tools in an expression, and whether each is to be done; none for `'*'`. */
function literalsOf(goal: BoundState, wanted: boolean): readonly Literal[] {
  if (typeof goal === 'string') return goal === '*' ? [] : [{ name: goal, isDone: wanted }];
  if ('tag' in goal) return [];
  if ('not' in goal) return literalsOf(goal.not, !wanted);
  return ('all' in goal ? goal.all : goal.any).flatMap((each) => literalsOf(each, wanted));
}

/** What an action may change. */
function outcomes({ adds, removes, uses }: Action): readonly Literal[] {
  const removed = [...removes, ...uses].map((name) => ({ name, isDone: false }));
  return [...removed, ...adds.map((name) => ({ name, isDone: true }))];
}

function doneAfter({ adds, removes, uses }: Action, before: Done): Done {
  const done = new Set(before);
  for (const name of [...removes, ...uses]) done.delete(name);
  for (const name of adds) done.add(name);
  return done;
}

function literalKey({ name, isDone }: Literal): string {
  return `${isDone ? '+' : '-'}${name}`;
}

function isTrue(expression: BoundState, done: Done): boolean {
  return holds(expression, (atom) => typeof atom === 'string' && done.has(atom));
}
