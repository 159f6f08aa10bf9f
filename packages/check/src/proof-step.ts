/** What a way through a workflow is made of. */

/** How a call ended. */
export type CallOutcome = 'success' | 'failure' | 'refused';

/** What must be so for a move, beside the order of calls. */
export type ProofTurn = 'a window' | 'values' | 'a count' | 'a limit' | 'an unknown outcome';

/** One move of a run on its way. */
export interface ProofStep {
  /**
   * What made it: a call of a tool, a deadline or a window that closes, or the app. Without an
   * `event`, the app begins the run, as with `runs.begin()`, so that its first deadline counts.
   */
  readonly by: 'call' | 'deadline' | 'outside';
  /** For a call. */
  readonly tool?: string;
  /**
   * For a call. A `refused` one begins a run whose first deadline counts from then on, or is the
   * one that the loop shield refuses.
   */
  readonly outcome?: CallOutcome;
  /**
   * For a failure with `retries`: how many calls it takes to send the event. Of the loop shield:
   * how many calls it takes until one is refused. Those before it fail or succeed, so that the run
   * stays.
   */
  readonly times?: number;
  /** Absent where no event is sent: for a deadline, and for what moves nothing. */
  readonly event?: string;
  /** The state before it, as runs and trails name it. */
  readonly from: string;
  /** The state after it. */
  readonly to: string;
  /**
   * Whether more than the call must be right: a guard's answer, its arguments, the event that a
   * function chooses, or the run's data.
   */
  readonly isGuarded: boolean;
  /** For rules and limits: what must be so beside the order of calls. Absent for nothing. */
  readonly turnsOn?: readonly ProofTurn[];
}
