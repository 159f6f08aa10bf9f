import type { Clock } from '../clock.ts';
import { InterlockError } from '../errors.ts';
import type { Json } from '../stores/store.ts';
import type { Position } from '../workflow/position.ts';
import { AFTER, jsonOf, RESTART } from '../workflow/stored.ts';
import type { Understood, Workflow } from '../workflow/workflow.ts';
import { moveTo, type StepMove, tellIfHeld } from './outcome.ts';
import { type NotClaimed, Step, type StepCall, type StepRules, type StepRun } from './step.ts';

/** Deadlines that are shorter than a look at the store would go round for ever. */
const MOST_MOVES = 16;

/** What a run is claimed for. */
export interface Wanted extends StepCall {
  readonly run: StepRun;
  /** The states in which the store may grant the claim; `undefined`: in each. */
  readonly states: readonly string[] | undefined;
  /** Who begins it anew where it has ended; without it, it stays as it is. */
  readonly restarts?: { readonly actor: string | undefined } | undefined;
  /** Gives the data that the run begins with; without it, they are the machine's own. */
  readonly begin?: (() => Promise<Json | undefined>) | undefined;
}

/** Why a run did not begin: what the app's `begin` threw, which nobody was told of yet. */
export interface NotBegun extends NotClaimed {
  readonly fault: unknown;
}

/**
 * Claims a run where it stands now. First a state is left whose time is over, and a run begins anew
 * that has ended, each by a move of its own that `onMoved` is told of: such a move spends its
 * claim, and the run is claimed again. A run that begins, or begins anew, gets its first data,
 * which are saved with its next commit.
 */
export async function claimRun(
  rules: StepRules,
  wanted: Wanted,
  onMoved: (move: StepMove) => void,
): Promise<Step | NotClaimed | NotBegun> {
  for (let moves = 0; moves <= MOST_MOVES; moves++) {
    const step = new Step(rules, wanted.run, wanted);
    const refused = await step.claim(wanted.states);
    if (refused !== undefined) {
      const { snapshot, held, now } = refused;
      if (snapshot !== undefined) tellIfHeld({ key: step.key, snapshot, claim: held, now }, rules);
      return refused;
    }
    // A run that this deployment does not understand is left alone, and refused by the caller.
    if (step.understood === undefined) return step;
    let data: Json | undefined;
    if (wanted.begin !== undefined) {
      try {
        data = await beginWith(rules.workflow, wanted, wanted.begin, step, step.understood);
      } catch (fault) {
        await step.withdraw();
        return { reason: 'unavailable', fault };
      }
    }
    const own = ownMove(rules.workflow, step.understood, wanted.restarts, data);
    if (own === undefined) return step;
    if ((await step.save(own.move, own.options)) !== 'committed') return { reason: 'unavailable' };
    onMoved(own.move);
  }
  return { reason: 'busy' };
}

/** Gives the data to a run that begins. Resolves to those of one that is to begin anew. */
async function beginWith(
  workflow: Workflow,
  { restarts }: Wanted,
  begin: NonNullable<Wanted['begin']>,
  step: Step,
  known: Understood,
): Promise<Json | undefined> {
  if (step.isFirst) {
    const { updatedAt } = step.snapshot;
    const position = begunWith(workflow, known.position, await begin());
    const left = workflow.overdue({ ...position, updatedAt }, step.now);
    step.understood = { position, left };
  }
  return restarts !== undefined && isAtEnd(workflow, known) ? begin() : undefined;
}

/** A run that begins anew has no call in common with the one before: earlier keys are forgotten. */
export const ANEW = { settles: 'all' } as const;

/** Where a run is when it begins anew. Version and trail go on. */
export function restartOf(
  workflow: Workflow,
  from: Position,
  actor: string | undefined,
  data?: Json,
): StepMove {
  const position = begunWith(workflow, workflow.start, data);
  const actions = workflow.dueActions(true);
  const said = { event: RESTART, actor };
  const move = moveTo(workflow, from, { position, actions }, said);
  return { ...move, isRestart: true };
}

/** A move that a run makes by itself, before a call can have it. */
export interface OwnMove {
  readonly move: StepMove;
  readonly options?: typeof ANEW;
}

/** Whether a run has ended, and stays there unless it begins anew. */
export function isAtEnd(workflow: Workflow, { position, left }: Understood): boolean {
  return left === undefined && workflow.hasEnded(position.state);
}

/**
 * The move of a run whose state's time is over, or that has ended and begins anew.
 *
 * @param restarts who begins it anew; without it, a run that has ended stays as it is
 * @param data what it begins anew with. Default: the machine's own
 */
export function ownMove(
  workflow: Workflow,
  known: Understood,
  restarts: { readonly actor: string | undefined } | undefined,
  data?: Json,
): OwnMove | undefined {
  const { position, left } = known;
  if (left !== undefined) return { move: moveTo(workflow, position, left, { event: AFTER }) };
  if (restarts === undefined || !isAtEnd(workflow, known)) return undefined;
  return { move: restartOf(workflow, position, restarts.actor, data), options: ANEW };
}

/** A run that is about to begin. */
export interface BeginningRun {
  /** The run key. */
  readonly run: string;
  /** Whose run it is, where the request was authenticated. */
  readonly principal: string | undefined;
}

/**
 * Gives the shared data that a run begins with; of a statechart, its context. `undefined` leaves
 * it as the machine has it. What it rejects with, or throws, keeps the run from beginning.
 */
export type Begin = (run: BeginningRun) => Json | undefined | Promise<Json | undefined>;

/** How long the app may take, in milliseconds. */
const BEGIN_MS = 5_000;

/**
 * Asks the app.
 *
 * @throws whatever it throws; InterlockError `ERR_INTERLOCK_CONFIG` where what it gives is not
 * JSON; Error where it takes too long
 */
export async function askBegin(
  begin: Begin,
  run: BeginningRun,
  clock: Pick<Clock, 'after'>,
): Promise<Json | undefined> {
  let stop = (): void => {};
  const late = new Promise<never>((_, reject) => {
    const fail = (): void =>
      reject(new Error(`fsmGate(): begin took longer than ${BEGIN_MS} ms for a run`));
    stop = clock.after(BEGIN_MS, fail);
  });
  try {
    const given: unknown = await Promise.race([begin(run), late]);
    return given === undefined ? undefined : firstData(given);
  } finally {
    stop();
  }
}

/** A checked copy. @throws InterlockError `ERR_INTERLOCK_CONFIG` where it is not JSON */
export function firstData(given: unknown): Json {
  try {
    return jsonOf(given, 'the data that a run begins with');
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new InterlockError('ERR_INTERLOCK_CONFIG', `begin: ${message}`);
  }
}

/** A position with the data that its run begins with. */
export function begunWith(
  workflow: Workflow,
  position: Position,
  data: Json | undefined,
): Position {
  return data === undefined ? position : workflow.withData(position, data);
}
