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
   * Changes the run's shared data, and returns it. It is saved with the outcome, whichever that is, and lost where nobody learns the outcome; call it
   * before `commitIn()`.
   *
   * @throws Error where it is no JSON; and whatever `change` throws
   */
  update(change: (context: Json | undefined) => Json | undefined): Json | undefined;
  /** For payment providers and the like: the same for every try of one step whose outcome was unknown. */
  readonly idempotencyKey: string;
  /**
   * Saves the move of this step's success in the transaction that is open on `client`, so that the handler's own writes and the
   * move are one: both are there after its COMMIT, neither after a ROLLBACK. Needs a store that has transactions, such as
   * `mcp-interlock/stores/postgres`. Return a successful result afterwards.
   *
   * @throws Error where the store has none, or the step is not this call's any more. Roll back then.
   */
  commitIn(client: unknown): Promise<void>;
}

const steps = new AsyncLocalStorage<CurrentStep>();

/** The step that this code runs in, or `undefined` outside of one: in an ungated call, or in another process than the gate's. */
export function currentStep(): CurrentStep | undefined {
  return steps.getStore();
}

/** Runs `task`, and all that it begins, inside the step. */
export function insideStep(step: CurrentStep, task: () => void): void {
  steps.run(step, task);
}
