/**
 * What runs keep of calls, for the rules of one build. Hides which values of a call are kept, how
 * long a fact is, and what happens where they are too many. What another build asks is kept as it
 * asks, so that a deployment and its roll-back find what they knew.
 */
import { pushTo } from '../basics/collections.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import {
  type AskedPart,
  type Column,
  type ColumnsOfPart,
  columnNamed,
  columnsFrom,
  columnsOf,
  inOtherPath,
  inRecord,
  isOfAmounts,
  testsOf,
} from './columns.ts';
import type { Reader } from './condition.ts';
import { digitsOf, plus } from './decimal.ts';
import { openContext, sealContext } from './envelope.ts';
import {
  type Asked,
  type Asker,
  Askers,
  askedBy,
  askedByBoth,
  type Decided,
  type Fact,
  Facts,
  type FactsOfTool,
  factsInText,
  type Grant,
  laterTime,
  listedIn,
  MOST_FACTS,
  MOST_LISTED,
  NEW_FACT,
  NOTHING,
  type Noted,
  type NotedPart,
  OUTSIDE,
  textOfFacts,
  type Used,
} from './facts.ts';
import { isBoundByCalls } from './limits.ts';
import type { Renamings } from './renamings.ts';
import type { Leaf } from './rule-parts.ts';
import { hasUnnamed } from './rule-tests.ts';
import { type Demands, leavesOf } from './rules.ts';
import { amountOf, MOST_MEMBERS, type Value } from './values.ts';

/** What a run keeps of one tool. */
interface Kept {
  readonly columns: readonly Column[];
  /** Where in a fact the value of each column is. */
  readonly places: ReadonlyMap<string, number>;
  /** Those of its arguments, and those of its result. */
  readonly of: { readonly [Part in NotedPart]: ColumnsOfPart };
  readonly askers: Askers;
  /** Whether rules ask of its calls at most that one has succeeded. */
  readonly isPlain: boolean;
  /** Whether a column has what a function without a name said. */
  readonly isUnnamed: boolean;
}

/** Where in a snapshot's context they are. */
const FACTS = 'mcp-interlock/facts';

/** What a run keeps of calls, for all rules of a workflow. */
export class Ledger {
  readonly #tools: ReadonlyMap<string, Kept>;
  readonly #renamings: Renamings;
  /** What is no tool, but comes from outside. */
  readonly outside: ReadonlySet<string>;
  /** Whether some call counts for a time only. */
  readonly hasWindows: boolean;
  /** What was read of a snapshot: several questions of one request ask for it. */
  readonly #read = new WeakMap<readonly Json[], Facts>();
  /** What texts say. A process mostly finds those again that it wrote. */
  readonly #known = new Map<string, readonly [tool: string, facts: FactsOfTool]>();
  #charactersKnown = 0;
  readonly #texts = new WeakMap<FactsOfTool, string>();

