/**
 * Judges calls by rules, from outside and as naively as can be: each judgement reads the whole
 * history again, keeps nothing, and shares no code with `src/`. It knows no bounds of memory.
 *
 * Where the grammar leaves a meaning open, the closed one stands here, with a comment.
 */

export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [name: string]: Json };

/** Milliseconds, or one whole number with `ms`, `s`, `m`, `h` or `d`. */
export type Duration = number | string;
type Many<T> = T | readonly T[];
export type Scalar = string | number | boolean | null;

export interface Comparison {
  readonly eq?: Scalar;
  readonly ne?: Scalar;
  readonly gt?: number;
  readonly gte?: number;
  readonly lt?: number;
  readonly lte?: number;
  readonly in?: readonly Scalar[];
  readonly exists?: boolean;
}

export interface Condition {
  readonly any?: readonly Condition[];
  readonly not?: Condition;
  readonly [path: string]: Scalar | Comparison | Condition | readonly Condition[] | undefined;
}

/** A path into the earlier call's arguments, or into its result. */
export type EarlierPath =
  | string
  | { readonly args: string; readonly fold?: readonly Fold[] }
  | { readonly result: string; readonly fold?: readonly Fold[] };
export type Fold = 'space' | 'nfkc' | 'case';

/** A path into the earlier call's arguments or result, where an amount is. */
export type EarlierAmount =
  | string
  | {
      readonly args?: string;
      readonly result?: string;
      readonly text?: boolean;
      readonly negative?: boolean;
      readonly scale?: string;
    };
export type Outcome = 'succeeded' | 'failed';

export interface Leaf {
  /** An earlier call of this tool. */
  readonly tool?: string;
  /** Or this, from outside. */
  readonly outside?: string;
  readonly within?: Duration;
  readonly same?: 'all' | readonly string[] | { readonly [ownPath: string]: EarlierPath };
  readonly when?: Condition;
  readonly args?: Condition;
  readonly result?: Condition;
  readonly outcome?: Outcome | 'any';
  readonly times?: number;
  readonly distinct?: EarlierPath;
  readonly consumes?: boolean | 'calls';
  /** Only what somebody else has sent. */
  readonly differs?: readonly 'caller'[];
  readonly atMost?: { readonly [ownPath: string]: EarlierAmount };
  readonly whenCaller?: Condition;
  readonly byCaller?: Condition;
}

export type Requirement =
  | string
  | Leaf
  | (About & { readonly need: string })
  | (About & { readonly all: readonly Requirement[] })
  | (About & { readonly any: readonly Requirement[] });

export interface Limit {
  readonly times?: number;
  readonly sum?:
    | string
    | { readonly path: string; readonly text?: boolean; readonly negative?: boolean };
  readonly max?: number | Earned;
  readonly below?: number;
  readonly within?: Duration;
  /** A table's keys are its own paths, for `fold`. */
  readonly same?: 'all' | readonly string[] | { readonly [path: string]: EarlierPath };
  readonly when?: Condition;
  readonly outcome?: Outcome | 'any';
  readonly whenCaller?: Condition;
}

/** What successes of another tool add up to. */
export interface Earned {
  readonly sum: EarlierAmount;
  readonly of: string;
  readonly same?: Leaf['same'];
  readonly within?: Duration;
}

export interface LimitedTool {
  readonly tool: string;
  readonly sum?: string;
  readonly text?: boolean;
  readonly scale?: string;
  /** From what the limit calls a value to the path that this tool has it at. */
  readonly same?: { readonly [name: string]: string };
  readonly when?: Condition;
  readonly whenCaller?: Condition;
}

export interface SharedLimit extends Omit<Limit, 'when'> {
  readonly of: readonly (string | LimitedTool)[];
  readonly from?: string;
}

export interface Rule {
  /** Who may call it. */
  readonly caller?: Condition;
  readonly after?: Many<Requirement>;
  readonly notAfter?: Many<string | Leaf>;
  readonly limit?: Many<Limit>;
  readonly undoneBy?: Many<string>;
  readonly once?: boolean;
  /** An ISO time: for `once`, `notAfter` and `limit` no call counts that was claimed before it. */
  readonly from?: string;
}

export interface RuleSet {
  readonly rules: { readonly [tool: string]: Rule };
  readonly needs?: { readonly [name: string]: Many<Requirement> };
  /** What comes from outside. */
  readonly outside?: { readonly [name: string]: { readonly who: string } };
  readonly limits?: readonly SharedLimit[];
}

/** A call that reached the server. */
export interface ForwardedCall {
  readonly tool: string;
  readonly args: Json;
  readonly result?: Json;
  /** `unknown`: it is not decided, or it never will be. */
  readonly outcome: Outcome | 'unknown';
  /** It failed, since the server took no such arguments. */
  readonly invalid?: boolean;
  readonly claimedAt: number;
  readonly decidedAt?: number;
  readonly idempotencyKey?: string;
  /** Who called, and what was claimed of them. */
  readonly caller?: Person;
  readonly claims?: Json;
  /** How many happenings came before its claim. By default, all that come before it here. */
  readonly seen?: number;
  /** The rules of the build that let it through. By default, those that judge. */
  readonly under?: RuleSet;
}

