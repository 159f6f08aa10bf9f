/**
 * Numbers of JSON that JavaScript rounds. It hides when two literals are the same number, and how
 * one is kept beside its double.
 *
 * A literal means its double where it is, by value, what JavaScript writes for that. Other
 * languages write 17 digits: where the double has a fraction, these are the same number, too. Any
 * other literal is a number of its own. So `1`, `1.0` and `1e0` are equal, `0.10000000000000001` is
 * 0.1, and `1234567890123456789` differs from `1234567890123456790`.
 *
 * A client decides how long a literal is. So the work is linear, and no exponent is ever expanded.
 */

import {
  LOWER_E,
  MINUS,
  NINE,
  PLUS,
  POINT,
  skipDigits,
  skipScalar,
  UPPER_E,
  ZERO,
} from './json-scan.ts';

/** Longer literals are not compared by value, and a gate refuses a call that has one. */
export const LONGEST_LITERAL = 1_000;

/**
 * Whether a literal in a JSON text may be longer than that. `true` also for what is in a string.
 */
export function mayHaveLong(text: string): boolean {
  const isIn = (at: number): boolean => /[\d.eE+-]/.test(text.charAt(at));
  // A place in each stretch of that length is in it.
  for (let at = LONGEST_LITERAL; at < text.length; at += LONGEST_LITERAL) {
    if (!isIn(at)) continue;
    let [from, to] = [at, at + 1];
    while (from > 0 && isIn(from - 1)) from--;
    while (to < text.length && isIn(to)) to++;
    if (to - from > LONGEST_LITERAL) return true;
  }
  return false;
}

/** A literal of fewer digits and the point is its double, but for a longer exponent. */
const ODD_DIGITS = 16;
const ODD_EXPONENT = 3;

/** The length of the shortest literal that is not its double: `1e400`. */
export const SHORTEST_ODD = 5;

/**
 * Whether a literal in this part of a JSON text may be another number than its double. `true` when
 * in doubt, and also for what stands in a string. By hand: a pattern takes ten times as long.
 */
export function mayRound(text: string, from = 0, to = text.length): boolean {
  // How many digits stand right before this place, and how many of them make it odd.
  let digits = 0;
  let most = ODD_DIGITS;
  for (let at = from; at < to; at++) {
    const code = text.charCodeAt(at);
    if ((code >= ZERO && code <= NINE) || code === POINT) {
      if (++digits >= most) return true;
    } else if (digits > 0 && (code === LOWER_E || code === UPPER_E)) {
      const sign = text.charCodeAt(at + 1);
      if (sign === PLUS || sign === MINUS) at++;
      digits = 0;
      most = ODD_EXPONENT;
    } else {
      digits = 0;
      most = ODD_DIGITS;
    }
  }
  return false;
}

/** A number that is not the double which JavaScript reads. */
export class ExactNumber {
  // A text may have a million of them. To cut out each literal would take most of the time.
  readonly #around: string;
  readonly #from: number;

  /** `undefined` where the literal means its double. */
  static of(literal: string): ExactNumber | undefined {
    reader.read(literal, 0);
    return reader.standsForDouble ? undefined : new ExactNumber(literal);
  }

  /** @param around JSON text with a literal at `from` that does not mean its double */
  constructor(around: string, from = 0) {
    this.#around = around;
    this.#from = from;
  }

  get #literal(): string {
    return this.#around.slice(this.#from, skipScalar(this.#around, this.#from));
  }

  get double(): number {
    return Number(this.#literal);
  }

  /** In the one form of all literals of this value; a literal beyond the limit is as it came. */
  get text(): string {
    const literal = this.#literal;
    return literal.length > LONGEST_LITERAL ? literal : decimalOf(literal);
  }

  /**
   * Whether the double leads its reader astray: it is infinite, or whole. A zero is whole. Of a
   * fraction, a reader expects to get the nearest double.
   */
  get misleads(): boolean {
    const { double } = this;
    return !Number.isFinite(double) || Number.isInteger(double);
  }
}

