/**
 * What a run allows where it stands: a call, a tool in a list, a prompt, a resource, a move from
 * outside. Hides which reason comes first: that is the order of one table.
 */
import type { RefusalReason } from '../basics/reasons.ts';
import type { NoRun } from '../session/run-key.ts';
import type { Refused, Step } from '../step/step.ts';
import { isPromise, type MaybePromise } from '../wire/task-line.ts';
import type { ReadRefusalReason } from '../workflow/advice.ts';
import type { BoundTool } from '../workflow/bound-tools.ts';
import type { Count } from '../workflow/loop-shield.ts';
import type { BoundRead } from '../workflow/reads.ts';
import type { Part } from '../workflow/verdict.ts';
import type { Enforced } from './mode.ts';
import { type Absent, type Standing, stopIn } from './standing.ts';

/** Why a call does not go on, and where its run stands, as far as that is known. */
export interface RefusedAt extends Refused {
  readonly standing?: Standing | undefined;
  /** The state that the run has left for this call, because its deadline has passed. */
  readonly left?: string | undefined;
  /** The parts of the tool's rules that refuse it. */
  readonly parts?: readonly Part[] | undefined;
}

/** What a run is asked. A question without a tool is about prompts, resources or a move. */
export interface Question {
  readonly tool?: string | undefined;
  /** Of a call with its arguments. Absent: any call of the tool, as lists and explanations ask. */
  readonly binding?: BoundTool | undefined;
  /** As {@link binding}, before the request is known to name a run and one of its bindings. */
  readonly matched?: BoundTool | 'failed' | undefined;
  /** Why no run is named. */
  readonly unnamed?: NoRun | undefined;
  /** What the request itself says against it: `src/gate/consult.ts`. */
  unclear?(): RefusedAt | undefined;
  note?(): RefusedAt | undefined;
  /** What is bound of a prompt or a resource: all of it must allow it. */
  readonly reads?: readonly BoundRead[];
  /** Why the tool's rules refuse the call. */
  ruled?(standing: Standing): RefusedAt | undefined;
  /** What is unclear of the arguments that its events read. */
  unforeseen?(standing: Standing): RefusedAt | undefined;
  /** The loop shield's count of it. */
  readonly count?: Pick<Count, 'isLoop'>;
  /** Whether the store has no room for the key of one more step of unknown outcome. */
  readonly isOutOfKeys?: boolean;
  /** Whether its client waits no more, or it has taken too long. */
  readonly client?: { readonly cancelled: boolean };
  readonly step?: { readonly overran: boolean };
}

/**
 * On what a row depends. Who asks names those that are known by then:
 * - `request`: what the request itself says
 * - `run`: whether there is a run, and whether operators have stopped it
 * - `operators`: what operators have stopped of all runs
 * - `turn`, `held`: the step that is under way, or whose outcome is unknown
 * - `state`: the run's state, and what its client sees there
 * - `keys`: whether the store has room for one more step of unknown outcome
 * - `rules`, `events`: the call's arguments, as rules and the events of its outcomes read them
 * - `shield`: how often the call came
 * - `machine`: the machine's own guards
 * - `client`: whether it is still worth while
 */
export type Source =
  | ('request' | 'run' | 'operators' | 'turn' | 'held' | 'state' | 'keys')
  | ('rules' | 'events' | 'shield' | 'machine' | 'client');

/** One way to refuse. */
interface Row {
  /** The reasons that it gives. */
  readonly reasons: readonly Refused['reason'][];
  readonly from: Source;
  /** `true`: for its one reason. Absent: the run cannot be asked at all, for that reason. */
  readonly when?: (at: Standing, asked: Question) => boolean | RefusedAt | undefined;
}

