import type {
  ForwardedCall,
  NextCall,
  OutsideEvent,
  Person,
  RuleSet,
  RulesHistory,
} from '../../lab/checker/rules.ts';
import type { JudgeOfGate } from '../../lab/checker/rules-compare.ts';
import { principalText } from '../../src/basics/names.ts';
import { StateMachineGate } from '../../src/index.ts';
import { readerBy, readerOf } from '../../src/workflow/condition.ts';
import { type Decided, NOTHING, type Noted, type Used, usedBy } from '../../src/workflow/facts.ts';
import { callWith } from '../../src/workflow/own-call.ts';
import type { Position } from '../../src/workflow/position.ts';
import type { UnknownGrant, Verdict } from '../../src/workflow/verdict.ts';
import type { Workflow } from '../../src/workflow/workflow.ts';

const SALT = 'a run';

const compiled = new WeakMap<RuleSet, Workflow>();

/** @throws InterlockError where the rules are wrong */
export function workflowOf(set: RuleSet): Workflow {
  const known = compiled.get(set);
  if (known !== undefined) return known;
  const workflow = compile(set);
  compiled.set(set, workflow);
  return workflow;
}

function compile(set: RuleSet): Workflow {
  return gateOf(set).compile();
}

export function gateOf(set: RuleSet): StateMachineGate<string, string> {
  const { rules, ...options } = set as never as { rules: never; needs: never };
  return StateMachineGate.fromOrder(rules, { id: 'rules', ...options });
}

/** Whether a gate takes the rules: it refuses those by which some tool can never be called. */
export function isSound(set: RuleSet): boolean {
  try {
    return workflowOf(set) !== undefined;
  } catch (error) {
    if (/can never be called|cannot be after itself/.test(String(error))) return false;
    throw error;
  }
}

/** Where a gate's run stands at a call; `undefined` where it takes no such rules. */
export function standingAt(
  set: RuleSet,
  history: RulesHistory,
  call: NextCall,
): { readonly workflow: Workflow; readonly position: Position } | undefined {
  if (!isSound(set)) return undefined;
  const workflow = workflowOf(set);
  const past = playedOf(workflow, history);
  const last = past.positions.at(-1) ?? workflow.start;
  const unknown = unknownIn(past, history.length, call);
  return { workflow, position: workflow.rules.standAt(last, call.at, unknown) };
}

function playedOf(workflow: Workflow, history: RulesHistory): Played {
  const past: Played = { workflow, positions: [workflow.start], history, grants: [] };
  const { positions } = past;
  for (const [i, each] of history.entries()) {
    const before = positions[i] as Position;
    positions.push('send' in each ? sent(workflow, before, each) : ended(past, i));
  }
  return past;
}

/** The gate's own judgement of a call after a history, by its pure functions. */
export const judgeOfGate: JudgeOfGate = (set, history, call) => {
  if (!isSound(set)) return undefined;
  const workflow = workflowOf(set);
  const past = playedOf(workflow, history);
  const { positions } = past;
  if (isForgotten(workflow, positions, history, call)) return undefined;
  // Another process judges the call, from what the store has.
  const last: Position = JSON.parse(JSON.stringify(positions[history.length]));
  const { isAllowed, verdict } = asked(
    compile(set),
    last,
    unknownIn(past, history.length, call),
    call,
  );
  if (verdict?.allows === false && verdict.reason === 'arguments') return { verdict: 'arguments' };
  if (!isAllowed) return { verdict: 'order' };
  if (verdict === undefined) return { verdict: 'allowed', uses: [] };
  if (!verdict.allows) return { verdict: verdict.reason };
  return { verdict: 'allowed', uses: verdict.uses.map(([, id]) => indexOf(past, id)) };
};

/** A history as a gate has it. */
interface Played {
  readonly workflow: Workflow;
  /** Before each happening, and after the last one. */
  readonly positions: Position[];
  readonly history: RulesHistory;
  /** What each call was granted at its claim, as it was saved with that. */
  readonly grants: (readonly Used[])[];
}

/**
 * Whether the clock was set back behind a time at which a run forgot what no window counted any
 * more. The evaluator forgets nothing.
 */
function isForgotten(
  workflow: Workflow,
  positions: readonly Position[],
  history: RulesHistory,
  call: NextCall,
): boolean {
  const { ledger } = workflow.rules;
  const countOf = (position: Position | undefined): number =>
    [...(ledger?.read(position ?? {}).tools.values() ?? [])].reduce(
      (all, { facts }) => all + facts.length,
      0,
    );
  const timesOf = (each: RulesHistory[number]): readonly number[] =>
    'send' in each ? [each.at] : [each.claimedAt, each.decidedAt ?? each.claimedAt];
  return history.some((each, i) => {
    const at = Math.max(...timesOf(each));
    const later = [...history.slice(i + 1).flatMap(timesOf), call.at];
    return countOf(positions[i + 1]) <= countOf(positions[i]) && later.some((time) => time < at);
  });
}

