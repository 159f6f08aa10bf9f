import {
  type ClientHttp2Session,
  connect,
  createServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { fsmGate, type Middleware, sessionStore, stateSync } from '../src/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { callOf, INITIALIZE } from './helpers/raw.ts';

const MAKERS: Readonly<Record<string, (onError: (error: unknown) => void) => Middleware>> = {
  'sessionStore()': (onError) => sessionStore({ onError }),
  'fsmGate()': (onError) => fsmGate(checkoutGate(), { onError }),
  'stateSync()': (onError) => stateSync({ policies: [], onError }),
};

interface Answer {
  readonly headers: IncomingHttpHeaders & { readonly ':status'?: number };
  readonly body: string;
}

async function ask(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body?: unknown,
): Promise<Answer> {
  const stream = session.request({ ':path': '/mcp', ...headers });
  const head = new Promise<IncomingHttpHeaders>((resolve, reject) => {
    stream.once('response', resolve).once('error', reject);
  });
  stream.end(body === undefined ? undefined : JSON.stringify(body));
  let text = '';
  for await (const chunk of stream.setEncoding('utf8')) text += chunk;
  return { headers: await head, body: text };
}

describe.each(Object.entries(MAKERS))('%s on a server of node:http2', (_, make) => {
  it.each<[string, OutgoingHttpHeaders, unknown]>([
    ['initialize', { ':method': 'POST' }, INITIALIZE],
    ['a call whose length no header states', { ':method': 'POST' }, callOf('payment.process', {})],
    ['GET', { ':method': 'GET', accept: 'text/event-stream' }, undefined],
    ['OPTIONS', { ':method': 'OPTIONS' }, undefined],
    ['OPTIONS with a body', { ':method': 'OPTIONS' }, callOf('payment.process', {})],
  ])(
    'refuses %s with 505, hands nothing on, and tells the operator why',
    async (_name, headers, body) => {
      const errors: unknown[] = [];
      let handedOn = 0;
      const middleware = make((error) => errors.push(error));
      const server = createServer((req: Http2ServerRequest, res: Http2ServerResponse) => {
        middleware(req as never, res as never, () => {
          handedOn += 1;
          res.end();
        });
      }).listen(0, '127.0.0.1');
      await new Promise((resolve) => server.once('listening', resolve));
      const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
      onTestFinished(async () => {
        await new Promise<void>((resolve) => session.close(resolve));
        await new Promise((resolve) => server.close(resolve));
      });
      const answer = await ask(session, { 'content-type': 'application/json', ...headers }, body);
      expect(answer.headers[':status']).toBe(505);
      expect(JSON.parse(answer.body)).toEqual({
        jsonrpc: '2.0',
        id: null,
        error: { code: -32600, message: 'This route does not serve HTTP/2.0, only HTTP/1.1' },
      });
      expect(handedOn).toBe(0);
      expect(errors).toMatchObject([
        {
          code: 'ERR_INTERLOCK_MOUNT',
          message: expect.stringContaining('let a proxy speak HTTP/2'),
        },
      ]);
    },
  );
});
