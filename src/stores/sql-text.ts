/**
 * Any JavaScript value as text that a database keeps. Hides what databases cannot keep: NUL, half a
 * surrogate pair, and keys that are too long for an index.
 */
import { createHash } from 'node:crypto';

/** Includes the backslash, which begins each escape. */
const UNSTORABLE = /[\\\0\p{Surrogate}]/gu;
const ESCAPED = /\\(?:\\|u([0-9a-f]{4}))/g;

/** In bytes. An index entry of PostgreSQL has at most about 2,700, other columns included. */
const LONGEST_KEY = 1000;
const KEPT_OF_LONGER_KEYS = 200;

/** A string as text for a database. {@link decodeText} undoes it; most strings stay the same. */
export function encodeText(text: string): string {
  return text.replace(UNSTORABLE, (sign) =>
    sign === '\\' ? '\\\\' : `\\u${hex(sign.charCodeAt(0))}`,
  );
}

/** The column of a text that may be missing. */
export function textOrNull(text: string | null | undefined): string | null {
  return text == null ? null : encodeText(text);
}

/** The string that {@link encodeText} was given. */
export function decodeText(text: string): string {
  return text.replace(ESCAPED, (_, code?: string) =>
    code === undefined ? '\\' : String.fromCharCode(Number.parseInt(code, 16)),
  );
}

/**
 * A string as the text of an indexed key, which is never decoded. A long one becomes its beginning
 * and a SHA-256 digest, after a `\#` that no other encoded string has.
 */
export function encodeKey(text: string): string {
  const encoded = encodeText(text);
  if (Buffer.byteLength(encoded) <= LONGEST_KEY) return encoded;
  const digest = createHash('sha256').update(encoded).digest('hex');
  const beginning = encodeText(text.slice(0, KEPT_OF_LONGER_KEYS));
  return `${beginning}\\#${digest}`;
}

function hex(code: number): string {
  return code.toString(16).padStart(4, '0');
}