/** `runs.send()`: a success that no client called, or a fact from outside. It uses nothing up. */
export interface OutsideEvent {
  readonly send: string;
  /** Who sent a fact from outside: a name, or an issuer and a subject. */
  readonly by?: Person;
  readonly args?: Json;
  readonly result?: Json;
  readonly at: number;
}

/** In the order in which the store learnt how they ended. An undecided call: of its claim. */
export type RulesHistory = readonly (ForwardedCall | OutsideEvent)[];

/** A name that the app gives, or an issuer and a subject. */
export type Person = string | { readonly issuer: string; readonly subject: string };

export interface NextCall {
  /** Who calls. Absent: nobody knows. */
  readonly caller?: Person | undefined;
  /** What is claimed of them. Absent: nothing is known. */
  readonly claims?: Json | undefined;
  readonly tool: string;
  readonly args: Json;
  readonly at: number;
  readonly idempotencyKey?: string;
}

export type Verdict =
  /** `uses`: the places in the history of the facts that a success uses up, in ascending order. */
  | { readonly verdict: 'allowed'; readonly uses: readonly number[] }
  | { readonly verdict: 'arguments' | 'order' | 'limit' };

export function judge(set: RuleSet, history: RulesHistory, call: NextCall): Verdict {
  const facts = withoutItself(factsOf(set, history), call);
  const rule = ownMember(set.rules, call.tool) ?? {};
  const asked: Asked = { set, facts, call };

  // A caller of whom nothing is known may not.
  if (rule.caller && holds(rule.caller, call.claims, 'result') !== true)
    return { verdict: 'order' };
  if (faultsInArguments(rule, asked)) return { verdict: 'arguments' };

  const taken = takenBy(rule, asked);
  if (taken === undefined) return { verdict: 'order' };
  const from = rule.from === undefined ? 0 : Date.parse(rule.from);
  const counted = facts.filter(({ claimedAt }) => claimedAt >= from);
  const late: Asked = { ...asked, facts: counted };
  if (rule.once && counted.some((fact) => fact.tool === call.tool && isLiveSuccess(fact)))
    return { verdict: 'order' };
  if (listOf(rule.notAfter).some((leaf) => forbids(leafOf(leaf), late)))
    return { verdict: 'order' };

  if (limitsOn(set, rule, call.tool).some((limit) => isReached(limit, asked)))
    return { verdict: 'limit' };
  const uses = taken.map(({ fact }) => fact.index).sort((one, other) => one - other);
  return { verdict: 'allowed', uses };
}

// What happened.

interface Fact {
  /** Its place in the history. */
  readonly index: number;
  readonly tool: string;
  readonly outcome: Outcome | 'unknown';
  readonly isInvalid: boolean;
  readonly claimedAt: number;
  readonly decidedAt: number | undefined;
  readonly idempotencyKey: string | undefined;
  readonly args: Json;
  /** `undefined`: none is known. */
  readonly result: Json | undefined;
  /** Whether it came from outside, and who sent it. */
  readonly isSent: boolean;
  readonly by: Person | undefined;
  readonly claims: Json | undefined;
  readonly usedBy: readonly Mark[];
  readonly undoneBy: readonly Mark[];
}

/**
 * Something used a fact or undid it. Where that is not decided yet, the mark is not certain. Then
 * the fact may be used, or not: closed is that it is of no use to `after`, and still in the way.
 */
interface Mark {
  readonly by: number;
  readonly isCertain: boolean;
}

const isCertainly = (marks: readonly Mark[]): boolean => marks.some(({ isCertain }) => isCertain);

/** One after the other: what each found, used and undid. */
function factsOf(set: RuleSet, history: RulesHistory): Fact[] {
  let facts: Fact[] = [];
  history.forEach((happening, index) => {
    if ('send' in happening) {
      const { send: tool, args = {}, result, at, by } = happening;
      const isSent = ownMember(set.outside ?? {}, tool) !== undefined;
      const known = { args, result, isSent, by, claims: undefined };
      const sent = { tool, ...known, outcome: 'succeeded', claimedAt: at, decidedAt: at };
      const own = { index, idempotencyKey: undefined, isInvalid: false };
      const fact = { ...sent, ...own, usedBy: [], undoneBy: [] } as Fact;
      facts = [...undo(set, facts, fact), mayBeUndone(set, facts, fact)];
      return;
    }
    const { tool, args, outcome, claimedAt, decidedAt, idempotencyKey, seen } = happening;
    const isDecided = outcome !== 'unknown';
    const { caller, claims } = happening;
    const call = {
      ...{ tool, args, at: claimedAt },
      ...(idempotencyKey && { idempotencyKey }),
      ...(caller && { caller }),
      ...(claims !== undefined && { claims }),
    };
    // Another try with the same key is the same use, so it takes the place of the undecided one.
    const tries = facts.filter((fact) => isItself(fact, call));
    facts = withoutItself(facts, call);

    const found = seen === undefined ? facts : factsOf(set, history.slice(0, seen));
    const { under = set } = happening;
    const asked = { set: under, facts: withoutItself(found, call), call };
    const taken = takenBy(ownMember(under.rules, tool) ?? {}, asked) ?? [];
    const used = taken.filter((each) => outcome !== 'failed' || each.evenByFailure);
    const mark = { by: index, isCertain: isDecided };
    facts = facts.map((fact) =>
      used.some((each) => each.fact.index === fact.index)
        ? { ...fact, usedBy: [...fact.usedBy, mark] }
        : fact,
    );
    const fact: Fact = {
      index,
      tool,
      outcome,
      isInvalid: happening.invalid === true,
      claimedAt,
      decidedAt: isDecided ? (decidedAt ?? claimedAt) : undefined,
      idempotencyKey,
      args,
      result: isDecided ? happening.result : undefined,
      isSent: false,
      by: undefined,
      claims: happening.claims,
      usedBy: tries.flatMap((each) => each.usedBy),
      undoneBy: [],
    };
    facts = [...undo(under, facts, fact), mayBeUndone(under, facts, fact)];
  });
  return facts;
}

