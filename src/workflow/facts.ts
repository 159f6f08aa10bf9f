/**
 * The facts of a run: its decided calls, and the values of them that some rule can still ask for.
 * Hides how they are written into a snapshot, how long one is kept, and what happens where they are
 * too many.
 */
import { digestOf } from '../digest.ts';
import { ExactNumber } from '../numbers.ts';
import { isTable } from '../options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import { MISSING, type PartOfCall, type Path, type Reader, type Truth } from './condition.ts';
import { decimalOf, parseDecimal, plus, showDecimal } from './decimal.ts';
import { openContext, sealContext } from './envelope.ts';
import { type Demands, type Leaf, leavesOf, type Source, type Test } from './rules.ts';

/**
 * One value of a call. Of a member to compare the digest, of a list those of its members; `'t'` or
 * `'f'` for a condition; an amount in digits. `null`: unknown.
 */
export type Value = string | readonly string[] | null;

/** A call whose outcome was decided, or is unknown. */
export interface Fact {
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
  noted(read: Reader, salt: string): Value;
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
  readonly askers: readonly Asker[];
  /** Whether each call counts: of those with the same values the newest does not stand for all. */
  readonly isCounted: boolean;
  /** Whether the two oldest may become one, where they are too many. */
  readonly isMerged: boolean;
}

/** What is known of a call: a text for each column, and its value. Plain data, kept with claims. */
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
  /** The facts that it uses up, as {@link idOf} names them. */
  readonly uses: readonly Used[];
}

export type Used = readonly [tool: string, id: string];

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

/** How many members of a list are compared. */
export const MOST_MEMBERS = 256;

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

/** 21 characters are 126 bits. */
export const DIGEST_LENGTH = 21;

/** Where in a snapshot's context they are. */
const FACTS = 'mcp-interlock/facts';

/** What a run keeps of calls, for all rules of a workflow. */
export class Ledger {
  readonly #tools: ReadonlyMap<string, Kept>;
  readonly #hasWindows: boolean;

