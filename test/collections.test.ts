import { describe, expect, it } from 'vitest';
import { distinct, memoise, pushTo } from '../src/basics/collections.ts';

/** A memory of three names of at most eight characters, and the names that it computed. */
function setUp() {
  const computed: string[] = [];
  const ask = memoise(
    (name): string | undefined => {
      computed.push(name);
      return name.startsWith('known') ? name.toUpperCase() : undefined;
    },
    { most: 3, nameLength: 8 },
  );
  return { ask, computed };
}

describe('a memory of names', () => {
  it('computes each name once, also where the result is undefined', () => {
    const { ask, computed } = setUp();
    expect([ask('known'), ask('known'), ask('other'), ask('other')]).toEqual([
      'KNOWN',
      'KNOWN',
      undefined,
      undefined,
    ]);
    expect(computed).toEqual(['known', 'other']);
  });

  it('holds as many names as its limit, and forgets all of them for one more', () => {
    const { ask, computed } = setUp();
    for (const name of ['a', 'b', 'c', 'a', 'b', 'c']) ask(name);
    expect(computed).toEqual(['a', 'b', 'c']);
    for (const name of ['d', 'd', 'a', 'b']) ask(name);
    expect(computed).toEqual(['a', 'b', 'c', 'd', 'a', 'b']);
  });

  it('does not keep a name that is too long, and forgets no other for it', () => {
    const { ask, computed } = setUp();
    for (const name of ['a', 'b', 'c', 'known-too-long', 'known-too-long', 'a']) ask(name);
    expect(computed).toEqual(['a', 'b', 'c', 'known-too-long', 'known-too-long']);
    expect(ask('known-too-long')).toBe('KNOWN-TOO-LONG');
  });

  it('takes names of object members for plain names', () => {
    const { ask, computed } = setUp();
    for (const name of ['__proto__', 'toString']) expect(ask(name)).toBeUndefined();
    expect(computed).toEqual(['__proto__', 'toString']);
  });
});

it('a memory that counts sizes is emptied where they are too many, and keeps one that is larger', () => {
  const computed: string[] = [];
  const ask = memoise(
    (name) => {
      computed.push(name);
      return name;
    },
    { most: 4, sizeOf: (value) => value.length },
  );
  for (const name of ['aa', 'bb', 'aa', 'bb']) ask(name);
  expect(computed).toEqual(['aa', 'bb']);
  for (const name of ['c', 'c', 'aa', 'c']) ask(name);
  expect(computed).toEqual(['aa', 'bb', 'c', 'aa']);
  for (const name of ['longer', 'longer', 'd', 'longer']) ask(name);
  expect(computed).toEqual(['aa', 'bb', 'c', 'aa', 'longer', 'd', 'longer']);
});

it('lists by a key keep their order', () => {
  const lists = new Map<string, number[]>();
  pushTo(lists, 'odd', 1);
  pushTo(lists, 'even', 2);
  pushTo(lists, 'odd', 3);
  expect([...lists]).toEqual([
    ['odd', [1, 3]],
    ['even', [2]],
  ]);
});

it('what is the same JSON is there once, where it was first', () => {
  expect(distinct<unknown>([{ a: 1 }, 'b', { a: 1 }, 'c', 'b'])).toEqual([{ a: 1 }, 'b', 'c']);
});
