import { GLOBSTAR, matchSegments } from '../basics/glob.ts';
import { type OverlapWarning, parsePolicies, type SyncPolicy } from './engine.ts';

/**
 * How many examples of a pattern to try. A pattern that needs more, with seven `**`, is not judged.
 */
const MAX_EXAMPLES = 4096;

type Segments = readonly string[];

interface Candidate {
  readonly index: number;
  readonly match: string;
  readonly segments: Segments;
}

/**
 * Finds the policies that can never apply, because earlier ones match every name that they match.
 * Run it at startup or in a test: nothing else reports such a policy.
 *
 * Each warning names the first earlier policy that takes all the names, or else a few that do so
 * together. A policy that loses only some of its names is not reported: an exception may stand
 * before its rule. A pattern with very many `**` is not judged, and names that are too long for
 * `matchGlob()` do not count.
 *
 * Throws `ERR_INTERLOCK_POLICY` for a malformed policy.
 */
export function detectOverlaps(policies: readonly SyncPolicy<string>[]): OverlapWarning[] {
  const candidates = parsePolicies(policies).map(({ match }, index) => ({
    index,
    match,
    segments: split(match),
  }));
  return candidates.flatMap((later, index) => {
    const shadowing = findShadowing(candidates.slice(0, index), later.segments);
    const [first] = shadowing;
    if (first === undefined) return [];
    return [
      { shadowingIndex: first.index, shadowedIndex: index, message: messageFor(shadowing, later) },
    ];
  });
}

/**
 * The earlier policies that take all names of the later pattern: a single one if there is one, and
 * none if it keeps a name.
 */
function findShadowing(earlier: readonly Candidate[], later: Segments): readonly Candidate[] {
  const alone = earlier.find((candidate) => covers([candidate], later));
  if (alone !== undefined) return [alone];
  if (!covers(earlier, later)) return [];
  let needed = earlier;
  for (const candidate of earlier.toReversed()) {
    const others = needed.filter((other) => other !== candidate);
    if (covers(others, later)) needed = others;
  }
  return needed;
}

/**
 * Whether the `earlier` patterns together match each name that `later` matches.
 *
 * A pattern read as a name is its own most general example, because only a star matches a star. So
 * it is enough to try the pattern itself, with each `**` written out as none, one, two … `*`. One
 * more than the longest run of `*` in an earlier pattern is enough: no pattern can count further.
 */
function covers(earlier: readonly Candidate[], later: Segments): boolean {
  const most = Math.max(0, ...earlier.map(({ segments }) => longestStarRun(segments))) + 1;
  const globstars = later.filter((segment) => segment === GLOBSTAR).length;
  if ((most + 1) ** globstars > MAX_EXAMPLES) return false;
  for (const example of examples(later, most)) {
    const isName = example.length > 0;
    if (isName && !earlier.some(({ segments }) => matchSegments(segments, example))) return false;
  }
  return true;
}

/** The pattern with each `**` replaced by every number of `*` from none to `most`. */
function* examples(pattern: Segments, most: number): Generator<Segments> {
  const at = pattern.indexOf(GLOBSTAR);
  if (at === -1) {
    yield pattern;
    return;
  }
  for (const rest of examples(pattern.slice(at + 1), most)) {
    for (let count = 0; count <= most; count++) {
      yield [...pattern.slice(0, at), ...Array.from({ length: count }, () => '*'), ...rest];
    }
  }
}

/** How many `*` the longest stretch of `*` and `**` has. */
function longestStarRun(pattern: Segments): number {
  let longest = 0;
  let run = 0;
  for (const segment of pattern) {
    if (segment === '*') run++;
    else if (segment !== GLOBSTAR) run = 0;
    longest = Math.max(longest, run);
  }
  return longest;
}

/** Reads `a.**.**` as `a.**`, which has fewer examples. */
function split(match: string): Segments {
  const segments = match.split('.');
  return segments.filter(
    (segment, index) => segment !== GLOBSTAR || segments[index - 1] !== GLOBSTAR,
  );
}

function messageFor(shadowing: readonly Candidate[], shadowed: Candidate): string {
  const name = ({ index, match }: Candidate) => `policies[${index}] (${JSON.stringify(match)})`;
  const verb = shadowing.length > 1 ? 'together match' : 'matches';
  const earlier = shadowing.map(name).join(' and ');
  const reason = `${earlier} before it ${verb} every name that it matches`;
  return `${name(shadowed)} never applies: ${reason}. Put it first, or take it out.`;
}
