/**
 * Rules such as "this tool after that one", without a machine. Hides how they are checked together,
 * and which bindings make them hold.
 */

import * as z from 'zod/mini';
import { pushTo } from '../basics/collections.ts';
import { configError } from '../basics/errors.ts';
import { isGlob } from '../basics/glob.ts';
import {
  flagOption,
  integerOption,
  isTable,
  lazyOptions,
  optionalFunction,
  parseOptions,
  showValue,
  uncheckedOption,
} from '../basics/options.ts';
import type { Uncertain } from '../stores/store.ts';
import {
  type AnyBinding,
  assertSynchronous,
  type BindingKind,
  type ErrorRule,
  errorsOption,
  type Guard,
  okOptions,
  parseOk,
  type ResultTest,
  type Success,
  type VisibleTest,
} from './binding.ts';
import { columnOfSource } from './columns.ts';
import type { Condition } from './condition.ts';
import { Ledger } from './ledger.ts';
import {
  type CheckedLimit,
  earningOf,
  type Limit,
  parseLimits,
  parseSharedLimits,
} from './limits.ts';
import { type Effect, type Mark, markName, OrderModel } from './order-model.ts';
import { ANY_STATE, type StateExpression } from './position.ts';
import { type Renamed, Renamings, renamedOptions } from './renamings.ts';
import type { OutsideFact } from './rule-parts.ts';
import { checkName, type Leaf, leafOf, parseTime } from './rule-parts.ts';
import { testOfCaller } from './rule-tests.ts';
import {
  type Demands,
  isLeaf,
  leavesOf,
  Needs,
  NO_DEMANDS,
  type OrderRequirement,
  type OutsidePrior,
  type Prior,
  parseAfter,
  parseNotAfter,
  type Requirement,
} from './rules.ts';

/** When a tool is available, how often and how much, and how long its success counts. */
export interface OrderRule<
  N extends string = string,
  D extends string = string,
  O extends string = string,
> extends Renamed {
  /** What must have happened before; all of a list. Default: nothing. */
  readonly after?: OrderRequirement<N, D, O> | readonly OrderRequirement<N, D, O>[] | undefined;
  /**
   * What must not have happened before; none of a list. It may name its own tool, and two tools may
   * name each other. Default: nothing.
   */
  readonly notAfter?:
    | N
    | Prior<N>
    | OutsidePrior<O>
    | readonly (N | Prior<N> | OutsidePrior<O>)[]
    | undefined;
  /** How often it may be called, or how much its calls may add up to; each of a list. */
  readonly limit?: Limit | readonly Limit[] | undefined;
  /**
   * Who may call it: a condition on what `sessionStore({ claims })` says of the caller. It hides the
   * tool from others. A caller of whom nothing is known may not. Default: all callers.
   */
  readonly caller?: Condition | undefined;
  /** The tools whose success undoes this tool's success. Default: none. */
  readonly undoneBy?: N | readonly N[] | undefined;
  /** Whether it may succeed only once, until that is undone or used up. Default `false`. */
  readonly once?: boolean | undefined;
  /**
   * For `once`, `limit` and `notAfter`: only calls count that were claimed from then on, an ISO time
   * with its zone. It opens a new rule to runs that called the tool before. Default: all count.
   */
  readonly from?: string | undefined;
  /**
   * Whether its calls are steps: one at a time in each run, with a claim, an idempotency key and a
   * trail. An unknown outcome holds the run then. `false` is for a lookup: its calls run beside
   * others, and may run again after an unknown outcome. It is an error beside `once`, `limit`,
   * `undoneBy`, `consumes`, an `outcome`, `failure` and `uncertain`. So it is where another rule
   * names the tool in `notAfter`, in `undoneBy`, with `consumes` or with an `outcome`. The tool's
   * annotations do not matter. Default `true`.
   */
  readonly step?: boolean | undefined;
  /** As `errors` of a binding: what an error of the tool says of its outcome. */
  readonly errors?: ErrorRule | undefined;
  /**
   * As `ok` of a binding: what counts as success. Where the result of a lookup with `step: false`
   * leaves it open, the lookup counts for nothing.
   */
  readonly ok?: Condition | ResultTest | undefined;
  /** As `results` of a binding: what conditions read of this tool's results. */
  readonly results?: 'structured' | 'text' | undefined;
  /** As `guard` of a binding. It is asked once all that the rule needs is there. Default: none. */
  readonly guard?: Guard | undefined;
  /** As `visible` of a binding: who sees the tool. Default: all clients. */
  readonly visible?: VisibleTest | undefined;
  /** As `failure` of a binding: the tool whose success a failure of this one counts as. */
  readonly failure?: N | undefined;
  /** As `retries` of a binding: how many failures go before `failure`. */
  readonly retries?: number | undefined;
  /** As `uncertain` of a binding: what follows an unknown outcome. Not beside `step: false`. */
  readonly uncertain?: Uncertain | undefined;
}

