/**
 * The facts of a run: its decided calls, and the values of them that some rule can still ask for.
 * Hides how they are written into a snapshot, how long one is kept, and what happens where they are
 * too many. A snapshot is copied more often than its facts change, so those of a tool are one text.
 */
import { pushTo } from '../basics/collections.ts';
import { isTable } from '../basics/options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import type { PartOfCall, Reader } from './condition.ts';
import { decimalOf, plus, showDecimal } from './decimal.ts';
import { openContext, sealContext } from './envelope.ts';
import {
  type Demands,
  hasUnnamed,
  type Leaf,
  leavesOf,
  type Test,
  type ValueSource,
} from './rules.ts';
import { amountOf, MOST_MEMBERS, membersAt, type Value, valueFrom } from './values.ts';

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
  /** How many calls it stands for: older ones are merged. */
  readonly count: number;
  /** In the order of the tool's columns. */
  readonly values: readonly Value[];
}

/** What a run keeps of each call of a tool. */
interface Column {
  /** The same in each deployment that keeps the same. */
  readonly key: string;
  readonly from: PartOfCall;
  /** Where a value must be, as an app gives it to `send()`. Absent where a condition is kept. */
  readonly path?: string;
  /** Whether its values are amounts, which add up. */
  readonly isAmount?: true;
  noted(read: Reader, salt: string): Value;
}

interface ColumnsOfPart {
  readonly columns: readonly Column[];
  readonly keys: readonly string[];
}

/** Who asks for the calls of a tool. */
interface Asker {
  readonly kind: 'after' | 'notAfter' | 'limit';
  readonly outcome: 'succeeded' | 'failed' | 'any';
  readonly withinMs: number;
  /** Whether it counts no used call. */
  readonly consumes: boolean;
}

/** What a run keeps of one tool. */
interface Kept {
  readonly columns: readonly Column[];
  /** Where in a fact the value of each column is. */
  readonly places: ReadonlyMap<string, number>;
  /** Those of its arguments, and those of its result. */
  readonly of: { readonly [Part in PartOfCall]: ColumnsOfPart };
  readonly askers: readonly Asker[];
  /** Whether each call counts: of those with the same values the newest does not stand for all. */
  readonly isCounted: boolean;
  /** Whether the two oldest may become one, where they are too many. */
  readonly isMerged: boolean;
  /** Whether a column has what a function without a name said. */
  readonly isUnnamed: boolean;
}

/** What is known of a call: a text for each column, and its value. */
export interface Noted {
  readonly k: readonly string[];
  readonly v: readonly Value[];
}

/** A call that has ended. */
export interface DecidedCall {
  readonly tool: string;
  readonly outcome: 'succeeded' | 'failed';
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
export function bareCall(tool: string, at: number): DecidedCall {
  return {
    tool,
    outcome: 'succeeded',
    claimedAt: at,
    decidedAt: at,
    noted: NOTHING,
    uses: [],
  };
}

/** The calls of one tool that a run has. */
export interface FactsOfTool {
  /** The oldest claim first. */
  readonly facts: readonly Fact[];
  /** The later time of the newest fact that was dropped because there were too many. */
  readonly lostAt: number | undefined;
}

const NO_FACTS: FactsOfTool = Object.freeze({ facts: Object.freeze([]), lostAt: undefined });

/** How many facts of one tool a run has. */
export const MOST_FACTS = 1_000;

/** How many members of all lists in the facts of one tool a run has. */
const MOST_LISTED = 10_000;

/** Whether a run has so many facts of a tool that one more might push another one out. */
export function isFull(facts: readonly Fact[]): boolean {
  return facts.length >= MOST_FACTS || listedIn(facts) > MOST_LISTED;
}

function listedIn(facts: readonly Fact[]): number {
  let listed = 0;
  for (const { values } of facts)
    for (const each of values) if (Array.isArray(each)) listed += each.length;
  return listed;
}

/** Where in a snapshot's context they are. */
const FACTS = 'mcp-interlock/facts';

/** What a run keeps of calls, for all rules of a workflow. */
export class Ledger {
  readonly #tools: ReadonlyMap<string, Kept>;
  /** Whether some call counts for a time only. */
  readonly hasWindows: boolean;
  /** What was read of a snapshot: several questions of one request ask for it. */
  readonly #read = new WeakMap<readonly Json[], Facts>();
  /** What texts say. A process mostly meets those again that it wrote. */
  readonly #known = new Map<string, readonly [tool: string, facts: FactsOfTool]>();
  #charactersKnown = 0;
  readonly #texts = new WeakMap<FactsOfTool, string>();

