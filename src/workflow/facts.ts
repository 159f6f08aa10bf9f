/**
 * The facts of a run: its decided calls, and the values of them that rules of some build ask for.
 * Hides how they are written into a snapshot. A snapshot is copied more often than its facts
 * change, so those of a tool are one text.
 */
import { isTable } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import type { ArgsOrResult } from './condition.ts';
import { type Value, valueFrom } from './values.ts';

/** What is kept of a call; of a fact from outside also by whom it was sent. */
export type NotedPart = ArgsOrResult | 'by';

/** Begins the name under which a run keeps what comes from outside. No tool has such a name. */
export const OUTSIDE = 'outside:';

/** A call whose outcome was decided, or is unknown. */
export interface Fact {
  /** Its own in the run, never given again: what a claim was granted names its facts by it. */
  readonly id: number;
  readonly outcome: 'succeeded' | 'failed' | 'unknown';
  /** When it was claimed, by the store's clock. */
  readonly claimedAt: number;
  /** When its outcome was decided, by the same clock. */
  readonly decidedAt: number;
  readonly isUsed: boolean;
  readonly isUndone: boolean;
  /** Whether it failed since the server took its arguments for none of the tool's. */
  readonly isInvalid: boolean;
  /** How many calls it counts: older ones are merged. */
  readonly count: number;
  /** In the order of the tool's columns. */
  readonly values: readonly Value[];
}

/** Who asks for the calls of a tool. */
export interface Asker {
  readonly kind: 'after' | 'notAfter' | 'limit';
  readonly outcome: 'succeeded' | 'failed' | 'any';
  readonly withinMs: number;
  /** Whether it counts no used call. */
  readonly consumes: boolean;
}

/** What is known of a call: a text for each column, and its value. */
export interface Noted {
  readonly k: readonly string[];
  readonly v: readonly Value[];
}

/** A call that has ended. */
export interface Decided {
  readonly tool: string;
  readonly outcome: 'succeeded' | 'failed';
  /** As in {@link Fact}. Default `false`. */
  readonly isInvalid?: boolean | undefined;
  readonly claimedAt: number;
  readonly decidedAt: number;
  readonly noted: Noted;
  /** The facts that it uses up. */
  readonly uses: readonly Used[];
}

/** A fact that a call uses up if it succeeds, or also if it fails. */
export type Used = readonly [tool: string, id: number, alsoByFailure: boolean];

/**
 * What a call was granted at its claim, saved with the claim. What is asked of the call later,
 * while its outcome is unknown or when an operator gives one, is read from here and never derived
 * again.
 */
export interface Grant {
  /** What rules ask of its arguments later: what it adds to limits is part of it. */
  readonly noted: Noted;
  readonly uses: readonly Used[];
}

/** Of what a call was granted, what it uses up with its outcome. */
export function usedBy(outcome: 'succeeded' | 'failed', uses: Grant['uses']): readonly Used[] {
  return outcome === 'succeeded' ? uses : uses.filter(([, , alsoByFailure]) => alsoByFailure);
}

/** A success at a time, of whose arguments and result nothing is known. */
export function bareCall(tool: string, at: number): Decided {
  return {
    tool,
    outcome: 'succeeded',
    claimedAt: at,
    decidedAt: at,
    noted: NOTHING,
    uses: [],
  };
}

/**
 * What builds ask of the calls of a tool: for how long, in milliseconds, 0 for ever. A key names
 * who asks: `after`, `notAfter` or `limit`, then which outcome, each by its first letter, and `u`
 * for unused calls. `counted`: the newest call does not say all of those with the same values.
 * `whole`: the oldest are never merged. `total`: those that differ in amounts alone are one.
 * `within`: the longest window, where another asks for ever.
 */
export type Asked = Readonly<Record<string, number>>;

export function askedBy({ kind, outcome, withinMs, consumes }: Asker): Asked {
  const ms = withinMs === Number.POSITIVE_INFINITY ? 0 : withinMs;
  return { [`${kind.charAt(0)}${outcome.charAt(0)}${consumes ? 'u' : ''}`]: ms };
}

const longest = (a: number, b: number): number => (a === 0 || b === 0 ? 0 : Math.max(a, b));

/** What either asks. */
export function askedByBoth(one: Asked, other: Asked): Asked {
  const both: Record<string, number> = { ...one };
  for (const [key, ms] of Object.entries(other)) both[key] = longest(both[key] ?? ms, ms);
  return both;
}

const KINDS = { a: 'after', n: 'notAfter', l: 'limit' } as const;
const OUTCOMES = { s: 'succeeded', f: 'failed', a: 'any' } as const;

/** Who asks for the calls of a tool, in any build. */
export class Askers {
  readonly asked: Asked;
  readonly all: readonly Asker[];
  readonly isCounted: boolean;
  /** Whether the two oldest may become one, where they are too many. */
  readonly isMerged: boolean;