  /**
   * @param renamings how tools and arguments are called in the record
   * @param kept the tools of which a run keeps calls that no rule asks for, too
   * @param isPlain whether a run needs to know of a leaf only that its tool is done
   * @param outside the names of what is no tool, but comes from outside
   */
  static of(
    demands: readonly Demands[],
    renamings: Renamings,
    kept: readonly string[] = [],
    isPlain: (leaf: Leaf) => boolean = () => false,
    outside: ReadonlySet<string> = new Set(),
  ): Ledger {
    const asked = new Map<string, [AskedPart, Asker['kind']][]>();
    const totalled = new Set<string>();
    for (const tool of kept) asked.set(tool, []);
    for (const { after, notAfter, limits } of demands) {
      for (const each of leavesOf(after)) pushTo(asked, each.tool, [each, 'after'] as const);
      for (const each of notAfter) pushTo(asked, each.tool, [each, 'notAfter'] as const);
      for (const limit of limits) {
        for (const each of [limit, ...limit.also]) {
          pushTo(asked, each.tool, [each, 'limit'] as const);
          if (isBoundByCalls(limit.sum)) totalled.add(each.tool);
        }
        if (!isBoundByCalls(limit.sum)) continue;
        const { leaf, amount } = limit.sum.bound;
        totalled.add(leaf.tool);
        const adding = { ...leaf, atMost: [{ own: amount, earlier: amount }] };
        pushTo(asked, leaf.tool, [adding, 'after'] as const);
      }
    }
    const tools = [...asked].map(([tool, all]): [string, Kept] => {
      const columns = new Map<string, Column>();
      let of: Asked = totalled.has(tool) ? { counted: 1, total: 1 } : {};
      let within = 0;
      for (const [each, kind] of all) {
        for (const column of columnsOf(each))
          if (column.isCompared || !columns.has(column.key))
            columns.set(column.key, inRecord(tool, column, each, renamings));
        const consumes = 'consumes' in each && each.consumes !== 'never';
        const { outcome, withinMs } = each;
        if (withinMs !== Number.POSITIVE_INFINITY) within = Math.max(within, withinMs);
        of = askedByBoth(of, askedBy({ kind, outcome, withinMs, consumes }));
        if ('sum' in each || each.times > 1 || consumes) of = { ...of, counted: 1 };
        if (kind !== 'after' && each.same.length > 0) of = { ...of, whole: 1 };
      }
      // Beside who asks for ever, a window is in no other key.
      if (Object.values(of).includes(0) && within > 0) of = { ...of, within };
      const own = [...columns.values()];
      const parts = {
        args: columnsFrom(own, 'args'),
        result: columnsFrom(own, 'result'),
        by: columnsFrom(own, 'by'),
      };
      const places = new Map(own.map(({ key }, i) => [key, i]));
      const isUnnamed = hasUnnamed(
        tool,
        all.flatMap(([each]) => testsOf(each)),
      );
      const isDone = all.every(
        ([each, kind]) => !('sum' in each) && kind === 'after' && isPlain(each),
      );
      const askers = new Askers(of);
      return [tool, { columns: own, places, of: parts, askers, isPlain: isDone, isUnnamed }];
    });
    return new Ledger(new Map(tools), renamings, outside);
  }

  private constructor(
    tools: ReadonlyMap<string, Kept>,
    renamings: Renamings,
    outside: ReadonlySet<string>,
  ) {
    this.#tools = tools;
    this.#renamings = renamings;
    this.outside = outside;
    this.hasWindows = [...tools.values()].some(({ askers }) =>
      askers.all.some(({ withinMs }) => withinMs !== Number.POSITIVE_INFINITY),
    );
  }

