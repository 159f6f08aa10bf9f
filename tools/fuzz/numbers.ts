import { isDeepStrictEqual } from 'node:util';
import * as fc from 'fast-check';
import { digestOf } from '../../src/digest.ts';
import { ExactNumber, LONGEST_LITERAL } from '../../src/numbers.ts';
import { exactJson } from '../../src/wire/exact-json.ts';
import { broken, type Target } from './target.ts';

/** A number: its digits without zeros at either end, and the exponent that belongs to them. */
interface Value {
  readonly sign: '' | '-';
  /** Empty for zero. */
  readonly digits: string;
  readonly exponent: bigint;
}

/** How a value is spelt. */
interface Spelling {
  /** Zeros behind the digits; the exponent makes up for them. */
  readonly zeros: number;
  /** How many digits stand before the point. */
  readonly before: number;
  /** Without an exponent, where that takes few zeros. */
  readonly isPlain: boolean;
  readonly mark: 'e' | 'E' | 'e+' | 'E+';
}

const spelling: fc.Arbitrary<Spelling> = fc.record({
  zeros: fc.oneof(fc.constant(0), fc.nat(25)),
  before: fc.oneof(fc.constant(Number.POSITIVE_INFINITY), fc.nat(30)),
  isPlain: fc.boolean(),
  mark: fc.constantFrom('e', 'E', 'e+', 'E+'),
});

const digit = fc.integer({ min: 0, max: 9 });
const digits = fc
  .oneof(
    fc.array(digit, { maxLength: 25, size: 'max' }),
    fc.array(digit, { minLength: 14, maxLength: 19, size: 'max' }),
    // Around the limits of doubles.
    fc
      .constantFrom('9007199254740991', '9007199254740993', '17976931348623157', '5', '1')
      .map((all) => [...all].map(Number)),
    fc
      .double({ noNaN: true, noDefaultInfinity: true, min: 0 })
      .map((double) => [...double.toPrecision(17).replace(/e.*|\./g, '')].map(Number)),
    fc
      .tuple(digit, fc.integer({ min: 900, max: 1_100 }))
      .map(([one, times]) => new Array<number>(times).fill(one)),
  )
  .map((all) => all.join(''));
const value: fc.Arbitrary<Value> = fc
  .record({
    sign: fc.constantFrom('', '-'),
    digits,
    exponent: fc.oneof(
      fc.integer({ min: -25, max: 25 }).map(BigInt),
      fc.integer({ min: -420, max: 420 }).map(BigInt),
      fc.bigInt({ min: -(10n ** 40n), max: 10n ** 40n }),
    ),
  } as const)
  .map((each) => normal(each));

function normal({ sign, digits: all, exponent }: Value): Value {
  const rest = all.replace(/^0+/, '');
  const kept = rest.replace(/0+$/, '');
  if (kept === '') return { sign: '', digits: '', exponent: 0n };
  return { sign, digits: kept, exponent: exponent + BigInt(rest.length - kept.length) };
}

/** A JSON literal of the value. */
function spell({ sign, digits: own, exponent }: Value, how: Spelling): string {
  if (own === '')
    return `${how.isPlain ? '' : '-'}0${how.before > 5 ? '' : '.00'}${how.zeros > 5 ? `${how.mark}7` : ''}`;
  if (how.isPlain && exponent >= 0n && exponent < 60n) {
    const whole = own + '0'.repeat(Number(exponent));
    return `${sign}${whole}${how.zeros > 5 ? `.${'0'.repeat(how.zeros)}` : ''}`;
  }
  if (how.isPlain && exponent < 0n && exponent > -60n) {
    const all = own.padStart(1 - Number(exponent), '0') + '0'.repeat(how.zeros);
    const at = all.length - how.zeros + Number(exponent);
    return `${sign}${all.slice(0, at)}.${all.slice(at)}`;
  }
  const all = own + '0'.repeat(how.zeros);
  const before = Math.min(how.before, all.length);
  const shifted = exponent - BigInt(how.zeros) + BigInt(all.length - before);
  const fraction = all.slice(before) === '' ? '' : `.${all.slice(before)}`;
  const mark = shifted < 0n ? how.mark.replace('+', '') : how.mark;
  return `${sign}${all.slice(0, before) || '0'}${fraction}${mark}${shifted}`;
}

/** The same value but for one digit. */
function neighbour(each: Value, at: number, by: number): Value {
  if (each.digits === '') return { ...each, digits: String(by) };
  const place = at % each.digits.length;
  const other = (Number(each.digits[place]) + by) % 10;
  const all = `${each.digits.slice(0, place)}${other}${each.digits.slice(place + 1)}`;
  return normal({ ...each, digits: all });
}