  constructor(asked: Asked) {
    this.asked = asked;
    this.all = Object.entries(asked).flatMap(([key, ms]): Asker[] => {
      const kind = KINDS[key.charAt(0) as keyof typeof KINDS];
      const outcome = OUTCOMES[key.charAt(1) as keyof typeof OUTCOMES];
      if (kind === undefined || outcome === undefined || key.length > 3) return [];
      const withinMs = ms === 0 ? Number.POSITIVE_INFINITY : ms;
      return [{ kind, outcome, withinMs, consumes: key.charAt(2) === 'u' }];
    });
    this.isCounted = asked.counted !== undefined;
    this.isMerged = asked.whole === undefined && this.all.some(({ kind }) => kind === 'limit');
  }

  /**
   * Where totals are asked: the facts, of which those that no window has any more are made fewer.
   * Those that may be used up one by one stay.
   */
  totalled(
    facts: readonly Fact[],
    now: number,
    fewer: (settled: readonly Fact[]) => readonly Fact[],
  ): readonly Fact[] {
    if (this.asked.total === undefined || this.all.some(({ consumes }) => consumes)) return facts;
    let { within: longest = 0 } = this.asked;
    for (const { withinMs } of this.all)
      if (withinMs !== Number.POSITIVE_INFINITY) longest = Math.max(longest, withinMs);
    const isSettled = (fact: Fact): boolean =>
      now - laterTime(fact) >= longest && fact.outcome !== 'unknown';
    const settled = facts.filter(isSettled);
    const kept = fewer(settled);
    if (kept.length === settled.length) return facts;
    return [...kept, ...facts.filter((each) => !isSettled(each))].sort((a, b) => a.id - b.id);
  }

  /** Whether one of them may count the fact now or later. */
  ask(fact: Fact, now: number): boolean {
    return this.all.some((each) => isAsked(fact, each, now));
  }

  /** Itself where it has all that is asked. */
  and(asked: Asked): Askers {
    const isNew = ([key, ms]: readonly [string, number]): boolean => {
      const own = this.asked[key];
      return own === undefined || longest(own, ms) !== own;
    };
    return Object.entries(asked).some(isNew) ? new Askers(askedByBoth(this.asked, asked)) : this;
  }
}

/** The calls of one tool that a run has. */
export interface FactsOfTool {
  /** The columns of its values: this build's first, then those of others. */
  readonly keys: readonly string[];
  readonly askers: Askers;
  /** The oldest claim first. */
  readonly facts: readonly Fact[];
  /** The later time of the newest fact that was dropped because there were too many. */
  readonly lostAt: number | undefined;
}

const NO_FACTS: FactsOfTool = Object.freeze({
  keys: [],
  askers: new Askers({}),
  facts: Object.freeze([]),
  lostAt: undefined,
});

/** How many facts of one tool a run has. */
export const MOST_FACTS = 1_000;

/** How many members of all lists in the facts of one tool a run has. */
export const MOST_LISTED = 10_000;

/** Whether a run has so many facts of a tool that one more might push another one out. */
export function isFull(facts: readonly Fact[]): boolean {
  return facts.length >= MOST_FACTS || listedIn(facts) > MOST_LISTED;
}

export function listedIn(facts: readonly Fact[]): number {
  let listed = 0;
  for (const { values } of facts)
    for (const each of values) if (Array.isArray(each)) listed += each.length;
  return listed;
}

/** What is so of each call at first. Its id is given with its place among the facts of a run. */
export const NEW_FACT = Object.freeze({
  id: 0,
  isUsed: false,
  isUndone: false,
  isInvalid: false,
  count: 1,
});

export const NOTHING: Noted = Object.freeze({ k: [], v: [] });

/** A grant as a store keeps it with the claim; `undefined` where there is nothing to keep. */
export function savedGrant({ noted, uses }: Grant): Json | undefined {
  if (noted.k.length === 0 && uses.length === 0) return undefined;
  return { k: [...noted.k], v: [...(noted.v as Json[])], u: uses.map((each) => [...each]) };
}

/** What a claim was granted. What a store has of it may be anything. */
export function grantOf({ use }: { readonly use?: Json | undefined }): Grant {
  const { k, v, u } = isTable(use) ? use : {};
  const isNoted = Array.isArray(k) && Array.isArray(v);
  const uses = (Array.isArray(u) ? u : []).flatMap((each: unknown): Used[] => {
    const [tool, id, alsoByFailure] = Array.isArray(each) ? each : [];
    return typeof id === 'number' ? [[String(tool), id, alsoByFailure === true]] : [];
  });
  return { noted: isNoted ? { k: k.map(String), v: v.map(valueFrom) } : NOTHING, uses };
}

/** The facts of one run. They never change. */
export class Facts {
  static readonly NONE = new Facts(new Map(), 1);

  readonly tools: ReadonlyMap<string, FactsOfTool>;
  readonly nextId: number;

  constructor(tools: ReadonlyMap<string, FactsOfTool>, nextId: number) {
    this.tools = tools;
    this.nextId = nextId;
  }

  of(tool: string): FactsOfTool {
    return this.tools.get(tool) ?? NO_FACTS;
  }

