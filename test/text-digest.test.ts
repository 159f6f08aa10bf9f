import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { digestOf } from '../src/basics/digest.ts';
import { digestOfText } from '../src/basics/text-digest.ts';
import { exactJson } from '../src/wire/exact-json.ts';
import { few } from './helpers/few.ts';
import { objectText, valueText } from './wire/reference-json.ts';

/** The digest of what the text is read as. */
function digestAsRead(text: string): string {
  const parsed: unknown = JSON.parse(text);
  return digestOf(exactJson(text, parsed)?.value ?? parsed);
}

/** Literals in all forms, most of them near to a double that has another form. */
const literal = fc
  .tuple(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.nat(6), fc.nat(20))
  .chain(([double, form, places]) => {
    const small = (double % 1) * 10 ** (places - 6);
    const forms = [
      String(double),
      small.toPrecision(15 + (places % 4)),
      small.toExponential(),
      `${Math.trunc(small)}`,
      `${small.toFixed(3)}00`,
      BigInt(Math.trunc(double % 2 ** 60)).toString(),
      `1${'0'.repeat(places)}${form}e${form}${places}`,
    ];
    return fc.constant(forms[form] ?? '0');
  });

describe('the digest of a text', () => {
  it('is that of its value, in any form', () => {
    fc.assert(
      fc.property(fc.oneof(valueText, objectText), (text) => {
        expect(digestOfText(text)).toBe(digestAsRead(text));
      }),
      few(500),
    );
  });

  it('is that of its value with space in it, and any characters', () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), fc.nat(2), (value, indent) => {
        expect(digestOfText(` ${JSON.stringify(value, null, indent)}\n`)).toBe(digestOf(value));
      }),
      few(250),
    );
  });

  it('is that of its value with numbers in any form', () => {
    fc.assert(
      fc.property(fc.array(literal, { maxLength: 30 }), (literals) => {
        const text = `{"b":[${literals.join(', ')}],"a":${literals[0] ?? 1}}`;
        expect(digestOfText(text)).toBe(digestAsRead(text));
      }),
      few(500),
    );
  });

  it('is that of its value with escapes and long strings', () => {
    const piece = fc.constantFrom(
      ...[
        'a',
        'é',
        '€',
        '💶',
        '\\n',
        '\\/',
        '\\"',
        '\\\\',
        '\\u0041',
        '\\u00e9',
        '\\u20AC',
        '\\u001f',
      ],
      ...[
        '\\ud83d\\udcb6',
        '\\ud83d',
        '\\udcb6',
        '\\ud83dx',
        '\\ud83d\\n',
        'x'.repeat(70),
        '€'.repeat(30_000),
      ],
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const text = `{"b":"${pieces.join('')}","${pieces.join('').slice(0, 0)}a":["${pieces.join('')}"]}`;
        expect(digestOfText(text)).toBe(digestAsRead(text));
      }),
      few(250),
    );
  });

  it('is that of its value with many members in any order, some of them twice', () => {
    const key = fc.oneof(
      fc.nat(200).map(String),
      fc.constantFrom('a', 'a\\n', '\\u0061b', 'é', '__proto__'),
    );
    const member = fc.tuple(
      key,
      fc.constantFrom('1', '1e400', '{"y":1,"x":[{"b":1,"a":2}]}', '[]'),
    );
    fc.assert(
      fc.property(fc.array(member, { maxLength: 120 }), (members) => {
        const text = `[{${members.map(([name, value]) => `"${name}":${value}`).join(',')}},1]`;
        expect(digestOfText(text)).toBe(digestAsRead(text));
      }),
      few(250),
    );
  });

  it('takes a text of any depth and length', () => {
    const depth = 100_000;
    const deep = `${'{"b":1e400,"a":['.repeat(depth)}${']}'.repeat(depth)}`;
    expect(digestOfText(deep)).toBe(digestAsRead(deep));
    const long = `{${Array.from({ length: 100_000 }, (_, at) => `"${at}":${at}.5`).join(',')}}`;
    expect(digestOfText(long)).toBe(digestAsRead(long));
  });
});

describe('a body of numbers that JavaScript rounds', () => {
  const COUNT = 5_000;
  const list = (make: (index: number) => string): string =>
    `{"a":[${Array.from({ length: COUNT }, (_, index) => make(index)).join(',')}]}`;
  const SHAPES: Readonly<Record<string, string>> = {
    'numbers of 19 digits': list((i) => `1${String(10 * i + 1).padStart(18, '7')}`),
    'numbers of 17 digits': list((i) => Math.sin(i + 1).toPrecision(17)),
    'long decimals': list((i) => String(Math.sin(i + 1))),
    'numbers beyond 1e308': list(() => '1e400'),
    counts: list((i) => (i === 0 ? '1e400' : String(i))),
    'small objects': list((i) => (i === 0 ? '1e400' : '{"b":1,"a":2}')),
    'many keys': `{${Array.from({ length: COUNT }, (_, i) => `"k${(i * 7_919) % 10_007}":1e400`)}}`,
    escapes: `{"a":1e400,"b":"${'\\n'.repeat(COUNT)}"}`,
    space: `{"a":[1e400${' '.repeat(COUNT)}]}`,
  };
  /** How often a method of texts is called. */
  const calls = (name: 'charCodeAt' | 'slice', run: () => unknown): number => {
    const original = String.prototype[name] as (...args: number[]) => never;
    let count = 0;
    String.prototype[name] = function counting(...args: number[]): never {
      count++;
      return original.apply(this, args);
    };
    try {
      run();
    } finally {
      String.prototype[name] = original;
    }
    return count;
  };

  it.each(Object.keys(SHAPES).slice(0, 5))(
    'makes no text of each, digested or read: %s',
    (name) => {
      const text = SHAPES[name] ?? '';
      // Of a few, only JavaScript can tell the digits of the double.
      expect(calls('slice', () => digestOfText(text))).toBeLessThan(COUNT / 20);
      expect(calls('slice', () => exactJson(text))).toBeLessThan(COUNT / 20);
    },
  );

  it.each(Object.keys(SHAPES))('is digested in few steps a character: %s', (name) => {
    const text = SHAPES[name] ?? '';
    const steps = calls('charCodeAt', () => digestOfText(text)) / text.length;
    expect(steps).toBeLessThan(name === 'many keys' ? 30 : 8);
  });
});
