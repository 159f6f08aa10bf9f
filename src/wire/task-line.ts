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
 * Runs `each` over the items one after another, from `at` on, staying in the current turn while
 * nothing has to be awaited.
 */
export function inOrder<T>(
  items: readonly T[],
  each: (item: T) => MaybePromise<void>,
  at = 0,
): MaybePromise<void> {
  for (let next = at; next < items.length; next++) {
    const result = each(items[next] as T);
    if (!isPromise(result)) continue;
    return next === items.length - 1 ? result : result.then(() => inOrder(items, each, next + 1));
  }
}

/** Whose tasks stand in a line. */
export interface LineOwner {
  /** Tasks that had to be awaited are done. */
  onIdle(): void;
  /** Deals with a task that failed, before the next one begins. Must not fail itself. */
  onFailed(error: unknown): MaybePromise<void>;
}

type Task = () => MaybePromise<void>;

/**
 * Runs tasks of its owner strictly one after another. A task that needs no waiting runs at once, so
 * that a response which waits for nothing is written in the same turn as the upstream wrote it.
 */
export class TaskLine<Owner extends LineOwner> {
  readonly #owner: Owner;
  #busy = false;
  /**
   * What was added since, and what is next, last first: nothing is moved more than once, however
   * long the line is.
   */
  #waiting: Task[] | undefined;
  #next: Task[] | undefined;

  constructor(owner: Owner) {
    this.#owner = owner;
  }

  get busy(): boolean {
    return this.#busy;
  }

  add(task: Task): void {
    this.run(task, undefined);
  }

  /** The same for a method of the owner, of which no closure is made while nothing waits. */
  run<A>(task: (this: Owner, given: A) => MaybePromise<void>, given: A): void {
    if (this.#busy) {
      this.#waiting ??= [];
      this.#waiting.push(() => task.call(this.#owner, given));
      return;
    }
    this.#busy = true;
    const result = this.#attempt(task, given);
    if (isPromise(result)) void result.then(() => this.#goOn());
    else if (this.#waiting === undefined && this.#next === undefined) this.#busy = false;
    else this.#work();
  }

  #work(): void {
    for (let task = this.#take(); task !== undefined; task = this.#take()) {
      const result = this.#attempt(task, undefined);
      if (isPromise(result)) {
        void result.then(() => this.#goOn());
        return;
      }
    }
    this.#busy = false;
  }

  #take(): Task | undefined {
    if (this.#next === undefined || this.#next.length === 0) {
      const last = this.#next ?? [];
      this.#next = this.#waiting?.reverse();
      this.#waiting = last;
    }
    return this.#next?.pop();
  }

  #goOn(): void {
    this.#work();
    if (!this.#busy) this.#owner.onIdle();
  }

  #attempt<A>(task: (this: Owner, given: A) => MaybePromise<void>, given: A): MaybePromise<void> {
    try {
      const result = task.call(this.#owner, given);
      return isPromise(result) ? result.catch((error) => this.#owner.onFailed(error)) : undefined;
    } catch (error) {
      return this.#owner.onFailed(error);
    }
  }
}
