import { isEventStreamType, isJsonType, namesOtherCharset } from './headers.ts';
import type { HeadPort } from './ports.ts';
import type { BodyMode } from './response-observer.ts';

/** What is owed to the client in this response. */
export interface Owed {
  /** Requests that the upstream was asked. */
  readonly requests: boolean;
  /** Answers of the middleware's own. */
  readonly answers: boolean;
}

/**
 * How a body is to be read, by its status and headers. What ought to be inspected and cannot be is
 * never let through.
 */
export function bodyModeOf(res: HeadPort, owed: Owed): BodyMode {
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
    return owed.requests || owed.answers ? 'json' : 'raw';
  return owed.requests ? 'unreadable' : 'raw';
}

export function succeeded(status: number): boolean {
  return status >= 200 && status < 300;
}

/** An event stream is UTF-8 whatever its type says. */
function isReadable(res: HeadPort, kind: 'sse' | 'json', type: string): boolean {
  const encoding = String(res.getHeader('content-encoding') ?? 'identity');
  return (
    encoding.trim().toLowerCase() === 'identity' && (kind === 'sse' || !namesOtherCharset(type))
  );
}
