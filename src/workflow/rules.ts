/**
 * What an author says of a tool by rules: after what it may be called, after what not, and how
 * much. Hides how rules are read and checked, names of requirements and durations.
 */
import * as z from 'zod/mini';
import { rightNames } from '../basics/names.ts';
import {
  flagOption,
  integerOption,
  isTable,
  lazyOptions,
  parseOptions,
  showValue,
  textOption,
  uncheckedOption,
} from '../basics/options.ts';
import { type Condition, fault, type Path, parsePath } from './condition.ts';
import { type Decimal, decimalOf } from './decimal.ts';
import { type NotedPart, OUTSIDE } from './facts.ts';
import { assertNames, type PastTest, parseTest, type Test } from './rule-tests.ts';

/** Milliseconds, or one whole number with a unit: `'500ms'`, `'30s'`, `'2m'`, `'24h'`, `'7d'`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`;

/**
 * A condition on a call's arguments, or a function of them: quick, synchronous, without effects.
 */
export type ArgumentsCondition = Condition | ((args: Readonly<Record<string, unknown>>) => boolean);

/** A condition on what a call answered, or a function of it. As {@link ArgumentsCondition}. */
export type ResultCondition = Condition | ((result: unknown) => boolean);

/** Where an earlier call has a value: a path into its arguments, or into its result. */
export type EarlierValue = string | { readonly args: string } | { readonly result: string };

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
  /** Only earlier calls count whose arguments met this. Default: all. */
  readonly args?: ArgumentsCondition | undefined;
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

/** How earlier calls are used up. */
interface Consuming {
  /**
   * Whether a success of this tool uses up as many earlier calls as are needed, those first whose
   * time is over first. A used call counts for no requirement with `consumes`, of any tool.
   * `'calls'`: a call that fails uses them up, too. Default `false`.
   */
  readonly consumes?: boolean | 'calls' | undefined;
}

/** An earlier call that a tool needs. */
export interface Prerequisite<N extends string = string> extends Prior<N>, Consuming {}

/** Says what comes from outside: an approval of a person, or a message of another system. */
export interface OutsideFact {
  /** Who sends it, for the words of refusals: `'a person in finance'`. */
  readonly who: string;
}

