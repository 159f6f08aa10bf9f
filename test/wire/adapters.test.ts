import type { IncomingMessage } from 'node:http';
import { configure } from '@codegenie/serverless-express';
import fastifyExpress from '@fastify/express';
import fastifyMiddie from '@fastify/middie';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Express, type Request, type RequestHandler, type Response } from 'express';
import fastify, { type FastifyInstance } from 'fastify';
import inject from 'light-my-request';
import serverlessHttp from 'serverless-http';
import { describe, expect, it } from 'vitest';
import { fsmGate, sessionStore } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { callOf, INITIALIZE } from '../helpers/raw.ts';
import { express4 } from './wire-server.ts';

interface Answer {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

type Send = (message: object, headers?: Readonly<Record<string, string>>) => Promise<Answer>;

const HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  host: 'shop.example',
};

/** What API Gateway gives an AWS Lambda function. */
function lambdaEvent(message: object, headers: Readonly<Record<string, string>>) {
  const body = JSON.stringify(message);
  const http = { method: 'POST', path: '/mcp', sourceIp: '192.0.2.1', protocol: 'HTTP/1.1' };
  return {
    version: '2.0',
    rawPath: '/mcp',
    rawQueryString: '',
    headers: { ...HEADERS, 'content-length': String(Buffer.byteLength(body)), ...headers },
    requestContext: { http: { ...http, userAgent: 'a test' }, requestId: 'r-1' },
    body,
    isBase64Encoded: false,
  };
}

async function injected(app: Express | FastifyInstance, message: object, headers = {}) {
  const request = {
    method: 'POST',
    url: '/mcp',
    headers: { ...HEADERS, ...headers },
    payload: message,
  } as const;
  const answer = await ('inject' in app ? app.inject(request) : inject(app as never, request));
  return { statusCode: answer.statusCode, headers: answer.headers, body: answer.body };
}

/** Hosts that hand Express a request that Node's HTTP server did not make. */
const ADAPTERS: Readonly<Record<string, (app: Express) => Send>> = {
  '@codegenie/serverless-express': (app) => {
    const handle = configure({ app }) as unknown as (event: object, context: object) => unknown;
    return async (message, headers = {}) =>
      (await handle(lambdaEvent(message, headers), {})) as Answer;
  },
  'serverless-http': (app) => {
    // The SDK reads the raw headers, which this adapter leaves out.
    const request = (req: IncomingMessage): void => {
      req.rawHeaders = Object.entries(req.headers as Record<string, string>).flat();
    };
    const handle = serverlessHttp(app, { request });
    return async (message, headers = {}) =>
      (await handle(lambdaEvent(message, headers), {})) as Answer;
  },
  'light-my-request': (app) => (message, headers) => injected(app, message, headers),
};

const PARSERS = ['none', 'in front', 'behind'] as const;

function appOf(
  create: typeof express,
  parser: (typeof PARSERS)[number],
  isGated: boolean,
  upstream: RequestHandler,
): Express {
  const json = express.json() as RequestHandler;
  const app = create();
  app.post(
    '/mcp',
    ...(parser === 'in front' ? [json] : []),
    ...(isGated ? gated() : []),
    ...(parser === 'behind' ? [json] : []),
    upstream,
  );
  return app;
}

const gated = () =>
  [sessionStore(), fsmGate(checkoutGate())] as readonly unknown[] as RequestHandler[];

/** Tells what it finds in `req.body`, or else in the stream. */
const tellBody: RequestHandler = async (req, res) => {
  const chunks: Buffer[] = [];
  if (req.body === undefined) for await (const chunk of req) chunks.push(chunk);
  const isBytes = req.body === undefined || Buffer.isBuffer(req.body);
  const found = isBytes ? JSON.parse(String(req.body ?? Buffer.concat(chunks))) : req.body;
  const result = { isBytes, method: found.method };
  res.json({ jsonrpc: '2.0', id: found.id, result });
};

/** As the SDK's page shows it. */
const serveTools: RequestHandler = async (req: Request, res: Response) => {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  for (const name of ['cart.add_item', 'cart.pay'])
    server.registerTool(name, {}, () => ({ content: [{ type: 'text', text: `${name} done` }] }));
  const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
  await server.connect(transport as Parameters<typeof server.connect>[0]);
  await transport.handleRequest(req, res, req.body);
};

// First, since light-my-request changes the prototypes of Express.
describe('in front of Fastify', () => {
  const HOSTS: Readonly<Record<string, (app: FastifyInstance) => Promise<unknown>>> = {
    '@fastify/middie': async (app) => app.register(fastifyMiddie),
    '@fastify/express': async (app) => app.register(fastifyExpress),
  };
  it.each(Object.entries(HOSTS))(
    "%s leaves the body to Fastify's own parser",
    async (_, register) => {
      const app = fastify();
      await register(app);
      for (const each of gated()) (app as unknown as Express).use('/mcp', each);
      app.post('/mcp', async (req) => {
        const { id, method } = req.body as { id: number; method: string };
        return { jsonrpc: '2.0', id, result: { method } };
      });
      const origin = await app.listen({ port: 0, host: '127.0.0.1' });
      try {
        const body = JSON.stringify(INITIALIZE);
        const headers = { 'content-type': 'application/json', accept: HEADERS.accept };
        const answer = await fetch(`${origin}/mcp`, { method: 'POST', headers, body });
        expect(await answer.json()).toMatchObject({ result: { method: 'initialize' } });
      } finally {
        await app.close();
      }
    },
  );

  it("leaves the body to Fastify's own parser where a test injects the request", async () => {
    const app = fastify();
    await app.register(fastifyMiddie);
    for (const each of gated()) app.use('/mcp', each as never);
    app.post('/mcp', async (req) => {
      const { id, method } = req.body as { id: number; method: string };
      return { jsonrpc: '2.0', id, result: { method } };
    });
    const { body } = await injected(app, INITIALIZE);
    expect(JSON.parse(body)).toMatchObject({ result: { method: 'initialize' } });
  });
});

describe.each(Object.entries(ADAPTERS))('behind %s', (_, adapt) => {
  describe.each([
    ['Express 4', express4],
    ['Express 5', express],
  ])('%s', (__, create) => {
    it.each(PARSERS)(
      'finds the body where the bare app does, with a parser: %s',
      async (parser) => {
        const asked = async (isGated: boolean) =>
          JSON.parse((await adapt(appOf(create, parser, isGated, tellBody))(INITIALIZE)).body);
        const answer = await asked(true);
        expect(answer).toEqual(await asked(false));
        expect(answer.result.method).toBe('initialize');
      },
    );

    it.each(['in front', 'behind'] as const)('gates the SDK, with a parser %s', async (parser) => {
      const send = adapt(appOf(create, parser, true, serveTools));
      const { statusCode, headers } = await send(INITIALIZE);
      expect(statusCode).toBe(200);
      const session = { 'mcp-session-id': String(headers['mcp-session-id']) };
      const call = async (name: string) =>
        JSON.parse((await send(callOf(2, name), session)).body).result;
      // The same id twice: a request that was answered is in flight no more.
      expect(await call('cart.pay')).toMatchObject({ isError: true });
      expect(await call('cart.add_item')).toMatchObject({
        content: [{ text: 'cart.add_item done' }],
      });
    });
  });
});
