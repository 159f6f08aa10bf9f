/**
 * What a call says of itself when rules judge it. Hides how its arguments are read, and how a claim
 * keeps what rules asked of them, for a second judgement. Pure.
 */
import { MISSING, type Reader, type Truth } from './condition.ts';
import { type Decimal, decimalOf } from './decimal.ts';
import type { Noted } from './facts.ts';
import {
  type CheckedSum,
  type Demands,
  isLeaf,
  leavesOf,
  type Requirement,
  type Source,
  type Test,
} from './rules.ts';
import { membersAt, type Value, valueOfTruth } from './values.ts';

/** What a call that is judged says of itself. */
export interface OwnCall {
  /** The digests of the members of a value. */
  members(source: Source): readonly string[] | 'missing' | 'unclear';
  /** @param unknown is told each path that leaves the condition open */
  truth(test: Test, unknown?: (path: string) => void): Truth;
  amount(sum: CheckedSum): Decimal | undefined;
}

/**
 * A call with its arguments.
 *
 * @param salt with which the values in the run's facts are digested
 */
export function callWith(read: Reader, salt: string): OwnCall {
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
  };
}

/** Where a rule uses calls up, what it reads of a call is noted under these names. */
const OWN_MEMBERS = 'own.';
const OWN_TRUTH = 'own?';

/** What a rule that uses calls up reads of a call, so that it can be judged once more later. */
export function noteOwn(demands: Demands | undefined, call: OwnCall, noted: Noted): Noted {
  const leaves = leavesOf(demands?.after);
  if (demands?.after === undefined || leaves.every(({ consumes }) => consumes === 'never'))
    return noted;
  const values = new Map<string, Value>();
  const visit = (requirement: Requirement): void => {
    const { when } = requirement;
    if (when !== undefined) {
      const truth = call.truth(when);
      values.set(`${OWN_TRUTH}${when.key}`, valueOfTruth(truth));
    }
    if (isLeaf(requirement)) {
      for (const { own } of requirement.same) {
        const members = call.members(own);
        values.set(`${OWN_MEMBERS}${own.path}`, typeof members === 'string' ? null : members);
      }
      return;
    }
    for (const each of 'all' in requirement ? requirement.all : requirement.any) visit(each);
  };
  visit(demands.after);
  return { k: [...noted.k, ...values.keys()], v: [...noted.v, ...values.values()] };
}

/** A call of which only that is known. */
export function notedCall({ k, v }: Noted): OwnCall {
  const valueAt = (key: string): Value => v[k.indexOf(key)] ?? null;
  return {
    members: ({ path }) => {
      const value = valueAt(`${OWN_MEMBERS}${path}`);
      // A call was let through without it, so it was missing.
      return typeof value === 'string' || value === null ? 'missing' : value;
    },
    truth: ({ key }) => {
      const value = valueAt(`${OWN_TRUTH}${key}`);
      return value === null ? undefined : value === 't';
    },
    amount: () => undefined,
  };
}
