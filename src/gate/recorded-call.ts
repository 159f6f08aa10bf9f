/**
 * A call that runs beside others, and whose success its run records: a lookup that other tools come
 * after. Hides how often the store is asked, and what the client reads where nothing is recorded.
 */
import type { Run } from '../session/run.ts';
import {
  type CallOrigin,
  Moves,
  type MovingBinding,
  type StepMove,
  tellSaved,
} from '../step/outcome.ts';
import { MOST_REMADE } from '../step/step.ts';
import { persist } from '../step/store-calls.ts';
import type { FsmSnapshot, RecordResult } from '../stores/store.ts';
import type { Holder, LateStake } from '../wire/call.ts';
import type { Era } from '../wire/headers.ts';
import type { RequestId } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type { ToolResult } from '../workflow/binding.ts';
import type { Position } from '../workflow/position.ts';
import { AS_IT_CAME, OUTCOME, outcomeOf, type Transform } from './claimed-call.ts';
import type { GateConfig } from './config.ts';
import { unknownOutcomeReply, unrecordedReply } from './replies.ts';
import { beginningOf } from './standing.ts';

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
  readonly origin: Omit<CallOrigin, 'isFirst'>;
  /** Where the call found the run. */
  readonly found: FsmSnapshot;
}

/** One forwarded call that holds no claim. */
export class RecordedCall implements Holder {
  readonly id: RequestId;
  readonly era: Era;
  readonly config: GateConfig;
  readonly run: Run;
  readonly recordable: Recordable;
  /** Set by the first answer, which decides the outcome; later ones repeat it. */
  transform: MaybePromise<Transform> | undefined;
  /** Whether the call was not forwarded after all. */
  isWithdrawn = false;
  /** Whether it succeeded, and that could not be recorded. */
  isUnrecorded = false;
  /** Whether another gate of the route has it as a step, so that no model may call it again. */
  isStepElsewhere = false;
  /** Where its clients see the run afterwards. */
  leaves: Position | undefined;
  /** The state that it moved the run to, if it did. */
  movedTo: string | undefined;
  /** Tells the calls that wait for it that it is over. A second call does nothing. */
  readonly over: () => void;
  readonly #binding: MovingBinding;
  readonly #number: number | undefined;
  /** Whether another process may record the success too. */
  readonly #isShared: boolean;

  constructor(
    call: {
      readonly id: RequestId;
      readonly era: Era;
      readonly config: GateConfig;
      readonly run: Run;
      readonly binding: MovingBinding;
      /** The number that joins the events of one call, where the app listens to events. */
      readonly number?: number | undefined;
      /** Called once it can move the run no more, or the client waits no longer. */
      readonly onOver?: () => void;
    },
    recordable: Recordable,
    isShared = false,
  ) {
    this.id = call.id;
    this.era = call.era;
    this.config = call.config;
    this.run = call.run;
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
   * Records a success before its client hears of it, and gives the change of the answer. No other
   * outcome is recorded.
   */
  record(message: Message, onMoved: (move: StepMove) => void): Promise<Transform> {
    return this.#record(message, onMoved).finally(this.over);
  }

  async #record(message: Message, onMoved: (move: StepMove) => void): Promise<Transform> {
    const { kind, result = {} } = outcomeOf(message);
    if (kind !== 'succeeded') return AS_IT_CAME;
    const { id, era, config, run, recordable } = this;
    try {
      const move = await this.#save(result);
      // The request has read where the run stood before.
      run.session.noteMove();
      this.isUnrecorded = false;
      if (move !== undefined) onMoved(move);
      return AS_IT_CAME;
    } catch (cause) {
      this.isUnrecorded = true;
      const { tool, note } = recordable.origin;
      const { workflow, events } = config;
      const error = new UnrecordedSuccess(run.run, workflow.id, tool, { cause });
      events.fail(error, () => {
        const { actor, requestId } = note;
        const { state } = recordable.found;
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

  /**
   * Adds the success to where the run stands by now.
   *
   * @returns the move, unless it leads nowhere or another process has recorded it
   * @throws Error where the store fails, or the run is unknown or unreadable; also what the app's
   * `begin` throws
   */
  async #save(result: ToolResult): Promise<StepMove | undefined> {
    const { config, run, recordable } = this;
    const { workflow, clock, times } = config;
    const { token, origin, found } = recordable;
    let stands: FsmSnapshot = found;
    for (let remade = 0; remade <= MOST_REMADE; remade++) {
      const { version = 0 } = stands;
      const isFirst = version === 0;
      const { state, context } = stands;
      const beginning = isFirst ? await beginningOf(config, run)?.() : undefined;
      const stood = { state, ...(context !== undefined && { context }) };
      const position = workflow.begunWith(stood, beginning ?? {});
      const moves = new Moves(
        config,
        this.#binding,
        position,
        { ...origin, isFirst },
        position,
        found.state,
      );
      const move = moves.next({ kind: 'succeeded', result, error: undefined }, false, false);
      if (typeof move !== 'object') return undefined;
      const answer = await persist<RecordResult>(
        () =>
          run.store.record({
            run: run.run,
            workflow: workflow.id,
            token,
            from: version,
            initial: { ...workflow.start, updatedAt: clock.now() },
            create: run.create,
            snapshot: move.snapshot,
            trail: move.trail,
            ttlMs: run.ttlMs,
          }),
        { clock, forMs: times.leaseMs, onError: config.onError },
      );
      if (answer.status === 'unknown') throw new Error('the run is not there any more');
      if (answer.status === 'recorded') {
        this.leaves = move.snapshot;
        if (move.trail.to !== move.trail.from) this.movedTo = move.trail.to;
        if (answer.repeated && this.#isShared) return undefined;
        tellSaved(config, move, run.run, isFirst);
        return move;
      }
      const { snapshot } = answer;
      stands = { ...workflow.stand(snapshot), updatedAt: snapshot.updatedAt };
      if (snapshot.version !== undefined) stands = { ...stands, version: snapshot.version };
    }
    throw new Error(`others moved the run ${MOST_REMADE} times meanwhile`);
  }
}
