/**
 * Globs on the URIs of resources. It hides every way in which an upstream may understand a URI, so
 * that no other spelling gets past a glob.
 */
import { InterlockError } from '../basics/errors.ts';
import { starsCover } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';

/** Alone between slashes, it matches zero or more segments. */
const GLOBSTAR = '**';

/**
 * A glob on URIs that ignores query and fragment. It matches a URI where it matches any way to
 * understand that URI.
 *
 * - `*` alone between slashes is exactly one segment. The authority counts as one: `docs://*`
 *   matches `docs://terms`, not `docs://a/b`.
 * - `**` alone between slashes is zero or more segments.
 * - `*` beside other characters is any number of characters within its segment.
 */
export class ResourcePattern {
  /** In small letters. */
  readonly scheme: string;
  /** One text for all spellings of the same pattern. */
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

  /** Whether it matches all of the URIs that `readTemplate()` gave for a template. */
  matchesAll(uris: readonly (ReadUri | undefined)[]): boolean {
    return uris.length > 0 && uris.every((uri) => uri !== undefined && this.matches(uri));
  }
}

/**
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for what is no pattern, and for a pattern that
 * would match other URIs than it seems to
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
    const not = 'a user, dot segments, backslashes and control characters';
    return `expected a URI that new URL() takes, without ${not}`;
  }
  const segments = pattern.slice(pattern.indexOf(':') + 1).split('/');
  const crowded = segments.some((segment) => segment !== GLOBSTAR && segment.includes(GLOBSTAR));
  return crowded ? 'expected ** to stand alone between slashes' : undefined;
}

/** Compares each glob with each segment once at most, so that no client can choose a slow URI. */
function globsCover(globs: readonly string[], segments: Reading): boolean {
  /** At each index, whether the globs so far can cover that many segments. */
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

/** Two values with nothing in common, so that only a wildcard matches both. */
const [A, B] = ['a0b', 'c1d'];

/** A template with more examples, or longer ones in total, counts as none. */
const MOST_URIS = 256;
const MOST_CHARACTERS = 65_536;

/**
 * Examples of what an expression of RFC 6570 can make, by its operator. A glob that matches all of
 * them matches all that the expression can make. Globs ignore queries and fragments.
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

/** Examples of the URIs that a template makes; none where it is no template, or too long. */
export function readTemplate(template: string): readonly (ReadUri | undefined)[] {
  return urisOf(template).map(readUri);
}

function urisOf(template: string): readonly string[] {
  if (template.length > MOST_CHARACTERS) return [];
  let uris = [''];
  // Splitting by a group gives text and expressions in turn.
  for (const [index, piece] of template.split(/\{([^{}]*)\}/).entries()) {
    const isText = index % 2 === 0;
    if (isText && /[{}]/.test(piece)) return [];
    const examples = isText ? [piece] : (EXAMPLES[/^[^\w%]?/.exec(piece)?.[0] ?? ''] ?? []);
    uris = uris.flatMap((uri) => examples.map((example) => uri + example));
    const characters = uris.reduce((sum, uri) => sum + uri.length, 0);
    if (uris.length > MOST_URIS || characters > MOST_CHARACTERS) return [];
  }
  return uris;
}

/**
 * One way to understand a URI without its scheme: the segments of its path, the authority first.
 */
type Reading = readonly string[];

/**
 * A URI in every way that an upstream may understand it: by comparing, parsing or decoding it, or
 * as a file's path.
 */
export interface ReadUri {
  /** In small letters, without the colon. */
  readonly scheme: string;
  /** At least one. */
  readonly readings: readonly Reading[];
}

/** In characters, both as the client wrote it and as `new URL()` writes it. */
const LONGEST = 4_096;
const MOST_SEGMENTS = 256;
/** A URI inside a URI is encoded twice. */
const MOST_LAYERS = 2;

/** The scheme in small letters; `undefined` where there is none: RFC 3986, section 3.1. */
export function schemeOf(uri: string): string | undefined {
  return /^([a-z][a-z\d+.-]*):/i.exec(uri)?.[1]?.toLowerCase();
}

/**
 * Every way to understand a URI:
 * - as it is written, and as `new URL()` writes it;
 * - percent-decoded before it is cut into segments, and after;
 * - with its query and fragment and without, with empty segments and without.
 *
 * It evens out letter case, compatibility forms, invisible characters, and dots and spaces at a
 * segment's end, as file systems do. Its time is proportional to the URI's length.
 *
 * `undefined` where the URI is odd, so that upstreams may disagree about it. Odd is a URI that is
 * not absolute, too long, or encoded more than twice. Odd are also dot segments, backslashes,
 * control characters, broken UTF-8, many combining marks in a row, a user and a password. No client
 * needs an odd URI to read what a list showed.
 */
export function readUri(uri: string): ReadUri | undefined {
  const scheme = schemeOf(uri);
  if (scheme === undefined || uri.length > LONGEST || !URL.canParse(uri)) return undefined;
  const { href, username, password } = new URL(uri);
  if (href.length > LONGEST || username !== '' || password !== '') return undefined;
  const layers = new Set<string>();
  for (const text of new Set([uri, href])) {
    const decoded = layersOf(text.slice(scheme.length + 1));
    if (decoded === undefined) return undefined;
    for (const layer of decoded) layers.add(layer);
  }
  const readings = new Map<string, Reading>();
  const evened = evenedSegments();
  for (const layer of layers) {
    if (isOdd(layer)) return undefined;
    // Segments have no line breaks, which would be odd.
    for (const reading of readingsOf(layer, evened))
      readings.set(`${reading.length}\n${reading.join('\n')}`, reading);
  }
  return { scheme, readings: [...readings.values()] };
}

/** Texts that some upstream takes for the same become the same text. */
function evenedOut(text: string): string {
  return compatible(text).toUpperCase().toLowerCase();
}

function withoutEmpty(segments: readonly string[]): string[] {
  return segments.filter((segment) => segment !== '');
}

/** Windows ignores dots and spaces at the end of a name. */
function withoutTail(segment: string): string {
  let end = segment.length;
  while (isDotOrSpace(segment, end - 1)) end--;
  return segment.slice(0, end);
}

/**
 * Percent-decoded until nothing is left to decode; `undefined` where that takes too many rounds, or
 * gives no UTF-8.
 */
function fullyDecoded(text: string): string | undefined {
  return layersOf(text)?.at(-1);
}

function layersOf(text: string): string[] | undefined {
  const layers = [text];
  for (let last = text; layers.length <= MOST_LAYERS + 1; layers.push(last)) {
    const decoded = decodedOnce(last);
    if (decoded === last) return layers;
    if (decoded === undefined) return undefined;
    last = decoded;
  }
  return undefined;
}

/** Decodes once. A percent sign that encodes nothing means itself. */
function decodedOnce(text: string): string | undefined {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text.replace(/%(?![\da-f]{2})/gi, '%25'));
  } catch {
    return undefined;
  }
}

