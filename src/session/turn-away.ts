import type { Exchange } from '../wire/exchange.ts';
import { requestHeader } from '../wire/headers.ts';
import { JSON_RPC } from '../wire/json-rpc.ts';

/** Only a POST carries messages (MCP 2025-11-25, Transports). An upstream that is less strict must not find one that nobody looked at. */
export function unfitRequest(exchange: Exchange): Promise<undefined> | undefined {
  const { req, tap } = exchange;
  if (req.method === 'POST') return undefined;
  if (req.method !== 'GET' && req.method !== 'DELETE' && req.method !== 'HEAD') {
    tap.res.setHeader('allow', 'GET, POST, DELETE');
    return turnAway(exchange, 405, JSON_RPC.SERVER_ERROR, 'Method not allowed');
  }
  const isEmpty =
    requestHeader(req, 'transfer-encoding') === undefined &&
    Number(requestHeader(req, 'content-length') ?? 0) === 0;
  if (isEmpty) return undefined;
  return turnAway(exchange, 400, JSON_RPC.INVALID_REQUEST, `Invalid Request: a ${req.method} has no body`);
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
