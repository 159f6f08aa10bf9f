/**
 * Ways through rules of order. It hides how one is found without a look at all sets of tools, which
 * are too many.
 */
import { memoise, pushTo } from '../basics/collections.ts';
import { type AnyBinding, eventsSent } from './binding.ts';
import {
  ANY_STATE,
  type BoundState,
  type Changes,
  type EndKind,
  type Model,
  type Position,
} from './position.ts';
import { NOT_KNOWN, type Reached, toolsTo, type Way } from './ways.ts';

/** A call that is allowed where `when` is true, and what its end changes. */
interface Action {
  readonly tool: string;
  readonly when: BoundState;
  readonly changes: Pick<Changes, 'adds' | 'removes'> & {
    readonly mayAdd: readonly string[];
    readonly mayRemove: readonly string[];
  };
}

/** A name that is to hold, or is not to. */
interface Literal {
  readonly name: string;
  readonly isDone: boolean;
}

/** What holds, by name: surely, or perhaps. What is not in it does not. */
type Known = ReadonlyMap<string, 'surely' | 'perhaps'>;

/** Whether what is asked must be so in any case, or may be so. */
type Trust = 'must' | 'may';

/** How many sets the search for the shortest way visits. Beyond that, any way will do. */
const MOST_SETS = 1_000;

/** So many names are compared in all sets together: with more names, fewer sets are visited. */
const MOST_COMPARED = 100_000;

/** A way with more calls than this for each action goes round in circles. */
const MOST_CALLS_EACH = 3;

/** The ways from so many states are kept. */
const MOST_STATES_KEPT = 1_000;

const NO_WAY: Way = Object.freeze({ path: undefined, foreseen: true });

