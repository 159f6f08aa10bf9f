/**
 * Finds rules that recorded runs keep. Hides how it distinguishes what is kept by chance from what
 * is meant.
 *
 * Precedence, at most once and conditions on data are templates of Declare. That support alone says
 * little, and that a rule which another one implies is dropped, is as in MINERful.
 */
import {
  byTime,
  callIn,
  HIDDEN_NAME,
  parseCallLine,
  type RecordedLine,
  type RecordedValues,
} from '../../../src/internal.ts';

/** Options of {@link suggestRules}. */
export interface SuggestOptions {
  /** A run is good in which one of these tools succeeded. */
  readonly reached: readonly string[];
  /** The tools that change nothing. No rule is suggested for them. Default: none. */
  readonly readOnly?: readonly string[] | undefined;
}

/** A rule that good runs keep. */
export interface SuggestedRule {
  /**
   * `order`: the tool comes after another one. `same`: and with the same value. `once`: at most
   * once in a run.
   */
  readonly kind: 'order' | 'same' | 'once';
  readonly tool: string;
  /** The tool that comes before. */
  readonly after?: string;
  /** The tool's argument, and the value of the earlier call, as JSON Pointers. */
  readonly same?: {
    readonly argument: string;
    readonly earlier: string;
    readonly from: 'args' | 'result';
  };
  /** The runs that had the chance to break it, those on which it was confirmed included. */
  readonly runs: number;
  /** How many of them break it. */
  readonly exceptions: number;
  /** The share of the runs that keep it, from 0 to 1. */
  readonly confidence: number;
  /**
   * Whether only habit shows it: no call was seen that would break it and failed. Then the server
   * may well allow what no run did. A value that is carried on is no habit.
   */
  readonly isHabit: boolean;
  /** Some of those, by their digests. */
  readonly examples: readonly string[];
}

/** What {@link suggestRules} found. */
export interface Suggestions {
  readonly rules: readonly SuggestedRule[];
  /** The runs that were read, and the good ones among them. */
  readonly runs: number;
  readonly good: number;
  /** The calls that name no run, and the lines that are none. */
  readonly leftOut: number;
}

/** A tool must be called in so many good runs. */
const FEWEST_RUNS = 30;
/** So much of the runs must keep a rule. */
const KEPT = 0.9;
/** The share of false discoveries that is accepted. */
const FALSE_RATE = 0.01;
/** Fewer distinct values may be equal by habit. */
const FEWEST_VALUES = 5;
/** So many other runs are asked whether their values would do as well. */
const OTHERS = 20;
/** An exact probability of more runs than this costs too much. */
const MOST_RUNS = 2_000;
const EXAMPLES = 3;

interface Call {
  readonly tool: string;
  readonly startedAt: number;
  endedAt: number;
  isGood: boolean;
  readonly args: Values;
  result: Values;
}

type Values = ReadonlyMap<string, readonly string[]>;

interface Run {
  readonly digest: string;
  readonly calls: Call[];
  /** Those that succeeded, once all are read. */
  readonly byTool: Map<string, readonly Call[]>;
  /** Rules are looked for in the others, and confirmed on these. */
  readonly confirms: boolean;
}

/** A rule to test: whether a run keeps it, and how likely it would by chance. */
interface Candidate {
  readonly rule: Pick<SuggestedRule, 'kind' | 'tool' | 'after' | 'same'>;
  readonly tried: readonly { readonly run: Run; readonly isKept: boolean }[];
  readonly p: number;
  readonly isHabit: boolean;
}

/**
 * Finds rules that the good runs of a recording keep: a tool after another one, with the same
 * value, or once. Each was tested against the same runs shuffled, or paired with the values of
 * other runs, with at most 1 % false discoveries. It was confirmed on 30 % of the runs, which the
 * search did not see.
 *
 * It cannot see what all runs do by habit alone, sums, windows of time, or what happens in runs
 * that it was not shown.
 *
 * @param lines of what `recordCalls()` wrote
 */