function textOf({ sign, digits: own, exponent }: Value): string {
  return own === '' ? 'zero' : `${sign}${own}e${exponent}`;
}

/** A double's own value, as JavaScript writes it, or with so many digits. */
function ofDouble(double: number, precision?: number): string {
  const text = precision === undefined ? String(double) : double.toPrecision(precision);
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)\.?(\d*)(?:e([+-]\d+))?$/.exec(text) ?? [];
  const shifted = BigInt(exponent) - BigInt(fraction.length);
  return textOf(normal({ sign: sign as '', digits: whole + fraction, exponent: shifted }));
}

/**
 * What a number is equal to. One that JavaScript writes is its double, and so are the 17 digits
 * that other languages write of a fraction. Each other value is itself alone.
 */
function meaning(each: Value): { readonly text: string; readonly isDouble: boolean } {
  const double = Number(`${each.sign}${each.digits || '0'}e${each.exponent}`);
  const own = textOf(each);
  const isWritten = Number.isFinite(double) && own === ofDouble(double);
  const isLong =
    Number.isFinite(double) && !Number.isInteger(double) && own === ofDouble(double, 17);
  return isWritten || isLong
    ? { text: ofDouble(double), isDouble: true }
    : { text: own, isDouble: false };
}

const input = fc.record({
  values: fc.array(
    fc.record({
      value,
      other: fc.option(fc.tuple(fc.nat(1_100), fc.integer({ min: 1, max: 9 })), { freq: 2 }),
      spellings: fc.tuple(spelling, spelling),
    }),
    { minLength: 1, maxLength: 4 },
  ),
  /** The shape around them, and what else stands there. */
  noise: fc.array(
    fc.constantFrom('"12345678901234567890"', '"1e400\\""', 'null', 'true', '0.1', '[]', '{}'),
    { maxLength: 4 },
  ),
  space: fc.constantFrom('', ' ', '\n\t'),
});
type Input = typeof input extends fc.Arbitrary<infer T> ? T : never;

export const numbers: Target = {
  name: 'numbers',
  what: 'numbers are equal where their values are, differ where a digit does, and no literal throws',
  inputs: 1_500,
  async open() {
    return { property: fc.property(input, judge), describe, close: async () => {} };
  },
};

function judge({ values, noise, space }: Input): void {
  const pairs = values.map(({ value: one, other, spellings: [first, second] }) => {
    const two = other === null ? one : neighbour(one, ...other);
    return { one, two, texts: [spell(one, first), spell(two, second)] as const };
  });
  // The second text has its members the other way round.
  const member = (text: string, at: number) => `"k${at}":${space}[{"n":${text}}]`;
  const whole = (at: 0 | 1): string => {
    const members = [...noise, ...pairs.map(({ texts }) => texts[at])].map(member);
    return `{${space}${(at === 0 ? members : members.reverse()).join(`${space},`)}}`;
  };
  const texts = [whole(0), whole(1)] as const;
  const [one, other] = texts.map(valueIn);
  const all = pairs.flatMap(({ texts: both }) => both);
  if (all.some((text) => text.length > LONGEST_LITERAL)) return;
  const isSame = pairs.every((pair) => meaning(pair.one).text === meaning(pair.two).text);
  if ((digestOf(one) === digestOf(other)) !== isSame)
    broken(`numbers are told ${isSame ? 'apart that are equal' : 'to be equal that differ'}`);
  for (const [at, text] of texts.entries()) {
    const isExact = pairs.some((pair) => !meaning(at === 0 ? pair.one : pair.two).isDouble);
    if ((exactJson(text) !== undefined) !== isExact)
      broken(`a text is said to ${isExact ? 'have no' : 'have a'} number that is rounded`);
  }
}

/** Breaks where what is read of the text is more or less than what `JSON.parse` reads. */
function valueIn(text: string): unknown {
  const plain: unknown = JSON.parse(text);
  const exact = exactJson(text);
  if (exact === undefined) return plain;
  if (!isDeepStrictEqual(rounded(exact.value), plain))
    broken('the doubles of the exact numbers are others than JSON.parse reads');
  digestOf(exact.value);
  return exact.value;
}

function rounded(read: unknown): unknown {
  if (read instanceof ExactNumber) return read.double;
  if (Array.isArray(read)) return read.map(rounded);
  if (typeof read !== 'object' || read === null) return read;
  return Object.fromEntries(Object.entries(read).map(([key, each]) => [key, rounded(each)]));
}

function describe({ values }: Input): string {
  return values
    .map(({ value: one, other, spellings: [first, second] }) => {
      const two = other === null ? one : neighbour(one, ...other);
      return `  ${spell(one, first)} and ${spell(two, second)}`;
    })
    .join('\n');
}
