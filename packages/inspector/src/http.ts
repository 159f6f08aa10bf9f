/**
 * Requests and responses of Node, in Express and without it. Hides how much of a body it reads,
 * what each response says to a browser, and how it answers a failure.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Failure, FailureCode } from './api.ts';

/** A request as Express hands it on, or Node itself. */
export interface HttpRequest extends IncomingMessage {
  /** Of Express: the whole of the URL, where `url` lacks what the router was mounted under. */
  readonly originalUrl?: string;
  /** Of a body parser in front. */
  readonly body?: unknown;
}

const STATUS: Readonly<Record<FailureCode, number>> = {
  unauthorized: 403,
  'read-only': 403,
  token: 403,
  'cross-site': 403,
  'bad-request': 400,
  unknown: 404,
  method: 405,
  conflict: 409,
  'too-large': 413,
  'media-type': 415,
  'choose-event': 422,
  'no-index': 501,
  'no-switch': 501,
  unavailable: 503,
  internal: 500,
};

/** Ends a request with a failure. Its message is the server's own, and never a store's. */
export class HttpFailure extends Error {
  override readonly name = 'HttpFailure';
  readonly code: FailureCode;
  /** The methods that the path takes, where `code` is `method`. */
  readonly allow: string | undefined;

  constructor(code: FailureCode, message: string, allow?: string) {
    super(message);
    this.code = code;
    this.allow = allow;
  }

  get status(): number {
    return STATUS[this.code];
  }
}

const MAX_BODY_BYTES = 256 * 1024;

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "worker-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** What every response says, data and files alike. */
export function setCommonHeaders(res: ServerResponse): void {
  res.setHeader('content-security-policy', CONTENT_SECURITY_POLICY);
  res.setHeader('x-content-type-options', 'nosniff');
  res.setHeader('x-frame-options', 'DENY');
  res.setHeader('referrer-policy', 'no-referrer');
  res.setHeader('cross-origin-resource-policy', 'same-origin');
  res.setHeader('cross-origin-opener-policy', 'same-origin');
  res.setHeader('cache-control', 'no-store');
}

/** A response that was begun already, or whose client has left, is left alone. */
export function sendText(
  req: IncomingMessage,
  res: ServerResponse,
  status: number,
  type: string,
  text: string,
): void {
  if (res.headersSent || res.destroyed) return;
  res.statusCode = status;
  res.setHeader('content-type', `${type}; charset=utf-8`);
  res.setHeader('content-length', Buffer.byteLength(text));
  res.end(req.method === 'HEAD' ? undefined : text);
}

export function sendJson(
  req: IncomingMessage,
  res: ServerResponse,
  status: number,
  value: unknown,
): void {
  sendText(req, res, status, 'application/json', JSON.stringify(value));
}

export function sendFailure(req: IncomingMessage, res: ServerResponse, failure: HttpFailure): void {
  const { code, message, allow, status } = failure;
  if (allow !== undefined && !res.headersSent) res.setHeader('allow', allow);
  // What was not read of the body must not be taken for the next request.
  if (!req.complete && !res.headersSent) res.setHeader('connection', 'close');
  const body: Failure = { error: { code, message } };
  sendJson(req, res, status, body);
}

/** The body of a POST. A parser in front may have read it already. */
export async function readJson(req: HttpRequest): Promise<unknown> {
  const type = req.headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase();
  if (type !== 'application/json')
    throw new HttpFailure('media-type', 'Send the body as application/json.');
  if (req.body !== undefined) return req.body;
  const tooLarge = new HttpFailure('too-large', 'The body has more than 256 KiB.');
  if (Number(req.headers['content-length'] ?? 0) > MAX_BODY_BYTES) throw tooLarge;
  const text = await readText(req);
  if (text === undefined) throw tooLarge;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new HttpFailure('bad-request', 'The body is not JSON.');
  }
}

/** `undefined` where it is too long. The connection stays, so that its client gets an answer. */
async function readText(req: HttpRequest): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MAX_BODY_BYTES) return undefined;
      chunks.push(chunk);
    }
  } catch {
    throw new HttpFailure('bad-request', 'The body did not come to its end.');
  }
  return Buffer.concat(chunks).toString();
}
