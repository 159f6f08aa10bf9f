import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { digestOf } from '../src/basics/digest.ts';
import { ExactNumber, LONGEST_LITERAL, mayRound } from '../src/basics/numbers.ts';
import { exactJson } from '../src/wire/exact-json.ts';
import { few } from './helpers/few.ts';

/** A digest as a gate makes it of a literal that came in a body. */
function digestOfLiteral(literal: string): string {
  return digestOf((exactJson(literal) ?? { value: JSON.parse(literal) }).value);
}

/** A literal's value as a fraction, slow and plain: it expands the exponent. */
function fractionOf(literal: string): readonly [numerator: bigint, denominator: bigint] {
  const [, sign = '', whole = '', places = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?$/.exec(literal) ?? [];
  const power = Number(exponent) - places.length;
  const digits = BigInt(`${sign}${whole}${places}`);
  return power < 0 ? [digits, 10n ** BigInt(-power)] : [digits * 10n ** BigInt(power), 1n];
}

function isSameValue(one: string, other: string): boolean {
  const [a, b] = fractionOf(one);
  const [c, d] = fractionOf(other);
  return a * d === c * b;
}

/** The text that stands for all literals of a number, by the rule as it is written. */
function ruleOf(literal: string): { readonly double: number } | { readonly value: string } {
  const double = Number(literal);
  const isDouble =
    Number.isFinite(double) &&
    (isSameValue(literal, String(double)) ||
      (!Number.isInteger(double) && isSameValue(literal, double.toPrecision(17))));
  return isDouble ? { double } : { value: literal };
}

function isEqual(one: string, other: string): boolean {
  const [a, b] = [ruleOf(one), ruleOf(other)];
  if ('double' in a && 'double' in b) return a.double === b.double;
  return 'value' in a && 'value' in b && isSameValue(a.value, b.value);
}

const digits = (most: number) =>
  fc.string({ unit: fc.constantFrom('0', '0', '1', '5', '9'), minLength: 1, maxLength: most });
const exponent = fc
  .tuple(
    fc.constantFrom('e', 'E'),
    fc.constantFrom('', '+', '-'),
    fc.constantFrom('', '0', '00'),
    fc.oneof(fc.nat(25), fc.nat(450)),
  )
  .map((parts) => parts.join(''));
const anyLiteral = fc
  .tuple(
    fc.constantFrom('', '-'),
    digits(40).map((text) => text.replace(/^0+(?=\d)/, '')),
    fc.option(digits(40), { nil: undefined }),
    fc.oneof(fc.constant(''), exponent),
  )
  .map(([sign, whole, places, power]) =>
    [sign, whole, places === undefined ? '' : `.${places}`, power].join(''),
  );
const written = fc
  .double({ noNaN: true, noDefaultInfinity: true })
  .chain((double) =>
    fc.constantFrom(
      String(double),
      double.toExponential(),
      double.toPrecision(17),
      double.toPrecision(21),
      Math.abs(double) < 1e21 ? double.toFixed(20) : String(double),
    ),
  );
const literal = fc.oneof(anyLiteral, written);

/** The same value in another form. */
const rewritten = literal.chain((text) =>
  fc.tuple(fc.nat(30), fc.nat(30)).map(([zeros, moved]): readonly [string, string] => {
    const [, sign = '', whole = '', places = '', power = '0'] =
      /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?$/.exec(text) ?? [];
    const more = places + '0'.repeat(zeros + moved);
    const shifted = (whole + more.slice(0, moved)).replace(/^0+(?=\d)/, '');
    const rest = more.slice(moved);
    const point = rest === '' ? '' : `.${rest}`;
    return [text, `${sign}${shifted}${point}e${Number(power) - moved}`];
  }),
);

describe('two numbers', () => {
  it('have one digest where they are equal by value, and only there', () => {
    fc.assert(
      fc.property(literal, literal, (one, other) => {
        expect(digestOfLiteral(one) === digestOfLiteral(other)).toBe(isEqual(one, other));
      }),
      few(500),
    );
  });

  it('have one digest in each form of the same value', () => {
    fc.assert(
      fc.property(rewritten, ([one, other]) => {
        expect(isSameValue(one, other)).toBe(true);
        expect(digestOfLiteral(other)).toBe(digestOfLiteral(one));
      }),
      few(500),
    );
  });

  it('have one digest where other languages write a fraction with 17 digits', () => {
    const fraction = fc
      .double({ noNaN: true, noDefaultInfinity: true })
      .filter((double) => !Number.isInteger(double));
    fc.assert(
      fc.property(fraction, (double) => {
        expect(digestOfLiteral(double.toPrecision(17))).toBe(digestOf(double));
      }),
    );
  });

  it('have the digest of the double where they are it', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (double) => {
        for (const text of [String(double), double.toExponential()])
          expect(digestOfLiteral(text)).toBe(digestOf(double));
      }),
    );
  });

  it('differ by one in the last digit, however long they are', () => {
    const id = fc.bigInt({ min: 2n ** 53n, max: 10n ** 40n });
    fc.assert(
      fc.property(id, (one) => {
        expect(digestOfLiteral(`${one}`)).not.toBe(digestOfLiteral(`${one + 1n}`));
      }),
    );
  });

  it('are compared by value with exponents that a double cannot count', () => {
    const zeros = '0'.repeat(30);
    expect(digestOfLiteral(`1e1${zeros}`)).toBe(digestOfLiteral(`10e${10n ** 30n - 1n}`));
    expect(digestOfLiteral(`1e1${zeros}`)).not.toBe(digestOfLiteral(`1e1${zeros}1`));
    expect(digestOfLiteral(`-1e1${zeros}`)).not.toBe(digestOfLiteral(`1e1${zeros}`));
    expect(digestOfLiteral(`0e1${zeros}`)).toBe(digestOf(0));
  });
});

