/**
 * What a process has observed of the runs of one workflow. Hides how much of it is kept: counts,
 * and those of the last hours.
 */
import { runDigest } from '../basics/events.ts';
import type { RefusedPart } from '../workflow/rule-words.ts';
import type { Doubt, FollowedVerdict } from './followed-run.ts';

/** A refusal that a gate would have given. */
export interface ObservedRefusal {
  readonly tool: string;
  readonly reason: string;
  readonly state: string;
  /** What the parts of its rule say. */
  readonly says: readonly string[];
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** The run, by its digest. */
  readonly run: string;
}

/** The refusals of one kind. */
export interface ObservedRule {
  readonly tool: string;
  readonly reason: string;
  /** The runs whose first refusal it would have been. */
  readonly runs: number;
  /** All calls that would have had it, also in runs that had another one before. */
  readonly calls: number;
  readonly last: ObservedRefusal;
}

/** One hour. */
export interface ObservedHour {
  /** When it began, in milliseconds since the epoch. */
  readonly from: number;
  /** The runs of which a call was judged first in it. */
  readonly runs: number;
  /** The runs whose first refusal it would have had. */
  readonly refused: number;
}

/** Why a call passed without a judgement. */
export type Unjudged =
  /** Nothing names its run, or its session is not known. */
  | 'no-run'
  /** Its request was larger than the limits, or could not be read. */
  | 'unread'
  /** Too many calls waited to be judged. */
  | 'crowded'
  | Doubt;

/** What this process has observed of a workflow's runs since it began. */
export interface Observed {
  /** Since when, in milliseconds since the epoch. */
  readonly since: number;
  /** The runs that it was the first process to judge a call of. */
  readonly runs: number;
  /** The runs of which it was the first process to find a call that it would have refused. */
  readonly refused: number;
  readonly calls: number;
  /** The calls that would have waited for another one. */
  readonly wouldWait: number;
  /** The calls of runs that had strayed: what the gate says of these may be wrong. */
  readonly strayed: number;
  /** By reason: the calls that passed without a judgement. */
  readonly unjudged: Readonly<Partial<Record<Unjudged, number>>>;
  /** By rule, those of most runs first. */
  readonly rules: readonly ObservedRule[];
  /** The last 24 hours in which something was judged, the oldest first. */
  readonly hours: readonly ObservedHour[];
  readonly last?: ObservedRefusal;
}

const HOUR_MS = 3_600_000;
const HOURS_KEPT = 24;
const MOST_RULES = 1_000;

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

export class Observations {
  readonly #since: number;
  readonly #counts = { runs: 0, refused: 0, calls: 0, wouldWait: 0, strayed: 0 };
  readonly #unjudged = new Map<Unjudged, number>();
  readonly #rules = new Map<string, Mutable<ObservedRule>>();
  readonly #hours: Mutable<ObservedHour>[] = [];
  #last: ObservedRefusal | undefined;

  constructor(now: () => number) {
    this.#since = now();
  }

  /** A call passed without a judgement. */
  passed(why: Unjudged): void {
    this.#unjudged.set(why, (this.#unjudged.get(why) ?? 0) + 1);
  }

  /** The first call of a run is judged. */
  begun(at: number): void {
    this.#counts.runs += 1;
    this.#hourOf(at).runs += 1;
  }

  judged(verdict: FollowedVerdict, strayed: boolean): void {
    if (verdict.says === 'unbound') return;
    this.#counts.calls += 1;
    if (strayed) this.#counts.strayed += 1;
    if (verdict.says === 'would-wait') this.#counts.wouldWait += 1;
    else if (verdict.says === 'unknown') this.passed(verdict.why);
  }

  refused(
    {
      tool,
      reason,
      state,
      parts,
      at,
      runKey,
    }: {
      readonly tool: string;
      readonly reason: string;
      readonly state: string;
      readonly parts: readonly RefusedPart[];
      readonly at: number;
      readonly runKey: string;
    },
    { isFirst, strayed }: { readonly isFirst: boolean; readonly strayed: boolean },
  ): void {
    // What a gate says of a run that has strayed is no news of the rule.
    if (strayed) return;
    const says = parts.map((each) => each.says);
    this.#last = { tool, reason, state, says, at, run: runDigest(runKey) };
    const key = JSON.stringify([tool, reason]);
    const rule = this.#rules.get(key) ?? { tool, reason, runs: 0, calls: 0, last: this.#last };
    rule.calls += 1;
    rule.last = this.#last;
    if (this.#rules.size < MOST_RULES) this.#rules.set(key, rule);
    if (!isFirst) return;
    rule.runs += 1;
    this.#counts.refused += 1;
    this.#hourOf(at).refused += 1;
  }

  /** What was observed so far; `undefined` where no call was seen. */
  get report(): Observed | undefined {
    if (this.#counts.calls === 0 && this.#unjudged.size === 0) return undefined;
    return {
      since: this.#since,
      ...this.#counts,
      unjudged: Object.fromEntries(this.#unjudged),
      rules: [...this.#rules.values()]
        .map((each) => ({ ...each }))
        .sort((one, two) => two.runs - one.runs || two.calls - one.calls),
      hours: this.#hours.map((each) => ({ ...each })),
      ...(this.#last !== undefined && { last: this.#last }),
    };
  }

  #hourOf(at: number): Mutable<ObservedHour> {
    const from = at - (at % HOUR_MS);
    const known = this.#hours.find((each) => each.from === from);
    if (known !== undefined) return known;
    const hour = { from, runs: 0, refused: 0 };
    this.#hours.push(hour);
    this.#hours.sort((one, two) => one.from - two.from);
    if (this.#hours.length > HOURS_KEPT) this.#hours.shift();
    return hour;
  }
}
