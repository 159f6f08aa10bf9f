/**
 * Numbers of JSON that JavaScript rounds. It hides when two literals are the same number, and how
 * one is kept beside its double.
 *
 * A literal stands for its double where it is, by value, what JavaScript writes for that. Other
 * languages write 17 digits: where the double has a fraction, these are the same number, too. Any
 * other literal is a number of its own. So `1`, `1.0` and `1e0` are equal, `0.10000000000000001` is
 * 0.1, and `1234567890123456789` differs from `1234567890123456790`.
 *
 * A client decides how long a literal is. So the work is linear, and no exponent is ever expanded.
 */

/** Longer literals are not compared by value, and a gate refuses a call that has one. */
export const LONGEST_LITERAL = 1_000;

/** A literal of fewer digits and the point is its double, but for a longer exponent. */
const ODD_DIGITS = 16;
const ODD_EXPONENT = 3;

/** The length of the shortest literal that is not its double: `1e400`. */
export const SHORTEST_ODD = 5;

// The characters of JSON text, by their codes.
export const QUOTE = 34;
const PLUS = 43;
export const COMMA = 44;
export const MINUS = 45;
export const POINT = 46;
export const ZERO = 48;
export const NINE = 57;
export const COLON = 58;
const UPPER_E = 69;
export const OPEN_ARRAY = 91;
export const BACKSLASH = 92;
export const CLOSE_ARRAY = 93;
const LOWER_E = 101;
export const OPEN_OBJECT = 123;
export const CLOSE_OBJECT = 125;

/**
 * Whether a literal in this part of a JSON text may be another number than its double. `true` when
 * in doubt, and also for what stands in a string. By hand: a pattern takes ten times as long.
 *
 * @param codes the characters' codes in UTF-16
 */
export function mayRound(codes: Uint16Array, from = 0, to = codes.length): boolean {
  // How many digits stand right before this place, and how many of them make it odd.
  let digits = 0;
  let most = ODD_DIGITS;
  for (let at = from; at < to; at++) {
    const code = codes[at] ?? 0;
    if ((code >= ZERO && code <= NINE) || code === POINT) {
      if (++digits >= most) return true;
    } else if (digits > 0 && (code === LOWER_E || code === UPPER_E)) {
      const sign = codes[at + 1];
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
  readonly double: number;
  /** In the one form of all literals of this value; a literal beyond the limit is as it came. */
  readonly text: string;

  /** `undefined` where the literal stands for its double. */
  static of(literal: string): ExactNumber | undefined {
    const double = Number(literal);
    if (literal.length > LONGEST_LITERAL) return new ExactNumber(double, literal);
    const shown = String(double);
    if (shown === literal) return undefined;
    const text = decimalOf(literal);
    if (!Number.isFinite(double)) return new ExactNumber(double, text);
    if (text === decimalOf(shown)) return undefined;
    // Whole numbers are often ids, where each digit counts.
    const isSame = !Number.isInteger(double) && text === decimalOf(double.toPrecision(17));
    return isSame ? undefined : new ExactNumber(double, text);
  }

  private constructor(double: number, text: string) {
    this.double = double;
    this.text = text;
  }

  /**
   * Whether the double leads its reader astray: it is infinite, or whole. A zero is whole. Of a
   * fraction, a reader expects to get the nearest double.
   */
  get misleads(): boolean {
    return !Number.isFinite(this.double) || Number.isInteger(this.double);
  }
}

/** The digits of a JSON number without zeros at either end, and the exponent that belongs to it. */
function decimalOf(literal: string): string {
  const from = literal.startsWith('-') ? 1 : 0;
  const mark = literal.search(/[eE]/);
  const end = mark === -1 ? literal.length : mark;
  const point = literal.slice(0, end).indexOf('.');
  const digits = literal.slice(from, end).replace('.', '');
  let first = 0;
  let last = digits.length;
  while (digits[first] === '0') first++;
  if (first === last) return '0';
  while (digits[last - 1] === '0') last--;
  const places = point === -1 ? 0 : end - point - 1;
  // Its digits are few enough for a BigInt, but may be too many for a double.
  const exponent = mark === -1 ? 0n : BigInt(literal.slice(mark + 1));
  const shifted = exponent + BigInt(digits.length - last - places);
  return `${literal.slice(0, from)}${digits.slice(first, last)}e${shifted}`;
}
