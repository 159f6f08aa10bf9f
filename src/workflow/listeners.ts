import type { Move } from './transition.ts';

/** Called with each change of state. What it throws, or rejects with, harms nobody. */
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

  /** Calls everybody who was there when it began, and who still is. */
  emit(move: Move, onError: ErrorListener = this.#onError): void {
    const frozen = Object.freeze({ ...move });
    for (const [key, listener] of [...this.#all]) {
      if (this.#all.has(key)) call(listener, frozen, onError);
    }
  }
}

function call(listener: TransitionListener, move: Move, onError: ErrorListener): void {
  const report = (error: unknown) => {
    try {
      onError(error);
    } catch {
      // There is nobody left to tell.
    }
  };
  try {
    Promise.resolve(listener(move)).catch(report);
  } catch (error) {
    report(error);
  }
}
