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
    if (this.length === this.#values.length) {
      const larger = new Int32Array(2 * this.length);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.length++] = value;
  }
}