function isOdd(text: string): boolean {
  // Normalising sorts combining marks one by one, and no script needs so many (UAX #15, section
  // 13).
  if (/[\p{Cc}\p{Cs}\\\ufffd]|\p{M}{31}/u.test(text)) return true;
  const plain = compatible(text);
  // Normalising turns some character into a delimiter.
  if (plain !== text && delimitersOf(plain) !== delimitersOf(text)) return true;
  const segments = plain.split(/[/?#]/);
  return segments.length > MOST_SEGMENTS || segments.some(isDots);
}

function delimitersOf(text: string): string {
  return text.match(/[/?#\\%]/g)?.join('') ?? '';
}

/** Servers in Java ignore what follows a semicolon. */
function isDots(segment: string): boolean {
  let at = 0;
  while (isDotOrSpace(segment, at)) at++;
  const isWhole = at === segment.length || segment[at] === ';';
  return isWhole && segment.slice(0, at).includes('.');
}

function isDotOrSpace(text: string, at: number): boolean {
  return text[at] === '.' || text[at] === ' ';
}

function readingsOf(layer: string, evened: (segment: string) => string): Reading[] {
  const [behindNothing = ''] = layer.split('#', 1);
  const [path = ''] = behindNothing.split('?', 1);
  return [...new Set([layer, behindNothing, path])].flatMap((text) => {
    const segments = segmentsOf(text).map(evened);
    const trimmed = segments.map(withoutTail);
    return [segments, withoutEmpty(segments), trimmed, withoutEmpty(trimmed)];
  });
}

/** Ignores slashes at both ends. */
function segmentsOf(text: string): string[] {
  let [start, end] = [0, text.length];
  while (text[start] === '/') start++;
  while (end > start && text[end - 1] === '/') end--;
  return start === end ? [] : text.slice(start, end).split('/');
}

/** Evens out each segment once, since the ways to understand a URI share most segments. */
function evenedSegments(): (segment: string) => string {
  const known = new Map<string, string>();
  return (segment) => {
    const evened = known.get(segment) ?? evenedOut(fullyDecoded(segment) ?? segment);
    known.set(segment, evened);
    return evened;
  };
}

function compatible(text: string): string {
  // ASCII has nothing to even out.
  if (/^[\0-\x7f]*$/.test(text)) return text;
  return text.normalize('NFKC').replace(/[\p{Cf}\p{Default_Ignorable_Code_Point}]+/gu, '');
}