function undo(set: RuleSet, facts: readonly Fact[], by: Fact): Fact[] {
  if (by.outcome === 'failed') return [...facts];
  return facts.map((fact) => {
    const isUndone = listOf(ownMember(set.rules, fact.tool)?.undoneBy).includes(by.tool);
    if (!isUndone || fact.outcome === 'failed') return fact;
    const isCertain = by.outcome === 'succeeded' && fact.outcome === 'succeeded';
    return { ...fact, undoneBy: [...fact.undoneBy, { by: by.index, isCertain }] };
  });
}

/** By the clock, an undecided call may have come after a success that the store learnt later. */
function mayBeUndone(set: RuleSet, facts: readonly Fact[], fact: Fact): Fact {
  const undoers = listOf(ownMember(set.rules, fact.tool)?.undoneBy);
  const later = facts.filter(
    (each) =>
      each.outcome === 'unknown' &&
      undoers.includes(each.tool) &&
      fact.decidedAt !== undefined &&
      each.claimedAt >= fact.decidedAt,
  );
  const marks = later.map(({ index }): Mark => ({ by: index, isCertain: false }));
  return fact.outcome === 'failed' ? fact : { ...fact, undoneBy: [...fact.undoneBy, ...marks] };
}

/** An undecided try of this very call. A key belongs to one tool. */
function isItself(fact: Fact, call: NextCall): boolean {
  return (
    fact.outcome === 'unknown' &&
    fact.tool === call.tool &&
    call.idempotencyKey !== undefined &&
    fact.idempotencyKey === call.idempotencyKey
  );
}

/** The facts without this very call, and without what it may have used or undone. */
function withoutItself(facts: readonly Fact[], call: NextCall): Fact[] {
  const itself = facts.filter((fact) => isItself(fact, call)).map(({ index }) => index);
  const others = (marks: readonly Mark[]) => marks.filter(({ by }) => !itself.includes(by));
  return facts
    .filter(({ index }) => !itself.includes(index))
    .map((fact) => ({ ...fact, usedBy: others(fact.usedBy), undoneBy: others(fact.undoneBy) }));
}

/** For `once`: an undecided call may be a success. */
function isLiveSuccess(fact: Fact): boolean {
  return fact.outcome !== 'failed' && !isCertainly(fact.undoneBy) && !isCertainly(fact.usedBy);
}

// What one call asks.

interface Asked {
  readonly set: RuleSet;
  readonly facts: readonly Fact[];
  readonly call: NextCall;
}

/** Whether some part of the rule cannot be asked with these arguments. */
function faultsInArguments(rule: Rule, { set, call }: Asked): boolean {
  const { args } = call;
  const inRequirement = (requirement: Requirement): boolean => {
    const part = typeof requirement === 'string' ? leafOf(requirement) : requirement;
    const when = whenOf(part, call);
    if (when === undefined) return true;
    // What is left out asks nothing of the call, nor do its parts.
    if (!when) return false;
    if ('need' in part) return needOf(set, part.need).some(inRequirement);
    if ('all' in part) return part.all.some(inRequirement);
    if ('any' in part) return part.any.some(inRequirement);
    return (
      pairsOf(part.same).some(([own]) => isUnusable(readPath(args, own))) ||
      Object.entries(part.atMost ?? {}).some(
        ([own, most]) => ownAmount(args, own, most) === undefined,
      )
    );
  };
  const inSame = (same: Leaf['same']): boolean =>
    pairsOf(same).some(([own]) => {
      const value = readPath(args, own);
      return value === undefined || isUnusable(value);
    });
  return (
    listOf(rule.after).some(inRequirement) ||
    listOf(rule.notAfter)
      .map(leafOf)
      .some((leaf) => {
        const when = whenOf(leaf, call);
        return when === undefined || (when && inSame(leaf.same));
      }) ||
    limitsOn(set, rule, call.tool).some(({ judged, keys, limit }) => {
      const when = whenOf(judged, call);
      if (when === undefined) return true;
      if (!when) return false;
      const values = keys.map(([name]) => readPath(args, pathIn(judged, name)));
      if (values.some((value) => value === undefined || isUnusable(value))) return true;
      return limit.sum !== undefined && amountOfMember(limit, judged, args) === undefined;
    })
  );
}

interface About {
  readonly when?: Condition;
  readonly whenCaller?: Condition;
}

