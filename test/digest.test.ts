import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { digestOf } from '../src/basics/digest.ts';
import { few } from './helpers/few.ts';

/**
 * The first version of the digest, whose values stores still have. It recurses, so it is only
 * given small values.
 */
function firstDigest(args: unknown): string {
  const canonical = (value: unknown): string => {
    if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
    if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
    const sorted = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${sorted.map(([key, each]) => `${JSON.stringify(key)}:${canonical(each)}`).join(',')}}`;
  };
  return createHash('sha256').update(canonical(args)).digest('base64url');
}

/** Values at the limits of what is written by hand. */
const odd = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer({ min: -(2 ** 53), max: 2 ** 53 }),
  fc.constantFrom(
    0,
    -0,
    9,
    10,
    2 ** 31 - 1,
    2 ** 31,
    -1,
    1e21,
    1e-7,
    0.1,
    123456.789,
    Number.POSITIVE_INFINITY,
  ),
  fc.constantFrom(true, false, null),
  fc.string({ unit: 'binary', maxLength: 70 }),
  fc.string({
    unit: fc.constantFrom('a', '"', '\\', '\n', '\u001f', '\u007f', 'é', '€', '💶', '\ud800'),
  }),
);
const value = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    odd,
    fc.array(odd, { maxLength: 40 }),
    fc.array(fc.double({ noNaN: true }), { maxLength: 40 }),
    fc.array(tie('value'), { maxLength: 5 }),
    fc.dictionary(fc.oneof(fc.string(), fc.nat(30).map(String)), tie('value'), { maxKeys: 30 }),
  ),
})).value;

describe('a digest of arguments', () => {
  it('is what it always was', () => {
    fc.assert(
      fc.property(value, (each) => {
        expect(digestOf(each)).toBe(firstDigest(each));
      }),
      few(250),
    );
  });

  it.each([
    [{}, 'RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o'],
    [
      { sku: 'a', count: 2, tags: ['x', 1.5, true, null] },
      'Wf-v2KffokXd_eQf3Cegfk2GoA0y9nKyYzcfuuQrSS8',
    ],
  ])('is what stores have of %j', (args, digest) => {
    expect(digestOf(args)).toBe(digest);
  });

  it('is what it always was of a text longer than one piece of the hash', () => {
    for (const length of [64, 65, 1_000, 21_845, 21_846, 65_535, 65_536, 200_000]) {
      for (const text of ['x'.repeat(length), 'é'.repeat(length), '"'.repeat(length)]) {
        const args = {
          b: text,
          a: [text.slice(1), 1, { c: Array(length).fill(true) }],
          [text]: 0.5,
        };
        expect(digestOf(args)).toBe(firstDigest(args));
      }
    }
  });

  it('is what it always was of a long string, with any character at any place', () => {
    for (const odd of [
      '"',
      '\\',
      '\n',
      '\u0000',
      '\u007f',
      '\u009f',
      '€',
      '💶',
      '\ud800',
      '\udc00',
    ])
      for (const before of [0, 1, 63, 16_383, 16_384, 32_767, 40_000])
        for (const filler of ['x', 'é', '€']) {
          const args = [filler.repeat(before) + odd + filler.repeat(70)];
          expect(digestOf(args)).toBe(firstDigest(args));
        }
  });

  it('is what it always was of decimals', () => {
    const near = fc
      .tuple(fc.integer({ min: -(2 ** 53), max: 2 ** 53 }), fc.integer({ min: 0, max: 22 }))
      .map(([count, places]) => count / 10 ** places);
    fc.assert(
      fc.property(fc.array(near, { maxLength: 40 }), (list) => {
        expect(digestOf(list)).toBe(firstDigest(list));
      }),
      few(250),
    );
  });

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
  /** Whether they are the same JSON, in any order of the members. */
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

  it('takes arguments of any depth and length', () => {
    const deep = JSON.parse(`${'{"a":['.repeat(100_000)}${']}'.repeat(100_000)}`);
    expect(digestOf(deep)).toMatch(/^[\w-]{43}$/);
    expect(digestOf(Array.from({ length: 300_000 }, (_, at) => at))).toMatch(/^[\w-]{43}$/);
  });
});
