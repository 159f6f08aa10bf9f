/**
 * Calls that created a task, whose steps go on until the task ends. Hides the shapes in which both
 * eras show a task's end, and which process then saves what the step came to.
 */
import { LONGEST_MS } from '../basics/clock.ts';
import { digestOf } from '../basics/digest.ts';
import type { Admission, Run, TaskOwner } from '../session/run.ts';
import { Moves, type MovingBinding, type StepOrigin } from '../step/outcome.ts';
import { type MoveListener, Step } from '../step/step.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { Uncertain } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { ESCAPED_ASCII, type Filter } from '../wire/filter.ts';
import type { Era } from '../wire/headers.ts';
import {
  errorResponse,
  isObject,
  isRequestId,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import { Message } from '../wire/message.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type { Position } from '../workflow/position.ts';
import {
  AS_IT_CAME,
  announcing,
  ClaimedCall,
  type CreatedTask,
  saveOutcome,
  type Transform,
} from './claimed-call.ts';
import type { GateConfig } from './config.ts';
import { Gates } from './gates.ts';
import { notifyMoved } from './list-changes.ts';
import { type Recordable, RecordedLookup } from './recorded-call.ts';

const TASKS = Buffer.from('tasks');

/**
 * One gate's part in an exchange that may show a task's end. It saves what the task's step came to
 * before the client sees the end.
 */
export class TaskFilter implements Filter {
  readonly stage = 'gate';
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  /** The client's questions about tasks, except those whose answers have shown no end. */
  readonly #questions: Map<RequestId, TaskQuestion>;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    const asked = exchange.requests.map(questionOf).filter((each) => each !== undefined);
    this.#questions = new Map(asked.map((each) => [each.id, each]));
  }

  wants(bytes: Buffer): boolean {
    return this.#questions.size > 0 || bytes.includes(TASKS) || bytes.includes(ESCAPED_ASCII);
  }

  onMessage(message: Message): MaybePromise<void> {
    const { id, method } = message.value;
    const question = method === undefined && isRequestId(id) ? this.#questions.get(id) : undefined;
    const end = question === undefined ? endInNotice(message) : endInAnswer(message, question);
    if (end !== undefined) return this.#showEnd(end, message);
    if (question !== undefined) this.#questions.delete(question.id);
  }

  onEnd(): JsonObject[] {
    this.onClose();
    return [];
  }

  /** If the stream can be resumed, the answers come on another one. */
  onClose(): void {
    const { era, session } = this.#admission;
    if (era !== 'session' || !this.#exchange.tap.resumable) return;
    for (const { id } of this.#questions.values()) {
      session.late.expect(id, `tasks of ${this.#config.workflow.id}`, (message) =>
        this.onMessage(message),
      );
    }
  }

  async #showEnd(end: TaskEnd, message: Message): Promise<void> {
    let task: GatedTask | undefined;
    try {
      task = await findTask(this.#config, this.#admission, end.taskId);
    } catch (error) {
      this.#config.onError(error);
      // The task may be a step's, and a client must not see a success that is not saved.
      end.postpone();
      return;
    }
    if (task === undefined) return;
    const { reply } = end;
    const admission = this.#admission;
    const run = admission.runNamed(task.ticket.run);
    const on = { exchange: this.#exchange, message };
    const onMoved: MoveListener = (move, isLate) =>
      notifyMoved(this.#config, admission, run, move, isLate ? undefined : on);
    const gates = Gates.of(this.#config, this.#exchange);
    const transform = await task.finish(reply, { admission, run, gates, onMoved });
    if (reply === undefined) return;
    transform(reply);
    if (reply.changed) end.report(reply);
  }
}

/** The tasks that this process knows, by their tickets' keys. */
const tables = new WeakMap<GuardedStore, Map<string, GatedTask>>();

/** The exchange that shows a task's end, as far as saving it needs. */
interface Witness {
  readonly admission: Admission;
  readonly run: Run;
  readonly gates: Gates;
  readonly onMoved: MoveListener;
}

/** This deployment does not bind the tool any more. */
const MOVES_NOTHING: MovingBinding = {
  eventIn: () => undefined,
  retriesIn: () => 0,
  errorsIn: () => [],
  results: 'structured',
};

/** A task that a gated call created. It is known until some time after its end. */
class GatedTask {
  readonly ticket: Ticket;
  readonly #key: string;
  readonly #config: GateConfig;
  #step: Step | undefined;
  #transform: Promise<Transform> | undefined;

  constructor(key: string, ticket: Ticket, config: GateConfig, step?: Step) {
    this.#key = key;
    this.ticket = ticket;
    this.#config = config;
    this.#step = step;
  }

  /**
   * Saves what the task came to, once, and gives the change of each reply that shows it. If saving
   * fails, the next request that shows the end tries again.
   */
  finish(reply: Message | undefined, witness: Witness): Promise<Transform> {
    this.#transform ??= this.#save(reply, witness).catch((error: unknown) => {
      // The app's code failed to say where the end leads. Its claim must not be renewed for ever.
      this.#transform = undefined;
      this.#step?.giveUp();
      throw error;
    });
    return this.#transform;
  }

  async #save(
    reply: Message | undefined,
    { admission, run, gates, onMoved }: Witness,
  ): Promise<Transform> {
    const { ticket } = this;
    const { clock, times, onError } = this.#config;
    const { era } = admission;
    let call: ClaimedCall | RecordedLookup;
    let saved: MaybePromise<Transform> | undefined;
    if ('recordable' in ticket) {
      call = this.#recorded(ticket.recordable, era, run);
      saved = reply && call.record(reply, (move) => onMoved(move, false));
    } else {
      this.#step ??= this.#resumed(ticket, run);
      call = new ClaimedCall({ id: 0, era, config: this.#config, run }, this.#step);
      // Not the last answer: a client may ask for the task again.
      saved = reply && saveOutcome(call, reply, onMoved, false);
    }
    const transform = saved && (await announcing(saved, [call], admission, () => gates));
    if (reply === undefined && call instanceof ClaimedCall) {
      const entry = call.step.moves?.attempted({ outcome: 'failed', kind: 'cancelled' });
      await call.step.release({ entry });
    }
    const state = call instanceof ClaimedCall ? call.step.state : !call.isUnrecorded && 'saved';
    if (state === 'saved' || state === 'released') run.store.delete(this.#key).catch(onError);
    // The ticket of one whose outcome stays unknown is kept: each process is to show that.
    else if (state !== 'left') this.#transform = undefined;
    clock.after(times.maxStepMs, () => this.forget(run.store));
    return transform ?? AS_IT_CAME;
  }

  /** The call that held no claim, with its binding in this deployment. */
  #recorded(recordable: Recordable, era: Era, run: Run): RecordedLookup {
    const { tool, args } = recordable.origin;
    const binding = this.#config.workflow.match(tool, args) ?? MOVES_NOTHING;
    return new RecordedLookup({ id: 0, era, config: this.#config, run, binding }, recordable, true);
  }

  /** From now on this process must read the ticket, as any other one. */
  forget(store: GuardedStore): void {
    const table = tableOf(store);
    if (table.get(this.#key) === this) table.delete(this.#key);
  }

  /**
   * The step as it was when its call was forwarded. If this deployment does not bind the tool any
   * more, the end moves nothing.
   */
  #resumed(ticket: StepTicket, run: Run): Step {
    const { workflow, onError } = this.#config;
    const { token, idempotencyKey, uncertain, version, from, before, origin, isUpdated } = ticket;
    let binding: MovingBinding = MOVES_NOTHING;
    try {
      binding = workflow.match(origin.tool, origin.args) ?? binding;
    } catch (error) {
      onError(error);
    }
    const moves = new Moves(this.#config, binding, from, origin, before);
    const kept = { token, idempotencyKey, uncertain, moves, version };
    const step = Step.resumed(this.#config, run, kept);
    step.isUpdated = isUpdated === true;
    return step;
  }
}

/** Lets the step of a call that created a task go on until the task ends, or its ttl is over. */
export async function carryOn(
  call: ClaimedCall,
  created: CreatedTask,
  admission: Admission,
): Promise<Transform> {
  const { step, run } = call;
  const { moves } = step;
  if (moves === undefined) return AS_IT_CAME;
  const { token, idempotencyKey, uncertain, isUpdated, snapshot } = step;
  const { version = 0 } = snapshot;
  const { current: from, found: before, origin } = moves;
  const ticket: StepTicket = {
    run: run.run,
    token,
    idempotencyKey,
    uncertain,
    version,
    from,
    ...(before !== from && { before }),
    origin,
    ...(isUpdated && { isUpdated }),
  };
  return keepTask(call, created, admission, ticket, step);
}

/** The success of a call that created a task is recorded before a client sees the task's end. */
export function recordLater(
  call: RecordedLookup,
  created: CreatedTask,
  admission: Admission,
): Promise<Transform> {
  const { run, recordable } = call;
  return keepTask(call, created, admission, { run: run.run, recordable });
}

/**
 * Keeps a ticket while the task may live, and for a late end another `ttlMs`. A claim does that in
 * one operation: a run's first claim saves what the run begins with.
 */
async function keepTask(
  { run, config }: Pick<ClaimedCall, 'run' | 'config'>,
  { taskId, ttlMs }: CreatedTask,
  admission: Admission,
  ticket: Ticket,
  step?: Step,
): Promise<Transform> {
  const { workflow, times, clock, onError } = config;
  const { store } = run;
  const key = ticketRun(admission.taskOwnerOf(run), taskId, workflow.id);
  const lifeMs = Math.min(Math.ceil(ttlMs ?? times.maxStepMs), LONGEST_MS);
  if (step === undefined || step.hasClaim) {
    const task = new GatedTask(key, ticket, config, step);
    tableOf(store).set(key, task);
    const forget = (): void => task.forget(store);
    const giveUp = (): void => {
      forget();
      step?.giveUp();
    };
    if (step === undefined) clock.after(lifeMs, forget);
    else step.goOn(lifeMs, giveUp, forget);
  }
  const { token, origin } = 'recordable' in ticket ? ticket.recordable : ticket;
  const context = JSON.stringify(ticket);
  const keep = async (): Promise<boolean> => {
    const claimed = await store.claim({
      run: key,
      workflow: WORKFLOW,
      token,
      step: { tool: origin.tool, digest: '', uncertain: 'retry' },
      states: undefined,
      initial: { state: 'open', updatedAt: 0, context },
      create: {},
      // A full store does not evict runs with a live claim.
      leaseMs: lifeMs,
      ttlMs: lifeMs + run.ttlMs,
    });
    return claimed.status === 'claimed' && claimed.snapshot.context === context;
  };
  try {
    if (await keep()) return AS_IT_CAME;
    // The upstream has used this id before, for a task that it has forgotten.
    await store.delete(key);
    await keep();
  } catch (error) {
    onError(error);
  }
  return AS_IT_CAME;
}

/**
 * The task of that id, if a step of this gate created it. Rejects if the store fails, or if this
 * deployment does not understand where the task's call found its run.
 */
async function findTask(
  config: GateConfig,
  admission: Admission,
  taskId: string,
): Promise<GatedTask | undefined> {
  for (const owner of admission.taskOwners) {
    const key = ticketRun(owner, taskId, config.workflow.id);
    const { store, ttlMs } = admission.runNamed(key);
    const table = tableOf(store);
    const known = table.get(key);
    if (known !== undefined) return known;
    const record = await store.read(key, ttlMs);
    const text = record?.workflows[WORKFLOW]?.snapshot.context;
    if (typeof text !== 'string') continue;
    const ticket = understoodTicket(JSON.parse(text) as Ticket, config);
    const task = table.get(key) ?? new GatedTask(key, ticket, config);
    table.set(key, task);
    return task;
  }
  return undefined;
}

/** Another deployment may have kept the ticket. */
function understoodTicket(ticket: Ticket, { workflow }: GateConfig): Ticket {
  if ('recordable' in ticket) {
    const { found } = ticket.recordable;
    return {
      ...ticket,
      recordable: { ...ticket.recordable, found: { ...found, ...workflow.adopt(found) } },
    };
  }
  const { from, before, ...kept } = ticket;
  const stood = { from: workflow.adopt(from), ...(before && { before: workflow.adopt(before) }) };
  return { ...kept, ...stood };
}

function tableOf(store: GuardedStore): Map<string, GatedTask> {
  const table = tables.get(store) ?? new Map<string, GatedTask>();
  tables.set(store, table);
  return table;
}

/** What a process needs to save a task's end, kept in the store because any process may see it. */
type Ticket = StepTicket | RecordTicket;

/** Of a call that ran beside others. */
interface RecordTicket {
  readonly run: string;
  readonly recordable: Recordable;
}

/** Of a step. */
interface StepTicket {
  readonly run: string;
  /** The claim's token. */
  readonly token: string;
  readonly idempotencyKey: string;
  readonly uncertain: Uncertain;
  /** The version of the snapshot from which the call made its moves. */
  readonly version: number;
  /** As `current` in {@link Moves}. Other versions read it by this name. */
  readonly from: Position;
  /** As `found` in {@link Moves}, if it is not `from`. */
  readonly before?: Position;
  readonly origin: StepOrigin;
  /** Whether its handler changed the run's data. */
  readonly isUpdated?: boolean;
}

/** A ticket is kept as the context of a run of this workflow. */
const WORKFLOW = 'task';

/**
 * The key of the run that keeps a ticket. No client can name it in a header: it has a space. A
 * client that does not own the task gets another key.
 */
function ticketRun(owner: TaskOwner, taskId: string, workflow: string): string {
  return `task ${digestOf([...owner, taskId, workflow])}`;
}

/** A request whose answer may show a task's end. */
export interface TaskQuestion {
  readonly id: RequestId;
  readonly method: 'tasks/get' | 'tasks/result' | 'tasks/cancel';
  readonly taskId: string;
}

/** A task's end, as a message to the client shows it. */
interface TaskEnd {
  readonly taskId: string;
  /** What the call would have got without a task; `undefined` where the task was cancelled. */
  readonly reply: Message | undefined;
  /** Writes a changed reply back into the message, as far as the message has room for it. */
  report(reply: Message): void;
  /** Hides the end from the client, who may ask again. */
  postpone(): void;
}

const LATER = 'The outcome of the task could not be recorded; try again later';
const STATUS_NOTE = 'notifications/tasks/status';

function questionOf({ id, method, message }: Call): TaskQuestion | undefined {
  if (method !== 'tasks/get' && method !== 'tasks/result' && method !== 'tasks/cancel')
    return undefined;
  const taskId = message.at('params', 'taskId');
  return id === undefined || typeof taskId !== 'string' ? undefined : { id, method, taskId };
}

/** The end in a notification: SDK v1's has the status alone, the extension's has the result. */
export function endInNotice(message: Message): TaskEnd | undefined {
  const { method, params } = message.value;
  if (method !== STATUS_NOTE && method !== 'notifications/tasks') return undefined;
  if (!isObject(params)) return undefined;
  const postpone = (): void => {
    message.set(['params', 'status'], 'working');
    for (const key of ['result', 'error']) message.remove(['params'], key);
  };
  return endOf(message, 'params', params, method === STATUS_NOTE, postpone);
}

/** The end in the answer to a question. */
export function endInAnswer(message: Message, question: TaskQuestion): TaskEnd | undefined {
  const { result, error } = message.value;
  const { id, method, taskId } = question;
  const postpone = (): void => message.replace(errorResponse(id, JSON_RPC.INTERNAL_ERROR, LATER));
  if (method === 'tasks/result') {
    // It returns what the call would have returned, errors included (MCP 2025-11-25, "Tasks"). An
    // error of a reserved code (JSON-RPC 2.0, section 5.1) may be about the question itself, such
    // as an unknown task. So it is no end: `tasks/get` will show the end.
    const code = isObject(error) ? error.code : undefined;
    const isReserved = typeof code !== 'number' || (code >= -32768 && code <= -32000);
    if (error === undefined ? !isObject(result) : isReserved) return undefined;
    const member = error === undefined ? 'result' : 'error';
    return { taskId, ...replyAt(message, [], member), postpone };
  }
  if (!isObject(result) || result.taskId !== taskId) return undefined;
  // The stateless era's results have a `resultType`, and its tasks contain their results.
  return endOf(message, 'result', result, result.resultType === undefined, postpone);
}

/** The end of the task at `at`. A status of `input_required` or `working` is no end. */
function endOf(
  message: Message,
  at: 'params' | 'result',
  { taskId, status, result, error }: JsonObject,
  /** Whether the status alone reports the end, as in SDK v1. */
  hasStatusOnly: boolean,
  postpone: () => void,
): TaskEnd | undefined {
  if (typeof taskId !== 'string') return undefined;
  const end = (shown: Pick<TaskEnd, 'reply' | 'report'>): TaskEnd => ({
    taskId,
    ...shown,
    postpone,
  });
  if (status === 'cancelled') return end({ reply: undefined, report() {} });
  if (status === 'completed' && isObject(result)) return end(replyAt(message, [at], 'result'));
  if (status === 'failed' && isObject(error)) return end(replyAt(message, [at], 'error'));
  const isError = status === 'failed';
  const isEnd = isError || (status === 'completed' && hasStatusOnly);
  return isEnd ? end(replyByStatus(message, at, isError)) : undefined;
}

/** The reply in the message, character by character as the call would have got it. */
function replyAt(
  message: Message,
  path: readonly string[],
  member: 'result' | 'error',
): Pick<TaskEnd, 'reply' | 'report'> {
  const place = [...path, member];
  const text = `{"jsonrpc":"2.0","id":0,"${member}":${message.textAt(place) ?? '{}'}}`;
  return {
    reply: new Message(JSON.parse(text) as JsonObject, text),
    report(reply) {
      const changed = reply.textAt([member]);
      if (changed !== undefined) message.setText(place, changed);
    },
  };
}

/**
 * A status says success or failure, and no more. An outcome that could not be saved is written as a
 * failure: `tasks/result` will show the same.
 */
function replyByStatus(
  message: Message,
  at: 'params' | 'result',
  isError: boolean,
): Pick<TaskEnd, 'reply' | 'report'> {
  return {
    reply: new Message({ jsonrpc: '2.0', id: 0, result: { content: [], isError } }),
    report(reply) {
      if (isError || reply.at('result', 'isError') !== true) return;
      const content = reply.at('result', 'content');
      const words = Array.isArray(content) && isObject(content[0]) ? content[0].text : undefined;
      message.set([at, 'status'], 'failed');
      message.set([at, 'statusMessage'], words ?? LATER);
    },
  };
}
