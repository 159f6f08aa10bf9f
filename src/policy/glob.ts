import { starsCover } from '../names.ts';

/**
 * How many steps one match may take. A call's name comes from outside, so the work that it can
 * cause is bounded; beyond this a name does not match.
 */
export const MAX_ITERATIONS = 1024;

/** Stands alone between dots, for zero or more segments. */
export const GLOBSTAR = '**';

/**
 * Whether the whole of a dot-separated name matches a glob. Upper and lower case differ.
 *
 * - `*` alone between dots is exactly one segment: `sprints.*` matches `sprints.get`, not
 *   `sprints.tasks.get`.
 * - `**` alone between dots is zero or more: `sprints.**` matches both, and `sprints`.
 * - `*` beside other characters is any run of them within its segment, the empty one too: `get_*`
 *   matches `get_user`, not `get_user.name`.
 *
 * Nothing else is special. Never throws, whatever the strings: `PolicyEngine` refuses a malformed
 * pattern. A step is spent on each segment, and on each again that a `**` has to give up; after
 * {@link MAX_ITERATIONS} steps the name does not match.
 */
export function matchGlob(pattern: string, name: string): boolean {
  return matchSegments(pattern.split('.'), splitName(name));
}

/**
 * A name's segments, cut where no match can get to: each costs a step and the end one more. Only a
 * last `**`, which takes the rest unseen, matches so long a name.
 */
export function splitName(name: string): string[] {
  return name.split('.', MAX_ITERATIONS);
}

/** {@link matchGlob} on what is already split. */
export function matchSegments(pattern: readonly string[], name: readonly string[]): boolean {
  let p = 0;
  let n = 0;
  // Where to go on after a mismatch: behind the last globstar, which then takes one segment more.
  // An earlier globstar need never be tried again: whatever it could still take, the last one can
  // take as well.
  let resumeP = -1;
  let resumeN = -1;
  for (let iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
    const glob = pattern[p];
    const segment = name[n];
    if (glob === GLOBSTAR) {
      if (p === pattern.length - 1) return true;
      resumeP = ++p;
      resumeN = n;
    } else if (glob === undefined && segment === undefined) {
      return true;
    } else if (glob !== undefined && segment !== undefined && starsCover(glob, segment)) {
      p++;
      n++;
    } else if (resumeP === -1 || resumeN >= name.length) {
      return false;
    } else {
      p = resumeP;
      n = ++resumeN;
    }
  }
  return false;
}

/**
 * What a malformed pattern should have been, or `undefined` for a good one. The syntax of other
 * globs is refused, because it would silently match nothing.
 */
export function globFault(pattern: string): string | undefined {
  if (pattern === '') return 'expected a name or a glob';
  if (/\p{Cc}/u.test(pattern)) return 'expected a glob without control characters';
  if (pattern !== pattern.trim()) return 'expected a glob without white space around it';
  if (/[?[\]{}]|^!/.test(pattern))
    return 'expected a glob of * and **, since ? [ ] { } ! mean nothing here';
  const segments = pattern.split('.');
  if (segments.includes(''))
    return 'expected a glob without empty segments: no dot at an end, no two in a row';
  const crowded = segments.some((segment) => segment !== GLOBSTAR && segment.includes(GLOBSTAR));
  return crowded ? 'expected ** to stand alone between dots' : undefined;
}