/** Whether a part of a rule is about a call. */
function whenOf({ when, whenCaller }: About, { args, claims }: Pick<NextCall, 'args' | 'claims'>) {
  return and([
    when === undefined || holds(when, args, 'args'),
    whenCaller === undefined || holds(whenCaller, claims, 'result'),
  ]);
}

interface Taken {
  readonly fact: Fact;
  /** `consumes: 'calls'`. */
  readonly evenByFailure: boolean;
}

/** A requirement that uses facts up: so many of these, the oldest first. */
interface Want {
  readonly times: number;
  readonly facts: readonly Fact[];
  /** No two facts of it may have the same. */
  readonly valueIn: ((fact: Fact) => Json | undefined) | undefined;
  readonly evenByFailure: boolean;
}

type Wanted =
  | 'met'
  | 'unmet'
  | 'left out'
  | { readonly want: readonly Want[] }
  | { readonly all: readonly Wanted[] }
  | { readonly any: readonly Wanted[] };

/** What a call would use up; `undefined` where something is missing. */
function takenBy(rule: Rule, asked: Asked): readonly Taken[] | undefined {
  const wanted = wantedBy({ all: listOf(rule.after) }, asked);
  if (wanted === 'left out') return [];
  for (const way of waysOf(wanted)) {
    const taken = shared(way);
    if (taken !== undefined) return withAlternatives(wanted, way, taken);
  }
  return undefined;
}

function wantedBy(requirement: Requirement, asked: Asked): Wanted {
  const part = typeof requirement === 'string' ? leafOf(requirement) : requirement;
  if (whenOf(part, asked.call) === false) return 'left out';
  if ('need' in part) return wantedBy({ all: needOf(asked.set, part.need) }, asked);
  if ('any' in part) {
    const about = part.any
      .map((each) => wantedBy(each, asked))
      .filter((each) => each !== 'left out');
    if (about.length === 0) return 'left out';
    const any = about.filter((each) => each !== 'unmet');
    return any.length === 0 ? 'unmet' : { any };
  }
  if ('all' in part) {
    const all = part.all.map((each) => wantedBy(each, asked));
    if (all.includes('unmet')) return 'unmet';
    // Of which nothing is asked cannot satisfy the `any` around it.
    return all.every((each) => each === 'left out') ? 'left out' : { all };
  }
  const { times = 1, consumes = false } = part;
  const distinct = distinctOf(part);
  const facts = asked.facts
    .filter((fact) => supports(part, fact, asked.call))
    .filter((fact) => !consumes || fact.usedBy.length === 0)
    .sort(olderFirst);
  const want = { times, evenByFailure: consumes === 'calls' };
  if (distinct === undefined) {
    if (facts.length < times) return 'unmet';
    return consumes ? { want: [{ ...want, facts, valueIn: undefined }] } : 'met';
  }
  // Values of two types may be one value, so they are all of one; `null` is nobody.
  const types = new Set(facts.map((fact) => typeof (scalarAt(fact, distinct) ?? undefined)));
  types.delete('undefined');
  const enough = [...types].filter((type) => differing(facts, distinct, type).length >= times);
  if (enough.length === 0) return 'unmet';
  if (!consumes) return 'met';
  const valueIn = (fact: Fact) => scalarAt(fact, distinct);
  return {
    want: enough.map((type) => {
      const ofType = facts.filter((fact) => typeof (valueIn(fact) ?? undefined) === type);
      return { ...want, facts: ofType, valueIn };
    }),
  };
}

/** What may be wanted together: of each choice one. */
function waysOf(wanted: Wanted): (readonly Want[])[] {
  if (wanted === 'unmet') return [];
  if (typeof wanted === 'string') return [[]];
  if ('want' in wanted) return wanted.want.map((each) => [each]);
  if ('any' in wanted) return wanted.any.flatMap(waysOf);
  return wanted.all.reduce<(readonly Want[])[]>(
    (ways, each) => ways.flatMap((way) => waysOf(each).map((more) => [...way, ...more])),
    [[]],
  );
}

/** An alternative for which something is left is used up, too. */
function withAlternatives(
  wanted: Wanted,
  way: readonly Want[],
  first: readonly Taken[],
): readonly Taken[] {
  let chosen = way;
  let taken = first;
  const add = (each: Wanted): boolean => {
    if (typeof each === 'string') return each !== 'unmet';
    if ('any' in each) return each.any.map(add).includes(true);
    if ('want' in each)
      return (
        each.want.some((one) => chosen.includes(one)) ||
        each.want.some((one) => {
          const more = shared([...chosen, one]);
          if (more === undefined) return false;
          chosen = [...chosen, one];
          taken = more;
          return true;
        })
      );
    const before = { chosen, taken };
    if (each.all.every(add)) return true;
    ({ chosen, taken } = before);
    return false;
  };
  add(wanted);
  return taken;
}

/** The oldest facts that can be dealt out so that each requirement has its number. */
function shared(wants: readonly Want[]): readonly Taken[] | undefined {
  const needed = wants.reduce((all, { times }) => all + times, 0);
  let used: readonly Fact[] = [];
  for (const fact of [...new Set(wants.flatMap(({ facts }) => facts))].sort(olderFirst))
    if (dealt([...used, fact], wants) !== undefined) used = [...used, fact];
  return used.length < needed ? undefined : dealt(used, wants);
}

