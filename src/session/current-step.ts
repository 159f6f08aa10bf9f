import { AsyncLocalStorage } from 'node:async_hooks';
import type { Step } from './step.ts';

/** The step that a tool's handler runs in, when it runs in the same process as the gate. */
export interface CurrentStep {
  /** The run key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;
  /** The run's state when the call was let through. */
  readonly state: string;
  /** For payment providers and the like: the same for every try of one step whose outcome was unknown. */
  readonly idempotencyKey: string;
}

const steps = new AsyncLocalStorage<Step>();

/** The step that this code runs in, or `undefined` outside of one: in an ungated call, or in another process than the gate's. */
export function currentStep(): CurrentStep | undefined {
  const step = steps.getStore();
  if (step === undefined) return undefined;
  const { key, tool, snapshot, idempotencyKey } = step;
  return { run: key.run, workflow: key.workflow, tool, state: snapshot.state, idempotencyKey };
}

/** Runs `task`, and all that it begins, inside the step. */
export function insideStep(step: Step, task: () => void): void {
  steps.run(step, task);
}
