/**
 * What the trail keeps of why a try failed or was refused. Hides how much that is at most, how it
 * is cut, and what happens where the app's function fails.
 */
import { dropRejection } from '../basics/options.ts';
import type { FailureKind, Outcome } from '../step/outcome.ts';
import type { Json } from '../stores/store.ts';
import { isDeep } from '../wire/call.ts';
import { MOST_DEPTH } from '../wire/json-rpc.ts';
import { jsonOf } from '../workflow/stored.ts';
import type { FailedAnswer, GateConfig } from './config.ts';

/** The most bytes that one entry keeps: of the list's JSON text, in UTF-8. */
export const MOST_ERROR_BYTES = 4_096;

/** Of these, what the words take that say what is left out. */
const FOR_WORDS = 96;

/** A digit and its comma. */
const SMALLEST = 2;

/**
 * The outcome, with what the app's `trail.errors` lets the trail keep of a failure. The function is
 * asked once, and only where the failure is about to be saved.
 */
export function withErrors(
  outcome: Outcome,
  tool: string,
  { trail: { errors: ask }, onError }: Pick<GateConfig, 'trail' | 'onError'>,
): Outcome {
  // A success may still be none by the binding's `ok`.
  if (ask === undefined || !['failed', 'succeeded'].includes(outcome.kind)) return outcome;
  let kept: readonly Json[] | undefined;
  let isAsked = false;
  const errors = (kind: FailureKind): readonly Json[] | undefined => {
    if (isAsked) return kept;
    isAsked = true;
    let said: unknown;
    try {
      // A copy: the client is still to get the answer as it came.
      const answer = structuredClone(outcome.result ?? outcome.error) as FailedAnswer;
      said = ask(answer, { tool, kind });
      if (said !== undefined) kept = errorsWithin(jsonOf(said, 'what trail.errors returned'));
    } catch (error) {
      onError(error);
      dropRejection(said);
    }
    return kept;
  };
  return { ...outcome, errors };
}

/**
 * Errors as a trail entry keeps them: a list of at most {@link MOST_ERROR_BYTES}, whose members are
 * nested no deeper than {@link MOST_DEPTH}. Cuts the texts that are too long, leaves out other
 * values, and says so at the end. `undefined` for none.
 *
 * @param said the list, or its one member
 */
export function errorsWithin(said: Json): readonly Json[] | undefined {
  const errors = Array.isArray(said) ? said : [said];
  if (errors.length === 0) return undefined;
  if (bytesOf(errors) <= MOST_ERROR_BYTES && !errors.some(isDeep)) return errors;
  const kept: Json[] = [];
  let whole = 0;
  let room = MOST_ERROR_BYTES - FOR_WORDS;
  for (const each of errors) {
    if (room < SMALLEST) break;
    // Readers of a store nest less than that: SQLite's views take 1,000 levels.
    if (isDeep(each)) continue;
    // With the comma behind it.
    const size = bytesOf(each) + 1;
    if (size <= room) {
      kept.push(each);
      whole++;
      room -= size;
    } else if (typeof each === 'string') {
      const { text, size: taken } = beginningOf(each, room);
      if (text !== '') kept.push(text);
      room -= taken;
    }
  }
  const left = `${errors.length - whole} of ${errors.length} cut or left out`;
  return [...kept, `[${left}: at most ${MOST_ERROR_BYTES} bytes, ${MOST_DEPTH} levels deep]`];
}

/** The longest beginning of a text that takes so many bytes as JSON, with its comma and dots. */
function beginningOf(whole: string, most: number): { text: string; size: number } {
  let text = '';
  let size = bytesOf('…') + 1;
  // By code points, so that no surrogate pair is cut in two.
  for (const point of whole) {
    const more = bytesOf(point) - 2;
    if (size + more > most) break;
    text += point;
    size += more;
  }
  return text === '' ? { text, size: 0 } : { text: `${text}…`, size };
}

/** How long a value is as JSON, in bytes of UTF-8. */
function bytesOf(value: Json): number {
  return Buffer.byteLength(JSON.stringify(value));
}
