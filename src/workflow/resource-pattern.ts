import { InterlockError } from '../errors.ts';
import { starsCover } from '../names.ts';
import { showValue } from '../options.ts';
import {
  evenedOut,
  fullyDecoded,
  type Reading,
  type ReadUri,
  readUri,
  schemeOf,
  withoutEmpty,
  withoutTail,
} from './uri-readings.ts';

/** Stands alone between slashes, for zero or more segments. */
const GLOBSTAR = '**';

/**
 * A glob on URIs. It matches a URI where it matches one of the ways to understand it, so that no
 * other spelling of a URI gets past it; query and fragment are nothing to it.
 *
 * - `*` alone between slashes is exactly one segment, the authority being one: `docs://*` matches
 *   `docs://terms`, not `docs://a/b`.
 * - `**` alone between slashes is zero or more.
 * - `*` beside other characters is any run of them within its segment, the empty one too.
 */
export class ResourcePattern {
  /** In small letters. */
  readonly scheme: string;
  /** One text for all patterns that say the same. */
  readonly key: string;
  readonly #globs: readonly string[];

  constructor(scheme: string, globs: readonly string[]) {
    this.scheme = scheme;
    this.#globs = globs;
    this.key = `${scheme}:${globs.join('/')}`;
  }

  matches({ scheme, readings }: ReadUri): boolean {
    return scheme === this.scheme && readings.some((reading) => globsCover(this.#globs, reading));
  }

  /** Whether it matches each of the URIs that a template makes, as `readTemplate()` gives them. */
  matchesAll(uris: readonly (ReadUri | undefined)[]): boolean {
    return uris.length > 0 && uris.every((uri) => uri !== undefined && this.matches(uri));
  }
}

/**
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for what is no pattern, and for one that would
 * match another URI than it seems to
 */
export function parseResourcePattern(pattern: unknown): ResourcePattern {
  const fault =
    typeof pattern === 'string' ? faultOf(pattern) : 'expected a URI, or a glob on URIs';
  const scheme = typeof pattern === 'string' ? schemeOf(pattern) : undefined;
  if (fault !== undefined || scheme === undefined || typeof pattern !== 'string') {
    throw new InterlockError('ERR_INTERLOCK_BINDING', `resource ${showValue(pattern)}: ${fault}`);
  }
  const text = fullyDecoded(new URL(pattern).href.slice(scheme.length + 1)) ?? '';
  const globs = text.split('/').map((segment) => withoutTail(evenedOut(segment)));
  return new ResourcePattern(scheme, withoutEmpty(globs));
}

function faultOf(pattern: string): string | undefined {
  if (schemeOf(pattern) === undefined)
    return 'expected an absolute URI whose scheme is written out, such as docs://**';
  if (/[{}]/.test(pattern)) return 'expected a glob of * and **: write * for {id}';
  if (/[?#]/.test(pattern))
    return 'expected neither query nor fragment, since a binding holds whatever they are';
  if (pattern !== pattern.trim()) return 'expected a URI without white space around it';
  if (readUri(pattern) === undefined) {
    return 'expected a URI that new URL() takes, without a user, dot segments, backslashes and control characters';
  }
  const segments = pattern.slice(pattern.indexOf(':') + 1).split('/');
  const crowded = segments.some((segment) => segment !== GLOBSTAR && segment.includes(GLOBSTAR));
  return crowded ? 'expected ** to stand alone between slashes' : undefined;
}

/** Each glob is held against each segment once at most, however a client chose them. */
function globsCover(globs: readonly string[], segments: Reading): boolean {
  /** How many of the segments the globs so far can cover. */
  let covered = [true, ...segments.map(() => false)];
  for (const glob of globs) {
    const first = covered.indexOf(true);
    if (first === -1) return false;
    if (glob === GLOBSTAR) {
      covered = covered.map((_, count) => count >= first);
    } else {
      const before = covered;
      covered = [
        false,
        ...segments.map((segment, at) => before[at] === true && starsCover(glob, segment)),
      ];
    }
  }
  return covered.at(-1) === true;
}

/** Two values that have nothing in common, so that only a wildcard matches both. */
const [A, B] = ['a0b', 'c1d'];

/** A template that makes more examples, or longer ones in all, is not looked into. */
const MOST_URIS = 256;
const MOST_CHARACTERS = 65_536;

/**
 * What an expression of RFC 6570 can make, by its operator: enough examples that a glob which
 * matches all of them matches all that it makes. Queries and fragments are nothing to a glob.
 */
const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  '': [A, B],
  '+': [A, B, `${A}/${B}`, `${B}/${A}/${B}`],
  '/': [`/${A}`, `/${B}`, `/${A}/${B}`, `/${B}/${A}/${B}`],
  '.': ['', `.${A}`, `.${B}`],
  ';': ['', `;${A}`, `;${B}`],
  '?': [''],
  '&': [''],
  '#': [''],
};

/** Examples of the URIs that a template makes; none where it is no template, or too long a one. */
export function readTemplate(template: string): readonly (ReadUri | undefined)[] {
  return urisOf(template).map(readUri);
}

function urisOf(template: string): readonly string[] {
  if (template.length > MOST_CHARACTERS) return [];
  let uris = [''];
  // Every second piece is an expression.
  for (const [index, piece] of template.split(/\{([^{}]*)\}/).entries()) {
    const isText = index % 2 === 0;
    if (isText && /[{}]/.test(piece)) return [];
    const examples = isText ? [piece] : (EXAMPLES[/^[^\w%]?/.exec(piece)?.[0] ?? ''] ?? []);
    uris = uris.flatMap((uri) => examples.map((example) => uri + example));
    if (uris.length > MOST_URIS || lengthOf(uris) > MOST_CHARACTERS) return [];
  }
  return uris;
}

function lengthOf(uris: readonly string[]): number {
  return uris.reduce((sum, uri) => sum + uri.length, 0);
}
