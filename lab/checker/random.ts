/** Choices that a seed decides, so that a run can be made again. */
export interface Random {
  /** A whole number, both ends included. */
  between(least: number, most: number): number;
  chance(probability: number): boolean;
  pick<T>(items: readonly T[]): T;
  /** The items in another order. */
  shuffled<T>(items: readonly T[]): T[];
}

/**
 * Each name has a sequence of its own, so that what one part chooses does not depend on how fast
 * another one is.
 */
export function seeded(seed: number, name: string): Random {
  const next = mulberry32(mix(seed, name));
  const below = (limit: number) => Math.floor(next() * limit);
  return {
    between: (least, most) => least + below(most - least + 1),
    chance: (probability) => next() < probability,
    pick<T>(items: readonly T[]): T {
      if (items.length === 0) throw new RangeError('there is nothing to pick from');
      return items[below(items.length)] as T;
    },
    shuffled<T>(items: readonly T[]): T[] {
      const order = [...items];
      for (let last = order.length - 1; last > 0; last--) {
        const other = below(last + 1);
        [order[last], order[other]] = [order[other] as T, order[last] as T];
      }
      return order;
    },
  };
}

/** A seed of its own for each name. */
export function mix(seed: number, name: string): number {
  return hash(`${seed}:${name}`);
}

/** FNV-1a. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (const char of text) value = Math.imul(value ^ (char.codePointAt(0) ?? 0), 0x01000193);
  return value >>> 0;
}

function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