  /** The time of the newest fact; 0 without one. */
  get newestAt(): number {
    let newest = 0;
    for (const { facts } of this.tools.values())
      for (const each of facts) newest = Math.max(newest, laterTime(each));
    return newest;
  }

  /** The same facts, and a new one beside those of its tool. */
  adding(tool: string, others: FactsOfTool, made: Omit<Fact, 'id'>): Facts {
    const { nextId } = this;
    const facts = [...others.facts, { ...made, id: nextId }];
    return new Facts(new Map(this.tools).set(tool, { ...others, facts }), nextId + 1);
  }

  /** The same facts, but for those of one tool. */
  with(tool: string, change: (facts: readonly Fact[]) => readonly Fact[]): Facts {
    const before = this.tools.get(tool);
    if (before === undefined) return this;
    const changed = { ...before, facts: change(before.facts) };
    return new Facts(new Map(this.tools).set(tool, changed), this.nextId);
  }
}

/** The later of a fact's two times. */
export function laterTime({ claimedAt, decidedAt }: Fact): number {
  return Math.max(claimedAt, decidedAt);
}

/** Whether some asker may count the fact now or later. */
function isAsked(fact: Fact, { kind, outcome, withinMs, consumes }: Asker, now: number): boolean {
  const { isUsed, isUndone, decidedAt } = fact;
  if (outcome !== 'any' && fact.outcome !== 'unknown' && fact.outcome !== outcome) return false;
  if (isUndone && kind !== 'limit') return false;
  if (fact.isInvalid && kind === 'after' && outcome === 'any') return false;
  if (isUsed && consumes) return false;
  return now - (kind === 'after' ? decidedAt : laterTime(fact)) < withinMs;
}

/** The facts of a tool as one text. */
export function textOfFacts(tool: string, { keys, askers, facts, lostAt }: FactsOfTool): string {
  const base = facts[0]?.claimedAt ?? 0;
  const all: Json[] = [tool, [...keys], base, lostAt ?? null, askers.asked];
  for (const each of facts) pushFact(all, each, base, keys.length);
  return JSON.stringify(all);
}

/** What such a text says, each value under its key. What is no fact is skipped. */
export function factsInText(text: string): readonly [tool: string, facts: FactsOfTool] | undefined {
  const [tool, keys, base, lostAt, asked, ...written] = listIn(text);
  const isText = typeof tool === 'string' && Array.isArray(keys) && typeof base === 'number';
  if (!isText || !isTable(asked)) return undefined;
  const facts: Fact[] = [];
  for (let at = 0; at < written.length; at += FACT_HEAD + keys.length) {
    const fact = factFrom(written, at, base, keys.length);
    if (fact !== undefined) facts.push(fact);
  }
  const times = Object.entries(asked).filter(([, ms]) => typeof ms === 'number' && ms >= 0);
  const askers = new Askers(Object.fromEntries(times) as Asked);
  const isLost = typeof lostAt === 'number';
  return [tool, { keys: keys.map(String), askers, facts, lostAt: isLost ? lostAt : undefined }];
}

const FAILED = 1;
const UNKNOWN = 2;
/** No call has both. A build that does not know it reads a plain failure. */
const INVALID = FAILED + UNKNOWN;
const USED = 4;
const UNDONE = 8;
/** How many calls it counts, less one, stands above the flags. */
const COUNT = 16;

/** How many members of a text a fact has before its values. */
const FACT_HEAD = 4;

function pushFact(all: Json[], fact: Fact, base: number, width: number): void {
  const { id, outcome, claimedAt, decidedAt, isUsed, isUndone, isInvalid, count, values } = fact;
  const flags =
    (isInvalid ? INVALID : outcome === 'failed' ? FAILED : outcome === 'unknown' ? UNKNOWN : 0) +
    (isUsed ? USED : 0) +
    (isUndone ? UNDONE : 0) +
    COUNT * (count - 1);
  all.push(id, claimedAt - base, decidedAt - claimedAt, flags);
  for (let at = 0; at < width; at++) all.push((values[at] as Json | undefined) ?? null);
}

function factFrom(
  written: readonly Json[],
  at: number,
  base: number,
  width: number,
): Fact | undefined {
  const head = written.slice(at, at + FACT_HEAD);
  if (!head.every((each) => typeof each === 'number')) return undefined;
  const [id = 0, since = 0, took = 0, flags = 0] = head;
  const claimedAt = base + since;
  return {
    id,
    outcome: flags & FAILED ? 'failed' : flags & UNKNOWN ? 'unknown' : 'succeeded',
    claimedAt,
    decidedAt: claimedAt + took,
    isUsed: (flags & USED) !== 0,
    isUndone: (flags & UNDONE) !== 0,
    isInvalid: (flags & INVALID) === INVALID,
    count: Math.floor(flags / COUNT) + 1,
    values: written.slice(at + FACT_HEAD, at + FACT_HEAD + width).map(valueFrom),
  };
}

function listIn(text: string): readonly Json[] {
  try {
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}