export async function suggestRules(
  lines: AsyncIterable<string> | Iterable<string>,
  { reached, readOnly = [] }: SuggestOptions,
): Promise<Suggestions> {
  const { runs, leftOut } = await runsIn(lines);
  const good = runs.filter(({ calls }) =>
    calls.some(({ tool, isGood }) => isGood && reached.includes(tool)),
  );
  const tools = new Set(good.flatMap(({ calls }) => calls.map(({ tool }) => tool)));
  const gated = [...tools].filter((tool) => !readOnly.includes(tool));
  const orders = gated.flatMap((tool) =>
    [...tools].flatMap((after) => (after === tool ? [] : (orderOf(good, tool, after) ?? []))),
  );
  const all = [
    ...orders,
    ...orders.flatMap(({ rule }) => samesOf(good, rule.tool, rule.after ?? '')),
    ...gated.flatMap((tool) => onceOf(good, tool) ?? []),
  ];
  const kept = discoveries(all).filter(isConfirmed);
  const rules = withoutImplied(kept).map(suggested);
  return { rules, runs: runs.length, good: good.length, leftOut };
}

async function runsIn(
  lines: AsyncIterable<string> | Iterable<string>,
): Promise<{ readonly runs: readonly Run[]; readonly leftOut: number }> {
  const runs = new Map<string, Run>();
  const open = new Map<string, Call>();
  const read: RecordedLine[] = [];
  let leftOut = 0;
  let number = 0;
  for await (const text of lines) {
    const line = parseCallLine(text, ++number);
    if (line.type === 'start' || line.type === 'end') read.push(line);
    else if (line.type === 'unreadable') leftOut += 1;
  }
  read.sort(byTime);
  for (const [at, line] of read.entries()) {
    if (line.type === 'start') {
      if (line.run === undefined) {
        leftOut += 1;
        continue;
      }
      const run: Run = runs.get(line.run) ?? {
        ...{ digest: line.run, calls: [], byTool: new Map() },
        confirms: confirmsAt(runs.size),
      };
      runs.set(line.run, run);
      const call = { tool: line.tool, startedAt: at, endedAt: Number.POSITIVE_INFINITY };
      const made = {
        ...call,
        isGood: false,
        args: valuesOf(line.args),
        result: valuesOf(undefined),
      };
      run.calls.push(made);
      open.set(callIn(line), made);
    } else if (line.type === 'end') {
      const call = open.get(callIn(line));
      if (call === undefined) continue;
      open.delete(callIn(line));
      call.endedAt = at;
      call.isGood = line.outcome === 'ok' && line.left === undefined;
      call.result = valuesOf(line.result);
    }
  }
  return { runs: [...runs.values()], leftOut };
}

/**
 * Whether rules are confirmed on the run at this place: 30 % are, spread evenly (Weyl's sequence of
 * the golden ratio). Digests differ from recording to recording, and would let the same traffic
 * give other rules.
 */
function confirmsAt(place: number): boolean {
  return (place * 0.618_033_988_749_895) % 1 < 0.3;
}

/** The values that rules can compare, and name. */
function valuesOf(recorded: RecordedValues | undefined): Values {
  const values = new Map<string, readonly string[]>();
  for (const [pointer, hmac] of Object.entries(recorded?.hmacs ?? {})) {
    const members = typeof hmac === 'string' ? [hmac] : hmac;
    // Of an object its members are compared; of true and false nothing is learnt.
    if (
      members.length > 0 &&
      !pointer.includes(HIDDEN_NAME) &&
      !members.some((each) => /^[obz]/.test(each))
    )
      values.set(pointer, members);
  }
  return values;
}

const NONE: readonly Call[] = [];

function goodCalls({ calls, byTool }: Run, tool: string): readonly Call[] {
  if (byTool.size === 0)
    for (const each of calls)
      if (each.isGood) byTool.set(each.tool, [...(byTool.get(each.tool) ?? NONE), each]);
  return byTool.get(tool) ?? NONE;
}

