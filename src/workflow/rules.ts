/**
 * What an author says of a tool by rules: after what it may be called, after what not, and how
 * much. Hides how rules are read and checked, and names of requirements.
 */
import * as z from 'zod/mini';
import { rightNames } from '../basics/names.ts';
import {
  integerOption,
  isTable,
  lazyOptions,
  parseOptions,
  showValue,
  textOption,
  uncheckedOption,
} from '../basics/options.ts';
import { type Condition, fault } from './condition.ts';
import type { CheckedLimit } from './limits.ts';
import {
  type AmountOf,
  type ArgumentsCondition,
  BY,
  checkName,
  type Duration,
  type EarlierValue,
  type Leaf,
  leafOf,
  MOST_TIMES,
  type OutsideFact,
  outcomes,
  parseAtMost,
  parseSame,
  type ResultCondition,
  sourceOf,
  withinOf,
} from './rule-parts.ts';
import { assertNames, bothTests, type PastTest, parseTest, type Test } from './rule-tests.ts';

/** Which earlier calls of a tool count. `N` are the names of tools. */
export interface Prior<N extends string = string> {
  readonly tool: N;
  /**
   * For how long it counts. In `after` from when its outcome was decided, in `notAfter` from the
   * later of that and its claim, by the store's clock. At the edge it counts no more. Default: for
   * ever.
   */
  readonly within?: Duration | undefined;
  /**
   * The values in which the two calls must agree. That is a list of paths into the arguments, or a
   * table from a path of this call's arguments to the earlier call's value. Values agree where
   * their JSON is equal. Of lists, `after` needs each member of this call's among the earlier's,
   * and `notAfter` one in common. `'all'`: all arguments are equal, and neither call has more.
   * Default: any call counts.
   */
  readonly same?: 'all' | readonly string[] | { readonly [path: string]: EarlierValue } | undefined;
  /**
   * The requirement is only about calls whose own arguments meet this. Where they leave it open,
   * the call is refused. Default: about each call.
   */
  readonly when?: ArgumentsCondition | undefined;
  /** As `when`, of what `sessionStore({ claims })` says of this call's caller. Default: each. */
  readonly whenCaller?: Condition | undefined;
  /** Only earlier calls count whose arguments met this. Default: all. */
  readonly args?: ArgumentsCondition | undefined;
  /** Only earlier calls count whose caller met this then. Default: all. */
  readonly byCaller?: Condition | undefined;
  /** Only earlier calls count whose result met this. Default: all. */
  readonly result?: ResultCondition | undefined;
  /**
   * Which outcome counts. `'any'`: each call that was forwarded, also while its outcome is unknown.
   * Refused calls never count, and in `after` none that the server answered with the error -32602,
   * for invalid arguments. Default `'succeeded'`.
   */
  readonly outcome?: 'succeeded' | 'failed' | 'any' | undefined;
  /** How many such calls, 1 to 1,000. Default 1. */
  readonly times?: number | undefined;
  /**
   * The name of the function in `args` or `result`: a run keeps under it what the function said of
   * each call. A changed meaning takes a new name. Default: none, which only a memory store takes,
   * and only of a tool with one function.
   */
  readonly as?: string | undefined;
  /** Counts different values only, beside `times`: two approvals by different people. */
  readonly distinct?: EarlierValue | undefined;
}

/** How earlier calls are used up, and what must be so of each. */
interface Consuming {
  /**
   * Whether a success of this tool uses up as many earlier calls as are needed, those first whose
   * time is over first. A used call counts for no requirement with `consumes`, of any tool.
   * `'calls'`: a call that fails uses them up, too. Default `false`.
   */
  readonly consumes?: boolean | 'calls' | undefined;
  /**
   * Amounts of this call's arguments, by their paths, and the amount of the earlier call that each
   * is at most. One earlier call must have them all.
   */
  readonly atMost?: { readonly [path: string]: string | AmountOf } | undefined;
}

/** An earlier call that a tool needs. */
export interface Prerequisite<N extends string = string> extends Prior<N>, Consuming {}

/** Which facts from outside count, that `runs.send()` has added. `O` are their names. */
export interface OutsidePrior<O extends string = string>
  extends Omit<Prior, 'tool' | 'outcome' | 'distinct' | 'byCaller'> {
  readonly outside: O;
  /** As in {@link Prior}. `'by'` counts different senders: one without a sender is none. */
  readonly distinct?: EarlierValue | undefined;
}

