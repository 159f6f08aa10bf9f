import * as crypto from 'node:crypto';
import {
  BACKSLASH,
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  LOWER_A,
  LOWER_E,
  LOWER_U,
  lengthOfUnit,
  MINUS,
  NINE,
  OPEN_ARRAY,
  OPEN_OBJECT,
  POINT,
  QUOTE,
  unitAt,
  ZERO,
} from './json-scan.ts';
import { ExactNumber, type LiteralReader, LONGEST_LITERAL, NO_DOUBLE, UNSURE } from './numbers.ts';
import { isContainer } from './options.ts';

/**
 * Hides how a call's arguments get one digest, fast, in any order of their members.
 *
 * The digest is that of their JSON with sorted members. A client decides how long and how deep they
 * are, so the work is linear and without recursion. The value must never change: a retry during a
 * rolling deployment would get another idempotency key. The digest of an {@link ExactNumber}
 * differs from those of all others.
 */
export function digestOf(args: unknown): string {
  const text = new CanonicalText();
  if (!isContainer(args) || args instanceof ExactNumber) {
    if (args instanceof ExactNumber) text.exact(args);
    else text.scalar(args);
    return text.digest();
  }
  // Three entries for each container around this one: itself, an object's keys, the next index.
  const around: unknown[] = [];
  let container: Container = args as unknown as Container;
  let keys = text.begin(container);
  let next = 0;
  for (;;) {
    const { length } = keys ?? container;
    let inner: unknown;
    while (next < length && inner === undefined) {
      if (keys === undefined) next = text.scalars(container as unknown as unknown[], next);
      if (next === length) break;
      if (next > 0) text.byte(COMMA);
      const key = keys?.[next];
      if (key !== undefined) text.key(key);
      const value = container[key ?? next];
      next++;
      if (!isContainer(value)) text.scalar(value);
      else if (value instanceof ExactNumber) text.exact(value);
      else inner = value;
    }
    if (inner !== undefined) {
      around.push(container, keys, next);
      container = inner as Container;
      keys = text.begin(container);
      next = 0;
    } else {
      text.byte(keys === undefined ? CLOSE_ARRAY : CLOSE_OBJECT);
      if (around.length === 0) return text.digest();
      next = around.pop() as number;
      keys = around.pop() as typeof keys;
      container = around.pop() as Container;
    }
  }
}

type Container = { readonly [key: string | number]: unknown; readonly length: number };

/** Sorts few keys by hand, which is faster. Most longer lists are in order already. */
function sortedKeys(object: object): readonly string[] {
  const keys = Object.keys(object);
  const { length } = keys;
  for (let i = 1; i < length; i++) {
    const key = keys[i] ?? '';
    if ((keys[i - 1] ?? '') < key) continue;
    if (length > FEW) return keys.sort();
    let at = i;
    for (; at > 0 && (keys[at - 1] ?? '') > key; at--) keys[at] = keys[at - 1] ?? '';
    keys[at] = key;
  }
  return keys;
}

/** Most numbers are such counts. To write them by hand costs a fraction. */
function isCount(value: number): boolean {
  return value >= 0 && value === (value | 0);
}

function putCount(count: number, at: number): number {
  let end = at + 1;
  for (let most = 10; most <= count; most *= 10) end++;
  putDigits(count, at, end);
  return end;
}

/** Fills the place with the count's last digits. */
function putDigits(count: number, at: number, end: number): void {
  let rest = count;
  for (let next = end - 1; next >= at; next--) {
    const tenth = (rest / 10) | 0;
    page[next] = ZERO + rest - 10 * tenth;
    rest = tenth;
  }
}

/** The most digits behind the point that are written by hand. */
const PLACES = 6;
const SCALE = 10 ** PLACES;
/** A smaller number with so many places has at most 15 digits. */
const LARGEST_DECIMAL = 1e9;

/**
 * Writes a count or a short decimal, of either sign, as JSON does. Gives the place behind it, and
 * -1 for any other number.
 *
 * No two decimals of at most 15 digits are the same number. So a whole number of millionths can be
 * written digit by digit, without the zeros at its end.
 */