/** The ways of one workflow that is made of rules of order. */
export class OrderWays {
  readonly #model: Model;
  /** What successes change whose event is known beforehand, in binding order. */
  readonly #successes: readonly Action[];
  /**
   * What successes change where functions choose so, the values are as needed, few calls bar
   * nothing, and no use is left over.
   */
  readonly #likely: readonly Action[];
  /** The same, and what comes from outside. */
  readonly #awaited: readonly Action[];
  readonly #outside: ReadonlySet<string>;
  /** All that a call's end may change. */
  readonly #possible: readonly Action[];
  /** Whether it is known which events each call may send. */
  readonly #isWhole: boolean;
  readonly #waysFrom = memoise(() => new WeakMap<readonly BoundState[], Way>(), {
    most: MOST_STATES_KEPT,
  });

  constructor(model: Model, tools: ReadonlyMap<string, readonly AnyBinding[]>) {
    this.#model = model;
    const { outside = new Set<string>() } = model.ledger ?? {};
    this.#outside = outside;
    const bindings = [...tools.values()].flat();
    const actionOf = (binding: AnyBinding, event: string, end: EndKind): Possible[] => {
      const changes = model.changesOf?.(event, end);
      const { tool, states } = binding;
      return changes === undefined ? [] : [{ tool, when: { any: states }, changes }];
    };
    const successesOf = (each: AnyBinding): Possible[] =>
      (eventsSent(each, 'success') ?? []).flatMap((event) =>
        actionOf(each, event, event === each.tool ? 'succeeded' : 'sent'),
      );
    const successes = bindings.flatMap(successesOf);
    const failures = bindings.flatMap((each) => {
      const sent = eventsSent(each, 'failure') ?? [];
      return [
        ...actionOf(each, each.tool, 'failed'),
        ...sent.flatMap((event) => actionOf(each, event, 'sent')),
      ];
    });
    const sure = bindings.filter((each) => eventsSent(each, 'success')?.length === 1);
    this.#successes = sure.flatMap(successesOf).map(named);
    this.#likely = successes.map(likely);
    const sent = [...outside].flatMap((tool): Possible[] => {
      const changes = model.changesOf?.(tool, 'sent');
      return changes === undefined ? [] : [{ tool, when: ANY_STATE, changes }];
    });
    this.#awaited = sent.length === 0 ? [] : [...this.#likely, ...sent.map(likely)];
    this.#possible = [...successes, ...failures].map(named);
    this.#isWhole = bindings.every(
      (each) => eventsSent(each, 'success') && eventsSent(each, 'failure'),
    );
  }

  /** The tools to call, in order, until one of `states` is true. */
  wayTo(states: readonly BoundState[], { state }: Position): Way {
    const ways = this.#waysFrom(state);
    const way = ways.get(states) ?? this.#find({ any: states }, this.#model.doneIn?.(state) ?? []);
    ways.set(states, way);
    return way;
  }

  /**
   * A way that leads there in any case goes before one that likely does, and before one that needs
   * something from outside. That there is none is said
   * only where no call can open one, even one that fails, and where no window can close.
   */
  #find(goal: BoundState, done: readonly string[]): Way {
    const from: Known = new Map(done.map((name) => [name, 'surely']));
    if (meets(goal, from, 'must')) return { path: Object.freeze([]), foreseen: true };
    for (const actions of [this.#successes, this.#likely]) {
      const found = this.#search(goal, from, actions, 'must');
      if (Array.isArray(found)) return { path: Object.freeze(found), foreseen: true };
    }
    const found = this.#awaited.length > 0 && this.#search(goal, from, this.#awaited, 'must');
    if (Array.isArray(found)) {
      const path = Object.freeze(found.filter((tool) => !this.#outside.has(tool)));
      const waits = found.filter((tool) => this.#outside.has(tool));
      return { path, foreseen: true, waits: Object.freeze([...new Set(waits)]) };
    }
    if (!this.#isWhole) return NOT_KNOWN;
    const inTime: Known = new Map(
      done.map((name) => [name, this.#model.isTimed?.(name) ? 'perhaps' : 'surely']),
    );
    const all = this.#possible.map((each) => this.#inTime(each));
    if (meets(goal, inTime, 'may')) return NOT_KNOWN;
    return this.#search(goal, inTime, all, 'may') === 'none' ? NO_WAY : NOT_KNOWN;
  }

  /** The same, where what it adds for a time may be gone again. */
  #inTime({ changes, ...action }: Action): Action {
    const isTimed = (name: string): boolean => this.#model.isTimed?.(name) === true;
    const adds = changes.adds.filter((name) => !isTimed(name));
    const mayAdd = [...changes.mayAdd, ...changes.adds.filter(isTimed)];
    return { ...action, changes: { ...changes, adds, mayAdd } };
  }

  #search(
    goal: BoundState,
    from: Known,
    all: readonly Action[],
    trust: Trust,
  ): readonly string[] | 'none' | 'unknown' {
    const actions = helping(goal, all, trust);
    // The costs assume that nothing is ever undone. So a goal of infinite cost is out of reach.
    const costs = new Costs(actions, from, trust);
    if (costs.of(goal) === Number.POSITIVE_INFINITY) return 'none';
    const found = shortest(goal, actions, from, trust);
    if (found !== 'too far') return found;
    return stepByStep(goal, actions, from, trust) ?? 'unknown';
  }
}

interface Possible extends Omit<Action, 'changes'> {
  readonly changes: Changes;
}

function named({ changes, ...action }: Possible): Action {
  const { adds, removes } = changes;
  const [mayAdd = [], mayRemove = []] = [changes.mayAdd, changes.mayRemove].map((all) =>
    all.map(({ name }) => name),
  );
  return { ...action, changes: { adds, mayAdd, removes, mayRemove } };
}

function likely({ changes, ...action }: Possible): Action {
  const [added = [], removed = []] = [changes.mayAdd, changes.mayRemove].map((all) =>
    all.flatMap(({ name, isUsual }) => (isUsual ? [] : [name])),
  );
  const adds = [...changes.adds, ...added];
  const removes = [...changes.removes, ...removed];
  return { ...action, changes: { adds, removes, mayAdd: [], mayRemove: [] } };
}

/** The actions that make true what the goal needs, or what another such action needs. */
function helping(goal: BoundState, actions: readonly Action[], trust: Trust): readonly Action[] {
  const makers = makersOf(actions, trust);
  const needed = new Set<string>();
  const chosen = new Set<Action>();
  const goals = [goal];
  for (let each = goals.pop(); each !== undefined; each = goals.pop()) {
    for (const literal of literalsOf(each, true)) {
      const key = literalKey(literal);
      if (needed.has(key)) continue;
      needed.add(key);
      for (const action of makers.get(key) ?? []) {
        if (chosen.has(action)) continue;
        chosen.add(action);
        goals.push(action.when);
      }
    }
  }
  // Binding order decides among equally short ways.
  return actions.filter((action) => chosen.has(action));
}

/** By what each makes true. */
function makersOf(
  actions: readonly Action[],
  trust: Trust,
): ReadonlyMap<string, readonly Action[]> {
  const makers = new Map<string, Action[]>();
  for (const action of actions)
    for (const literal of outcomes(action, trust)) pushTo(makers, literalKey(literal), action);
  return makers;
}

/** Searches breadth first, as long as there are few sets. */
function shortest(
  goal: BoundState,
  actions: readonly Action[],
  from: Known,
  trust: Trust,
): readonly string[] | 'none' | 'too far' {
  interface Node extends Reached {
    readonly known: Known;
  }
  // Other names make no difference.
  const names = [...new Set(actions.flatMap(namesOf))];
  const keyOfSet = (known: Known): string =>
    names.map((name) => known.get(name)?.[0] ?? '-').join('');
  const most = Math.min(MOST_SETS, MOST_COMPARED / (names.length + 1));
  const seen = new Set([keyOfSet(from)]);
  const nodes: Node[] = [{ known: from, last: undefined }];
  for (const node of nodes) {
    for (const action of actions) {
      if (!meets(action.when, node.known, trust)) continue;
      const known = knownAfter(action, node.known);
      const key = keyOfSet(known);
      if (seen.has(key)) continue;
      seen.add(key);
      const next = { known, last: { tool: action.tool, from: node } };
      if (meets(goal, known, trust)) return toolsTo(next);
      if (nodes.length >= most) return 'too far';
      nodes.push(next);
    }
  }
  return 'none';
}

/**
 * Makes one call after the other, each one that the cheapest alternative still needs. Each call is
 * allowed where it is made, so the result is a way, though perhaps not the shortest.
 */
function stepByStep(
  goal: BoundState,
  actions: readonly Action[],
  from: Known,
  trust: Trust,
): string[] | undefined {
  const makers = makersOf(actions, trust);
  const path: string[] = [];
  let known = from;
  while (!meets(goal, known, trust)) {
    if (path.length > MOST_CALLS_EACH * actions.length) return undefined;
    const costs = new Costs(actions, known, trust);
    const action = nextAction(goal, new Set(), { makers, known, costs, trust });
    if (action === undefined) return undefined;
    path.push(action.tool);
    known = knownAfter(action, known);
  }
  return path;
}

interface Standpoint {
  readonly makers: ReadonlyMap<string, readonly Action[]>;
  readonly known: Known;
  readonly costs: Costs;
  readonly trust: Trust;
}

function nextAction(
  goal: BoundState,
  above: ReadonlySet<string>,
  at: Standpoint,
): Action | undefined {
  for (const literal of missing(goal, true, at)) {
    const key = literalKey(literal);
    if (above.has(key)) continue;
    const makers = (at.makers.get(key) ?? [])
      .map((action) => ({ action, cost: at.costs.of(action.when) }))
      .filter(({ cost }) => cost < Number.POSITIVE_INFINITY)
      .sort((a, b) => a.cost - b.cost);
    for (const { action } of makers) {
      if (meets(action.when, at.known, at.trust)) return action;
      const first = nextAction(action.when, new Set([...above, key]), at);
      if (first !== undefined) return first;
    }
  }
  return undefined;
}

/**
 * What is missing to make the expression true, or false where that is wanted, in the cheapest way.
 */
function missing(goal: BoundState, wanted: boolean, at: Standpoint): readonly Literal[] {
  if (meets(goal, at.known, at.trust, wanted)) return [];
  const [kind, parts] = partsOf(goal, wanted);
  if (kind === 'literal') return literalsOf(goal, wanted);
  if (kind === 'not') return missing(parts[0] ?? goal, !wanted, at);
  if (kind === 'all') return parts.flatMap((each) => missing(each, wanted, at));
  const [cheapest] = [...parts].sort((a, b) => at.costs.of(a, wanted) - at.costs.of(b, wanted));
  return cheapest === undefined ? [] : missing(cheapest, wanted, at);
}

/**
 * Roughly how many calls it takes to make something true, if nothing were ever undone. What cannot
 * be made true costs infinity.
 */
class Costs {
  readonly #costs = new Map<string, number>();
  readonly #from: Known;
  readonly #trust: Trust;

  constructor(actions: readonly Action[], from: Known, trust: Trust) {
    this.#from = from;
    this.#trust = trust;
    // Only what asks for a name that became cheaper is looked at again.
    const asking = new Map<string, Action[]>();
    for (const action of actions)
      for (const literal of literalsOf(action.when, true))
        pushTo(asking, literalKey(literal), action);
    let open = new Set(actions);
    while (open.size > 0) {
      const next = new Set<Action>();
      for (const action of open) {
        const cost = this.of(action.when) + 1;
        for (const literal of outcomes(action, trust)) {
          if (cost >= this.#ofLiteral(literal)) continue;
          this.#costs.set(literalKey(literal), cost);
          for (const each of asking.get(literalKey(literal)) ?? []) next.add(each);
        }
      }
      open = next;
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
    if (isSo(literal, this.#from, this.#trust)) return 0;
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

/** What an action makes true: in any case, or perhaps. */
function outcomes({ changes }: Action, trust: Trust): readonly Literal[] {
  const { adds, mayAdd, removes, mayRemove } = changes;
  const [added, removed] =
    trust === 'must'
      ? [adds, removes.filter((name) => !mayAdd.includes(name))]
      : [
          [...adds, ...mayAdd],
          [...removes, ...mayRemove],
        ];
  return [
    ...removed.map((name) => ({ name, isDone: false })),
    ...added.map((name) => ({ name, isDone: true })),
  ];
}

function namesOf({ changes }: Action): readonly string[] {
  const { adds, mayAdd, removes, mayRemove } = changes;
  return [...adds, ...mayAdd, ...removes, ...mayRemove];
}

function knownAfter({ changes }: Action, before: Known): Known {
  const { adds, mayAdd, removes, mayRemove } = changes;
  const known = new Map(before);
  for (const name of removes) known.delete(name);
  for (const name of adds) known.set(name, 'surely');
  for (const name of mayAdd) if (!known.has(name)) known.set(name, 'perhaps');
  for (const name of mayRemove)
    if (known.has(name) && !adds.includes(name)) known.set(name, 'perhaps');
  return known;
}

function literalKey({ name, isDone }: Literal): string {
  return `${isDone ? '+' : '-'}${name}`;
}

function isSo({ name, isDone }: Literal, known: Known, trust: Trust): boolean {
  const holds = known.get(name);
  return holds === 'perhaps' ? trust === 'may' : (holds === 'surely') === isDone;
}

/** Whether an expression is true, or false where that is wanted. */
function meets(expression: BoundState, known: Known, trust: Trust, wanted = true): boolean {
  const [kind, parts] = partsOf(expression, wanted);
  if (kind === 'not') return meets(parts[0] ?? expression, known, trust, !wanted);
  if (kind === 'all') return parts.every((each) => meets(each, known, trust, wanted));
  if (kind === 'any') return parts.some((each) => meets(each, known, trust, wanted));
  const [literal] = literalsOf(expression, wanted);
  return literal === undefined ? wanted : isSo(literal, known, trust);
}
