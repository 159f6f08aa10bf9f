/**
 * Whether what a run did before allows a call, by its tool's rules. Hides windows, agreement of
 * values, which earlier calls are used up, and when a limit leaves room again. Pure.
 */
import { columnOfAmount, columnOfSource, columnOfTest } from './columns.ts';
import type { Truth } from './condition.ts';
import {
  type Counted,
  type CountedFact,
  callsIn,
  endOf,
  inOrderOfEnd,
  isCurrent,
  isOfOutcome,
  isRecent,
  scaled,
  sumOf,
  waitFor,
} from './counting.ts';
import { compareDecimals, type Decimal, minus, plus, ZERO_DECIMAL } from './decimal.ts';
import {
  type Fact,
  type Facts,
  type Grant,
  isFull,
  MOST_FACTS,
  NEW_FACT,
  type Used,
} from './facts.ts';
import type { Ledger } from './ledger.ts';
import { type CheckedLimit, type CheckedSum, isBoundByCalls } from './limits.ts';
import type { OwnValues } from './own-call.ts';
import { type Amount, type AmountPair, BY, type Leaf, type Pair } from './rule-parts.ts';
import type { Test } from './rule-tests.ts';
import { type Demands, isLeaf, NO_DEMANDS, type Requirement } from './rules.ts';
import { isShared, type ShareTree, type Shortage, shareOut } from './shares.ts';
import { alike, amountOf, differing } from './values.ts';

/** A call whose outcome is not known, with what its claim was granted. */
export interface UnknownGrant extends Grant {
  readonly tool: string;
  readonly claimedAt: number;
  readonly idempotencyKey: string;
  /** The tools whose success it undoes, if it succeeded. */
  readonly undoes: readonly string[];
}

/** What a run did before, at one time. */
export interface Past {
  readonly ledger: Ledger;
  readonly facts: Facts;
  /** By the store's clock. */
  readonly now: number;
  readonly unknown: readonly UnknownGrant[];
}

/** Why a call is not allowed: one part of its tool's rules. */
export type Part =
  | {
      readonly part: 'arguments';
      readonly paths: readonly string[];
      readonly why: 'when' | 'same' | 'sum';
    }
  | {
      readonly part: 'after';
      readonly leaf: Leaf;
      /** How many calls count. */
      readonly count: number;
      /** What there is besides: a call that counts no more, or one that differs. */
      readonly near: 'none' | 'late' | 'used' | 'other';
      /** How many calls are needed together with other parts, where each part alone has enough. */
      readonly needed?: number;
    }
  | { readonly part: 'any'; readonly parts: readonly Part[] }
  /** Only others may call it. */
  | { readonly part: 'caller'; readonly caller: unknown }
  /** An earlier call of the tool succeeded, or may have, and it may only once. */
  | { readonly part: 'once'; readonly tool: string }
  | {
      readonly part: 'notAfter';
      readonly leaf: Leaf;
      /** There were more calls than the run keeps. */
      readonly isFull?: true;
      readonly retryAfterMs: number | undefined;
    }
  | {
      readonly part: 'limit';
      readonly limit: CheckedLimit;
      /** What is left of a sum; `undefined` where an earlier amount is not known. */
      readonly left?: Decimal | undefined;
      /** The run keeps no more calls of the tool, so none can be counted beside them. */
      readonly isFull?: true;
      readonly retryAfterMs: number | undefined;
    };

export type Verdict =
  | { readonly allows: true; readonly uses: readonly Used[] }
  | {
      readonly allows: false;
      readonly reason: 'arguments' | 'order' | 'limit';
      readonly parts: readonly Part[];
    };

/**
 * Judges one call by one rule.
 *
 * @param call `undefined`: any call of the tool, so that only what refuses each of them counts
 */
export function judge(demands: Demands, past: Past, call: OwnValues | undefined): Verdict {
  return new Judgement(past, call).of(demands);
}

/** The parts of a rule that refuse each call, with any arguments. */
export function partsAgainstAll(demands: Demands, past: Past): readonly Part[] {
  const notAfter = demands.notAfter.filter(
    ({ when, same }) => when === undefined && same.length === 0,
  );
  const verdict = new Judgement(past, undefined).of({ ...demands, notAfter, limits: [] });
  if (!verdict.allows) return verdict.parts;
  const part = exhausted(demands.limits, past);
  return part === undefined ? [] : [part];
}

