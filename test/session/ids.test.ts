import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { digestOf, newSessionId, newToken } from '../../src/session/ids.ts';

describe.each([
  ['a session id', newSessionId, 192],
  ["a claim's token", newToken, 144],
])('%s', (_, make, bits) => {
  it('is of visible ASCII, and at least 128 of its bits are left to chance', () => {
    expect(bits).toBeGreaterThanOrEqual(128);
    const ids = Array.from({ length: 300 }, make);
    for (const id of ids) expect(id).toMatch(/^[\x21-\x7e]+$/);
    const bytes = ids.map((id) => Buffer.from(id, 'base64url'));
    for (let bit = 0; bit < bits; bit++) {
      const ones = bytes.filter((each) => ((each[bit >> 3] ?? 0) >> (bit & 7)) & 1).length;
      // Further off than nine deviations of 300 fair coins: not in anybody's lifetime.
      expect(ones).toBeGreaterThan(70);
      expect(ones).toBeLessThan(230);
    }
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe('a digest of arguments', () => {
  /** The same value with the members of each object the other way round. */
  const reversed = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(reversed);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value)
        .reverse()
        .map(([key, each]) => [key, reversed(each)]),
    );
  };
  /** Whether they are the same JSON, whatever the order of the members. */
  const same = (a: unknown, b: unknown): boolean =>
    isDeepStrictEqual(JSON.parse(JSON.stringify(a)), JSON.parse(JSON.stringify(b)));

  it('does not depend on the order of the members', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => digestOf(reversed(value)) === digestOf(value)),
    );
  });

  it('tells different arguments apart', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
        expect(digestOf(a) === digestOf(b)).toBe(same(a, b));
      }),
    );
  });

  it.each([
    [{ a: 1 }, { a: '1' }],
    [{ a: [1, 2] }, { a: [2, 1] }],
    [{ a: [1] }, { a: 1 }],
    [{ a: { b: 1 } }, { 'a:{"b"': 1 }],
    [['a,b'], ['a', 'b']],
    [[], {}],
    [null, undefined],
    ['[', ['']],
  ])('tells %j and %j apart, or takes them for the same on purpose', (a, b) => {
    expect(digestOf(a) === digestOf(b)).toBe(a === null);
  });

  it('takes __proto__ for an ordinary name', () => {
    const [one, two] = ['{"__proto__":{"a":1}}', '{"__proto__":{"a":2}}'].map((text) =>
      digestOf(JSON.parse(text)),
    );
    expect(one).not.toBe(two);
    expect(one).not.toBe(digestOf({}));
  });

  it('is had of arguments however deep and long they are', () => {
    const deep = JSON.parse(`${'{"a":['.repeat(100_000)}${']}'.repeat(100_000)}`);
    expect(digestOf(deep)).toMatch(/^[\w-]{43}$/);
    expect(digestOf(Array.from({ length: 300_000 }, (_, at) => at))).toMatch(/^[\w-]{43}$/);
  });
});