/** A fact from outside that a tool needs. */
export interface OutsidePrerequisite<O extends string = string> extends OutsidePrior<O>, Consuming {
  /**
   * Only facts count whose sender is not the caller: nobody approves for themselves. Where either
   * is not known, the fact does not count. Default: all count.
   */
  readonly differs?: readonly 'caller'[] | undefined;
}

/**
 * What a tool needs: a tool's success, an earlier call, a fact from outside, a named requirement,
 * all of several, or any of several. In an `any`, a part whose `when` is not met is left out.
 */
export type OrderRequirement<
  N extends string = string,
  D extends string = string,
  O extends string = string,
> =
  | N
  | Prerequisite<N>
  | OutsidePrerequisite<O>
  | (About & { readonly need: D })
  | (About & { readonly all: readonly OrderRequirement<N, D, O>[] })
  | (About & { readonly any: readonly OrderRequirement<N, D, O>[] });

/** Which calls a requirement is about, as in {@link Prior}. */
type About = Pick<Prior, 'when' | 'whenCaller'>;

/** `after` of a rule, checked: with each named requirement in its place. */
export type Requirement =
  | Leaf
  | { readonly all: readonly Requirement[]; readonly when: Test | undefined }
  | { readonly any: readonly Requirement[]; readonly when: Test | undefined };

/** What a rule asks of earlier calls, checked. Of a binding of a machine it has limits alone. */
export interface Demands {
  readonly tool: string;
  /** Who may call it. */
  readonly caller: Test | undefined;
  readonly after: Requirement | undefined;
  readonly notAfter: readonly Leaf[];
  readonly limits: readonly CheckedLimit[];
  /** Whether it may succeed once only. The state says so, but of a call of unknown outcome. */
  readonly once: boolean;
  /** Of `once`: as in {@link Leaf}. */
  readonly fromMs: number;
}

/** What asks nothing. */
export const NO_DEMANDS: Demands = Object.freeze({
  tool: '',
  caller: undefined,
  after: undefined,
  notAfter: [],
  limits: [],
  once: false,
  fromMs: 0,
});

export function isLeaf(requirement: Requirement): requirement is Leaf {
  return 'tool' in requirement;
}

/** Every earlier call that a requirement names, at any depth. */
export function leavesOf(requirement: Requirement | undefined): readonly Leaf[] {
  if (requirement === undefined) return [];
  if (isLeaf(requirement)) return [requirement];
  return ('all' in requirement ? requirement.all : requirement.any).flatMap(leavesOf);
}

/** The requirement of a call with any values: what it needs at least. */
export function ofAnyValues(requirement: Requirement): Requirement {
  if (isLeaf(requirement)) return { ...requirement, same: [], atMost: [] };
  return 'all' in requirement
    ? { ...requirement, all: requirement.all.map(ofAnyValues) }
    : { ...requirement, any: requirement.any.map(ofAnyValues) };
}

/** Whether a call uses earlier ones up. */
export function usesCalls({ after }: Demands): boolean {
  return leavesOf(after).some(({ consumes }) => consumes !== 'never');
}

/** The times that rules look back on, in milliseconds. What counts for ever has none. */
export function windowsOf({ after, notAfter, limits }: Demands): readonly number[] {
  return [...leavesOf(after), ...notAfter, ...limits]
    .map(({ withinMs }) => withinMs)
    .filter((each) => each !== Number.POSITIVE_INFINITY);
}

/** @param mayConsume whether it stands in `after` */
function pastSchema(isOutside: boolean, mayConsume: boolean) {
  return lazyOptions(() => ({
    ...(isOutside
      ? { outside: textOption() }
      : { tool: textOption(), outcome: outcomes(), byCaller: uncheckedOption() }),
    within: uncheckedOption(),
    same: uncheckedOption(),
    when: uncheckedOption(),
    whenCaller: uncheckedOption(),
    args: uncheckedOption(),
    result: uncheckedOption(),
    as: z.optional(textOption()),
    times: z.optional(integerOption(1, MOST_TIMES)),
    distinct: uncheckedOption(),
    ...(mayConsume && { consumes: z.optional(z.union([z.boolean(), z.literal('calls')])) }),
    ...(mayConsume && { atMost: uncheckedOption() }),
    ...(mayConsume && isOutside && { differs: z.optional(z.array(z.literal('caller'))) }),
  }));
}

