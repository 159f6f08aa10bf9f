import { describe, expect, it } from 'vitest';
import { memoise } from '../../src/policy/engine.ts';

/** A memory of three names of at most eight characters, and the names that it computed. */
function setUp() {
  const computed: string[] = [];
  const ask = memoise(
    (name): string | undefined => {
      computed.push(name);
      return name.startsWith('known') ? name.toUpperCase() : undefined;
    },
    { entries: 3, nameLength: 8 },
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
