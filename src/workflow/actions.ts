import type { Json } from '../stores/store.ts';
import type { ErrorListener } from './listeners.ts';
import type { FsmAction } from './position.ts';

/** Where an action comes from. */
export interface ActionContext {
  /** The run's key; absent where a standalone gate moved. */
  readonly run?: string | undefined;
  /** The gate's id. */
  readonly workflow: string;
  /** The event that led to it, or `null` where a call sent none. */
  readonly event: string | null;
  /** The state before and after; they may be the same. */
  readonly from: string;
  readonly to: string;
  /** The statechart's context after the move. */
  readonly context?: Json | undefined;
}

/** Does what a statechart names, once the move that names it is saved. */
export type ActionListener = (action: FsmAction, context: ActionContext) => void | Promise<void>;

/**
 * Hands actions on, in their order. Never throws: `onError` is told what the listener throws, or
 * rejects with.
 */
export function actOn(
  actions: readonly FsmAction[],
  context: ActionContext,
  listener: ActionListener | undefined,
  onError: ErrorListener,
): void {
  if (listener === undefined) return;
  const report = (error: unknown): void => {
    try {
      onError(error);
    } catch {
      // There is nobody left to tell.
    }
  };
  for (const action of actions) {
    try {
      Promise.resolve(listener(action, context)).catch(report);
    } catch (error) {
      report(error);
    }
  }
}
