import { LONGEST_MS } from '../clock.ts';
import { digestOf } from '../digest.ts';
import type { Admission, Run } from '../session/run.ts';
import { type CallOrigin, Moves, type MovingBinding } from '../step/outcome.ts';
import { type MoveListener, Step } from '../step/step.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { AtomicStateStore } from '../stores/store.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import type { Era } from '../wire/headers.ts';
import { idKey, isRequestId, type JsonObject } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type { Position } from '../workflow/position.ts';
import type { GateConfig } from './config.ts';
import { Gates } from './gates.ts';
import {
  AS_IT_CAME,
  announcing,
  type CreatedTask,
  HeldCall,
  saveOutcome,
  type Transform,
} from './held-call.ts';
import { tellMoved } from './list-changes.ts';
import {
  endInAnswer,
  endInNotice,
  questionOf,
  type TaskEnd,
  type TaskQuestion,
} from './task-end.ts';

const TASKS = Buffer.from('tasks');
const ESCAPED_ASCII = Buffer.from('\\u00');

/**
 * One gate's part in an exchange that may show how tasks ended: it saves what their steps came to
 * before the client hears of it.
 */
export class TaskFilter implements Filter {
  readonly stage = 'gate';
  readonly #config: GateConfig;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  /** But for those whose answers showed no end. */
  readonly #questions: Map<string, TaskQuestion>;

  constructor(config: GateConfig, exchange: Exchange, admission: Admission) {
    this.#config = config;
    this.#exchange = exchange;
    this.#admission = admission;
    const asked = exchange.requests.map(questionOf).filter((each) => each !== undefined);
    this.#questions = new Map(asked.map((each) => [idKey(each.id), each]));
  }

  wants(bytes: Buffer): boolean {
    return this.#questions.size > 0 || bytes.includes(TASKS) || bytes.includes(ESCAPED_ASCII);
  }

  onMessage(message: Message): MaybePromise<void> {
    const { id, method } = message.value;
    const question =
      method === undefined && isRequestId(id) ? this.#questions.get(idKey(id)) : undefined;
    const end = question === undefined ? endInNotice(message) : endInAnswer(message, question);
    if (end !== undefined) return this.#showEnd(end, message);
    if (question !== undefined) this.#questions.delete(idKey(question.id));
  }

  onEnd(): JsonObject[] {
    this.#expectLate();
    return [];
  }

  onClose(): void {
    this.#expectLate();
  }

