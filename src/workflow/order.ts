/**
 * Rules such as "this tool after that one", without a machine. It hides how they are read and
 * checked, and which bindings make them hold.
 */
import * as z from 'zod/mini';
import { InterlockError } from '../errors.ts';
import { functionOption, isTable, lazyOptions, parseOptions, showValue } from '../options.ts';
import type { Uncertain } from '../stores/store.ts';
import {
  type AnyBinding,
  assertSynchronous,
  type CallKind,
  type ErrorRule,
  errorsOption,
  type Guard,
  type GuardedCall,
  okOptions,
  parseOk,
  type ResultTest,
  type Success,
  type VisibleTest,
} from './binding.ts';
import { placementOf } from './bound-tools.ts';
import type { Condition } from './condition.ts';
import {
  argumentsKey,
  digestOfArguments,
  type Effect,
  memoryOf,
  type Needed,
  OrderModel,
  RememberedCalls,
  readText,
} from './order-model.ts';
import { ANY_STATE, type StateExpression } from './position.ts';

/** An earlier call that a tool needs. `N` are the names of tools. */
export interface EarlierCall<N extends string = string> {
  /** Whose success is needed. */
  readonly tool: N;
  /**
   * The arguments in which the two calls must agree. Where the tools name one differently, a table
   * of this tool's names and the earlier tool's: `{ order_id: 'id' }`. Values agree where their
   * JSON is equal, and numbers where they are equal by value, to the last digit. A missing value
   * agrees with none. Default: any call counts.
   */
  readonly same?: readonly string[] | { readonly [argument: string]: string } | undefined;
  /**
   * Whether a success of this tool uses the earlier success up, so that each call needs a new one.
   * With `same`, it uses up only the calls with these values. Default `false`.
   */
  readonly consumes?: boolean | undefined;
}

/** What a tool needs: the success of another tool, of all of several, or of any of several. */
export type OrderRequirement<N extends string = string> =
  | N
  | EarlierCall<N>
  | { readonly all: readonly OrderRequirement<N>[] }
  | { readonly any: readonly OrderRequirement<N>[] };

/** When a tool is available, and how long its success counts. */
export interface OrderRule<N extends string = string> {
  /** What must have succeeded before; all of a list. Default: nothing. */
  readonly after?: OrderRequirement<N> | readonly OrderRequirement<N>[] | undefined;
  /** The tools whose success undoes this tool's success. Default: none. */
  readonly undoneBy?: N | readonly N[] | undefined;
  /** Whether it may succeed only once, until that is undone. Default `false`. */
  readonly once?: boolean | undefined;
  /**
   * Whether its calls are steps: one at a time in each run, with a claim, an idempotency key and a
   * trail. An unknown outcome holds the run then. `false` is for a lookup: its calls run beside
   * others, and may run again after an unknown outcome. `false` is an error beside `once`,
   * `undoneBy` and `consumes`, and where another rule consumes this tool's success or is undone by
   * it. The tool's annotations do not matter. Default `true`.
   */
  readonly step?: boolean | undefined;
  /** As `errors` of a binding: what an error of the tool says of its outcome. */
  readonly errors?: ErrorRule | undefined;
  /**
   * As `ok` of a binding: what counts as success. Where the result of a lookup with `step: false`
   * leaves it open, the lookup counts for nothing.
   */
  readonly ok?: Condition | ResultTest | undefined;
  /** As `results` of a binding: what the condition `ok` reads. */
  readonly results?: 'structured' | 'text' | undefined;
  /** As `guard` of a binding. It is asked once all that the rule needs is there. Default: none. */
  readonly guard?: Guard | undefined;
  /** As `visible` of a binding: who sees the tool. Default: all clients. */
  readonly visible?: VisibleTest | undefined;
  /** As `uncertain` of a binding: what follows an unknown outcome. Not beside `step: false`. */
  readonly uncertain?: Uncertain | undefined;
}

/** The rules of a workflow, by tool: `K` has rules, `M` is named by them. */
export type OrderRules<K extends string = string, M extends string = string> = {
  readonly [tool in K]: OrderRule<M>;
};

