/**
 * Random histories of runs over several deployments of their rules, judged by the evaluator that
 * knows all calls. Hides how rules change, and which clauses a gate cannot know of earlier calls.
 */
import { type Random, seeded } from './random.ts';
import {
  type EarlierAmount,
  type EarlierPath,
  type ForwardedCall,
  type Json,
  judge,
  type Leaf,
  type Limit,
  milliseconds,
  type NextCall,
  type Requirement,
  type Rule,
  type RuleSet,
  type Verdict,
} from './rules.ts';
import { randomArgs, randomResult, randomRules } from './rules-random.ts';

/**
 * A build of the app: its rules by the oldest names of tools and of arguments, and what it calls
 * them. An argument has its name in each tool with a rule.
 */
export interface Build {
  readonly set: RuleSet;
  readonly names: Readonly<Record<string, string>>;
  readonly paths: Readonly<Record<string, string>>;
}

/** A run of the gate under test. */
export interface RunOfGate {
  /** What the build says of the call; `undefined`: it would not ask rules. */
  judge(build: Build, call: NextCall): Verdict | undefined;
  /** The call was forwarded after it was judged, and ended, or its outcome is unknown. */
  end(build: Build, call: ForwardedCall): void;
}

export interface DeploymentFault {
  readonly seed: number;
  readonly wanted: Verdict['verdict'];
  readonly got: Verdict['verdict'];
  readonly json: string;
}

export interface DeploymentsComparison {
  readonly histories: number;
  /** Calls of which the gate must say the same. */
  readonly exact: number;
  /** Calls of which it may only be stricter: a new clause asks what was not noted. */
  readonly closed: number;
  /** Those of `closed` that it refused and the evaluator allowed. */
  readonly stricter: number;
  readonly allowed: number;
  /** Calls of unknown outcome. */
  readonly lost: number;
  /** Of those the ones that were tried again, by the same build or another one. */
  readonly retried: number;
  readonly faults: readonly DeploymentFault[];
}

/** Plays histories of so many calls each, and compares each verdict. */
export function compareDeployments(options: {
  readonly seeds: readonly number[];
  readonly calls: number;
  readonly isSound: (build: Build) => boolean;
  readonly openRun: () => RunOfGate;
}): DeploymentsComparison {
  const faults: DeploymentFault[] = [];
  const tally = { exact: 0, closed: 0, stricter: 0, allowed: 0, lost: 0, retried: 0 };
  for (const seed of options.seeds) {
    if (faults.length >= 5) break;
    const random = seeded(seed, 'deployments');
    const builds = randomBuilds(random, options.isSound);
    const run = options.openRun();
    const history: ForwardedCall[] = [];
    const known = new Known();
    const undoers = new Set(
      builds.flatMap(({ set }) =>
        Object.values(set.rules).flatMap(({ undoneBy }) => listOf(undoneBy)),
      ),
    );
    let now = 100_000_000;
    let at = 0;
    for (let number = 0; number < options.calls; number++) {
      const { chance, pick } = random;
      if (at < builds.length - 1 && chance(0.12)) at += 1;
      // The build before serves beside it for a while.
      const build = builds[at > 0 && chance(0.25) ? at - 1 : at] as Build;
      now += pick(STEPS);
      const call = nextCall(random, build, history, now, number);
      const wanted = judge(build.set, history, call).verdict;
      const got = run.judge(build, call)?.verdict;
      if (got === undefined) continue;
      const isExact = known.hasAll(build.set, call.tool, history);
      tally[isExact ? 'exact' : 'closed'] += 1;
      const isStricter = got !== 'allowed' && wanted === 'allowed';
      if (!isExact && isStricter) tally.stricter += 1;
      const isLax = got === 'allowed' && wanted !== 'allowed';
      if (
        isExact ? got !== wanted : isLax && !known.missesFailures(build.set, call.tool, history)
      ) {
        const json = JSON.stringify({ build, history, call });
        faults.push({ seed, wanted, got, json });
        break;
      }
      if (got !== 'allowed' || wanted !== 'allowed') continue;
      tally.allowed += 1;
      if (lostIn(history).some(({ idempotencyKey }) => idempotencyKey === call.idempotencyKey))
        tally.retried += 1;
      const { idempotencyKey = '', tool, args, at: claimedAt } = call;
      const claim = { tool, args, claimedAt, idempotencyKey, under: build.set };
      // What an unknown call may have undone is judged by the build that asks.
      const isLost = !undoers.has(tool) && chance(0.12);
      if (isLost) tally.lost += 1;
      else now += pick([0, 1, 20]);
      const outcome = chance(0.8) ? 'succeeded' : 'failed';
      const result = randomResult(random);
      const ended: ForwardedCall = isLost
        ? { ...claim, outcome: 'unknown' }
        : { ...claim, outcome, decidedAt: now, ...(result !== undefined && { result }) };
      run.end(build, ended);
      history.push(ended);
      known.add(build.set, ended);
      // Of what it does not know, a gate uses nothing up. From then on the two have two records.
      if (!isExact && usesUp(build.set, tool)) break;
    }
  }
  return { histories: options.seeds.length, ...tally, faults };
}