/** Why each call lacks calls to use up, where each requirement alone is met. */
export function shortage({ tool, after }: Demands, past: Past): Part | undefined {
  const verdict = new Judgement(past, undefined).of({ ...NO_DEMANDS, tool, after });
  if (verdict.allows) return undefined;
  return verdict.parts.find((each) => each.part === 'after' && each.needed !== undefined);
}

/** Whether a mark of the state holds: what does not depend on a call's arguments. */
export function marksIn(past: Past): (leaf: Leaf, kind: 'after' | 'notAfter') => boolean {
  const judgement = new Judgement(past, undefined);
  return (leaf, kind) => judgement.holds(leaf, kind);
}

/**
 * The limit that refuses each call of the tool now, with any arguments, and when it leaves room
 * again.
 */
export function exhausted(limits: readonly CheckedLimit[], past: Past): Part | undefined {
  const judgement = new Judgement(past, undefined);
  for (const limit of limits) {
    if (limit.when !== undefined) continue;
    const part = limit.same.length > 0 ? judgement.fullPart(limit) : judgement.limitPart(limit);
    if (part !== undefined) return part;
  }
  return undefined;
}

/** What a limit has counted so far, of calls with any values. */
export interface Tally {
  readonly calls: number;
  /** What they add up to; `undefined` where an amount is not known, or the limit adds up none. */
  readonly amount: Decimal | undefined;
}

export function countedBy(limit: CheckedLimit, past: Past): Tally {
  const counted = new Judgement(past, undefined).counted(limit);
  return { calls: callsIn(counted.map(({ fact }) => fact)), amount: limit.sum && sumOf(counted) };
}

/** In how many milliseconds time alone lets the call through; `undefined` where it does not. */
export function retryAfter(parts: readonly Part[]): number | undefined {
  let longest = 0;
  for (const each of parts) {
    const ms = each.part === 'notAfter' || each.part === 'limit' ? each.retryAfterMs : undefined;
    if (ms === undefined) return undefined;
    longest = Math.max(longest, ms);
  }
  return parts.length === 0 ? undefined : longest;
}

/** The tools whose success may mend what is missing. */
export function mending(parts: readonly Part[]): readonly string[] {
  return parts.flatMap((each) => {
    if (each.part === 'any') return mending(each.parts);
    return each.part === 'after' ? [each.leaf.tool] : [];
  });
}

class Judgement {
  readonly #past: Past;
  readonly #call: OwnValues | undefined;
  /** With the calls of unknown outcome, by tool; made where there are some. */
  #withUnknown: Map<string, readonly Fact[]> | undefined;
  /** The facts that calls of unknown outcome were granted: no other call may use them up. */
  readonly #granted: ReadonlySet<number>;

  constructor(past: Past, call: OwnValues | undefined) {
    this.#past = past;
    this.#call = call;
    this.#granted =
      past.unknown.length === 0
        ? NONE_GRANTED
        : new Set(past.unknown.flatMap(({ uses }) => uses.map(([, id]) => id)));
  }