/** `after` of a rule, checked. */
export type Requirement =
  | Needed
  | { readonly all: readonly Requirement[] }
  | { readonly any: readonly Requirement[] };

/** An {@link OrderRule}, checked. */
export interface Rule {
  readonly tool: string;
  readonly after: Requirement | undefined;
  readonly undoneBy: readonly string[];
  readonly once: boolean;
  /** `false` where the author says that its calls are no steps. */
  readonly step: boolean;
  readonly errors: ErrorRule | undefined;
  readonly isOk: Success | undefined;
  readonly guard: Guard | undefined;
  readonly visible: VisibleTest | undefined;
  readonly uncertain: Uncertain | undefined;
}

const ruleSchema = lazyOptions(() => ({
  after: z.optional(z.unknown()),
  undoneBy: z.optional(z.unknown()),
  once: z._default(z.boolean(), false),
  step: z._default(z.boolean(), true),
  errors: errorsOption(),
  ...okOptions(),
  guard: z.optional(functionOption<Guard>()),
  visible: z.optional(functionOption<VisibleTest>()),
  uncertain: z.optional(z.enum(['hold', 'retry'])),
}));

const neededSchema = lazyOptions(() => ({
  tool: z.string().check(z.minLength(1)),
  same: z.optional(
    z.union([
      z.array(z.string()).check(z.minLength(1)),
      z.custom<Record<string, string>>(isTableOfNames, 'expected names of arguments'),
    ]),
  ),
  consumes: z._default(z.boolean(), false),
}));

/** Checked rules of order. They never change. */
export class Order {
  /** Every tool in the rules. A tool stands before those that need it. */
  readonly names: readonly string[];
  /** The rules as a machine. */
  readonly model: OrderModel;
  /** One binding for each tool that has a rule, or whose success matters to one. */
  readonly bindings: readonly AnyBinding[];
  readonly #rules: ReadonlyMap<string, Rule>;
  readonly #asked: ReadonlySet<string>;
  /** The tools that others' rules make steps, and why, in words. */
  readonly #steps: ReadonlyMap<string, string>;

  /** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
  static parse(id: string, rules: unknown): Order {
    const what = `order "${id}"`;
    if (!isTable(rules) || Object.keys(rules).length === 0)
      throw fault(`${what}: expected a table of rules, one or more, got ${showValue(rules)}`);
    const parsed = Object.entries(rules).map(([tool, rule]) => parseRule(what, tool, rule));
    const order = new Order(id, new Map(parsed.map((rule) => [rule.tool, rule])), new Set());
    order.#assertSteps(what);
    order.#assertPossible(what);
    return order;
  }

  /** @param asked further tools to remember, since other bindings name them */
  private constructor(id: string, rules: ReadonlyMap<string, Rule>, asked: ReadonlySet<string>) {
    this.#rules = rules;
    this.#asked = asked;
    const all = [...rules.values()];
    const needed = all.flatMap(({ after }) => neededBy(after));
    this.#steps = new Map(
      all.flatMap(({ tool, after, undoneBy }) => [
        ...neededBy(after)
          .filter(({ consumes }) => consumes)
          .map((each) => [each.tool, `${showValue(tool)} consumes its success`] as const),
        ...undoneBy.map((each) => [each, `it undoes ${showValue(tool)}`] as const),
      ]),
    );
    const names = all.flatMap(({ tool, after, undoneBy }) => [
      ...neededBy(after).map((each) => each.tool),
      tool,
      ...undoneBy,
    ]);
    this.names = Object.freeze([...new Set(names)]);
    const isRemembered = (name: string): boolean => {
      const { once = false, undoneBy = [] } = rules.get(name) ?? {};
      const isNeeded = needed.some(({ tool }) => tool === name);
      return isNeeded || once || undoneBy.length > 0 || asked.has(name);
    };
    const effects = this.names.map((name): [string, Effect] => {
      const kinds = needed.filter(({ tool, own }) => tool === name && own.length > 0);
      const effect = {
        isRemembered: isRemembered(name),
        undoes: all.filter(({ undoneBy }) => undoneBy.includes(name)).map(({ tool }) => tool),
        uses: neededBy(rules.get(name)?.after).filter(({ consumes }) => consumes),
        isMetWithout: (use: Needed, done: ReadonlySet<string>) =>
          isMet(rules.get(name)?.after, (each) => each !== use && done.has(each.tool)),
        kinds: [...new Map(kinds.map(({ earlier }) => [argumentsKey(earlier), earlier])).values()],
      };
      return [name, effect];
    });
    const counting = effects.filter(
      ([, each]) => each.isRemembered || each.undoes.length + each.uses.length > 0,
    );
    this.model = new OrderModel(id, this.names, new Map(counting));
    this.bindings = Object.freeze(
      this.names
        .filter((name) => rules.has(name) || this.model.effects.has(name))
        .map((name) => this.#bindingOf(name)),
    );
  }

