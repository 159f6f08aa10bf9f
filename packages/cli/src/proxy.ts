/**
 * The proxy between a gate and the MCP server behind it. Hides what a reverse proxy has to do for
 * event streams, for steps, and for a server that is not there.
 */
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { createProxyMiddleware } from 'http-proxy-middleware';
import { notForwarded } from 'mcp-interlock';

/** Options of {@link mcpProxy}. */
export interface McpProxyOptions {
  /** Called with the reason, in words, why the server did not answer a request. Default: none. */
  readonly onFault?: ((fault: string) => void) | undefined;
}

/** What {@link mcpProxy} returns: a handler of Node's form, for Express and its like. */
export type McpProxy = (
  req: IncomingMessage,
  res: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/**
 * Hands the requests of one route on to an MCP server. Mount it on the gate's own route, behind the
 * middlewares, and nothing else in front of that server:
 * `app.all('/mcp', sessionStore(), fsmGate(gate), mcpProxy('http://127.0.0.1:3001/mcp'))`.
 *
 * Where the server cannot be reached, or breaks off before it answers, the client gets 502 with a
 * JSON-RPC error. A redirect is a 502 too: a client that follows one goes round the gate.
 *
 * @param target the URL of the server's MCP endpoint. Every request goes to its path. Its query is
 * sent where it has one, and else that of the request.
 * @throws TypeError where `target` is no URL
 */
export function mcpProxy(target: string | URL, { onFault }: McpProxyOptions = {}): McpProxy {
  const { origin, pathname, search } = new URL(target);
  const report = (fault: string): void => onFault?.(`${origin}${pathname} ${fault}`);
  const onError: OnError = (error, req, res) => {
    // Of a client that has left, the proxy itself breaks the request off.
    if (!res.destroyed)
      report(`${hasConnected(error) ? 'broke off' : 'cannot be reached'}: ${error.code}`);
    fail(error, req, res);
  };
  const proxy = createProxyMiddleware<IncomingMessage, ServerResponse>({
    target: origin,
    // One path for each spelling of the route.
    pathRewrite: (path) => pathname + (search || queryOf(path)),
    // Servers that check the Host header see their own name.
    changeOrigin: true,
    on: {
      proxyReq(request, req, res) {
        onlyWhole(request, req);
        endWithoutAnswer(request, res, () => report('broke off without an answer'));
      },
      proxyRes(answer, _req, res) {
        // Node throws on `Trailer` beside a `Content-Length`, where nothing could catch it. It
        // frames the client's connection itself, and http-proxy has `Connection` say when that
        // ends.
        for (const name of HOP_BY_HOP) if (name !== 'connection') delete answer.headers[name];
        passOn(answer, res);
        if (refuseRedirect(answer)) report('answers with a redirect, which no client may follow');
      },
      error: onError,
      // Where the client has left, http-proxy calls a reset connection no error.
      econnreset: onError,
    },
  });

  return (req, res, next) => {
    dropHopByHop(req);
    void proxy(req, res, next);
  };
}

type OnError = typeof fail;

/** Errors of connections that never came about. After any other one the call may have run. */
const NEVER_CONNECTED = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'];

function fail(
  error: NodeJS.ErrnoException,
  req: IncomingMessage,
  res: ServerResponse | Socket,
): void {
  if (!hasConnected(error)) void notForwarded(req);
  if (!('writeHead' in res) || res.headersSent) res.destroy();
  else answerBadGateway(res, hasConnected(error) ? BROKEN : UNREACHABLE);
}

function hasConnected({ code = '' }: NodeJS.ErrnoException): boolean {
  return !NEVER_CONNECTED.includes(code);
}

const UNREACHABLE = 'The server behind the gate could not be reached. Nothing was sent to it.';
const BROKEN = 'The connection to the server behind the gate broke before it answered.';

/** Without an id: an error that named the call would be taken for the server's own. */
function answerBadGateway(res: ServerResponse, message: string): void {
  const body = JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32000, message } });
  // The server may break off when its own headers are set, and these describe another body.
  for (const name of ['transfer-encoding', 'content-encoding', 'etag']) res.removeHeader(name);
  const length = Buffer.byteLength(body);
  res.writeHead(502, { 'content-type': 'application/json', 'content-length': length }).end(body);
}

/**
 * A client that left while its request was looked at took the end of its body along: http-proxy
 * would wait for it for ever. Nothing was sent yet.
 */
function onlyWhole(request: ClientRequest, req: IncomingMessage): void {
  if (!req.destroyed || req.readableEnded) return;
  void notForwarded(req);
  request.destroy();
}

/** They concern one connection alone (RFC 9110, section 7.6.1). Node writes its own framing. */
const HOP_BY_HOP = ['connection', 'proxy-connection', 'keep-alive', 'te', 'trailer', 'upgrade'];

/**
 * A server that followed a client's `Upgrade` would leave HTTP, and answer nothing. What the app
 * has set stays, though a client names it: only what came with the request is the connection's.
 */
function dropHopByHop({ headers, rawHeaders }: IncomingMessage): void {
  const named = (headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase());
  for (const name of HOP_BY_HOP) delete headers[name];
  // Node has answered it with 100 already, and http-proxy calls no `proxyReq` where it is sent on.
  delete headers.expect;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] ?? '').toLowerCase();
    const isSent = headers[name] === rawHeaders[at + 1];
    if (isSent && named.includes(name) && !FRAMING.includes(name)) delete headers[name];
  }
}

/** A client's `Connection` must not take these away. */
const FRAMING = ['content-length', 'transfer-encoding', 'content-type', 'host'];

/** A connection may close without an answer and without an error, as after status 101. */
function endWithoutAnswer(request: ClientRequest, res: ServerResponse, report: () => void): void {
  let isAnswered = false;
  request.once('response', () => {
    isAnswered = true;
  });
  request.once('close', () => {
    if (isAnswered || res.headersSent || res.destroyed) return;
    report();
    answerBadGateway(res, BROKEN);
  });
}

/** What streams need, and http-proxy leaves out. */
function passOn(answer: IncomingMessage, res: ServerResponse): void {
  // The headers of a quiet stream go out now, and not with its first event, which may be minutes
  // away.
  process.nextTick(() => res.flushHeaders());
  // A server that dies in mid-answer ends the client's connection too, instead of leaving it open
  // for ever.
  answer.once('close', () => {
    if (!answer.complete) res.destroy();
  });
}

/** Makes a redirect an error: a client that followed it would reach the server without the gate. */
function refuseRedirect(answer: IncomingMessage): boolean {
  if (answer.headers.location === undefined) return false;
  const { statusCode = 0 } = answer;
  if (statusCode < 300 || statusCode > 399) return false;
  delete answer.headers.location;
  answer.statusCode = 502;
  answer.statusMessage = 'Bad Gateway';
  return true;
}

function queryOf(path: string): string {
  const at = path.indexOf('?');
  return at === -1 ? '' : path.slice(at);
}
