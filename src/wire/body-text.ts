import { isAscii, isUtf8, transcode } from 'node:buffer';
import { isJsonMedia, namesOtherCharset, requestHeader } from './headers.ts';
import { parseJson } from './json-text.ts';
import type { BodyFailure, BodyText, RequestPort } from './ports.ts';

/** Why a body is turned away. */
export type Unfit = Exclude<BodyFailure, string>;

/** From this length on it pays to decode what is not ASCII by way of UTF-16. */
const LONG = 4_096;

/**
 * What the media type says against a body, whoever reads it. A JSON text may be a form as well, and
 * a parser of forms behind would find another call in it.
 */
export function unfitMedia(req: RequestPort): Unfit | undefined {
  if (isJsonMedia(req)) return undefined;
  return { status: 415, message: 'the request body must be application/json' };
}

/** What the headers say against bytes that are still to be read. */
export function unfitBytes(req: RequestPort, limit: number): Unfit | undefined {
  const encoding = requestHeader(req, 'content-encoding');
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    return {
      status: 415,
      message: 'the request body is encoded; send it plain, or mount a body parser in front',
    };
  }
  if (isOtherText(req)) return otherText();
  return Number(requestHeader(req, 'content-length')) > limit ? tooLarge(limit) : undefined;
}

/** The text of a body and what it says; or why it is turned away. */
export function parseBody(source: Uint8Array | string): BodyText | Unfit {
  const decoded = typeof source === 'string' ? source : decode(source);
  // Half a character is no UTF-8 either: what writes it as bytes repairs it, and another one drops
  // it.
  if (decoded === undefined || (typeof source === 'string' && /\p{Cs}/u.test(source)))
    return { status: 400, message: 'Parse error: the request body is not valid UTF-8' };
  try {
    return parseJson(decoded.charCodeAt(0) === 0xfeff ? decoded.slice(1) : decoded);
  } catch {
    return notJson();
  }
}

/**
 * `undefined` where the bytes are no UTF-8. They must not be repaired: a reader that drops what it
 * cannot decode sees another name than one that puts U+FFFD in its place.
 */
function decode(bytes: Uint8Array): string | undefined {
  if (!isUtf8(bytes)) return undefined;
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (isAscii(view)) return view.toString('latin1');
  // V8's own decoder takes 20 times as long for 4 MB as the detour does.
  return view.length < LONG
    ? view.toString()
    : transcode(view, 'utf8', 'utf16le').toString('utf16le');
}

/**
 * In UTF-7 the same bytes are other text, so that a parser which heeds the content type would see
 * other messages than were judged. JSON is UTF-8 (RFC 8259, section 8.1).
 */
export function isOtherText(req: RequestPort): boolean {
  return namesOtherCharset(requestHeader(req, 'content-type') ?? '');
}

export function otherText(): Unfit {
  return { status: 415, message: 'the request body must be UTF-8' };
}

export function notJson(): Unfit {
  return { status: 400, message: 'Parse error: the request body is not valid JSON' };
}

export function tooLarge(limit: number): Unfit {
  return { status: 413, message: `the request body is larger than ${limit} bytes` };
}
