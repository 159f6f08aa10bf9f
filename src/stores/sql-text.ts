import { createHash } from 'node:crypto';

/**
 * What no SQL text holds, NUL and surrogates without their other half, and the escape sign itself.
 */
const UNSTORABLE = /[\\\0\p{Surrogate}]/gu;
const ESCAPED = /\\(?:\\|u([0-9a-f]{4}))/g;

/**
 * PostgreSQL's limit for an entry of an index is about 2,700 bytes, and a key shares its entry with
 * other columns.
 */
const LONGEST_KEY = 1000;
const KEPT_OF_LONGER_KEYS = 200;

/**
 * Any string as text that a database keeps as it is; ordinary strings stay themselves. Undone by
 * {@link decodeText}.
 */
export function encodeText(text: string): string {
  return text.replace(UNSTORABLE, (sign) =>
    sign === '\\' ? '\\\\' : `\\u${hex(sign.charCodeAt(0))}`,
  );
}

/** What a column holds of a text that may be missing. */
export function textOrNull(text: string | null | undefined): string | null {
  return text == null ? null : encodeText(text);
}

/**
 * JSON as text that comes back as it was. No value is not the value `null`, whose text is `'null'`.
 */
export function jsonOrNull(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value);
}

/** The string that {@link encodeText} was given. */
export function decodeText(text: string): string {
  return text.replace(ESCAPED, (_, code?: string) =>
    code === undefined ? '\\' : String.fromCharCode(Number.parseInt(code, 16)),
  );
}

/**
 * Any string as the text of an indexed key, which is looked up and never decoded. One too long for
 * an index is its beginning with a SHA-256 digest; no other string is encoded with `\#` in it.
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
