import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import express, { type Express } from 'express';
import { createProxyMiddleware } from 'http-proxy-middleware';
import {
  fsmGate,
  notForwarded,
  StateMachineGate,
  type StateStore,
  sessionStore,
  stateSync,
} from 'mcp-interlock';

/**
 * A report is measured, then checked, then announced: an order of which the server behind the gate
 * knows nothing.
 */
export const report = new StateMachineGate({
  id: 'report',
  initial: 'started',
  states: {
    started: { on: { MEASURED: 'measured' } },
    measured: { on: { MEASURED: 'measured', CHECKED: 'checked' } },
    checked: { on: { ANNOUNCED: 'started' } },
  },
})
  .bindTool('get-sum', ['started', 'measured'], 'MEASURED')
  .bindTool('trigger-long-running-operation', ['measured'], 'CHECKED')
  .bindTool('echo', ['checked'], 'ANNOUNCED');

/**
 * Stands in front of an MCP server that `target` names without its path: `http://127.0.0.1:3001`.
 */
export function gateInFrontOf(target: string, store?: StateStore): Express {
  const app = express();
  // One route for the gate and the proxy: no path that the one does not match reaches the other.
  app.all(
    '/mcp',
    sessionStore({ store }),
    // Shorter than the 10 minutes of the default: where the server dies in mid-call, the run stays
    // busy that long.
    fsmGate(report, { maxStepMs: 60_000 }),
    stateSync({ policies: [{ match: 'get-sum', invalidates: ['get-structured-content'] }] }),
    createProxyMiddleware<IncomingMessage, ServerResponse>({
      target,
      // Servers that check the Host header see their own name.
      changeOrigin: true,
      // Where the client has left, http-proxy calls a reset connection no error.
      on: { proxyReq: onlyWhole, proxyRes: passOn, error: fail, econnreset: fail },
    }),
  );
  return app;
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

/** What streams need, and http-proxy leaves out. */
function passOn(answer: IncomingMessage, _req: IncomingMessage, res: ServerResponse): void {
  // The headers of a quiet stream go out now, and not with its first event, which may be minutes
  // away.
  process.nextTick(() => res.flushHeaders());
  // A server that dies in mid-answer ends the client's connection too, instead of leaving it open
  // for ever.
  answer.once('close', () => {
    if (!answer.complete) res.destroy();
  });
}

/** Errors of connections that never came about. After any other one the call may have run. */
const NEVER_CONNECTED = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'];

function fail(
  error: NodeJS.ErrnoException,
  req: IncomingMessage,
  res: ServerResponse | Socket,
): void {
  if (NEVER_CONNECTED.includes(error.code ?? '')) void notForwarded(req);
  if (!('writeHead' in res) || res.headersSent) res.destroy();
  else res.writeHead(504).end('The server could not be reached.');
}
