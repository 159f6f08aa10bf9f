import type { Step } from '../session/step.ts';
import type { GateConfig } from './gate-config.ts';

/** Told to `onError` when nobody will learn what a step came to. A run whose step must not be repeated is held until it is resolved. */
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

/** Gives up on a step, and says so. */
export function abandonStep(step: Step, { onError }: Pick<GateConfig, 'onError'>): void {
  if (step.ended) return;
  step.abandon();
  onError(new UnknownOutcome(step, 'no result came'));
}