/**
 * The rules of a workflow, by tool: `K` has rules, `M` is named by them, `D` are its needs, and `O`
 * comes from outside.
 */
export type OrderRules<
  K extends string = string,
  M extends string = string,
  D extends string = string,
  O extends string = string,
> = {
  readonly [tool in K]: OrderRule<M, D, O>;
};

/** An {@link OrderRule}, checked. */
export interface Rule extends Demands, Renamed {
  readonly undoneBy: readonly string[];
  /** `false` where the author says that its calls are no steps. */
  readonly step: boolean;
  readonly results: Success['results'] | undefined;
  readonly errors: ErrorRule | undefined;
  readonly isOk: Success | undefined;
  readonly guard: Guard | undefined;
  readonly visible: VisibleTest | undefined;
  readonly failure: string | undefined;
  readonly retries: number | undefined;
  readonly uncertain: Uncertain | undefined;
}

const ruleSchema = lazyOptions(() => ({
  ...renamedOptions(),
  after: uncheckedOption(),
  notAfter: uncheckedOption(),
  limit: uncheckedOption(),
  caller: uncheckedOption(),
  undoneBy: uncheckedOption(),
  once: flagOption(),
  from: uncheckedOption(),
  step: z._default(z.boolean(), true),
  errors: errorsOption(),
  ...okOptions(),
  guard: optionalFunction<Guard>(),
  visible: optionalFunction<VisibleTest>(),
  failure: uncheckedOption(),
  retries: z.optional(integerOption(1)),
  uncertain: z.optional(z.enum(['hold', 'retry'])),
}));

/** Rules as the app gives them. */
export interface GivenOrder {
  readonly rules: unknown;
  readonly needs?: unknown;
  readonly outside?: unknown;
  readonly limits?: unknown;
  readonly results?: Success['results'] | undefined;
}

/** Checked rules. They never change. */
export class Order {
  /** Every tool in the rules. A tool stands before those that need it. */
  readonly names: readonly string[];
  /** The rules as a machine. */
  readonly model: OrderModel;
  /** One binding for each tool that has a rule, or whose success matters to one. */
  readonly bindings: readonly AnyBinding[];
  readonly #rules: ReadonlyMap<string, Rule>;
  readonly #asked: ReadonlySet<string>;
  readonly #results: Success['results'] | undefined;
  readonly #marks: Marks;
  readonly #renamings: Renamings;
  /** What comes from outside, by name: no call of a model makes it. */
  readonly outside: ReadonlyMap<string, OutsideFact>;
  /** The tools that others' rules make steps, and why, in words. */
  readonly #steps: ReadonlyMap<string, string>;

