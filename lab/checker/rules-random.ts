import { type Random, seeded } from './random.ts';
import {
  type Condition,
  type Duration,
  type EarlierAmount,
  type EarlierPath,
  type Fold,
  type ForwardedCall,
  type Json,
  judge,
  type Leaf,
  type Limit,
  type LimitedTool,
  milliseconds,
  type NextCall,
  type OutsideEvent,
  type Person,
  type Requirement,
  type Rule,
  type RuleSet,
  type RulesHistory,
  type SharedLimit,
  type Verdict,
} from './rules.ts';

/** One call to be judged. All of it is JSON. */
export interface RulesCase {
  readonly rules: RuleSet;
  readonly history: RulesHistory;
  readonly call: NextCall;
}

/** How many calls are tried on one history before the next one begins. */
const TRIES = 30;

/**
 * Cases without end. Each history grows by the calls that the evaluator allows, and by nothing that
 * a gate would not forward. Each try is a case, so a history is judged from its beginning.
 *
 * @param isRetried whether in every second history steps of unknown outcome hold nothing up, as with
 * `uncertain: 'retry'`, so that there may be several
 */
export function* randomCases(
  seed: number,
  isRetried = false,
): Generator<RulesCase & { readonly wanted: Verdict }> {
  for (let number = 0; ; number++) {
    const random = seeded(seed, `rules ${number}`);
    const rules = randomRules(random, [EVENT, FACT], true);
    const play = new Play(random, rules, isRetried && number % 2 === 1);
    for (let tries = 0; tries < TRIES; tries++) {
      play.pass();
      const call = play.nextCall();
      const history = [...play.history];
      const wanted = judge(rules, history, call);
      yield { rules, history, call, wanted };
      if (wanted.verdict === 'allowed') play.forward(call);
    }
  }
}

// Rules.

const TOOLS = ['login', 'find', 'approve', 'pay', 'refund', 'close'];
/** Sent from outside only. */
const EVENT = 'otp';
/** What rules say comes from outside. */
const FACT = 'sign_off';
/** What is claimed of a caller: mostly something, at times nothing. */
const CLAIMS: readonly (Json | undefined)[] = [
  ...[{ role: 'admin', level: 2 }, { role: 'clerk', level: 1 }, { role: 'clerk' }],
  ...[{ level: '2' }, { role: null }, {}, undefined],
];
const OF_CALLERS: readonly Condition[] = [
  { role: 'admin' },
  { role: { ne: 'admin' } },
  { role: { in: ['admin', 'clerk'] } },
  { level: { gte: 2 } },
  { level: { exists: true } },
];
/** Two of each kind, and nobody. */
const PEOPLE: readonly (Person | undefined)[] = [
  ...['ann', 'bob', 'ann'],
  { issuer: 'https://idp.test', subject: 'ann' },
  { issuer: 'https://idp.test', subject: 'bob' },
  undefined,
];
const NEEDS = ['signed_in', 'cleared'];
const OWN_PATHS = [
  'id',
  'id',
  'id',
  'kind',
  'kind',
  'tags',
  '/id',
  'deep.a',
  '/deep/a/b',
  'tags.0',
];
const RESULT_PATHS = ['id', 'status', 'by', 'tags', '/tags/0'];
/** Not in order of length, since a short one is what closes most often. */
const WINDOWS: readonly Duration[] = ['1s', '30s', '1m', '5m', '1h', '1d', '1ms', '500ms', 2_000];

/**
 * Three to six tools. What a tool needs comes before it, so that each can be reached.
 *
 * @param sent what may come from outside
 * @param isMore whether limits may be over several tools, and bound by what calls add up to
 */
