/**
 * Which earlier calls a call uses up where several requirements have `consumes`. Hides the
 * matching: one earlier call serves one requirement, and of all ways those calls that expire first.
 * Pure.
 */
import type { Fact } from './facts.ts';
import type { Leaf } from './rule-parts.ts';
import { differing, NULL_LETTER, readValue, type Value } from './values.ts';

/** A requirement that uses earlier calls up, alone met. */
export interface Share {
  readonly leaf: Leaf;
  /** The calls that it may use. */
  readonly facts: readonly Fact[];
  /** Where in them the value is that must differ; -1 without `distinct`. */
  readonly place: number;
}

/** What of a rule is met, as far as it uses calls up. */
export type ShareTree =
  | Share
  | { readonly all: readonly ShareTree[] }
  | { readonly any: readonly ShareTree[] };

/** A few requirements that ask for more calls than there are. */
export interface Shortage {
  /** The requirements of which any could use one more call. */
  readonly leaves: readonly Leaf[];
  readonly needed: number;
  readonly count: number;
}

/** The calls that each requirement uses up. */
export type Shared = ReadonlyMap<Share, readonly Fact[]>;

/** How many ways through alternatives are tried. Of a rule with more, the call may be refused. */
const MOST_WAYS = 256;

/** Gives each requirement its calls. Of an `any` each alternative for which some are left. */
export function shareOut(plan: ShareTree): Shared | Shortage {
  let shortage: Shortage | undefined;
  let ways = 0;
  for (const way of waysThrough(plan)) {
    const shared = matched(way);
    if (isShared(shared)) return withAlternatives(plan, way, shared);
    shortage ??= shared;
    ways++;
    if (ways === MOST_WAYS) break;
  }
  return shortage ?? NONE;
}

const NONE: Shared = new Map();

/** Whether there were enough calls. */
export function isShared(found: Shared | Shortage): found is Shared {
  return found instanceof Map;
}

/** What must be met together: of each `any` one alternative, the first ones first. */
function* waysThrough(plan: ShareTree): Generator<readonly Share[]> {
  if ('leaf' in plan) yield [plan];
  else if ('any' in plan) for (const each of plan.any) yield* waysThrough(each);
  else yield* waysThroughAll(plan.all);
}

function* waysThroughAll([first, ...rest]: readonly ShareTree[]): Generator<readonly Share[]> {
  if (first === undefined) {
    yield [];
    return;
  }
  for (const one of waysThrough(first))
    for (const others of waysThroughAll(rest)) yield [...one, ...others];
}

/** An alternative that is met beside the others is used up, too. */
function withAlternatives(plan: ShareTree, way: readonly Share[], found: Shared): Shared {
  let chosen = way;
  let shared = found;
  const add = (each: ShareTree): boolean => {
    if ('leaf' in each) {
      if (chosen.includes(each)) return true;
      const more = matched([...chosen, each]);
      if (!isShared(more)) return false;
      chosen = [...chosen, each];
      shared = more;
      return true;
    }
    if ('any' in each) return each.any.map(add).includes(true);
    const before = [chosen, shared] as const;
    if (each.all.every(add)) return true;
    [chosen, shared] = before;
    return false;
  };
  add(plan);
  return shared;
}

/** How many choices of JSON types are tried, where values must differ. */
const MOST_TYPES = 64;

/** Gives each requirement its calls, where there are enough for all. */
function matched(shares: readonly Share[]): Shared | Shortage {
  let choices: (readonly Share[])[] = [[]];
  for (const share of shares) {
    const typed = share.place === -1 ? [share] : ofOneType(share);
    choices = choices.flatMap((chosen) => typed.map((each) => [...chosen, each]));
    choices = choices.slice(0, MOST_TYPES);
  }
  let shortage: Shortage | undefined;
  for (const chosen of choices) {
    const matching = new Matching(chosen);
    const lacking = chosen.findIndex((each) => matching.lacks(each));
    if (lacking === -1)
      return new Map(chosen.map((each, i) => [shares[i] ?? each, matching.of(each)]));
    shortage ??= matching.shortageAt(lacking);
  }
  return shortage ?? NONE;
}

