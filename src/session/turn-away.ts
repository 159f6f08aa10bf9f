import { SESSION_HEADER } from '../ids.ts';
import type { Exchange } from '../wire/exchange.ts';
import { acceptsEventStream, type Contradiction, hasBody } from '../wire/headers.ts';
import { errorResponse, JSON_RPC } from '../wire/json-rpc.ts';
import type { RequestPort } from '../wire/ports.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';

/** How a request is answered that is not let in. */
export interface TurnedAway {
  readonly status: number;
  readonly code: number;
  readonly message: string;
  /** Further headers of the answer. */
  readonly headers?: Readonly<Record<string, string | number>>;
}

/** The session that the request names never was, or is over ("Session Management"). */
export const UNKNOWN_SESSION: TurnedAway = {
  status: 404,
  code: JSON_RPC.SESSION_NOT_FOUND,
  message: 'Session not found',
};

export const STORE_AWAY: TurnedAway = {
  status: 503,
  code: JSON_RPC.SERVER_ERROR,
  message: 'The session store is unavailable',
};

export const RESTARTING: TurnedAway = {
  status: 503,
  code: JSON_RPC.SERVER_ERROR,
  message: 'The server is being restarted',
  headers: { 'retry-after': 1 },
};

export const NOT_ALONE: TurnedAway = {
  status: 400,
  code: JSON_RPC.INVALID_REQUEST,
  message: 'Invalid Request: initialize must stand alone',
};

/** RFC 6585, section 4. */
export const CROWDED: TurnedAway = {
  status: 429,
  code: JSON_RPC.SERVER_ERROR,
  message:
    'Too many sessions: this caller has as many as one may have, and each of them is in use. End one with DELETE, or try again later',
};

export const DOUBLED: TurnedAway = {
  status: 400,
  code: JSON_RPC.INVALID_REQUEST,
  message: 'Invalid Request: a request id is in flight already',
};

/**
 * No session is named, and nothing else names a run. What stands below the middlewares by mistake
 * is told the cure.
 */
export const NAMELESS: TurnedAway = {
  status: 400,
  code: JSON_RPC.SERVER_ERROR,
  message:
    'Bad Request: Mcp-Session-Id header is required. ' +
    'It comes with the answer to initialize. A route that is not MCP must not stand behind sessionStore(): mount it with app.all() on the MCP route alone.',
};

const NOT_ALLOWED: TurnedAway = {
  status: 405,
  code: JSON_RPC.SERVER_ERROR,
  message: 'Method not allowed',
  headers: { allow: 'GET, POST, DELETE' },
};

/**
 * Only a POST carries messages (MCP 2025-11-25, Transports). An upstream that is less strict must
 * not find one that was not looked at.
 */
export function unfitRequest(req: RequestPort): TurnedAway | undefined {
  const { method } = req;
  if (method === 'POST') return undefined;
  if (method !== 'GET' && method !== 'DELETE' && method !== 'HEAD') return NOT_ALLOWED;
  if (!hasBody(req)) return undefined;
  const message = `Invalid Request: a ${method} has no body`;
  return { status: 400, code: JSON_RPC.INVALID_REQUEST, message };
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

/** Answers each request of an exchange so. */
export function turnAway(
  exchange: Exchange,
  { status, code, message, headers = {} }: TurnedAway,
): MaybePromise<undefined> {
  for (const [name, value] of Object.entries(headers)) exchange.tap.res.setHeader(name, value);
  return after(exchange.reject(status, code, message), () => undefined);
}

/**
 * A batch is answered as a whole, as SDK v2 does: where it names a version there are no batches.
 */
export function turnAwayContradiction(
  { tap, isBatch, messages }: Exchange,
  { code, message }: Contradiction,
): undefined {
  const id = isBatch ? undefined : messages[0]?.id;
  tap.respond(400, errorResponse(id ?? null, code, message));
}
