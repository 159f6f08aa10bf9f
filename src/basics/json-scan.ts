/*
 * Goes through JSON text, character by character. All that reads or edits such text stands on this.
 * It expects text that `JSON.parse` has accepted.
 */

// The characters, by their codes.
export const QUOTE = 34;
export const PLUS = 43;
export const COMMA = 44;
export const MINUS = 45;
export const POINT = 46;
export const ZERO = 48;
export const NINE = 57;
export const COLON = 58;
export const UPPER_E = 69;
export const OPEN_ARRAY = 91;
export const BACKSLASH = 92;
export const CLOSE_ARRAY = 93;
export const LOWER_A = 97;
export const LOWER_E = 101;
export const LOWER_F = 102;
export const LOWER_U = 117;
export const OPEN_OBJECT = 123;
export const CLOSE_OBJECT = 125;

/** The place of the next character that is no space. */
export function skipSpace(text: string, at: number): number {
  let i = at;
  while (text.charCodeAt(i) <= 32) i++;
  return i;
}

/** The next mark is mostly near: beyond so many characters, a search finds it faster. */
const NEAR = 24;

/** The place behind the string that begins at `at`. */
export function skipString(text: string, at: number): number {
  for (let i = at + 1; ; ) {
    for (const far = Math.min(i + NEAR, text.length); i < far; i++) {
      const code = text.charCodeAt(i);
      if (code === QUOTE) return i + 1;
      if (code === BACKSLASH) i++;
    }
    const quote = text.indexOf('"', i);
    if (quote === -1) return text.length;
    let slashes = 0;
    while (quote - slashes > i && text.charCodeAt(quote - 1 - slashes) === BACKSLASH) slashes++;
    i = quote + 1;
    if (slashes % 2 === 0) return i;
  }
}

/** The place behind the value that begins at `at`. */
export function skipValue(text: string, at: number): number {
  const first = text.charCodeAt(at);
  if (first === QUOTE) return skipString(text, at);
  if (first !== OPEN_OBJECT && first !== OPEN_ARRAY) return skipScalar(text, at);
  let depth = 0;
  for (let i = at; ; ) {
    i = skipToMark(text, i);
    if (i === text.length) return i;
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = skipString(text, i);
      continue;
    }
    i++;
    if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth++;
    else if (--depth === 0) return i;
  }
}

/** The place behind the number or word that begins at `at`. */
export function skipScalar(text: string, at: number): number {
  let i = at;
  for (; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === COMMA || code === CLOSE_OBJECT || code === CLOSE_ARRAY || code <= 32) break;
  }
  return i;
}

/** The place behind the digits that begin at `at`. */
export function skipDigits(text: string, at: number): number {
  let i = at;
  for (let code = text.charCodeAt(i); code >= ZERO && code <= NINE; ) code = text.charCodeAt(++i);
  return i;
}

const MARKS = /["[\]{}]/g;

/** The place of the next quote or bracket, which may be `at` itself; the text's end without one. */
export function skipToMark(text: string, at: number): number {
  const far = Math.min(at + NEAR, text.length);
  for (let i = at; i < far; i++) {
    const code = text.charCodeAt(i);
    if (code < OPEN_ARRAY ? code === QUOTE : code <= CLOSE_ARRAY || code >= OPEN_OBJECT) return i;
  }
  return searchMark(text, far);
}

function searchMark(text: string, from: number): number {
  MARKS.lastIndex = from;
  return MARKS.test(text) ? MARKS.lastIndex - 1 : text.length;
}

/** The units of short escapes, by the letter behind the backslash. The others mean it. */
const ESCAPED = new Uint8Array(128).map((_, code) => code);
for (const [letter, unit] of [
  ['b', 8],
  ['t', 9],
  ['n', 10],
  ['f', 12],
  ['r', 13],
] as const)
  ESCAPED[letter.charCodeAt(0)] = unit;

/** How many characters of a string encode the next unit of UTF-16. */
export function lengthOfUnit(text: string, at: number): number {
  if (text.charCodeAt(at) !== BACKSLASH) return 1;
  return text.charCodeAt(at + 1) === LOWER_U ? 6 : 2;
}

/** The unit of UTF-16 for which the character or the escape at this place of a string stands. */
export function unitAt(text: string, at: number): number {
  const code = text.charCodeAt(at);
  if (code !== BACKSLASH) return code;
  const letter = text.charCodeAt(at + 1);
  if (letter !== LOWER_U) return ESCAPED[letter] ?? 0;
  let unit = 0;
  for (let i = at + 2; i < at + 6; i++) {
    const digit = text.charCodeAt(i);
    unit = 16 * unit + (digit & 15) + (digit > NINE ? 9 : 0);
  }
  return unit;
}
