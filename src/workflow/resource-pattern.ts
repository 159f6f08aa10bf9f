/**
 * Globs on the URIs of resources: hides every way in which an upstream may understand a URI, so
 * that no other spelling of it gets past a glob.
 */
import { InterlockError } from '../errors.ts';
import { starsCover } from '../names.ts';
import { showValue } from '../options.ts';

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

/** One way to understand a URI behind its scheme: the segments of its path, the authority first. */
type Reading = readonly string[];

/** A URI as upstreams may understand it: they compare, parse, decode it or ask a file system. */
export interface ReadUri {
  /** In small letters, without the colon. */
  readonly scheme: string;
  /** At least one. */
  readonly readings: readonly Reading[];
}

/** In characters, as the client wrote it and as `new URL()` writes it, which is ASCII. */
const LONGEST = 4_096;
const MOST_SEGMENTS = 256;
/** A URI inside of a URI is encoded twice. */
const MOST_LAYERS = 2;

/** Of a scheme without small letters before, `undefined`: RFC 3986, section 3.1. */
export function schemeOf(uri: string): string | undefined {
  return /^([a-z][a-z\d+.-]*):/i.exec(uri)?.[1]?.toLowerCase();
}

/**
 * Every way to understand a URI:
 * - as it is written, and as `new URL()` writes it;
 * - percent-decoded before it is cut into segments, and after;
 * - with its query and fragment and without, with empty segments and without.
 *
 * Letter case, compatibility forms, invisible characters, and dots and spaces at a segment's end
 * are evened out, as by file systems. It takes time in proportion to the URI's length.
 *
 * `undefined` where the URI is odd, so that upstreams would disagree about it: no absolute URI, dot
 * segments, backslashes, control characters, broken UTF-8, many combining marks in a row, a user or
 * a password, encoded more than twice, too long. No client needs those for what a list showed.
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
    // No segment has a line break in it, which would be odd.
    for (const reading of readingsOf(layer, evened))
      readings.set(`${reading.length}\n${reading.join('\n')}`, reading);
  }
  return { scheme, readings: [...readings.values()] };
}

/** What is the same to some upstream is the same here. */
function evenedOut(text: string): string {
  return compatible(text).toUpperCase().toLowerCase();
}

function withoutEmpty(segments: readonly string[]): string[] {
  return segments.filter((segment) => segment !== '');
}

/** Windows has no names that end in dots or spaces: it leaves them out. */
function withoutTail(segment: string): string {
  let end = segment.length;
  while (isDotOrSpace(segment, end - 1)) end--;
  return segment.slice(0, end);
}

/** Percent-decoded to the end; `undefined` where that takes too often, or gives no UTF-8. */
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

/** A percent sign that encodes nothing stands for itself. */
function decodedOnce(text: string): string | undefined {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text.replace(/%(?![\da-f]{2})/gi, '%25'));
  } catch {
    return undefined;
  }
}

function isOdd(text: string): boolean {
  // Marks in a row are put in order one by one. No writing has more of them (UAX #15, section 13).
  if (/[\p{Cc}\p{Cs}\\\ufffd]|\p{M}{31}/u.test(text)) return true;
  const plain = compatible(text);
  // A character that becomes one of these where it is normalised.
  if (plain !== text && delimitersOf(plain) !== delimitersOf(text)) return true;
  const segments = plain.split(/[/?#]/);
  return segments.length > MOST_SEGMENTS || segments.some(isDots);
}

function delimitersOf(text: string): string {
  return text.match(/[/?#\\%]/g)?.join('') ?? '';
}

/** Java's servers leave out what is behind a semicolon. */
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

/** Slashes at both ends are nothing. */
function segmentsOf(text: string): string[] {
  let [start, end] = [0, text.length];
  while (text[start] === '/') start++;
  while (end > start && text[end - 1] === '/') end--;
  return start === end ? [] : text.slice(start, end).split('/');
}

/** The ways to understand a URI have most of their segments in common. */
function evenedSegments(): (segment: string) => string {
  const known = new Map<string, string>();
  return (segment) => {
    const evened = known.get(segment) ?? evenedOut(fullyDecoded(segment) ?? segment);
    known.set(segment, evened);
    return evened;
  };
}

function compatible(text: string): string {
  // In ASCII there is nothing to even out.
  if (/^[\0-\x7f]*$/.test(text)) return text;
  return text.normalize('NFKC').replace(/[\p{Cf}\p{Default_Ignorable_Code_Point}]+/gu, '');
}