function putNumber(value: number, from: number): number {
  if (isCount(value)) return putCount(value, from);
  const size = Math.abs(value);
  if (!(size < LARGEST_DECIMAL)) return -1;
  const scaled = Math.round(size * SCALE);
  if (scaled / SCALE !== size || scaled === 0) return -1;
  const whole = size | 0;
  let fraction = scaled - whole * SCALE;
  let at = from;
  if (value < 0) page[at++] = MINUS;
  at = putCount(whole, at);
  if (fraction === 0) return at;
  let places = PLACES;
  for (; fraction % 10 === 0; places--) fraction = (fraction / 10) | 0;
  page[at++] = POINT;
  putDigits(fraction, at, at + places);
  return at + places;
}

/** Enough bytes for a comma and any number. */
const LONGEST_NUMBER = 32;
const FEW = 16;
/** Strings up to this length are written by hand, which is faster. */
const SHORT = 64;
/** The text before it is hashed. All digests share it: each is made at once. */
const page = Buffer.allocUnsafeSlow(64 * 1024);
/** The same, four bytes at a time. */
const words = new Int32Array(page.buffer, page.byteOffset, page.length / 4);
/** A long string is written in pieces of so many characters, which fit in a page. */
const PIECE = 16 * 1024;

/** Whether that part of the page has a control character. It also tests up to 3 bytes around. */
function hasControl(from: number, end: number): boolean {
  for (let at = from >> 2; 4 * at < end; at++) {
    const word = words[at] ?? 0;
    // Sets the highest bit of each byte below 32, and of no byte beyond ASCII.
    if (((word - 0x20202020) & ~word & 0x80808080) !== 0) return true;
  }
  return false;
}

/** The most bytes that one character becomes: as an escape. */
const LONGEST_UNIT = 6;

/** The letters of short escapes, by the character; 0 where it has none. */
const ESCAPES = new Uint8Array(128);
for (const character of '\b\t\n\f\r"\\')
  ESCAPES[character.charCodeAt(0)] = JSON.stringify(character).charCodeAt(2);

/** Writes a character of a string as JSON does, and gives the place behind it. */
function putCharacter(code: number, from: number): number {
  let at = from;
  const letter = ESCAPES[code] ?? 0;
  if (letter > 0) {
    page[at++] = BACKSLASH;
    page[at++] = letter;
  } else if (code < 0x20 || (code & 0xfffff800) === 0xd800) {
    page[at++] = BACKSLASH;
    page[at++] = LOWER_U;
    for (let shift = 12; shift >= 0; shift -= 4) {
      const digit = (code >> shift) & 0xf;
      page[at++] = digit + (digit < 10 ? ZERO : LOWER_A - 10);
    }
  } else if (code < 0x80) page[at++] = code;
  else {
    // The bits that the first byte of two, three or four begins with, and those that follow.
    const more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    page[at++] = (0xff00 >> (more + 1)) | (code >> (6 * more));
    for (let rest = more - 1; rest >= 0; rest--) page[at++] = 0x80 | ((code >> (6 * rest)) & 0x3f);
  }
  return at;
}

const ALGORITHM = 'sha256';
const ENCODING = 'base64url';

/** Hashes in one call, in a third of the time. Node has it since 20.12. */
const hashAtOnce: typeof crypto.hash | undefined = crypto.hash;

/** JSON text, hashed piece by piece, or at once where it fits in a page. */
export class CanonicalText {
  #hash: crypto.Hash | undefined;
  #at = 0;