const PAST_SCHEMAS = {
  tool: { after: pastSchema(false, true), notAfter: pastSchema(false, false) },
  outside: { after: pastSchema(true, true), notAfter: pastSchema(true, false) },
} as const;

/** What these schemas make sure of. */
interface PastOptions {
  readonly tool?: string;
  readonly outside?: string;
  readonly within?: unknown;
  readonly same?: unknown;
  readonly when?: unknown;
  readonly whenCaller?: unknown;
  readonly args?: unknown;
  readonly byCaller?: unknown;
  readonly result?: unknown;
  readonly as?: string;
  readonly outcome?: Leaf['outcome'];
  readonly times?: number;
  readonly distinct?: unknown;
  readonly consumes?: boolean | 'calls';
  readonly atMost?: unknown;
  readonly differs?: readonly 'caller'[];
}

const factSchema = lazyOptions(() => ({ who: textOption() }));
const groupSchema = lazyOptions(() => ({
  need: z.optional(z.string()),
  all: z.optional(z.array(z.unknown()).check(z.minLength(1))),
  any: z.optional(z.array(z.unknown()).check(z.minLength(1))),
  when: uncheckedOption(),
  whenCaller: uncheckedOption(),
}));
/** Named requirements, checked where a rule names them, and what comes from outside. */
export class Needs {
  readonly outside: ReadonlyMap<string, OutsideFact>;
  readonly #given: ReadonlyMap<string, unknown>;
  readonly #known = new Map<string, Requirement>();
  readonly #open: string[] = [];

