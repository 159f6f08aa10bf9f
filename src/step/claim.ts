/**
 * How a call gets its run. A run that begins gets its first data. A run whose deadline has passed,
 * or that begins anew, first makes a move of its own. Hides how the app is asked for data.
 */
import type { Clock } from '../clock.ts';
import { InterlockError } from '../errors.ts';
import type { StopReason } from '../events.ts';
import type { Json } from '../stores/store.ts';
import type { Position } from '../workflow/position.ts';
import { AFTER, jsonOf, RESTART } from '../workflow/stored.ts';
import type { Understood, Workflow } from '../workflow/workflow.ts';
import { moveTo, type StepMove, tellIfHeld } from './outcome.ts';
import { type Refused, Step, type StepCall, type StepRules, type StepRun } from './step.ts';

/** Else deadlines shorter than a trip to the store would follow each other for ever. */
const MOST_MOVES = 16;

/** The run to claim, and the call that is to have it. */
export interface Wanted extends StepCall {
  readonly run: StepRun;
  /** The states in which the store may grant the claim; `undefined`: any state. */
  readonly states: readonly string[] | undefined;
  /** Who begins the run anew if it has ended; `undefined`: an ended run stays as it is. */
  readonly restarts?: { readonly actor: string | undefined } | undefined;
  /** Gives the data that the run begins with. Default: the machine's own. */
  readonly begin?: (() => Promise<Json | undefined>) | undefined;
  /**
   * What stops the run there: asked before the run makes any move of its own. Of a run that makes
   * none, the caller asks. Default: nothing stops it.
   */
  readonly refuses?: ((claimed: Step, position: Position) => StopReason | undefined) | undefined;
}

/**
 * Claims a run where it stands now. First the run leaves a state whose deadline has passed, or
 * begins anew if it has ended. Each such move is committed by itself, `onMoved` is told, and the
 * run is claimed again. The first data of a run that begins are saved with its next commit.
 */
export function claimRun(
  rules: StepRules,
  wanted: Wanted,
  onMoved: (move: StepMove) => void,
  moves = 0,
): Promise<Step | Refused> {
  const step = new Step(rules, wanted.run, wanted);
  return step.claim(wanted.states).then((refused) => {
    if (refused !== undefined) {
      const { snapshot, held, now } = refused;
      if (snapshot !== undefined) tellIfHeld({ key: step.key, snapshot, claim: held, now }, rules);
      return refused;
    }
    const found = step.understood;
    // The caller refuses a run that this deployment does not understand.
    if (found === undefined || isReady(rules.workflow, found, wanted)) return step;
    const reason = wanted.refuses?.(step, found.position);
    if (reason !== undefined)
      return step.withdraw().then(() => ({ reason, snapshot: step.snapshot }));
    return makeReady(rules, wanted, step, found).then((made) => {
      if (!('move' in made)) return made;
      if (made.move !== undefined) onMoved(made.move);
      return moves < MOST_MOVES
        ? claimRun(rules, wanted, onMoved, moves + 1)
        : { reason: 'busy' as const };
    });
  });
}

/** Whether the call can have the run as it stands. */
function isReady(workflow: Workflow, found: Understood, { begin, restarts }: Wanted): boolean {
  const isOver = found.expiry !== undefined || (restarts !== undefined && isAtEnd(workflow, found));
  return begin === undefined && !isOver;
}

/**
 * Gives the run its first data, or makes the move that it has to make before the call's. The move
 * is `undefined` where the run has moved since it was claimed: then it must be claimed again.
 */
async function makeReady(
  rules: StepRules,
  { begin, restarts }: Wanted,
  step: Step,
  found: Understood,
): Promise<Step | Refused | { readonly move: StepMove | undefined }> {
  const { workflow } = rules;
  let known = found;
  let data: Json | undefined;
  if (begin !== undefined) {
    try {
      if (step.isFirst) known = await beginFirst(workflow, begin, step, found);
      if (restarts !== undefined && isAtEnd(workflow, found)) data = await begin();
    } catch (fault) {
      await step.withdraw();
      return { reason: 'unavailable', fault };
    }
  }
  step.understood = known;
  let own: ReturnType<typeof ownMove>;
  try {
    own = ownMove(workflow, known, restarts, data);
  } catch (fault) {
    // The machine's own code, which a run that begins anew asks with its first data.
    await step.withdraw();
    return { reason: 'unavailable', fault };
  }
  if (own === undefined) return step;
  const status = await step.save(own.move, own.options);
  if (status === 'moved') return { move: undefined };
  return status === 'committed' ? { move: own.move } : { reason: 'unavailable' };
}

/** A run that begins, with its first data. The move of a passed deadline takes them along. */
async function beginFirst(
  workflow: Workflow,
  begin: NonNullable<Wanted['begin']>,
  { snapshot: { updatedAt }, grantedAt }: Step,
  known: Understood,
): Promise<Understood> {
  const position = begunWith(workflow, known.position, await begin());
  return { position, expiry: workflow.overdue({ ...position, updatedAt }, grantedAt) };
}

/** No call goes on from the run before, so its idempotency keys are forgotten. */
export const ANEW = { settles: 'all' } as const;

/** The move by which a run begins anew. Its version and its trail go on. */
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

/** Whether a run has ended: its state is final, and has no deadline that has passed. */
function isAtEnd(workflow: Workflow, { position, expiry }: Understood): boolean {
  return expiry === undefined && workflow.hasEnded(position.state);
}

/** The move of a run whose deadline has passed, or that has ended and begins anew. */
function ownMove(
  workflow: Workflow,
  known: Understood,
  restarts: Wanted['restarts'],
  data: Json | undefined,
): { readonly move: StepMove; readonly options?: typeof ANEW } | undefined {
  const { position, expiry } = known;
  if (expiry !== undefined) return { move: moveTo(workflow, position, expiry, { event: AFTER }) };
  if (restarts === undefined || !isAtEnd(workflow, known)) return undefined;
  return { move: restartOf(workflow, position, restarts.actor, data), options: ANEW };
}

/** What `begin` is told of a run that is about to begin. */
export interface BeginningRun {
  /** The run key. */
  readonly run: string;
  /** Whose run it is, where the request was authenticated. */
  readonly principal: string | undefined;
}

/**
 * Gives the shared data that a run begins with; for a statechart, its context. `undefined` leaves
 * the machine's own. If it throws or rejects, the run does not begin.
 */
export type Begin = (run: BeginningRun) => Json | undefined | Promise<Json | undefined>;

/** How long `begin` may take, in milliseconds. */
const BEGIN_MS = 5_000;

/**
 * Asks the app for a run's first data.
 *
 * @throws what `begin` throws; InterlockError `ERR_INTERLOCK_CONFIG` where it gives no JSON; Error
 * where it takes too long
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

/** A copy of first data. @throws InterlockError `ERR_INTERLOCK_CONFIG` where it is not JSON */
export function firstData(given: unknown): Json {
  try {
    return jsonOf(given, 'the data that a run begins with');
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new InterlockError('ERR_INTERLOCK_CONFIG', `begin: ${message}`);
  }
}

/** The position of a run that begins with these data. Default: the machine's own. */
export function begunWith(
  workflow: Workflow,
  position: Position,
  data: Json | undefined,
): Position {
  return data === undefined ? position : workflow.begunWith(position, data);
}
