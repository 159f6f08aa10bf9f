import {
  type ForwardedCall,
  judge,
  type NextCall,
  type RuleSet,
  type RulesHistory,
  type Verdict,
} from './rules.ts';
import { type RulesCase, randomCases } from './rules-random.ts';

/** What the gate says of a call. `undefined`: it would not ask the rules, so skip the case. */
export type JudgeOfGate = (
  rules: RuleSet,
  history: RulesHistory,
  call: NextCall,
) => Verdict | undefined;

export interface Disagreement {
  readonly seed: number;
  /** Which of the seed's cases it was. */
  readonly number: number;
  readonly wanted: Verdict;
  /** A verdict, or the error that the gate threw. */
  readonly got: Verdict | { readonly error: string };
  /** The case in JSON, as small as it was made: `JSON.parse` gives a `RulesCase`. */
  readonly json: string;
}

export interface RulesComparison {
  readonly compared: number;
  /** How often each verdict was wanted. */
  readonly verdicts: Readonly<Record<string, number>>;
  readonly disagreements: readonly Disagreement[];
}

/**
 * Asks the gate and the evaluator the same.
 *
 * @param count how many cases of each seed
 * @param most disagreements to look for, since each one is made small
 */
export function compareRules(options: {
  readonly seeds: readonly number[];
  readonly count: number;
  readonly judgeOfGate: JudgeOfGate;
  readonly most?: number;
}): RulesComparison {
  const { seeds, count, judgeOfGate, most = 10 } = options;
  const verdicts: Record<string, number> = {};
  const disagreements: Disagreement[] = [];
  let compared = 0;
  for (const seed of seeds) {
    let number = 0;
    for (const { wanted, ...each } of randomCases(seed, true)) {
      if (number === count || disagreements.length === most) break;
      number += 1;
      const got = answerOf(judgeOfGate, each);
      if (got === undefined) continue;
      compared += 1;
      verdicts[wanted.verdict] = (verdicts[wanted.verdict] ?? 0) + 1;
      if (isSameVerdict(wanted, got)) continue;
      const small = shrink(each, (other) => {
        const answer = answerOf(judgeOfGate, other);
        // A smaller case that a gate does not take is no smaller form of this one.
        const isOther = answer !== undefined && 'error' in answer && !isSameError(answer, got);
        return answer !== undefined && !isOther && !isSameVerdict(judgeCase(other), answer);
      });
      disagreements.push({
        seed,
        number,
        wanted: judgeCase(small),
        got: answerOf(judgeOfGate, small) as Disagreement['got'],
        json: JSON.stringify(small),
      });
    }
  }
  return { compared, verdicts, disagreements };
}

function isSameError(one: { readonly error: string }, other: Disagreement['got']): boolean {
  return 'error' in other && one.error === other.error;
}

const judgeCase = ({ rules, history, call }: RulesCase): Verdict => judge(rules, history, call);

function answerOf(judgeOfGate: JudgeOfGate, { rules, history, call }: RulesCase) {
  try {
    return judgeOfGate(rules, history, call);
  } catch (error) {
    return { error: String(error) };
  }
}

function isSameVerdict(wanted: Verdict, got: Disagreement['got']): boolean {
  if ('error' in got || wanted.verdict !== got.verdict) return false;
  if (wanted.verdict !== 'allowed' || got.verdict !== 'allowed') return true;
  const sorted = [...got.uses].sort((one, other) => one - other);
  return JSON.stringify(wanted.uses) === JSON.stringify(sorted);
}

/**
 * Leaves out what it can: happenings, parts of rules, members of arguments and results.
 *
 * @param isWrong whether the gate and the evaluator still disagree about a smaller case
 */
export function shrink(found: RulesCase, isWrong: (smaller: RulesCase) => boolean): RulesCase {
  // A gate takes no rules of which a part that others need is left out.
  const isStillWrong = (smaller: RulesCase): boolean => {
    try {
      return isWrong(smaller);
    } catch {
      return false;
    }
  };
  let small = found;
  for (;;) {
    const next = smallerOnes(small).find((each) => isPossible(each) && isStillWrong(each));
    if (next === undefined) return small;
    small = next;
  }
}