  /** @param isPlain whether a run needs to know of a leaf only that its tool is done */
  static of(demands: readonly Demands[], isPlain: (leaf: Leaf) => boolean = () => false): Ledger {
    const asked = new Map<string, (Leaf | Demands['limits'][number])[]>();
    const kinds = new Map<Leaf | Demands['limits'][number], Asker['kind']>();
    const add = (each: Leaf | Demands['limits'][number], kind: Asker['kind']): void => {
      kinds.set(each, kind);
      pushTo(asked, each.tool, each);
    };
    for (const { after, notAfter, limits } of demands) {
      for (const each of leavesOf(after)) add(each, 'after');
      for (const each of notAfter) add(each, 'notAfter');
      for (const each of limits) add(each, 'limit');
    }
    const tools = [...asked].flatMap(([tool, all]): [string, Kept][] => {
      if (all.every((each) => !('sum' in each) && kinds.get(each) === 'after' && isPlain(each)))
        return [];
      const columns = new Map<string, Column>();
      const askers = all.map((each): Asker => {
        for (const column of columnsOf(each)) columns.set(column.key, column);
        const consumes = 'consumes' in each && each.consumes !== 'never';
        const { outcome, withinMs } = each;
        return { kind: kinds.get(each) ?? 'after', outcome, withinMs, consumes };
      });
      const isCounted = all.some(
        (each) => 'sum' in each || each.times > 1 || each.consumes !== 'never',
      );
      const isMerged =
        askers.some(({ kind }) => kind === 'limit') &&
        all.every((each) => kinds.get(each) === 'after' || each.same.length === 0);
      const own = [...columns.values()];
      const of = { args: columnsFrom(own, 'args'), result: columnsFrom(own, 'result') };
      const places = new Map(own.map(({ key }, i) => [key, i]));
      const isUnnamed = hasUnnamed(tool, all.flatMap(testsOf));
      return [[tool, { columns: own, places, of, askers, isCounted, isMerged, isUnnamed }]];
    });
    return new Ledger(new Map(tools));
  }

  private constructor(tools: ReadonlyMap<string, Kept>) {
    this.#tools = tools;
    this.hasWindows = [...tools.values()].some(({ askers }) =>
      askers.some(({ withinMs }) => withinMs !== Number.POSITIVE_INFINITY),
    );
  }

  /** Whether some fact counts at one of two times only. */
  changesWithin({ tools }: Facts, from: number, to: number): boolean {
    for (const [tool, { facts }] of tools)
      for (const { withinMs } of this.#tools.get(tool)?.askers ?? []) {
        if (withinMs === Number.POSITIVE_INFINITY) continue;
        for (const { claimedAt, decidedAt } of facts) {
          const early = claimedAt + withinMs;
          const late = decidedAt + withinMs;
          if ((early > from && early <= to) || (late > from && late <= to)) return true;
        }
      }
    return false;
  }

