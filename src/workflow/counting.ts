/**
 * Which earlier calls count at a time, and what they add up to. Hides windows, and when a call
 * counts no more. Pure.
 */
import { type Decimal, plus, times, ZERO_DECIMAL } from './decimal.ts';
import { type Fact, laterTime } from './facts.ts';
import type { CheckedLimit } from './limits.ts';
import type { Amount, Leaf } from './rule-parts.ts';

/** Who counts calls of a tool, and of which time. */
export type Counted = Pick<Leaf | CheckedLimit, 'tool' | 'withinMs' | 'fromMs'>;

/** A call that a limit counts. */
export interface CountedFact {
  readonly fact: Fact;
  /** In the unit of the limit; `undefined` where it is not known. */
  readonly amount: Decimal | undefined;
}

/** How many calls they count. */
export function callsIn(facts: readonly Fact[]): number {
  let calls = 0;
  for (const { count } of facts) calls += count;
  return calls;
}

/** What calls add up to; `undefined` where an amount is not known. */
export function sumOf(calls: readonly Pick<CountedFact, 'amount'>[]): Decimal | undefined {
  let all = ZERO_DECIMAL;
  for (const { amount } of calls) {
    if (amount === undefined) return undefined;
    all = plus(all, amount);
  }
  return all;
}

/** An amount in the unit of the limit. */
export function scaled(
  amount: Decimal | undefined,
  { scale }: Pick<Amount, 'scale'>,
): Decimal | undefined {
  return amount === undefined || scale === undefined ? amount : times(amount, scale);
}

/**
 * Whether `after` counts it. In a window, a later one is stale: a clock was set back. Without one,
 * its time does not matter.
 */
export function isRecent(
  { claimedAt, decidedAt }: Fact,
  { withinMs, fromMs }: Counted,
  now: number,
): boolean {
  if (claimedAt < fromMs) return false;
  if (withinMs === Number.POSITIVE_INFINITY) return true;
  return decidedAt <= now && now - decidedAt < withinMs;
}

/** Whether the others count it: one whose outcome is unknown counts until that is known. */
export function isCurrent(fact: Fact, { withinMs, fromMs }: Counted, now: number): boolean {
  if (fact.claimedAt < fromMs) return false;
  return fact.outcome === 'unknown' || now - laterTime(fact) < withinMs;
}

/** When it counts no more; never while its outcome is unknown. */
export function endOf(fact: Fact): number {
  return fact.outcome === 'unknown' ? Number.POSITIVE_INFINITY : laterTime(fact);
}

/** The calls that count for the shortest time first. */
export function inOrderOfEnd<T extends Pick<CountedFact, 'fact'>>(
  calls: readonly T[],
): readonly T[] {
  return [...calls].sort((a, b) => {
    const [one, other] = [endOf(a.fact), endOf(b.fact)];
    return one === other ? 0 : one - other;
  });
}

/** @param isNeeded for `after`: an unknown outcome is no success, and may be one for the others */
export function isOfOutcome(
  { outcome }: Fact,
  asked: 'succeeded' | 'failed' | 'any',
  isNeeded: boolean,
): boolean {
  return asked === 'any' || outcome === asked || (outcome === 'unknown' && !isNeeded);
}

/**
 * In how many milliseconds so many of the calls count no more.
 *
 * @param ends the times of the calls, the oldest first
 */
export function waitFor(
  ends: readonly number[],
  count: number,
  withinMs: number,
  now: number,
): number | undefined {
  const last = ends[Math.min(count, ends.length) - 1];
  if (last === undefined || !Number.isFinite(last + withinMs)) return undefined;
  return Math.max(0, last + withinMs - now);
}