  /** Whether some fact counts at one of two times only. */
  changesWithin({ tools }: Facts, from: number, to: number): boolean {
    for (const [tool, { facts }] of tools)
      for (const { withinMs } of this.#tools.get(tool)?.askers.all ?? []) {
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

  /** Whether rules ask more of the tool's calls than that one has succeeded. */
  asksMore(tool: string): boolean {
    return this.#tools.get(tool)?.isPlain === false;
  }

  /** Whether a run keeps calls of the tool that failed, since some build asks for them. */
  keepsFailures(tool: string, facts: Facts): boolean {
    const { all } = this.#of(facts, tool).askers;
    return this.keeps(tool) && all.some(({ outcome }) => outcome !== 'succeeded');
  }

  /** The longest time for which some build asks for the run's calls, in milliseconds; 0: none. */
  longestIn(facts: Facts): number {
    let longest = 0;
    for (const { askers } of facts.tools.values())
      for (const { withinMs } of askers.all)
        if (withinMs !== Number.POSITIVE_INFINITY) longest = Math.max(longest, withinMs);
    return longest;
  }

  /** Whether another build asks for values of the tool's calls that this one does not. */
  hasOthers(tool: string, facts: Facts): boolean {
    const { columns = [] } = this.#tools.get(tool) ?? {};
    return facts.of(tool).keys.length > columns.length;
  }

  #of(facts: Facts, tool: string): FactsOfTool {
    return facts.tools.get(tool) ?? this.#inThisBuild(tool, facts.of(tool));
  }

  /** The same calls with what this build keeps and asks of them. */
  #inThisBuild(tool: string, { keys, askers, facts, lostAt }: FactsOfTool): FactsOfTool {
    const { columns = [], askers: own } = this.#tools.get(tool) ?? {};
    const names = columns.map(({ key }) => key);
    const others = keys.filter((key) => !names.includes(key));
    const all = [...names, ...others];
    const places = all.map((key) => keys.indexOf(key));
    const isInPlace = places.every((place, at) => place === at);
    const placed = ({ values, ...fact }: Fact): Fact => ({
      ...fact,
      values: places.map((place) => values[place] ?? null),
    });
    return {
      keys: all,
      askers: own === undefined ? askers : askers.and(own.asked),
      facts: isInPlace ? facts : facts.map(placed),
      lostAt,
    };
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
   * What rules may ask of a call's arguments, of its result, or of who sent it.
   *
   * @param read `undefined` where nothing is known of them
   * @param known what was noted of the call before
   * @param facts the run's, where they are known: what another build asks is noted too
   */
  note(
    tool: string,
    from: NotedPart,
    read: Reader | undefined,
    salt: string,
    known: Noted = NOTHING,
    facts: Facts = Facts.NONE,
  ): Noted {
    const { of, places } = this.#tools.get(tool) ?? {};
    if (of === undefined) return known;
    const others = facts
      .of(tool)
      .keys.flatMap((key) => (places?.has(key) === true ? [] : (columnNamed(key) ?? [])))
      .filter((each) => each.from === from);
    const all = [...of[from].columns, ...others].filter(({ key }) => !known.k.includes(key));
    if (all.length === 0) return known;
    const values = all.map((each) => (read === undefined ? null : each.noted(read, salt)));
    if (known === NOTHING && others.length === 0) return { k: of[from].keys, v: values };
    return { k: [...known.k, ...all.map(({ key }) => key)], v: [...known.v, ...values] };
  }

  /** The values of a call as its facts have them. */
  valuesOf(tool: string, noted: Noted): readonly Value[] {
    const { columns = [] } = this.#tools.get(tool) ?? {};
    return valuesUnder(
      columns.map(({ key }) => key),
      noted,
    );
  }

  /**
   * The paths of a call at which rules ask for a value and find none.
   *
   * @param isCompared whether only those count that a `same` asks for
   */
  lacking(tool: string, noted: Noted, isCompared = false): readonly string[] {
    const values = this.valuesOf(tool, noted);
    const { columns = [] } = this.#tools.get(tool) ?? {};
    return columns.flatMap((each, at) => {
      const isAsked = !isCompared || each.isCompared === true;
      return isAsked && each.path !== undefined && values[at] === null ? [each.path] : [];
    });
  }

  /** The facts with a decided call, what it has used up, and without what it has undone. */
  decided(facts: Facts, call: Decided, undoes: readonly string[]): Facts {
    const { tool, outcome, isInvalid = false, claimedAt, decidedAt, noted, uses } = call;
    let all = facts;
    for (const [from, id] of uses)
      all = all.with(from, (each) =>
        each.map((fact) => (fact.id === id ? { ...fact, isUsed: true } : fact)),
      );
    for (const undone of undoes)
      all = all.with(undone, (each) =>
        each.map((fact) => (fact.outcome === 'failed' ? fact : { ...fact, isUndone: true })),
      );
    if (!this.keeps(tool) || (outcome === 'failed' && !this.keepsFailures(tool, all))) return all;
    const others = this.#of(all, tool);
    const values = valuesUnder(others.keys, noted);
    const made = { ...NEW_FACT, outcome, isInvalid, claimedAt, decidedAt, values };
    return all.adding(tool, others, made);
  }

  /** What a store may have is anything: what is no fact is skipped. */
  read({ context }: Pick<FsmSnapshot, 'context'>): Facts {
    const texts = openContext(context)[FACTS];
    if (!Array.isArray(texts)) return Facts.NONE;
    const known = this.#read.get(texts);
    if (known !== undefined) return known;
    const tools = new Map<string, FactsOfTool>();
    const [nextId] = texts;
    for (const text of texts as readonly Json[]) {
      const found = typeof text === 'string' && (this.#known.get(text) ?? this.#parsed(text));
      if (!found) continue;
      const [tool, all] = found;
      const other = tools.get(tool);
      // Two tools have become one.
      tools.set(tool, other === undefined ? all : this.#joined(tool, other, all));
    }
    const facts = new Facts(tools, typeof nextId === 'number' ? nextId : 1);
    this.#read.set(texts, facts);
    return facts;
  }

  #parsed(text: string): readonly [tool: string, facts: FactsOfTool] | undefined {
    const [saved, written] = factsInText(text) ?? [];
    if (saved === undefined || written === undefined) return undefined;
    const tool = this.#nameHere(saved);
    const keys = written.keys.map((key) => this.#keyHere(tool, key));
    const read = this.#inThisBuild(tool, { ...written, keys });
    this.#remember(tool, read, text);
    // A build notes what it asks as soon as it writes.
    const isNoted = read.askers === written.askers && saved === this.#nameSaved(tool);
    if (!isNoted) this.#texts.delete(read);
    return [tool, read];
  }

  /**
   * A name of the record in this build. There, what comes from outside has a name of its own, or a
   * client that calls a tool of the same name in another build would make it.
   */
  #nameHere(saved: string): string {
    return this.#swapped(this.#renamings.currentOf(saved));
  }

  #nameSaved(name: string): string {
    return this.#renamings.savedOf(this.#swapped(name));
  }

  /** Here the name is that of what comes from outside, and in the record that of a tool. */
  #swapped(name: string): string {
    const bare = name.startsWith(OUTSIDE) ? name.slice(OUTSIDE.length) : name;
    if (!this.outside.has(bare)) return name;
    return name === bare ? `${OUTSIDE}${bare}` : bare;
  }

