import type { Step } from '../session/step.ts';
import type { GateConfig } from './gate-config.ts';

/**
 * Told to `onError` when nobody knows what a step came to. A run whose step must not be repeated is held until it is resolved, or
 * until its outcome comes after all.
 */
export class UnknownOutcome extends Error {
  override readonly name = 'UnknownOutcome';
  /** The run key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;
  /** What the handler was given, to look the call up where it had its effect. */
  readonly idempotencyKey: string;

  constructor({ key, tool, idempotencyKey }: Step, why: string) {
    super(`the outcome of a call of ${JSON.stringify(tool)} is unknown (${why})`);
    this.run = key.run;
    this.workflow = key.workflow;
    this.tool = tool;
    this.idempotencyKey = idempotencyKey;
  }
}

/** Waits for a step's outcome no longer, and says so where somebody did. `mayCome` as in {@link Step.giveUp}. */
export function giveUpStep(
  step: Step,
  { onError }: Pick<GateConfig, 'onError'>,
  mayCome = false,
): void {
  if (step.giveUp(mayCome)) onError(new UnknownOutcome(step, 'no result came'));
}
