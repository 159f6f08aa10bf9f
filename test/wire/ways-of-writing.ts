import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Response } from 'express';
import type { Upstream } from './wire-server.ts';

const RESULT =
  '{"jsonrpc":"2.0", "id":1,"result":{"n":12345678901234567890,"f":1.0,"é":"\\u00e9💶"}}';
const JSON_TYPE = { 'content-type': 'application/json' };
const SSE_TYPE = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform' };

/** Events, as different servers write them. */
const EVENTS =
  ': hello\n\n' +
  'id: 1\ndata: \n\n' +
  'retry: 20\r\nevent: message\r\nid: 2\r\n' +
  'data: {"jsonrpc":"2.0","method":"notifications/progress"}\r\n\r\n' +
  `event: message\rid: é\rdata:${RESULT}\r\r` +
  'event: ping\ndata: {"result":"not a message"}\n\n' +
  'data: {"jsonrpc":"2.0",\ndata:  "id":2,\ndata: "result":{}}\n\n' +
  ': bye\n\n';
const bytes = Buffer.from(EVENTS);

export interface Way {
  readonly name: string;
  readonly write: Upstream;
  /** The request; by default one that waits for a response. */
  readonly ask?: 'GET' | 'HEAD' | 'notification';
  readonly needsExpress?: boolean;
}