/** Any decimal of so few digits is the one that JavaScript writes for its double. */
export const SURE_DIGITS = 15;
/** No double needs more digits, from the first to the last that is no zero. */
const MOST_SIGNIFICANT = 17;
/** With so many digits in its first part, and at most 8 in its second, both are small. */
const HEAD_DIGITS = 9;
/** A larger exponent is not counted. */
const MOST_EXPONENT = 1e6;
/** From ten to this power on, there is only infinity. */
const LARGEST_SIZE = 309;
/** Below ten to these powers, there is only zero, and there are numbers with fewer digits. */
const SMALLEST_SIZE = -325;
const SUBNORMAL_SIZE = -300;
/** Powers of ten that are doubles. */
const POWERS = new Float64Array(23).map((_, exponent) => 10 ** exponent);
/** With a larger power the arithmetic below could not distinguish two doubles. */
const LARGEST_POWER = 20;
/** Half of the distance between two doubles is between these, in parts of them. */
const LEAST_AWAY = 0.99 * 2 ** -54;
const MOST_AWAY = 1.01 * 2 ** -53;
/** From here on, doubles have no fractions. */
const WHOLE_DOUBLES = 2 ** 52;

/** The literal is another number than its double. */
export const NO_DOUBLE = -1;
/** Only JavaScript knows. This is rare. */
export const UNSURE = -2;

/**
 * Reads the numbers of a JSON text, one after another, and makes no object or text for each. Hides
 * how it finds, without the double's own digits, whether a literal means its double.
 */
export class LiteralReader {
  #isUp = false;
  text = '';
  from = 0;
  /** The place of its first digit that is no zero. */
  first = 0;
  /** The place behind the literal. */
  end = 0;
  /** The place behind its last digit that is no zero. */
  lastEnd = 0;
  /** The place behind the digits in front of the point. */
  wholeEnd = 0;
  /** Whether it has no exponent. */
  isPlain = true;
  /** How many digits it has from the first to the last that is no zero. */
  digits = 0;
  /** The power of ten of the last of them. */
  exponent = 0;

  /** @param wholeEnd the place behind the digits in front of its point, where it is known */
  read(text: string, from: number, wholeEnd = skipDigits(text, firstIn(text, from))): void {
    let first = firstIn(text, from);
    const hasPoint = text.charCodeAt(wholeEnd) === POINT;
    let lastEnd = hasPoint ? skipDigits(text, wholeEnd + 1) : wholeEnd;
    const mark = text.charCodeAt(lastEnd);
    const isPlain = mark !== LOWER_E && mark !== UPPER_E;
    let end = lastEnd;
    let power = 0;
    if (!isPlain) {
      const sign = text.charCodeAt(end + 1);
      const from = sign === MINUS || sign === PLUS ? end + 2 : end + 1;
      end = skipDigits(text, from);
      // One that is too large is only known to be so.
      for (let at = from; at < end && power < MOST_EXPONENT; at++)
        power = 10 * power + text.charCodeAt(at) - ZERO;
      if (sign === MINUS) power = -power;
    }
    while (lastEnd > first && text.charCodeAt(lastEnd - 1) <= ZERO) lastEnd--;
    while (first < lastEnd && text.charCodeAt(first) <= ZERO) first++;
    const isPointInside = first < wholeEnd && wholeEnd < lastEnd;
    this.text = text;
    this.from = from;
    this.end = end;
    this.first = first;
    this.lastEnd = lastEnd;
    this.wholeEnd = wholeEnd;
    this.isPlain = isPlain;
    this.digits = lastEnd - first - (isPointInside ? 1 : 0);
    const places = lastEnd > wholeEnd ? wholeEnd + 1 - lastEnd : wholeEnd - lastEnd;
    this.exponent = first === lastEnd ? 0 : places + power;
  }

  get standsForDouble(): boolean {
    const needed = this.neededDigits;
    return needed === UNSURE ? isDouble(this.literal) : needed !== NO_DOUBLE;
  }

  /** Whether it has no exponent and no zeros at its end, so that JavaScript may write it so. */
  get isAsWritten(): boolean {
    const size = this.digits + this.exponent;
    const isShort = this.end === this.lastEnd || this.end === this.wholeEnd;
    return isShort && this.isPlain && this.digits > 0 && size > -6 && size <= 21;
  }