const STEPS = [0, 1, 499, 1_000, 20_000, 30_000, 60_000, 299_000, 3_600_000];

function nextCall(
  random: Random,
  build: Build,
  history: readonly ForwardedCall[],
  at: number,
  number: number,
): NextCall {
  const tools = Object.keys(build.set.rules);
  const lost = lostIn(history).filter(({ tool }) => tools.includes(tool));
  const again = random.chance(0.3) ? lost[0] : undefined;
  if (again !== undefined) {
    const { tool, args, idempotencyKey = '' } = again;
    return { tool, args, at, idempotencyKey };
  }
  const draw = (): NextCall => {
    const idempotencyKey = `key-${number}`;
    return { tool: random.pick(tools), args: randomArgs(random), at, idempotencyKey };
  };
  const calls = [draw(), draw(), draw()];
  const allowed = calls.find((each) => judge(build.set, history, each).verdict === 'allowed');
  return (random.chance(0.6) ? allowed : undefined) ?? (calls[0] as NextCall);
}

/** The calls of unknown outcome that no later try has settled. */
function lostIn(history: readonly ForwardedCall[]): readonly ForwardedCall[] {
  return history.filter((each, at) => each.outcome === 'unknown' && !isSettled(history, at));
}

function isSettled(history: readonly ForwardedCall[], at: number): boolean {
  const { tool, idempotencyKey } = history[at] as ForwardedCall;
  return history
    .slice(at + 1)
    .some((each) => each.tool === tool && each.idempotencyKey === idempotencyKey);
}

// --- builds -------------------------------------------------------------------------------------

const ARGUMENTS = ['id', 'kind', 'amount', 'tags', 'deep'] as const;

const WINDOWS = ['1s', '1m', '1h', '1d', undefined] as const;

/** Two to four, each made of one before it. */
function randomBuilds(random: Random, isSound: (build: Build) => boolean): readonly Build[] {
  const builds: Build[] = [];
  const count = random.between(2, 4);
  while (builds.length < count) {
    const before = builds.at(-1);
    const next: Build =
      before === undefined
        ? { set: randomRules(random), names: {}, paths: {} }
        : changed(random, before, builds);
    if (isSound(next)) builds.push(next);
  }
  return builds;
}

function changed(random: Random, before: Build, builds: readonly Build[]): Build {
  const { pick, chance } = random;
  const { set, names, paths } = before;
  const tool = pick(Object.keys(set.rules));
  const { [tool]: rule = {}, ...others } = set.rules;
  const change = pick([
    'add',
    'add',
    'remove',
    'rename',
    'path',
    'window',
    'window',
    'back',
  ] as const);
  const isLast = change === 'remove' && Object.keys(others).length === 0;
  if (change === 'back' || isLast) return pick(builds);
  if (change === 'rename')
    return { set, names: { ...names, [tool]: `${tool}_${random.between(2, 9)}` }, paths };
  if (change === 'path') {
    const name = pick(ARGUMENTS);
    const moved = pick([`${name}_now`, `in.${name}`, `list_${name}.0`]);
    return { set, names, paths: { ...paths, [name]: moved } };
  }
  if (change === 'remove') return { set: { ...set, rules: others }, names, paths };
  if (change === 'window') {
    const within = pick(WINDOWS);
    const timed = JSON.parse(
      JSON.stringify(rule, (key, value) => (key === 'within' && chance(0.7) ? within : value)),
    ) as Rule;
    return { set: { ...set, rules: { ...set.rules, [tool]: timed } }, names, paths };
  }
  const drawn = randomRules(random);
  const added = drawn.rules[tool] ?? drawn.rules[Object.keys(drawn.rules)[0] as string] ?? {};
  const needs = { ...drawn.needs, ...set.needs };
  return { set: { ...set, needs, rules: { ...set.rules, [tool]: added } }, names, paths };
}

