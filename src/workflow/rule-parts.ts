/**
 * What rules and limits are made of: durations, values, amounts, and which earlier calls count.
 * Hides how each of them is read and checked.
 */
import * as z from 'zod/mini';
import {
  flagOption,
  isTable,
  lazyOptions,
  parseOptions,
  showValue,
  uncheckedOption,
} from '../basics/options.ts';
import { type Condition, fault, type Path, parsePath } from './condition.ts';
import { type Decimal, decimalOf } from './decimal.ts';
import { type NotedPart, OUTSIDE } from './facts.ts';
import type { PastTest, Test } from './rule-tests.ts';
import type { Fold } from './values.ts';

/** Milliseconds, or one whole number with a unit: `'500ms'`, `'30s'`, `'2m'`, `'24h'`, `'7d'`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`;

/**
 * A condition on a call's arguments, or a function of them: quick, synchronous, without effects.
 */
export type ArgumentsCondition = Condition | ((args: Readonly<Record<string, unknown>>) => boolean);

/** A condition on what a call answered, or a function of it. As {@link ArgumentsCondition}. */
export type ResultCondition = Condition | ((result: unknown) => boolean);

/**
 * Where an earlier call has a value: a path into its arguments, or into its result. `fold` is for
 * the texts of both calls. Default: texts agree byte for byte.
 */
export type EarlierValue =
  | string
  | { readonly args: string; readonly fold?: readonly Fold[] | undefined }
  | { readonly result: string; readonly fold?: readonly Fold[] | undefined };

/**
 * Where a call has an amount: a path into its arguments, or into its result. It must be a number.
 * With `text` it may be a text such as `"12.50"`, and with `negative` below zero. `scale` is an
 * exact decimal, by which it is multiplied: `'0.01'` for cents among euros.
 */
export type AmountOf = {
  readonly text?: boolean | undefined;
  readonly negative?: boolean | undefined;
  readonly scale?: string | undefined;
} & ({ readonly args: string } | { readonly result: string });

/** Says what comes from outside: an approval of a person, or a message of another system. */
export interface OutsideFact {
  /** Who sends it, for the words of refusals: `'a person in finance'`. */
  readonly who: string;
}

/** A value of an earlier call, checked. */
export interface ValueSource {
  readonly from: NotedPart;
  readonly path: string;
  readonly keys: Path;
  /** In their order. Absent where texts agree byte for byte. */
  readonly fold?: readonly Fold[] | undefined;
}

/** Who sent a fact from outside. */
export const BY: ValueSource = Object.freeze({ from: 'by', path: 'by', keys: [] });

/** Two values that must agree. */
export interface Pair {
  readonly own: ValueSource;
  readonly earlier: ValueSource;
}

/** Where a call has an amount, checked. */
export interface Amount {
  readonly source: ValueSource;
  readonly isText: boolean;
  readonly isSigned: boolean;
  /** By what it is multiplied; `undefined`: by one. */
  readonly scale: Decimal | undefined;
}

/** An amount of this call, and one of the earlier call that it may not exceed. */
export interface AmountPair {
  readonly own: Amount;
  readonly earlier: Amount;
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
  readonly atMost: readonly AmountPair[];
  readonly consumes: 'never' | 'successes' | 'calls';
  /** Calls that were claimed before it do not count. */
  readonly fromMs: number;
}

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** The store's times are safe integers, so a window may be this long. */
const LONGEST_WITHIN = 100 * 366 * UNITS.d;

/** How many calls a requirement or a limit may count. */
export const MOST_TIMES = 1_000;

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

export function outcomes() {
  return z._default(z.enum(['succeeded', 'failed', 'any']), 'succeeded');
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
    atMost: [],
    consumes: 'never',
    fromMs: 0,
    ...given,
  });
}

export function withinOf(what: string, within: unknown): number {
  return within === undefined ? Number.POSITIVE_INFINITY : parseDuration(`${what}: within`, within);
}

export function parseSame(what: string, same: unknown): readonly Pair[] {
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
    const from = sourceOf(`${what}: ${showValue(own)}`, earlier);
    return { own: { ...sourceOf(what, own), fold: from.fold }, earlier: from };
  });
}

export function parseAtMost(what: string, atMost: unknown): readonly AmountPair[] {
  if (atMost === undefined) return [];
  if (!isTable(atMost) || Object.keys(atMost).length === 0)
    throw fault(what, `expected a table of amounts, such as { amount: { result: 'quoted' } }`);
  return Object.entries(atMost).map(([path, value]) => {
    const earlier = parseAmount(`${what}: ${showValue(path)}`, value);
    const own = { ...earlier, source: sourceOf(what, path), scale: undefined };
    return Object.freeze({ own, earlier });
  });
}

const amountSchema = lazyOptions(() => ({
  args: z.optional(z.string()),
  result: z.optional(z.string()),
  text: flagOption(),
  negative: flagOption(),
  scale: uncheckedOption(),
}));

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseAmount(what: string, value: unknown): Amount {
  const { text, negative, scale, ...places } = parseOptions(
    what,
    amountSchema,
    typeof value === 'string' ? { args: value } : value,
  );
  const given = Object.entries(places).filter(([, path]) => path !== undefined);
  const source = sourceOf(what, Object.fromEntries(given));
  return Object.freeze({ source, isText: text, isSigned: negative, scale: scaleOf(what, scale) });
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function scaleOf(what: string, scale: unknown): Decimal | undefined {
  if (scale === undefined) return undefined;
  const parsed = typeof scale === 'string' ? decimalOf(scale, true) : undefined;
  if (parsed !== undefined && parsed.unscaled > 0n) return parsed;
  throw fault(`${what}: scale`, `expected a decimal text such as "0.01", got ${showValue(scale)}`);
}

/** Its path is no argument's. */
export const ALL_ARGUMENTS: ValueSource = Object.freeze({ from: 'args', path: '', keys: [] });

const FOLDS = ['space', 'nfkc', 'case'] as const satisfies readonly Fold[];

function foldOf(what: string, fold: unknown): readonly Fold[] | undefined {
  if (fold === undefined) return undefined;
  const isKnown = (each: unknown): boolean => FOLDS.some((known) => known === each);
  if (!Array.isArray(fold) || fold.length === 0 || !fold.every(isKnown))
    throw fault(`${what}: fold`, `expected a list of ${FOLDS.join(', ')}, got ${showValue(fold)}`);
  return FOLDS.filter((each) => fold.includes(each));
}

export function sourceOf(what: string, value: unknown): ValueSource {
  const { fold, ...places } = isTable(value) ? value : { args: value };
  const table = Object.entries(places);
  const [[from, path] = ['', undefined]] = table;
  if (table.length !== 1 || (from !== 'args' && from !== 'result') || typeof path !== 'string')
    throw fault(
      what,
      `expected a path such as "order_id", { args: path } or { result: path }, ` +
        `got ${isTable(value) ? `{ ${Object.keys(value).join(', ')} }` : showValue(value)}`,
    );
  return Object.freeze({ from, path, keys: parsePath(what, path), fold: foldOf(what, fold) });
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function checkName(what: string, name: unknown): void {
  // In expressions of states "*" is any state.
  if (typeof name === 'string' && name.startsWith(OUTSIDE))
    throw fault(what, `no name begins with "${OUTSIDE}": runs keep under it what is from outside`);
  if (typeof name === 'string' && name !== '' && name !== '*') return;
  throw fault(what, `expected the name of a tool, got ${showValue(name)}`);
}
