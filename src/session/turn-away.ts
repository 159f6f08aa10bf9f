import type { Contradiction } from '../wire/era.ts';
import type { Exchange } from '../wire/exchange.ts';
import { acceptsEventStream, hasBody } from '../wire/headers.ts';
import { errorResponse, JSON_RPC } from '../wire/json-rpc.ts';
import type { RequestPort } from '../wire/ports.ts';
import { SESSION_HEADER } from './ids.ts';

/**
 * Only a POST carries messages (MCP 2025-11-25, Transports). An upstream that is less strict must
 * not find one that nobody looked at.
 */
export function unfitRequest(exchange: Exchange): Promise<undefined> | undefined {
  const { req, tap } = exchange;
  if (req.method === 'POST') return undefined;
  if (req.method !== 'GET' && req.method !== 'DELETE' && req.method !== 'HEAD') {
    tap.res.setHeader('allow', 'GET, POST, DELETE');
    return turnAway(exchange, 405, JSON_RPC.SERVER_ERROR, 'Method not allowed');
  }
  if (!hasBody(req)) return undefined;
  return turnAway(
    exchange,
    400,
    JSON_RPC.INVALID_REQUEST,
    `Invalid Request: a ${req.method} has no body`,
  );
}

/**
 * Under `app.use()` the middlewares see the app's other routes too. Of MCP a GET asks for a stream,
 * names a session or resumes (MCP 2025-11-25, Transports, "Listening for Messages from the
 * Server").
 */
export function isOtherRoute(req: RequestPort): boolean {
  if (req.method !== 'GET' && req.method !== 'HEAD') return false;
  const { [SESSION_HEADER]: session, 'last-event-id': last } = req.headers;
  return session === undefined && last === undefined && !acceptsEventStream(req);
}

/**
 * A batch is answered as a whole, as SDK v2 does: where it names a version there are no batches.
 */
export async function turnAwayContradiction(
  { tap, isBatch, messages }: Exchange,
  { code, message }: Contradiction,
): Promise<undefined> {
  const id = isBatch ? undefined : messages[0]?.id;
  tap.respond(400, errorResponse(id ?? null, code, message));
}

/**
 * No session is named, and nothing else names a run. What stands below the middlewares by mistake
 * is told the cure.
 */
export function turnAwayNameless(exchange: Exchange): Promise<undefined> {
  const required = 'Bad Request: Mcp-Session-Id header is required';
  const cure =
    'It comes with the answer to initialize. A route that is not MCP must not stand behind sessionStore(): mount it with app.all() on the MCP route alone.';
  return turnAway(exchange, 400, JSON_RPC.SERVER_ERROR, `${required}. ${cure}`);
}

/** RFC 6585, section 4. */
export const TOO_MANY_SESSIONS =
  'Too many sessions: this caller has as many as one may have, and each of them is in use. End one with DELETE, or try again later';

export function turnAwayCrowded(exchange: Exchange): Promise<undefined> {
  return turnAway(exchange, 429, JSON_RPC.SERVER_ERROR, TOO_MANY_SESSIONS);
}

export function turnAwayDoubled(exchange: Exchange): Promise<undefined> {
  return turnAway(
    exchange,
    400,
    JSON_RPC.INVALID_REQUEST,
    'Invalid Request: a request id is in flight already',
  );
}

export async function turnAway(
  exchange: Exchange,
  status: number,
  code: number,
  message: string,
): Promise<undefined> {
  await exchange.reject(status, code, message);
}

/**
 * The session that the request names never was, or is over (MCP 2025-11-25, Transports, "Session
 * Management").
 */
export function turnAwayUnknown(exchange: Exchange): Promise<undefined> {
  return turnAway(exchange, 404, JSON_RPC.SESSION_NOT_FOUND, 'Session not found');
}
