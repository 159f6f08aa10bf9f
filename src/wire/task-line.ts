/** A value that is mostly there at once: awaiting it anyway would cost a turn for each write. */
export type MaybePromise<T> = T | Promise<T>;

export function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  return value instanceof Promise;
}

/** Like `then`, but in the current turn where the value is there already. */
export function after<T, R>(
  value: MaybePromise<T>,
  next: (value: T) => MaybePromise<R>,
): MaybePromise<R> {
  return isPromise(value) ? value.then(next) : next(value);
}

/**
 * Like {@link after}, for a method of an object and what it takes beside the value. It makes no
 * closure where the value is there already.
 */
export function resume<Owner, T, R, A = undefined, B = undefined>(
  value: MaybePromise<T>,
  owner: Owner,
  method: (this: Owner, value: T, a: A, b: B) => MaybePromise<R>,
  a?: A,
  b?: B,
): MaybePromise<R> {
  return isPromise(value)
    ? resumeLater(value, owner, method, a as A, b as B)
    : method.call(owner, value, a as A, b as B);
}

async function resumeLater<Owner, T, R, A, B>(
  value: Promise<T>,
  owner: Owner,
  method: (this: Owner, value: T, a: A, b: B) => MaybePromise<R>,
  a: A,
  b: B,
): Promise<R> {
  return method.call(owner, await value, a, b);
}

/** Runs `each` over the items one by one, from `at` on, and in the current turn if it can. */
export function inOrder<T>(
  items: readonly T[],
  each: (item: T) => MaybePromise<void>,
  at = 0,
): MaybePromise<void> {
  for (let next = at; next < items.length; next++) {
    const result = each(items[next] as T);
    if (!isPromise(result)) continue;
    return next === items.length - 1 ? result : inOrderAfter(result, items, each, next + 1);
  }
}

/** A function of its own: a closure in {@link inOrder} would cost memory where nothing waits. */
async function inOrderAfter<T>(
  first: Promise<void>,
  items: readonly T[],
  each: (item: T) => MaybePromise<void>,
  at: number,
): Promise<void> {
  await first;
  return inOrder(items, each, at);
}

/** The object whose tasks a line runs. */
interface LineOwner {
  /** The line is empty again, after tasks that had to be awaited. */
  onIdle(): void;
  /** Handles a task's failure before the next task begins. Must not fail itself. */
  onFailed(error: unknown): MaybePromise<void>;
}

type Task = () => MaybePromise<void>;

/**
 * Runs tasks strictly one after another. A task runs at once while no other one waits. So a
 * response that waits for nothing goes out in the turn in which the upstream wrote it.
 */
export class TaskLine<Owner extends LineOwner> {
  readonly #owner: Owner;
  #busy = false;
  /** Two stacks make the line: new tasks are pushed here, and turned over once `#next` is empty. */
  #waiting: Task[] | undefined;
  /** The next task is the last one. */
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

  /** Adds a method of the owner, without making a closure while nothing waits. */
  run<A>(task: (this: Owner, given: A) => MaybePromise<void>, given: A): void {
    if (this.#busy) {
      this.#waiting ??= [];
      this.#waiting.push(() => task.call(this.#owner, given));
      return;
    }
    this.#busy = true;
    if (!this.#isDone(task, given)) return;
    if (this.#waiting === undefined && this.#next === undefined) this.#busy = false;
    else this.#work();
  }

  #work(): void {
    for (let task = this.#take(); task !== undefined; task = this.#take()) {
      if (!this.#isDone(task, undefined)) return;
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

  /** Begins a task; `false` where it has to wait. The line goes on when it is done. */
  #isDone<A>(task: (this: Owner, given: A) => MaybePromise<void>, given: A): boolean {
    let result: MaybePromise<void>;
    try {
      result = task.call(this.#owner, given);
    } catch (error) {
      result = this.#owner.onFailed(error);
      if (isPromise(result)) void result.then(() => this.#goOn());
      return !isPromise(result);
    }
    if (!isPromise(result)) return true;
    const goOn = (): void => this.#goOn();
    void result.then(goOn, (error) => void after(this.#owner.onFailed(error), goOn));
    return false;
  }
}
