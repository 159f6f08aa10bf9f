/** Runs the operations on one key one after the other, and those on different keys side by side. */
export class KeyedQueue {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** How many keys have operations that have not settled. */
  get size(): number {
    return this.#tails.size;
  }

  /** Settles as `operation` does, which starts once all earlier ones on the key have settled. */
  run<T>(key: string, operation: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    const result = before.then(operation, operation);
    this.#tails.set(key, result);
    const forget = () => {
      if (this.#tails.get(key) === result) this.#tails.delete(key);
    };
    result.then(forget, forget);
    return result;
  }
}
