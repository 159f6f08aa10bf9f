/** Globs over tool names: what they match, in bounded time, and what makes one malformed. */
import { starsCover } from './names.ts';

/**
 * How many steps one match may take. Clients choose the names, so their work is bounded: beyond
 * this a name does not match.
 */
export const MAX_ITERATIONS = 1024;

/** Whether a name that is bound is a glob. A malformed one, such as `a.**b`, is a tool's name. */
export function isGlob(name: string): boolean {
  return name.includes('*') && globFault(name) === undefined;
}

/** Stands alone between dots for zero or more segments. */
export const GLOBSTAR = '**';

/**
 * Whether a glob matches the whole of a dot-separated name. Upper and lower case differ.
 *
 * - `*` alone between dots is exactly one segment: `sprints.*` matches `sprints.get`, not
 *   `sprints.tasks.get`.
 * - `**` alone between dots is zero or more segments: `sprints.**` matches both, and `sprints`.
 * - `*` beside other characters is any number of characters within its segment, or none: `get_*`
 *   matches `get_user`, not `get_user.name`.
 *
 * Nothing else is special. Never throws: `PolicyEngine` is what refuses a malformed pattern. After
 * {@link MAX_ITERATIONS} steps the name does not match: each segment takes one, and one more each
 * time that a `**` takes it again.
 */
export function matchGlob(pattern: string, name: string): boolean {
  return matchSegments(pattern.split('.'), splitName(name));
}

/** The globs among the names that are bound, each split once. */
export class Globs {
  /** In their order. */
  readonly texts: readonly string[];
  readonly #split: readonly (readonly string[])[];

  constructor(names: Iterable<string>) {
    this.texts = Object.freeze([...names].filter(isGlob));
    this.#split = this.texts.map((glob) => glob.split('.'));
  }

  /** Those that match a name, in their order. */
  matching(name: string): readonly string[] {
    if (this.texts.length === 0) return this.texts;
    const segments = splitName(name);
    return this.texts.filter((_, at) => matchSegments(this.#split[at] ?? [], segments));
  }
}

/**
 * A name's segments, as many as a match can reach. Only a `**` at the end of a pattern can match a
 * longer name, because it takes the rest unseen.
 */
export function splitName(name: string): string[] {
  return name.split('.', MAX_ITERATIONS);
}

/** {@link matchGlob} for segments. */
export function matchSegments(pattern: readonly string[], name: readonly string[]): boolean {
  let p = 0;
  let n = 0;
  // After a mismatch the match goes on behind the last globstar, which takes one segment more. No
  // earlier globstar need be tried again: the last one can take the same segments.
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
 * Why a pattern is malformed; `undefined` for a good one. The syntax of other globs is refused,
 * because it would silently match nothing.
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
