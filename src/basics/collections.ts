/**
 * Hides how what is worked out is kept by a name within bounds, how things are grouped, and how a
 * list of integers grows.
 */

/** How much {@link memoise} keeps. */
export interface MemoLimits<Value> {
  /** How much to keep. Beyond that the memory is emptied, which costs less than tracking use. */
  readonly most: number;
  /** How much a value counts. Default: 1. */
  readonly sizeOf?: (value: Value) => number;
  /**
   * The longest name to keep, in UTF-16 units: clients choose the names that they send. Default: a
   * name of any length.
   */
  readonly nameLength?: number;
}

/** Remembers the results of a pure function of a name. */
export function memoise<Value>(
  compute: (name: string) => Value,
  { most, sizeOf = () => 1, nameLength = Number.POSITIVE_INFINITY }: MemoLimits<Value>,
): (name: string) => Value {
  const known = new Map<string, { readonly value: Value }>();
  let kept = 0;
  return (name) => {
    const hit = known.get(name);
    if (hit !== undefined) return hit.value;
    const value = compute(name);
    if (name.length > nameLength) return value;
    kept += sizeOf(value);
    if (kept > most) {
      known.clear();
      kept = sizeOf(value);
    }
    known.set(name, { value });
    return value;
  };
}

/** Puts the value at the end of the list under the key. */
export function pushTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}

/** Without those that are the same JSON as one before. */
export function distinct<T>(all: readonly T[]): T[] {
  return [...new Map(all.map((each) => [JSON.stringify(each), each])).values()];
}

/** A list of integers that grows: it takes a fraction of an array's room and time. */
export class Ints {
  #values = new Int32Array(64);
  length = 0;

  at(index: number): number {
    return this.#values[index] ?? 0;
  }

  set(index: number, value: number): void {
    this.#values[index] = value;
  }

  get last(): number {
    return this.at(this.length - 1);
  }

  set last(value: number) {
    this.set(this.length - 1, value);
  }

  push(value: number): void {
    if (this.length === this.#values.length) this.#values = grown(this.#values);
    this.#values[this.length++] = value;
  }
}

/** The same integers with as much room again. */
export function grown(full: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(2 * full.length);
  larger.set(full);
  return larger;
}