function orderOf(runs: readonly Run[], tool: string, after: string): Candidate | undefined {
  const tried: { run: Run; isKept: boolean }[] = [];
  const byChance: number[] = [];
  for (const run of runs) {
    const [own, earlier] = [goodCalls(run, tool), goodCalls(run, after)];
    const [first] = own;
    if (first === undefined) continue;
    tried.push({ run, isKept: earlier.some(({ endedAt }) => endedAt < first.startedAt) });
    if (run.confirms) continue;
    // Shuffled: of the two tools' calls the first one is as likely each of them. And a tool that
    // comes late comes after most others anyway.
    const before = run.calls.filter(({ endedAt }) => endedAt < first.startedAt).length;
    const shuffled = earlier.length / (earlier.length + own.length);
    byChance.push(Math.max(shuffled, someAmong(run.calls.length - 1, earlier.length, before)));
  }
  const isTested = runs.some((run) => {
    const done = Math.min(...goodCalls(run, after).map(({ endedAt }) => endedAt));
    return run.calls.some((each) => each.tool === tool && !each.isGood && each.startedAt < done);
  });
  return candidate({ kind: 'order', tool, after }, tried, byChance, !isTested);
}

/** How likely some of so many are among the first ones, in any order. */
function someAmong(all: number, many: number, first: number): number {
  let none = 1;
  for (let at = 0; at < first; at++) none *= Math.max(0, (all - many - at) / (all - at));
  return 1 - none;
}

function samesOf(runs: readonly Run[], tool: string, after: string): readonly Candidate[] {
  const pointers = new Set<string>();
  const earlierOnes = new Set<string>();
  for (const run of runs) {
    for (const { args } of goodCalls(run, tool)) for (const each of args.keys()) pointers.add(each);
    for (const { args, result } of goodCalls(run, after)) {
      for (const each of args.keys()) earlierOnes.add(`args ${each}`);
      for (const each of result.keys()) earlierOnes.add(`result ${each}`);
    }
  }
  const found: Candidate[] = [];
  for (const argument of pointers) {
    const own = runs.map((run) =>
      goodCalls(run, tool).flatMap(({ args }) => args.get(argument) ?? []),
    );
    if (new Set(own.flat()).size < FEWEST_VALUES) continue;
    for (const named of earlierOnes) {
      const from = named.startsWith('args ') ? 'args' : 'result';
      const earlier = named.slice(from.length + 1);
      const before = runs.map((run) =>
        goodCalls(run, after).flatMap((each) => each[from].get(earlier) ?? []),
      );
      const rule = { kind: 'same', tool, after, same: { argument, earlier, from } } as const;
      const made = sameOf(rule, runs, own, before);
      if (made !== undefined) found.push(made);
    }
  }
  return found;
}

function sameOf(
  rule: Candidate['rule'],
  runs: readonly Run[],
  own: readonly (readonly string[])[],
  before: readonly (readonly string[])[],
): Candidate | undefined {
  const tried: { run: Run; isKept: boolean }[] = [];
  const byChance: number[] = [];
  const others = before.flatMap((values, at) => (values.length > 0 ? [at] : []));
  for (const [at, run] of runs.entries()) {
    const values = own[at] ?? [];
    if (values.length === 0) continue;
    const isKept = (earlier: readonly string[] = []): boolean =>
      values.every((each) => earlier.includes(each));
    tried.push({ run, isKept: isKept(before[at]) });
    if (run.confirms) continue;
    let hits = 0;
    let asked = 0;
    for (let step = 1; step <= OTHERS && others.length > 1; step++) {
      const other = others[(at * 31 + step * 7_919) % others.length] ?? 0;
      if (other === at) continue;
      asked += 1;
      if (isKept(before[other])) hits += 1;
    }
    byChance.push((hits + 1) / (asked + 2));
  }
  return candidate(rule, tried, byChance, false);
}

function onceOf(runs: readonly Run[], tool: string): Candidate | undefined {
  const tried: { run: Run; isKept: boolean }[] = [];
  const byChance: number[] = [];
  for (const run of runs) {
    const [first, ...more] = goodCalls(run, tool);
    if (first === undefined) continue;
    const later = run.calls.filter(({ startedAt }) => startedAt > first.endedAt).length;
    // Without a later call there was no chance.
    if (later === 0) continue;
    tried.push({ run, isKept: more.length === 0 });
    const kinds = new Set(run.calls.map((each) => each.tool)).size;
    if (!run.confirms) byChance.push((1 - 1 / kinds) ** later);
  }
  const isTested = runs.some((run) => {
    const done = goodCalls(run, tool)[0]?.endedAt ?? Number.POSITIVE_INFINITY;
    return run.calls.some((each) => each.tool === tool && !each.isGood && each.startedAt > done);
  });
  return candidate({ kind: 'once', tool }, tried, byChance, !isTested);
}

