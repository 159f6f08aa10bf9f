/**
 * A call that runs beside others, and whose success its run records: a lookup that other tools come
 * after. Hides how often the store is asked, and what the client reads where nothing is recorded.
 */
import type { Run } from '../session/run.ts';
import {
  Moves,
  type MovingBinding,
  reportSaved,
  type StepMove,
  type StepOrigin,
} from '../step/outcome.ts';
import { MOST_REMADE } from '../step/step.ts';
import { persist } from '../step/store-calls.ts';
import type { FsmSnapshot, RecordRequest, RecordResult } from '../stores/store.ts';
import type { Holder, LateStake } from '../wire/call.ts';
import type { Message } from '../wire/message.ts';
import type { Position } from '../workflow/position.ts';
import type { Beginning } from '../workflow/workflow.ts';
import {
  AnswerHolder,
  AS_IT_CAME,
  type ClaimedCall,
  type LetThrough,
  OUTCOME,
  outcomeOf,
  type Transform,
} from './claimed-call.ts';
import type { GateConfig } from './config.ts';
import { unknownOutcomeReply, unrecordedReply } from './replies.ts';
import { beginningOf, type Standing } from './standing.ts';

/** Given to `onError` where a tool ran beside others, and its success could not be recorded. */
export class UnrecordedSuccess extends Error {
  override readonly name = 'UnrecordedSuccess';
  /** The run key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;

  constructor(run: string, workflow: string, tool: string, options: ErrorOptions) {
    super(
      `a call of ${JSON.stringify(tool)} succeeded, and could not be recorded in ` +
        `"${workflow}": it does not count for what comes after it`,
      options,
    );
    this.run = run;
    this.workflow = workflow;
    this.tool = tool;
  }
}

/** What a process needs to record a success. Plain data, kept with a task. */
export interface Recordable {
  /** Unguessable: to record a success again under it changes nothing. */
  readonly token: string;
  readonly origin: Omit<StepOrigin, 'isFirst'>;
  /** Where the call found the run. */
  readonly found: FsmSnapshot;
}

/** A call that runs beside others, and for whose answer no gate waits. */
export class PassedLookup implements Holder {
  readonly config: GateConfig;
  readonly run: Run;
  readonly standing: Standing;

  constructor(config: GateConfig, run: Run, standing: Standing) {
    this.config = config;
    this.run = run;
    this.standing = standing;
  }

  withdraw(): void {}
}

/** A forwarded call whose answer a gate waits for. */
export type AwaitedAnswer = ClaimedCall | RecordedLookup;

/** One forwarded call that holds no claim. */
export class RecordedLookup extends AnswerHolder {
  readonly recordable: Recordable;
  /** Whether it succeeded, and that could not be recorded. */
  isUnrecorded = false;
  /** Whether another gate of the route has it as a step, so that no model may call it again. */
  isStepElsewhere = false;
  /** Where its clients see the run afterwards. */
  leaves: Position | undefined;
  /** The state that it moved the run to, if it did. */
  movedTo: string | undefined;
  /** Reports to the calls that wait for it that it is over. A second call does nothing. */
  readonly over: () => void;
  readonly #binding: MovingBinding;
  readonly #number: number | undefined;
  /** Whether another process may record the success too. */
  readonly #isShared: boolean;

  constructor(
    call: LetThrough & {
      readonly binding: MovingBinding;
      /** The number that joins the events of one call, where the app listens to events. */
      readonly number?: number | undefined;
      /** Called once it can move the run no more, or the client waits no longer. */
      readonly onOver?: () => void;
    },
    recordable: Recordable,
    isShared = false,
  ) {
    super(call);
    this.recordable = recordable;
    this.#binding = call.binding;
    this.#number = call.number;
    this.over = call.onOver ?? (() => {});
    this.#isShared = isShared;
  }

  /** As {@link ClaimedCall.stake}. What is forgotten does not count, and can be looked up again. */
  get stake(): LateStake {
    return this.transform === undefined && !this.isWithdrawn ? 'given-up' : 'repeat';
  }

  withdraw(): void {
    this.isWithdrawn = true;
    this.over();
  }

  /**
   * Records a success before its client reads it, and gives the change of the answer. No other
   * outcome is recorded.
   */
  record(message: Message, onMoved: (move: StepMove) => void): Promise<Transform> {
    return this.#record(message, onMoved).finally(this.over);
  }

