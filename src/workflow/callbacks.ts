import type { Json } from '../stores/store.ts';
import type { FsmAction, Move } from './position.ts';

/** Called with each change of state. What it throws, or rejects with, only `onError` is told. */
export type TransitionListener<S extends string = string> = (move: Move<S>) => void;

/** Told what a callback threw, or rejected with. */
export type ErrorListener = (error: unknown) => void;

/** The callbacks of a gate, called in the order in which they were added. */
export class Listeners {
  readonly #all = new Map<symbol, TransitionListener>();
  readonly #onError: ErrorListener;

  constructor(onError: ErrorListener) {
    this.#onError = onError;
  }

  /** Adding one callback twice calls it twice; each addition is undone on its own. */
  add(listener: TransitionListener): () => void {
    const key = Symbol('listener');
    this.#all.set(key, listener);
    return () => {
      this.#all.delete(key);
    };
  }

  clear(): void {
    this.#all.clear();
  }

  /** Calls each callback that was there when it began and still is. */
  emit(move: Move, onError: ErrorListener = this.#onError): void {
    const frozen = Object.freeze({ ...move });
    for (const [key, listener] of [...this.#all]) {
      if (this.#all.has(key)) callSafely(() => listener(frozen), onError);
    }
  }
}

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
  for (const action of actions) callSafely(() => listener(action, context), onError);
}

/** The app's own code must not break ours, whether it throws or rejects. */
function callSafely(callback: () => unknown, onError: ErrorListener): void {
  const report = (error: unknown): void => {
    try {
      onError(error);
    } catch {
      // No listener is left to tell.
    }
  };
  try {
    Promise.resolve(callback()).catch(report);
  } catch (error) {
    report(error);
  }
}
