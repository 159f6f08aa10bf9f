/**
 * A call whose run one gate has claimed, from the claim to the last replay of its answer. Hides
 * what an answer says of the outcome, and what the call's handler may still do to the step.
 */
import { type CurrentStep, type HandlersStep, Try } from '../session/current-step.ts';
import type { Admission, Run } from '../session/run.ts';
import type { Outcome } from '../step/outcome.ts';
import type { MoveListener, Step } from '../step/step.ts';
import type { RunKey } from '../stores/store.ts';
import type { Call, Holder, LateStake } from '../wire/call.ts';
import type { Era } from '../wire/headers.ts';
import {
  IDEMPOTENCY_KEY,
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
import { recordNow, type Standing } from './standing.ts';
import { withErrors } from './try-errors.ts';
import { announcesTo } from './visibility.ts';

/** The member of `_meta` that says what a gate reported of a call that ran. */
export const OUTCOME = `${META_PREFIX}outcome`;

/** A task that a call has created, in place of its result. */
export interface CreatedTask {
  readonly taskId: string;
  /** How long the upstream keeps it from its creation on, in milliseconds, if it says so. */
  readonly ttlMs: number | undefined;
}

/**
 * The task that an answer names: flat under the tasks extension of MCP 2026-07-28, nested in MCP
 * 2025-11-25. Ignores other members: an SDK may add an empty `content`.
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
 * The kind of a call's outcome. Only a result that is complete, or has no `resultType`, is a
 * success (MCP 2026-07-28, "Results"). A task without an id cannot be followed, so its outcome is
 * unknown.
 */
function outcomeKindOf(message: Message): Outcome['kind'] {
  const { result, error } = message.value;
  if (message.isContradictory) return 'unknown';
  // The upstream asks for an input that this client cannot give.
  if (isObject(error) && error.code === JSON_RPC.MISSING_CAPABILITY) return 'input_required';
  if (error !== undefined) return 'failed';
  if (!isObject(result)) return 'unknown';
  if (result.resultType === 'input_required') return 'input_required';
  if (result.resultType !== undefined && result.resultType !== 'complete') return 'unknown';
  if (result.task !== undefined) return 'unknown';
  // A gate in front, on this route or behind it, has answered the client so in place of the result.
  if (message.at('result', '_meta', OUTCOME, 'outcome') === 'unknown') return 'unknown';
  return result.isError === true ? 'failed' : 'succeeded';
}

/** What the upstream's answers said before a gate in front replaced one. */
const outcomes = new WeakMap<Message, Outcome>();

/**
 * What a call came to, by its answer. Each gate of the route reads the same. A gate in front that
 * could not save the outcome replaces the answer by an error, although the tool ran.
 */
export function outcomeOf(message: Message): Outcome {
  const known = outcomes.get(message);
  if (known !== undefined) return known;
  const { result, error } = message.value;
  const outcome = {
    kind: outcomeKindOf(message),
    result: isObject(result) ? result : undefined,
    error,
    textOfAnswer: () => message.text,
  };
  outcomes.set(message, outcome);
  return outcome;
}

/**
 * Changes an answer for the client once its outcome is saved; each replay is changed the same way.
 */
export type Transform = (message: Message) => void;

export const AS_IT_CAME: Transform = () => {};

/** A call whose moves its answer may announce. */
export interface Announced {
  readonly config: GateConfig;
  readonly run: Run;
  /** Where its clients see the run afterwards. */
  readonly leaves: Position | undefined;
  /** The state that it moved the run to, if it did. */
  readonly movedTo: string | undefined;
}

/** A call that a gate lets through, and its run. */
export interface LetThrough {
  readonly id: RequestId;
  readonly era: Era;
  readonly config: GateConfig;
  readonly run: Run;
  /** Where its run stood then. Absent for a task that another process has forwarded. */
  readonly standing?: Standing;
}

/** A forwarded call whose answer a gate waits for, with a claim or without. */
export abstract class AnswerHolder implements Holder, Announced {
  readonly id: RequestId;
  readonly era: Era;
  readonly config: GateConfig;
  readonly run: Run;
  readonly standing: Standing | undefined;
  /** Set by the first answer, which decides the outcome; later ones repeat it. */
  transform: MaybePromise<Transform> | undefined;
  /** Whether the call was not forwarded after all. */
  isWithdrawn = false;

  constructor({ id, era, config, run, standing }: LetThrough) {
    this.id = id;
    this.era = era;
    this.config = config;
    this.run = run;
    this.standing = standing;
  }

  abstract readonly leaves: Position | undefined;
  abstract readonly movedTo: string | undefined;
  /** How much depends on an answer that comes on another stream. */
  abstract readonly stake: LateStake;
  abstract withdraw(): MaybePromise<void>;
}

/** A call, and the claim that one gate holds for it until its outcome is saved. */
export class ClaimedCall extends AnswerHolder {
  readonly step: Step;

  constructor(call: LetThrough, step: Step) {
    super(call);
    this.step = step;
  }

  get stake(): LateStake {
    if (!this.step.canSettle) return 'repeat';
    return this.step.hasClaim ? 'step' : 'given-up';
  }

  get leaves(): Position | undefined {
    return this.step.leaves;
  }

  get movedTo(): string | undefined {
    return this.step.movedTo;
  }

  withdraw(): MaybePromise<void> {
    this.isWithdrawn = true;
    this.run.steppingCall = undefined;
    return this.step.withdraw();
  }
}

/** The call's claims, one of each gate that claimed its run, in mount order. */
export function holdersOf({ holders }: Call): readonly ClaimedCall[] {
  return holders.filter((each) => each instanceof ClaimedCall);
}

/**
 * Saves what a call came to before its client reads it, and gives the change of its answer.
 *
 * @param isLast as in {@link Step.settle}
 */
export function saveOutcome(
  call: ClaimedCall,
  message: Message,
  onMoved: MoveListener,
  isLast: boolean,
): MaybePromise<Transform> {
  const outcome = withErrors(outcomeOf(message), call.step.tool, call.config);
  return after(call.step.settle(outcome, onMoved, isLast), (settled) => {
    if (settled === 'settled') return AS_IT_CAME;
    if (settled === 'unsaved') return replacing(unknownReply(call, true));
    if (settled === 'doubted') return replacing(doubtedReply(call));
    return message.isContradictory ? replacing(unknownReply(call, false)) : AS_IT_CAME;
  });
}

/** What the client reads of a step whose outcome is unknown. `ran`: its handler surely ran. */
export function unknownReply({ id, step, era, config }: ClaimedCall, ran: boolean): JsonObject {
  return unknownOutcomeReply(id, step.tool, config.workflow.id, { ran, era });
}

/** What the client reads where the handler, or the binding, says that the outcome is unknown. */
function doubtedReply({ id, step, era, config }: ClaimedCall): JsonObject {
  const { tool, uncertain, doubt } = step;
  const words = doubt?.words;
  const mayRepeat = uncertain === 'retry' && step.state === 'left';
  return unknownOutcomeReply(id, tool, config.workflow.id, { ran: false, era, words, mayRepeat });
}

export function replacing(reply: JsonObject): Transform {
  return (message) => message.replace(reply);
}

/**
 * Adds words to the answer: where the call moved the run, and what is available now. Waits until
 * all gates have saved their moves, because a tool is available where all of them allow it.
 */
export function announcing(
  transform: MaybePromise<Transform>,
  calls: readonly Announced[],
  admission: Admission,
  gatesOf: (config: GateConfig) => Gates,
): MaybePromise<Transform> {
  const announced = calls.filter(({ config }) => announcesTo(config, admission));
  if (announced.length === 0) return transform;
  return after(transform, (own) => {
    const moved = announced.filter(({ movedTo }) => movedTo !== undefined);
    const [first] = moved;
    if (first === undefined) return own;
    const leaves = new Map(calls.map(({ config, leaves: at }) => [config, at]));
    const isKnown = gatesOf(first.config).areAll(leaves);
    const record = isKnown ? undefined : recordNow(first.config, first.run);
    return after(record, (read) => {
      const texts = moved.map(({ config, run, movedTo: state = '' }) => {
        const available = gatesOf(config).availableAfter(leaves, run, read);
        const { workflow } = config;
        return announcement(workflow.id, state, available, workflow.model.doneIn?.(state));
      });
      return adding(texts, own);
    });
  });
}

/** A function of its own: the change is kept for replays, and must not keep the request alive. */
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
 * A step, as its handler sees it. Once the step is over, it lets go of the call, but still says
 * which step it was: a handler may outlive its call.
 */
class FacedStep implements HandlersStep {
  readonly key: RunKey;
  readonly #workflow: Workflow;
  readonly #facts: Pick<CurrentStep, 'run' | 'workflow' | 'tool' | 'state' | 'idempotencyKey'>;
  #call: ClaimedCall | undefined;
  /** Where the run stood when the call was let go of. */
  #left: Position;
  readonly #attempt: Try;
  #hasEnded = false;
  #facade: CurrentStep | undefined;

  constructor(call: ClaimedCall, attempt: Try) {
    const { step, config } = call;
    const { key, tool, idempotencyKey } = step;
    const from = step.moves?.current ?? step.snapshot;
    this.key = key;
    this.#workflow = config.workflow;
    this.#facts = { ...key, tool, state: from.state, idempotencyKey };
    this.#call = call;
    this.#left = from;
    this.#attempt = attempt;
    step.onForgotten = () => {
      this.#end();
      attempt.rest();
    };
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get isOver(): boolean {
    return this.#open === undefined;
  }

  get isSavedByHandler(): boolean {
    const { step } = this.#open ?? {};
    return step !== undefined && (step.savedByHandler || step.isCommitting);
  }

  doubt(words: string | undefined): void {
    const { step } = this.#open ?? {};
    if (step !== undefined) step.doubt ??= { why: words ?? 'its handler does not know it', words };
  }

  get facade(): CurrentStep {
    this.#facade ??= this.#make();
    return this.#facade;
  }

  /** The call, while the handler can still change what the step saves. */
  get #open(): ClaimedCall | undefined {
    const call = this.#call;
    return call === undefined || call.transform !== undefined || !call.step.canSettle
      ? undefined
      : call;
  }

  /** Keeps the call while its outcome is open: a late one is saved with the handler's changes. */
  #end(): void {
    this.#hasEnded = true;
    if (this.#call === undefined || this.#open !== undefined) return;
    this.#left = this.#call.step.moves?.current ?? this.#left;
    this.#call = undefined;
  }

  /** An object of functions, not of methods: a handler may take them off it. */
  #make(): CurrentStep {
    const data = () => this.#workflow.dataOf(this.#call?.step.moves?.current ?? this.#left);
    return {
      ...this.#facts,
      get context() {
        return data();
      },
      update: (change) => {
        const call = this.#open;
        if (call === undefined)
          throw new Error('the step is over: a change of its data is not saved any more');
        if (call.step.isCommitting || call.step.savedByHandler)
          throw new Error('update() came after commitIn(), which has saved the data already');
        if (call.step.doubt !== undefined)
          throw new Error('update() came after unknown(): a change of the data is not saved');
        call.step.update(change);
        return data();
      },
      unknown: (words) => {
        if (this.#open === undefined)
          throw new Error('the step is over: its outcome was read off its answer');
        this.#attempt.doubt(words || undefined);
      },
      commitIn: async (client) => {
        const call = this.#call;
        if (call === undefined) throw notOurs('lost');
        if (call.step.doubt !== undefined)
          throw new Error('commitIn() came after unknown(); roll back');
        const status = await call.step.commitIn(client);
        if (status === 'unsupported')
          throw new Error(
            'the store has no transactions to commit a step in: commitIn() needs postgresStore()',
          );
        if (status !== 'committed') throw notOurs(status);
      },
    };
  }
}

function notOurs(status: string): Error {
  return new Error(`the step is not this call's any more (${status}); roll back`);
}

/**
 * Lets the call's handler find the step. If two gates claim the call, it gets the first one's key.
 */
export function showHandler(incoming: Call, call: ClaimedCall): void {
  let attempt = Try.of(incoming);
  if (attempt === undefined) {
    attempt = Try.begin(incoming);
    const { idempotencyKey } = call.step;
    const members = { [IDEMPOTENCY_KEY]: idempotencyKey, [META_TRY]: attempt.id };
    incoming.message.assign(['params', '_meta'], members);
  }
  attempt.add(new FacedStep(call, attempt));
}