/** Every way is tried to give each of these facts to a requirement that has room for it. */
function dealt(
  [fact, ...others]: readonly Fact[],
  wants: readonly Want[],
  given: readonly (readonly Fact[])[] = wants.map(() => []),
): readonly Taken[] | undefined {
  if (fact === undefined)
    return wants.flatMap(({ evenByFailure }, at) =>
      (given[at] ?? []).map((each) => ({ fact: each, evenByFailure })),
    );
  for (const [at, { times, facts, valueIn }] of wants.entries()) {
    const own = given[at] ?? [];
    if (own.length === times || !facts.includes(fact)) continue;
    if (valueIn && own.some((each) => valueIn(each) === valueIn(fact))) continue;
    const all = dealt(others, wants, given.with(at, [...own, fact]));
    if (all !== undefined) return all;
  }
  return undefined;
}

const olderFirst = (one: Fact, other: Fact): number =>
  startOf(one) - startOf(other) || one.index - other.index;

/** From when on a fact is old for `after`. */
const startOf = (fact: Fact): number => fact.decidedAt ?? fact.claimedAt;

/** The first fact of each value of that type. */
function differing(facts: readonly Fact[], distinct: Distinct, type: string): Fact[] {
  const ofType = facts.filter((fact) => typeof (scalarAt(fact, distinct) ?? undefined) === type);
  return ofType.filter(
    (fact, at) =>
      !ofType.slice(0, at).some((other) => scalarAt(other, distinct) === scalarAt(fact, distinct)),
  );
}

function supports(leaf: Leaf, fact: Fact, call: NextCall): boolean {
  const { outcome = 'succeeded' } = leaf;
  const start = startOf(fact);
  // What is used up must be there: an undecided call is not, yet.
  if (leaf.consumes && fact.outcome === 'unknown') return false;
  return (
    isOf(leaf, fact) &&
    (!leaf.differs?.includes('caller') || isOther(fact.by, call.caller)) &&
    (outcome === 'any' ? !fact.isInvalid : fact.outcome === outcome) &&
    (leaf.within === undefined ||
      (start <= call.at && call.at - start < milliseconds(leaf.within))) &&
    fact.undoneBy.length === 0 &&
    (leaf.args === undefined || holds(leaf.args, fact.args, 'args') === true) &&
    (leaf.byCaller === undefined || holds(leaf.byCaller, fact.claims, 'result') === true) &&
    (leaf.result === undefined || holds(leaf.result, fact.result, 'result') === true) &&
    Object.entries(leaf.atMost ?? {}).every(([own, most]) => {
      const amount = ownAmount(call.args, own, most);
      const bound = amountAt(most, fact);
      return amount !== undefined && bound !== undefined && compare(amount, bound) <= 0;
    }) &&
    agrees(leaf.same, call.args, fact, 'every') === true
  );
}

function forbids(leaf: Leaf, { facts, call }: Asked): boolean {
  if (whenOf(leaf, call) === false) return false;
  const counting = facts.filter(
    (fact) =>
      isOf(leaf, fact) &&
      mayHaveEnded(fact, leaf.outcome) &&
      isCurrent(fact, leaf.within, call.at) &&
      !isCertainly(fact.undoneBy) &&
      (leaf.args === undefined || holds(leaf.args, fact.args, 'args') !== false) &&
      (leaf.byCaller === undefined || holds(leaf.byCaller, fact.claims, 'result') !== false) &&
      (leaf.result === undefined || holds(leaf.result, fact.result, 'result') !== false) &&
      agrees(leaf.same, call.args, fact, 'some') !== false,
  );
  const { times = 1 } = leaf;
  const distinct = distinctOf(leaf);
  if (distinct === undefined) return counting.length >= times;
  // A fact without a value may have any, so each counts as one more. So do lists and objects.
  const values = counting.map((fact) => scalarAt(fact, distinct));
  const different = values.filter(
    (value, at) =>
      value === undefined ||
      !values.slice(0, at).some((other) => other !== undefined && isSame(other, value)),
  );
  return different.length >= times;
}

/** A limit, as one of the tools has it that it is about. */
interface LimitOn {
  readonly limit: Omit<SharedLimit, 'of'>;
  readonly members: readonly LimitedTool[];
  readonly judged: LimitedTool;
  /** How the limit calls its values, and how each is spelt. */
  readonly keys: readonly Pair[];
  readonly from: number;
}

function limitsOn(set: RuleSet, rule: Rule, tool: string): readonly LimitOn[] {
  const timeOf = (from: string | undefined) => (from === undefined ? 0 : Date.parse(from));
  const own = listOf(rule.limit).map((limit): LimitOn => {
    const { when, whenCaller } = limit;
    const judged = { tool, ...(when && { when }), ...(whenCaller && { whenCaller }) };
    const from = timeOf(rule.from);
    return { limit, members: [judged], judged, keys: pairsOf(limit.same), from };
  });
  const shared = (set.limits ?? []).flatMap((limit): LimitOn[] => {
    const members = limit.of.map((each) => (typeof each === 'string' ? { tool: each } : each));
    const judged = members.find((each) => each.tool === tool);
    if (judged === undefined) return [];
    return [{ limit, members, judged, keys: pairsOf(limit.same), from: timeOf(limit.from) }];
  });
  return [...own, ...shared];
}