  of({ tool, caller, after, notAfter, limits, once, fromMs }: Demands): Verdict {
    if (caller !== undefined && this.#call !== undefined && this.#truth(caller) !== true)
      return { allows: false, reason: 'order', parts: [{ part: 'caller', caller: caller.caller }] };
    const unclear = this.#unclear(after, notAfter, limits);
    if (unclear.length > 0) return { allows: false, reason: 'arguments', parts: unclear };
    const { parts, uses } = this.#asked(after);
    const missing = [...parts];
    for (const each of notAfter) {
      if (this.#isLetOff(each)) continue;
      const part = this.#barred(each);
      if (part !== undefined) missing.push(part);
    }
    if (once && this.#mayHaveSucceeded(tool, fromMs)) missing.push({ part: 'once', tool });
    if (missing.length > 0) return { allows: false, reason: 'order', parts: missing };
    const spent: Part[] = [];
    for (const each of limits) {
      if (this.#isLetOff(each)) continue;
      const part = this.limitPart(each);
      if (part !== undefined) spent.push(part);
    }
    if (spent.length > 0) return { allows: false, reason: 'limit', parts: spent };
    return uses.length === 0 ? NOTHING_USED : { allows: true, uses };
  }

  /** Whether the call's values are none that it is about. Without a call some may be. */
  #isLetOff({ when, same }: Pick<Leaf, 'when' | 'same'>): boolean {
    if (when !== undefined && this.#truth(when) === false) return true;
    return this.#call === undefined && same.length > 0;
  }

  /** Whether a success of the tool stands that no call has used up, or may stand. */
  #mayHaveSucceeded(tool: string, fromMs: number): boolean {
    const { facts, unknown } = this.#past;
    if (unknown.some((each) => each.tool === tool && each.claimedAt >= fromMs)) return true;
    const stands = ({ outcome, isUsed, isUndone, claimedAt }: Fact): boolean =>
      outcome === 'succeeded' && !isUsed && !isUndone && claimedAt >= fromMs;
    return facts.of(tool).facts.some(stands);
  }

  // --- this call's own values -----------------------------------------------------------------

  /** Without a call: what is only about some calls is left out. */
  #truth(when: Test): Truth {
    return this.#call === undefined ? false : this.#call.truth(when);
  }

  /** What of the call's own arguments leaves a rule open: the call is refused then. */
  #unclear(
    after: Requirement | undefined,
    notAfter: readonly Leaf[],
    limits: readonly CheckedLimit[],
  ): readonly Part[] {
    const parts: Part[] = [];
    const ask = (asked: Asks, mayMiss: boolean): void => {
      const { when, same, atMost = [] } = asked;
      const paths: string[] = [];
      const truth =
        when === undefined || this.#call === undefined
          ? true
          : this.#call.truth(when, (path) => paths.push(path));
      if (truth === undefined) parts.push({ part: 'arguments', paths, why: 'when' });
      if (truth !== true) return;
      const odd = same.filter(({ own }) => {
        const members = this.#call?.members(own);
        return members === 'unclear' || (members === 'missing' && !mayMiss);
      });
      if (odd.length > 0)
        parts.push({ part: 'arguments', paths: odd.map(({ own }) => own.path), why: 'same' });
      const missing = atMost.filter(({ own }) => this.#call?.amount(own) === undefined);
      if (missing.length > 0 && this.#call !== undefined)
        parts.push({
          part: 'arguments',
          paths: missing.map(({ own }) => own.source.path),
          why: 'sum',
        });
    };
    const visit = (requirement: Requirement): void => {
      if (isLeaf(requirement)) {
        ask(requirement, true);
        return;
      }
      const { when } = requirement;
      ask({ when, same: [] }, true);
      // What is left out asks nothing of the call.
      if (when !== undefined && this.#truth(when) === false) return;
      for (const each of 'all' in requirement ? requirement.all : requirement.any) visit(each);
    };
    if (after !== undefined) visit(after);
    for (const each of notAfter) ask(each, false);
    for (const each of limits) {
      ask(each, false);
      const { sum, when } = each;
      if (sum === undefined || (when !== undefined && this.#truth(when) !== true)) continue;
      if (this.#amount(each) === undefined)
        parts.push({ part: 'arguments', paths: [sum.source.path], why: 'sum' });
    }
    return parts;
  }

  #amount({ sum }: CheckedLimit): Decimal | undefined {
    if (sum === undefined || this.#call === undefined) return ZERO_DECIMAL;
    return scaled(this.#call.amount(sum), sum);
  }

  // --- earlier calls --------------------------------------------------------------------------

  /** The calls of a tool that were decided, and those whose outcome is unknown. */
  #factsOf(tool: string): readonly Fact[] {
    const { facts, unknown } = this.#past;
    const decided = facts.of(tool).facts;
    if (unknown.length === 0) return decided;
    this.#withUnknown ??= new Map();
    const known = this.#withUnknown.get(tool);
    if (known !== undefined) return known;
    const open = unknown.flatMap((each): Fact[] => {
      if (each.tool !== tool) return [];
      const { claimedAt, noted } = each;
      const values = this.#past.ledger.valuesOf(tool, noted);
      return [{ ...NEW_FACT, outcome: 'unknown', claimedAt, decidedAt: claimedAt, values }];
    });
    const all = open.length === 0 ? decided : [...decided, ...open];
    this.#withUnknown.set(tool, all);
    return all;
  }

  /** When the newest call was that the run keeps no more; `undefined` where no window has it. */
  #lostWithin({ tool, withinMs, fromMs }: Counted): number | undefined {
    const { facts, now } = this.#past;
    const { lostAt } = facts.of(tool);
    const isCounted = lostAt !== undefined && now - lostAt < withinMs && lostAt >= fromMs;
    return isCounted ? lostAt : undefined;
  }

  /** Whether as many facts count for a mark as it asks for, with any arguments of a call. */
  holds(leaf: Leaf, kind: 'after' | 'notAfter'): boolean {
    // One of those that the run keeps no more may be such a call.
    if (kind === 'notAfter' && this.#lostWithin(leaf) !== undefined) return true;
    if (leaf.times > 1 || leaf.distinct !== undefined)
      return this.isReached(leaf, this.counting(leaf, kind));
    return this.#factsOf(leaf.tool).some(this.#countsFor(leaf, kind));
  }

  /** The facts that count for a leaf, before its `same` is asked. */
  counting(leaf: Leaf, kind: 'after' | 'notAfter'): readonly Fact[] {
    return this.#factsOf(leaf.tool).filter(this.#countsFor(leaf, kind));
  }

  #countsFor(leaf: Leaf, kind: 'after' | 'notAfter'): (fact: Fact) => boolean {
    const { tool, outcome, tests, consumes } = leaf;
    const { now, ledger, unknown } = this.#past;
    const isNeeded = kind === 'after';
    // A success that such a call may have undone is none to rely on.
    const undoers =
      isNeeded && unknown.length > 0
        ? unknown.filter(({ undoes }) => undoes.includes(tool))
        : undefined;
    const isShaky = ({ outcome, decidedAt }: Fact): boolean =>
      outcome !== 'failed' && undoers?.some(({ claimedAt }) => claimedAt >= decidedAt) === true;
    const places =
      tests.length > 0
        ? tests.map((each) => ledger.placeOf(tool, columnOfTest(each.from, each)))
        : undefined;
    return (fact) => {
      if (fact.isUndone || !isOfOutcome(fact, outcome, isNeeded)) return false;
      // What the server refused for its arguments did nothing that a call could need.
      if (isNeeded && fact.isInvalid && outcome === 'any') return false;
      if (undoers !== undefined && isShaky(fact)) return false;
      const isFree = fact.outcome !== 'unknown' && !fact.isUsed && !this.#granted.has(fact.id);
      if (consumes !== 'never' && !isFree) return false;
      if (isNeeded ? !isRecent(fact, leaf, now) : !isCurrent(fact, leaf, now)) return false;
      if (places === undefined) return true;
      return places.every((place) => {
        const value = fact.values[place] ?? null;
        return isNeeded ? value === 't' : value !== 'f';
      });
    };
  }

  /** Whether these facts are as many as a leaf asks for. */
  isReached(leaf: Leaf, facts: readonly Fact[], isNeeded = true): boolean {
    const { times, distinct, tool, withinMs } = leaf;
    if (distinct === undefined && facts.length >= times) return true;
    // Of calls that are one fact, only the newest is surely in a window.
    const isEach = isNeeded && withinMs !== Number.POSITIVE_INFINITY;
    if (distinct === undefined) return !isEach && callsIn(facts) >= times;
    const place = this.#past.ledger.placeOf(tool, columnOfSource(distinct));
    const values = facts.map((each) => each.values[place] ?? null);
    return differing(values, isNeeded) >= times;
  }

  /** @param isNeeded for `after`, which needs all members of this call's value, and knows them */
  #agreeing(
    { tool, same, atMost = [] }: Pick<Leaf, 'tool'> & Asks,
    found: readonly Fact[],
    isNeeded: boolean,
  ): readonly Fact[] {
    const facts = found.filter((fact) => atMost.every((each) => this.#isCovered(tool, each, fact)));
    if (same.length === 0) return facts;
    const places = same.map(({ earlier }) =>
      this.#past.ledger.placeOf(tool, columnOfSource(earlier)),
    );
    const asked = same.map(({ own }) => this.#call?.members(own));
    const mayAgree = isNeeded
      ? []
      : asked.map((each) => (Array.isArray(each) ? alike(each) : NEVER));
    return facts.filter(({ values }) =>
      same.every((_, i) => {
        const members = asked[i];
        const value = values[places[i] ?? -1] ?? null;
        // Words of a call without arguments: any value may be given.
        if (members === undefined) return value !== null || !isNeeded;
        if (members === 'missing' || members === 'unclear') return false;
        if (value === null) return !isNeeded;
        const earlier = typeof value === 'string' ? [value] : value;
        return isNeeded
          ? members.every((each) => earlier.includes(each))
          : earlier.some((each) => mayAgree[i]?.(each) === true);
      }),
    );
  }

  /** Whether an amount of the call is at most that of an earlier one. */
  #isCovered(tool: string, { own, earlier }: AmountPair, { values }: Fact): boolean {
    const most = this.#amountIn(tool, earlier, values);
    if (most === undefined) return false;
    const amount = this.#call?.amount(own);
    return this.#call === undefined || (amount !== undefined && compareDecimals(amount, most) <= 0);
  }

  /** What an earlier call had, in the unit of the rule. */
  #amountIn(tool: string, asked: Amount, values: Fact['values']): Decimal | undefined {
    const place = this.#past.ledger.placeOf(tool, columnOfAmount(asked));
    return scaled(amountOf(values[place]), asked);
  }

  /** What is missing of a requirement; where nothing is, what it uses up. */
  #asked(after: Requirement | undefined): {
    readonly parts: readonly Part[];
    readonly uses: readonly Used[];
  } {
    if (after === undefined) return NOTHING_MISSING;
    const met = this.#metOf(after);
    if (Array.isArray(met)) return { parts: met, uses: [] };
    const shared = shareOut(met);
    if (!isShared(shared)) return { parts: [shortageOf(shared)], uses: [] };
    const uses = [...shared].flatMap(([{ leaf }, facts]) =>
      facts.map(({ id }): Used => [leaf.tool, id, leaf.consumes === 'calls']),
    );
    return { parts: [], uses };
  }

  /** What may be used up, where each part of a requirement alone is met; else what is missing. */
  #metOf(requirement: Requirement): ShareTree | Part[] {
    const { when } = requirement;
    if (when !== undefined && this.#truth(when) === false) return NOTHING_PLANNED;
    if (isLeaf(requirement)) return this.#metLeaf(requirement);
    const isAll = 'all' in requirement;
    const asked = isAll
      ? requirement.all
      : requirement.any.filter((each) => !this.#isLeftOut(each));
    if (asked.length === 0) return NOTHING_PLANNED;
    const met: ShareTree[] = [];
    const missing: Part[] = [];
    for (const each of asked) {
      const found = this.#metOf(each);
      if (Array.isArray(found)) missing.push(...found);
      else met.push(found);
    }
    if (isAll) return missing.length === 0 ? { all: met } : missing;
    return met.length > 0 ? { any: met } : [{ part: 'any', parts: missing }];
  }

  /** Whether a requirement is not about this call, nor any part of it. */
  #isLeftOut(requirement: Requirement): boolean {
    const { when } = requirement;
    if (when !== undefined && this.#truth(when) === false) return true;
    if (isLeaf(requirement)) return false;
    const parts = 'all' in requirement ? requirement.all : requirement.any;
    return parts.every((each) => this.#isLeftOut(each));
  }

  #metLeaf(leaf: Leaf): ShareTree | Part[] {
    const { tool, distinct, consumes } = leaf;
    const all = this.counting(leaf, 'after');
    const facts = this.#agreeing(leaf, this.#byOthers(leaf, all), true);
    if (!this.isReached(leaf, facts))
      return [{ part: 'after', leaf, count: facts.length, near: this.#nearOf(leaf, all) }];
    if (consumes === 'never') return NOTHING_PLANNED;
    const place =
      distinct === undefined ? -1 : this.#past.ledger.placeOf(tool, columnOfSource(distinct));
    return { leaf, facts, place };
  }

  /** The facts that somebody else has sent than the caller, where a leaf counts no others. */
  #byOthers({ tool, isByOthers }: Leaf, facts: readonly Fact[]): readonly Fact[] {
    if (!isByOthers) return facts;
    const place = this.#past.ledger.placeOf(tool, columnOfSource(BY));
    const { caller } = this.#call ?? {};
    return facts.filter(({ values }) => {
      const by = values[place];
      // Two kinds of names may be names of one person. Without a call, any may be the caller.
      if (typeof by !== 'string' || this.#call === undefined) return typeof by === 'string';
      return caller !== undefined && caller[0] === by[0] && caller !== by;
    });
  }

  #nearOf(leaf: Leaf, counting: readonly Fact[]): 'none' | 'late' | 'used' | 'other' {
    if (counting.length > 0) return 'other';
    const done = this.counting({ ...leaf, tests: [], consumes: 'never' }, 'after');
    if (done.some((each) => !each.isUsed)) return 'other';
    if (done.length > 0) return this.#agreeing(leaf, done, true).length > 0 ? 'used' : 'none';
    const ever = { ...leaf, tests: [], consumes: 'never', withinMs: Infinity } as const;
    return this.counting(ever, 'after').length > 0 ? 'late' : 'none';
  }

  // --- what must not be there, and how much ---------------------------------------------------

  #barred(leaf: Leaf): Part | undefined {
    const { tool, withinMs, times, distinct } = leaf;
    const { now, ledger } = this.#past;
    const lost = this.#lostWithin(leaf);
    if (lost !== undefined) {
      const retryAfterMs = waitFor([lost], 1, withinMs, now);
      return { part: 'notAfter', leaf, isFull: true, retryAfterMs };
    }
    const found = this.#agreeing(leaf, this.counting(leaf, 'notAfter'), false);
    if (!this.isReached(leaf, found, false)) return undefined;
    const place = distinct && ledger.placeOf(tool, columnOfSource(distinct));
    const ends = found.map(endOf).sort((a, b) => a - b);
    const excess = place === undefined ? ends.length - times + 1 : ends.length;
    return { part: 'notAfter', leaf, retryAfterMs: waitFor(ends, excess, withinMs, now) };
  }

  /** Why a limit refuses each call that it judges: the run keeps no more of them. */
  fullPart(limit: CheckedLimit): Part | undefined {
    if (limit.same.length === 0) return undefined;
    const { withinMs } = limit;
    const { now, facts } = this.#past;
    for (const each of [limit, ...limit.also]) {
      const all = facts.of(each.tool).facts;
      // The run keeps what no window has any more until its next move.
      const current = isFull(all) ? all.filter((fact) => isCurrent(fact, each, now)) : NO_FACTS;
      const lost = this.#lostWithin(each);
      if (!isFull(current) && lost === undefined) continue;
      const ends = isFull(current) ? current.map(endOf).sort((a, b) => a - b) : [lost ?? 0];
      const excess = Math.max(1, ends.length - MOST_FACTS + 1);
      const retryAfterMs = waitFor(ends, excess, withinMs, now);
      return { part: 'limit', limit, isFull: true, retryAfterMs };
    }
    return undefined;
  }

  /** The calls that a limit counts for the call; without a call, for some call. */
  counted(limit: CheckedLimit): readonly CountedFact[] {
    return [limit, ...limit.also].flatMap((each) => this.#countedOf(each));
  }

  #countedOf(limit: CheckedLimit): readonly CountedFact[] {
    const { tool, outcome, when, sum } = limit;
    const { now, ledger } = this.#past;
    const tested = when === undefined ? -1 : ledger.placeOf(tool, columnOfTest('args', when));
    const counting: Fact[] = [];
    for (const fact of this.#factsOf(tool))
      if (
        isOfOutcome(fact, outcome, false) &&
        isCurrent(fact, limit, now) &&
        (when === undefined || fact.values[tested] !== 'f')
      )
        counting.push(fact);
    return this.#agreeing(limit, counting, false).map((fact) => ({
      fact,
      amount: sum && this.#amountIn(tool, sum, fact.values),
    }));
  }

  /** Why a limit refuses the call; without a call, why it refuses each one. */
  limitPart(limit: CheckedLimit): Part | undefined {
    const full = this.fullPart(limit);
    if (full !== undefined) return full;
    const { tool, times, sum, withinMs, also } = limit;
    const { now } = this.#past;
    if (times !== undefined && also.length === 0 && callsIn(this.#factsOf(tool)) < times)
      return undefined;
    const found = inOrderOfEnd(this.counted(limit));
    if (sum !== undefined) return this.#sumPart(limit, sum, found);
    const inOrder = found.map(({ fact }) => fact);
    const most = times ?? 0;
    const count = callsIn(inOrder);
    if (count < most) return undefined;
    let excess = count - most + 1;
    let gone = 0;
    for (const each of inOrder) {
      if (excess <= 0) break;
      excess -= each.count;
      gone++;
    }
    const ends = inOrder.map(endOf);
    return { part: 'limit', limit, retryAfterMs: waitFor(ends, gone, withinMs, now) };
  }

  /** @param found the calls that count for the shortest time first */
  #sumPart(limit: CheckedLimit, sum: CheckedSum, found: readonly CountedFact[]): Part | undefined {
    const bound = this.#boundOf(sum);
    const own = this.#amount(limit) ?? ZERO_DECIMAL;
    const fits = (total: Decimal): boolean => {
      const order = compareDecimals(plus(total, own), bound);
      return sum.isIncluded ? order <= 0 : order < 0;
    };
    const all = sumOf(found);
    if (all !== undefined && fits(all)) return undefined;
    // From the newest on: what is left once the older ones count no more.
    let total = ZERO_DECIMAL;
    let from: number | undefined = fits(ZERO_DECIMAL) ? found.length : undefined;
    for (let at = found.length - 1; at >= 0; at--) {
      const amount = found[at]?.amount;
      if (amount === undefined) break;
      total = plus(total, amount);
      if (fits(total)) from = at;
      else if (!sum.isSigned) break;
    }
    const ends = found.map(({ fact }) => endOf(fact));
    // What bounds it may be less by then.
    const isSure = from !== undefined && !isBoundByCalls(sum);
    const retryAfterMs = isSure
      ? waitFor(ends, from ?? 0, limit.withinMs, this.#past.now)
      : undefined;
    const spare = all && (compareDecimals(bound, all) > 0 ? minus(bound, all) : ZERO_DECIMAL);
    return { part: 'limit', limit, left: spare, retryAfterMs };
  }

  /** An earlier call of unknown outcome, or of an unknown amount, earns nothing. */
  #boundOf(sum: CheckedSum): Decimal {
    if (!isBoundByCalls(sum)) return sum.bound as Decimal;
    const { leaf, amount } = sum.bound;
    let earned = ZERO_DECIMAL;
    for (const { values } of this.#agreeing(leaf, this.counting(leaf, 'after'), true))
      earned = plus(earned, this.#amountIn(leaf.tool, amount, values) ?? ZERO_DECIMAL);
    return earned;
  }
}

/** What a part of a rule asks of the call's own values. */
type Asks = Pick<Leaf, 'when' | 'same'> & { readonly atMost?: Leaf['atMost'] };

/** Each part alone has enough calls, and one call cannot serve two of them. */
function shortageOf({ leaves, needed, count }: Shortage): Part {
  const asks = ({ tests, same }: Leaf): number => tests.length + same.length;
  // A call that serves any of them will do.
  const leaf = leaves.reduce((least, each) => (asks(each) < asks(least) ? each : least));
  return { part: 'after', leaf, count, near: 'used', needed };
}

const NO_FACTS: readonly Fact[] = Object.freeze([]);

const NONE_GRANTED: ReadonlySet<number> = new Set();

const NEVER = (): boolean => false;

const NOTHING_MISSING = Object.freeze({ parts: [], uses: [] });

const NOTHING_PLANNED: ShareTree = Object.freeze({ all: [] });

const NOTHING_USED: Verdict = Object.freeze({ allows: true, uses: [] });

/** The values of a pair of arguments, for words. */
export function isSameName({ own, earlier }: Pair): boolean {
  return earlier.from === 'args' && own.path === earlier.path;
}
