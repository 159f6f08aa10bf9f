/**
 * How a call gets its run. A run that begins gets its first data, and perhaps its first state. A
 * run whose deadline has passed, or that begins anew, first makes a move of its own. Hides how the
 * app is asked how a run begins.
 */
import type { Clock } from '../basics/clock.ts';
import { configError } from '../basics/errors.ts';
import { lazyOptions, parseOptions } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { type GivenBeginning, givenBeginningOptions } from '../workflow/call-rules.ts';
import type { Position } from '../workflow/position.ts';
import { AFTER, BEGIN, jsonOf, RESTART } from '../workflow/stored.ts';
import type { Beginning, Understood, Workflow } from '../workflow/workflow.ts';
import { noteGate } from './noted-gates.ts';
import { moveTo, type StepMove } from './outcome.ts';
import {
  type Refused,
  Step,
  type StepRequest,
  type StepRules,
  type StepRun,
  type Waiting,
} from './step.ts';
import { reportIfHeld } from './unknown-outcome.ts';

/** Else deadlines shorter than a trip to the store would follow each other for ever. */
const MOST_MOVES = 16;

/** The run to claim, and the call that is to have it. */
export interface Wanted extends StepRequest, Waiting {
  readonly run: StepRun;
  /** The states in which the store may grant the claim; `undefined`: any state. */
  readonly states: readonly string[] | undefined;
  /** Who begins the run anew if it has ended; `undefined`: an ended run stays as it is. */
  readonly restarts?: { readonly actor: string | undefined } | undefined;
  /** Gives how the run begins. Default: as the machine says. */
  readonly begin?: (() => Promise<Beginning>) | undefined;
  /**
   * Whether the call is allowed where the run begins. If it is not, the run does not begin in a
   * state that the app gives, and not anew. Default: it is.
   */
  readonly opens?: ((begun: Position) => boolean) | undefined;
  /** Whether the caller saves by itself how the run begins. Default `false`. */
  readonly begins?: boolean | undefined;
  /**
   * What operators have stopped. Asked once the run is claimed and understood, before it makes any
   * move of its own. Default: nothing.
   */
  readonly stops?:
    | ((
        step: Step,
        found: Understood,
      ) => MaybePromise<Pick<Refused, 'reason' | 'stops'> | undefined>)
    | undefined;
}

/**
 * Claims a run where it stands now. First the run leaves a state whose deadline has passed, or
 * begins anew if it has ended. Each such move is committed by itself and reported to `onMoved`, and
 * the run is claimed again. The first data of a run that begins are saved with its next commit. A
 * first state is a move of its own: what is stored of a step must say where the step found its run.
 */