/** Which facts from outside count, that `runs.send()` has added. `O` are their names. */
export interface OutsidePrior<O extends string = string>
  extends Omit<Prior, 'tool' | 'outcome' | 'distinct'> {
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
  | { readonly need: D; readonly when?: ArgumentsCondition | undefined }
  | {
      readonly all: readonly OrderRequirement<N, D, O>[];
      readonly when?: ArgumentsCondition | undefined;
    }
  | {
      readonly any: readonly OrderRequirement<N, D, O>[];
      readonly when?: ArgumentsCondition | undefined;
    };

/** Which calls of its own tool a limit is about. */
interface Limited {
  /** As in {@link Prior}, from the later of a call's two times. Default: for ever. */
  readonly within?: Duration | undefined;
  /** A limit for each value of these arguments. Of lists one member in common is enough. */
  readonly same?: 'all' | readonly string[] | undefined;
  /** The calls that it judges and counts. Default: all. */
  readonly when?: ArgumentsCondition | undefined;
  /** The name of the function in `when`, as in {@link Prior}. */
  readonly as?: string | undefined;
  /** Which calls it counts. One whose outcome is unknown always counts. Default `'succeeded'`. */
  readonly outcome?: 'succeeded' | 'failed' | 'any' | undefined;
}

/** How often a tool may be called, or how much its calls may add up to, with this call included. */
export type Limit = Limited &
  (
    | {
        /** At most so many, up to 1,000. None with 0, beside `when` none of these. */
        readonly times: number;
        readonly sum?: undefined;
        readonly max?: undefined;
        readonly below?: undefined;
      }
    | {
        /**
         * The argument to add up, by its path. It must be a number that is not negative. With
         * `text` it may be a text such as `"12.50"`. Sums are exact decimals.
         */
        readonly sum: string | { readonly path: string; readonly text?: boolean | undefined };
        /** At most so much. Give this or `below`. */
        readonly max?: number | undefined;
        /** Less than so much. */
        readonly below?: number | undefined;
        readonly times?: undefined;
      }
  );

/** A value of an earlier call, checked. */
export interface ValueSource {
  readonly from: NotedPart;
  readonly path: string;
  readonly keys: Path;
}

/** Who sent a fact from outside. */
export const BY: ValueSource = Object.freeze({ from: 'by', path: 'by', keys: [] });

/** Two values that must agree. */
export interface Pair {
  readonly own: ValueSource;
  readonly earlier: ValueSource;
}

/** A {@link Prior}, checked. */
export interface Leaf {
  /** The earlier tool, or the fact from outside: no two of them have one name. */
  readonly tool: string;
  /** Who sends it, where it comes from outside. */
  readonly outside: OutsideFact | undefined;
  /** Whether only facts count that somebody else has sent than the caller. */
  readonly isByOthers: boolean;
  readonly outcome: 'succeeded' | 'failed' | 'any';
  /** `Infinity` where it counts for ever. */
  readonly withinMs: number;
  readonly same: readonly Pair[];
  readonly when: Test | undefined;
  readonly tests: readonly PastTest[];
  readonly times: number;
  readonly distinct: ValueSource | undefined;
  readonly consumes: 'never' | 'successes' | 'calls';
  /** Calls that were claimed before it do not count. */
  readonly fromMs: number;
}

/** `after` of a rule, checked: with each named requirement in its place. */
export type Requirement =
  | Leaf
  | { readonly all: readonly Requirement[]; readonly when: Test | undefined }
  | { readonly any: readonly Requirement[]; readonly when: Test | undefined };

/** A {@link Limit}, checked. */
export interface CheckedLimit {
  readonly tool: string;
  /** How often; `undefined` for a sum. */
  readonly times: number | undefined;
  readonly sum: CheckedSum | undefined;
  readonly outcome: 'succeeded' | 'failed' | 'any';
  readonly withinMs: number;
  readonly same: readonly Pair[];
  readonly when: Test | undefined;
  /** As in {@link Leaf}. */
  readonly fromMs: number;
}

export interface CheckedSum {
  readonly source: ValueSource;
  readonly isText: boolean;
  readonly bound: Decimal;
  /** Whether a sum that is just the bound is allowed. */
  readonly isIncluded: boolean;
}

/** What a rule asks of earlier calls, checked. Of a binding of a machine it has limits alone. */
export interface Demands {
  readonly tool: string;
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
  if (isLeaf(requirement)) return { ...requirement, same: [] };
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

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** The store's times are safe integers, so a window may be this long. */
const LONGEST_WITHIN = 100 * 366 * UNITS.d;

/** How many calls a requirement or a limit may count. */
const MOST_TIMES = 1_000;

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
function parseDuration(what: string, value: unknown): number {
  const [, count = '', unit = 'ms'] =
    (typeof value === 'string' && /^(\d{1,15})(ms|s|m|h|d)$/.exec(value)) || [];
  const ms =
    typeof value === 'number'
      ? value
      : count === ''
        ? Number.NaN
        : Number(count) * UNITS[unit as keyof typeof UNITS];
  if (typeof value === 'number' && value > 0 && value < UNITS.s) {
    // Who writes 600 means seconds or minutes, and would get 0.6 s.
    throw fault(
      what,
      `${value} without a unit would be ms: write "${value}ms", "${value}s" or "${value}m"`,
    );
  }
  if (Number.isSafeInteger(ms) && ms > 0 && ms <= LONGEST_WITHIN) return ms;
  throw fault(
    what,
    `expected a duration such as "30s", "2m", "24h" or "7d", or whole milliseconds, ` +
      `got ${showValue(value)}`,
  );
}

/** An ISO time with its zone, as milliseconds since the epoch. @throws as {@link parseAfter} */
export function parseTime(what: string, value: unknown): number {
  const isWhole = typeof value === 'string' && /^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:\d\d)$/.test(value);
  const ms = isWhole ? Date.parse(value) : Number.NaN;
  if (ms >= 0) return ms;
  throw fault(what, `expected a time such as "2026-12-01T08:00Z", got ${showValue(value)}`);
}

function outcomes() {
  return z._default(z.enum(['succeeded', 'failed', 'any']), 'succeeded');
}

/** @param mayConsume whether it stands in `after` */
function pastSchema(isOutside: boolean, mayConsume: boolean) {
  return lazyOptions(() => ({
    ...(isOutside ? { outside: textOption() } : { tool: textOption(), outcome: outcomes() }),
    within: uncheckedOption(),
    same: uncheckedOption(),
    when: uncheckedOption(),
    args: uncheckedOption(),
    result: uncheckedOption(),
    as: z.optional(textOption()),
    times: z.optional(integerOption(1, MOST_TIMES)),
    distinct: uncheckedOption(),
    ...(mayConsume && { consumes: z.optional(z.union([z.boolean(), z.literal('calls')])) }),
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
  readonly args?: unknown;
  readonly result?: unknown;
  readonly as?: string;
  readonly outcome?: Leaf['outcome'];
  readonly times?: number;
  readonly distinct?: unknown;
  readonly consumes?: boolean | 'calls';
  readonly differs?: readonly 'caller'[];
}

const factSchema = lazyOptions(() => ({ who: textOption() }));
const groupSchema = lazyOptions(() => ({
  need: z.optional(z.string()),
  all: z.optional(z.array(z.unknown()).check(z.minLength(1))),
  any: z.optional(z.array(z.unknown()).check(z.minLength(1))),
  when: uncheckedOption(),
}));
const limitSchema = lazyOptions(() => ({
  // A tool with none at all can never be called, or none of the calls that `when` chooses.
  times: z.optional(integerOption(0, MOST_TIMES)),
  sum: uncheckedOption(),
  max: z.optional(z.number().check(z.minimum(0))),
  below: z.optional(z.number().check(z.minimum(0))),
  within: uncheckedOption(),
  same: uncheckedOption(),
  when: uncheckedOption(),
  as: z.optional(textOption()),
  outcome: outcomes(),
}));
const sumSchema = lazyOptions(() => ({ path: z.string(), text: flagOption() }));

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

function parseRequirement(what: string, value: unknown, needs: Needs): Requirement {
  const isNamed = isTable(value) && ['tool', 'outside'].some((each) => Object.hasOwn(value, each));
  if (typeof value === 'string' || isNamed) return parsePast(what, value, true, needs);
  const keys = isTable(value) ? Object.keys(value).filter((key) => key !== 'when') : [];
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
  const { need, all, any: some, when } = parseOptions(what, groupSchema, value);
  const asked = parseTest(`${what}: when`, when, 'args');
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
    const test = parseTest(`${what}: ${from}`, given[from], from, given.as);
    return test === undefined ? [] : [{ ...test, from }];
  });
  assertNames(what, given.as, [given.args, given.result], '"args" or "result"');
  return leafOf({
    tool,
    outcome,
    withinMs: withinOf(what, given.within),
    same: parseSame(`${what}: same`, given.same),
    when: parseTest(`${what}: when`, given.when, 'args'),
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
    consumes: consumes === 'calls' ? 'calls' : consumes ? 'successes' : 'never',
  });
}

/** An earlier call that counts for ever, with any values, unless more is given. */
export function leafOf(given: Partial<Leaf> & Pick<Leaf, 'tool'>): Leaf {
  return Object.freeze({
    outside: undefined,
    isByOthers: false,
    outcome: 'succeeded',
    withinMs: Number.POSITIVE_INFINITY,
    same: [],
    when: undefined,
    tests: [],
    times: 1,
    distinct: undefined,
    consumes: 'never',
    fromMs: 0,
    ...given,
  });
}

function withinOf(what: string, within: unknown): number {
  return within === undefined ? Number.POSITIVE_INFINITY : parseDuration(`${what}: within`, within);
}

function parseSame(what: string, same: unknown): readonly Pair[] {
  if (same === undefined) return [];
  if (same === 'all') return [{ own: ALL_ARGUMENTS, earlier: ALL_ARGUMENTS }];
  const isList = Array.isArray(same);
  if (!isList && !isTable(same))
    throw fault(
      what,
      `expected "all", a list of arguments, or a table of them, got ${showValue(same)}`,
    );
  const pairs: (readonly [unknown, unknown])[] = isList
    ? [...new Set<unknown>(same)].map((each) => [each, each] as const)
    : Object.entries(same);
  if (pairs.length === 0) throw fault(what, 'expected one argument or more, got none');
  return pairs.map(([own, earlier]) => {
    if (typeof own !== 'string' || own === '')
      throw fault(what, `expected the path of an argument, got ${showValue(own)}`);
    return { own: sourceOf(what, own), earlier: sourceOf(`${what}: ${showValue(own)}`, earlier) };
  });
}

/** Its path is no argument's. */
const ALL_ARGUMENTS: ValueSource = Object.freeze({ from: 'args', path: '', keys: [] });

function sourceOf(what: string, value: unknown): ValueSource {
  const table = isTable(value) ? Object.entries(value) : [['args', value] as const];
  const [[from, path] = ['', undefined]] = table;
  if (table.length !== 1 || (from !== 'args' && from !== 'result') || typeof path !== 'string')
    throw fault(
      what,
      `expected a path such as "order_id", { args: path } or { result: path }, ` +
        `got ${isTable(value) ? `{ ${Object.keys(value).join(', ')} }` : showValue(value)}`,
    );
  return Object.freeze({ from, path, keys: parsePath(what, path) });
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseLimits(
  what: string,
  tool: string,
  limit: unknown,
  fromMs = 0,
): readonly CheckedLimit[] {
  if (limit === undefined) return [];
  const list: readonly unknown[] = Array.isArray(limit) ? limit : [limit];
  if (list.length === 0) throw fault(what, 'expected one limit or more, got an empty array');
  return list.map((each) => parseLimit(what, tool, each, fromMs));
}

function parseLimit(what: string, tool: string, value: unknown, fromMs: number): CheckedLimit {
  if (!isTable(value))
    throw fault(
      what,
      `expected { times } or { sum, max } or { sum, below }, got ${showValue(value)}`,
    );
  const {
    times: count,
    sum,
    max,
    below,
    within,
    same,
    when,
    as: name,
    outcome,
  } = parseOptions(what, limitSchema, value);
  if ((count === undefined) === (sum === undefined))
    throw fault(what, 'expected one of "times" and "sum"');
  if (sum === undefined && (max ?? below) !== undefined)
    throw fault(what, '"max" and "below" bound a "sum"; for calls say "times" alone');
  if (sum !== undefined && (max === undefined) === (below === undefined))
    throw fault(what, 'a "sum" has one of "max" and "below"');
  assertNames(what, name, [when], '"when"');
  return Object.freeze({
    tool,
    times: count,
    sum: sum === undefined ? undefined : parseSum(what, sum, max, below),
    outcome,
    withinMs: withinOf(what, within),
    same: parseSame(`${what}: same`, same),
    when: parseTest(`${what}: when`, when, 'args', name),
    fromMs,
  });
}

function parseSum(
  what: string,
  sum: unknown,
  max: number | undefined,
  below: number | undefined,
): CheckedSum {
  const { path, text } =
    typeof sum === 'string'
      ? { path: sum, text: false }
      : parseOptions(`${what}: sum`, sumSchema, sum);
  const source = sourceOf(`${what}: sum`, path);
  const given = max ?? below ?? 0;
  const bound = decimalOf(given, false);
  const [name] = max === undefined ? ['below'] : ['max'];
  if (bound === undefined || (below !== undefined && below === 0))
    throw fault(
      `${what}: ${name}`,
      `expected a number ${below === undefined ? 'from' : 'above'} 0 up to 2^53, ` +
        `got ${showValue(given)}`,
    );
  return Object.freeze({ source, isText: text, bound, isIncluded: max !== undefined });
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function checkName(what: string, name: unknown): void {
  // In expressions of states "*" is any state.
  if (typeof name === 'string' && name.startsWith(OUTSIDE))
    throw fault(what, `no name begins with "${OUTSIDE}": runs keep under it what is from outside`);
  if (typeof name === 'string' && name !== '' && name !== '*') return;
  throw fault(what, `expected the name of a tool, got ${showValue(name)}`);
}
