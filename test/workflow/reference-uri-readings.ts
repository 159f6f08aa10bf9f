/**
 * How URIs were read at first: in time that grows with the square of their length. It says what the
 * reading of today must come to.
 */

/**
 * One way to understand a URI behind its scheme: the segments of its path, the authority being the
 * first.
 */
export type Reading = readonly string[];

/**
 * A URI as upstreams may understand it. They differ: some compare texts, some parse, some decode,
 * some ask a file system.
 */
export interface ReadUri {
  /** In small letters, without the colon. */
  readonly scheme: string;
  /** At least one. */
  readonly readings: readonly Reading[];
}

/**
 * The longest URI that is looked at, its most segments, and its most layers of percent-encoding.
 * Whatever is beyond that is unclear.
 */
const LONGEST = 4_096;
const MOST_SEGMENTS = 256;
const MOST_LAYERS = 4;

/** Of a scheme without small letters before, `undefined`: RFC 3986, section 3.1. */
export function schemeOf(uri: string): string | undefined {
  return /^([a-z][a-z\d+.-]*):/i.exec(uri)?.[1]?.toLowerCase();
}

/**
 * Every way to understand a URI: as it is written and as `new URL()` writes it, percent-decoded
 * before and after it is cut into segments, with its query and without, with empty segments and
 * without. Letter case, compatibility forms, invisible characters, and dots and spaces at a
 * segment's end are evened out, as by file systems.
 *
 * `undefined` where it is unclear what it means: no absolute URI, dot segments, backslashes,
 * control characters, broken UTF-8, a user or a password, too long. No client needs those for what
 * a list showed to it.
 */
export function readUri(uri: string): ReadUri | undefined {
  const scheme = schemeOf(uri);
  if (scheme === undefined || uri.length > LONGEST || !URL.canParse(uri)) return undefined;
  const { href, username, password } = new URL(uri);
  if (username !== '' || password !== '') return undefined;
  const layers = [uri, href].flatMap(
    (text) => layersOf(text.slice(scheme.length + 1)) ?? [undefined],
  );
  const readings = new Map<string, Reading>();
  for (const layer of layers) {
    if (layer === undefined || isUnclear(layer)) return undefined;
    for (const reading of readingsOf(layer)) readings.set(JSON.stringify(reading), reading);
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
  return segment.replace(/[. ]+$/, '');
}

/**
 * Percent-decoded as often as that changes anything; what is no UTF-8 becomes U+FFFD. `undefined`
 * where there is no end to it.
 */
export function fullyDecoded(text: string): string | undefined {
  return layersOf(text)?.at(-1);
}

function layersOf(text: string): string[] | undefined {
  const layers = [text];
  for (let last = text; layers.length <= MOST_LAYERS + 1; layers.push(last)) {
    const decoded = last.replace(/(?:%[\da-f]{2})+/gi, (bytes) =>
      new TextDecoder('utf-8', { ignoreBOM: true }).decode(
        Uint8Array.from(bytes.slice(1).split('%'), (byte) => Number.parseInt(byte, 16)),
      ),
    );
    if (decoded === last) return layers;
    last = decoded;
  }
  return undefined;
}

function isUnclear(text: string): boolean {
  const plain = compatible(text);
  if (/[\p{Cc}\p{Cs}\\\ufffd]/u.test(text)) return true;
  // A character that becomes one of these where it is normalised.
  if (plain.replace(/[^/?#\\%]/g, '') !== text.replace(/[^/?#\\%]/g, '')) return true;
  const segments = plain.split(/[/?#]/);
  return segments.length > MOST_SEGMENTS || segments.some(isDots);
}

/** Java's servers leave out what is behind a semicolon. */
function isDots(segment: string): boolean {
  return /^[. ]*\.[. ]*(;|$)/.test(segment);
}

function readingsOf(layer: string): Reading[] {
  const texts = [layer, layer.replace(/#.*$/s, ''), layer.replace(/[?#].*$/s, '')];
  return [...new Set(texts)].flatMap((text) => {
    const path = text.replace(/^\/+|\/+$/g, '');
    const segments = path === '' ? [] : path.split('/').map(decodedSegment);
    const trimmed = segments.map(withoutTail);
    return [segments, withoutEmpty(segments), trimmed, withoutEmpty(trimmed)];
  });
}

function decodedSegment(segment: string): string {
  return evenedOut(fullyDecoded(segment) ?? segment);
}

function compatible(text: string): string {
  return text.normalize('NFKC').replace(/[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu, '');
}