export function claimRun(
  rules: StepRules,
  wanted: Wanted,
  onMoved: (move: StepMove) => void,
  moves = 0,
): Promise<Step | Refused> {
  const step = new Step(rules, wanted.run, wanted);
  return step.claim(wanted.states, wanted).then((refused) => {
    if (refused !== undefined) {
      const { snapshot, held, now } = refused;
      if (snapshot !== undefined)
        reportIfHeld({ key: step.key, snapshot, claim: held, now }, rules);
      return refused;
    }
    const { workflow, clock } = rules;
    const { store } = wanted.run;
    if (!store.noted.has(workflow)) {
      store.noted.add(workflow);
      void noteGate(store, workflow, clock);
    }
    const found = step.understood;
    // The caller refuses a run that this deployment does not understand.
    if (found === undefined) return step;
    return after(wanted.stops?.(step, found), (why): Step | Promise<Step | Refused> => {
      if (why !== undefined) {
        const { reason, stops } = why;
        return step.withdraw().then(() => ({ reason, stops, snapshot: step.snapshot }));
      }
      if (isReady(workflow, found, wanted)) return step;
      return makeReady(rules, wanted, step, found).then((made) => {
        if (!('move' in made)) return made;
        if (made.move !== undefined) onMoved(made.move);
        return moves < MOST_MOVES
          ? claimRun(rules, wanted, onMoved, moves + 1)
          : { reason: 'busy' as const };
      });
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
  wanted: Wanted,
  step: Step,
  found: Understood,
): Promise<Step | Refused | { readonly move: StepMove | undefined }> {
  const { workflow } = rules;
  let own: ReturnType<typeof ownMove>;
  let begins = false;
  try {
    const { begin, restarts } = wanted;
    let beginning: Beginning = {};
    step.understood = found;
    if (begin !== undefined && step.isFirst) {
      beginning = await begin();
      step.understood = begunFirst(workflow, beginning, step, found);
    } else if (begin !== undefined && restarts !== undefined && isAtEnd(workflow, found)) {
      beginning = await begin();
    }
    // What an app says of earlier calls must outlive a first call whose outcome is unknown.
    const hasCalls = (beginning.calls ?? []).length > 0;
    const isPlaced = step.isFirst && (beginning.state !== undefined || hasCalls);
    if (isPlaced && wanted.begins === true) return step;
    begins = isPlaced || isAtEnd(workflow, step.understood);
    const { position } = step.understood;
    const actor = wanted.note?.actor;
    own = isPlaced
      ? { move: moveTo(workflow, position, { position, actions: [] }, { event: BEGIN, actor }) }
      : ownMove(workflow, step.understood, restarts, beginning);
  } catch (fault) {
    // The app's `begin` or the machine's own code.
    await step.withdraw();
    return { reason: 'unavailable', fault };
  }
  if (own === undefined) return step;
  if (begins && wanted.opens?.(own.move.snapshot) === false) {
    await step.withdraw();
    return { reason: 'state', snapshot: step.snapshot };
  }
  const status = await step.save(own.move, own.options);
  if (status === 'moved') return { move: undefined };
  return status === 'committed' ? { move: own.move } : { reason: 'unavailable' };
}

/** A run that begins. The move of a passed deadline takes its first data along. */
function begunFirst(
  workflow: Workflow,
  beginning: Beginning,
  { snapshot: { updatedAt }, grantedAt }: Step,
  known: Understood,
): Understood {
  const position = workflow.begunWith(known.position, beginning);
  // The time of a state that the app gives begins once that is saved.
  if (beginning.state !== undefined) return { position, expiry: undefined };
  return { position, expiry: workflow.overdue({ ...position, updatedAt }, grantedAt) };
}

/** No call goes on from the run before, so its idempotency keys are forgotten. */
export const ANEW = { settles: 'all' } as const;

/** The move by which a run begins anew. Its version and its trail go on. */
export function restartOf(
  workflow: Workflow,
  from: Position,
  actor: string | undefined,
  beginning: Beginning = {},
): StepMove {
  const position = workflow.begunWith(workflow.startAfter(from), beginning);
  // A state that the app gives is not entered from the machine's first ones.
  const actions = workflow.dueActions(beginning.state === undefined);
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
  beginning: Beginning,
): { readonly move: StepMove; readonly options?: typeof ANEW } | undefined {
  const { position, expiry } = known;
  if (expiry !== undefined) return { move: moveTo(workflow, position, expiry, { event: AFTER }) };
  if (restarts === undefined || !isAtEnd(workflow, known)) return undefined;
  return { move: restartOf(workflow, position, restarts.actor, beginning), options: ANEW };
}

/** What `begin` gets about a run that is about to begin. */
export interface BeginningRun {
  /** The run key. */
  readonly run: string;
  /** Whose run it is, where the request was authenticated. */
  readonly principal: string | undefined;
}

/**
 * Where a run begins, with which data and earlier calls; {@link beginIn} makes it. JSON has no
 * instances of a class, so no data are taken for one, not even those with a member `state`.
 */
export class BeginsIn {
  readonly given: GivenBeginning;

  /** @internal */
  constructor(given: GivenBeginning) {
    this.given = given;
    Object.freeze(this);
  }
}

/**
 * For `begin`: the run begins in this state. It must be one of the gate's `starts`, or its initial
 * state. No action of entering it is done. Under rules it is `{ facts }`, the calls that were made
 * before; `data` may stand beside them.
 *
 * @param data the shared data that it begins with; for a statechart, its context. Default: the
 * machine's own
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` where a fact is none
 */
export function beginIn(start: string | GivenBeginning, data?: Json): BeginsIn {
  if (typeof start === 'string') return new BeginsIn({ state: start, data });
  return new BeginsIn(parseOptions('beginIn()', beginningSchema, start));
}

const beginningSchema = lazyOptions(() => givenBeginningOptions());

/**
 * Gives the shared data that a run begins with; for a statechart, its context. `undefined` leaves
 * the machine's own. What {@link beginIn} returns says in which state the run begins, too, or with
 * which calls. If it throws or rejects, the run does not begin.
 */
export type Begin = (
  run: BeginningRun,
) => Json | BeginsIn | undefined | Promise<Json | BeginsIn | undefined>;

/** How long `begin` may take, in milliseconds. */
const BEGIN_MS = 5_000;

/**
 * Asks the app how a run begins.
 *
 * @throws what `begin` throws; InterlockError `ERR_INTERLOCK_CONFIG` where it gives no JSON, or a
 * state in which no run of the workflow begins; Error where it takes too long
 */
export async function askBegin(
  begin: Begin,
  run: BeginningRun,
  {
    workflow,
    clock,
  }: { readonly workflow: Workflow; readonly clock: Pick<Clock, 'after' | 'now'> },
): Promise<Beginning> {
  let stop = (): void => {};
  const late = new Promise<never>((_, reject) => {
    const fail = (): void =>
      reject(new Error(`fsmGate(): begin took longer than ${BEGIN_MS} ms for a run`));
    stop = clock.after(BEGIN_MS, fail);
  });
  try {
    const given: unknown = await Promise.race([begin(run), late]);
    const { data, ...first } = given instanceof BeginsIn ? given.given : { data: given };
    const whole = { ...first, data: data === undefined ? undefined : firstData(data) };
    return workflow.beginningFrom(whole, run.run, clock.now()) ?? {};
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
    throw configError(`begin: ${message}`);
  }
}