const pathIn = (member: LimitedTool, name: string): string =>
  ownMember(member.same ?? {}, name) ?? name;

function isReached({ limit, members, judged, keys, from }: LimitOn, asked: Asked): boolean {
  const { facts, call } = asked;
  if (whenOf(judged, call) === false) return false;
  const counting = members.flatMap((member) =>
    facts
      .filter(
        (fact) =>
          fact.tool === member.tool &&
          fact.claimedAt >= from &&
          mayHaveEnded(fact, limit.outcome) &&
          isCurrent(fact, limit.within, call.at) &&
          whenOf(member, fact) !== false &&
          keys.every(([name, spelling]) => {
            const fold = typeof spelling === 'string' ? undefined : spelling.fold;
            const there = { args: pathIn(member, name), ...(fold && { fold }) };
            return agrees({ [pathIn(judged, name)]: there }, call.args, fact, 'some') !== false;
          }),
      )
      .map((fact) => ({ member, args: fact.args })),
  );
  if (limit.times !== undefined) return counting.length + 1 > limit.times;
  let total = ZERO;
  for (const { member, args } of [...counting, { member: judged, args: call.args }]) {
    const amount = amountOfMember(limit, member, args);
    if (amount === undefined) return true;
    total = plus(total, amount);
  }
  const { max, below } = limit;
  if (typeof max === 'object') return compare(total, earned(max, judged, keys, asked)) > 0;
  if (max !== undefined) return compare(total, decimalOf(String(max))) > 0;
  return compare(total, decimalOf(String(below))) >= 0;
}

/** What is not known of an earlier call earns nothing. */
function earned(
  { sum, of, same, within }: Earned,
  judged: LimitedTool,
  keys: readonly Pair[],
  { set, facts, call }: Asked,
): Decimal {
  const isSent = ownMember(set.outside ?? {}, of) !== undefined;
  const source = isSent ? { outside: of } : { tool: of };
  const pairs = pairsOf(same).map(([name, earlier]): Pair => {
    const isNamed = keys.some(([key]) => key === name);
    return [isNamed ? pathIn(judged, name) : name, earlier];
  });
  if (pairs.some(([own]) => isUnusable(readPath(call.args, own)))) return ZERO;
  return facts
    .filter((fact) => supports({ ...source, ...(within && { within }) }, fact, call))
    .filter((fact) =>
      pairs.every(([own, there]) => agrees({ [own]: there }, call.args, fact, 'every') === true),
    )
    .reduce((all, fact) => plus(all, amountAt(sum, fact) ?? ZERO), ZERO);
}

function mayHaveEnded(fact: Fact, outcome: Leaf['outcome'] = 'succeeded'): boolean {
  return outcome === 'any' || fact.outcome === 'unknown' || fact.outcome === outcome;
}

/** An undecided call is in each window: its later time is yet to come. */
function isCurrent(fact: Fact, within: Duration | undefined, now: number): boolean {
  if (within === undefined || fact.decidedAt === undefined) return true;
  const later = Math.max(fact.claimedAt, fact.decidedAt);
  return later > now || now - later < milliseconds(within);
}

// Values that agree.

const MOST_MEMBERS = 256;

type Pair = readonly [own: string, earlier: EarlierPath];

function pairsOf(same: Leaf['same']): readonly Pair[] {
  if (same === undefined) return [];
  if (same === 'all') return [['', '']];
  if (Array.isArray(same)) return same.map((path: string): Pair => [path, path]);
  return Object.entries(same as { readonly [ownPath: string]: EarlierPath });
}

function agrees(same: Leaf['same'], args: Json, fact: Fact, how: 'every' | 'some'): Truth {
  return and(
    pairsOf(same).map(([ownPath, earlierPath]): Truth => {
      const given = readPath(args, ownPath);
      const own = spelt(given, earlierPath);
      if (own === undefined) return false;
      const earlier = spelt(earlierAt(fact, earlierPath), earlierPath);
      if (earlier === undefined || isUnusable(earlier)) return undefined;
      const isAmongEarlier = (member: Json): boolean =>
        membersOf(earlier).some((other) => isSame(member, other));
      if (how === 'every') return membersOf(own).every(isAmongEarlier);
      if (membersOf(own).some(isAmongEarlier)) return true;
      // 7 and "7" may be two spellings of one value, so their disagreement is not certain.
      const mayBeAmongEarlier = (member: Json): boolean =>
        membersOf(earlier).some((other) => mayBeSpelling(member, other));
      return membersOf(own).some(mayBeAmongEarlier) ? undefined : false;
    }),
  );
}

/** Beside `outside`, `'by'` is who sent it. */
type Distinct = EarlierPath | typeof BY;
const BY = Symbol('by');
/** One person may have names of both kinds, so the two kinds are two types of values. */
const numbered: string[] = [];
function numberOf({ issuer, subject }: Exclude<Person, string>): number {
  const text = JSON.stringify([issuer, subject]);
  if (!numbered.includes(text)) numbered.push(text);
  return numbered.indexOf(text);
}

const distinctOf = ({ outside, distinct }: Leaf): Distinct | undefined =>
  outside !== undefined && distinct === 'by' ? BY : distinct;