  /** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
  static parse(id: string, { rules, needs, outside, results, limits }: GivenOrder): Order {
    const what = `order "${id}"`;
    if (!isTable(rules) || Object.keys(rules).length === 0)
      throw configError(`${what}: expected a table of rules, one or more, got ${showValue(rules)}`);
    const named = new Needs(what, needs, outside);
    const shared = parseSharedLimits(`${what}: limits`, limits);
    for (const tool of shared.keys()) assertNoOutside(`${what}: limits`, tool, named);
    // A limit makes a tool without a rule a step.
    const bare = [...shared.keys()].filter((tool) => !Object.hasOwn(rules, tool));
    const parsed = [...Object.entries(rules), ...bare.map((tool) => [tool, {}] as const)].map(
      ([tool, rule]) => withLimits(parseRule(what, tool, rule, named, results), shared.get(tool)),
    );
    const all = new Map(parsed.map((rule) => [rule.tool, rule]));
    const names = new Set([...parsed.flatMap(namesIn), ...named.outside.keys()]);
    const renamings = Renamings.of(what, all, (tool) => names.has(tool));
    const order = new Order(id, all, new Set(), results, renamings, named.outside);
    order.#assertSteps(what);
    order.#assertPossible(what);
    return order;
  }

  /** @param asked further tools to remember, since other bindings name them */
  private constructor(
    id: string,
    rules: ReadonlyMap<string, Rule>,
    asked: ReadonlySet<string>,
    results: Success['results'] | undefined,
    renamings: Renamings,
    outside: ReadonlyMap<string, OutsideFact>,
  ) {
    this.outside = outside;
    this.#rules = rules;
    this.#renamings = renamings;
    this.#asked = asked;
    this.#results = results;
    const all = [...rules.values()];
    this.#steps = new Map(all.flatMap(stepsMadeBy));
    this.names = Object.freeze([...new Set([...all.flatMap(namesIn), ...outside.keys()])]);
    const fallbacks = new Set(all.map(({ failure }) => failure));
    const plain = this.names.filter((name) => {
      const { once = false, undoneBy = [] } = rules.get(name) ?? {};
      return once || undoneBy.length > 0 || asked.has(name) || fallbacks.has(name);
    });
    const since = all.filter(({ once, fromMs }) => once && fromMs > 0);
    this.#marks = new Marks(all, [...plain.map((tool) => plainLeaf(tool)), ...since.map(onceLeaf)]);
    const undoneBy = new Map<string, string[]>();
    for (const each of all) for (const undoer of each.undoneBy) pushTo(undoneBy, undoer, each.tool);
    const effects = this.names.map((name): [string, Effect] => {
      const using = leavesOf(rules.get(name)?.after).filter((each) => each.consumes !== 'never');
      const ofCalls = using.filter(({ consumes }) => consumes === 'calls');
      const namesOf = (leaves: readonly Leaf[]): string[] => [
        ...new Set(leaves.map(({ tool }) => tool)),
      ];
      const undoes = undoneBy.get(name) ?? [];
      return [name, { undoes, uses: namesOf(using), usesOfCalls: namesOf(ofCalls) }];
    });
    const isKept = (name: string): boolean =>
      rules.get(name)?.step === true || this.#steps.has(name);
    // What an unknown outcome may have undone depends on when it was done.
    const isDoneForGood = (leaf: Leaf): boolean =>
      isPlain(leaf) && (rules.get(leaf.tool)?.undoneBy.length ?? 0) === 0;
    // Asks for a success as plainly as a rule can.
    const plainly = plain.map((tool) => ({ ...NO_DEMANDS, after: leafOf({ tool }) }));
    const kept = this.names.filter(isKept);
    const ledger = Ledger.of(
      [...all, ...plainly],
      renamings,
      kept,
      isDoneForGood,
      new Set(outside.keys()),
    );
    const counting = effects.filter(
      ([name, { undoes, uses }]) =>
        undoes.length + uses.length > 0 ||
        ledger.asksMore(name) ||
        this.#marks.of(name).some(({ leaf }) => leaf.outcome !== 'failed'),
    );
    const marks = this.names.flatMap((name) => this.#marks.of(name));
    this.model = new OrderModel(id, this.names, marks, new Map(counting), ledger);
    this.bindings = Object.freeze(
      this.names
        .filter((name) => !outside.has(name))
        .filter((name) => rules.has(name) || this.model.effects.has(name))
        .map((name) => this.#bindingOf(name)),
    );
  }

  /** The same rules, where a run remembers these tools too. */
  remembering(names: readonly string[]): Order {
    const more = names.filter((each) => this.names.includes(each));
    if (more.every((each) => this.#marks.has(each))) return this;
    const asked = new Set([...this.#asked, ...more]);
    return new Order(
      this.model.id,
      this.#rules,
      asked,
      this.#results,
      this.#renamings,
      this.outside,
    );
  }

  /** A tool's rule; `undefined` where other rules only name it. */
  ruleOf(tool: string): Rule | undefined {
    return this.#rules.get(tool);
  }

  /** What a run's state names while the calls that a leaf counts are there. */
  markOf(leaf: Leaf, kind: Mark['kind']): string {
    return this.#marks.nameOf(leaf, kind);
  }

  /** What it names while a success of the tool is there that no call has used up, for `once`. */
  doneAs(tool: string): string {
    return this.#marks.nameOf(onceLeaf(this.#rules.get(tool) ?? { tool, fromMs: 0 }), 'after');
  }

  /** Whether the rule of one of these tools needs more of a tool than that it has succeeded. */
  needsSteps(tool: string, isOne: (tool: string) => boolean): boolean {
    return [...this.#rules.values()].some(
      (rule) => isOne(rule.tool) && stepsMadeBy(rule).some(([name]) => name === tool),
    );
  }

  /** Whether some rule uses the tool's calls up. */
  consumes(tool: string): boolean {
    return this.#marks.consumed.has(tool);
  }

  #bindingOf(tool: string): AnyBinding {
    const rule = this.#rules.get(tool);
    const { errors, isOk, guard, visible, failure, retries, uncertain } = rule ?? {};
    const { renamed, args } = rule ?? {};
    // A call of unknown outcome may have succeeded once, or undone what the state shows as done.
    const isUndone = (each: Leaf): boolean =>
      (this.#rules.get(each.tool)?.undoneBy.length ?? 0) > 0;
    const isJudged =
      rule !== undefined &&
      (rule.once || rule.caller || asksAboutCalls(rule) || leavesOf(rule.after).some(isUndone));
    const results = rule?.results ?? this.#results;
    return Object.freeze({
      tool,
      states: Object.freeze([this.#statesOf(rule)]),
      kind: this.#callKind(tool),
      ...(this.model.effects.has(tool) && { success: tool }),
      ...(failure !== undefined && { failure }),
      ...(retries !== undefined && { retries }),
      ...(renamed && { renamed }),
      ...(args && { args }),
      ...(errors !== undefined && { errors }),
      ...(isOk && { isOk }),
      ...(guard && { guard }),
      ...(visible && { visible }),
      ...(rule?.caller && { caller: rule.caller }),
      ...(uncertain && { uncertain }),
      ...(results && { results }),
      ...(isJudged && { demands: rule }),
    });
  }

  /** The states in which some call of a tool may be allowed, as an expression over marks. */
  #statesOf(rule: Rule | undefined): StateExpression {
    if (rule === undefined) return ANY_STATE;
    const { tool, after, notAfter, once } = rule;
    const parts: StateExpression[] = after === undefined ? [] : [this.#expressionOf(after)];
    for (const each of notAfter) {
      if (each.when !== undefined || each.same.length > 0) continue;
      parts.push(Object.freeze({ not: this.#marks.nameOf(each, 'notAfter') }));
    }
    if (once) parts.push(Object.freeze({ not: this.doneAs(tool) }));
    const all = parts.flatMap((each) =>
      typeof each === 'object' && 'all' in each ? each.all : [each],
    );
    const asked = all.filter((each) => each !== ANY_STATE);
    const [only = ANY_STATE, ...others] = asked;
    return others.length === 0 ? only : Object.freeze({ all: Object.freeze(asked) });
  }

  /** A requirement that is only about some calls leaves the others through. */
  #expressionOf(requirement: Requirement): StateExpression {
    if (requirement.when !== undefined) return ANY_STATE;
    if (isLeaf(requirement)) return this.#marks.nameOf(requirement, 'after');
    if ('all' in requirement) {
      const parts = requirement.all
        .map((each) => this.#expressionOf(each))
        .filter((each) => each !== ANY_STATE);
      const [only = ANY_STATE, ...others] = parts;
      return others.length === 0 ? only : Object.freeze({ all: Object.freeze(parts) });
    }
    // All of its alternatives may be left out, else one that is not decides.
    if (requirement.any.every(mayBeLeftOut)) return ANY_STATE;
    return this.#anyOf(requirement.any);
  }

  #anyOf(requirements: readonly Requirement[]): StateExpression {
    const parts = requirements.map((each) => this.#expressionIfAsked(each));
    return parts.includes(ANY_STATE) ? ANY_STATE : Object.freeze({ any: Object.freeze(parts) });
  }

  /** What is needed of a call that it is about, at least in part. */
  #expressionIfAsked(requirement: Requirement): StateExpression {
    if (isLeaf(requirement)) return this.#expressionOf(withoutWhen(requirement));
    if ('any' in requirement) return this.#anyOf(requirement.any);
    const isOpen = requirement.all.every(mayBeLeftOut);
    return isOpen ? this.#anyOf(requirement.all) : this.#expressionOf(withoutWhen(requirement));
  }

  #callKind(tool: string): BindingKind {
    const { step = false } = this.#rules.get(tool) ?? {};
    if (step || this.#steps.has(tool)) return 'step';
    const isAsked = this.#marks.of(tool).length > 0 || this.model.ledger.asksMore(tool);
    return isAsked ? 'recorded' : 'free';
  }

  /** @throws InterlockError where a rule says `step: false` of a tool that must be a step */
  #assertSteps(what: string): void {
    for (const rule of this.#rules.values()) {
      const { tool, step, once, undoneBy, after, notAfter, limits } = rule;
      if (step) continue;
      const own = `${what}: rule of ${showValue(tool)}: step: false`;
      if (rule.isOk && this.#callKind(tool) === 'free')
        throw configError(`${own}: "ok" has no effect, since no rule names the tool's success`);
      const leaves = [...leavesOf(after), ...notAfter];
      for (const [name, isThere] of Object.entries({
        once,
        limit: limits.length > 0,
        undoneBy: undoneBy.length > 0,
        consumes: leaves.some(({ consumes }) => consumes !== 'never'),
        outcome: leaves.some(({ outcome }) => outcome !== 'succeeded'),
        failure: rule.failure !== undefined,
        uncertain: rule.uncertain !== undefined,
      }))
        if (isThere)
          throw configError(`${own} does not go with "${name}", which only a step can keep`);
      const why = this.#steps.get(tool);
      if (why !== undefined) throw configError(`${own}: it must be a step, since ${why}`);
    }
  }

  /** @throws InterlockError where some tool could never be called */
  #assertPossible(what: string): void {
    const possible = new Set(this.names.filter((name) => this.#rules.get(name) === undefined));
    // What needs a tool is asked again once that is possible.
    const needing = new Map<string, Rule[]>();
    for (const rule of this.#rules.values())
      for (const { tool } of leavesOf(rule.after)) pushTo(needing, tool, rule);
    const open = [...this.#rules.values()];
    for (const { tool, after } of open) {
      if (possible.has(tool) || !isPossible(after, possible)) continue;
      possible.add(tool);
      open.push(...(needing.get(tool) ?? []));
    }
    const stuck = this.names.find((name) => !possible.has(name));
    if (stuck === undefined) return;
    const chain = [stuck];
    for (;;) {
      const next = leavesOf(this.#rules.get(chain.at(-1) ?? '')?.after).find(
        ({ tool, when }) => when === undefined && !possible.has(tool),
      );
      if (next === undefined) break;
      const start = chain.indexOf(next.tool);
      chain.push(next.tool);
      if (start === -1) continue;
      chain.splice(0, start);
      break;
    }
    const circle = chain.map(showValue).join(' after ');
    throw configError(`${what}: ${showValue(chain[0])} can never be called: ${circle}`);
  }
}

/** What may hold in a run, each by one name. */
class Marks {
  readonly #byTool = new Map<string, Mark[]>();
  readonly #names = new Map<string, string>();
  /** The tools of which some rule uses calls up. */
  readonly consumed: ReadonlySet<string>;

  /** @param plain the successes that count as long as they are not used up */
  constructor(rules: readonly Rule[], plain: readonly Leaf[]) {
    const needed = rules.flatMap(({ after }) => leavesOf(after));
    this.consumed = new Set(
      needed.flatMap(({ tool, consumes }) => (consumes === 'never' ? [] : [tool])),
    );
    const isUsing = ({ consumes }: Leaf): number => Number(consumes !== 'never');
    for (const each of [...needed].sort((a, b) => isUsing(a) - isUsing(b)))
      this.#add(each, 'after');
    for (const { notAfter } of rules) for (const each of notAfter) this.#add(each, 'notAfter');
    for (const each of plain) this.#add(each, 'after');
  }

  of(tool: string): readonly Mark[] {
    return this.#byTool.get(tool) ?? [];
  }

  has(name: string): boolean {
    return this.#byTool.get(name)?.some((each) => each.name === name) === true;
  }

  nameOf(leaf: Leaf, kind: Mark['kind']): string {
    return this.#names.get(this.#keyOf(leaf, kind)) ?? leaf.tool;
  }

  #add(asked: Leaf, kind: Mark['kind']): void {
    const key = this.#keyOf(asked, kind);
    if (this.#names.has(key)) return;
    const { tool } = asked;
    const marks = this.#byTool.get(tool) ?? [];
    this.#byTool.set(tool, marks);
    const wanted = markName(asked, kind);
    const isTaken = (name: string): boolean => marks.some((each) => each.name === name);
    let name = isTaken(wanted) && asked.consumes !== 'never' ? `${wanted} unused` : wanted;
    for (let i = 2; isTaken(name); i++) name = `${wanted} (${i})`;
    this.#names.set(key, name);
    marks.push({ name, leaf: { ...asked, same: [], atMost: [], when: undefined }, kind });
  }

  /** The same for leaves that count the same calls, with any arguments of this call. */
  #keyOf(
    { tool, outcome, withinMs, tests, times, distinct, consumes, fromMs }: Leaf,
    kind: string,
  ): string {
    const isUnused = consumes !== 'never' && this.consumed.has(tool);
    const tested = tests.map(({ from, key }) => [from, key]);
    const values = distinct && columnOfSource(distinct);
    return JSON.stringify([kind, tool, outcome, withinMs, tested, times, values, isUnused, fromMs]);
  }
}

/** Each tool that a rule makes a step, and why, in words. */
function stepsMadeBy({ tool, after, notAfter, undoneBy }: Rule): (readonly [string, string])[] {
  const name = showValue(tool);
  return [
    ...leavesOf(after).flatMap((each): (readonly [string, string])[] => {
      if (each.consumes !== 'never') return [[each.tool, `${name} consumes its success`]];
      return each.outcome === 'succeeded' ? [] : [[each.tool, `${name} asks for its outcome`]];
    }),
    ...notAfter.map((each) => [each.tool, `${name} must not come after it`] as const),
    ...undoneBy.map((each) => [each, `it undoes ${name}`] as const),
  ];
}

function namesIn({ tool, after, notAfter, limits, undoneBy, failure }: Rule): readonly string[] {
  const needed = [...leavesOf(after), ...limits.flatMap(earningOf)].map((each) => each.tool);
  const barring = notAfter.map((each) => each.tool);
  return [...needed, tool, ...barring, ...undoneBy, ...(failure === undefined ? [] : [failure])];
}

/** Whether a run needs to know of it only that its tool is done. */
function isPlain(leaf: Leaf): boolean {
  const { outcome, withinMs, same, tests, times, distinct, atMost, consumes, isByOthers } = leaf;
  if (isByOthers) return false;
  const isEver = outcome === 'succeeded' && withinMs === Number.POSITIVE_INFINITY;
  const isEach = isEver && times === 1 && distinct === undefined;
  const isAnyCall = same.length + tests.length + atMost.length === 0;
  return isEach && isAnyCall && consumes === 'never';
}

/** Whether more than the state decides about a call. */
function asksAboutCalls({ after, notAfter, limits }: Demands): boolean {
  const isAsking = (each: Requirement): boolean =>
    each.when !== undefined ||
    (isLeaf(each) ? !isPlain(each) : ('all' in each ? each.all : each.any).some(isAsking));
  return (after !== undefined && isAsking(after)) || notAfter.length + limits.length > 0;
}

/** As a binding or `once` asks for a success: one that no call has used up. */
function plainLeaf(tool: string): Leaf {
  return leafOf({ tool, consumes: 'successes' });
}

function onceLeaf({ tool, fromMs }: Pick<Rule, 'tool' | 'fromMs'>): Leaf {
  return leafOf({ tool, fromMs, consumes: 'successes' });
}

/** Whether a requirement is not about some call, nor any part of it. */
function mayBeLeftOut(requirement: Requirement): boolean {
  if (requirement.when !== undefined) return true;
  if (isLeaf(requirement)) return false;
  return ('all' in requirement ? requirement.all : requirement.any).every(mayBeLeftOut);
}

function withoutWhen(requirement: Requirement): Requirement {
  return { ...requirement, when: undefined };
}

function isPossible(requirement: Requirement | undefined, possible: ReadonlySet<string>): boolean {
  if (requirement === undefined || requirement.when !== undefined) return true;
  if (isLeaf(requirement)) return possible.has(requirement.tool);
  return 'all' in requirement
    ? requirement.all.every((each) => isPossible(each, possible))
    : requirement.any.some((each) => isPossible(withoutWhen(each), possible));
}

function withLimits(rule: Rule, limits: readonly CheckedLimit[] = []): Rule {
  return limits.length === 0 ? rule : { ...rule, limits: [...rule.limits, ...limits] };
}

function assertNoOutside(what: string, name: unknown, { outside }: Needs): void {
  if (typeof name !== 'string' || !outside.has(name)) return;
  throw configError(`${what}: ${showValue(name)} comes from outside, so it is no tool`);
}

function parseRule(
  what: string,
  tool: string,
  rule: unknown,
  needs: Needs,
  shared: Success['results'] | undefined,
): Rule {
  const own = `${what}: rule of ${showValue(tool)}`;
  checkName(what, tool);
  assertNoOutside(own, tool, needs);
  if (isGlob(tool)) throw configError(`${own}: a rule is of one tool, by its name; this is a glob`);
  if (rule === undefined) throw configError(`${own}: expected an object, got undefined`);
  const {
    after,
    notAfter,
    limit,
    caller,
    undoneBy = [],
    from,
    ok,
    results,
    ...parsed
  } = parseOptions(own, ruleSchema, rule);
  const { failure, retries } = parsed;
  assertSynchronous(own, 'errors', parsed.errors);
  assertSynchronous(own, 'visible', parsed.visible);
  const needed = after === undefined ? undefined : parseAfter(`${own}: after`, after, needs);
  if (leavesOf(needed).some((each) => each.tool === tool && each.when === undefined))
    throw configError(
      `${own}: after: a tool cannot be after itself; for "at most once" say once: true`,
    );
  const undoers: readonly unknown[] = Array.isArray(undoneBy) ? undoneBy : [undoneBy];
  for (const undoer of undoers) {
    checkName(`${own}: undoneBy`, undoer);
    assertNoOutside(`${own}: undoneBy`, undoer, needs);
  }
  if (undoers.includes(tool)) throw configError(`${own}: undoneBy: a tool cannot undo itself`);
  if (failure !== undefined) checkName(`${own}: failure`, failure);
  assertNoOutside(`${own}: failure`, failure, needs);
  if (failure === tool)
    throw configError(`${own}: failure: a failure of a tool cannot count as its success`);
  if (retries !== undefined && failure === undefined)
    throw configError(`${own}: "retries" counts the failures before "failure"; give "failure" too`);
  const fromMs = from === undefined ? 0 : parseTime(`${own}: from`, from);
  if (from !== undefined && !parsed.once && (limit ?? notAfter) === undefined)
    throw configError(`${own}: "from" is about "once", "limit" and "notAfter"; give one of them`);
  const isFunction = typeof ok === 'function';
  return {
    ...parsed,
    tool,
    caller: caller === undefined ? undefined : testOfCaller(`${own}: caller`, caller),
    after: needed,
    notAfter:
      notAfter === undefined ? [] : parseNotAfter(`${own}: notAfter`, notAfter, fromMs, needs),
    limits: parseLimits(`${own}: limit`, tool, limit, fromMs),
    fromMs,
    undoneBy: [...new Set(undoers.map(String))],
    failure: failure === undefined ? undefined : String(failure),
    results,
    isOk: parseOk(
      own,
      ok === undefined ? {} : isFunction ? { ok } : { ok, results: results ?? shared },
    ),
  } as Rule;
}