describe('a number that may not be its double', () => {
  it('is told by its text, in linear time, with no literal missed', () => {
    fc.assert(
      fc.property(literal, (text) => {
        if (!mayRound(text)) expect('double' in ruleOf(text)).toBe(true);
        if (!mayRound(text)) expect(ExactNumber.of(text)).toBeUndefined();
      }),
      few(500),
    );
  });

  it.each(['1', '0', '-1.5', '123456789012345', '1e9', '1.5e-7', '20260101', '12.5e+22'])(
    'is not suspected in short literals: %s',
    (text) => {
      expect(mayRound(text)).toBe(false);
    },
  );

  it.each([
    ['1e400', true],
    ['-1e400', true],
    ['1e-400', true],
    ['1234567890123456789', true],
    ['9007199254740993', true],
    ['1.00000000000000000001', true],
    ['0.12345678901234567890', false],
  ])('misleads its reader where the double is infinite or whole: %s', (text, misleads) => {
    expect(ExactNumber.of(text)?.misleads).toBe(misleads);
  });
});

describe('a literal of a client that wants to stall the process', () => {
  /** The BigInts that are made, by the lengths of their texts. */
  function bigIntsOf(run: () => void): readonly number[] {
    const { BigInt: original } = globalThis;
    const lengths: number[] = [];
    const counting = (value: string | number): bigint => {
      lengths.push(String(value).length);
      return original(value);
    };
    Object.assign(globalThis, { BigInt: counting });
    try {
      run();
    } finally {
      Object.assign(globalThis, { BigInt: original });
    }
    return lengths;
  }

  it.each([
    ['digits', '9'.repeat(1_000_000)],
    ['an exponent', `1e${'9'.repeat(1_000_000)}`],
    ['a fraction', `0.${'0'.repeat(1_000_000)}1e1000001`],
    ['digits and an exponent', `${'1'.repeat(500_000)}e-${'0'.repeat(500_000)}1`],
  ])('is not calculated with, but told to be too long: %s', (_, text) => {
    const made = bigIntsOf(() => {
      expect(exactJson(`{"a":[${text}]}`)?.hasLongLiteral).toBe(true);
      digestOfLiteral(text);
    });
    expect(made).toEqual([]);
  });

  it.each([`${'9'.repeat(989)}e999999999`, '1e999999999', `1e-${'9'.repeat(990)}`])(
    'has no exponent expanded: %#',
    (text) => {
      expect(text.length).toBeLessThanOrEqual(LONGEST_LITERAL);
      const made = bigIntsOf(() => digestOfLiteral(text));
      // One for the exponent as it is written, and one for the places that shift it.
      expect(made).toHaveLength(2);
      const { text: canonical = '' } = ExactNumber.of(text) ?? {};
      expect(canonical.length).toBeLessThanOrEqual(text.length + 8);
    },
  );
});

describe('JSON with numbers that are not their doubles', () => {
  it('is read as JSON.parse reads it, but for these numbers', () => {
    const odd = '1234567890123456789';
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), fc.nat(2), (value, indent) => {
        const exact = exactJson(
          JSON.stringify([value, 'mark'], null, indent).replace(/"mark"\s*\]$/, `${odd}]`),
        );
        const [read, number] = Object.values(exact?.value ?? []);
        expect(read).toEqual(JSON.parse(JSON.stringify(value)));
        expect(number).toBeInstanceOf(ExactNumber);
      }),
    );
  });

  it('is read at any depth, and with "__proto__" as a key of its own', () => {
    const deep = 100_000;
    const text = `${'{"a":['.repeat(deep)}1e400${']}'.repeat(deep)}`;
    expect(exactJson(text)?.hasLongLiteral).toBe(false);
    const { value } = exactJson('{"__proto__":{"x":1e400},"a":1}') ?? {};
    expect(Object.keys(value as object)).toEqual(['__proto__', 'a']);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });

  it.each([
    ['{"a":1e400,"b":1,"a":"x"}', { a: 'x', b: 1 }],
    ['{"a":[1e400],"a":[1]}', { a: [1] }],
    ['{"a":{"b":[1,1e400]},"a":{"b":7}}', { a: { b: 7 } }],
    ['{"a":[{"b":1e400,"b":2}],"c":[[1e400]],"c":3}', { a: [{ b: 2 }], c: 3 }],
  ])('is read with the last of equal keys: %s', (text, value) => {
    expect(exactJson(text)?.value).toEqual(value);
  });

  it('is not read where a string alone looks like such a number', () => {
    expect(exactJson('{"a":"1234567890123456789","1e400":1}')).toBeUndefined();
  });
});