function earlierAt(fact: Fact, path: EarlierPath): Json | undefined {
  if (typeof path === 'string') return readPath(fact.args, path);
  if ('args' in path) return readPath(fact.args, path.args);
  return fact.result === undefined ? undefined : readPath(fact.result, path.result);
}

/** A text, or each text of a list, in the spelling that is compared. */
function spelt(value: Json | undefined, path: EarlierPath): Json | undefined {
  const { fold = [] } = typeof path === 'string' ? {} : path;
  const one = (each: Json): Json => {
    if (typeof each !== 'string') return each;
    const words = fold.includes('space') ? each.split(/\s+/).filter((word) => word !== '') : [each];
    const plain = words.join(' ');
    const composed = fold.includes('nfkc') ? plain.normalize('NFKC') : plain;
    return fold.includes('case') ? composed.toLowerCase() : composed;
  };
  if (value === undefined) return undefined;
  return Array.isArray(value) ? (value as Json[]).map(one) : one(value);
}

function scalarAt(fact: Fact, path: Distinct): Json | undefined {
  if (path === BY) return typeof fact.by === 'object' ? numberOf(fact.by) : fact.by;
  const value = spelt(earlierAt(fact, path), path);
  return typeof value === 'object' && value !== null ? undefined : value;
}

const membersOf = (value: Json): readonly Json[] =>
  Array.isArray(value) ? (value as readonly Json[]) : [value];

/** A list that says nothing, or more than is kept. */
function isUnusable(value: Json | undefined): boolean {
  return Array.isArray(value) && (value.length === 0 || value.length > MOST_MEMBERS);
}

/** Whether two values are the same JSON. The order of an object's members does not matter. */
function isSame(one: Json, other: Json): boolean {
  if (typeof one !== 'object' || typeof other !== 'object') return one === other;
  if (one === null || other === null) return one === other;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every(
      (name) => Object.hasOwn(other, name) && isSame(memberOf(one, name), memberOf(other, name)),
    )
  );
}

/** Values of two JSON types may mean the same, unless one is `null`. */
function mayBeSpelling(one: Json, other: Json): boolean {
  return one !== null && other !== null && typeOf(one) !== typeOf(other);
}

const typeOf = (value: Json): string => (Array.isArray(value) ? 'array' : typeof value);

const memberOf = (value: object, name: string): Json =>
  (value as { readonly [name: string]: Json })[name] as Json;

// Conditions. Their truth has three values; `undefined` is unknown.

type Truth = boolean | undefined;

function and(truths: readonly Truth[]): Truth {
  if (truths.includes(false)) return false;
  return truths.includes(undefined) ? undefined : true;
}

const not = (truth: Truth): Truth => (truth === undefined ? undefined : !truth);

const or = (truths: readonly Truth[]): Truth => not(and(truths.map(not)));

/** @param value `undefined`: it is not known at all, so not even what is missing in it */
function holds(condition: Condition, value: Json | undefined, of: 'args' | 'result'): Truth {
  if (value === undefined) return undefined;
  return and(
    Object.entries(condition).map(([path, member]): Truth => {
      if (path === 'not') return not(holds(member as Condition, value, of));
      if (path === 'any') return or((member as Condition[]).map((each) => holds(each, value, of)));
      const found = readPath(value, path);
      const isComparison = typeof member === 'object' && member !== null;
      const comparison = (isComparison ? member : { eq: member }) as Comparison;
      return and(
        Object.entries(comparison).map(([operator, operand]) =>
          compares(operator as keyof Comparison, operand, found, of),
        ),
      );
    }),
  );
}

function compares(
  operator: keyof Comparison,
  operand: unknown,
  found: Json | undefined,
  of: 'args' | 'result',
): Truth {
  switch (operator) {
    case 'exists':
      return (found !== undefined) === operand;
    case 'ne':
      return found === undefined ? true : not(equals(found, operand as Scalar, of));
    case 'eq':
      return equals(found, operand as Scalar, of);
    case 'in':
      return or((operand as readonly Scalar[]).map((each) => equals(found, each, of)));
    default: {
      if (typeof found !== 'number') return undefined;
      const bound = operand as number;
      const order = { gt: found > bound, gte: found >= bound, lt: found < bound };
      return operator === 'lte' ? found <= bound : order[operator];
    }
  }
}

/** Of arguments `null` is unknown: many servers take it for a default. */
function equals(found: Json | undefined, scalar: Scalar, of: 'args' | 'result'): Truth {
  if (found === undefined) return undefined;
  if (scalar === null) return found === null;
  if (found === null) return of === 'args' ? undefined : false;
  return typeof found === typeof scalar ? found === scalar : undefined;
}

/** `undefined`: nothing is there. */
function readPath(value: Json, path: string): Json | undefined {
  if (path === '') return value;
  const names = path.startsWith('/')
    ? path
        .slice(1)
        .split('/')
        .map((name) => name.replace(/~[01]/g, (escaped) => (escaped === '~1' ? '/' : '~')))
    : path.split('.');
  let found: Json = value;
  for (const name of names) {
    if (typeof found !== 'object' || found === null) return undefined;
    if (Array.isArray(found) && String(Number.parseInt(name, 10)) !== name) return undefined;
    if (!Object.hasOwn(found, name)) return undefined;
    found = memberOf(found, name);
  }
  return found;
}

