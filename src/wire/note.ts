/**
 * What one part of the code keeps with an object of somebody else, out of everybody's sight. A
 * `WeakMap` would do the same, at a price: with one entry for each request in flight it cost the
 * garbage collector more than all else that the middlewares do.
 */
export class Note<Owner extends object, Value> {
  readonly #key = Symbol('mcp-interlock.note');

  of(owner: Owner): Value | undefined {
    return Reflect.get(owner, this.#key) as Value | undefined;
  }

  put(owner: Owner, value: Value): void {
    Object.defineProperty(owner, this.#key, { value, configurable: true });
  }
}
