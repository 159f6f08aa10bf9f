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

/** No double needs more digits, from the first to the last that is no zero. */
const MOST_SIGNIFICANT = 17;

/** A number that is not the double which JavaScript reads. */
export class ExactNumber {
  readonly #literal: string;
  #text: string | undefined;

  /**
   * `undefined` where the literal stands for its double.
   *
   * @param read the double, where it is known
   */
  static of(literal: string, read?: number): ExactNumber | undefined {
    if (literal.length > LONGEST_LITERAL) return new ExactNumber(literal);
    // To write a double takes most of the time, so the digits are counted first.
    const significant = significantIn(literal);
    if (significant > MOST_SIGNIFICANT) return new ExactNumber(literal);
    const double = read ?? Number(literal);
    if (!Number.isFinite(double)) return new ExactNumber(literal);
    const isWhole = Number.isInteger(double);
    // Whole numbers are often ids, where each digit counts.
    if (
      !isWhole &&
      significant === MOST_SIGNIFICANT &&
      double.toPrecision(MOST_SIGNIFICANT) === literal
    )
      return undefined;
    const shown = String(double);
    if (shown === literal) return undefined;
    const text = decimalOf(literal);
    if (text === decimalOf(shown)) return undefined;
    const isSame = !isWhole && text === decimalOf(double.toPrecision(MOST_SIGNIFICANT));
    return isSame ? undefined : new ExactNumber(literal, text);
  }

  private constructor(literal: string, text?: string) {
    this.#literal = literal;
    this.#text = text;
  }

  get double(): number {
    return Number(this.#literal);
  }

  /** In the one form of all literals of this value; a literal beyond the limit is as it came. */
  get text(): string {
    const literal = this.#literal;
    this.#text ??= literal.length > LONGEST_LITERAL ? literal : decimalOf(literal);
    return this.#text;
  }

  /**
   * Whether the double leads its reader astray: it is infinite, or whole. A zero is whole. Of a
   * fraction, a reader expects to get the nearest double.
   */
  get misleads(): boolean {
    return !Number.isFinite(this.double) || Number.isInteger(this.double);
  }
}

/** How many digits a JSON number has from its first to its last that is no zero. */
function significantIn(literal: string): number {
  let digits = 0;
  let zeros = 0;
  for (let at = 0; at < literal.length; at++) {
    const code = literal.charCodeAt(at);
    if (code === LOWER_E || code === UPPER_E) break;
    if (code < ZERO || code > NINE) continue;
    if (code === ZERO) {
      if (digits > 0) zeros++;
    } else {
      digits += zeros + 1;
      zeros = 0;
    }
  }
  return digits;
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
