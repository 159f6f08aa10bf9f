/** One way to understand a URI behind its scheme: the segments of its path, the authority first. */
export type Reading = readonly string[];

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
export function evenedOut(text: string): string {
  return compatible(text).toUpperCase().toLowerCase();
}

export function withoutEmpty(segments: readonly string[]): string[] {
  return segments.filter((segment) => segment !== '');
}

/** Windows has no names that end in dots or spaces: it leaves them out. */
export function withoutTail(segment: string): string {
  let end = segment.length;
  while (isDotOrSpace(segment, end - 1)) end--;
  return segment.slice(0, end);
}

/** Percent-decoded to the end; `undefined` where that takes too often, or gives no UTF-8. */
export function fullyDecoded(text: string): string | undefined {
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
