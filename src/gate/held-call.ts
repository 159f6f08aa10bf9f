import { type CurrentStep, type HandlersStep, Try } from '../session/current-step.ts';
import type { Run } from '../session/run.ts';
import type { Outcome } from '../step/outcome.ts';
import type { MoveListener, Step } from '../step/step.ts';
import type { RunKey } from '../stores/store.ts';
import type { Call, Holder } from '../wire/call.ts';
import type { Era } from '../wire/headers.ts';
import {
  isObject,
  JSON_RPC,
  type JsonObject,
  META_PREFIX,
  META_TRY,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { announcement } from '../workflow/advice.ts';
import type { Position } from '../workflow/position.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig } from './config.ts';
import type { Gates } from './gates.ts';
import { unknownOutcomeReply } from './replies.ts';
import { recordNow } from './stands.ts';

/** Under which a call is forwarded with its key, in the `_meta` of its params. */
export const IDEMPOTENCY_KEY = `${META_PREFIX}idempotencyKey`;

/** A task that a call has created, in place of its result. */
export interface CreatedTask {
  readonly taskId: string;
  /**
   * How long the task is kept from its creation on, in milliseconds; `undefined` where nobody says.
   */
  readonly ttlMs: number | undefined;
}

/**
 * Flat under the tasks extension of MCP 2026-07-28, nested in MCP 2025-11-25. What else is there
 * counts for nothing: an SDK may add an empty `content`.
 */
export function createdTask(message: Message): CreatedTask | undefined {
  const { result } = message.value;
  if (!isObject(result)) return undefined;
  if (result.resultType === 'task') return taskOf(result.taskId, result.ttlMs);
  const isNested = result.resultType === undefined && isObject(result.task);
  return isNested
    ? taskOf(message.at('result', 'task', 'taskId'), message.at('result', 'task', 'ttl'))
    : undefined;
}

function taskOf(taskId: unknown, ttl: unknown): CreatedTask | undefined {
  if (typeof taskId !== 'string') return undefined;
  return { taskId, ttlMs: typeof ttl === 'number' && ttl > 0 ? ttl : undefined };
}

/**
 * Only a result that is complete, and says so or says nothing, is a success (MCP 2026-07-28,
 * "Results": `resultType`). A task that cannot be told by its id is carried to no end, and what
 * nobody knows is never guessed.
 */
export function outcomeOf(message: Message): Outcome['kind'] {
  const { result, error } = message.value;
  if (message.isContradictory) return 'unknown';
  // It asks for something that the client cannot give: an input, by another name.
  if (isObject(error) && error.code === JSON_RPC.MISSING_CAPABILITY) return 'input_required';
  if (error !== undefined) return 'failed';
  if (!isObject(result)) return 'unknown';
  if (result.resultType === 'input_required') return 'input_required';
  if (result.resultType !== undefined && result.resultType !== 'complete') return 'unknown';
  if (result.task !== undefined) return 'unknown';
  return result.isError === true ? 'failed' : 'succeeded';
}

/** What is done to a response once its outcome is known; the same for each replay of it. */
export type Transform = (message: Message) => void;

export const AS_IT_CAME: Transform = () => {};

/** A call that one gate has claimed its run for, until its outcome is settled. */
export class HeldCall implements Holder {
  readonly id: RequestId;
  readonly era: Era;
  readonly config: GateConfig;
  readonly run: Run;
  readonly step: Step;
  /**
   * Set by the first response that arrives: it settles the outcome, and what comes later only
   * repeats it.
   */
  transform: MaybePromise<Transform> | undefined;
  /** Whether it is not forwarded after all. */
  isWithdrawn = false;

  constructor(id: RequestId, era: Era, config: GateConfig, run: Run, step: Step) {
    this.id = id;
    this.era = era;
    this.config = config;
    this.run = run;
    this.step = step;
  }

  withdraw(): MaybePromise<void> {
    this.isWithdrawn = true;
    this.run.step = undefined;
    return this.step.withdraw();
  }
}

/**
 * The steps that a message goes on as, one for each gate, in mount order. Only gates hold calls.
 */
export function holdersOf({ holders }: Call): readonly HeldCall[] {
  return holders as readonly HeldCall[];
}

/**
 * Saves what a call came to, before its client hears of it, and says what is done to the answer.
 *
 * @param isLast as in {@link Step.settle}
 */
export function saveOutcome(
  call: HeldCall,
  message: Message,
  onMoved: MoveListener,
  isLast: boolean,
): MaybePromise<Transform> {
  const { result, error } = message.value;
  const outcome = {
    kind: outcomeOf(message),
    result: isObject(result) ? result : undefined,
    error,
  };
  return after(call.step.settle(outcome, onMoved, isLast), (settled) => {
    if (settled === 'settled') return AS_IT_CAME;
    if (settled === 'unsaved') return replacing(unknownReply(call, true));
    return message.isContradictory ? replacing(unknownReply(call, false)) : AS_IT_CAME;
  });
}

/** What a client is told of a step whose outcome is unknown. `ran`: it is known to have run. */
export function unknownReply({ id, step, era, config }: HeldCall, ran: boolean): JsonObject {
  return unknownOutcomeReply(id, step.tool, config.workflow.id, { ran, era });
}

function replacing(reply: JsonObject): Transform {
  return (message) => message.replace(reply);
}

/**
 * Also says in words where a call has moved the run, for each gate that is to, once all gates that
 * it is a step of have settled it: what is available then is what all of them allow.
 */
export function announcing(
  transform: MaybePromise<Transform>,
  held: readonly HeldCall[],
  gatesOf: (config: GateConfig) => Gates,
): MaybePromise<Transform> {
  if (!held.some(({ config }) => config.announce)) return transform;
  return after(transform, (own) => {
    const moved = held.filter(({ config, step }) => config.announce && step.movedTo !== undefined);
    const [first] = moved;
    if (first === undefined) return own;
    const leaves = new Map(held.map(({ config, step }) => [config, step.leaves]));
    const isKnown = gatesOf(first.config).areAll(leaves);
    const record = isKnown ? undefined : recordNow(first.config, first.run);
    return after(record, (read) => {
      const texts = moved.map(({ config, run, step }) => {
        const available = gatesOf(config).availableAfter(leaves, run, read);
        const { workflow } = config;
        const state = step.movedTo ?? '';
        return announcement(workflow.id, state, available, workflow.doneIn(state));
      });
      return adding(texts, own);
    });
  });
}

/**
 * Apart from where the texts are made: what is kept for replays must keep nothing of the request.
 */
function adding(texts: readonly string[], own: Transform): Transform {
  return (message) => {
    if (isObject(message.value.result)) {
      for (const text of texts)
        message.insert(['result', 'content'], { type: 'text', text }, 'end');
    }
    own(message);
  };
}

/**
 * A gate's step of a call, kept for its handler. Once nothing more can come of the step it lets go
 * of the call, and goes on saying which step it was.
 */
class FacedStep implements HandlersStep {
  readonly key: RunKey;
  readonly #workflow: Workflow;
  readonly #tool: string;
  readonly #idempotencyKey: string;
  readonly #state: string;
  #call: HeldCall | undefined;
  /** Where the run stood for the handler when the call was let go of. */
  #left: Position;
  #hasEnded = false;
  #facade: CurrentStep | undefined;

  /** `onEnd` is called when no answer of the call is waited for any more. */
  constructor(call: HeldCall, onEnd: () => void) {
    const { step, config } = call;
    const from = step.moves?.from ?? step.snapshot;
    this.key = step.key;
    this.#workflow = config.workflow;
    this.#tool = step.tool;
    this.#idempotencyKey = step.idempotencyKey;
    this.#state = from.state;
    this.#call = call;
    this.#left = from;
    step.onForgotten = () => {
      this.#end();
      onEnd();
    };
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get isOver(): boolean {
    return this.#open === undefined;
  }

  get facade(): CurrentStep {
    this.#facade ??= this.#make();
    return this.#facade;
  }

  /** The call, until what the step saves is settled. */
  get #open(): HeldCall | undefined {
    const call = this.#call;
    return call === undefined || call.transform !== undefined || call.step.isOver
      ? undefined
      : call;
  }

  /** An outcome that comes late is still saved, with what the handler has changed until then. */
  #end(): void {
    this.#hasEnded = true;
    if (this.#call === undefined || this.#open !== undefined) return;
    this.#left = this.#call.step.moves?.from ?? this.#left;
    this.#call = undefined;
  }

  /** Its methods may be taken off it. */
  #make(): CurrentStep {
    const data = () => this.#workflow.dataOf(this.#call?.step.moves?.from ?? this.#left);
    return {
      run: this.key.run,
      workflow: this.key.workflow,
      tool: this.#tool,
      state: this.#state,
      idempotencyKey: this.#idempotencyKey,
      get context() {
        return data();
      },
      update: (change) => {
        const call = this.#open;
        if (call === undefined)
          throw new Error('the step is over: a change of its data is not saved any more');
        if (call.step.savedByHandler)
          throw new Error('update() came after commitIn(), which has saved the data already');
        call.step.update(change);
        return data();
      },
      commitIn: async (client) => {
        const call = this.#call;
        if (call === undefined) throw notOurs('lost');
        const status = await call.step.commitIn(client);
        if (status === 'unsupported')
          throw new Error('the store has no transactions that a step could be committed in');
        if (status !== 'committed') throw notOurs(status);
      },
    };
  }
}

function notOurs(status: string): Error {
  return new Error(`the step is not this call's any more (${status}); roll back`);
}

/**
 * Lets the call's handler find the step. Where two gates claim one call, the handler gets the first
 * one's key.
 */
export function showHandler(incoming: Call, call: HeldCall): void {
  const held = Try.of(incoming) ?? beginTry(incoming, call.step);
  held.add(new FacedStep(call, () => held.rest()));
}

function beginTry(incoming: Call, { idempotencyKey }: Step): Try {
  const begun = Try.begin(incoming);
  const members = { [IDEMPOTENCY_KEY]: idempotencyKey, [META_TRY]: begun.id };
  incoming.message.assign(['params', '_meta'], members);
  return begun;
}