/** Every reason against what a run is asked. Of several, the first one counts. */
export const ROWS: readonly Row[] = [
  { reasons: ['arguments'], from: 'request', when: (_, asked) => asked.unclear?.() },
  { reasons: ['unavailable'], from: 'request', when: (_, { matched }) => matched === 'failed' },
  {
    reasons: ['no-run'],
    from: 'request',
    when: (_, { matched, unnamed }) =>
      matched && unnamed && { reason: 'no-run', words: unnamed.advice },
  },
  {
    reasons: ['unavailable', 'arguments'],
    from: 'request',
    when: (_, asked) => (asked.matched ? asked.note?.() : undefined),
  },
  { reasons: ['unknown'], from: 'run' },
  { reasons: ['unavailable'], from: 'run' },
  { reasons: ['unreadable'], from: 'run' },
  { reasons: ['frozen'], from: 'run', when: ({ stopped }) => stopped !== undefined },
  {
    reasons: ['unavailable', 'frozen'],
    from: 'operators',
    when: ({ said, workflow }, { tool }) => stopIn(said, workflow, tool),
  },
  {
    reasons: ['busy'],
    from: 'turn',
    when: (at, asked) => at.underWay === 'running' && needsClaim(at, asked),
  },
  {
    reasons: ['held'],
    from: 'held',
    when: (at, asked) => at.underWay === 'held' && needsClaim(at, asked) && !isOpenHeld(at, asked),
  },
  { reasons: ['state'], from: 'state', when: isClosedByState },
  { reasons: ['too-many-held'], from: 'keys', when: (_, { isOutOfKeys }) => isOutOfKeys },
  { reasons: ['arguments', 'guard', 'limit'], from: 'rules', when: refusedByRules },
  { reasons: ['arguments'], from: 'events', when: (at, asked) => asked.unforeseen?.(at) },
  { reasons: ['loop'], from: 'shield', when: (_, { count }) => count?.isLoop },
  { reasons: ['guard'], from: 'machine', when: isStoppedByMachine },
  { reasons: ['cancelled'], from: 'client', when: (_, { client }) => client?.cancelled },
  { reasons: ['unavailable'], from: 'client', when: (_, { step }) => step?.overran },
];

/** What is asked about at a time, because it is known by then. */
export type Sources = readonly Source[];

const CLAIMED: Sources = ['state', 'rules', 'events', 'machine', 'client'];
/** A call that is refused for its arguments alone is not counted; a refusal by rules is. */
const BEFORE_COUNT: Sources = ['state', 'events'];
const COUNTED: Sources = ['rules', 'machine'];

/** What a request says by itself. */
export const OF_REQUEST: Sources = ['request'];

/** For these a list that hides what is not available leaves a tool out. */
export const HIDING: Sources = ['run', 'held', 'state', 'rules'];

/** All that is known without a call's arguments. */
export const OF_ANY_CALL: Sources = [...HIDING, 'turn', 'machine'];

/** What a move from outside asks, which waits for a step that is under way or comes after it. */
export const OF_MOVE: Sources = ['run', 'operators', 'held'];

/** For these nothing passes, also not where the gate only observes. */
export const NEVER_PASSED: readonly Refused['reason'][] = ['frozen', 'cancelled', 'unknown'];

/**
 * The first reason against what is asked; `undefined` where nothing refuses it that is known by
 * then. The app's own guards are asked after that, because they take time.
 *
 * @param standing `undefined` where only the request is asked
 */
export function decide(
  standing: Standing | Absent | undefined,
  asked: Question,
  known: Sources,
): RefusedAt | undefined {
  const at = typeof standing === 'object' ? standing : undefined;
  for (const { reasons, from, when } of ROWS) {
    if (!known.includes(from)) continue;
    const [reason] = reasons;
    const why = when === undefined ? standing === reason : when(at as Standing, asked);
    if (why === true) return { reason: reason as Refused['reason'], standing: at };
    if (why) return { standing: at, ...why };
  }
  return undefined;
}

/** What a claimed call comes to, but for guards. */
export interface DecidedStep {
  /** Where it finds its run, with the call counted unless it is one too many. */
  readonly at: Standing;
  /** Absent where no loop shield has counted it. */
  readonly count?: Count;
  readonly why: RefusedAt | undefined;
}

