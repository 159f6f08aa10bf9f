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

export const WANTED: readonly Wanted[] = [
  {
    reason:
      'explain() and what operators are told of a hidden tool: the state comes before a limit',
    is: ({ older = '', newer = '' }) =>
      (older.includes('"explained"') || older.includes('"type":"call.refused"')) &&
      older.includes('"reason":"limit"') &&
      newer.includes('"reason":"state"'),
  },
];

/** The reason for which a difference is wanted, if it is. */
export function wantedFor(difference: Difference): string | undefined {
  return WANTED.find(({ is }) => is(difference))?.reason;
}