/** A path as the build has it, in the way in which it is written. */
function pathIn({ paths }: Build, path: string): string {
  const isPointer = path.startsWith('/');
  const [first = '', ...rest] = (isPointer ? path.slice(1) : path).split(isPointer ? '/' : '.');
  const moved = paths[first];
  if (moved === undefined) return path;
  const keys = [...moved.split('.'), ...rest];
  return isPointer ? `/${keys.join('/')}` : keys.join('.');
}

/** A call as a client of the build makes it: now and then by the oldest names, with their paths. */
export function spelt(
  build: Build,
  { tool, args, idempotencyKey = '' }: Pick<NextCall, 'tool' | 'args' | 'idempotencyKey'>,
): { readonly tool: string; readonly args: Json } {
  const name = build.names[tool];
  if (build.set.rules[tool] === undefined) return { tool: name ?? tool, args };
  const isOld = name !== undefined && Number(idempotencyKey.slice('key-'.length)) % 4 === 0;
  if (isOld) return { tool, args };
  const moved: Record<string, Json> = {};
  for (const [key, value] of Object.entries(args as Record<string, Json>)) {
    const keys = pathIn(build, key).split('.');
    let inner = moved as Record<string, unknown>;
    keys.forEach((each, at) => {
      if (at === keys.length - 1) inner[each] = value;
      else inner[each] ??= keys[at + 1] === '0' ? [] : {};
      inner = inner[each] as Record<string, unknown>;
    });
  }
  return { tool: name ?? tool, args: moved };
}

/** The rules with the names that the build has for tools and arguments, each with its oldest one. */
export function namedSet(build: Build): RuleSet {
  const { set, names, paths } = build;
  // Only a rule says how its tool was called before.
  const nameOf = (tool: string): string => (set.rules[tool] && names[tool]) || tool;
  const own = (path: string): string => pathIn(build, path);
  const of = (tool: string) => (path: string) => (set.rules[tool] ? own(path) : path);
  const condition = (asked: unknown, path: (path: string) => string): unknown => {
    if (Array.isArray(asked)) return asked.map((each) => condition(each, path));
    return Object.fromEntries(
      Object.entries(asked as object).map(([key, each]) =>
        key === 'any' || key === 'not' ? [key, condition(each, path)] : [path(key), each],
      ),
    );
  };
  const earlier = (from: EarlierPath, path: (path: string) => string): EarlierPath => {
    if (typeof from === 'string') return path(from);
    return 'args' in from ? { ...from, args: path(from.args) } : from;
  };
  const amount = (from: EarlierAmount, path: (path: string) => string): EarlierAmount => {
    if (typeof from === 'string') return path(from);
    return from.args === undefined ? from : { ...from, args: path(from.args) };
  };
  const same = (asked: NonNullable<Leaf['same']>, path: (path: string) => string) => {
    if (asked === 'all') return asked;
    if (Array.isArray(asked)) {
      // A path of the caller's, and one of the earlier call's.
      const pairs = asked.map((each: string) => [own(each), path(each)] as const);
      if (pairs.every(([one, other]) => one === other)) return pairs.map(([one]) => one);
      return Object.fromEntries(pairs);
    }
    const pairs = Object.entries(asked).map(([key, from]) => [own(key), earlier(from, path)]);
    return Object.fromEntries(pairs);
  };
  const named = (asked: Requirement): unknown => {
    if (typeof asked === 'string') return nameOf(asked);
    const when = asked.when && { when: condition(asked.when, own) };
    if ('need' in asked) return { ...asked, ...when };
    if ('all' in asked) return { all: asked.all.map(named), ...when };
    if ('any' in asked) return { any: asked.any.map(named), ...when };
    const path = of(asked.tool ?? '');
    return {
      ...asked,
      ...when,
      ...(asked.tool !== undefined && { tool: nameOf(asked.tool) }),
      ...(asked.same && { same: same(asked.same, path) }),
      ...(asked.atMost && {
        atMost: Object.fromEntries(
          Object.entries(asked.atMost).map(([key, from]) => [own(key), amount(from, path)]),
        ),
      }),
      ...(asked.args && { args: condition(asked.args, path) }),
      ...(asked.distinct && { distinct: earlier(asked.distinct, path) }),
    };
  };
  const limited = (limit: Limit): unknown => {
    const { sum, when } = limit;
    return {
      ...limit,
      ...(limit.same && { same: same(limit.same, own) }),
      ...(when && { when: condition(when, own) }),
      ...(typeof sum === 'string' && { sum: own(sum) }),
      ...(typeof sum === 'object' && { sum: { ...sum, path: own(sum.path) } }),
    };
  };
  const args = Object.fromEntries(Object.entries(paths).map(([before, now]) => [now, before]));
  const rules = Object.entries(set.rules).map(([tool, rule]) => {
    const { after, notAfter, undoneBy, limit } = rule;
    const inBuild = {
      ...rule,
      ...(after !== undefined && { after: listOf(after).map(named) }),
      ...(notAfter !== undefined && { notAfter: listOf(notAfter).map(named) }),
      ...(undoneBy !== undefined && { undoneBy: listOf(undoneBy).map(nameOf) }),
      ...(limit !== undefined && { limit: listOf(limit).map(limited) }),
      ...(nameOf(tool) !== tool && { renamed: [tool] }),
      ...(Object.keys(args).length > 0 && { args }),
    };
    return [nameOf(tool), inBuild];
  });
  const needs = Object.entries(set.needs ?? {}).map(([name, need]) => {
    return [name, listOf(need).map(named)];
  });
  return { rules: Object.fromEntries(rules), needs: Object.fromEntries(needs) } as RuleSet;
}

