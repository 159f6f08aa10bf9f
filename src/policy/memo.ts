export interface MemoLimits {
  /**
   * How many names are kept. One more empties the memory, which is cheaper than tracking which was
   * used last.
   */
  readonly entries: number;
  /**
   * Longer names are computed each time, so that what a stranger sends is not kept. In UTF-16
   * units.
   */
  readonly nameLength: number;
}

/** Remembers what a pure function of a name came to. */
export function memoise<Value>(
  compute: (name: string) => Value,
  limits: MemoLimits,
): (name: string) => Value {
  const known = new Map<string, { readonly value: Value }>();
  return (name) => {
    const hit = known.get(name);
    if (hit !== undefined) return hit.value;
    const value = compute(name);
    if (name.length > limits.nameLength) return value;
    if (known.size >= limits.entries) known.clear();
    known.set(name, { value });
    return value;
  };
}