  async #showEnd(end: TaskEnd, message: Message): Promise<void> {
    let task: GatedTask | undefined;
    try {
      task = await findTask(this.#config, this.#admission, end.taskId);
    } catch (error) {
      this.#config.onError(error);
      // Whether it is a step's is not known, and a success must not be seen that is not saved.
      end.postpone();
      return;
    }
    if (task === undefined) return;
    const { reply } = end;
    const { era } = this.#admission;
    const run = this.#admission.runNamed(task.ticket.run);
    const on = { exchange: this.#exchange, message };
    const onMoved: MoveListener = (move, isLate) =>
      tellMoved(this.#config, this.#admission, run, move, isLate ? undefined : on);
    const gates = Gates.of(this.#config, this.#exchange);
    const transform = await task.finish(reply, { era, run, gates, onMoved });
    if (reply === undefined) return;
    transform(reply);
    if (reply.changed) end.tell(reply);
  }

  /** A stream that can be resumed brings the answer elsewhere. */
  #expectLate(): void {
    const { era, session } = this.#admission;
    if (era !== 'session' || !this.#exchange.tap.resumable) return;
    for (const { id } of this.#questions.values()) {
      session.late.expect(id, `tasks of ${this.#config.workflow.id}`, (message) =>
        this.onMessage(message),
      );
    }
  }
}

/** What this process knows of tasks, by their tickets' keys. */
const tables = new WeakMap<GuardedStore, Map<string, GatedTask>>();

/** Who saw a task's end, and tells of the move. */
export interface Witness {
  readonly era: Era;
  readonly run: Run;
  readonly gates: Gates;
  readonly onMoved: MoveListener;
}

/** A task that a step's call created, until some time after its end. */
export class GatedTask {
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
   * Saves what the task came to, once, and gives what is done to each reply that shows it. Where it
   * could not be saved, the next one who sees the end tries again.
   */
  finish(reply: Message | undefined, witness: Witness): Promise<Transform> {
    this.#transform ??= this.#save(reply, witness).catch((error: unknown) => {
      // Where its end leads cannot be told, and a claim that stayed would be renewed for ever.
      this.#transform = undefined;
      this.#step?.giveUp();
      throw error;
    });
    return this.#transform;
  }

  async #save(
    reply: Message | undefined,
    { era, run, gates, onMoved }: Witness,
  ): Promise<Transform> {
    const { clock, times, onError } = this.#config;
    this.#step ??= this.#resumed(run);
    const step = this.#step;
    const call = new HeldCall(0, era, this.#config, run, step);
    // A client asks for a task again, which shows its end again.
    const saved = reply && saveOutcome(call, reply, onMoved, false);
    const transform = saved && (await announcing(saved, [call], () => gates));
    if (reply === undefined) {
      const entry = step.moves?.attempted({ outcome: 'failed', kind: 'cancelled' });
      await step.release({ entry });
    }
    if (step.state === 'saved' || step.state === 'released')
      run.store.delete(this.#key).catch(onError);
    else this.#transform = undefined;
    clock.after(times.maxStepMs, () => this.forget(run.store));
    return transform ?? AS_IT_CAME;
  }

  /** From now on this process knows no more of it than any other one. */
  forget(store: GuardedStore): void {
    const table = tableOf(store);
    if (table.get(this.#key) === this) table.delete(this.#key);
  }

  /**
   * As it was when the call was let through. A deployment that binds the tool no more leaves the
   * run where it is.
   */
  #resumed(run: Run): Step {
    const { workflow, onError } = this.#config;
    const { token, idempotencyKey, from, before, origin, isUpdated = false } = this.ticket;
    let binding: MovingBinding = { eventIn: () => undefined, retriesIn: () => 0 };
    try {
      binding = workflow.match(origin.tool, origin.args) ?? binding;
    } catch (error) {
      onError(error);
    }
    const moves = new Moves(this.#config, binding, from, origin, before);
    const step = Step.resumed(this.#config, run, { token, idempotencyKey, moves });
    step.isUpdated = isUpdated;
    return step;
  }
}

/**
 * The call only created a task: its step goes on until the task ends, or until its time to live is
 * over.
 */
export async function carryOn(
  { step, run, config }: HeldCall,
  { taskId, ttlMs }: CreatedTask,
  { taskOwner }: Admission,
): Promise<Transform> {
  const { workflow, times, onError } = config;
  const { moves } = step;
  if (moves === undefined) return AS_IT_CAME;
  const { store } = run;
  const { token, idempotencyKey, isUpdated } = step;
  const { from, before, origin } = moves;
  const key = ticketRun(taskOwner, taskId, workflow.id);
  const ticket: Ticket = {
    run: run.run,
    token,
    idempotencyKey,
    from,
    ...(before !== from && { before }),
    origin,
    ...(isUpdated && { isUpdated }),
  };
  const lifeMs = Math.min(Math.ceil(ttlMs ?? times.maxStepMs), LONGEST_MS);
  if (step.hasClaim) {
    const task = new GatedTask(key, ticket, config, step);
    tableOf(store).set(key, task);
    const forget = (): void => task.forget(store);
    const giveUp = (): void => {
      forget();
      step.giveUp();
    };
    step.goOn(lifeMs, giveUp, forget);
  }
  await keepTicket(store, key, ticket, { lifeMs, ttlMs: run.ttlMs }).catch(onError);
  return AS_IT_CAME;
}

/**
 * The task of that id, if a step of this gate's created it. Rejects where the store cannot be
 * asked.
 */
export async function findTask(
  config: GateConfig,
  admission: Admission,
  taskId: string,
): Promise<GatedTask | undefined> {
  const key = ticketRun(admission.taskOwner, taskId, config.workflow.id);
  const { store, ttlMs } = admission.runNamed(key);
  const table = tableOf(store);
  const known = table.get(key);
  if (known !== undefined) return known;
  const ticket = await findTicket(store, key, ttlMs);
  if (ticket === undefined) return undefined;
  const task = table.get(key) ?? new GatedTask(key, ticket, config);
  table.set(key, task);
  return task;
}

function tableOf(store: GuardedStore): Map<string, GatedTask> {
  const table = tables.get(store) ?? new Map<string, GatedTask>();
  tables.set(store, table);
  return table;
}

/** What settles the step of a call that created a task, whichever process sees the task's end. */
export interface Ticket {
  readonly run: string;
  /** The claim's token. */
  readonly token: string;
  readonly idempotencyKey: string;
  /** Where the call found the run, and what else its moves depend on. */
  readonly from: Position;
  /** As in {@link Moves}, where that is another position. */
  readonly before?: Position;
  readonly origin: CallOrigin;
  /** Whether its handler changed the run's data. */
  readonly isUpdated?: boolean;
}

const WORKFLOW = 'task';

/**
 * The key of the run that a ticket is kept in, one for each gate. There is a space in it, so that
 * no client can name it by a header; and whoever does not own the task asks for another one.
 */
export function ticketRun(owner: Admission['taskOwner'], taskId: string, workflow: string): string {
  return `task ${digestOf([...owner, taskId, workflow])}`;
}

/**
 * Keeps a ticket for as long as the task may live, and for a late end another `ttlMs`: one
 * operation, since a first claim saves what it begins with.
 */
export async function keepTicket(
  store: AtomicStateStore,
  run: string,
  ticket: Ticket,
  { lifeMs, ttlMs }: { readonly lifeMs: number; readonly ttlMs: number },
): Promise<void> {
  const context = JSON.stringify(ticket);
  const keep = async (): Promise<boolean> => {
    const claimed = await store.claim({
      run,
      workflow: WORKFLOW,
      token: ticket.token,
      step: { tool: ticket.origin.tool, digest: '', uncertain: 'retry' },
      states: undefined,
      initial: { state: 'open', updatedAt: 0, context },
      create: {},
      // A store that is full spares runs in which a claim lives.
      leaseMs: lifeMs,
      ttlMs: lifeMs + ttlMs,
    });
    return claimed.status === 'claimed' && claimed.snapshot.context === context;
  };
  if (await keep()) return;
  // The upstream gave this id to an earlier task, which it has forgotten by now.
  await store.delete(run);
  await keep();
}

export async function findTicket(
  store: AtomicStateStore,
  run: string,
  ttlMs: number,
): Promise<Ticket | undefined> {
  const record = await store.read(run, ttlMs);
  const text = record?.workflows[WORKFLOW]?.snapshot.context;
  return typeof text === 'string' ? (JSON.parse(text) as Ticket) : undefined;
}