  async #record(message: Message, onMoved: (move: StepMove) => void): Promise<Transform> {
    const { kind, result = {} } = outcomeOf(message);
    if (kind !== 'succeeded') return AS_IT_CAME;
    const { id, era, config, run, recordable } = this;
    const { token, origin, found } = recordable;
    const { create, store, ttlMs } = run;
    try {
      const succeeded = { ...outcomeOf(message), kind, result, error: undefined };
      const isSuccess = (moves: Moves): boolean => {
        try {
          return moves.judged(succeeded).kind === 'succeeded';
        } catch (error) {
          // A lookup that does not say whether it has found anything counts for nothing.
          config.onError(error);
          return false;
        }
      };
      const about = {
        ...{ run: run.run, token, create, begin: beginningOf(config, run) },
        forMs: config.times.leaseMs,
        isShared: this.#isShared,
      };
      const saved = await recordMove({ ...config, store, ttlMs }, about, found, (from, isFirst) => {
        const begun = { ...origin, isFirst };
        const moves = new Moves(config, this.#binding, from, begun, from, found.state);
        if (!isSuccess(moves)) return undefined;
        const move = moves.next(succeeded, false, false);
        return typeof move === 'object' ? move : undefined;
      });
      if (saved === 'unknown') throw new Error('the run is not there any more');
      // The request has read where the run stood before.
      run.session.moves++;
      this.isUnrecorded = false;
      if (saved === undefined) return AS_IT_CAME;
      const { move, isReported } = saved;
      this.leaves = move.snapshot;
      if (move.trail.to !== move.trail.from) this.movedTo = move.trail.to;
      if (isReported) onMoved(move);
      return AS_IT_CAME;
    } catch (cause) {
      this.isUnrecorded = true;
      const { tool, note } = origin;
      const { workflow, events } = config;
      const error = new UnrecordedSuccess(run.run, workflow.id, tool, { cause });
      events.fail(error, () => {
        const { actor, requestId } = note;
        const { state } = found;
        const of = { runKey: run.run, workflow: workflow.id, tool, state, actor, requestId };
        return { type: 'call.unrecorded', ...of, call: this.#number };
      });
      if (!this.isStepElsewhere) {
        const reply = unrecordedReply(id, tool, workflow.id, era);
        return (each) => each.replace(reply);
      }
      const reply = unknownOutcomeReply(id, tool, workflow.id, { ran: true, era });
      return (each) => {
        // The step's gate may have said the same in words of its own.
        if (each.at('result', '_meta', OUTCOME) === undefined) each.replace(reply);
      };
    }
  }
}

/** What it takes to save a move without the run's claim. */
type Recorder = Pick<GateConfig, 'workflow' | 'clock' | 'events' | 'onError'> &
  Pick<Run, 'store' | 'ttlMs'>;

/** The run of such a move. */
interface RecordedRun extends Pick<RecordRequest, 'run' | 'token' | 'create'> {
  /** Gives how the run begins. Absent: as the machine says. */
  readonly begin: (() => Promise<Beginning>) | undefined;
  /** How long a failing store is asked again, in milliseconds. */
  readonly forMs: number;
  /** Whether another process may record the same move, and report it. Default `false`. */
  readonly isShared?: boolean;
}

/**
 * Saves a move without the run's claim, and reports it to the app. A step may be running or held
 * beside it. Where the run has moved meanwhile, the move is made anew from where it stands then.
 *
 * @param moveFrom gives the move from a position, or why there is none
 * @returns `isReported`: unless another process has reported it; `unknown`: there is no such run
 * @throws Error where the store fails, or the run is unreadable; also what `begin` and `moveFrom`
 * throw
 */
export async function recordMove<Not extends string | undefined>(
  recorder: Recorder,
  { run, token, create, begin, forMs, isShared = false }: RecordedRun,
  found: FsmSnapshot,
  moveFrom: (from: Position, isFirst: boolean) => StepMove | Not,
): Promise<{ move: StepMove; isReported: boolean } | Not | 'unknown'> {
  const { workflow, store, ttlMs, clock, onError } = recorder;
  let { version = 0 } = found;
  const { state, context } = found;
  let stands: Position = { state, ...(context !== undefined && { context }) };
  for (let remade = 0; remade < MOST_REMADE; remade++) {
    // Other moves that come without a pause may fall between each look and its record.
    if (remade > 2)
      await new Promise<void>((resolve) => void clock.after(Math.random() * 10, resolve));
    const isFirst = version === 0;
    const beginning = isFirst ? await begin?.() : undefined;
    const move = moveFrom(workflow.begunWith(stands, beginning ?? {}), isFirst);
    if (typeof move !== 'object') return move;
    const { snapshot, trail } = move;
    const initial = { ...workflow.start, updatedAt: clock.now() };
    const lives = workflow.rules.lifeOf(run, ttlMs, snapshot);
    const key = { run, workflow: workflow.id, token, from: version, create, ttlMs: lives };
    const save = (): Promise<RecordResult> => store.record({ ...key, initial, snapshot, trail });
    const answer = await persist(save, { clock, forMs, onError });
    if (answer.status === 'unknown') return answer.status;
    if (answer.status === 'recorded') {
      const isReported = answer.repeated !== true || !isShared;
      if (isReported) reportSaved(recorder, move, run, isFirst);
      return { move, isReported };
    }
    ({ version = 0 } = answer.snapshot);
    stands = workflow.stand(answer.snapshot);
  }
  throw new Error(`others moved the run ${MOST_REMADE} times meanwhile`);
}
