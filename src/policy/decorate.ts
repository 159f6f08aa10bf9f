import type { CacheDirective, InvalidationEvent, ResourceNotification } from './config.ts';

const TAGS: Readonly<Record<CacheDirective, string>> = {
  'no-store': '[Cache-Control: no-store]',
  immutable: '[Cache-Control: immutable]',
};

/**
 * A tool's description with its directive at the end: `Manage workspace sprints. [Cache-Control:
 * no-store]`. A directive that is there already is replaced, so decorating again changes nothing.
 */
export function decorateDescription(
  description: string | undefined,
  directive: CacheDirective,
): string {
  const plain = withoutTags(description ?? '');
  return plain === '' ? TAGS[directive] : `${plain} ${TAGS[directive]}`;
}

function withoutTags(description: string): string {
  let text = description.trimEnd();
  let tag = tagAtEnd(text);
  while (tag !== undefined) {
    text = text.slice(0, -tag.length).trimEnd();
    tag = tagAtEnd(text);
  }
  return text;
}

function tagAtEnd(text: string): string | undefined {
  return Object.values(TAGS).find((tag) => text.endsWith(tag));
}

/** The longest name that is put into a text, in UTF-16 units. */
const LONGEST_NAME = 128;

/**
 * What would let a name from outside end the line or the brackets that it is put in, or hide text
 * in it: control, format and default-ignorable characters, line separators, lone surrogates, square
 * brackets.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}[\]]/gu;

/**
 * The text that tells a model what went stale, on one line and in one pair of brackets whatever the
 * names: `[System: Cache invalidated for tasks.*, sprints.* — caused by tasks.update]`.
 */
export function invalidationText(causedBy: string, patterns: readonly string[]): string {
  return `[System: Cache invalidated for ${patterns.map(legible).join(', ')} — caused by ${legible(causedBy)}]`;
}

/** Cut last, and then once more rid of the half that a cut pair of surrogates leaves. */
function legible(name: string): string {
  return name
    .replace(UNSAFE, '')
    .slice(0, LONGEST_NAME)
    .replace(/\p{Cs}$/u, '');
}

/**
 * Names what went stale as a resource: `interlock://stale/sprints.*`, encoded where a URI needs it.
 */
export function staleUri(pattern: string): string {
  return `interlock://stale/${encodeURIComponent(pattern.replace(/\p{Cs}/gu, '\uFFFD'))}`;
}

/** The notification that what a pattern matches has changed. */
export function staleNotification(pattern: string): ResourceNotification {
  return { method: 'notifications/resources/updated', params: { uri: staleUri(pattern) } };
}

/** What `onInvalidation` is given. `now` is in milliseconds since the epoch. */
export function invalidationEvent(
  causedBy: string,
  patterns: readonly string[],
  now: number,
): InvalidationEvent {
  return Object.freeze({
    causedBy,
    patterns: Object.freeze([...patterns]),
    timestamp: new Date(now).toISOString(),
  });
}