/** The requirement with the values of one JSON type, for each type that has enough of them. */
function ofOneType(share: Share): readonly Share[] {
  const { leaf, place } = share;
  const inOrder = [...share.facts].sort(byExpiry);
  const valueIn = ({ values }: Fact): Value => readValue(values[place]);
  const letters = new Set(
    inOrder.flatMap((each) => {
      const value = valueIn(each);
      return typeof value === 'string' ? [value.slice(0, 1)] : [];
    }),
  );
  letters.delete(NULL_LETTER);
  return [...letters].flatMap((letter) => {
    const facts = share.facts.filter((each) => {
      const value = valueIn(each);
      return typeof value === 'string' && value.startsWith(letter);
    });
    return differing(facts.map(valueIn), true) < leaf.times ? [] : [{ ...share, facts }];
  });
}

/** Facts in the order in which they expire: all of a requirement live for the same time. */
function byExpiry(a: Fact, b: Fact): number {
  return a.decidedAt - b.decidedAt || a.id - b.id;
}

/** A bipartite matching of facts and requirements, as large as there is one (Kuhn's algorithm). */
class Matching {
  readonly #shares: readonly Share[];
  readonly #candidates: readonly ReadonlySet<Fact>[];
  readonly #held: Fact[][];

  constructor(shares: readonly Share[]) {
    this.#shares = shares;
    this.#candidates = shares.map(({ facts }) => new Set(facts));
    this.#held = shares.map(() => []);
    const facts = new Set(shares.flatMap((each) => each.facts));
    // A fact that found its place keeps one: so those that expire first are used.
    for (const fact of [...facts].sort(byExpiry)) {
      if (!shares.some((each) => this.lacks(each))) break;
      this.#place(fact, new Set());
    }
  }

  lacks(share: Share): boolean {
    return this.of(share).length < share.leaf.times;
  }

  of(share: Share): readonly Fact[] {
    return this.#held[this.#shares.indexOf(share)] ?? [];
  }

  /** Finds a place for a fact, for which others may have to move. */
  #place(fact: Fact, visited: Set<Fact>): boolean {
    return this.#shares.some((share, i) => {
      if (this.#candidates[i]?.has(fact) !== true) return false;
      const held = this.#held[i] ?? [];
      const twin = this.#twinOf(fact, share, held);
      if (twin === undefined && held.length < share.leaf.times) {
        held.push(fact);
        return true;
      }
      return (twin === undefined ? held : [twin]).some((other) => {
        if (visited.has(other)) return false;
        visited.add(other);
        if (!this.#place(other, visited)) return false;
        held[held.indexOf(other)] = fact;
        return true;
      });
    });
  }

  /** A fact with the same value, where values must differ. */
  #twinOf({ values }: Fact, { place }: Share, held: readonly Fact[]): Fact | undefined {
    if (place === -1) return undefined;
    const value = readValue(values[place]);
    return held.find((each) => readValue(each.values[place]) === value);
  }

  /**
   * The requirements whose calls a lacking one could use, and how many calls there are for them.
   */
  shortageAt(lacking: number): Shortage {
    const short = new Set([lacking]);
    for (const at of short)
      for (const [i, held] of this.#held.entries())
        if (held.some((each) => this.#candidates[at]?.has(each))) short.add(i);
    const all = [...short].sort((a, b) => a - b);
    const sum = (of: (i: number) => number): number => all.reduce((total, i) => total + of(i), 0);
    return {
      leaves: all.flatMap((i) => this.#shares[i]?.leaf ?? []),
      needed: sum((i) => this.#shares[i]?.leaf.times ?? 0),
      count: sum((i) => this.#held[i]?.length ?? 0),
    };
  }
}
