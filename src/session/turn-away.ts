import type { Contradiction } from '../wire/era.ts';
import type { Exchange } from '../wire/exchange.ts';
import { hasBody } from '../wire/headers.ts';
import { errorResponse, JSON_RPC } from '../wire/json-rpc.ts';

/** Only a POST carries messages (MCP 2025-11-25, Transports). An upstream that is less strict must not find one that nobody looked at. */
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

/** A batch is answered as a whole, as SDK v2 does: where it names a version there are no batches. */
export async function turnAwayContradiction(
  { tap, isBatch, messages }: Exchange,
  { code, message }: Contradiction,
): Promise<undefined> {
  const id = isBatch ? undefined : messages[0]?.id;
  tap.respond(400, errorResponse(id ?? null, code, message));
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

/** The session that the request names never was, or is over (MCP 2025-11-25, Transports, "Session Management"). */
export function turnAwayUnknown(exchange: Exchange): Promise<undefined> {
  return turnAway(exchange, 404, JSON_RPC.SESSION_NOT_FOUND, 'Session not found');
}
