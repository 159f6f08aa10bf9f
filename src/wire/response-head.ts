import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { isEventStreamType, isJsonType, namesOtherCharset } from './headers.ts';
import type { HeadPort } from './ports.ts';

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
