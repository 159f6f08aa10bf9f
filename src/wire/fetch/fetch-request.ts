import type { RequestPort } from '../ports.ts';
import type { FetchBody } from './fetch-body.ts';

/** What the pipeline sees of a `Request`, and what it makes of its headers. */
export function requestPort(request: Request, auth: unknown): RequestPort {
  const headers: Record<string, string> = Object.create(null);
  for (const [name, value] of request.headers) headers[name] = value;
  return { method: request.method, url: request.url, headers, auth };
}

/**
 * The request that the handler is given: the client's, with the headers and the body that the
 * pipeline left.
 */
export function handlersRequest(
  request: Request,
  port: RequestPort,
  body: FetchBody | undefined,
  signal: AbortSignal,
): Request {
  const { method, url } = request;
  const headers = headersOf(port);
  if (body !== undefined && headers.has('content-length')) {
    headers.set('content-length', String(body.bytes.length));
  }
  const init = { method, headers, signal };
  const made = new Request(
    url,
    body === undefined ? { ...init, ...unreadBody(request) } : { ...init, body: body.bytes },
  );
  // Where `withMcpAuth()` of `mcp-handler` puts it, and looks for it.
  if (port.auth !== undefined) Object.assign(made, { auth: port.auth });
  return made;
}

/**
 * Only a POST carries messages (MCP 2025-11-25, Transports): a body that nobody looked at must not
 * reach the MCP server in another way.
 */
function unreadBody({ method, body }: Request): RequestInit {
  if (body === null || ['GET', 'HEAD', 'DELETE'].includes(method)) return {};
  return { body, duplex: 'half' };
}

function headersOf({ headers }: RequestPort): Headers {
  const made = new Headers();
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined) made.set(name, String(value));
  return made;
}