function asked(
  workflow: Workflow,
  found: Position,
  unknown: readonly UnknownGrant[],
  { tool, args, at, caller, claims }: Omit<NextCall, 'idempotencyKey'>,
): { isAllowed: boolean; verdict: Verdict | undefined } {
  const position = workflow.rules.standAt(found, at, unknown);
  const binding = workflow.match(tool, args);
  if (binding === undefined) return { isAllowed: true, verdict: undefined };
  const past = workflow.rules.pastOf(position, at, unknown);
  const verdict = workflow.rules.judge(
    binding,
    past,
    callWith(readerBy(readerOf(args), claims), SALT, textOf(caller)),
  );
  const isAllowed = workflow.allows(position.state, binding);
  // A list shows what some call may do.
  if (isAllowed && verdict?.allows !== false && workflow.rules.spentTools(past).has(tool))
    throw new Error(`a list hides ${tool}, though this call is allowed`);
  if (!isAllowed && verdict?.allows === true)
    throw new Error(`the state closes ${tool}, and its rules allow this call`);
  return { isAllowed, verdict };
}

function sent(
  workflow: Workflow,
  before: Position,
  { send, args, result, at, by }: OutsideEvent,
): Position {
  const told = { args: args as never, result: result as never, by };
  const call = workflow.rules.reportedCall(send, SALT, at, told);
  return workflow.next(workflow.rules.standAt(before, at), send, undefined, call).position;
}

const textOf = (person: Person | undefined): string | undefined => person && principalText(person);

function noteOf(
  workflow: Workflow,
  { tool, args, claims }: Pick<ForwardedCall, 'tool' | 'args' | 'claims'>,
): Noted {
  const { ledger } = workflow.rules;
  if (ledger === undefined) return NOTHING;
  const read = readerBy(readerOf(args), claims);
  return ledger.note(tool, 'args', read, SALT);
}

/** The position after a call has ended: it made its move from where it stands by then. */
function ended(past: Played, index: number): Position {
  const { workflow, positions, history } = past;
  const before = positions[index] as Position;
  const call = history[index] as ForwardedCall;
  const { tool, args, result, outcome, claimedAt, decidedAt = claimedAt, seen = index } = call;
  const isInvalid = call.invalid === true;
  const found = positions[seen] as Position;
  const { idempotencyKey, caller, claims } = call;
  const at = { tool, args, at: claimedAt, idempotencyKey, caller, claims };
  const unknown = unknownIn(past, seen, at);
  const { verdict } = asked(workflow, found, unknown, at);
  const uses = verdict?.allows === true ? verdict.uses : [];
  past.grants[index] = uses;
  if (outcome === 'unknown') return before;
  const { ledger } = workflow.rules;
  const read = result === undefined ? undefined : readerOf(result);
  const noted = noteOf(workflow, call);
  const decided: Decided = {
    tool,
    outcome,
    isInvalid,
    claimedAt,
    decidedAt,
    noted: ledger?.note(tool, 'result', read, SALT, noted) ?? NOTHING,
    uses: usedBy(outcome, uses),
  };
  const stands = workflow.rules.standAt(before, decidedAt);
  if (outcome === 'succeeded') return workflow.next(stands, tool, undefined, decided).position;
  const isAsked =
    usedBy('failed', uses).length > 0 || ledger?.keepsFailures(tool, ledger.read(stands)) === true;
  return isAsked ? workflow.rules.decided(stands, decided) : before;
}

/** The calls whose outcome is unknown after so many happenings, but for the very call. */
function unknownIn(
  { workflow, history: all, grants }: Played,
  count: number,
  own: { readonly tool: string; readonly idempotencyKey?: string | undefined },
): readonly UnknownGrant[] {
  const history = all.slice(0, count);
  const isThis = (one: ForwardedCall, tool: string, key: string | undefined): boolean =>
    one.tool === tool && key !== undefined && one.idempotencyKey === key;
  return history.flatMap((each, i): UnknownGrant[] => {
    if ('send' in each || each.outcome !== 'unknown') return [];
    const { tool, claimedAt, idempotencyKey = '' } = each;
    if (isThis(each, own.tool, own.idempotencyKey)) return [];
    const isReplaced = history
      .slice(i + 1)
      .some((later) => !('send' in later) && isThis(later, tool, each.idempotencyKey));
    if (isReplaced) return [];
    return [
      {
        tool,
        claimedAt,
        idempotencyKey,
        noted: noteOf(workflow, each),
        uses: grants[i] ?? [],
        undoes: workflow.rules.undoneBy(tool),
      },
    ];
  });
}

/** Which happening made a fact: the first after which the run has its id. */
function indexOf({ workflow, positions }: Played, id: number): number {
  const nextId = (position: Position): number => workflow.rules.ledger?.read(position).nextId ?? 1;
  return positions.findIndex((each) => nextId(each) > id) - 1;
}
