/**
 * How often and how much tools may be called. Hides how a limit is read, also one over several
 * tools, and one whose bound is what other calls add up to.
 */
import * as z from 'zod/mini';
import { pushTo } from '../basics/collections.ts';
import {
  integerOption,
  isTable,
  lazily,
  lazyOptions,
  type ParsedBy,
  parseOptions,
  showValue,
  textOption,
  uncheckedOption,
} from '../basics/options.ts';
import { type Condition, fault } from './condition.ts';
import { type Decimal, decimalOf } from './decimal.ts';
import {
  ALL_ARGUMENTS,
  type Amount,
  type AmountOf,
  type ArgumentsCondition,
  checkName,
  type Duration,
  type EarlierValue,
  type Leaf,
  leafOf,
  MOST_TIMES,
  outcomes,
  type Pair,
  parseAmount,
  parseSame,
  parseTime,
  scaleOf,
  sourceOf,
  type ValueSource,
  withinOf,
} from './rule-parts.ts';
import { assertNames, bothTests, parseTest, type Test } from './rule-tests.ts';
import type { Fold } from './values.ts';

/** The arguments for whose values a limit counts apart, or a table of them, for `fold`. */
export type LimitedBy =
  | 'all'
  | readonly string[]
  | {
      readonly [path: string]:
        | string
        | { readonly args: string; readonly fold?: readonly Fold[] | undefined };
    };

/** Which calls a limit counts, and for how long. */
interface Counted {
  /** As in `after`, from the later of a call's two times. Default: for ever. */
  readonly within?: Duration | undefined;
  /** A limit for each value of these arguments. Of lists one member in common is enough. */
  readonly same?: LimitedBy | undefined;
  /** Which calls it counts. One whose outcome is unknown always counts. Default `'succeeded'`. */
  readonly outcome?: 'succeeded' | 'failed' | 'any' | undefined;
}

interface Chosen {
  /** The calls that it judges and counts. Default: all. */
  readonly when?: ArgumentsCondition | undefined;
  /** The same by what `sessionStore({ claims })` says of their callers. Default: all. */
  readonly whenCaller?: Condition | undefined;
  /** The name of the function in `when`, as in `after`. */
  readonly as?: string | undefined;
}

interface Times {
  /** At most so many, up to 1,000. None with 0, beside `when` none of these. */
  readonly times: number;
  readonly sum?: undefined;
  readonly max?: undefined;
  readonly below?: undefined;
}

interface Sum {
  /**
   * The argument to add up, by its path. It must be a number that is not negative. With `text` it
   * may be a text such as `"12.50"`, and with `negative` below zero. Sums are exact decimals.
   */
  readonly sum:
    | string
    | {
        readonly path: string;
        readonly text?: boolean | undefined;
        readonly negative?: boolean | undefined;
      };
  /** At most so much, or what earlier calls add up to. Give this or `below`. */
  readonly max?: number | EarlierSum | undefined;
  /** Less than so much. */
  readonly below?: number | undefined;
  readonly times?: undefined;
}

/**
 * What the successes of a tool add up to, each with its value of `same`. One that was undone, whose
 * outcome is unknown, or whose amount is not known adds nothing.
 */
export interface EarlierSum {
  readonly sum: string | AmountOf;
  /** The tool whose calls are added. */
  readonly of: string;
  /** As in `after`. Default: all calls. */
  readonly same?: 'all' | readonly string[] | { readonly [path: string]: EarlierValue } | undefined;
  /** As in `after`. Default: for ever. */
  readonly within?: Duration | undefined;
}

/** How often a tool may be called, or how much its calls may add up to, with this call included. */
export type Limit = Counted & Chosen & (Times | Sum);

/** A tool of a limit over several, whose arguments have names of their own. */
export interface LimitedTool<N extends string = string> extends Chosen {
  readonly tool: N;
  /** The path of its amount. Default: that of the limit. */
  readonly sum?: string | undefined;
  /** Whether its amount may be a text. Default: as the limit says. */
  readonly text?: boolean | undefined;
  /** An exact decimal, by which its amount is multiplied: `'0.01'` for cents among euros. */
  readonly scale?: string | undefined;
  /** From what `same` of the limit names to the argument of this tool. Default: the same names. */
  readonly same?: { readonly [path: string]: string } | undefined;
}

/** A limit that calls of several tools share. */
export type SharedLimit<N extends string = string> = Counted &
  (Times | Sum) & {
    readonly of: readonly (N | LimitedTool<N>)[];
    /** As in a rule: calls that were claimed before it do not count. */
    readonly from?: string | undefined;
  };

