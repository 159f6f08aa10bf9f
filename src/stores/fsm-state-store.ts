/** A JSON value, which is all that a store is asked to keep. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** The persisted position of one run in one workflow. */
export interface FsmSnapshot {
  /** The state's name. */
  state: string;
  /**
   * When it was made, by a commit or by the workflow's first claim: milliseconds since the epoch,
   * on the clock of the store where that has one, else of the process.
   */
  updatedAt: number;
  /** How many steps and moves the run has committed. Absent means 0. */
  version?: number;
  /** Data that the workflow carries along; opaque to every store. */
  context?: Json;
}

/**
 * The smallest store: enough to plug a backend in. With only this, steps are exact within one
 * process, and a warning says so; an `AtomicStateStore` makes them exact across processes.
 */
export interface FsmStateStore {
  /**
   * The snapshot saved under this key, or `undefined` where there is none. A key is `session:<run>`
   * for what is known of a run as a whole, and `<gate's id>:<run>` for each workflow of it.
   */
  load(sessionId: string): Promise<FsmSnapshot | undefined>;
  /**
   * Replaces the snapshot under this key, with all of its members. Resolves once it is as durable
   * as the backend makes it.
   */
  save(sessionId: string, snapshot: FsmSnapshot): Promise<void>;
}