  /** The same rules, where a run remembers these tools too. */
  remembering(names: readonly string[]): Order {
    const more = names.filter((each) => this.names.includes(each));
    if (more.every((each) => this.model.effects.get(each)?.isRemembered)) return this;
    return new Order(this.model.id, this.#rules, new Set([...this.#asked, ...more]));
  }

  /** A tool's rule; `undefined` where other rules only name it. */
  ruleOf(tool: string): Rule | undefined {
    return this.#rules.get(tool);
  }

  #bindingOf(tool: string): AnyBinding {
    const rule = this.#rules.get(tool);
    const { after, once = false, errors, isOk, visible, uncertain } = rule ?? {};
    const effect = this.model.effects.get(tool);
    const states = expressionOf(after, once ? tool : undefined);
    const isAboutArguments = neededBy(after).some(({ own }) => own.length > 0);
    const needs = isAboutArguments && after !== undefined ? guardOf(after) : undefined;
    const guard = needs && rule?.guard ? inTurn(needs, rule.guard) : (needs ?? rule?.guard);
    return Object.freeze({
      tool,
      states: Object.freeze([states]),
      kind: this.#callKind(tool, effect),
      ...(effect && { success: successOf(tool, effect) }),
      ...(errors !== undefined && { errors }),
      ...(isOk && { isOk }),
      ...(guard && { guard }),
      ...(visible && { visible }),
      ...(uncertain && { uncertain }),
    });
  }

  /** A tool with a rule is a step, and so is one whose success takes another's away, or is used. */
  #callKind(tool: string, effect: Effect | undefined): CallKind {
    const { step = false } = this.#rules.get(tool) ?? {};
    if (step || this.#steps.has(tool)) return 'step';
    return effect?.isRemembered === true ? 'recorded' : 'free';
  }

  /** @throws InterlockError where a rule says `step: false` of a tool that must be a step */
  #assertSteps(what: string): void {
    for (const { tool, step, once, undoneBy, after, isOk, uncertain } of this.#rules.values()) {
      if (step) continue;
      const own = `${what}: rule of ${showValue(tool)}: step: false`;
      if (isOk && this.#callKind(tool, this.model.effects.get(tool)) === 'free')
        throw fault(`${own}: "ok" has no effect, since no rule names the tool's success`);
      const isUsing = neededBy(after).some(({ consumes }) => consumes);
      for (const [name, isThere] of Object.entries({
        once,
        undoneBy: undoneBy.length > 0,
        consumes: isUsing,
        uncertain: uncertain !== undefined,
      }))
        if (isThere) throw fault(`${own} does not go with "${name}", which only a step can keep`);
      const why = this.#steps.get(tool);
      if (why !== undefined) throw fault(`${own}: it must be a step, since ${why}`);
    }
  }