/** A {@link Limit}, checked; of a limit over several tools what it is for one of them. */
export interface CheckedLimit {
  readonly tool: string;
  /** How often; `undefined` for a sum. */
  readonly times: number | undefined;
  readonly sum: CheckedSum | undefined;
  readonly outcome: 'succeeded' | 'failed' | 'any';
  readonly withinMs: number;
  readonly same: readonly Pair[];
  readonly when: Test | undefined;
  /** Calls that were claimed before it do not count. */
  readonly fromMs: number;
  /** The calls of other tools that it counts, too. Each pair's own value is this tool's. */
  readonly also: readonly CheckedLimit[];
}

export interface CheckedSum extends Amount {
  readonly bound: Decimal | Earned;
  /** Whether a sum that is just the bound is allowed. */
  readonly isIncluded: boolean;
}

/** A bound that earlier calls add up to. */
export interface Earned {
  readonly leaf: Leaf;
  readonly amount: Amount;
}

export function isBoundByCalls(
  sum: CheckedSum | undefined,
): sum is CheckedSum & { readonly bound: Earned } {
  return sum !== undefined && 'leaf' in sum.bound;
}

/** The calls that what a limit allows depends on. */
export function earningOf({ sum }: CheckedLimit): readonly Leaf[] {
  return isBoundByCalls(sum) ? [sum.bound.leaf] : [];
}

const boundOptions = lazily(() => ({
  // A tool with none at all can never be called, or none of the calls that `when` chooses.
  times: z.optional(integerOption(0, MOST_TIMES)),
  sum: uncheckedOption(),
  max: uncheckedOption(),
  below: z.optional(z.number().check(z.minimum(0))),
  within: uncheckedOption(),
  same: uncheckedOption(),
  outcome: outcomes(),
}));

const limitSchema = lazyOptions(() => ({
  ...boundOptions(),
  when: uncheckedOption(),
  whenCaller: uncheckedOption(),
  as: z.optional(textOption()),
}));
const sharedSchema = lazyOptions(() => ({
  ...boundOptions(),
  of: z.array(z.unknown()).check(z.minLength(1)),
  from: uncheckedOption(),
}));
const memberSchema = lazyOptions(() => ({
  tool: textOption(),
  sum: z.optional(textOption()),
  text: z.optional(z.boolean()),
  scale: uncheckedOption(),
  same: z.optional(z.record(z.string(), z.string())),
  when: uncheckedOption(),
  whenCaller: uncheckedOption(),
  as: z.optional(textOption()),
}));
const sumSchema = lazyOptions(() => ({
  path: z.string(),
  text: z._default(z.boolean(), false),
  negative: z._default(z.boolean(), false),
}));
const earnedSchema = lazyOptions(() => ({
  sum: uncheckedOption(),
  of: textOption(),
  same: uncheckedOption(),
  within: uncheckedOption(),
}));

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
  return list.map((each) => {
    assertLimit(what, each);
    const { when, whenCaller, as, ...bounds } = parseOptions(what, limitSchema, each);
    const [own] = limitOf(what, bounds, [{ tool, when, whenCaller, as }], fromMs);
    return own as CheckedLimit;
  });
}

/**
 * The limits over several tools: for each tool those that are about it.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function parseSharedLimits(
  what: string,
  limits: unknown,
): ReadonlyMap<string, readonly CheckedLimit[]> {
  const all = new Map<string, CheckedLimit[]>();
  if (limits === undefined) return all;
  if (!Array.isArray(limits)) throw fault(what, `expected a list, got ${showValue(limits)}`);
  for (const [i, each] of (limits as unknown[]).entries()) {
    const own = `${what}[${i}]`;
    assertLimit(own, each);
    const { of, from, ...bounds } = parseOptions(own, sharedSchema, each);
    const members = of.map((member): Member => {
      const given = typeof member === 'string' ? { tool: member } : member;
      const parsed = parseOptions(`${own}: of`, memberSchema, given);
      checkName(`${own}: of`, parsed.tool);
      return parsed;
    });
    const names = members.map(({ tool }) => tool);
    const twice = names.find((name, at) => names.indexOf(name) !== at);
    if (twice !== undefined) throw fault(`${own}: of`, `${showValue(twice)} stands there twice`);
    const fromMs = from === undefined ? 0 : parseTime(`${own}: from`, from);
    for (const limit of limitOf(own, bounds, members, fromMs)) pushTo(all, limit.tool, limit);
  }
  return all;
}

function assertLimit(what: string, value: unknown): void {
  if (!isTable(value))
    throw fault(
      what,
      `expected { times } or { sum, max } or { sum, below }, got ${showValue(value)}`,
    );
}

/** A tool of a limit, as it was given. */
type Member = Pick<ParsedBy<typeof memberSchema>, 'tool'> & Partial<ParsedBy<typeof memberSchema>>;

/** What a limit says beside the tools that it is about. */
type Bounds = Omit<ParsedBy<typeof sharedSchema>, 'of' | 'from'>;