  #joined(tool: string, one: FactsOfTool, other: FactsOfTool): FactsOfTool {
    const keys = [...new Set([...one.keys, ...other.keys])];
    const under = ({ keys: own, facts }: FactsOfTool): readonly Fact[] =>
      facts.map(({ values, ...fact }) => ({
        ...fact,
        values: valuesUnder(keys, { k: own, v: values }),
      }));
    const facts = [...under(one), ...under(other)].sort(byId);
    const lost = [one.lostAt, other.lostAt].filter((at) => at !== undefined);
    const lostAt = lost.length === 0 ? undefined : Math.max(...lost);
    return this.#inThisBuild(tool, {
      keys,
      askers: one.askers.and(other.askers.asked),
      facts,
      lostAt,
    });
  }

  /** A column of the record by the key that it has in this build. */
  #keyHere(tool: string, saved: string): string {
    if (!this.#renamings.renames) return saved;
    const own = this.#tools.get(tool)?.columns.find((each) => (each.saved ?? each.key) === saved);
    return own?.key ?? inOtherPath(saved, (path) => this.#renamings.currentPath(tool, path));
  }

  #keySaved(tool: string, key: string): string {
    if (!this.#renamings.renames) return key;
    const own = this.#tools.get(tool)?.columns.find((each) => each.key === key);
    return own?.saved ?? inOtherPath(key, (path) => this.#renamings.savedPath(tool, path));
  }

  /** What a call was granted, in the names of the record. */
  saved(tool: string, { noted, uses }: Grant): Grant {
    return {
      noted: { k: noted.k.map((key) => this.#keySaved(tool, key)), v: noted.v },
      uses: uses.map(([from, ...rest]): Used => [this.#nameSaved(from), ...rest]),
    };
  }

  /** The same in the names of this build. */
  here(tool: string, { noted, uses }: Grant): Grant {
    return {
      noted: { k: noted.k.map((key) => this.#keyHere(tool, key)), v: noted.v },
      uses: uses.map(([from, ...rest]): Used => [this.#nameHere(from), ...rest]),
    };
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
    const { nextId } = facts;
    const left = new Map<string, FactsOfTool>();
    // It outlives the facts: a claim may name one that is gone.
    const texts: Json[] = nextId === 1 ? [] : [nextId];
    for (const [tool, all] of facts.tools) {
      const kept = this.#bounded(all, now);
      if (kept.facts.length === 0 && kept.lostAt === undefined) continue;
      left.set(tool, kept);
      texts.push(this.#texts.get(kept) ?? this.#written(tool, kept));
    }
    this.#read.set(texts, new Facts(left, nextId));
    const own = texts.length === 0 ? undefined : texts;
    const { context } = sealContext({ ...openContext(position.context), [FACTS]: own });
    return { state: position.state, context };
  }

  #written(tool: string, kept: FactsOfTool): string {
    const keys = kept.keys.map((key) => this.#keySaved(tool, key));
    const text = textOfFacts(this.#nameSaved(tool), { ...kept, keys });
    this.#remember(tool, kept, text);
    return text;
  }

  #bounded(before: FactsOfTool, now: number): FactsOfTool {
    const { keys, askers } = before;
    const asked: Fact[] = [];
    const rest: Fact[] = [];
    for (const each of before.facts) (askers.ask(each, now) ? asked : rest).push(each);
    let facts: readonly Fact[] = askers.isCounted
      ? askers.totalled(asked, now, (all) => endsOfEach(all, keys, amountsApart(keys)))
      : endsOfEach(asked, keys, ({ values }) => said(values));
    // A rule that is new finds whether its tool was called before, and how often.
    if (rest.length > 0) facts = [...endsOfEach(rest, keys, () => ''), ...facts].sort(byId);
    let { lostAt } = before;
    // Where `isFull` was asked before, one more call was let in.
    const mostListed = MOST_LISTED + MOST_MEMBERS * keys.length;
    let listed = listedIn(facts);
    while (facts.length > MOST_FACTS || listed > mostListed) {
      const [oldest, ...newer] = facts;
      if (oldest === undefined) break;
      listed -= listedIn([oldest]);
      // Of two outcomes a merged fact would be neither.
      const next = newer.findIndex(
        ({ outcome, isInvalid }) => outcome === oldest.outcome && isInvalid === oldest.isInvalid,
      );
      const other = newer[next];
      if (askers.isMerged && other !== undefined)
        facts = newer.with(next, { ...merged(keys, oldest, other), isUsed: true });
      else {
        lostAt = Math.max(lostAt ?? 0, laterTime(oldest));
        facts = newer;
      }
    }
    const isLost =
      lostAt !== undefined &&
      askers.all.some(({ kind, withinMs }) => kind !== 'after' && now - (lostAt ?? 0) < withinMs);
    if (!isLost) lostAt = undefined;
    const isSame = facts.length === before.facts.length && lostAt === before.lostAt;
    return isSame ? before : { keys, askers, facts, lostAt };
  }
}

/** When so much was read, it is forgotten: in memory it takes some ten times as much. */
const MOST_CHARACTERS_KNOWN = 1_000_000;

/**
 * Of facts that are alike, the oldest, which is not later than now even if the clock was set back,
 * and the newest, for windows. That counts as all that came between.
 *
 * @param like a text for what they must have in common, beside their outcome and its effects
 */
function endsOfEach(
  facts: readonly Fact[],
  keys: readonly string[],
  like: (fact: Fact) => string,
): readonly Fact[] {
  if (facts.length < 3) return facts;
  const ends = new Map<string, [oldest: Fact, newest?: Fact]>();
  for (const each of facts) {
    const { outcome, isUsed, isUndone, isInvalid } = each;
    const key = `${outcome} ${isUsed} ${isUndone} ${isInvalid} ${like(each)}`;
    const [oldest, newest] = ends.get(key) ?? [];
    if (oldest === undefined) ends.set(key, [each]);
    else if (newest === undefined) {
      const isInOrder = each.decidedAt >= oldest.decidedAt;
      ends.set(key, isInOrder ? [oldest, each] : [each, oldest]);
    } else if (each.decidedAt < oldest.decidedAt)
      ends.set(key, [each, merged(keys, oldest, newest)]);
    else ends.set(key, [oldest, merged(keys, newest, each)]);
  }
  const kept = [...ends.values()].flatMap((each) => each.filter((fact) => fact !== undefined));
  return kept.sort(byId);
}

const byId = (a: Fact, b: Fact): number => a.id - b.id;

/** Two facts as one that is never too late, and counts as both. */
function merged(keys: readonly string[], one: Fact, other: Fact): Fact {
  const values = keys.map((key, i): Value => {
    const [a = null, b = null] = [one.values[i], other.values[i]];
    if (!isOfAmounts(key)) return said([a]) === said([b]) ? a : null;
    const [x, y] = [amountOf(a), amountOf(b)];
    return x === undefined || y === undefined ? null : digitsOf(plus(x, y));
  });
  return {
    ...other,
    claimedAt: Math.max(one.claimedAt, other.claimedAt),
    decidedAt: Math.max(one.decidedAt, other.decidedAt),
    isUndone: one.isUndone && other.isUndone,
    count: one.count + other.count,
    values,
  };
}

/** What of a call's values must be the same where its amounts are added to those of others. */
function amountsApart(keys: readonly string[]): (fact: Fact) => string {
  const isAmount = keys.map(isOfAmounts);
  return ({ values }) =>
    said(values.map((each, at) => (isAmount[at] && each !== null ? '' : each)));
}

function said(values: readonly Value[]): string {
  const hasList = values.some((value) => Array.isArray(value));
  return hasList || values.includes(null) ? JSON.stringify(values) : values.join();
}

/** The values in the order of other keys; `null` where nothing is known. */
function valuesUnder(keys: readonly string[], { k, v }: Noted): readonly Value[] {
  return keys.map((key) => v[k.indexOf(key)] ?? null);
}