export function randomRules(
  random: Random,
  sent: readonly string[] = [EVENT],
  isMore = false,
): RuleSet {
  const tools = TOOLS.slice(0, random.between(3, 6));
  const first = tools[0] as string;
  const needs: Record<string, Requirement | Requirement[]> = {};
  for (const name of NEEDS.slice(0, random.between(0, 2))) {
    const known = Object.keys(needs);
    const draw = new Draw(random, {
      before: [first, ...sent],
      tools: [...tools, ...sent],
      needs: known,
      hasCallers: sent.includes(FACT),
    });
    needs[name] = draw.some(() => draw.requirement(1));
  }
  const rules: Record<string, Rule> = {};
  tools.forEach((tool, at) => {
    const draw = new Draw(random, {
      before: [...tools.slice(0, at), ...sent],
      tools: [...tools.filter((other) => other !== tool), ...sent],
      needs: Object.keys(needs),
      hasCallers: sent.includes(FACT),
    });
    const others = [...tools.filter((other) => other !== tool), EVENT];
    const { chance } = random;
    const rule: Rule = {
      ...(at > 0 && chance(0.85) && { after: draw.some(() => draw.requirement(0)) }),
      ...(chance(0.3) && { notAfter: draw.some(() => draw.obstacle([...tools, ...sent])) }),
      ...(chance(0.4) && { limit: draw.some(() => draw.limit(isMore)) }),
      ...(chance(0.2) && { undoneBy: draw.some(() => random.pick(others)) }),
      ...(chance(0.1) && { once: true }),
      ...(sent.includes(FACT) && chance(0.15) && { caller: random.pick(OF_CALLERS) }),
    };
    const mayBegin = rule.notAfter !== undefined || rule.limit !== undefined || rule.once;
    rules[tool] = mayBegin && chance(0.1) ? { ...rule, from: randomTime(random) } : rule;
  });
  const outside = sent.includes(FACT) ? { outside: { [FACT]: { who: 'somebody' } } } : {};
  const draw = new Draw(random, {
    before: tools,
    tools,
    needs: [],
    hasCallers: sent.includes(FACT),
  });
  const limits = isMore && random.chance(0.3) ? { limits: [draw.sharedLimit()] } : {};
  return { rules, ...(Object.keys(needs).length > 0 && { needs }), ...outside, ...limits };
}

function randomTime({ pick }: Random): string {
  return new Date(START + pick(STEPS)).toISOString();
}

interface Names {
  /** What may be needed without any alternative. */
  readonly before: readonly string[];
  readonly tools: readonly string[];
  readonly needs: readonly string[];
  /** Whether they ask for what is claimed of callers. */
  readonly hasCallers: boolean;
}

/** Parts of one rule. */
class Draw {
  readonly #random: Random;
  readonly #names: Names;

  constructor(random: Random, names: Names) {
    this.#random = random;
    this.#names = names;
  }

  /** One, or a list. */
  some<T>(draw: () => T): T | T[] {
    const { chance, between } = this.#random;
    if (chance(0.6)) return draw();
    return Array.from({ length: between(1, 2) }, draw);
  }

