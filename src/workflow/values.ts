/**
 * The values of calls that rules compare. Hides what a run keeps of each, and when two spellings
 * may be one value. Pure.
 */
import { digestOf } from '../basics/digest.ts';
import { isIssued } from '../basics/names.ts';
import { ExactNumber } from '../basics/numbers.ts';
import { isTable } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import { MISSING, type Path, type Reader } from './condition.ts';
import { parseDecimal } from './decimal.ts';

/**
 * One value of a call. Of a member to compare the digest, of a list those of its members; `'t'` or
 * `'f'` for a condition; an amount in digits. `null`: unknown.
 */
export type Value = string | readonly string[] | null;

/**
 * What makes two spellings of a text one, in this order. `space`: no blanks around it, and one for
 * each run of them. `nfkc`: Unicode's compatible form. `case`: lower case, in no language.
 */
export type Fold = 'space' | 'nfkc' | 'case';

/** How many members of a list are compared. */
export const MOST_MEMBERS = 256;

/** 21 characters are 126 bits. */
export const DIGEST_LENGTH = 21;

/** What a store may have is anything. */
export function valueFrom(value: Json | undefined): Value {
  if (typeof value === 'string') return value;
  const isList = Array.isArray(value) && value.every((each) => typeof each === 'string');
  return isList ? (value as string[]) : null;
}

/** What rules compare of a member; {@link MISSING} where it is not there. */
export function membersAt(
  read: Reader,
  keys: Path,
  salt: string,
  fold?: readonly Fold[],
): string | readonly string[] | typeof MISSING | undefined {
  if (read.digests !== undefined && fold === undefined) return read.digests(keys);
  const value = read(keys);
  if (value === MISSING) return MISSING;
  // Of a recording, whose values are not all in clear.
  if (typeof value === 'symbol') return undefined;
  return membersOf(folded(value, fold), (each) => digestOf([salt, each]).slice(0, DIGEST_LENGTH));
}

/** A text, or the texts of a list, in the one spelling that they are compared in. */
function folded(value: unknown, fold: readonly Fold[] = []): unknown {
  if (Array.isArray(value)) return value.map((each) => foldedText(each, fold));
  return foldedText(value, fold);
}

function foldedText(value: unknown, fold: readonly Fold[]): unknown {
  if (typeof value !== 'string') return value;
  let text = value;
  if (fold.includes('space')) text = text.trim().replace(/\s+/g, ' ');
  if (fold.includes('nfkc')) text = text.normalize('NFKC');
  return fold.includes('case') ? text.toLowerCase() : text;
}

/** Makes {@link DIGEST_LENGTH} characters of a value. Other values have others. */
export type Digest = (value: unknown) => string;

/**
 * A value to compare: the digest of anything but a list, as a text; of a list or an object a list
 * of digests. `undefined` where it is missing, and for a list of no members or too many.
 */
export function membersOf(value: unknown, digest: Digest): string | readonly string[] | undefined {
  if (!Array.isArray(value)) {
    const own = digestWith(digest, value);
    if (own === undefined) return undefined;
    return isTable(value) && !(value instanceof ExactNumber) ? [own] : own;
  }
  if (value.length === 0 || value.length > MOST_MEMBERS) return undefined;
  const digests = value.map((each) => digestWith(digest, each));
  return digests.every((each) => each !== undefined) ? digests : undefined;
}

/**
 * Its first letter is the JSON type: values of two types may be two spellings of one. A value with
 * a number that JavaScript rounds has two digests behind its letter: as it is, and as JavaScript
 * reads it. `undefined`: it is too deep.
 */
function digestWith(make: Digest, value: unknown): string | undefined {
  const letter = typeLetterOf(value);
  const digest = make(value);
  if (typeof value !== 'object' || value === null) return `${letter}${digest}`;
  const double = doubleOf(value);
  if (double === NOT_ROUNDED) return `${letter}${digest}`;
  if (double === undefined) return undefined;
  return `${ROUNDED_LETTER}${digest}${letter}${make(double)}`;
}

const NOT_ROUNDED = Symbol('no number in it is rounded');

/** The value with numbers as JavaScript reads them; `undefined` where it is too deep to know. */
function doubleOf(value: object): unknown {
  if (value instanceof ExactNumber) return value.double;
  let isRounded = false;
  try {
    const text = JSON.stringify(value, (_, each) => {
      if (!(each instanceof ExactNumber)) return each;
      isRounded = true;
      return each.double;
    });
    return isRounded ? JSON.parse(text) : NOT_ROUNDED;
  } catch {
    return undefined;
  }
}

/** A digest of what JavaScript reads, which several values may share. */
function asRead(digest: string): string {
  return digest.startsWith(ROUNDED_LETTER) ? digest.slice(1 + DIGEST_LENGTH) : digest;
}

function typeLetterOf(value: unknown): string {
  if (value === null) return NULL_LETTER;
  if (Array.isArray(value)) return 'l';
  if (typeof value !== 'object')
    return typeof value === 'string' ? 's' : typeof value === 'number' ? 'n' : 'b';
  return value instanceof ExactNumber ? 'n' : 'o';
}

/**
 * A principal to compare. Its first letter says whether it is an issuer and a subject, or a name
 * that the app gives: one person may have one of each.
 */
export function personDigest(principal: string, salt: string): string {
  const letter = isIssued(principal) ? 'o' : 's';
  return `${letter}${digestOf([salt, principal]).slice(0, DIGEST_LENGTH)}`;
}

export const NULL_LETTER = 'z';
const ROUNDED_LETTER = 'r';

/**
 * Whether a member may be the same as one of a call's. Values of two JSON types may be spellings of
 * one, such as 7 and "7", and so may numbers that JavaScript reads alike. `null` is itself alone.
 */
export function alike(members: readonly string[]): (other: string) => boolean {
  const read = new Set(members.map(asRead));
  const letters = new Set([...read].map((each) => each.slice(0, 1)));
  letters.delete(NULL_LETTER);
  return (other) => {
    const each = asRead(other);
    if (read.has(each)) return true;
    const letter = each.slice(0, 1);
    return letter !== NULL_LETTER && letters.size > Number(letters.has(letter));
  };
}

export function amountOf(value: Value | undefined): ReturnType<typeof parseDecimal> {
  return typeof value === 'string' ? parseDecimal(value) : undefined;
}

/** A value as JavaScript reads it. */
export function readValue(value: Value = null): Value {
  return typeof value === 'string' ? asRead(value) : value;
}

/** How many different values there are. One that is not known may be another one. */
export function differing(values: readonly Value[], isNeeded: boolean): number {
  const known = new Set(values.flatMap((each) => (typeof each === 'string' ? [asRead(each)] : [])));
  if (!isNeeded) return known.size + values.filter((each) => typeof each !== 'string').length;
  // Two types may be two spellings of one value, and `null` is no value.
  const ofType = new Map<string, number>();
  for (const [letter = ''] of known)
    if (letter !== NULL_LETTER) ofType.set(letter, (ofType.get(letter) ?? 0) + 1);
  return Math.max(0, ...ofType.values());
}