/** The limit as each of its tools has it. */
function limitOf(
  what: string,
  { times, sum, max, below, within, same, outcome }: Bounds,
  members: readonly Member[],
  fromMs: number,
): readonly CheckedLimit[] {
  if ((times === undefined) === (sum === undefined))
    throw fault(what, 'expected one of "times" and "sum"');
  if (sum === undefined && (max ?? below) !== undefined)
    throw fault(what, '"max" and "below" bound a "sum"; for calls say "times" alone');
  if (sum !== undefined && (max === undefined) === (below === undefined))
    throw fault(what, 'a "sum" has one of "max" and "below"');
  const keys = keysOf(`${what}: same`, same);
  const shared = { times, outcome, withinMs: withinOf(what, within), fromMs };
  const read = members.map((member) => {
    const { tool, when, whenCaller, as: name } = member;
    assertNames(what, name, [when], '"when"');
    const own = members.length === 1 ? what : `${what}: ${showValue(tool)}`;
    assertNamed(own, keys, member);
    const asked = parseTest(`${own}: when`, when, 'args', name);
    return {
      tool,
      values: keys.map((key) => valueIn(own, key, member)),
      when: bothTests(`${own}: whenCaller`, asked, whenCaller),
      amount: sum === undefined ? undefined : amountIn(own, sum, member),
    };
  });
  return read.map((own) => {
    // What the limit calls a value is called otherwise in this tool.
    const named = new Map(keys.map((key, at) => [key.path, own.values[at] as ValueSource]));
    const bound = sum === undefined ? undefined : boundOf(what, max, below, named);
    const asCounted = ({ tool, values, when, amount }: typeof own): CheckedLimit => {
      const pairs = values.map((earlier, at) => ({ own: own.values[at] as ValueSource, earlier }));
      const sumOf = amount && bound && { ...amount, bound, isIncluded: max !== undefined };
      return Object.freeze({ tool, ...shared, sum: sumOf, same: pairs, when, also: [] });
    };
    const others = read.filter((each) => each !== own).map(asCounted);
    return Object.freeze({ ...asCounted(own), also: others });
  });
}

/** The values for which a limit counts apart, by the names that it gives them. */
function keysOf(what: string, same: unknown): readonly ValueSource[] {
  return parseSame(what, same).map(({ own, earlier }) => {
    if (earlier.from === 'args' && earlier.path === own.path) return earlier;
    throw fault(what, `a limit compares an argument with itself: { ${own.path}: { args, fold } }`);
  });
}

function assertNamed(what: string, keys: readonly ValueSource[], { same = {} }: Member): void {
  const other = Object.keys(same).find((name) => !keys.some(({ path }) => path === name));
  if (other === undefined) return;
  throw fault(`${what}: same`, `the limit's own "same" does not name ${showValue(other)}`);
}

function valueIn(what: string, key: ValueSource, { same = {} }: Member): ValueSource {
  const path = Object.hasOwn(same, key.path) ? same[key.path] : undefined;
  if (key === ALL_ARGUMENTS || path === undefined) return key;
  return { ...sourceOf(`${what}: same`, path), fold: key.fold };
}

function amountIn(what: string, sum: unknown, member: Member): Amount {
  const { path, text, negative } =
    typeof sum === 'string'
      ? { path: sum, text: false, negative: false }
      : parseOptions(`${what}: sum`, sumSchema, sum);
  return Object.freeze({
    source: sourceOf(`${what}: sum`, member.sum ?? path),
    isText: member.text ?? text,
    isSigned: negative,
    scale: scaleOf(what, member.scale),
  });
}

/** @param named the tool's own values, by the names that the limit gives them */
function boundOf(
  what: string,
  max: unknown,
  below: number | undefined,
  named: ReadonlyMap<string, ValueSource>,
): CheckedSum['bound'] {
  if (isTable(max)) {
    const own = `${what}: max`;
    const { sum, of: tool, same, within } = parseOptions(own, earnedSchema, max);
    checkName(`${own}: of`, tool);
    const pairs = parseSame(`${own}: same`, same).map(({ own: key, earlier }) => {
      const value = named.get(key.path);
      return { own: value === undefined ? key : { ...value, fold: key.fold }, earlier };
    });
    const withinMs = withinOf(own, within);
    return {
      leaf: leafOf({ tool, withinMs, same: pairs }),
      amount: parseAmount(`${own}: sum`, sum),
    };
  }
  const given = max ?? below ?? 0;
  const bound = typeof given === 'number' ? decimalOf(given, false) : undefined;
  if (bound !== undefined && !(below !== undefined && below === 0)) return bound;
  throw fault(
    `${what}: ${max === undefined ? 'below' : 'max'}`,
    `expected a number ${below === undefined ? 'from' : 'above'} 0 up to 2^53` +
      `${max === undefined ? '' : ', or { sum, of }'}, got ${showValue(given)}`,
  );
}
