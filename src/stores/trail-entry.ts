/** A JSON value, which is all that a store is asked to keep. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/**
 * What became of a call. `not_run`: the gate forwarded it, and certainly nothing of it ran.
 * `refused`: the gate did not forward it.
 */
export type TrailOutcome =
  | 'succeeded'
  | 'failed'
  | 'input_required'
  | 'not_run'
  | 'unknown'
  | 'refused';

/** What the gate knows of a call before it forwards the call, for the trail. */
export interface CallNote {
  readonly tool?: string | undefined;
  /** A digest of the call's arguments. */
  readonly digest?: string | undefined;
  /** The arguments, as the app's redaction lets them through. Absent unless it asks for them. */
  readonly args?: Json | undefined;
  /** Who made the call or the move: a principal, a user, a job. */
  readonly actor?: string | undefined;
  /** The id of the JSON-RPC request. */
  readonly requestId?: string | number | undefined;
  /** The gate's `version`, which names a deployment of the workflow. Absent where it has none. */
  readonly workflowVersion?: number | undefined;
}

/**
 * A trail entry before the store has stamped it. A new member also goes into `orderedDraft()`, and
 * into PostgreSQL's columns.
 */
export interface TrailDraft extends CallNote {
  readonly from: string;
  /** The state after the move, which may be `from`. Absent where nothing was committed. */
  readonly to?: string | undefined;
  /** The event that moved the run, or `null` where there was none. */
  readonly event: string | null;
  /**
   * Absent where an event from outside, a deadline or a restart made the move, and no call. Absent
   * too in the entry of a freeze, which has no `to` either.
   */
  readonly outcome?: TrailOutcome | undefined;
  /**
   * What kind of outcome: `tool_error` (a result with `isError`), `rpc_error`, `not_ok` (a result
   * that does not meet the binding's `ok`). Or `rejected` (by the
   * upstream's transport), `not_forwarded`, `cancelled`, `taken_over`, `resolved` (by a person), or
   * the reason of a refusal.
   */
  readonly kind?: string | undefined;
  /** What came with the event. */
  readonly payload?: Json | undefined;
  /**
   * Why the call failed or was refused: what the app's `trail.errors` keeps of a failure, or the
   * words of a refusal. Never empty.
   */
  readonly errors?: readonly Json[] | undefined;
  /** What the person who resolved the step said of it. */
  readonly note?: string | undefined;
  /** Who made the call, where `actor` is the person who resolved the step. */
  readonly calledBy?: string | undefined;
}

/** The entry of a commit. */
export interface MoveDraft extends TrailDraft {
  readonly to: string;
}

/**
 * One entry of a workflow's trail: an attempt, a move that no call made, or a freeze. Where the app
 * asks for them, also a refused call. An attempt is a forwarded call with any outcome.
 */
export interface TrailEntry extends TrailDraft {
  /** Its place: 1, 2, 3 … in each workflow of a run, without gaps. */
  readonly seq: number;
  /** The snapshot's version afterwards: one more than before where there is a `to`. */
  readonly version: number;
  /**
   * How many attempts there were since the last commit, this one included: 1 where the first one
   * succeeded. A refused call is no attempt, nor is a freeze: these have the number of the attempts
   * before them.
   */
  readonly attempt: number;
  /** Milliseconds since the epoch, by the store's clock. */
  readonly at: number;
  /**
   * The `hash` of the entry before. Before the first entry: the hash of the run's key and the
   * workflow, so that no trail passes for another run's. Absent unless the store chains its trail.
   */
  readonly previous?: string;
  /**
   * `sha256:` and, in hex, the hash of all other members of this entry. Absent unless the store
   * chains its trail.
   */
  readonly hash?: string;
}
