/**
 * How the first releases read URIs, in time that grows with the square of their length. Today's
 * reading must agree with it.
 */

/**
 * One way to understand a URI without its scheme: the segments of its path, the authority first.
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

/** The limits of length, segments and layers of percent-encoding. A URI beyond them is unclear. */
const LONGEST = 4_096;
const MOST_SEGMENTS = 256;
const MOST_LAYERS = 4;

/** The scheme in small letters; `undefined` where there is none: RFC 3986, section 3.1. */
function schemeOf(uri: string): string | undefined {
  return /^([a-z][a-z\d+.-]*):/i.exec(uri)?.[1]?.toLowerCase();
}

/**
 * Every way to understand a URI:
 * - as it is written, and as `new URL()` writes it;
 * - percent-decoded before it is cut into segments, and after;
 * - with its query and without, with empty segments and without.
 *
 * It evens out letter case, compatibility forms, invisible characters, and dots and spaces at a
 * segment's end, as file systems do.
 *
 * `undefined` where the URI is odd: not absolute, too long, with dot segments, backslashes, control
 * characters, broken UTF-8, a user or a password. No client needs an odd URI to read what a list
 * showed.
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

/** Texts that some upstream takes for the same become the same text. */
function evenedOut(text: string): string {
  return compatible(text).toUpperCase().toLowerCase();
}

function withoutEmpty(segments: readonly string[]): string[] {
  return segments.filter((segment) => segment !== '');
}

/** Windows ignores dots and spaces at the end of a name. */
function withoutTail(segment: string): string {
  return segment.replace(/[. ]+$/, '');
}

/**
 * Percent-decoded until nothing changes; `undefined` where that takes too many rounds. What is no
 * UTF-8 becomes U+FFFD.
 */
function fullyDecoded(text: string): string | undefined {
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
  // Normalising turns some character into a delimiter.
  if (plain.replace(/[^/?#\\%]/g, '') !== text.replace(/[^/?#\\%]/g, '')) return true;
  const segments = plain.split(/[/?#]/);
  return segments.length > MOST_SEGMENTS || segments.some(isDots);
}

/** Servers in Java ignore what follows a semicolon. */
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
