import { LONGEST_MS } from '../session/clock.ts';
import type { GuardedStore } from '../session/guarded-store.ts';
import type { Admission, RunContext } from '../session/run-context.ts';
import { Step } from '../session/step.ts';
import type { Era } from '../wire/era.ts';
import type { Message } from '../wire/message.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { PendingCall, Transform } from './call.ts';
import type { GateConfig } from './gate-config.ts';
import type { Gates } from './gates.ts';
import { type Moves, movesOf } from './move.ts';
import type { CreatedTask } from './outcome.ts';
import { announcing, type ListListener, settle } from './settle.ts';
import { findTicket, keepTicket, type Ticket, ticketRun } from './task-ticket.ts';
import { giveUpStep } from './unknown-outcome.ts';

const AS_IT_CAME: Transform = () => {};

/** What this process knows of tasks, by their tickets' keys. */
const tables = new WeakMap<GuardedStore, Map<string, GatedTask>>();

/** Who saw a task's end, and tells of the move. */
export interface Witness {
  readonly era: Era;
  readonly context: RunContext;
  readonly gates: Gates;
  readonly onListChanged: ListListener;
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
    { era, context, gates, onListChanged }: Witness,
  ): Promise<Transform> {
    const { clock, times, onError } = this.#config;
    const { isUpdated = false } = this.ticket;
    this.#step ??= this.#resumed(context);
    const step = this.#step;
    const moves = this.#moves();
    const call: PendingCall = { id: 0, step, context, era, carrier: 'task', moves, isUpdated };
    const settled = reply && settle(call, reply, this.#config, onListChanged);
    const holders = [{ call, config: this.#config }];
    const transform = settled && (await announcing(settled, holders, () => gates));
    if (reply === undefined) await step.release();
    if (step.state === 'saved' || step.state === 'released')
      context.store.delete(this.#key).catch(onError);
    else this.#transform = undefined;
    clock.after(times.maxStepMs, () => this.forget(context.store));
    return transform ?? AS_IT_CAME;
  }

  /** From now on this process knows no more of it than any other one. */
  forget(store: GuardedStore): void {
    const table = tableOf(store);
    if (table.get(this.#key) === this) table.delete(this.#key);
  }

  /**
   * As they were when the call was let through. A deployment that binds the tool no more leaves the
   * run where it is.
   */
  #moves(): Moves {
    const { workflow, onError } = this.#config;
    const { from, origin } = this.ticket;
    let binding: Pick<CallBinding, 'eventIn'> = { eventIn: () => undefined };
    try {
      binding = workflow.match(origin.tool, origin.args) ?? binding;
    } catch (error) {
      onError(error);
    }
    return movesOf(workflow, binding, from, { ...origin, onError });
  }

  /** Whoever has the claim's token can settle the step, for as long as nobody took the run over. */
  #resumed({ store, ttlMs }: RunContext): Step {
    const { workflow, times, clock, onError } = this.#config;
    const { run, token, idempotencyKey, from, origin } = this.ticket;
    const parts = {
      key: { run, workflow: workflow.id },
      token,
      description: { tool: origin.tool, digest: '', uncertain: 'hold' as const },
      snapshot: { ...from, updatedAt: 0 },
      now: 0,
      idempotencyKey,
      store,
      ttlMs,
      times,
      clock,
      turn: undefined,
      endRequest() {},
      onError,
      isShared: true,
    };
    return new Step(parts, () => {});
  }
}

/**
 * The call only created a task: its step goes on until the task ends, or until its time to live is
 * over.
 */
export async function carryOn(
  { step, context, moves, isUpdated }: PendingCall,
  { taskId, ttlMs }: CreatedTask,
  config: GateConfig,
  { taskOwner }: Admission,
): Promise<Transform> {
  const { workflow, times, onError } = config;
  const { store } = context;
  const { token, idempotencyKey } = step;
  const { from, origin } = moves;
  const key = ticketRun(taskOwner, taskId, workflow.id);
  const ticket: Ticket = {
    run: context.run,
    token,
    idempotencyKey,
    from,
    origin,
    ...(isUpdated && { isUpdated }),
  };
  const lifeMs = Math.min(Math.ceil(ttlMs ?? times.maxStepMs), LONGEST_MS);
  if (step.state === 'claimed') {
    const task = new GatedTask(key, ticket, config, step);
    tableOf(store).set(key, task);
    const forget = (): void => task.forget(store);
    const giveUp = (): void => {
      forget();
      giveUpStep(step, config);
    };
    step.goOn(lifeMs, giveUp, forget);
  }
  await keepTicket(store, key, ticket, { lifeMs, ttlMs: context.ttlMs }).catch(onError);
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