  /** @param depth of what it stands in */
  requirement(depth: number): Requirement {
    const { chance, between, pick } = this.#random;
    const { before, tools, needs } = this.#names;
    if (depth < 3 && chance(0.3)) {
      const length = between(1, 3);
      const first = this.requirement(depth + 1);
      // An alternative may be one that never comes.
      const alternative = () =>
        chance(0.5) ? this.requirement(depth + 1) : this.#leaf(tools, true);
      const more = Array.from({ length: length - 1 }, alternative);
      if (chance(0.6)) return { any: this.#random.shuffled([first, ...more]), ...this.#when(0.2) };
      const all = Array.from({ length: length - 1 }, () => this.requirement(depth + 1));
      return { all: [first, ...all], ...this.#when(0.2) };
    }
    if (needs.length > 0 && chance(0.2)) return { need: pick(needs), ...this.#when(0.2) };
    return this.#leaf(before, true);
  }

  obstacle(tools: readonly string[]): string | Leaf {
    return this.#leaf(tools, false);
  }

  #leaf(tools: readonly string[], isNeeded: boolean): string | Leaf {
    const { chance, pick, between } = this.#random;
    const tool = pick(tools);
    if (tool === FACT) return this.#outside(isNeeded);
    if (chance(0.15)) return tool;
    const times = between(1, 3);
    return {
      tool,
      ...(chance(0.4) && { within: pick(WINDOWS) }),
      ...(chance(0.3) && { same: this.#same() }),
      ...this.#when(0.2),
      ...(chance(0.2) && { args: this.#condition(ARGUMENTS, 0) }),
      ...(this.#names.hasCallers && chance(0.1) && { byCaller: pick(OF_CALLERS) }),
      ...(chance(0.15) && { result: this.#condition(RESULTS, 0) }),
      ...(chance(0.15) && { outcome: pick(['succeeded', 'failed', 'any', 'any'] as const) }),
      ...(chance(0.2) && { times }),
      ...(chance(0.1) && { times, distinct: this.#earlier() }),
      ...(isNeeded && chance(0.1) && { atMost: { amount: this.#amount() } }),
      ...(isNeeded && chance(0.45) && { consumes: pick([true, true, 'calls', false] as const) }),
    };
  }

  #outside(isNeeded: boolean): Leaf {
    const { chance, pick, between } = this.#random;
    const times = between(1, 3);
    return {
      outside: FACT,
      ...(chance(0.4) && { within: pick(WINDOWS) }),
      ...(chance(0.3) && { same: this.#same() }),
      ...this.#when(0.2),
      ...(chance(0.2) && { args: this.#condition(ARGUMENTS, 0) }),
      ...(chance(0.1) && { result: this.#condition(RESULTS, 0) }),
      ...(chance(0.15) && { times }),
      ...(chance(0.3) && { times, distinct: chance(0.8) ? 'by' : this.#earlier() }),
      ...(isNeeded && chance(0.45) && { consumes: pick([true, true, 'calls', false] as const) }),
      ...(isNeeded && chance(0.5) && { differs: ['caller'] as const }),
    };
  }

  /** An amount of an earlier call. */
  #amount(): EarlierAmount {
    const { chance } = this.#random;
    const more = {
      ...(chance(0.3) && { text: true }),
      ...(chance(0.2) && { negative: true }),
      ...(chance(0.2) && { scale: '0.1' }),
    };
    return chance(0.6) ? { result: 'paid', ...more } : { args: 'amount', ...more };
  }

  #limitedBy(): Pick<Limit, 'same'> {
    const { chance, pick } = this.#random;
    if (!chance(0.3)) return {};
    if (chance(0.2)) return { same: 'all' };
    const own = pick(OWN_PATHS);
    return { same: chance(0.3) ? { [own]: { args: own, fold: this.#fold() } } : [own] };
  }

  #fold(): readonly Fold[] {
    const { pick } = this.#random;
    return pick([['case'], ['space', 'case'], ['case', 'nfkc', 'space'], ['nfkc']] as const);
  }

  /** Without names, each tool has its own. */
  sharedLimit(): SharedLimit {
    const { chance, pick } = this.#random;
    const { when: _, whenCaller: _caller, ...limit } = this.limit(true);
    const named = typeof limit.same === 'object';
    const of = this.#random
      .shuffled(this.#names.tools)
      .slice(0, 3)
      .map((tool): string | LimitedTool => {
        if (chance(0.4)) return tool;
        const names = Array.isArray(limit.same) ? limit.same : Object.keys(limit.same ?? {});
        return {
          tool,
          ...(chance(0.3) && { scale: pick(['0.1', '10']) }),
          ...(chance(0.2) && { text: chance(0.5) }),
          ...(named && chance(0.3) && { same: { [names[0] ?? '']: pick(OWN_PATHS) } }),
          ...this.#when(0.2),
        };
      });
    return { ...limit, of, ...(chance(0.1) && { from: randomTime(this.#random) }) };
  }

  limit(isMore = false): Limit {
    const { chance, pick, between } = this.#random;
    const shared = {
      ...(chance(0.6) && { within: pick(WINDOWS) }),
      ...this.#limitedBy(),
      ...this.#when(0.35),
      ...(chance(0.2) && { outcome: pick(['succeeded', 'failed', 'any'] as const) }),
    };
    if (chance(0.5)) return { times: between(1, 3), ...shared };
    const written = { path: 'amount', text: true, ...(chance(0.3) && { negative: true }) };
    const sum = chance(0.3) ? written : 'amount';
    if (isMore && chance(0.4)) {
      const same = chance(0.5) ? { same: this.#same() } : {};
      const within = chance(0.2) ? { within: pick(WINDOWS) } : {};
      const max = { sum: this.#amount(), of: pick(this.#names.tools), ...same, ...within };
      return { sum, max, ...shared };
    }
    const most = pick([0.3, 1, 20, 100.2, 199.98]);
    return chance(0.5) ? { sum, max: most, ...shared } : { sum, below: most, ...shared };
  }

  #same(): NonNullable<Leaf['same']> {
    const { chance, pick } = this.#random;
    const own = pick(OWN_PATHS);
    if (chance(0.15)) return 'all';
    if (chance(0.5)) return chance(0.2) ? [...new Set([own, pick(OWN_PATHS)])] : [own];
    return { [own]: this.#earlier() };
  }

  #earlier(): EarlierPath {
    const { chance, pick } = this.#random;
    if (chance(0.4)) return pick(OWN_PATHS);
    const fold = chance(0.3) ? { fold: this.#fold() } : {};
    return chance(0.3)
      ? { args: pick(OWN_PATHS), ...fold }
      : { result: pick(RESULT_PATHS), ...fold };
  }

  #when(probability: number): { readonly when?: Condition; readonly whenCaller?: Condition } {
    const { chance, pick } = this.#random;
    const when = chance(probability) ? { when: this.#condition(ARGUMENTS, 0) } : {};
    if (!this.#names.hasCallers || !chance(probability / 3)) return when;
    return { ...when, whenCaller: pick(OF_CALLERS) };
  }

  #condition(members: readonly Condition[], depth: number): Condition {
    const { chance, pick, between } = this.#random;
    const inner = () => this.#condition(members, depth + 1);
    if (depth < 2 && chance(0.1)) return { not: inner() };
    if (depth < 2 && chance(0.1)) return { any: Array.from({ length: between(1, 2) }, inner) };
    return chance(0.8) ? pick(members) : { ...pick(members), ...pick(members) };
  }
}

const ARGUMENTS: readonly Condition[] = [
  { kind: 'a' },
  { kind: { exists: true, eq: 'a' } },
  { kind: { in: ['a', 'c'] } },
  { '/kind': { ne: 'b' } },
  { amount: { gt: 10 } },
  { amount: { exists: true, gte: 0.2, lte: 10 } },
  { amount: { lt: 1 } },
  { id: { exists: true } },
  { id: { ne: null } },
  { 'deep.a.b': 1 },
  { '/tags/0': 'x' },
];

const RESULTS: readonly Condition[] = [
  { status: 'open' },
  { status: { ne: 'closed' } },
  { status: { in: ['open', 'held'] } },
  { by: null },
  { by: { exists: true } },
  { id: { gte: 2 } },
  { 'tags.0': { eq: 'x' } },
];

// Values. Few, so that they often agree.

const LONG: readonly Json[] = Array.from({ length: 257 }, (_, at) => at);

const USUAL: { readonly [name: string]: readonly Json[] } = {
  id: [1, 2, 3],
  kind: ['a', 'b', 'A', ' a', 'a  b', 'a b'],
  amount: [0.1, 0.2, 1, 10, 99.99],
  tags: [['x'], ['x', 'y'], ['y', 'z'], ['z', 'x', 'y']],
  deep: [{ a: { b: 1 } }, { a: { b: 2, c: 'x' } }, { a: { c: 'x', b: 2 } }],
  status: ['open', 'closed', 'held'],
  by: ['ann', 'bob', 'cid', 'Ann '],
  paid: [0.1, 1, 10, '20', 99.99],
};

const ODD: { readonly [name: string]: readonly Json[] } = {
  id: ['1', 'a', null, [1], [1, 2], [2, 1, 1], [], { n: 1 }, true, LONG],
  kind: [null, 3, ['a'], 'A', ''],
  amount: [
    0,
    '12.50',
    -10,
    '-0.1',
    '0.1',
    '1e3',
    ' 1',
    '010',
    'x',
    -1,
    null,
    1e-7,
    2 ** 53,
    2 ** 53 + 2,
    [1],
  ],
  tags: [[], 'x', [['x'], 'y'], [null, 1], [{ n: 1 }], LONG, null],
  deep: [{}, 'x', null, { a: [1] }, { a: { b: '1' } }],
  status: [null, 1, '', ['open']],
  by: [null, 1, '1', { name: 'ann' }],
  paid: [-1, '-5', null, 'x', [1]],
};

function randomTable(random: Random, names: readonly string[]): { readonly [name: string]: Json } {
  const { chance, pick } = random;
  const members: Record<string, Json> = {};
  for (const name of random.shuffled(names)) {
    if (chance(0.92)) members[name] = pick((chance(0.9) ? USUAL : ODD)[name] ?? []);
  }
  return members;
}

export const randomArgs = (random: Random) =>
  randomTable(random, ['id', 'kind', 'amount', 'tags', 'deep']);

/** `undefined`: the server answered in words. */
export function randomResult(random: Random): Json | undefined {
  if (random.chance(0.1)) return random.pick([undefined, undefined, [], 'done', null]);
  return randomTable(random, ['id', 'status', 'by', 'tags', 'paid']);
}

// Histories.

/** When each history begins, but for its clock. */
const START = 100_000_000;

const STEPS = [0, 0, 1, 499, 500, 999, 1_000, 1_001, 29_999, 30_000, 60_000, 299_000, 3_600_000];

/** One run, as a gate would let it happen. */
class Play {
  readonly #random: Random;
  readonly #rules: RuleSet;
  readonly #steps: ReadonlySet<string>;
  readonly #isRetried: boolean;
  readonly history: (ForwardedCall | OutsideEvent)[] = [];
  #now = START;
  #keys = 0;

  constructor(random: Random, rules: RuleSet, isRetried: boolean) {
    this.#random = random;
    this.#rules = rules;
    this.#isRetried = isRetried;
    this.#steps = stepsOf(rules);
  }

  /** Time goes on, or the clock is set back; something comes from outside; a step is settled. */
  pass(): void {
    const { chance, pick } = this.#random;
    if (chance(0.04)) this.#now -= pick(STEPS);
    else if (chance(0.3)) this.#goToAnEdge();
    else this.#now += pick(STEPS);
    if (chance(this.#held ? 0.4 : 0.15)) this.#send();
    // Where others went on meanwhile, only a later try says how it ended.
    if (!this.#isRetried && this.#undecided >= 0 && chance(0.15)) this.#settle();
  }

  nextCall(): NextCall {
    const { chance, pick } = this.#random;
    const held = this.#held;
    // A retry of the step whose outcome is not known.
    if (held && chance(0.4)) {
      const { tool, args, idempotencyKey = '' } = held;
      const caller = pick(PEOPLE);
      const key = { idempotencyKey, ...(caller && { caller }) };
      return { tool, args, at: this.#now, ...key, ...this.#claims() };
    }
    const draw = (): NextCall => {
      const tools = Object.entries(this.#rules.rules);
      const ruled = tools.filter(([, rule]) => rule.after ?? rule.limit ?? rule.notAfter);
      const [tool] = pick(ruled.length > 0 && chance(0.6) ? ruled : tools);
      const args = this.#argsBefore() ?? randomArgs(this.#random);
      const caller = pick(PEOPLE);
      const key = { idempotencyKey: `key-${this.#keys}` };
      return { tool, args, at: this.#now, ...key, ...(caller && { caller }), ...this.#claims() };
    };
    this.#keys += 1;
    const call = draw();
    if (chance(0.3)) return call;
    // Else most calls would be refused, and no history would grow. Few would use something up.
    const calls = [call, draw(), draw(), draw()];
    const verdicts = calls.map((each) => judge(this.#rules, this.history, each));
    const using = verdicts.findIndex((each) => each.verdict === 'allowed' && each.uses.length > 0);
    const allowed = verdicts.findIndex(({ verdict }) => verdict === 'allowed');
    return calls[using >= 0 && chance(0.6) ? using : allowed] ?? call;
  }

  /** Those of an earlier call, or few calls would have all arguments in common. */
  #argsBefore(): Json | undefined {
    const { chance, pick } = this.#random;
    return chance(0.2) && this.history.length > 0 ? pick(this.history).args : undefined;
  }

  /** Adds an allowed call, unless an undecided step is in its way. */
  forward(call: NextCall): void {
    const { chance, pick } = this.#random;
    const { tool, args, at, idempotencyKey = '', caller, claims } = call;
    const isStep = this.#steps.has(tool);
    const held = this.#held;
    const isOther = held && held.idempotencyKey !== idempotencyKey;
    if (isOther && isStep && !this.#isRetried) return;
    const who = { ...(caller && { caller }), ...(claims !== undefined && { claims }) };
    const claim = { tool, args, claimedAt: at, idempotencyKey, ...who };
    if (isStep && chance(this.#isRetried ? 0.3 : 0.08)) {
      if (held && !this.#isRetried) this.history.splice(this.#undecided, 1);
      this.history.push({ ...claim, outcome: 'unknown' });
      return;
    }
    this.#now += chance(0.08) ? -pick(STEPS) : pick([0, 0, 1, 20, 1_000]);
    this.history.push({ ...claim, ...this.#decision() });
  }

  #claims(): { readonly claims?: Json } {
    const claims = this.#random.pick(CLAIMS);
    return claims === undefined ? {} : { claims };
  }

  #decision() {
    const outcome = this.#random.chance(0.8) ? ('succeeded' as const) : ('failed' as const);
    const result = randomResult(this.#random);
    if (outcome === 'failed' && this.#random.chance(0.3))
      return { outcome, invalid: true, decidedAt: this.#now };
    return { outcome, decidedAt: this.#now, ...(result !== undefined && { result }) };
  }

  /** The place of the step that is under way or held: a run has at most one. */
  get #undecided(): number {
    const last = this.history.findLastIndex((each) => 'tool' in each && each.outcome === 'unknown');
    if (last < 0) return -1;
    // A later try took its place.
    const { idempotencyKey } = this.history[last] as ForwardedCall;
    const isRetried = this.history
      .slice(last + 1)
      .some((each) => 'tool' in each && each.idempotencyKey === idempotencyKey);
    return isRetried ? -1 : last;
  }

  get #held(): ForwardedCall | undefined {
    return this.history[this.#undecided] as ForwardedCall | undefined;
  }

  /** Its handler ends, or a person says how it ended. */
  #settle(): void {
    const seen = this.#undecided;
    const [held] = this.history.splice(seen, 1) as [ForwardedCall];
    this.history.push({ ...held, ...this.#decision(), seen });
  }

  #send(): void {
    const { chance, pick } = this.#random;
    const send = chance(0.6) ? pick([EVENT, FACT]) : pick(Object.keys(this.#rules.rules));
    const by = send === FACT ? pick(PEOPLE) : undefined;
    const result = randomResult(this.#random);
    const args = chance(0.9) ? randomArgs(this.#random) : undefined;
    this.history.push({
      send,
      at: this.#now,
      ...(by !== undefined && { by }),
      ...(args !== undefined && { args }),
      ...(result !== undefined && { result }),
    });
  }

  /** To where a window of something that happened closes, or a millisecond beside that. */
  #goToAnEdge(): void {
    const { pick, between } = this.#random;
    if (this.history.length === 0) return;
    const happening = pick(this.history);
    const start = 'send' in happening ? happening.at : (happening.decidedAt ?? happening.claimedAt);
    const edge = start + milliseconds(pick(WINDOWS)) + between(-1, 1);
    if (edge >= this.#now) this.#now = edge;
  }
}

/** The tools that run with a claim: one after the other. Lookups are named in `after` alone. */
export function stepsOf({ rules, needs = {}, limits = [] }: RuleSet): ReadonlySet<string> {
  const steps = new Set<string>();
  const listOf = <T>(many: T | readonly T[] | undefined): readonly T[] =>
    many === undefined ? [] : Array.isArray(many) ? many : [many as T];
  const look = (requirement: Requirement): void => {
    if (typeof requirement === 'string' || 'need' in requirement) return;
    if ('all' in requirement) requirement.all.forEach(look);
    else if ('any' in requirement) requirement.any.forEach(look);
    else if (requirement.consumes || (requirement.outcome ?? 'succeeded') !== 'succeeded')
      steps.add(requirement.tool ?? '');
  };
  for (const [tool, rule] of Object.entries(rules)) {
    if (Object.keys(rule).length > 0) steps.add(tool);
    listOf<Requirement>(rule.after).forEach(look);
    for (const leaf of listOf<string | Leaf>(rule.notAfter))
      steps.add(typeof leaf === 'string' ? leaf : (leaf.tool ?? ''));
    for (const undoer of listOf<string>(rule.undoneBy)) steps.add(undoer);
  }
  for (const { of } of limits)
    for (const each of of) steps.add(typeof each === 'string' ? each : each.tool);
  for (const need of Object.values(needs)) listOf<Requirement>(need).forEach(look);
  return steps;
}