  get literal(): string {
    return this.text.slice(this.from, this.end);
  }

  get isNegative(): boolean {
    return this.text.charCodeAt(this.from) === MINUS;
  }

  /** Whether {@link exponent} is what the literal says, and no limit in its place. */
  get isCounted(): boolean {
    return this.end - this.from <= LONGEST_LITERAL && Math.abs(this.exponent) < MOST_EXPONENT / 2;
  }

  get double(): number {
    const { digits, exponent } = this;
    const power = POWERS[Math.abs(exponent)];
    if (digits > SURE_DIGITS || power === undefined) return Number(this.literal);
    // Both are doubles, so the result is the nearest one.
    const whole = this.#digitsIn(0, digits);
    const size = exponent < 0 ? whole / power : whole * power;
    return this.isNegative ? -size : size;
  }

  /** Whether the double has the next digit for its last one, where it needs fewer digits. */
  get isRoundedUp(): boolean {
    return this.#isUp;
  }

  /**
   * How many of its digits JavaScript needs to write the double; or {@link NO_DOUBLE}, or
   * {@link UNSURE}.
   */
  get neededDigits(): number {
    const { digits, exponent } = this;
    if (this.end - this.from > LONGEST_LITERAL || digits > MOST_SIGNIFICANT) return NO_DOUBLE;
    const size = digits + exponent;
    if (size > LARGEST_SIZE || size < SMALLEST_SIZE) return NO_DOUBLE;
    if (digits <= SURE_DIGITS) return size > SUBNORMAL_SIZE ? digits : UNSURE;
    if (exponent === 0) return this.#neededOfWhole();
    return exponent < 0 && exponent >= -LARGEST_POWER ? this.#neededOfFraction() : UNSURE;
  }

  /** A number of some of its digits, from the first that is no zero on. */
  #digitsIn(from: number, to: number): number {
    const first = this.first;
    const point = this.wholeEnd;
    if (point < first) return countIn(this.text, first + from, first + to, 0);
    // The point stands among them, or behind them.
    const whole = countIn(this.text, first + from, Math.min(first + to, point), 0);
    return countIn(this.text, Math.max(first + from, point) + 1, first + to + 1, whole);
  }

  /** Of a whole number of 16 or 17 digits. */
  #neededOfWhole(): number {
    const { digits } = this;
    const tail = this.#digitsIn(HEAD_DIGITS, digits);
    const high = this.#digitsIn(0, HEAD_DIGITS) * (POWERS[digits - HEAD_DIGITS] ?? 0);
    const double = high + tail;
    if (double - high !== tail) return NO_DOUBLE;
    // A double may share its 16 digits with one that ends in a zero.
    const last = tail % 10;
    const spacing = double < 2 ** 54 ? 2 : double < 2 ** 55 ? 4 : double < 2 ** 56 ? 8 : 16;
    return digits === SURE_DIGITS + 1 || Math.min(last, 10 - last) > spacing / 2 ? digits : UNSURE;
  }

  /** Of a fraction of 16 or 17 digits. */
  #neededOfFraction(): number {
    const isShorter = this.digits < MOST_SIGNIFICANT;
    const high = this.#digitsIn(0, HEAD_DIGITS) * 1e8;
    const last = this.#digitsIn(HEAD_DIGITS, this.digits);
    // Of 16 digits it makes 17. Remainders of doubles would take most of the time.
    const tail = (isShorter ? 10 * last : last) | 0;
    const power = isShorter ? 1 - this.exponent : -this.exponent;
    const divisor = POWERS[power] ?? 0;
    const double = quotient(high, tail, divisor);
    if (double >= WHOLE_DOUBLES || Number.isInteger(double)) return UNSURE;
    const distance = distanceOf(double, divisor, high, tail);
    const size = Math.abs(distance);
    const isInMiddle = size === 0 && (tail % 10 === 5 || tail % 100 === 50);
    if (isInMiddle || isNear(size, 0.5) || isNear(size, 5)) return UNSURE;
    if (size > 0.5 && !isShorter) return NO_DOUBLE;
    for (let fewer = 2; fewer > 0; fewer--) {
      // The nearest decimal with so many digits fewer.
      const unit = fewer === 2 ? 100 : 10;
      const rest = tail % unit;
      this.#isUp = rest + distance > unit / 2;
      const away = this.#isUp ? unit - rest - distance : rest + distance;
      if (away > MOST_AWAY * high) continue;
      const low = (tail - rest) / unit + (this.#isUp ? 1 : 0);
      const isNearest =
        away < LEAST_AWAY * high ||
        quotient(high / unit, low, POWERS[power - fewer] ?? 0) === double;
      if (!isNearest) continue;
      return size < (fewer === 2 ? 0.5 : 5) ? MOST_SIGNIFICANT - fewer : NO_DOUBLE;
    }
    return MOST_SIGNIFICANT;
  }
}

