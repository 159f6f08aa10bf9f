/** What a call says of itself when rules judge it. Hides how its arguments are read. Pure. */
import { columnOfSource } from './columns.ts';
import { MISSING, type Reader, type Truth } from './condition.ts';
import { type Decimal, decimalOf } from './decimal.ts';
import type { Amount, ValueSource } from './rule-parts.ts';
import type { Test } from './rule-tests.ts';
import { membersAt, personDigest } from './values.ts';

/** What a call that is judged says of itself. */
export interface OwnValues {
  /** Reads its arguments, and what is claimed of its caller. */
  readonly read: Reader;
  /** The digests of the members of a value. */
  members(source: ValueSource): readonly string[] | 'missing' | 'unclear';
  /** @param unknown gets each path that leaves the condition open */
  truth(test: Test, unknown?: (path: string) => void): Truth;
  /** Before it is scaled. */
  amount(asked: Amount): Decimal | undefined;
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
    read,
    members: (source) => {
      const { keys, fold } = source;
      const column = columnOfSource(source);
      const before = known.get(column);
      if (before !== undefined) return before;
      const found = membersAt(read, keys, salt, fold);
      const members =
        found === MISSING
          ? 'missing'
          : found === undefined
            ? 'unclear'
            : typeof found === 'string'
              ? [found]
              : found;
      known.set(column, members);
      return members;
    },
    truth: ({ test }, unknown) => test(read, unknown),
    amount: ({ source, isText, isSigned }) => decimalOf(read(source.keys), isText, isSigned),
    caller: caller === undefined ? undefined : personDigest(caller, salt),
  };
}