  /**
   * Why only a memory store may keep calls of a tool, or of any: another deployment may have
   * another function where one without a name is asked. `undefined` where there is none.
   */
  faultOfNames(only?: string): string | undefined {
    for (const tool of only === undefined ? this.#tools.keys() : [only])
      if (this.#tools.get(tool)?.isUnnamed)
        return (
          `rules ask calls of ${JSON.stringify(tool)} by a function without a name, and only a ` +
          'memory store may keep what it says: give it one beside it, as: "…"'
        );
    return undefined;
  }

  keeps(tool: string): boolean {
    return this.#tools.has(tool);
  }

  /** Whether a run keeps calls of the tool that failed. */
  keepsFailures(tool: string): boolean {
    const { askers = [] } = this.#tools.get(tool) ?? {};
    return askers.some(({ outcome }) => outcome !== 'succeeded');
  }

  /** Whether a rule asks for a value of the tool's results. */
  readsResult(tool: string): boolean {
    return (this.#tools.get(tool)?.of.result.keys.length ?? 0) > 0;
  }

  /** In which place the facts of a tool have a value. */
  placeOf(tool: string, key: string): number {
    return this.#tools.get(tool)?.places.get(key) ?? -1;
  }

  /**
   * What rules may ask of a call's arguments, or of its result.
   *
   * @param read `undefined` where nothing is known of them
   * @param known what was noted of the call before
   */
  note(
    tool: string,
    from: PartOfCall,
    read: Reader | undefined,
    salt: string,
    known: Noted = NOTHING,
  ): Noted {
    const asked = this.#tools.get(tool)?.of[from];
    if (asked === undefined || asked.keys.length === 0) return known;
    const values = asked.columns.map((each) =>
      read === undefined ? null : each.noted(read, salt),
    );
    if (known === NOTHING) return { k: asked.keys, v: values };
    return { k: [...known.k, ...asked.keys], v: [...known.v, ...values] };
  }

  /** The values of a call as its facts have them. */
  valuesOf(tool: string, { k, v }: Noted): readonly Value[] {
    return this.#tools.get(tool)?.columns.map(({ key }) => v[k.indexOf(key)] ?? null) ?? [];
  }

  /** The paths of a call at which rules ask for a value and find none. */
  lacking(tool: string, noted: Noted): readonly string[] {
    const values = this.valuesOf(tool, noted);
    const { columns = [] } = this.#tools.get(tool) ?? {};
    return columns.flatMap(({ path }, at) =>
      path !== undefined && values[at] === null ? [path] : [],
    );
  }

  /** The facts with a decided call, what it has used up, and without what it has undone. */
  decided(facts: Facts, call: DecidedCall, undoes: readonly string[]): Facts {
    const { tool, outcome, claimedAt, decidedAt, noted, uses } = call;
    let all = facts;
    for (const [from, id] of uses)
      all = all.with(from, (each) =>
        each.map((fact) => (fact.id === id ? { ...fact, isUsed: true } : fact)),
      );
    for (const undone of undoes)
      if (all.tools.has(undone))
        all = all.with(undone, (each) =>
          each.map((fact) => (fact.outcome === 'failed' ? fact : { ...fact, isUndone: true })),
        );
    if (!this.keeps(tool) || (outcome === 'failed' && !this.keepsFailures(tool))) return all;
    const values = this.valuesOf(tool, noted);
    return all.adding(tool, { ...NEW_FACT, outcome, claimedAt, decidedAt, values });
  }

  /** What a store may have is anything: what is no fact is skipped. */
  read({ context }: Pick<FsmSnapshot, 'context'>): Facts {
    const texts = openContext(context)[FACTS];
    if (!Array.isArray(texts)) return Facts.NONE;
    const known = this.#read.get(texts);
    if (known !== undefined) return known;
    const tools = new Map<string, FactsOfTool>();
    const others: string[] = [];
    const [nextId] = texts;
    for (const text of texts as readonly Json[]) {
      if (typeof text !== 'string') continue;
      const [tool, facts] = this.#known.get(text) ?? this.#parsed(text);
      // Another deployment's rules ask for them.
      if (facts === undefined) others.push(text);
      else tools.set(tool, facts);
    }
    const facts = new Facts(tools, others, typeof nextId === 'number' ? nextId : 1);
    this.#read.set(texts, facts);
    return facts;
  }

  #parsed(text: string): readonly [tool: string, facts: FactsOfTool | undefined] {
    const [tool, keys, base, lostAt, ...written] = listIn(text);
    const columns = this.#tools.get(String(tool))?.columns;
    if (!Array.isArray(keys) || typeof base !== 'number' || columns === undefined)
      return [String(tool), undefined];
    const places = columns.map(({ key }) => keys.indexOf(key));
    const facts: Fact[] = [];
    for (let at = 0; at < written.length; at += FACT_HEAD + keys.length) {
      const fact = factFrom(written, at, base, places);
      if (fact !== undefined) facts.push(fact);
    }
    const read = { facts, lostAt: typeof lostAt === 'number' ? lostAt : undefined };
    this.#remember(String(tool), read, text);
    return [String(tool), read];
  }

  #remember(tool: string, facts: FactsOfTool, text: string): void {
    this.#texts.set(facts, text);
    this.#charactersKnown += text.length;
    if (this.#charactersKnown > MOST_CHARACTERS_KNOWN) {
      this.#known.clear();
      this.#charactersKnown = text.length;
    }
    this.#known.set(text, [tool, facts]);
  }

  /** The position with these facts, and without any that no rule can ask for by now. */
  write(
    position: Readonly<Pick<FsmSnapshot, 'state' | 'context'>>,
    facts: Facts,
    now: number,
  ): Pick<FsmSnapshot, 'state' | 'context'> {
    const { others, nextId } = facts;
    const left = new Map<string, FactsOfTool>();
    // It outlives the facts: a claim may name one that is gone.
    const texts: Json[] = nextId === 1 ? [] : [nextId];
    for (const [tool, all] of facts.tools) {
      const kept = this.#bounded(tool, all, now);
      if (kept.facts.length === 0 && kept.lostAt === undefined) continue;
      left.set(tool, kept);
      texts.push(this.#texts.get(kept) ?? this.#written(tool, kept));
    }
    texts.push(...others);
    this.#read.set(texts, new Facts(left, others, nextId));
    const own = texts.length === 0 ? undefined : texts;
    const { context } = sealContext({ ...openContext(position.context), [FACTS]: own });
    return { state: position.state, context };
  }

  #written(tool: string, kept: FactsOfTool): string {
    const keys = this.#tools.get(tool)?.columns.map(({ key }) => key) ?? [];
    const base = kept.facts[0]?.claimedAt ?? 0;
    const all: Json[] = [tool, keys, base, kept.lostAt ?? null];
    for (const each of kept.facts) pushFact(all, each, base);
    const text = JSON.stringify(all);
    this.#remember(tool, kept, text);
    return text;
  }

  #bounded(tool: string, before: FactsOfTool, now: number): FactsOfTool {
    const { facts: all } = before;
    const {
      askers = [],
      columns = [],
      isCounted = true,
      isMerged = false,
    } = this.#tools.get(tool) ?? {};
    let facts: readonly Fact[] = all.filter((each) =>
      askers.some((asker) => isAsked(each, asker, now)),
    );
    if (!isCounted) facts = endsOfEach(facts);
    // A refusal tells a call that was too long ago from one that never was.
    const isOfWindow = ({ kind, withinMs, consumes }: Asker): boolean =>
      kind === 'after' && withinMs !== Number.POSITIVE_INFINITY && !consumes;
    if (facts.length === 0 && askers.some(isOfWindow)) facts = all.slice(-1);
    let { lostAt } = before;
    // Where `isFull` was asked before, one more call was let in.
    const mostListed = MOST_LISTED + MOST_MEMBERS * columns.length;
    let listed = listedIn(facts);
    while (facts.length > MOST_FACTS || listed > mostListed) {
      const [oldest, ...rest] = facts;
      if (oldest === undefined) break;
      listed -= listedIn([oldest]);
      // Of two outcomes a merged fact would be neither.
      const next = rest.findIndex(({ outcome }) => outcome === oldest.outcome);
      const other = rest[next];
      if (isMerged && other !== undefined)
        facts = rest.with(next, this.#merged(tool, oldest, other));
      else {
        lostAt = Math.max(lostAt ?? 0, laterTime(oldest));
        facts = rest;
      }
    }
    const isLost =
      lostAt !== undefined &&
      askers.some(({ kind, withinMs }) => kind !== 'after' && now - (lostAt ?? 0) < withinMs);
    if (!isLost) lostAt = undefined;
    const isSame = facts.length === all.length && lostAt === before.lostAt;
    return isSame ? before : { facts, lostAt };
  }

  /** Two facts as one that is never too late, and counts as both. */
  #merged(tool: string, one: Fact, other: Fact): Fact {
    const { columns = [] } = this.#tools.get(tool) ?? {};
    const values = columns.map(({ isAmount }, i): Value => {
      const [a = null, b = null] = [one.values[i], other.values[i]];
      if (!isAmount) return JSON.stringify(a) === JSON.stringify(b) ? a : null;
      const [x, y] = [amountOf(a), amountOf(b)];
      return x === undefined || y === undefined ? null : showDecimal(plus(x, y));
    });
    const later = laterTime(one) > laterTime(other) ? one : other;
    return {
      id: other.id,
      outcome: one.outcome,
      claimedAt: Math.max(one.claimedAt, other.claimedAt),
      decidedAt: later.decidedAt,
      isUsed: true,
      isUndone: one.isUndone && other.isUndone,
      count: one.count + other.count,
      values,
    };
  }
}

/** What is so of each call at first. Its id is given with its place among the facts of a run. */
export const NEW_FACT = Object.freeze({ id: 0, isUsed: false, isUndone: false, count: 1 });

/** When so much was read, it is forgotten: in memory it takes some ten times as much. */
const MOST_CHARACTERS_KNOWN = 1_000_000;

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
  static readonly NONE = new Facts(new Map(), [], 1);

