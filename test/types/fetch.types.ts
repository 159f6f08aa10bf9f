/**
 * Only the compiler checks this file. Under each `@ts-expect-error` stands what must not compile.
 */
import type { IncomingMessage } from 'node:http';
import type { Request as ExpressRequest, RequestHandler } from 'express';
import { createMcpHandler, withMcpAuth } from 'mcp-handler';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  fsmGate,
  type Middleware,
  StateMachineGate,
  sessionStore,
  stateSync,
} from '../../src/index.ts';

const gate = new StateMachineGate({ initial: 'open', states: { open: {} } });
const handler = async (_request: Request): Promise<Response> => new Response();
const sync = stateSync({ policies: [] });

// The same middlewares serve a fetch handler and Express.
const all: readonly [Middleware, ...Middleware[]] = [sessionStore(), fsmGate(gate), sync];
all satisfies readonly RequestHandler[];
const POST = gateFetch(handler, all);
POST satisfies (request: Request) => Promise<Response>;
gateFetch(() => new Response(), [sync], { auth: () => undefined });
withMcpAuth(
  gateFetch(
    createMcpHandler(() => {}),
    [sync],
  ),
  () => undefined,
);

// What a host passes beside the request keeps its type.
const withContext = gateFetch(
  async (_request: Request, _context: { id: string }) => new Response(),
  [sync],
);
void withContext(new Request('http://x'), { id: '1' });
// @ts-expect-error
void withContext(new Request('http://x'));
// @ts-expect-error
void withContext(new Request('http://x'), { id: 1 });

// Values that are no handler.
// @ts-expect-error
gateFetch(async () => 'text', [sync]);
// @ts-expect-error
gateFetch((_req: IncomingMessage) => new Response(), [sync]);
// @ts-expect-error
gateFetch(sync, [sync]);

// Values that are no middleware, or no list of them.
const ofExpress: RequestHandler = (_req, _res, next) => next();
// @ts-expect-error
gateFetch(handler, [ofExpress]);
// @ts-expect-error
gateFetch(handler, []);
// @ts-expect-error
gateFetch(handler, sync);
// @ts-expect-error
gateFetch(handler, [gate]);
// @ts-expect-error
gateFetch(handler, [sessionStore]);

// Options.
// @ts-expect-error
gateFetch(handler, [sync], { atuh: () => undefined });
// @ts-expect-error
gateFetch(handler, [sync], { auth: () => 'ann' });

// principal() may need more of a request than every host has.
sessionStore({ principal: (req) => String(req.headers['x-user']) });
sessionStore({ principal: (req: IncomingMessage) => req.socket.remoteAddress });
sessionStore({ principal: (req: ExpressRequest) => req.get('x-user') });
// @ts-expect-error
sessionStore({ principal: async () => 'ann' });
// @ts-expect-error
sessionStore({ principal: (req: { user: string }) => req.user });