  /** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
  constructor(what: string, needs: unknown = {}, outside: unknown = {}) {
    if (!isTable(outside))
      throw fault(
        what,
        `outside: expected a table such as { approve: { who } }, got ${showValue(outside)}`,
      );
    this.outside = new Map(
      Object.entries(outside).map(([name, fact]) => {
        checkName(`${what}: outside`, name);
        return [name, parseOptions(`${what}: outside: ${showValue(name)}`, factSchema, fact)];
      }),
    );
    if (!isTable(needs))
      throw fault(what, `needs: expected a table of requirements, got ${showValue(needs)}`);
    this.#given = new Map(Object.entries(needs));
    for (const name of this.#given.keys()) this.named(`${what}: needs`, name);
  }

  /** @throws InterlockError `ERR_INTERLOCK_CONFIG` for an unknown name, and for a circle */
  named(what: string, name: string): Requirement {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (!this.#given.has(name)) {
      const names = [...this.#given.keys()].map(showValue).join(', ') || 'none';
      throw fault(what, `expected one of the gate's "needs" (${names}), got ${showValue(name)}`);
    }
    const start = this.#open.indexOf(name);
    if (start !== -1) {
      const circle = [...this.#open.slice(start), name].map(showValue).join(' needs ');
      throw fault(what, `a need cannot need itself: ${circle}`);
    }
    this.#open.push(name);
    const parsed = parseAfter(`${what}: ${showValue(name)}`, this.#given.get(name), this);
    this.#open.pop();
    this.#known.set(name, parsed);
    return parsed;
  }
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseAfter(what: string, after: unknown, needs: Needs): Requirement {
  const list: readonly unknown[] = Array.isArray(after) ? after : [after];
  if (list.length === 0) throw fault(what, 'expected one requirement or more, got an empty array');
  const parsed = list.map((each) => parseRequirement(what, each, needs));
  const [only] = parsed;
  return parsed.length === 1 && only !== undefined ? only : { all: parsed, when: undefined };
}

const ABOUT = ['when', 'whenCaller'];

/** Which calls a part of a rule is about. */
function parseWhen(
  what: string,
  { when, whenCaller }: Pick<PastOptions, 'when' | 'whenCaller'>,
  name?: string,
): Test | undefined {
  const asked = parseTest(`${what}: when`, when, 'args', name);
  return bothTests(`${what}: whenCaller`, asked, whenCaller);
}

function parseRequirement(what: string, value: unknown, needs: Needs): Requirement {
  const isNamed = isTable(value) && ['tool', 'outside'].some((each) => Object.hasOwn(value, each));
  if (typeof value === 'string' || isNamed) return parsePast(what, value, true, needs);
  const keys = isTable(value) ? Object.keys(value).filter((key) => !ABOUT.includes(key)) : [];
  const [kind, ...others] = keys;
  if (others.length > 0 || !(kind === 'need' || kind === 'all' || kind === 'any')) {
    const got = isTable(value) ? `{ ${Object.keys(value).join(', ')} }` : showValue(value);
    throw fault(
      what,
      'expected the name of a tool, { tool }, { outside }, { need }, { all: […] } or ' +
        `{ any: […] }, got ${got}`,
    );
  }
  const own = `${what}: ${kind}`;
  const given = (value as Record<string, unknown>)[kind];
  if (kind !== 'need' && (!Array.isArray(given) || given.length === 0))
    throw fault(own, `expected one requirement or more, got ${showValue(given)}`);
  const { need, all, any: some, ...about } = parseOptions(what, groupSchema, value);
  const asked = parseWhen(what, about);
  if (need !== undefined) return { all: [needs.named(own, need)], when: asked };
  const parts = (all ?? some ?? []).map((each) => parseRequirement(own, each, needs));
  return all === undefined ? { any: parts, when: asked } : { all: parts, when: asked };
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseNotAfter(
  what: string,
  notAfter: unknown,
  fromMs: number,
  needs: Needs,
): readonly Leaf[] {
  const list: readonly unknown[] = Array.isArray(notAfter) ? notAfter : [notAfter];
  if (list.length === 0) throw fault(what, 'expected one call or more, got an empty array');
  return list.map((each) => Object.freeze({ ...parsePast(what, each, false, needs), fromMs }));
}

/** What an earlier call is of: a tool, or something from outside. */
function nameOf(
  what: string,
  { tool, outside: sent }: Pick<PastOptions, 'tool' | 'outside'>,
  { outside }: Needs,
): string {
  checkName(what, sent ?? tool);
  if (tool !== undefined && outside.has(tool))
    throw fault(what, `${showValue(tool)} comes from outside: say { outside: ${showValue(tool)} }`);
  if (sent !== undefined && !outside.has(sent))
    throw fault(
      what,
      `the gate's "outside" has no ${showValue(sent)}, ${rightNames(sent, outside.keys())}`,
    );
  return sent ?? String(tool);
}

function parsePast(what: string, value: unknown, mayConsume: boolean, needs: Needs): Leaf {
  if (typeof value === 'string') return leafOf({ tool: nameOf(what, { tool: value }, needs) });
  const isOutside = isTable(value) && Object.hasOwn(value, 'outside');
  const schema = PAST_SCHEMAS[isOutside ? 'outside' : 'tool'][mayConsume ? 'after' : 'notAfter'];
  const given: PastOptions = parseOptions(what, schema as () => z.ZodMiniObject, value);
  const tool = nameOf(what, given, needs);
  const { outcome = 'succeeded', consumes = false, differs = [] } = given;
  const { times: count, distinct } = given;
  if (distinct !== undefined && count === undefined)
    throw fault(what, '"distinct" says which calls "times" counts; give "times" too');
  const tests = (['args', 'result'] as const).flatMap((from): PastTest[] => {
    const asked = parseTest(`${what}: ${from}`, given[from], from, given.as);
    const caller = from === 'args' ? given.byCaller : undefined;
    const test = bothTests(`${what}: byCaller`, asked, caller);
    return test === undefined ? [] : [{ ...test, from }];
  });
  assertNames(what, given.as, [given.args, given.result], '"args" or "result"');
  return leafOf({
    tool,
    outcome,
    withinMs: withinOf(what, given.within),
    same: parseSame(`${what}: same`, given.same),
    when: parseWhen(what, given),
    tests,
    times: count ?? 1,
    distinct:
      distinct === undefined
        ? undefined
        : isOutside && distinct === BY.path
          ? BY
          : sourceOf(`${what}: distinct`, distinct),
    outside: isOutside ? needs.outside.get(tool) : undefined,
    isByOthers: differs.length > 0,
    atMost: parseAtMost(`${what}: atMost`, given.atMost),
    consumes: consumes === 'calls' ? 'calls' : consumes ? 'successes' : 'never',
  });
}