  readonly tools: ReadonlyMap<string, FactsOfTool>;
  /** Those of tools that no rule of this deployment asks for, as they came. */
  readonly others: readonly string[];
  readonly nextId: number;

  constructor(tools: ReadonlyMap<string, FactsOfTool>, others: readonly string[], nextId: number) {
    this.tools = tools;
    this.others = others;
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

  /** The same facts, and a new one. */
  adding(tool: string, made: Omit<Fact, 'id'>): Facts {
    const { nextId } = this;
    const { tools, others } = this.with(tool, (each) => [...each, { ...made, id: nextId }]);
    return new Facts(tools, others, nextId + 1);
  }

  /** The same facts, but for those of one tool. */
  with(tool: string, change: (facts: readonly Fact[]) => readonly Fact[]): Facts {
    const { facts, lostAt } = this.of(tool);
    const tools = new Map(this.tools).set(tool, { facts: change(facts), lostAt });
    return new Facts(tools, this.others, this.nextId);
  }
}

/** The later of a fact's two times. */
export function laterTime({ claimedAt, decidedAt }: Fact): number {
  return Math.max(claimedAt, decidedAt);
}

export function columnOfSource({ from, path }: ValueSource): string {
  return `${from}.${path}`;
}

export function columnOfTest(from: PartOfCall, { key }: Pick<Test, 'key'>): string {
  return `${from}?${key}`;
}

export function columnOfAmount({ path }: ValueSource, isText: boolean): string {
  return `args$${isText ? '"' : ''}${path}`;
}

function columnsOf(asked: Leaf | Demands['limits'][number]): readonly Column[] {
  const members = asked.same.map(({ earlier }) => memberColumn(earlier));
  if ('sum' in asked) {
    const { sum, when } = asked;
    return [
      ...members,
      ...(when === undefined ? [] : [testColumn('args', when)]),
      ...(sum === undefined ? [] : [amountColumn(sum.source, sum.isText)]),
    ];
  }
  const { tests, distinct } = asked;
  return [
    ...members,
    ...tests.map((each) => testColumn(each.from, each)),
    ...(distinct === undefined ? [] : [memberColumn(distinct)]),
  ];
}

/** The conditions that a run keeps the truth of. */
function testsOf(asked: Leaf | Demands['limits'][number]): readonly Leaf['tests'][number][] {
  if (!('sum' in asked)) return asked.tests;
  return asked.when === undefined ? [] : [{ ...asked.when, from: 'args' }];
}

function columnsFrom(all: readonly Column[], part: PartOfCall): ColumnsOfPart {
  const columns = all.filter(({ from }) => from === part);
  return { columns, keys: Object.freeze(columns.map(({ key }) => key)) };
}

function memberColumn(source: ValueSource): Column {
  const { from, keys } = source;
  const noted = (read: Reader, salt: string): Value => {
    const members = membersAt(read, keys, salt);
    return typeof members === 'symbol' ? null : (members ?? null);
  };
  const path = `${from === 'args' ? 'arguments' : from}.${source.path}`;
  return { key: columnOfSource(source), from, path, noted };
}

function testColumn(from: PartOfCall, asked: Test): Column {
  const noted = (read: Reader): Value => {
    const truth = asked.test(read);
    return truth === undefined ? null : truth ? 't' : 'f';
  };
  return { key: columnOfTest(from, asked), from, noted };
}

function amountColumn(source: ValueSource, isText: boolean): Column {
  const noted = (read: Reader): Value => {
    const amount = decimalOf(read(source.keys), isText);
    return amount === undefined ? null : showDecimal(amount);
  };
  return { key: columnOfAmount(source, isText), from: 'args', isAmount: true, noted };
}

/** Whether some asker may count the fact now or later. */
function isAsked(fact: Fact, { kind, outcome, withinMs, consumes }: Asker, now: number): boolean {
  const { isUsed, isUndone, decidedAt } = fact;
  if (outcome !== 'any' && fact.outcome !== 'unknown' && fact.outcome !== outcome) return false;
  if (isUndone && kind !== 'limit') return false;
  if (isUsed && consumes) return false;
  return now - (kind === 'after' ? decidedAt : laterTime(fact)) < withinMs;
}

/**
 * Of facts that differ in their times only, the newest, for windows. The oldest too, which is not
 * later than now even if the clock was set back.
 */
function endsOfEach(facts: readonly Fact[]): readonly Fact[] {
  if (facts.length < 3) return facts;
  const ends = new Map<string, [oldest: Fact, newest: Fact]>();
  for (const each of facts) {
    const { outcome, isUsed, isUndone, values } = each;
    const hasList = values.some((value) => Array.isArray(value));
    const said = hasList ? JSON.stringify(values) : values.join();
    const key = `${outcome} ${isUsed} ${isUndone} ${said}`;
    const [oldest = each, newest = each] = ends.get(key) ?? [];
    ends.set(key, [
      each.decidedAt < oldest.decidedAt ? each : oldest,
      each.decidedAt >= newest.decidedAt ? each : newest,
    ]);
  }
  const kept = new Set([...ends.values()].flat());
  return facts.filter((each) => kept.has(each));
}

const FAILED = 1;
const UNKNOWN = 2;
const USED = 4;
const UNDONE = 8;
/** How many calls it stands for, less one, stands above the flags. */
const COUNT = 16;

/** How many members of a text a fact has before its values. */
const FACT_HEAD = 4;

function pushFact(all: Json[], fact: Fact, base: number): void {
  const { id, outcome, claimedAt, decidedAt, isUsed, isUndone, count, values } = fact;
  const flags =
    (outcome === 'failed' ? FAILED : outcome === 'unknown' ? UNKNOWN : 0) +
    (isUsed ? USED : 0) +
    (isUndone ? UNDONE : 0) +
    COUNT * (count - 1);
  all.push(id, claimedAt - base, decidedAt - claimedAt, flags, ...(values as Json[]));
}

function factFrom(
  written: readonly Json[],
  at: number,
  base: number,
  places: readonly number[],
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
    count: Math.floor(flags / COUNT) + 1,
    values: places.map((place) =>
      place === -1 ? null : valueFrom(written[at + FACT_HEAD + place]),
    ),
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
