/** What a call says of itself when rules judge it. Hides how its arguments are read. Pure. */
import { MISSING, type Reader, type Truth } from './condition.ts';
import { type Decimal, decimalOf } from './decimal.ts';
import type { Test } from './rule-tests.ts';
import type { CheckedSum, ValueSource } from './rules.ts';
import { membersAt, personDigest } from './values.ts';

/** What a call that is judged says of itself. */
export interface OwnValues {
  /** The digests of the members of a value. */
  members(source: ValueSource): readonly string[] | 'missing' | 'unclear';
  /** @param unknown gets each path that leaves the condition open */
  truth(test: Test, unknown?: (path: string) => void): Truth;
  amount(sum: CheckedSum): Decimal | undefined;
  /** The digest of who makes it; `undefined` where that is not known. */
  readonly caller: string | undefined;
}

/**
 * A call with its arguments.
 *
 * @param salt with which the values in the run's facts are digested
 * @param caller its principal, where one is known
 */
export function callWith(read: Reader, salt: string, caller?: string): OwnValues {
  const known = new Map<string, readonly string[] | 'missing' | 'unclear'>();
  return {
    members: ({ path, keys }) => {
      const before = known.get(path);
      if (before !== undefined) return before;
      const found = membersAt(read, keys, salt);
      const members =
        found === MISSING
          ? 'missing'
          : found === undefined
            ? 'unclear'
            : typeof found === 'string'
              ? [found]
              : found;
      known.set(path, members);
      return members;
    },
    truth: ({ test }, unknown) => test(read, unknown),
    amount: ({ source, isText }) => decimalOf(read(source.keys), isText),
    caller: caller === undefined ? undefined : personDigest(caller, salt),
  };
}
