import type { AddressInfo } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import express, { type RequestHandler } from 'express';
import { Hono } from 'hono';
import { describe, expect, it, onTestFinished } from 'vitest';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  fsmGate,
  type Middleware,
  principalKey,
  type SessionStoreOptions,
  sessionStore,
  stateSync,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { callOf, INITIALIZE, send } from '../helpers/raw.ts';

const LIST = {
  jsonrpc: '2.0',
  id: 1,
  result: { tools: [{ name: 'cart.pay' }, { name: 'cart.view' }] },
};
const SHOWN = { ...LIST, result: { tools: [{ name: 'cart.view' }] } };

/** What the app serves below the path of the middlewares: type and body. */
const ROUTES: Readonly<Record<string, readonly [type: string, body: string]>> = {
  '/mcp': ['application/json', '{"jsonrpc":"2.0","id":1,"result":{}}'],
  '/mcp/health': ['application/json', '{ "ok":true, "big": 12345678901234567890 }'],
  '/mcp/words': ['application/json', '["\\u00e9", "tools"]'],
  '/mcp/page': ['text/html', '<p>the tools</p>'],
  '/mcp/list': ['application/json', JSON.stringify(LIST)],
  '/mcp/events': ['text/event-stream', `data: ${JSON.stringify(LIST)}\n\n`],
};

type Serve = (middlewares: readonly [Middleware, ...Middleware[]]) => RequestHandler;

const HOSTS: Readonly<Record<string, Serve>> = {
  'app.use()': (middlewares) => {
    const app = express();
    app.use('/mcp', ...(middlewares as readonly RequestHandler[]));
    for (const [path, [type, body]] of Object.entries(ROUTES))
      app.all(path, (_req, res) => void res.set('content-type', type).end(body));
    return app;
  },
  'gateFetch()': (middlewares) => {
    const app = new Hono();
    for (const [path, [type, body]] of Object.entries(ROUTES))
      app.all(path, (c) => c.body(body, 200, { 'content-type': type }));
    const listener = getRequestListener(gateFetch((request) => app.fetch(request), middlewares));
    return (req, res) => void listener(req, res);
  },
};

const KEYS: Readonly<Record<string, SessionStoreOptions>> = {
  sessions: {},
  principals: { key: principalKey(), principal: () => 'ann' },
};

const cases = Object.keys(HOSTS).flatMap((host) =>
  Object.keys(KEYS).map((keys) => ({ host, keys })),
);

describe.each(cases)('another route below $host, with runs by $keys', ({ host, keys }) => {
  async function start() {
    const errors: unknown[] = [];
    const onError = (error: unknown): void => void errors.push(error);
    const onWarning = (): void => {};
    const handler = HOSTS[host]?.([
      sessionStore({ ...KEYS[keys], onError, onWarning }),
      fsmGate(checkoutGate(), { onError, onWarning }),
      stateSync({ policies: [], onError }),
    ]) as RequestHandler;
    const server = express().use(handler).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    onTestFinished(() => void server.close().closeAllConnections());
    const { port } = server.address() as AddressInfo;
    const get = (path: string, accept = '*/*', method = 'GET') =>
      send(new URL(path, `http://127.0.0.1:${port}`), { method, headers: { accept } });
    return { get, errors, url: new URL(`http://127.0.0.1:${port}/mcp`) };
  }

  it.each(['/mcp/health', '/mcp/words', '/mcp/page'])(
    'answers as without the middlewares: %s',
    async (path) => {
      const { get, errors } = await start();
      for (const accept of ['*/*', 'application/json', 'text/html, image/*;q=0.8']) {
        const { status, text, headers } = await get(path, accept);
        expect([status, text]).toEqual([200, ROUTES[path]?.[1]]);
        expect(headers['content-type']).toContain(ROUTES[path]?.[0]);
      }
      const head = await get(path, '*/*', 'HEAD');
      expect([head.status, head.text]).toEqual([200, '']);
      expect(errors).toEqual([]);
    },
  );

  it.each(['/mcp/list', '/mcp/events'])('shows no list that a run hides: %s', async (path) => {
    const { get } = await start();
    expect((await get(path)).messages).toEqual([SHOWN]);
  });

  it('is MCP where it asks for a stream, names a session or resumes', async () => {
    const { url } = await start();
    for (const method of ['GET', 'HEAD']) {
      const session = { accept: '*/*', 'mcp-session-id': 'nobody' };
      expect((await send(url, { method, headers: session })).status).toBe(404);
      for (const headers of [
        { accept: 'Text/Event-Stream;q=0.5, */*' },
        { accept: '*/*', 'last-event-id': '1' },
      ]) {
        const { status, text } = await send(url, { method, headers });
        expect(status).toBe(keys === 'sessions' ? 400 : 200);
        if (status === 400 && method === 'GET') expect(text).toContain('app.all()');
        if (method === 'HEAD') expect(text).toBe('');
      }
    }
  });

  it('is judged like MCP where it is a POST', async () => {
    const { url } = await start();
    for (const path of ['/mcp', '/mcp/health', '/mcp/list']) {
      const { status, messages } = await send(new URL(path, url), { body: callOf(1, 'cart.pay') });
      if (keys === 'sessions') expect(status).toBe(400);
      else expect(messages[0]?.result._meta['mcp-interlock/refusal'].reason).toBe('state');
    }
    expect((await send(url, { body: INITIALIZE })).status).toBe(200);
  });
});
