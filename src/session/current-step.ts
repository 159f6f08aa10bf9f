import { AsyncLocalStorage } from 'node:async_hooks';
import type { Json } from '../stores/store.ts';

/** The step that a tool's handler runs in, when it runs in the same process as the gate. */
export interface CurrentStep {
  /** The run key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;
  /** The run's state when the call was let through. */
  readonly state: string;
  /** The run's shared data; for a statechart its context. */
  readonly context: Json | undefined;
  /**
   * Changes the run's shared data, and returns it. It is saved with the outcome, whichever that is,
   * and lost where nobody learns the outcome; call it before `commitIn()`.
   *
   * @throws Error where it is no JSON; and whatever `change` throws
   */
  update(change: (context: Json | undefined) => Json | undefined): Json | undefined;
  /**
   * For payment providers and the like: the same for every try of one step whose outcome was
   * unknown.
   */
  readonly idempotencyKey: string;
  /**
   * Saves the move of this step's success in the transaction that is open on `client`, so that the
   * handler's own writes and the move are one: both are there after its COMMIT, neither after a
   * ROLLBACK. Needs a store that has transactions, such as `mcp-interlock/stores/postgres`. Return
   * a successful result afterwards.
   *
   * @throws Error where the store has none, or the step is not this call's any more. Roll back
   * then.
   */
  commitIn(client: unknown): Promise<void>;
}

interface Entered {
  readonly step: CurrentStep;
  /** Whether its outcome is settled: what its handler began may go on for long. */
  readonly isOver: () => boolean;
  /** The same call as the gate in front knows it. */
  readonly outer: Entered | undefined;
}

const steps = new AsyncLocalStorage<Entered>();

/**
 * The step that this code runs in, or `undefined` outside of one: in an ungated call, or in another
 * process than the gate's.
 */
export function currentStep(): CurrentStep | undefined {
  return steps.getStore()?.step;
}

/** Runs `task`, and all that it begins, inside the step. */
export function insideStep(step: CurrentStep, isOver: () => boolean, task: () => void): void {
  steps.run({ step, isOver, outer: steps.getStore() }, task);
}

/** The step of this run and gate that this code runs in, while its outcome is open. */
export function openStepOf(run: string, workflow: string): CurrentStep | undefined {
  for (let entered = steps.getStore(); entered !== undefined; entered = entered.outer) {
    const { step, isOver } = entered;
    if (step.run === run && step.workflow === workflow && !isOver()) return step;
  }
  return undefined;
}
