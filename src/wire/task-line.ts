export type MaybePromise<T> = T | Promise<T>;

export function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  return value instanceof Promise;
}

/** `then` without leaving the current turn where the value is already there. */
export function after<T, R>(value: MaybePromise<T>, next: (value: T) => MaybePromise<R>): MaybePromise<R> {
  return isPromise(value) ? value.then(next) : next(value);
}

/** Runs `each` over the items one after another, staying in the current turn while nothing has to be awaited. */
export function inOrder<T>(items: readonly T[], each: (item: T) => MaybePromise<void>): MaybePromise<void> {
  for (const [index, item] of items.entries()) {
    const result = each(item);
    if (isPromise(result)) return result.then(() => inOrder(items.slice(index + 1), each));
  }
}

/**
 * Runs tasks strictly one after another. A task that needs no waiting runs at once, so that a response which nobody has to wait
 * for is written in the same turn as the upstream wrote it.
 */
export class TaskLine {
  readonly #waiting: (() => MaybePromise<void>)[] = [];
  readonly #onIdle: () => void;
  readonly #onError: (error: unknown) => void;
  #busy = false;

  constructor(onIdle: () => void, onError: (error: unknown) => void) {
    this.#onIdle = onIdle;
    this.#onError = onError;
  }

  get busy(): boolean {
    return this.#busy;
  }

  add(task: () => MaybePromise<void>): void {
    this.#waiting.push(task);
    if (!this.#busy) this.#work();
  }

  #work(): void {
    this.#busy = true;
    for (let task = this.#waiting.shift(); task !== undefined; task = this.#waiting.shift()) {
      const result = this.#attempt(task);
      if (isPromise(result)) {
        result.catch(this.#onError).finally(() => {
          this.#work();
          if (!this.#busy) this.#onIdle();
        });
        return;
      }
    }
    this.#busy = false;
  }

  #attempt(task: () => MaybePromise<void>): MaybePromise<void> {
    try {
      return task();
    } catch (error) {
      this.#onError(error);
    }
  }
}
