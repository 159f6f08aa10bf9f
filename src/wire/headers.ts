import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from 'node:http';
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
 * The headers that `writeHead` takes: an object, a flat list of names and values, or a list of
 * pairs.
 */
export type HeaderList =
  | OutgoingHttpHeaders
  | OutgoingHttpHeader[]
  | (readonly [string, OutgoingHttpHeader])[]
  | undefined;

/**
 * Sets the headers that `writeHead` was given. In a list, a name that comes twice keeps both
 * values.
 */
export function setResponseHeaders(res: ServerResponse, headers: HeaderList): void {
  const named = new Set<string>();
  for (const [name, value] of entriesOf(headers ?? {})) {
    if (value === undefined) continue;
    const text = typeof value === 'number' ? String(value) : value;
    const key = name.toLowerCase();
    if (named.has(key)) res.appendHeader(name, text);
    else res.setHeader(name, text);
    named.add(key);
  }
}

function entriesOf(headers: NonNullable<HeaderList>): [string, OutgoingHttpHeader | undefined][] {
  if (!Array.isArray(headers)) return Object.entries(headers);
  if (Array.isArray(headers[0])) return headers as [string, OutgoingHttpHeader][];
  const entries: [string, OutgoingHttpHeader | undefined][] = [];
  for (let i = 0; i < headers.length; i += 2) {
    entries.push([String(headers[i]), headers[i + 1] as OutgoingHttpHeader]);
  }
  return entries;
}

/**
 * Whether a content type names an encoding of text other than UTF-8, which is all that JSON may be
 * in (RFC 8259, section 8.1).
 */
export function namesOtherCharset(contentType: string): boolean {
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