  digest(): string {
    if (this.#hash === undefined && hashAtOnce !== undefined)
      return hashAtOnce(ALGORITHM, page.subarray(0, this.#at), ENCODING);
    this.#flush();
    return this.#pieces.digest(ENCODING);
  }

  get #pieces(): crypto.Hash {
    this.#hash ??= crypto.createHash(ALGORITHM);
    return this.#hash;
  }

  byte(byte: number): void {
    if (this.#at === page.length) this.#flush();
    page[this.#at++] = byte;
  }

  /** Opens a container. Gives an object's sorted keys, and `undefined` for an array. */
  begin(container: object): readonly string[] | undefined {
    if (Array.isArray(container)) {
      this.byte(OPEN_ARRAY);
      return undefined;
    }
    this.byte(OPEN_OBJECT);
    return sortedKeys(container);
  }

  key(key: string): void {
    this.string(key);
    this.byte(COLON);
  }

  /** Writes an array's elements up to the next container, and gives the index of that. */
  scalars(list: readonly unknown[], from: number): number {
    let at = this.#at;
    let next = from;
    for (; next < list.length; next++) {
      const value = list[next];
      if (isContainer(value)) break;
      if (at + LONGEST_NUMBER > page.length) {
        this.#at = at;
        this.#flush();
        at = 0;
      }
      if (next > 0) page[at++] = COMMA;
      if (typeof value === 'number') {
        const past = putNumber(value, at);
        if (past >= 0) at = past;
        else {
          this.#at = at;
          next = this.#numbers(list, next) - 1;
          at = this.#at;
        }
      } else if (value === true) {
        page[at] = 116;
        page[at + 1] = 114;
        page[at + 2] = 117;
        page[at + 3] = 101;
        at += 4;
      } else if (value === false) {
        page[at] = 102;
        page[at + 1] = 97;
        page[at + 2] = 108;
        page[at + 3] = 115;
        page[at + 4] = 101;
        at += 5;
      } else {
        this.#at = at;
        this.scalar(value);
        at = this.#at;
      }
    }
    this.#at = at;
    return next;
  }

  /** Writes the numbers from there on, many at once. Gives the index behind them. */
  #numbers(list: readonly unknown[], from: number): number {
    let next = from;
    while (next < list.length && typeof list[next] === 'number') next++;
    if (next - from > FEW) {
      this.#long(JSON.stringify(list.slice(from, next)).slice(1, -1));
      return next;
    }
    this.#plain(JSON.stringify(list[from]));
    return from + 1;
  }

  /** Writes a value without members. What JSON does not know becomes null. */
  scalar(value: unknown): void {
    if (typeof value === 'string') this.string(value);
    else if (typeof value === 'number') this.#double(value);
    else this.#plain(JSON.stringify(value) ?? 'null');
  }

  /** Writes a number that is not its double. No double's JSON is the same text. */
  exact({ text }: ExactNumber): void {
    this.#long(text);
  }

  string(value: string): void {
    const { length } = value;
    if (length > SHORT) {
      this.#copied(value);
      return;
    }
    const start = this.#room(3 * SHORT);
    let at = start;
    page[at++] = QUOTE;
    for (let i = 0; i < length; i++) {
      const code = value.charCodeAt(i);
      if (code < 0x20 || code === QUOTE || code === BACKSLASH || (code & 0xf800) === 0xd800) {
        this.#long(JSON.stringify(value));
        return;
      }
      if (code < 0x80) page[at++] = code;
      else if (code < 0x800) {
        page[at++] = 0xc0 | (code >> 6);
        page[at++] = 0x80 | (code & 0x3f);
      } else {
        page[at++] = 0xe0 | (code >> 12);
        page[at++] = 0x80 | ((code >> 6) & 0x3f);
        page[at++] = 0x80 | (code & 0x3f);
      }
    }
    page[at++] = QUOTE;
    this.#at = at;
  }

  #double(value: number): void {
    const past = putNumber(value, this.#room(LONGEST_NUMBER));
    if (past >= 0) this.#at = past;
    else this.#plain(JSON.stringify(value));
  }

  /** Writes the string of a JSON text that begins at `at`. Gives the place behind it. */
  stringIn(text: string, at: number): number {
    let past = this.#room(LONGEST_UNIT);
    page[past++] = QUOTE;
    for (let i = at + 1; ; ) {
      if (past + LONGEST_UNIT > page.length) {
        this.#at = past;
        this.#flush();
        past = 0;
      }
      let code = text.charCodeAt(i);
      if (code < 0x80 && code !== BACKSLASH) {
        page[past++] = code;
        i++;
        if (code !== QUOTE) continue;
        this.#at = past;
        return i;
      }
      const length = lengthOfUnit(text, i);
      code = unitAt(text, i);
      i += length;
      const low = (code & 0xfc00) === 0xd800 ? unitAt(text, i) : 0;
      if ((low & 0xfc00) === 0xdc00) {
        i += lengthOfUnit(text, i);
        code = 0x10000 + (((code & 0x3ff) << 10) | (low & 0x3ff));
      }
      past = putCharacter(code, past);
    }
  }

  /**
   * Writes a number of a JSON text.
   *
   * @param needed its `neededDigits`
   */
  number(number: LiteralReader, needed: number): void {
    const size = number.digits + number.exponent;
    if (needed === NO_DOUBLE || (needed === UNSURE && !number.standsForDouble))
      this.#exactOf(number);
    // JavaScript writes no exponent there.
    else if (needed > 0 && number.isPlain && size > -6 && size <= 21) this.#written(number, needed);
    else this.#double(number.double);
  }

  #written(
    { text, from, lastEnd, wholeEnd, digits, isRoundedUp }: LiteralReader,
    needed: number,
  ): void {
    const end = Math.max(lastEnd, wholeEnd) + needed - digits;
    let past = this.#room(LONGEST_NUMBER);
    for (let i = from; i < end; i++) page[past++] = text.charCodeAt(i);
    if (needed < digits) {
      const gone = isRoundedUp ? NINE : ZERO;
      while (page[past - 1] === gone) past--;
      if (isRoundedUp) page[past - 1] = (page[past - 1] ?? 0) + 1;
    }
    this.#at = past;
  }

  /** Writes {@link ExactNumber.text}. */
  #exactOf(number: LiteralReader): void {
    if (!number.isCounted) {
      this.exact(new ExactNumber(number.literal));
      return;
    }
    const { text, first, lastEnd, exponent, isNegative } = number;
    let past = this.#room(LONGEST_LITERAL + LONGEST_NUMBER);
    if (isNegative) page[past++] = MINUS;
    for (let i = first; i < lastEnd; i++) {
      const code = text.charCodeAt(i);
      if (code !== POINT) page[past++] = code;
    }
    page[past++] = LOWER_E;
    if (exponent < 0) page[past++] = MINUS;
    this.#at = putCount(Math.abs(exponent), past);
  }

  /** Copies a part of a JSON text. */
  copy(text: string, from: number, to: number): void {
    if (to - from > SHORT) {
      this.#long(text.slice(from, to));
      return;
    }
    let past = this.#room(3 * SHORT);
    for (let i = from; i < to; i++) {
      const code = text.charCodeAt(i);
      if (code >= 0x80) {
        this.#at = past;
        this.#long(text.slice(i, to));
        return;
      }
      page[past++] = code;
    }
    this.#at = past;
  }

  /**
   * Writes a long string. A piece that needs no escapes is only copied. Control characters are
   * looked for in the page, whose bytes are in the cache by then.
   */
  #copied(value: string): void {
    this.byte(QUOTE);
    const { length } = value;
    for (let from = 0; from < length; ) {
      let end = Math.min(from + PIECE, length);
      // The two halves of a surrogate pair stay together.
      if (end < length && (value.charCodeAt(end - 1) & 0xfc00) === 0xd800) end--;
      const piece = from === 0 && end === length ? value : value.slice(from, end);
      from = end;
      if (!piece.includes('"') && !piece.includes('\\') && piece.isWellFormed()) {
        if (length >= PIECE) this.#flush();
        const at = this.#room(3 * piece.length);
        const past = at + page.write(piece, at);
        if (!hasControl(at, past)) {
          this.#at = past;
          continue;
        }
      }
      this.#long(JSON.stringify(piece).slice(1, -1));
    }
    this.byte(QUOTE);
  }

  /** Writes short ASCII. */
  #plain(text: string): void {
    let at = this.#room(text.length);
    for (let i = 0; i < text.length; i++) page[at++] = text.charCodeAt(i);
    this.#at = at;
  }

  #long(text: string): void {
    if (text.length > page.length / 3) {
      this.#flush();
      this.#pieces.update(text);
    } else {
      const at = this.#room(3 * text.length);
      this.#at = at + page.write(text, at);
    }
  }

  /** The place where so many bytes fit. */
  #room(bytes: number): number {
    if (this.#at + bytes + 2 > page.length) this.#flush();
    return this.#at;
  }

  #flush(): void {
    if (this.#at > 0) this.#pieces.update(page.subarray(0, this.#at));
    this.#at = 0;
  }
}
