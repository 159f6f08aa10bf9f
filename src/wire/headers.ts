import type { RequestPort } from './ports.ts';

/**
 * Sets or (with `undefined`) removes a request header. Node keeps headers twice, and adapters to
 * the Fetch API read `rawHeaders`: changing only `headers` would leak the old value to them.
 */
export function setRequestHeader(req: RequestPort, name: string, value: string | undefined): void {
  const raw = req.rawHeaders ?? [];
  let isSet = value === undefined;
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]?.length !== name.length || raw[i]?.toLowerCase() !== name) continue;
    // In its place, which costs less than to move what stands behind it.
    if (!isSet) raw[i + 1] = value as string;
    else {
      raw.splice(i, 2);
      i -= 2;
    }
    isSet = true;
  }
  if (value === undefined) delete req.headers[name];
  else {
    req.headers[name] = value;
    if (!isSet) raw.push(name, value);
  }
}

/** A request header that must have one value; of several the joined form, which matches nothing. */
export function requestHeader(req: RequestPort, name: string): string | undefined {
  const value = req.headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

/** Whether a request of HTTP/1.1 has a body (RFC 9112, section 6). */
export function hasBody(req: RequestPort): boolean {
  return (
    requestHeader(req, 'transfer-encoding') !== undefined ||
    Number(requestHeader(req, 'content-length') ?? 0) !== 0
  );
}

/**
 * Whether a request's media type is JSON, or not named at all. Two of them, or a list, are none:
 * one reader takes the first, another the last.
 */
export function isJsonMedia(req: RequestPort): boolean {
  const type = requestHeader(req, 'content-type');
  if (type === undefined || type === '') return true;
  const isMime = /^[ \t]*application\/(?:[\w!#$%&'*+.^`|~-]+\+)?json[ \t]*(?:;[^,]*)?$/i.test(type);
  return isMime && countOf(req, 'content-type') < 2;
}

/**
 * How often a header came, where the host keeps what came: Node drops all but the first of some.
 */
function countOf({ rawHeaders = [] }: RequestPort, name: string): number {
  return rawHeaders.filter((each, at) => at % 2 === 0 && each.toLowerCase() === name).length;
}

/**
 * Whether a content type names an encoding of text other than UTF-8, which is all that JSON may be
 * in (RFC 8259, section 8.1).
 */
export function namesOtherCharset(contentType: string): boolean {
  if (!/charset/i.test(contentType)) return false;
  const charsets = contentType.matchAll(/charset\s*=\s*["']?([^\s"';,]*)/gi);
  return [...charsets].some(([, charset]) => !/^utf-?8$/i.test(charset ?? ''));
}

/** Whether the client asks for an event stream by name: a GET of MCP must. */
export function acceptsEventStream(req: RequestPort): boolean {
  return /text\/event-stream/i.test(requestHeader(req, 'accept') ?? '');
}

export function isEventStreamType(contentType: unknown): boolean {
  return /^\s*text\/event-stream\b/i.test(String(contentType));
}

export function isJsonType(contentType: unknown): boolean {
  return /^\s*application\/(\S+\+)?json\b/i.test(String(contentType));
}