/** Whether each call of the history was one that the rules allowed. */
export function isPossible({ rules, history }: RulesCase): boolean {
  return history.every((happening, index) => {
    if ('send' in happening) return true;
    const { tool, args, claimedAt: at, idempotencyKey, caller, claims, seen = index } = happening;
    const key = idempotencyKey && { idempotencyKey };
    const call = { tool, args, at, ...key, ...(caller && { caller }), ...(claims && { claims }) };
    return judge(rules, history.slice(0, seen), call).verdict === 'allowed';
  });
}

function smallerOnes({ rules, history, call }: RulesCase): RulesCase[] {
  const withoutHappenings = history.map((_, left) => ({
    rules,
    call,
    history: history
      .filter((_, index) => index !== left)
      .map((each) => ('send' in each ? each : seenWithout(each, left))),
  }));
  const withoutParts = lesserRules(rules).map((less) => ({ rules: less, history, call }));
  const withoutArguments = withoutOneMember(call.args).map((args) => ({
    rules,
    history,
    call: { ...call, args },
  }));
  const withoutValues = history.flatMap((each, index) =>
    (['args', 'result'] as const).flatMap((name) =>
      withoutOneMember(each[name] ?? null).map((less) => ({
        rules,
        call,
        history: history.with(index, { ...each, [name]: less }),
      })),
    ),
  );
  return [...withoutHappenings, ...withoutParts, ...withoutArguments, ...withoutValues];
}

function seenWithout(call: ForwardedCall, left: number): ForwardedCall {
  return call.seen !== undefined && call.seen > left ? { ...call, seen: call.seen - 1 } : call;
}

/** What a rule, a requirement and a limit are complete without. */
const OF_A_RULE = ['limits', 'caller', 'after', 'notAfter', 'limit', 'undoneBy', 'once', 'from'];
const OF_A_PART = [
  'within',
  'same',
  'when',
  'args',
  'result',
  'outcome',
  'distinct',
  'consumes',
  'differs',
  'atMost',
];
const KINDS = ['tool', 'outside', 'need', 'all', 'any', 'times', 'sum'];

/** The rules with one part less, at any depth. All tools and needs stay, since others name them. */
function lesserRules(part: RuleSet): RuleSet[] {
  const lesser = (value: unknown): unknown[] => {
    if (typeof value !== 'object' || value === null) return [];
    if (Array.isArray(value)) {
      const shorter = value.length > 1 ? value.map((_, left) => value.toSpliced(left, 1)) : [];
      const milder = value.flatMap((item, at) => lesser(item).map((less) => value.with(at, less)));
      return [...shorter, ...milder];
    }
    const { all, any } = value as { all?: unknown[]; any?: unknown[] };
    const isPart = KINDS.some((kind) => kind in value);
    const members = Object.entries(value).flatMap(([name, member]) => {
      const { [name]: _, ...rest } = value as Record<string, unknown>;
      const isOptional = OF_A_RULE.includes(name) || (isPart && OF_A_PART.includes(name));
      const milder = lesser(member).map((less) => ({ ...value, [name]: less }));
      return isOptional ? [rest, ...milder] : milder;
    });
    return [...(all ?? any ?? []), ...members];
  };
  return lesser(part) as RuleSet[];
}

/** The table without one member, or with one item less in a member that is a list. */
function withoutOneMember<T>(table: T): T[] {
  if (typeof table !== 'object' || table === null || Array.isArray(table)) return [];
  return Object.entries(table).flatMap(([name, member]) => {
    const { [name]: _, ...rest } = table as Record<string, unknown>;
    const lists =
      Array.isArray(member) && member.length > 1
        ? member.map((_, left) => ({ ...table, [name]: member.filter((_, at) => at !== left) }))
        : [];
    return [rest as T, ...lists];
  });
}