  /** @throws InterlockError where some tool could never be called */
  #assertPossible(what: string): void {
    const possible = new Set(this.names.filter((name) => this.#rules.get(name) === undefined));
    for (let before = -1; before < possible.size; ) {
      before = possible.size;
      for (const { tool, after } of this.#rules.values())
        if (isMet(after, ({ tool }) => possible.has(tool))) possible.add(tool);
    }
    const stuck = this.names.find((name) => !possible.has(name));
    if (stuck === undefined) return;
    const chain = [stuck];
    for (;;) {
      const next = neededBy(this.#rules.get(chain.at(-1) ?? '')?.after).find(
        ({ tool }) => !possible.has(tool),
      );
      if (next === undefined) break;
      const start = chain.indexOf(next.tool);
      chain.push(next.tool);
      if (start === -1) continue;
      chain.splice(0, start);
      break;
    }
    const circle = chain.map(showValue).join(' after ');
    throw fault(`${what}: ${showValue(chain[0])} can never be called: ${circle}`);
  }
}

function parseRule(what: string, tool: string, rule: unknown): Rule {
  const own = `${what}: rule of ${showValue(tool)}`;
  checkName(what, tool);
  if (rule === undefined) throw fault(`${own}: expected an object, got undefined`);
  const { after, undoneBy = [], ...parsed } = parseOptions(own, ruleSchema, rule);
  assertSynchronous(own, 'errors', parsed.errors);
  const needs = after === undefined ? undefined : parseAfter(own, after);
  if (neededBy(needs).some((each) => each.tool === tool))
    throw fault(`${own}: after: a tool cannot be after itself; for "at most once" say once: true`);
  const undoers: readonly unknown[] = Array.isArray(undoneBy) ? undoneBy : [undoneBy];
  for (const undoer of undoers) checkName(`${own}: undoneBy`, undoer);
  if (undoers.includes(tool)) throw fault(`${own}: undoneBy: a tool cannot undo itself`);
  const undone = [...new Set(undoers.map(String))];
  const { once, step, errors, guard, visible, uncertain } = parsed;
  const isOk = parseOk(own, parsed);
  assertSynchronous(own, 'visible', visible);
  const asked = { errors, isOk, guard, visible, uncertain };
  return { tool, after: needs, undoneBy: undone, once, step, ...asked };
}

function parseAfter(what: string, after: unknown): Requirement {
  const list: readonly unknown[] | undefined = Array.isArray(after) ? after : undefined;
  if (list?.length === 0)
    throw fault(`${what}: after: expected one requirement or more, got an empty array`);
  const [only, ...others] = list ?? [after];
  if (others.length === 0) return parseRequirement(`${what}: after`, only);
  return { all: (list ?? []).map((each) => parseRequirement(`${what}: after`, each)) };
}

function parseRequirement(what: string, value: unknown): Requirement {
  if (typeof value === 'string') {
    checkName(what, value);
    return { tool: value, own: [], earlier: [], consumes: false };
  }
  const keys = isTable(value) ? Object.keys(value) : [];
  if (isTable(value) && keys.length === 1 && (keys[0] === 'all' || keys[0] === 'any')) {
    const [key] = keys;
    const parts: unknown = value[key];
    if (!Array.isArray(parts) || parts.length === 0)
      throw fault(`${what}: ${key}: expected one requirement or more, got ${showValue(parts)}`);
    const parsed = parts.map((each) => parseRequirement(`${what}: ${key}`, each));
    return key === 'all' ? { all: parsed } : { any: parsed };
  }
  if (!isTable(value) || !Object.hasOwn(value, 'tool')) {
    const got = keys.length === 0 ? showValue(value) : `{ ${keys.join(', ')} }`;
    throw fault(
      `${what}: expected the name of a tool, { tool }, { all: […] } or { any: […] }, got ${got}`,
    );
  }
  const { tool, same = [], consumes } = parseOptions(what, neededSchema, value);
  checkName(what, tool);
  const pairs = Array.isArray(same)
    ? [...new Set(same)].map((name) => [name, name] as const)
    : Object.entries(same);
  const sorted = pairs.sort(([, a], [, b]) => (a < b ? -1 : 1));
  return {
    tool,
    own: sorted.map(([own]) => own),
    earlier: sorted.map(([, earlier]) => earlier),
    consumes,
  };
}

function checkName(what: string, name: unknown): void {
  if (typeof name === 'string' && name !== '' && name !== ANY_STATE) return;
  throw fault(`${what}: expected the name of a tool, got ${showValue(name)}`);
}

function isTableOfNames(value: unknown): boolean {
  if (!isTable(value)) return false;
  const names = Object.values(value);
  return names.length > 0 && names.every((each) => typeof each === 'string');
}

function fault(message: string): InterlockError {
  return new InterlockError('ERR_INTERLOCK_CONFIG', message);
}

/** Every earlier call that a requirement names, at any depth. */
function neededBy(requirement: Requirement | undefined): readonly Needed[] {
  if (requirement === undefined) return [];
  if ('tool' in requirement) return [requirement];
  return ('all' in requirement ? requirement.all : requirement.any).flatMap(neededBy);
}

function isMet(requirement: Requirement | undefined, isDone: (needed: Needed) => boolean): boolean {
  if (requirement === undefined) return true;
  if ('tool' in requirement) return isDone(requirement);
  return 'all' in requirement
    ? requirement.all.every((each) => isMet(each, isDone))
    : requirement.any.some((each) => isMet(each, isDone));
}

/** The states in which a tool is available, as an expression over what is done. */
function expressionOf(after: Requirement | undefined, once: string | undefined): StateExpression {
  const needs = after === undefined ? [] : [namesOf(after)];
  const parts = needs.flatMap((each) =>
    typeof each === 'object' && 'all' in each ? each.all : [each],
  );
  const all = once === undefined ? parts : [...parts, Object.freeze({ not: once })];
  const [only = ANY_STATE, ...others] = all;
  return others.length === 0 ? only : Object.freeze({ all: Object.freeze(all) });
}

function namesOf(requirement: Requirement): StateExpression {
  if ('tool' in requirement) return requirement.tool;
  return 'all' in requirement
    ? Object.freeze({ all: Object.freeze(requirement.all.map(namesOf)) })
    : Object.freeze({ any: Object.freeze(requirement.any.map(namesOf)) });
}

/** The event of a success has the name of the tool. */
function successOf(tool: string, effect: Effect): AnyBinding['success'] {
  const readsArguments = effect.kinds.length > 0 || effect.uses.some(({ own }) => own.length > 0);
  if (!readsArguments) return tool;
  const success = ({ args }: { readonly args: Readonly<Record<string, unknown>> }) => {
    return { type: tool, memory: memoryOf(effect, args) };
  };
  return Object.freeze(Object.assign(success, { sends: tool }));
}

/** Refuses a call that needs an earlier one with the same arguments, and says which. */
/** The second guard is asked where the first one lets the call through. */
function inTurn(first: (call: GuardedCall) => boolean | string, second: Guard): Guard {
  return (call) => {
    const answer = first(call);
    return answer === true ? second(call) : answer;
  };
}

function guardOf(after: Requirement): (call: GuardedCall) => boolean | string {
  return (call) => {
    const placement = placementOf(call);
    const done = readText(call.state);
    if (placement === undefined || done === undefined) return false;
    const { position, args } = placement;
    const calls = new RememberedCalls(position);
    const isMade = ({ tool, own, earlier }: Needed): boolean => {
      if (own.length === 0) return done.has(tool);
      const digest = digestOfArguments(args, own);
      return done.has(tool) && digest !== null && calls.has(tool, earlier, digest);
    };
    return isMet(after, isMade) || missingWords(after, isMade);
  };
}

/** Which call is missing, in words: the first one of `all`, or each one of `any`. */
function missingWords(requirement: Requirement, isMade: (needed: Needed) => boolean): string {
  if ('any' in requirement)
    return requirement.any.map((each) => missingWords(each, isMade)).join(', or ');
  if ('all' in requirement) {
    const missing = requirement.all.find((each) => !isMet(each, isMade));
    return missing === undefined ? '' : missingWords(missing, isMade);
  }
  const { tool, own, earlier } = requirement;
  if (own.length === 0) return `call ${tool} first`;
  const isSameName = own.every((name, i) => name === earlier[i]);
  if (isSameName) return `call ${tool} with the same ${own.join(' and ')} first`;
  const pairs = own.map((name, i) => `its ${earlier[i]} the same as ${name} here`);
  return `call ${tool} first, with ${pairs.join(' and ')}`;
}
