import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { HeadPort, RequestPort } from './ports.ts';

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

/**
 * How a response's body is treated: `sse` event by event as it streams, `json` whole, `raw` not at
 * all; `stream` and `empty` when the middleware answers instead of the upstream; `unreadable` when
 * it ought to be inspected and cannot be.
 */
export type BodyMode = 'pending' | 'sse' | 'json' | 'raw' | 'stream' | 'empty' | 'unreadable';

/**
 * How a body is to be read, by its status and headers. What ought to be inspected and cannot be is
 * never let through.
 *
 * @param owesResponses whether the upstream was asked requests
 * @param owesAnswers whether answers of the middleware's own belong into the response
 */
export function bodyModeOf(
  res: HeadPort,
  owesResponses: boolean,
  owesAnswers: boolean,
): 'sse' | 'json' | 'raw' | 'unreadable' {
  if (res.req.method === 'HEAD') return 'raw';
  const { statusCode } = res;
  const type = String(res.getHeader('content-type') ?? '');
  const kind = isEventStreamType(type) ? 'sse' : isJsonType(type) ? 'json' : undefined;
  if (kind !== undefined && isReadable(res, kind, type)) return kind;
  // No client reads a message out of an error's body, but it may well need the status: 401 begins a
  // login.
  if (!succeeded(statusCode)) return 'raw';
  if (kind !== undefined) return 'unreadable';
  if (statusCode === 202 || statusCode === 204)
    return owesResponses || owesAnswers ? 'json' : 'raw';
  return owesResponses ? 'unreadable' : 'raw';
}

export function succeeded(status: number): boolean {
  return status >= 200 && status < 300;
}

/** An event stream is UTF-8 whatever its type says. */
function isReadable(res: HeadPort, kind: 'sse' | 'json', type: string): boolean {
  const encoding = res.getHeader('content-encoding');
  if (encoding !== undefined && String(encoding).trim().toLowerCase() !== 'identity') return false;
  return kind === 'sse' || !namesOtherCharset(type);
}

/** Headers that describe the very bytes of a body. */
const OF_BYTES = [
  'content-length',
  'content-encoding',
  'etag',
  'content-digest',
  'repr-digest',
  'digest',
];

/** Another body will be sent than the one that the headers were set for. */
export function dropBodyHeaders(res: HeadPort): void {
  for (const name of OF_BYTES) res.removeHeader(name);
}

/** The whole body will be JSON of our own, or nothing. */
export function announceBody(res: HeadPort, isJson: boolean): void {
  dropBodyHeaders(res);
  res.removeHeader('transfer-encoding');
  res.removeHeader('trailer');
  const type = res.getHeader('content-type');
  if (!isJson) res.removeHeader('content-type');
  else if (!isJsonType(type) || namesOtherCharset(String(type)))
    res.setHeader('content-type', 'application/json');
}

/** States the length of the whole body where Node would. */
export function stateLength(res: HeadPort, length: number): void {
  if (res.hasHeader('content-length') || res.hasHeader('transfer-encoding')) return;
  const { statusCode: status } = res;
  if (res.req.method === 'HEAD' || status === 204 || status === 304 || status < 200) return;
  res.setHeader('content-length', length);
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
