/*
 * Edits JSON text in place, and touches only the characters that must change. To parse and write it
 * again would lose what JavaScript cannot hold, such as `12345678901234567890` and `1.0`.
 *
 * Except for those that parse, the functions expect text that `JSON.parse` has accepted.
 */

import {
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  OPEN_OBJECT,
  skipSpace,
  skipString,
  skipValue,
} from '../basics/json-scan.ts';

/** A value's place in the text: `[start, end)`. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** A member of an object: its decoded key, and the place of its value. */
export interface MemberSpan extends Span {
  readonly key: string;
  /** The place of the key's opening quote. */
  readonly from: number;
}

/** JSON text and its value. */
export interface JsonText {
  readonly value: unknown;
  /** Without a byte order mark, and with no escapes in its keys but those that JSON demands. */
  readonly text: string;
}

/**
 * `JSON.parse` that reads every key right. V8 12.8 and later may mistake a key with an escape for
 * another key, which it saw before and which begins with that escape (nodejs/node#63785). A client
 * could thus hide a member from us that the upstream sees. So we parse keys without escapes.
 *
 * @throws SyntaxError where the text is no JSON
 */
export function parseJson(text: string): JsonText {
  const plain = text.includes('\\') ? withPlainKeys(text) : text;
  return { value: JSON.parse(plain), text: plain };
}

/**
 * The text with no escapes in its keys but those that JSON demands. It does not mend text that is
 * no JSON.
 *
 * @throws SyntaxError for a key that is no JSON string
 */
export function withPlainKeys(text: string): string {
  const places: Span[] = [];
  const keys: string[] = [];
  for (let start = text.indexOf('"'); start !== -1; ) {
    const end = skipString(text, start);
    if (text.charCodeAt(skipSpace(text, end)) === COLON) {
      const key = text.slice(start, end);
      if (key.includes('\\')) {
        places.push({ start, end });
        keys.push(key);
      }
    }
    start = text.indexOf('"', end);
  }
  if (keys.length === 0) return text;
  const read = JSON.parse(`[${keys.join(',')}]`) as string[];
  let copied = 0;
  const pieces = places.map(({ start, end }, at) => {
    const before = text.slice(copied, start);
    copied = end;
    return before + JSON.stringify(read[at]);
  });
  return pieces.join('') + text.slice(copied);
}

/** The place of the whole value, without the space around it. */
export function rootSpan(text: string): Span {
  const start = skipSpace(text, 0);
  return { start, end: skipValue(text, start) };
}

/** The members of the object that begins at `at`, in the text's order and with repeated keys. */
export function memberSpans(text: string, at: number): MemberSpan[] {
  const members: MemberSpan[] = [];
  let i = skipSpace(text, at + 1);
  while (i < text.length && text.charCodeAt(i) !== CLOSE_OBJECT) {
    const from = i;
    const keyEnd = skipString(text, from);
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const end = skipValue(text, start);
    members.push({ key: keyIn(text, from, keyEnd), from, start, end });
    i = skipSpace(text, end);
    if (text.charCodeAt(i) === COMMA) i = skipSpace(text, i + 1);
  }
  return members;
}

function keyIn(text: string, from: number, end: number): string {
  const key = text.slice(from + 1, end - 1);
  return key.includes('\\') ? (JSON.parse(`"${key}"`) as string) : key;
}

/** The elements of the array that begins at `at`. */
export function elementSpans(text: string, at: number): Span[] {
  const elements: Span[] = [];
  let i = skipSpace(text, at + 1);
  while (i < text.length && text.charCodeAt(i) !== CLOSE_ARRAY) {
    const end = skipValue(text, i);
    elements.push({ start: i, end });
    i = skipSpace(text, end);
    if (text.charCodeAt(i) === COMMA) i = skipSpace(text, i + 1);
  }
  return elements;
}

/** The place of the value at `path`. Of equal keys the last one counts, as in `JSON.parse`. */
export function spanAt(text: string, path: readonly string[]): Span | undefined {
  let span: Span = rootSpan(text);
  for (const key of path) {
    if (text.charCodeAt(span.start) !== OPEN_OBJECT) return undefined;
    const member = memberSpans(text, span.start).findLast((candidate) => candidate.key === key);
    if (member === undefined) return undefined;
    span = member;
  }
  return span;
}

/** Whether the object has no members. */
export function isEmptyObject(text: string, { start, end }: Span): boolean {
  return skipSpace(text, start + 1) === end - 1;
}

export function splice(text: string, span: Span, replacement: string): string {
  return text.slice(0, span.start) + replacement + text.slice(span.end);
}

/** The text of an object with one member set. A new member goes to the end. */
export function withMember(objectText: string, key: string, value: string): string {
  const root = rootSpan(objectText);
  const members = memberSpans(objectText, root.start);
  const old = members.findLast((member) => member.key === key);
  if (old !== undefined) return splice(objectText, old, value);
  const close = root.end - 1;
  const comma = members.length > 0 ? ',' : '';
  return splice(
    objectText,
    { start: close, end: close },
    `${comma}${JSON.stringify(key)}:${value}`,
  );
}

/** The text of an object without the members of this key. */
export function withoutMember(objectText: string, key: string): string {
  const root = rootSpan(objectText);
  const members = memberSpans(objectText, root.start);
  if (!members.some((member) => member.key === key)) return objectText;
  const kept = members.filter((member) => member.key !== key);
  return `{${kept.map((member) => objectText.slice(member.from, member.end)).join(',')}}`;
}

/** The text with the value at `path` set. Makes the objects that are missing on the way. */
export function withValueAt(text: string, path: readonly string[], value: string): string {
  const [key, ...rest] = path;
  if (key === undefined) return value;
  const child = spanAt(text, [key]);
  const childText = child === undefined ? undefined : text.slice(child.start, child.end);
  const usable = childText !== undefined && (rest.length === 0 || childText.startsWith('{'));
  return withMember(text, key, withValueAt(usable ? childText : '{}', rest, value));
}

/** The text without the members of this key in the object at `path`. */
export function withoutMemberAt(text: string, path: readonly string[], key: string): string {
  const span = spanAt(text, path) ?? rootSpan(text);
  return splice(text, span, withoutMember(text.slice(span.start, span.end), key));
}

/** The text with one more element in the array at `path`. */
export function withElementAt(
  text: string,
  path: readonly string[],
  element: string,
  where: 'start' | 'end',
): string {
  const span = spanAt(text, path) ?? rootSpan(text);
  const isEmpty = elementSpans(text, span.start).length === 0;
  const at = where === 'start' ? span.start + 1 : span.end - 1;
  const separated = isEmpty ? element : where === 'start' ? `${element},` : `,${element}`;
  return splice(text, { start: at, end: at }, separated);
}