// Amounts: so many units of the last decimal place.

export interface Decimal {
  readonly units: bigint;
  readonly places: number;
}

const MOST_DIGITS = 34;
const LARGEST: Decimal = { units: 2n ** 53n, places: 0 };

const ZERO: Decimal = { units: 0n, places: 0 };

function amountOfMember(limit: Omit<SharedLimit, 'of'>, member: LimitedTool, args: Json) {
  const sum = typeof limit.sum === 'object' ? limit.sum : { path: limit.sum ?? '' };
  const { text = sum.text, scale } = member;
  const read = { ...sum, path: member.sum ?? sum.path, ...(text !== undefined && { text }) };
  return scaled(amountOf(read, args), scale);
}

function ownAmount(args: Json, path: string, most: EarlierAmount): Decimal | undefined {
  const { text = false, negative = false } = typeof most === 'string' ? {} : most;
  return amountOf({ path, text, negative }, args);
}

function amountAt(where: EarlierAmount, { args, result }: Fact): Decimal | undefined {
  if (typeof where === 'string') return amountOf({ path: where }, args);
  const { text = false, negative = false, scale } = where;
  const path = where.args ?? where.result ?? '';
  const from = where.args === undefined ? result : args;
  return from === undefined ? undefined : scaled(amountOf({ path, text, negative }, from), scale);
}

function scaled(amount: Decimal | undefined, scale: string | undefined): Decimal | undefined {
  if (amount === undefined || scale === undefined) return amount;
  const { units, places } = decimalOf(scale);
  return { units: amount.units * units, places: amount.places + places };
}

/** `undefined`: no amount that could be added exactly. */
function amountOf(
  sum: { readonly path: string; readonly text?: boolean; readonly negative?: boolean },
  args: Json,
): Decimal | undefined {
  const { path, text = false, negative = false } = sum;
  const given = readPath(args, path);
  const isBelow =
    negative && (typeof given === 'number' ? given < 0 : String(given).startsWith('-'));
  const size = typeof given === 'number' ? -given : String(given).slice(1);
  const amount = amountOfSize(isBelow ? size : given, text);
  return isBelow && amount ? { ...amount, units: -amount.units } : amount;
}

function amountOfSize(found: Json | undefined, text: boolean): Decimal | undefined {
  const isNumber = typeof found === 'number' && Number.isFinite(found) && found >= 0;
  // Servers differ about anything but these texts, for example about "1e3", " 1" and "010".
  const isText = text && typeof found === 'string' && /^(0|[1-9]\d*)(\.\d+)?$/.test(found);
  if (!isNumber && !isText) return undefined;
  const amount = decimalOf(String(found));
  const digits = Math.max(String(amount.units).length, amount.places);
  return digits > MOST_DIGITS || compare(amount, LARGEST) > 0 ? undefined : amount;
}

/** @param text as JavaScript prints a number, or a decimal text */
export function decimalOf(text: string): Decimal {
  const [significand = '', exponent = '0'] = text.split('e');
  const [whole = '', fraction = ''] = significand.split('.');
  const units = BigInt(whole + fraction);
  const places = fraction.length - Number(exponent);
  return places < 0 ? { units: units * 10n ** BigInt(-places), places: 0 } : { units, places };
}

const unitsAt = ({ units, places }: Decimal, more: number): bigint =>
  units * 10n ** BigInt(more - places);

export function plus(one: Decimal, other: Decimal): Decimal {
  const places = Math.max(one.places, other.places);
  return { units: unitsAt(one, places) + unitsAt(other, places), places };
}

export function compare(one: Decimal, other: Decimal): number {
  const places = Math.max(one.places, other.places);
  const difference = unitsAt(one, places) - unitsAt(other, places);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

// What may be written in two ways.

function listOf<T>(many: Many<T> | undefined): readonly T[] {
  if (many === undefined) return [];
  return Array.isArray(many) ? (many as readonly T[]) : [many as T];
}

/** Whether a fact is of the tool, or of what comes from outside: no tool is both. */
const isOf = ({ tool, outside }: Leaf, fact: Fact): boolean =>
  outside === undefined ? !fact.isSent && fact.tool === tool : fact.isSent && fact.tool === outside;

/** Whether they are certainly two people: of two kinds of names, nobody knows. */
function isOther(one: Person | undefined, other: Person | undefined): boolean {
  if (one === undefined || other === undefined) return false;
  if (typeof one !== typeof other) return false;
  return !isSame(one as Json, other as Json);
}

const leafOf = (leaf: string | Leaf): Leaf => (typeof leaf === 'string' ? { tool: leaf } : leaf);

const needOf = (set: RuleSet, name: string): readonly Requirement[] =>
  listOf(ownMember(set.needs ?? {}, name));

function ownMember<T>(table: { readonly [name: string]: T }, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

export function milliseconds(duration: Duration): number {
  if (typeof duration === 'number') return duration;
  const [, count, unit] = /^(\d+)(ms|s|m|h|d)$/.exec(duration) ?? [];
  if (unit === undefined) throw new RangeError(`${duration} is no duration`);
  return Number(count) * UNITS[unit as keyof typeof UNITS];
}
