import * as fc from 'fast-check';
import { StateMachineGate } from '../../src/index.ts';
import { Door, refusalIn } from './door.ts';
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

type Other = Input['values'][number]['other'];

/** The same value; its neighbour; or its double, as JavaScript or another language writes that. */
function otherThan(each: Value, other: Other): Value {
  if (other === null) return each;
  if (typeof other === 'object') return neighbour(each, ...other);
  const double = doubleOf(each);
  return Number.isFinite(double) ? ofDouble(double, other) : each;
}

function doubleOf({ sign, digits: own, exponent }: Value): number {
  return Number(`${sign}${own || '0'}e${exponent}`);
}

function textOf({ sign, digits: own, exponent }: Value): string {
  return own === '' ? 'zero' : `${sign}${own}e${exponent}`;
}

/** A double's own value, as JavaScript writes it, or with so many digits. */
function ofDouble(double: number, precision?: number): Value {
  const text = precision === undefined ? String(double) : double.toPrecision(precision);
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)\.?(\d*)(?:e([+-]\d+))?$/.exec(text) ?? [];
  const shifted = BigInt(exponent) - BigInt(fraction.length);
  return normal({ sign: sign as '', digits: whole + fraction, exponent: shifted });
}

/**
 * What a number is equal to. One that JavaScript writes is its double, and so are the 17 digits
 * that other languages write of a fraction. Each other value is itself alone.
 */
function meaning(each: Value): string {
  const double = doubleOf(each);
  const own = textOf(each);
  if (!Number.isFinite(double)) return own;
  const isLong = !Number.isInteger(double) && own === textOf(ofDouble(double, 17));
  return isLong ? textOf(ofDouble(double)) : own;
}

const input = fc.record({
  values: fc.array(
    fc.record({
      value,
      other: fc.oneof(
        fc.constant(null),
        fc.tuple(fc.nat(1_100), fc.integer({ min: 1, max: 9 })),
        fc.constantFrom(undefined, 17),
      ),
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
  what: 'numbers are the same where their values are, and others where one digit is another',
  inputs: 150,
  async open() {
    return { property: fc.asyncProperty(input, judge), describe, close: async () => {} };
  },
};

/** The docs: a longer literal is refused. */
const LONGEST_LITERAL = 1_000;

/** Whether a call with one text follows one with the other, where both must have the same. */
async function judge({ values, noise, space }: Input): Promise<void> {
  const pairs = values.map(({ value: one, other, spellings: [first, second] }) => {
    const two = otherThan(one, other);
    return { one, two, texts: [spell(one, first), spell(two, second)] as const };
  });
  // The second text has its members the other way round.
  const member = (text: string, at: number) => `"k${at}":${space}[{"n":${text}}]`;
  const whole = (at: 0 | 1): string => {
    const members = [...noise, ...pairs.map(({ texts }) => texts[at])].map(member);
    return `{${space}${(at === 0 ? members : members.reverse()).join(`${space},`)}}`;
  };
  const rules = { second: { after: [{ tool: 'first', same: ['value'] }] } };
  const gate = StateMachineGate.fromOrder(rules, { id: 'numbers' });
  const door = new Door({ gate, answer: () => ({ content: [] }) });
  const headers = await door.begin();
  for (const [at, tool] of (['first', 'second'] as const).entries()) {
    const text = `{"name":"${tool}","arguments":{"value":${whole(at as 0 | 1)}}}`;
    const answer = await door.ask('tools/call', text, headers);
    const isLong = pairs.some(({ texts }) => (texts[at]?.length ?? 0) > LONGEST_LITERAL);
    if (isLong && refusalIn(answer) !== 'arguments')
      broken('a call with a number beyond the limit was not refused', answer.text);
    if (isLong) return;
    if (tool === 'first' && door.ran.length === 0)
      broken('a call that nothing forbids was refused', answer.text);
  }
  const isSame = pairs.every(({ one, two }) => meaning(one) === meaning(two));
  if ((door.ran.length === 2) !== isSame)
    broken(`numbers are told ${isSame ? 'apart that are equal' : 'to be equal that differ'}`);
}

function describe({ values }: Input): string {
  return values
    .map(({ value: one, other, spellings: [first, second] }) => {
      const two = otherThan(one, other);
      return `  ${spell(one, first)} and ${spell(two, second)}`;
    })
    .join('\n');
}