function firstIn(text: string, from: number): number {
  return text.charCodeAt(from) === MINUS ? from + 1 : from;
}

/** The number of these digits behind some others. */
function countIn(text: string, from: number, to: number, before: number): number {
  let count = before;
  for (let at = from; at < to; at++) count = 10 * count + text.charCodeAt(at) - ZERO;
  return count;
}

const reader = new LiteralReader();

/**
 * The nearest double of `(high + low) / divisor`. Both parts are whole, and the sum has at most 17
 * digits. The divisor is at most 10^21: with a larger one, a quotient could be so near to the
 * middle of two doubles that the error of the second term matters.
 */
function quotient(high: number, low: number, divisor: number): number {
  const first = (high + low) / divisor;
  return first - distanceOf(first, divisor, high, low) / divisor;
}

/** The error of a distance is far smaller. */
function isNear(one: number, other: number): boolean {
  return Math.abs(one - other) < 1e-6;
}

const SPLIT = 2 ** 27 + 1;

/** `one * other - (high + low)`, where that is small: the product's error counts, too (Dekker). */
function distanceOf(one: number, other: number, high: number, low: number): number {
  const product = one * other;
  const oneHigh = halfOf(one);
  const otherHigh = halfOf(other);
  const oneLow = one - oneHigh;
  const otherLow = other - otherHigh;
  const error =
    oneLow * otherLow - (product - oneHigh * otherHigh - oneLow * otherHigh - oneHigh * otherLow);
  return product - high - low + error;
}

/** The half of its digits that is in front. */
function halfOf(double: number): number {
  const split = SPLIT * double;
  return split - (split - double);
}

/** The plain way, for what is rare. */
function isDouble(literal: string): boolean {
  const double = Number(literal);
  if (!Number.isFinite(double)) return false;
  const text = decimalOf(literal);
  if (text === decimalOf(String(double))) return true;
  return !Number.isInteger(double) && text === decimalOf(double.toPrecision(MOST_SIGNIFICANT));
}

/** The digits of a JSON number without zeros at either end, and the exponent that belongs to it. */
function decimalOf(literal: string): string {
  const from = literal.startsWith('-') ? 1 : 0;
  const lower = literal.indexOf('e');
  const mark = lower === -1 ? literal.indexOf('E') : lower;
  const end = mark === -1 ? literal.length : mark;
  const point = literal.indexOf('.');
  const digits =
    point === -1
      ? literal.slice(from, end)
      : literal.slice(from, point) + literal.slice(point + 1, end);
  let first = 0;
  let last = digits.length;
  while (first < last && digits.charCodeAt(first) === ZERO) first++;
  if (first === last) return '0';
  while (digits.charCodeAt(last - 1) === ZERO) last--;
  const places = point === -1 ? 0 : end - point - 1;
  const shift = digits.length - last - places;
  // The exponent's digits are few enough for a BigInt, but may be too many for a double.
  const shifted = mark === -1 ? shift : BigInt(literal.slice(mark + 1)) + BigInt(shift);
  return `${literal.slice(0, from)}${digits.slice(first, last)}e${shifted}`;
}
