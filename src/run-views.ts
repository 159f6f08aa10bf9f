import type { NotMoved } from './gate/outside.ts';
import type { CurrentStep } from './session/current-step.ts';
import type { ClaimView, FsmSnapshot, Json } from './stores/store.ts';

/** Where a run stands, for operators and pages of the app's own. */
export interface RunView {
  readonly snapshot: FsmSnapshot;
  /** The run's shared data; for a statechart its context. */
  readonly context?: Json | undefined;
  /**
   * `idle`: nothing is under way. `running`: a step is. `held`: a step ended with an unknown
   * outcome, and waits to be resolved.
   */
  readonly status: 'idle' | 'running' | 'held';
  /** Whether it has come to a final state; of a statechart, to one of the machine itself. */
  readonly ended: boolean;
  /** The step that is running or held. */
  readonly claim?: ClaimView;
}

/** What `resolve()` did. */
export type Resolution =
  | { readonly resolved: true; readonly state: string }
  | { readonly resolved: false; readonly reason: 'unknown-run' | 'not-held' | 'running' };

/** What `send()` did. `unhandled`: the run's state does not know the event. */
export type Sent =
  | { readonly sent: true; readonly changed: boolean; readonly state: string }
  | { readonly sent: false; readonly reason: NotMoved | 'unhandled' };

/** What `restart()` did. `busy`: a step of the run is running. */
export type Restarted =
  | { readonly restarted: true; readonly state: string }
  | { readonly restarted: false; readonly reason: NotMoved };

/** What `update()` did. */
export type Updated =
  | { readonly updated: true; readonly context: Json | undefined }
  | { readonly updated: false; readonly reason: NotMoved };

/** Who moves a run, and with what. */
export interface SendOptions {
  /** For the trail: a user, a job, a webhook. */
  readonly actor?: string | undefined;
  /** What comes along with the event. */
  readonly payload?: Json | undefined;
  /**
   * The step whose handler makes the call, from `currentStep(extra)`; `undefined` outside of one.
   * Needed in a handler, unless `mcp-interlock/ambient` is imported: a call that does not know its
   * own step waits for it.
   */
  readonly step?: CurrentStep | undefined;
}

/** How a held step came out, as somebody found out. */
export interface ResolveOptions<E extends string = string> extends Omit<SendOptions, 'step'> {
  /**
   * The event to send. Default: the one that the tool's success or failure is bound to in the run's
   * state.
   */
  readonly event?: E | undefined;
}