  /** @param isPlain whether a run needs to know of a leaf only that its tool is done */
  static of(demands: readonly Demands[], isPlain: (leaf: Leaf) => boolean = () => false): Ledger {
    const asked = new Map<string, (Leaf | Demands['limits'][number])[]>();
    const kinds = new Map<Leaf | Demands['limits'][number], Asker['kind']>();
    const add = (each: Leaf | Demands['limits'][number], kind: Asker['kind']): void => {
      kinds.set(each, kind);
      asked.set(each.tool, [...(asked.get(each.tool) ?? []), each]);
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
      return [[tool, { columns: [...columns.values()], askers, isCounted, isMerged }]];
    });
    return new Ledger(new Map(tools));
  }

  private constructor(tools: ReadonlyMap<string, Kept>) {
    this.#tools = tools;
    this.#hasWindows = [...tools.values()].some(({ askers }) =>
      askers.some(({ withinMs }) => withinMs !== Number.POSITIVE_INFINITY),
    );
  }

  /** Whether some call counts for a time only. */
  get hasWindows(): boolean {
    return this.#hasWindows;
  }

  /** Whether some fact counts at one of two times only. */
  changesWithin({ tools }: Facts, from: number, to: number): boolean {
    for (const [tool, { facts }] of tools)
      for (const { withinMs } of this.#tools.get(tool)?.askers ?? []) {
        if (withinMs === Number.POSITIVE_INFINITY) continue;
        for (const { claimedAt, decidedAt } of facts) {
          const [early, late] = [claimedAt + withinMs, decidedAt + withinMs];
          if ((early > from && early <= to) || (late > from && late <= to)) return true;
        }
      }
    return false;
  }

  /** The tools of which a run keeps facts. */
  get tools(): Iterable<string> {
    return this.#tools.keys();
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
    return this.#tools.get(tool)?.columns.some(({ from }) => from === 'result') === true;
  }

  /** In which place the facts of a tool have a value. */
  placeOf(tool: string, key: string): number {
    return this.#tools.get(tool)?.columns.findIndex((each) => each.key === key) ?? -1;
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
    const columns = this.#tools.get(tool)?.columns.filter((each) => each.from === from) ?? [];
    if (columns.length === 0) return known;
    return {
      k: [...known.k, ...columns.map(({ key }) => key)],
      v: [
        ...known.v,
        ...columns.map((each) => (read === undefined ? null : each.noted(read, salt))),
      ],
    };
  }

  /** The values of a call as its facts have them. */
  valuesOf(tool: string, { k, v }: Noted): readonly Value[] {
    return this.#tools.get(tool)?.columns.map(({ key }) => v[k.indexOf(key)] ?? null) ?? [];
  }

  /** The facts with a decided call, what it has used up, and without what it has undone. */
  decided(facts: Facts, call: DecidedCall, undoes: readonly string[]): Facts {
    const { tool, outcome, claimedAt, decidedAt, noted, uses } = call;
    let all = facts;
    for (const [from, id] of uses) {
      let isFound = false;
      all = all.with(from, (each) =>
        each.map((fact) => {
          if (isFound || fact.isUsed || idOf(fact) !== id) return fact;
          isFound = true;
          return { ...fact, isUsed: true };
        }),
      );
    }
    for (const undone of undoes)
      if (all.tools.has(undone))
        all = all.with(undone, (each) =>
          each.map((fact) => (fact.outcome === 'failed' ? fact : { ...fact, isUndone: true })),
        );
    if (!this.keeps(tool) || (outcome === 'failed' && !this.keepsFailures(tool))) return all;
    const values = this.valuesOf(tool, noted);
    const fact = { ...NEW_FACT, outcome, claimedAt, decidedAt, values };
    return all.with(tool, (each) => [...each, fact]);
  }

  /** What a store may have is anything: what is no fact is skipped. */
  read({ context }: Pick<FsmSnapshot, 'context'>): Facts {
    const kept = openContext(context)[FACTS];
    if (!isTable(kept)) return Facts.NONE;
    const known = read.get(kept)?.get(this);
    if (known !== undefined) return known;
    const { t, of } = kept;
    const tools = new Map<string, FactsOfTool>();
    const others: Json[] = [];
    for (const entry of Array.isArray(of) ? of : []) {
      const [tool, keys, written, lostAt] = Array.isArray(entry) ? entry : [];
      if (typeof tool !== 'string' || !Array.isArray(keys) || !Array.isArray(written)) continue;
      const columns = this.#tools.get(tool)?.columns;
      if (columns === undefined) {
        // Another deployment's rules ask for them.
        others.push(entry as Json);
        continue;
      }
      const places = columns.map(({ key }) => keys.indexOf(key));
      const base = typeof t === 'number' ? t : 0;
      const facts = written.flatMap((each) => factFrom(each, base, places) ?? []);
      tools.set(tool, { facts, lostAt: typeof lostAt === 'number' ? lostAt : undefined });
    }
    const facts = new Facts(tools, others);
    const byLedger = read.get(kept) ?? new WeakMap<Ledger, Facts>();
    read.set(kept, byLedger.set(this, facts));
    return facts;
  }

  /** The position with these facts, and without any that no rule can ask for by now. */
  write(
    position: Readonly<Pick<FsmSnapshot, 'state' | 'context'>>,
    facts: Facts,
    now: number,
  ): Pick<FsmSnapshot, 'state' | 'context'> {
    const kept = [...facts.tools].flatMap(([tool, { facts: all, lostAt }]) => {
      const left = this.#bounded(tool, all, lostAt, now);
      return left.facts.length === 0 && left.lostAt === undefined ? [] : [[tool, left] as const];
    });
    const { [FACTS]: _, ...rest } = openContext(position.context);
    if (kept.length === 0 && facts.others.length === 0)
      return { state: position.state, ...sealContext(rest) };
    const t = Math.min(
      Number.MAX_SAFE_INTEGER,
      ...kept.flatMap(([, { facts: all }]) => all[0]?.claimedAt ?? []),
    );
    const of = kept.map(([tool, { facts: all, lostAt }]): Json => {
      const keys = this.#tools.get(tool)?.columns.map(({ key }) => key) ?? [];
      const written = all.map((each) => writtenAs(each, t));
      return lostAt === undefined ? [tool, keys, written] : [tool, keys, written, lostAt];
    });
    const written = { t, of: [...of, ...facts.others] };
    return { state: position.state, ...sealContext({ ...rest, [FACTS]: written }) };
  }

  #bounded(
    tool: string,
    all: readonly Fact[],
    lostBefore: number | undefined,
    now: number,
  ): FactsOfTool {
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
    if (facts.length === 0 && askers.some(isOfWindow)) facts = all.slice(-1);
    let lostAt = lostBefore;
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
    return { facts, lostAt: isLost ? lostAt : undefined };
  }

  /** Two facts as one that is never too late, and counts as both. */
  #merged(tool: string, one: Fact, other: Fact): Fact {
    const { columns = [] } = this.#tools.get(tool) ?? {};
    const values = columns.map(({ key }, i): Value => {
      const [a = null, b = null] = [one.values[i], other.values[i]];
      if (!key.includes('$')) return sameValue(a, b) ? a : null;
      const [x, y] = [amountOf(a), amountOf(b)];
      return x === undefined || y === undefined ? null : showDecimal(plus(x, y));
    });
    const later = laterTime(one) > laterTime(other) ? one : other;
    return {
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

const NEW_FACT = Object.freeze({ isUsed: false, isUndone: false, count: 1 });

/** What was read of a snapshot: several questions of one request ask for it. */
const read = new WeakMap<object, WeakMap<Ledger, Facts>>();

export const NOTHING: Noted = Object.freeze({ k: [], v: [] });

/** What a store keeps of a claimed call. */
export function claimedUse(noted: Noted): { readonly use?: Json } {
  return noted === NOTHING ? {} : { use: noted as unknown as Json };
}

/** What a store has of a claimed call, which may be anything. */
export function notedFrom(use: Json | undefined): Noted {
  if (!isTable(use)) return NOTHING;
  const { k, v } = use;
  if (!Array.isArray(k) || !Array.isArray(v)) return NOTHING;
  return { k: k.map(String), v: v.map(valueFrom) };
}

/** The facts of one run. They never change. */
export class Facts {
  static readonly NONE = new Facts(new Map(), []);

  readonly tools: ReadonlyMap<string, FactsOfTool>;
  /** Those of tools that no rule of this deployment asks for, as they came. */
  readonly others: readonly Json[];

  constructor(tools: ReadonlyMap<string, FactsOfTool>, others: readonly Json[]) {
    this.tools = tools;
    this.others = others;
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

  /** The same facts, but for those of one tool. */
  with(tool: string, change: (facts: readonly Fact[]) => readonly Fact[]): Facts {
    const { facts, lostAt } = this.of(tool);
    return new Facts(new Map(this.tools).set(tool, { facts: change(facts), lostAt }), this.others);
  }
}

/** The later of a fact's two times. */
export function laterTime({ claimedAt, decidedAt }: Fact): number {
  return Math.max(claimedAt, decidedAt);
}

/** The same for the same fact, as long as a run has it. Facts of one id are alike. */
export function idOf({ outcome, claimedAt, decidedAt, values }: Fact): string {
  return JSON.stringify([outcome, claimedAt, decidedAt, values]);
}

export function columnOfSource({ from, path }: Source): string {
  return `${from}.${path}`;
}

export function columnOfTest(from: PartOfCall, { key }: Pick<Test, 'key'>): string {
  return `${from}?${key}`;
}

export function columnOfAmount({ path }: Source, isText: boolean): string {
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

function memberColumn(source: Source): Column {
  const { from, keys } = source;
  const noted = (read: Reader, salt: string): Value => {
    const members = membersAt(read, keys, salt);
    return members === MISSING ? null : (members ?? null);
  };
  return { key: columnOfSource(source), from, noted };
}

function testColumn(from: PartOfCall, asked: Test): Column {
  const noted = (read: Reader): Value => valueOfTruth(asked.test(read));
  return { key: columnOfTest(from, asked), from, noted };
}

function amountColumn(source: Source, isText: boolean): Column {
  const noted = (read: Reader): Value => {
    const amount = decimalOf(read(source.keys), isText);
    return amount === undefined ? null : showDecimal(amount);
  };
  return { key: columnOfAmount(source, isText), from: 'args', noted };
}

function valueOfTruth(truth: Truth): Value {
  if (truth === undefined) return null;
  return truth ? 't' : 'f';
}

/** What rules compare of a member; {@link MISSING} where it is not there. */
export function membersAt(
  read: Reader,
  keys: Path,
  salt: string,
): string | readonly string[] | typeof MISSING | undefined {
  if (read.digests !== undefined) return read.digests(keys);
  const value = read(keys);
  if (value === MISSING) return MISSING;
  return membersOf(value, (each) => digestOf([salt, each]).slice(0, DIGEST_LENGTH));
}

/** Makes {@link DIGEST_LENGTH} characters of a value. Other values have others. */
export type Digest = (value: unknown) => string;

/**
 * A value to compare: the digest of anything but a list, as a text; of a list or an object a list
 * of digests. `undefined` where it is missing, and for a list of no members or too many.
 */
export function membersOf(value: unknown, digest: Digest): string | readonly string[] | undefined {
  if (!Array.isArray(value)) {
    const own = digestWith(digest, value);
    if (own === undefined) return undefined;
    return isTable(value) && !(value instanceof ExactNumber) ? [own] : own;
  }
  if (value.length === 0 || value.length > MOST_MEMBERS) return undefined;
  const digests = value.map((each) => digestWith(digest, each));
  return digests.every((each) => each !== undefined) ? digests : undefined;
}

/**
 * Its first letter is the JSON type: values of two types may be two spellings of one. A value with
 * a number that JavaScript rounds has two digests behind its letter: as it is, and as JavaScript
 * reads it. `undefined`: it is too deep.
 */
function digestWith(make: Digest, value: unknown): string | undefined {
  const letter = typeLetterOf(value);
  const digest = make(value);
  if (typeof value !== 'object' || value === null) return `${letter}${digest}`;
  const double = doubleOf(value);
  if (double === NOT_ROUNDED) return `${letter}${digest}`;
  if (double === undefined) return undefined;
  return `${ROUNDED_LETTER}${digest}${letter}${make(double)}`;
}

const NOT_ROUNDED = Symbol('no number in it is rounded');

/** The value with numbers as JavaScript reads them; `undefined` where it is too deep to tell. */
function doubleOf(value: object): unknown {
  if (value instanceof ExactNumber) return value.double;
  let isRounded = false;
  try {
    const text = JSON.stringify(value, (_, each) => {
      if (!(each instanceof ExactNumber)) return each;
      isRounded = true;
      return each.double;
    });
    return isRounded ? JSON.parse(text) : NOT_ROUNDED;
  } catch {
    return undefined;
  }
}

/** A digest of what JavaScript reads, which several values may share. */
export function asRead(digest: string): string {
  return digest.startsWith(ROUNDED_LETTER) ? digest.slice(1 + DIGEST_LENGTH) : digest;
}

function typeLetterOf(value: unknown): string {
  if (value === null) return NULL_LETTER;
  if (Array.isArray(value)) return 'l';
  if (typeof value !== 'object')
    return typeof value === 'string' ? 's' : typeof value === 'number' ? 'n' : 'b';
  return value instanceof ExactNumber ? 'n' : 'o';
}

export const NULL_LETTER = 'z';
const ROUNDED_LETTER = 'r';

/** Whether it needs a call, and for a time only. */
function isOfWindow({ kind, withinMs, consumes }: Asker): boolean {
  return kind === 'after' && withinMs !== Number.POSITIVE_INFINITY && !consumes;
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
    const key = JSON.stringify([outcome, isUsed, isUndone, values]);
    const [oldest = each, newest = each] = ends.get(key) ?? [];
    ends.set(key, [
      each.decidedAt < oldest.decidedAt ? each : oldest,
      each.decidedAt >= newest.decidedAt ? each : newest,
    ]);
  }
  const kept = new Set([...ends.values()].flat());
  return facts.filter((each) => kept.has(each));
}

export function amountOf(value: Value | undefined): ReturnType<typeof parseDecimal> {
  return typeof value === 'string' ? parseDecimal(value) : undefined;
}

function sameValue(one: Value, other: Value): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

const FAILED = 1;
const UNKNOWN = 2;
const USED = 4;
const UNDONE = 8;
/** How many calls it stands for, less one, stands above the flags. */
const COUNT = 16;

function writtenAs(fact: Fact, base: number): Json {
  const { outcome, claimedAt, decidedAt, isUsed, isUndone, count, values } = fact;
  const flags =
    (outcome === 'failed' ? FAILED : outcome === 'unknown' ? UNKNOWN : 0) +
    (isUsed ? USED : 0) +
    (isUndone ? UNDONE : 0) +
    COUNT * (count - 1);
  return [claimedAt - base, decidedAt - claimedAt, flags, ...(values as Json[])];
}

function factFrom(entry: Json, base: number, places: readonly number[]): Fact | undefined {
  if (!Array.isArray(entry)) return undefined;
  const [since, took, flags] = entry;
  if (typeof since !== 'number' || typeof took !== 'number' || typeof flags !== 'number')
    return undefined;
  const claimedAt = base + since;
  return {
    outcome: flags & FAILED ? 'failed' : flags & UNKNOWN ? 'unknown' : 'succeeded',
    claimedAt,
    decidedAt: claimedAt + took,
    isUsed: (flags & USED) !== 0,
    isUndone: (flags & UNDONE) !== 0,
    count: Math.floor(flags / COUNT) + 1,
    values: places.map((place) => (place === -1 ? null : valueFrom(entry[place + 3]))),
  };
}

function valueFrom(value: Json | undefined): Value {
  if (typeof value === 'string') return value;
  const isList = Array.isArray(value) && value.every((each) => typeof each === 'string');
  return isList ? (value as string[]) : null;
}