/** The ways in which an upstream may write a response. */
export const WAYS: readonly Way[] = [
  {
    name: 'writeHead, write, end',
    write: (_, res) => {
      res.writeHead(200, JSON_TYPE);
      res.write(RESULT.slice(0, 20));
      res.write(Buffer.from(RESULT.slice(20)));
      res.end();
    },
  },
  {
    name: 'writeHead and end with data',
    write: (_, res) => res.writeHead(200, JSON_TYPE).end(RESULT),
  },
  {
    name: 'implicit headers and end with data',
    write: (_, res) => res.setHeader('Content-Type', 'application/json').end(RESULT),
  },
  {
    name: 'implicit headers, write, end with data',
    write: (_, res) => {
      res.setHeader('Content-Type', 'application/json; charset=utf-8');
      res.write(RESULT.slice(0, 3));
      res.end(RESULT.slice(3));
    },
  },
  {
    name: 'a length and an etag',
    write: (_, res) => {
      const headers = {
        ...JSON_TYPE,
        'Content-Length': Buffer.byteLength(RESULT),
        ETag: '"x"',
        Digest: 'x',
      };
      res.writeHead(200, headers).end(RESULT);
    },
  },
  {
    name: 'a length that only the response itself knows, as an adapter to the Fetch API sets it',
    write: (_, res) => {
      Object.assign(res, { _contentLength: Buffer.byteLength(RESULT) });
      res.writeHead(200, JSON_TYPE).end(RESULT);
    },
  },
  {
    name: 'an explicit transfer encoding',
    write: (_, res) =>
      res.writeHead(200, { ...JSON_TYPE, 'Transfer-Encoding': 'chunked' }).end(RESULT),
  },
  {
    name: 'a flat list of headers, one of them twice',
    write: (_, res) => {
      const list = [
        'Content-Type',
        'application/json',
        'Set-Cookie',
        'a=1',
        'Set-Cookie',
        'b=2',
        'X-N',
        1,
      ];
      res.writeHead(200, list as string[]).end(RESULT);
    },
  },
  {
    name: 'a flat list of headers, one of them with several values',
    write: (_, res) => {
      const list = ['Content-Type', 'application/json', 'Set-Cookie', ['a=1', 'b=2']];
      res.writeHead(200, list).end(RESULT);
    },
  },
  {
    name: 'a list of pairs',
    write: (_, res) => {
      const pairs = [
        ['Content-Type', 'application/json'],
        ['Set-Cookie', ['a=1', 'b=2']],
      ];
      res.writeHead(200, pairs as never).end(RESULT);
    },
  },
  {
    name: 'a reason of its own',
    write: (_, res) => res.writeHead(200, 'Fine', JSON_TYPE).end(RESULT),
  },
  {
    name: 'a reason set beforehand',
    write: (_, res) => {
      res.statusMessage = 'Fine';
      res.writeHead(200, undefined, JSON_TYPE).end(RESULT);
    },
  },
  {
    name: 'res.json',
    needsExpress: true,
    write: (_, res) => (res as Response).json(JSON.parse(RESULT)),
  },
  {
    name: 'res.send',
    needsExpress: true,
    write: (_, res) => (res as Response).type('application/json').send(RESULT),
  },
  {
    name: 'string chunks in several encodings',
    write: (_, res) => {
      res.setHeader('content-type', 'application/json');
      res.write('7b226a736f6e727063223a', 'hex');
      res.write(Buffer.from('"2.0","id":1,').toString('base64'), 'base64');
      res.write('"result":{"', 'utf8');
      res.write(Buffer.from('é').toString('latin1'), 'latin1');
      res.end('":1}}', 'ascii');
    },
  },
  {
    name: 'callbacks, one after another',
    write: (_, res) => {
      res.writeHead(200, JSON_TYPE);
      res.write(RESULT.slice(0, 9), () =>
        res.write(RESULT.slice(9), 'utf8', () => res.end(() => {})),
      );
    },
  },
  {
    name: 'end twice',
    write: (_, res) => {
      res.writeHead(200, JSON_TYPE).end(RESULT);
      res.end();
    },
  },
  {
    name: 'events under implicit headers, each on its own',
    write: (_, res) => {
      for (const [name, value] of Object.entries(SSE_TYPE)) res.setHeader(name, value);
      res.flushHeaders();
      for (const event of EVENTS.split(/(?<=\n\n|\r\r)/)) res.write(event);
      res.end();
    },
  },
  {
    name: 'events all in one chunk, with a length',
    write: (_, res) => {
      res.writeHead(200, { ...SSE_TYPE, 'content-length': bytes.length });
      res.write(new Uint8Array(bytes));
      res.end();
    },
  },
  {
    name: 'events in single bytes',
    write: async (_, res) => {
      res.writeHead(200, SSE_TYPE);
      for (const byte of bytes) res.write(Buffer.of(byte));
      await new Promise(setImmediate);
      res.end();
    },
  },
  { name: 'events in end', write: (_, res) => res.writeHead(200, SSE_TYPE).end(EVENTS) },
  {
    name: 'events from one buffer that is used again, paced by callbacks',
    write: async (_, res) => {
      res.writeHead(200, SSE_TYPE);
      const buffer = Buffer.alloc(7);
      for (let at = 0; at < bytes.length; at += 7) {
        const length = bytes.copy(buffer, 0, at, at + 7);
        await new Promise<void>(
          (resolve) => void res.write(buffer.subarray(0, length), () => resolve()),
        );
        buffer.fill('x');
      }
      res.end();
    },
  },
  {
    name: 'a pipe',
    write: (_, res) =>
      pipeline(Readable.from(EVENTS.match(/.{1,11}/gs) ?? []), res.writeHead(200, SSE_TYPE)),
  },
  { name: 'no events at all', write: (_, res) => res.writeHead(200, SSE_TYPE).end() },
  {
    name: '202 under implicit headers',
    ask: 'notification',
    write: (_, res) => Object.assign(res, { statusCode: 202 }).end(),
  },
  { name: '202 by writeHead', ask: 'notification', write: (_, res) => res.writeHead(202).end() },
  { name: '204', ask: 'notification', write: (_, res) => res.writeHead(204).end() },
  {
    name: '204 under implicit headers',
    write: (_, res) => Object.assign(res, { statusCode: 204 }).end(),
  },
  { name: '202 to a request', write: (_, res) => Object.assign(res, { statusCode: 202 }).end() },
  { name: '304', ask: 'GET', write: (_, res) => res.writeHead(304, { etag: '"x"' }).end() },
  {
    name: 'a page',
    ask: 'GET',
    write: (_, res) => res.setHeader('content-type', 'text/html').end('<p>"tools"</p>'),
  },
  {
    name: 'bytes',
    ask: 'GET',
    write: (_, res) => {
      res.write(Buffer.from([0, 255, 254]));
      res.end(Buffer.of(1));
    },
  },
  { name: 'no type and no body', ask: 'GET', write: (_, res) => res.end() },
  { name: 'an empty end', ask: 'GET', write: (_, res) => res.end('') },
  {
    name: 'a page that is encoded',
    ask: 'GET',
    write: (_, res) =>
      res
        .writeHead(200, { 'content-encoding': 'br', 'content-type': 'text/css; charset=latin1' })
        .end('x'),
  },
  {
    name: 'trailers',
    ask: 'GET',
    write: (_, res) => {
      res.writeHead(200, { trailer: 'x-sum' });
      res.write('abc');
      res.addTrailers({ 'x-sum': '1' });
      res.end();
    },
  },
  {
    name: 'HEAD of JSON',
    ask: 'HEAD',
    write: (_, res) => res.writeHead(200, { ...JSON_TYPE, 'content-length': 7 }).end(),
  },
  {
    name: 'HEAD that is answered with a body',
    ask: 'HEAD',
    write: (_, res) => res.writeHead(200, JSON_TYPE).end(RESULT),
  },
  { name: 'HEAD under implicit headers', ask: 'HEAD', write: (_, res) => res.end() },
  {
    name: 'an error in plain text',
    write: (_, res) =>
      res.writeHead(401, { 'content-type': 'text/plain', 'www-authenticate': 'Bearer' }).end('no'),
  },
  {
    name: 'an error in JSON that is no message',
    write: (_, res) => res.writeHead(401, JSON_TYPE).end('"no \\u0000"'),
  },
  {
    name: 'an error that is encoded',
    write: (_, res) => res.writeHead(500, { ...JSON_TYPE, 'content-encoding': 'gzip' }).end('x'),
  },
  {
    name: 'an error in another charset',
    write: (_, res) =>
      res.writeHead(400, { 'content-type': 'application/json; charset=latin1' }).end('x'),
  },
  {
    name: 'a JSON-RPC error with its status',
    write: (_, res) =>
      res
        .writeHead(404, JSON_TYPE)
        .end('{"jsonrpc":"2.0","error":{"code":-32001,"message":"x"},"id":null}'),
  },
  {
    name: 'a redirection',
    write: (_, res) => res.writeHead(307, { location: '/elsewhere' }).end(),
  },
  {
    name: 'an error under implicit headers',
    write: (_, res) => Object.assign(res, { statusCode: 503 }).end('later'),
  },
  {
    name: 'a batch',
    write: (_, res) =>
      res.writeHead(200, JSON_TYPE).end(` [ ${RESULT} , {"jsonrpc":"2.0","method":"x"}]\n`),
  },
  { name: 'an empty batch', write: (_, res) => res.writeHead(200, JSON_TYPE).end('[ ]') },
  {
    name: 'a batch in an event',
    write: (_, res) => res.writeHead(200, SSE_TYPE).end(`data: [${RESULT}, ${RESULT}]\n\n`),
  },
];