/** Decides about a claimed call. A loop shield counts it before rules are asked. */
export function decideStep(
  found: Standing,
  asked: Question & { readonly tool: string },
  step: Pick<Step, 'digest' | 'grantedAt'>,
): DecidedStep {
  const { shield, renamings } = found.workflow;
  // A read of a held run takes no claim, and is not counted.
  if (shield === undefined || found.underWay === 'held')
    return { at: found, why: decide(found, asked, CLAIMED) };
  const early = decide(found, asked, BEFORE_COUNT);
  if (early !== undefined) return { at: found, why: early };
  const saved = { tool: renamings.savedOf(asked.tool), digest: step.digest };
  const count = shield.count(found.position, saved, step.grantedAt);
  const loop = decide(found, { count }, ['shield']);
  if (loop !== undefined) return { at: found, count, why: loop };
  const at = found.movedTo(count.position);
  return { at, count, why: decide(at, asked, COUNTED) };
}

/** Why a list that hides what is not available leaves a tool out; `undefined` where it has it. */
export function whyHidden(standing: Standing | Absent, tool: string): RefusalReason | undefined {
  const reason = decide(standing, { tool }, HIDING)?.reason;
  return reason === 'unknown' ? 'no-run' : (reason as RefusalReason | undefined);
}

/** What a run says of a prompt or a resource: it is given if there is no reason against it. */
export interface DecidedRead {
  readonly reason?: ReadRefusalReason | 'unknown' | undefined;
  /** Absent where the gate only observes: then no guard is asked. */
  readonly standing?: Standing | undefined;
}

/**
 * The first reason against a prompt or a resource, each of whose bindings must allow it. A list of
 * what is enforced names tools alone.
 *
 * @param now what the gate does with a run that cannot be asked
 */
export function decideRead(
  standing: Standing | Absent,
  reads: readonly BoundRead[],
  now: Enforced,
): DecidedRead {
  const isEnforced = typeof standing === 'string' ? now === true : standing.enforces();
  const why = decide(standing, { reads }, isEnforced ? ['run', 'state'] : ['run']);
  if (!isEnforced && (why === undefined || !NEVER_PASSED.includes(why.reason))) return {};
  const reason = why?.reason as DecidedRead['reason'];
  return typeof standing === 'string' ? { reason } : { reason, standing };
}

/** What operators have stopped, asked anew: what is asked may have waited since. */
export function stopNow(standing: Standing, asked: Question): MaybePromise<RefusedAt | undefined> {
  const informed = standing.askOperators();
  return isPromise(informed)
    ? informed.then((at) => decide(at, asked, ['operators']))
    : decide(informed, asked, ['operators']);
}

/** Whether it is a step, so that the run's claim must be free. */
function needsClaim({ workflow }: Standing, { tool, binding }: Question): boolean {
  if (tool === undefined) return true;
  if (binding === undefined) return workflow.claiming.has(workflow.keyOf(tool));
  return binding.kind === 'step' || workflow.shield !== undefined;
}

/** Whether it is a read that goes on while the run is held. */
function isOpenHeld(at: Standing, { tool, binding }: Question): boolean {
  if (binding === undefined) return tool !== undefined && !at.closes(tool);
  return binding.isOpenWhileHeld?.(at.state) === true;
}

function isClosedByState(at: Standing, { tool = '', binding, reads }: Question): boolean {
  if (reads !== undefined) return !reads.every((each) => at.opens(each.name, each));
  if (binding === undefined) return !at.lists(tool);
  // Only a bound tool begins an ended run anew.
  const isOver = binding === at.workflow.shield?.unboundCalls && at.beginsAnew;
  return isOver || !at.opens(tool, binding);
}

function refusedByRules(at: Standing, asked: Question): RefusedAt | undefined {
  const { tool = '', binding } = asked;
  if (binding !== undefined) return asked.ruled?.(at);
  const part = at.spent.get(at.workflow.keyOf(tool));
  return part && { reason: part.part === 'limit' ? 'limit' : 'guard' };
}

/** Whether the machine's own guards stop the event of a success. One that throws does. */
function isStoppedByMachine(at: Standing, { tool = '', binding }: Question): boolean {
  const { rules, workflow, position } = at;
  const bound = binding ?? workflow.matchAlways(tool);
  try {
    return bound !== undefined && workflow.isStopped(position, bound);
  } catch (error) {
    rules.onError(error);
    return true;
  }
}
