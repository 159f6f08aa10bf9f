export type MaybePromise<T> = T | Promise<T>;

export function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  return value instanceof Promise;
}

/** `then` without leaving the current turn where the value is already there. */
export function after<T, R>(
  value: MaybePromise<T>,
  next: (value: T) => MaybePromise<R>,
): MaybePromise<R> {
  return isPromise(value) ? value.then(next) : next(value);
}

/**
 * Runs `each` over the items one after another, staying in the current turn while nothing has to be
 * awaited.
 */
export function inOrder<T>(
  items: readonly T[],
  each: (item: T) => MaybePromise<void>,
): MaybePromise<void> {
  const rest = items.values();
  for (const item of rest) {
    const result = each(item);
    if (isPromise(result)) return finish(result, rest, each);
  }
}

async function finish<T>(
  first: Promise<void>,
  rest: Iterable<T>,
  each: (item: T) => MaybePromise<void>,
): Promise<void> {
  await first;
  for (const item of rest) await each(item);
}

/**
 * Runs tasks strictly one after another. A task that needs no waiting runs at once, so that a
 * response which nobody has to wait for is written in the same turn as the upstream wrote it.
 */
export class TaskLine {
  /**
   * What was added since, and what is next, last first: nothing is moved more than once, however
   * long the line is.
   */
  #waiting: (() => MaybePromise<void>)[] = [];
  #next: (() => MaybePromise<void>)[] = [];
  readonly #onIdle: () => void;
  readonly #onError: (error: unknown) => MaybePromise<void>;
  #busy = false;

  /**
   * @param onIdle runs whenever tasks that had to be awaited are done.
   * @param onError deals with a task that failed, before the next one begins. Must not fail itself.
   */
  constructor(onIdle: () => void, onError: (error: unknown) => MaybePromise<void>) {
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
    for (let task = this.#take(); task !== undefined; task = this.#take()) {
      const result = this.#attempt(task);
      if (isPromise(result)) {
        void result.then(() => this.#goOn());
        return;
      }
    }
    this.#busy = false;
  }

  #take(): (() => MaybePromise<void>) | undefined {
    if (this.#next.length === 0)
      [this.#next, this.#waiting] = [this.#waiting.reverse(), this.#next];
    return this.#next.pop();
  }

  #goOn(): void {
    this.#work();
    if (!this.#busy) this.#onIdle();
  }

  #attempt(task: () => MaybePromise<void>): MaybePromise<void> {
    try {
      const result = task();
      return isPromise(result) ? result.catch(this.#onError) : undefined;
    } catch (error) {
      return this.#onError(error);
    }
  }
}
