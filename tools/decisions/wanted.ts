/**
 * The differences from the older decision that are wanted. Each change that is meant to change an
 * answer adds an entry, which goes again once the older revision has the change too. After a wanted
 * difference, nothing more of its case is compared: one answer may change all that follow.
 */
import type { Case } from './cases.ts';

/** Where two sides differ for the first time in a case. */
export interface Difference {
  readonly played: Case;
  /** The title of the operation, then what was seen. `undefined`: nothing more was seen. */
  readonly operation: string;
  readonly older: string | undefined;
  readonly newer: string | undefined;
}

interface Wanted {
  /** Why the new answer is right. */
  readonly reason: string;
  /** Must be as narrow as the change: what it takes for wanted, is not looked at any more. */
  readonly is: (difference: Difference) => boolean;
}

/** Without the time that a refusal gives for a deadline. */
function timeless(text: string | undefined): string | undefined {
  return text
    ?.replace(/ It leaves this state by itself in [^.]*\./, '')
    .replace(/,"leavesInMs":\d+/, '')
    .replace(/\["content-length","\d+"\]/, '');
}

export const WANTED: readonly Wanted[] = [
  {
    reason: 'a refusal asks a "visible" once, so onError hears of one that fails once',
    is: ({ older = '' }) =>
      older.includes('"type":"error"') && /visible.*(throws|returned)/.test(older),
  },
  {
    reason: 'a refusal tells the deadline of a run that was claimed and has not moved',
    is: ({ older, newer }) => older !== newer && timeless(older) === timeless(newer),
  },
  {
    reason: 'resolve() of a run without a claim says not-held, though the run cannot be read',
    is: ({ older = '', newer = '' }) =>
      older.includes('failed: InterlockError ERR_INTERLOCK_SNAPSHOT') &&
      newer.endsWith('{"resolved":false,"reason":"not-held"}'),
  },
];

/** The reason for which a difference is wanted, if it is. */
export function wantedFor(difference: Difference): string | undefined {
  return WANTED.find(({ is }) => is(difference))?.reason;
}