function candidate(
  rule: Candidate['rule'],
  tried: Candidate['tried'],
  byChance: readonly number[],
  isHabit: boolean,
): Candidate | undefined {
  if (tried.length < FEWEST_RUNS) return undefined;
  const learnt = tried.filter(({ run }) => !run.confirms);
  const kept = learnt.filter(({ isKept }) => isKept).length;
  if (kept < KEPT * learnt.length) return undefined;
  return { rule, tried, p: atLeast(kept, byChance), isHabit };
}

/** How likely at least so many of these happen: exact, but for very many of them. */
function atLeast(count: number, chances: readonly number[]): number {
  if (chances.length > MOST_RUNS) {
    const mean = chances.reduce((sum, each) => sum + each, 0);
    const variance = chances.reduce((sum, each) => sum + each * (1 - each), 0) || 1e-9;
    // Bernstein's inequality: never too small.
    const over = count - mean;
    return over <= 0 ? 1 : Math.exp(-(over ** 2) / (2 * (variance + over / 3)));
  }
  let likely = [1];
  for (const chance of chances) {
    const next = new Array<number>(likely.length + 1).fill(0);
    for (const [at, each] of likely.entries()) {
      next[at] = (next[at] ?? 0) + each * (1 - chance);
      next[at + 1] = (next[at + 1] ?? 0) + each * chance;
    }
    likely = next;
  }
  return likely.slice(count).reduce((sum, each) => sum + each, 0);
}

/** Benjamini and Hochberg (1995): of what is kept, the given share is false at most. */
function discoveries(candidates: readonly Candidate[]): readonly Candidate[] {
  const sorted = [...candidates].sort((one, two) => one.p - two.p);
  const last = sorted.findLastIndex(({ p }, at) => p <= (FALSE_RATE * (at + 1)) / sorted.length);
  return sorted.slice(0, last + 1);
}

function isConfirmed({ tried }: Candidate): boolean {
  const asked = tried.filter(({ run }) => run.confirms);
  return asked.length > 0 && asked.filter(({ isKept }) => isKept).length >= KEPT * asked.length;
}

/** Without rules that others imply, and without circles. The likeliest rule comes first. */
function withoutImplied(candidates: readonly Candidate[]): readonly Candidate[] {
  const sames = new Map<string, Candidate>();
  for (const each of candidates) {
    if (each.rule.kind !== 'same') continue;
    // One source for each argument: that of the same name, or of the fewest exceptions.
    const key = `${each.rule.tool} ${each.rule.same?.argument}`;
    const known = sames.get(key);
    if (known === undefined || isBetter(each, known)) sames.set(key, each);
  }
  const edges: Candidate[] = [];
  const leads = (from: string, to: string, but?: Candidate): boolean =>
    edges.some(
      (each) =>
        each !== but &&
        each.rule.after === from &&
        (each.rule.tool === to || leads(each.rule.tool, to, but)),
    );
  const order = candidates.filter(({ rule }) => rule.kind === 'order');
  for (const each of [...sames.values(), ...order]) {
    const { tool, after = '' } = each.rule;
    if (!leads(tool, after)) edges.push(each);
  }
  const needed = edges.filter((each) => {
    const { kind, tool, after = '' } = each.rule;
    if (kind === 'same') return true;
    return !leads(after, tool, each);
  });
  return [...needed, ...candidates.filter(({ rule }) => rule.kind === 'once')];
}

function isBetter({ rule, tried }: Candidate, than: Candidate): boolean {
  const isNamesake = ({ same }: Candidate['rule']): boolean => same?.argument === same?.earlier;
  const broken = (of: Candidate['tried']): number => of.filter(({ isKept }) => !isKept).length;
  const [own, other] = [broken(tried), broken(than.tried)];
  return own < other || (own === other && isNamesake(rule) && !isNamesake(than.rule));
}

function suggested({ rule, tried, isHabit }: Candidate): SuggestedRule {
  const broken = tried.filter(({ isKept }) => !isKept);
  return {
    ...rule,
    runs: tried.length,
    exceptions: broken.length,
    confidence: 1 - broken.length / tried.length,
    isHabit,
    examples: broken.slice(0, EXAMPLES).map(({ run }) => run.digest),
  };
}
