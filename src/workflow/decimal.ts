/**
 * Exact sums of amounts. Hides how a number or a text becomes a decimal: as JavaScript prints a
 * double, so that 0.1 and 0.2 are 0.3.
 */
import { ExactNumber } from '../basics/numbers.ts';

/** `unscaled` divided by ten to the power of `scale`. */
export interface Decimal {
  readonly unscaled: bigint;
  readonly scale: number;
}

export const ZERO_DECIMAL: Decimal = Object.freeze({ unscaled: 0n, scale: 0 });

/** More digits make no amount, and a client decides how many it sends. */
const MOST_DIGITS = 34;
const LARGEST = 2 ** 53;

/** As people write an amount: without an exponent, and without a zero in front. */
const AMOUNT = /^(?:0|[1-9]\d*)(?:\.\d+)?$/;

/** Most amounts; never beyond 2^53. */
const WHOLE = /^\d{1,15}$/;

const TEXT = /^(-?\d{1,34})(?:\.(\d{1,34}))?(?:e([+-]\d{1,3}))?$/;

/**
 * @param isText whether a text such as `"12.50"` is an amount, too
 * @param isSigned whether a negative one is an amount, too
 * @returns `undefined` for what is none: beyond 2^53 or 34 digits, no finite number
 */
export function decimalOf(value: unknown, isText: boolean, isSigned = false): Decimal | undefined {
  // Of a number with more digits the double, unless it is whole: then digits are lost.
  const read = value instanceof ExactNumber && !value.misleads ? value.double : value;
  if (typeof read === 'number')
    return read <= LARGEST && (isSigned || read >= 0) ? parseDecimal(String(read)) : undefined;
  if (!isText || typeof read !== 'string') return undefined;
  const digits = isSigned && read.startsWith('-') ? read.slice(1) : read;
  return AMOUNT.test(digits) ? parseDecimal(read) : undefined;
}

/** Reads what {@link showDecimal} wrote, or what JavaScript prints for a number. */
export function parseDecimal(text: string): Decimal | undefined {
  if (WHOLE.test(text)) return { unscaled: BigInt(text), scale: 0 };
  const [, whole, fraction = '', exponent = '0'] = TEXT.exec(text) ?? [];
  if (whole === undefined) return undefined;
  const shift = Number(exponent) - fraction.length;
  const digits = BigInt(whole + fraction);
  const unscaled = shift > 0 ? digits * 10n ** BigInt(shift) : digits;
  const scale = Math.max(0, -shift);
  const size = unscaled < 0n ? -unscaled : unscaled;
  const isWithin = String(size).length <= MOST_DIGITS && scale <= MOST_DIGITS;
  return isWithin && size <= BigInt(LARGEST) * 10n ** BigInt(scale)
    ? { unscaled, scale }
    : undefined;
}

/** In digits, without an exponent and without zeros at the end. */
export function showDecimal(decimal: Decimal): string {
  const digits = digitsOf(decimal);
  return decimal.scale === 0 ? digits : digits.replace(/[.]?0+$/, '');
}

/** In digits, with the zeros at the end that it came with. */
export function digitsOf({ unscaled, scale }: Decimal): string {
  if (scale === 0) return String(unscaled);
  const digits = String(unscaled < 0n ? -unscaled : unscaled).padStart(scale + 1, '0');
  return `${unscaled < 0n ? '-' : ''}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

export function times(one: Decimal, other: Decimal): Decimal {
  return { unscaled: one.unscaled * other.unscaled, scale: one.scale + other.scale };
}

export function plus(one: Decimal, other: Decimal): Decimal {
  if (one.scale === other.scale)
    return { unscaled: one.unscaled + other.unscaled, scale: one.scale };
  const [low, high] = one.scale < other.scale ? [one, other] : [other, one];
  const raised = low.unscaled * 10n ** BigInt(high.scale - low.scale);
  return { unscaled: raised + high.unscaled, scale: high.scale };
}

/** Below zero where the first one is less, zero where they are equal. */
export function compareDecimals(one: Decimal, other: Decimal): number {
  const a = one.unscaled * 10n ** BigInt(Math.max(0, other.scale - one.scale));
  const b = other.unscaled * 10n ** BigInt(Math.max(0, one.scale - other.scale));
  return a < b ? -1 : a > b ? 1 : 0;
}

export function minus(one: Decimal, other: Decimal): Decimal {
  const scale = Math.max(one.scale, other.scale);
  const raised = ({ unscaled, scale: own }: Decimal): bigint =>
    unscaled * 10n ** BigInt(scale - own);
  return { unscaled: raised(one) - raised(other), scale };
}
