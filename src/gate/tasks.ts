import { LONGEST_MS } from '../clock.ts';
import type { Admission, Run } from '../session/run.ts';
import { Moves } from '../step/move.ts';
import { type MoveListener, Step } from '../step/step.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { Era } from '../wire/era.ts';
import type { Message } from '../wire/message.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { GateConfig } from './config.ts';
import type { Gates } from './gates.ts';
import type { CreatedTask } from './outcome.ts';
import { AS_IT_CAME, announcing, type HeldCall, settleCall, type Transform } from './settle.ts';
import { findTicket, keepTicket, type Ticket, ticketRun } from './task-ticket.ts';

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
  settle(reply: Message | undefined, witness: Witness): Promise<Transform> {
    this.#transform ??= this.#settle(reply, witness);
    return this.#transform;
  }

  async #settle(
    reply: Message | undefined,
    { era, run, gates, onMoved }: Witness,
  ): Promise<Transform> {
    const { clock, times, onError } = this.#config;
    this.#step ??= this.#resumed(run);
    const step = this.#step;
    const call: HeldCall = { id: 0, era, config: this.#config, run, step };
    // A client asks for a task again, which shows its end again.
    const settled = reply && settleCall(call, reply, onMoved, false);
    const transform = settled && (await announcing(settled, [call], () => gates));
    if (reply === undefined) await step.release();
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
    const { token, idempotencyKey, from, origin, isUpdated = false } = this.ticket;
    let binding: Pick<CallBinding, 'eventIn'> = { eventIn: () => undefined };
    try {
      binding = workflow.match(origin.tool, origin.args) ?? binding;
    } catch (error) {
      onError(error);
    }
    const moves = new Moves(this.#config, binding, from, origin);
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
  const { from, origin } = moves;
  const key = ticketRun(taskOwner, taskId, workflow.id);
  const ticket: Ticket = {
    run: run.run,
    token,
    idempotencyKey,
    from,
    origin,
    ...(isUpdated && { isUpdated }),
  };
  const lifeMs = Math.min(Math.ceil(ttlMs ?? times.maxStepMs), LONGEST_MS);
  if (step.isHeld) {
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