// --- what a gate knows --------------------------------------------------------------------------

/** A part of a rule that counts calls of one tool. */
interface Clause {
  readonly tool: string;
  readonly kind: 'after' | 'notAfter' | 'limit' | 'once';
  readonly outcome: string;
  readonly consumes: boolean;
  readonly withinMs: number;
  /** Values that are named by their paths. */
  readonly values: readonly string[];
  /** Conditions, of which a build without them notes nothing. */
  readonly tests: readonly string[];
  readonly isCounted: boolean;
}

function listOf<T>(many: T | readonly T[] | undefined): readonly T[] {
  if (many === undefined) return [];
  return Array.isArray(many) ? many : [many as T];
}

const windowOf = (within: Leaf['within']): number =>
  within === undefined ? Number.POSITIVE_INFINITY : milliseconds(within);

const sourceOf = (path: unknown): string => {
  if (typeof path === 'string') return JSON.stringify({ args: path });
  return JSON.stringify(path);
};

/** As a run keeps it: before it is scaled. */
const amountIn = (amount: EarlierAmount): string => {
  const given = typeof amount === 'string' ? { args: amount } : amount;
  const { args, result, text = false, negative = false } = given;
  return JSON.stringify(['amount', args, result, text, negative]);
};

function pathsIn(same: Leaf['same']): readonly unknown[] {
  if (same === 'all') return [''];
  return Array.isArray(same) ? same : Object.values(same ?? {});
}

function clauseOf(leaf: string | Leaf, kind: 'after' | 'notAfter'): Clause {
  if (typeof leaf === 'string') return clauseOf({ tool: leaf }, kind);
  const { tool = '', outcome = 'succeeded', consumes = false, times = 1, distinct } = leaf;
  const { same, args, result, within, atMost = {} } = leaf;
  return {
    ...{ tool, kind, outcome, consumes: consumes !== false, withinMs: windowOf(within) },
    values: [
      ...[...pathsIn(same), ...(distinct === undefined ? [] : [distinct])].map(sourceOf),
      ...Object.values(atMost).map(amountIn),
    ],
    tests: [args && `args ${JSON.stringify(args)}`, result && `result ${JSON.stringify(result)}`]
      .filter((each) => each !== undefined)
      .map(String),
    isCounted: times > 1 || consumes !== false,
  };
}

