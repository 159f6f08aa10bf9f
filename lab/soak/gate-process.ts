/**
 * A gate in a process of its own: the documented proxy behind the middlewares, for both eras. Its
 * parent tells it to let its clock jump, to drain, or to say what it holds.
 */
import { Agent, type ClientRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, Socket } from 'node:net';
import express, { type RequestHandler } from 'express';
import { createProxyMiddleware } from 'http-proxy-middleware';
import { createClient } from 'redis';
import { redisBus } from '../../src/bus/redis.ts';
import {
  type Clock,
  fsmGate,
  notForwarded,
  principalKey,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { gateOf, SHOP } from '../checker/machines.ts';
import type { GateSettings, Holdings, Order } from './fleet.ts';

const settings: GateSettings = JSON.parse(process.argv[2] ?? '');
const quiet = { onError() {}, onWarning() {} };

/**
 * The system's clock, but for its jumps. Timers do not jump, as in a process whose clock was set.
 */
let jumped = 0;
const clock: Clock = {
  now: () => Date.now() + jumped,
  after(ms, task) {
    const timer = setTimeout(task, ms).unref();
    return () => clearTimeout(timer);
  },
};

const client = createClient({
  url: settings.store,
  disableOfflineQueue: true,
  socket: {
    connectTimeout: 1000,
    reconnectStrategy: (retries) => Math.min(50 * 2 ** retries, 500),
  },
});
client.on('error', () => {});
await client.connect();

const sessions = sessionStore({
  store: redisStore({ client }),
  bus: redisBus({ client, heartbeatMs: 1_000, onError() {} }),
  key: [sessionKey(), principalKey()],
  idleMs: settings.idleMs,
  clock,
  ...quiet,
});
const gate = fsmGate(gateOf(SHOP), {
  visibility: 'hide',
  leaseMs: settings.leaseMs,
  waitMs: settings.waitMs,
  clock,
  ...quiet,
});

/** As in the documented proxy. */
function onlyWhole(request: ClientRequest, req: IncomingMessage): void {
  if (!req.destroyed || req.readableEnded) return;
  void notForwarded(req);
  request.destroy();
}

function fail(
  error: NodeJS.ErrnoException,
  req: IncomingMessage,
  res: ServerResponse | Socket,
): void {
  if (error.code === 'ECONNREFUSED') void notForwarded(req);
  if (!('writeHead' in res)) return;
  if (!res.headersSent) res.writeHead(502);
  res.end();
}

const proxy = createProxyMiddleware<IncomingMessage, ServerResponse>({
  target: settings.upstream,
  // No connection outlives its request, so that none is left of the load.
  agent: new Agent({ keepAlive: false }),
  // Where the client has left, http-proxy calls a reset connection no error.
  on: { proxyReq: onlyWhole, error: fail, econnreset: fail },
});

/** `req.auth` as authentication leaves it. */
const authenticate: RequestHandler = (req, _res, next) => {
  const user = req.headers['x-user'];
  if (typeof user === 'string') {
    const extra = { iss: settings.issuer, sub: user };
    Object.assign(req, { auth: { token: 'token', clientId: 'app', scopes: [], extra } });
  }
  next();
};

const app = express();
app.use(authenticate);
app.all('/mcp', sessions as RequestHandler, gate as RequestHandler, proxy as RequestHandler);
const server = app.listen(0, '127.0.0.1', () =>
  process.send?.({ port: (server.address() as AddressInfo).port }),
);

const sockets = new Set<string>();
server.on('connection', (socket) => {
  const name = `client at ${socket.remotePort}`;
  sockets.add(name);
  socket.on('close', () => sockets.delete(name));
});

/** To whom this process has connections that it opened: to the store, or to an upstream. */
function connectionsOut(): string[] {
  const { _getActiveHandles: handles } = process as { _getActiveHandles?: () => unknown[] };
  return (handles?.call(process) ?? []).flatMap((handle) => {
    if (!(handle instanceof Socket) || handle.remotePort === undefined) return [];
    if (handle.localPort === listeningPort()) return [];
    const isUpstream = String(handle.remotePort) === new URL(settings.upstream).port;
    return [`connection to ${isUpstream ? 'the upstream' : 'the store'}`];
  });
}

const listeningPort = (): number => (server.address() as AddressInfo).port;

function holdings(): Holdings {
  globalThis.gc?.();
  const resources: Record<string, number> = {};
  for (const name of [...process.getActiveResourcesInfo(), ...connectionsOut()])
    resources[name] = (resources[name] ?? 0) + 1;
  const listeners = client
    .eventNames()
    .reduce((sum, name) => sum + client.listenerCount(name), process.eventNames().length);
  return { heap: process.memoryUsage().heapUsed, resources, listeners, sockets: [...sockets] };
}

process.on('message', async (order: Order) => {
  if (order.kind === 'jump') jumped += order.ms;
  if (order.kind === 'measure') process.send?.(holdings());
  if (order.kind !== 'drain') return;
  server.close();
  await sessions.close({ drainMs: order.ms });
  // What is still open are the upstream's own streams, which have no end.
  server.closeAllConnections();
  process.exit();
});
process.on('disconnect', () => process.exit());
