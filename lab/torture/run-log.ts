import type { Caller } from '../checker/recorder.ts';
import type { WorkflowName } from './workflows.ts';

/** One run as its client sees it. */
export interface RunLog {
  readonly run: string;
  readonly workflow: WorkflowName;
  readonly caller: Caller;
  /** Where the run is, as far as the client knows. */
  state: string;
  /** Whether its client ended the session while the run was held. */
  isLeft?: boolean;
  /** The highest version that was ever seen. */
  version: number;
}

/** A call that a client makes, the same for all of its duplicates and repetitions. */
export interface Step<Tool extends string = string> {
  readonly tool: Tool;
  readonly step: number;
  /** How long the handler takes. */
  readonly ms: number;
}
