import { InterlockError } from '../basics/errors.ts';

/** How many operations of a key wait or run at most. */
const MOST_QUEUED = 1_000;

/** Runs the operations of one key one after the other, and those of other keys meanwhile. */
export class KeyedQueue {
  readonly #lines = new Map<string, { tail: Promise<unknown>; length: number }>();

  /** How many keys have operations that wait or run. */
  get size(): number {
    return this.#lines.size;
  }

  /**
   * Starts `operation` once all earlier ones of the key have settled, and settles as it does.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where too many wait.
   */
  async run<T>(key: string, operation: () => Promise<T>): Promise<T> {
    const line = this.#lines.get(key) ?? { tail: Promise.resolve(), length: 0 };
    if (line.length >= MOST_QUEUED)
      throw new InterlockError('ERR_INTERLOCK_STORE', 'too many operations of the run wait');
    const result = line.tail.then(operation, operation);
    line.tail = result;
    line.length++;
    this.#lines.set(key, line);
    try {
      return await result;
    } finally {
      line.length--;
      if (line.length === 0) this.#lines.delete(key);
    }
  }
}