function clausesOf(set: RuleSet, tool: string, rule: Rule): readonly Clause[] {
  const needed = (requirement: Requirement): readonly Clause[] => {
    if (typeof requirement === 'string') return [clauseOf(requirement, 'after')];
    if ('need' in requirement) return listOf(set.needs?.[requirement.need]).flatMap(needed);
    if ('all' in requirement) return requirement.all.flatMap(needed);
    if ('any' in requirement) return requirement.any.flatMap(needed);
    return [clauseOf(requirement, 'after')];
  };
  const limited = ({ outcome = 'succeeded', within, same, when, sum }: Limit): Clause => {
    const path = sum && amountIn(typeof sum === 'object' ? { args: sum.path, ...sum } : sum);
    return {
      ...{ tool, kind: 'limit', outcome, consumes: false, withinMs: windowOf(within) },
      values: [...pathsIn(same).map(sourceOf), ...(path === undefined ? [] : [path])],
      tests: when === undefined ? [] : [`args ${JSON.stringify(when)}`],
      isCounted: true,
    };
  };
  const once: Clause = { ...clauseOf(tool, 'after'), kind: 'once' };
  return [
    ...listOf(rule.after).flatMap(needed),
    ...listOf(rule.notAfter).map((each) => clauseOf(each, 'notAfter')),
    ...listOf(rule.limit).map(limited),
    ...(rule.once ? [once] : []),
  ];
}

function usesUp(set: RuleSet, tool: string): boolean {
  return clausesOf(set, tool, set.rules[tool] ?? {}).some(({ consumes }) => consumes);
}

/** What builds have noted of a tool by the time of each of its calls. */
class Known {
  readonly #noted = new Map<string, readonly Clause[]>();
  readonly #atCall = new Map<ForwardedCall, readonly Clause[]>();
  readonly #all = new WeakMap<RuleSet, readonly Clause[]>();

  #clausesIn(set: RuleSet): readonly Clause[] {
    const known = this.#all.get(set);
    if (known !== undefined) return known;
    const all = Object.entries(set.rules).flatMap(([tool, rule]) => clausesOf(set, tool, rule));
    this.#all.set(set, all);
    return all;
  }

  /** A build writes what it asks of each tool of which the run has a call. */
  add(set: RuleSet, call: ForwardedCall): void {
    const asked = this.#clausesIn(set);
    const own = asked.filter((each) => each.tool === call.tool);
    this.#atCall.set(call, [...(this.#noted.get(call.tool) ?? []), ...own]);
    // An unknown outcome writes no fact.
    if (call.outcome === 'unknown') return;
    // A failure that no rule asks for makes no fact, and writes nothing.
    const tools = new Set([
      ...this.#noted.keys(),
      ...(call.outcome === 'succeeded' ? [call.tool] : []),
    ]);
    for (const tool of tools) {
      const noted = this.#noted.get(tool) ?? [];
      if (call.outcome === 'failed' && tool !== call.tool) continue;
      this.#noted.set(tool, [...noted, ...asked.filter((each) => each.tool === tool)]);
    }
  }

  hasAll(set: RuleSet, tool: string, history: readonly ForwardedCall[]): boolean {
    return this.#unknown(set, tool, history).length === 0;
  }

  /** Whether a clause is about failures that no build asked for when they happened. */
  missesFailures(set: RuleSet, tool: string, history: readonly ForwardedCall[]): boolean {
    return this.#unknown(set, tool, history).some(({ outcome }) => outcome !== 'succeeded');
  }

  #unknown(set: RuleSet, tool: string, history: readonly ForwardedCall[]): readonly Clause[] {
    const asked = clausesOf(set, tool, set.rules[tool] ?? {});
    return asked.filter((each) =>
      history.some(
        (call, at) =>
          call.tool === each.tool && !this.#knows(each, call) && !isSettled(history, at),
      ),
    );
  }

  #knows(asked: Clause, call: ForwardedCall): boolean {
    if (asked.kind === 'once') return true;
    const noted = this.#atCall.get(call) ?? [];
    const own = this.#clausesIn(call.under ?? { rules: {} }).filter(
      ({ tool }) => tool === call.tool,
    );
    const { kind, outcome, consumes, withinMs, values, tests, isCounted } = asked;
    const isKept = noted.some(
      (each) =>
        each.kind === kind &&
        each.outcome === outcome &&
        each.consumes === consumes &&
        each.withinMs >= withinMs,
    );
    return (
      isKept &&
      values.every((value) => noted.some((each) => each.values.includes(value))) &&
      tests.every((test) => own.some((each) => each.tests.includes(test))) &&
      (!isCounted || noted.some((each) => each.isCounted))
    );
  }
}
