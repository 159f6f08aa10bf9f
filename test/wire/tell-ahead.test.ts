import compression from 'compression';
import type { RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import type { Exchange } from '../../src/wire/exchange.ts';
import type { Filter } from '../../src/wire/filter.ts';
import { latch } from '../helpers/latch.ts';
import {
  type Answer,
  ask,
  CALL,
  HOSTS,
  header,
  MARKER,
  ONLOOKER,
  open,
  serve,
  type Upstream,
} from './wire-server.ts';

/*
 * We write to the client before its request is answered, and so begin the answer ourselves.
 */

const NOTE = { jsonrpc: '2.0', method: 'notifications/progress', params: { progress: 1 } };
const TOLD = `event: message\ndata: ${JSON.stringify(NOTE)}\n\n`;
const JSON_TYPE = { 'content-type': 'application/json' };
const SSE_TYPE = { 'content-type': 'text/event-stream' };
const RESULT = '{"jsonrpc":"2.0","id":1,"result":{"n":12345678901234567890}}';
const event = (data: string): string => `event: message\ndata: ${data}\n\n`;

/** Tells the client, and then joins the filters. */
const telling =
  (...filters: readonly Filter[]) =>
  ({ tap }: Exchange): readonly Filter[] => {
    tap.notifyAhead(NOTE);
    return filters;
  };

function streamed({ status, headers, body, complete }: Answer): string {
  expect([status, complete]).toEqual([200, true]);
  expect(headers).toContainEqual(['content-type', 'text/event-stream']);
  expect(headers).toContainEqual(['cache-control', 'no-cache, no-transform']);
  expect(headers.map(([name]) => name.toLowerCase())).not.toContain('content-length');
  const text = body.toString();
  expect(text.startsWith(TOLD)).toBe(true);
  return text.slice(TOLD.length);
}

/** The code and the words of the only message: an error that answers the request. */
function errorIn(stream: string): [number, string] {
  const [, data = ''] = /^event: message\ndata: (.*)\n\n$/.exec(stream) ?? [];
  const { id, error } = JSON.parse(data) as {
    id: unknown;
    error: { code: number; message: string };
  };
  expect(id).toBe(1);
  return [error.code, error.message];
}

describe.each(HOSTS)('the upstream’s answer behind a message of ours, on %s,', (host) => {
  it.each<[string, Upstream]>([
    [
      'with a length',
      (_req, res) =>
        res
          .writeHead(200, { ...JSON_TYPE, 'content-length': RESULT.length, etag: '"x"' })
          .end(RESULT),
    ],
    [
      'with headers set before',
      (_req, res) => {
        res.setHeader('content-type', 'application/json');
        res.setHeader('mcp-session-id', 's');
        res.end(RESULT);
      },
    ],
    [
      'in parts',
      (_req, res) => {
        res.writeHead(200, JSON_TYPE);
        res.write(RESULT.slice(0, 9));
        res.end(RESULT.slice(9));
      },
    ],
  ])('as JSON becomes one event, to the digit: %s', async (_, upstream) => {
    const { url, errors } = await serve(upstream, { host, filters: telling(ONLOOKER) });
    expect(streamed(await ask(url, { body: CALL }))).toBe(event(RESULT));
    expect(errors).toEqual([]);
  });

  it('as JSON of several lines becomes one event of several lines', async () => {
    const pretty = JSON.stringify(JSON.parse(RESULT), undefined, 1);
    const { url } = await serve((_req, res) => res.writeHead(200, JSON_TYPE).end(pretty), {
      host,
      filters: telling(),
    });
    const [first, ...lines] = streamed(await ask(url, { body: CALL })).split('\n');
    expect(first).toBe('event: message');
    expect(lines.map((line) => line.replace('data: ', '')).join('\n')).toBe(`${pretty}\n\n`);
  });

  it('as JSON is changed by the filters, which see it as ever', async () => {
    const result = '{"jsonrpc":"2.0","id":1,"result":{}}';
    const { url } = await serve((_req, res) => res.writeHead(200, JSON_TYPE).end(result), {
      host,
      filters: telling(MARKER),
    });
    expect(streamed(await ask(url, { body: CALL }))).toBe(
      event('{"jsonrpc":"2.0","id":1,"result":{"marked":true}}'),
    );
  });

  it('as a stream goes on byte for byte, with its ids and times', async () => {
    const body = `: hello\nid: 7\nretry: 20\ndata: \n\nid: 8\ndata: ${RESULT}\n\n`;
    const upstream: Upstream = (_req, res) => {
      res.writeHead(200, { ...SSE_TYPE, 'content-length': body.length });
      res.end(body);
    };
    const { url, exchanges } = await serve(upstream, { host, filters: telling(ONLOOKER) });
    expect(streamed(await ask(url, { body: CALL }))).toBe(body);
    expect(exchanges[0]?.tap.resumable).toBe(true);
  });

  it('reaches the client event by event', async () => {
    const firstCame = latch();
    const upstream: Upstream = async (_req, res) => {
      res.writeHead(200, SSE_TYPE).flushHeaders();
      res.write('data: {"jsonrpc":"2.0","method":"a"}\n\n');
      await firstCame.opened;
      res.end(event(RESULT));
    };
    const { url } = await serve(upstream, { host, filters: telling(ONLOOKER) });
    const reading = await open(url, { body: CALL });
    await reading.until('"method":"a"');
    firstCame.open();
    await reading.done;
    expect(reading.bytes.toString()).toContain(RESULT);
  });

  it.each<[string, number, Record<string, string>, string, [number, string]]>([
    [
      'a page',
      503,
      { 'content-type': 'text/html' },
      '<h1>Gone</h1>',
      [-32000, 'The server answered with HTTP 503 Service Unavailable'],
    ],
    [
      'no body',
      401,
      { 'www-authenticate': 'Bearer' },
      '',
      [-32000, 'The server answered with HTTP 401 Unauthorized'],
    ],
    [
      'an error for no request',
      404,
      JSON_TYPE,
      '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}',
      [-32001, 'The server answered with HTTP 404 Not Found: Session not found'],
    ],
    [
      'an error for this request',
      400,
      JSON_TYPE,
      '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"No such tool"}}',
      [-32602, 'No such tool'],
    ],
    [
      'an odd status',
      799,
      JSON_TYPE,
      '{"error":"invalid"}',
      [-32000, 'The server answered with HTTP 799'],
    ],
    ['nothing', 202, {}, '', [-32000, 'The server answered with HTTP 202 Accepted']],
  ])('with an error is told in words: %s', async (_, status, headers, body, told) => {
    const upstream: Upstream = (_req, res) => res.writeHead(status, headers).end(body);
    const { url, errors } = await serve(upstream, { host, filters: telling(ONLOOKER) });
    expect(errorIn(streamed(await ask(url, { body: CALL })))).toEqual(told);
    expect(errors).toEqual([]);
  });

  it.each<[string, Record<string, string>, string]>([
    ['compressed', { ...JSON_TYPE, 'content-encoding': 'gzip' }, RESULT],
    ['of another type', { 'content-type': 'text/plain' }, RESULT],
    ['no message', JSON_TYPE, '"hello"'],
  ])('which we cannot read becomes an error: %s', async (_, headers, body) => {
    const upstream: Upstream = (_req, res) => res.writeHead(200, headers).end(body);
    const { url, errors } = await serve(upstream, { host, filters: telling(ONLOOKER) });
    const [code, words] = errorIn(streamed(await ask(url, { body: CALL })));
    expect([code, words]).toEqual([-32603, expect.stringContaining('cannot read')]);
    expect(errors).toHaveLength(1);
  });

  it('is its own to the upstream, which sees an unsent head', async () => {
    const seen: unknown[] = [];
    const upstream: Upstream = (req, res) => {
      seen.push(res.headersSent, res.writableEnded, res.getHeader('content-type'));
      seen.push(req.headers['accept-encoding']);
      res.statusCode = 201;
      res.setHeader('Content-Type', 'application/json');
      res.appendHeader('x-own', 'a');
      res.removeHeader('x-none');
      seen.push(res.getHeader('x-own'), res.headersSent);
      res.write('');
      seen.push(res.headersSent, res.statusCode);
      expect(() => res.setHeader('x-late', 'a')).toThrow('after they are sent');
      expect(() => res.writeHead(200)).toThrow('after they are sent');
      res.end(RESULT);
      seen.push(res.writableEnded);
    };
    const { url } = await serve(upstream, { host, filters: telling(ONLOOKER) });
    const answer = await ask(url, { body: CALL, headers: { 'accept-encoding': 'gzip' } });
    expect(streamed(answer)).toBe(event(RESULT));
    expect(seen).toEqual([
      ...[false, false, undefined],
      'identity',
      ...[['a'], false],
      ...[true, 201],
      true,
    ]);
  });
});

describe('a message of ours before an answer', () => {
  it('leaves the filters the upstream’s head, of which they hear once', async () => {
    const seen: unknown[] = [];
    const { url } = await serve(
      (_req, res) => res.writeHead(404, { ...JSON_TYPE, 'x-behind': 'a' }).end('{}'),
      {
        filters: (exchange) => {
          const { res } = exchange.tap;
          const onHead = (): void => void seen.push(res.statusCode, res.getHeader('x-behind'));
          return telling({ stage: 'gate', onHead })(exchange);
        },
      },
    );
    streamed(await ask(url, { body: CALL }));
    expect(seen).toEqual([404, 'a']);
  });

  const json: Upstream = (_req, res) => res.writeHead(200, JSON_TYPE).end(RESULT);

  it('carries the headers that were set in front, and the upstream sees them too', async () => {
    const seen: unknown[] = [];
    const front: RequestHandler = (_req, res, next) => {
      res.setHeader('access-control-allow-origin', '*');
      res.setHeader('etag', '"of another body"');
      next();
    };
    const { url } = await serve(
      (_req, res) => {
        seen.push(res.getHeader('access-control-allow-origin'), res.getHeader('cache-control'));
        res.writeHead(200, { ...JSON_TYPE, 'x-behind': 'a' }).end(RESULT);
      },
      { host: 'express 5', front: [front], filters: telling() },
    );
    const answer = await ask(url, { body: CALL });
    expect(seen).toEqual(['*', undefined]);
    const names = ['access-control-allow-origin', 'etag', 'x-behind'];
    expect(names.map((name) => header(answer, name))).toEqual(['*', undefined, undefined]);
  });

  it('is not held back by a compressing middleware in front', async () => {
    const told = latch();
    const upstream: Upstream = async (_req, res) => {
      await told.opened;
      res.writeHead(200, JSON_TYPE).end(RESULT);
    };
    const { url, errors } = await serve(upstream, {
      host: 'express 5',
      front: [compression({ threshold: 0 })],
      filters: telling(ONLOOKER),
    });
    const reading = await open(url, { body: CALL, headers: { 'accept-encoding': 'gzip' } });
    await reading.until(TOLD);
    told.open();
    await reading.done;
    expect(errors).toEqual([]);
    expect(reading.bytes.toString()).toBe(TOLD + event(RESULT));
  });

  it('goes through a compressing middleware behind us, which compresses nothing', async () => {
    const { url, errors } = await serve(json, {
      host: 'express 5',
      behind: [compression({ threshold: 0 })],
      filters: telling(ONLOOKER),
    });
    const answer = await ask(url, { body: CALL, headers: { 'accept-encoding': 'gzip' } });
    expect([streamed(answer), errors]).toEqual([event(RESULT), []]);
  });

  it('stands in front of an answer of ours, and of none', async () => {
    const answer = { jsonrpc: '2.0', id: 1, result: { refused: true } };
    const answering = await serve(json, {
      filters: (exchange) => {
        void exchange.messages[0]?.answerWith(answer);
        return telling()(exchange);
      },
    });
    expect(streamed(await ask(answering.url, { body: CALL }))).toBe(event(JSON.stringify(answer)));
    const dropping = await serve(json, {
      filters: (exchange) => {
        void exchange.messages[0]?.drop();
        return telling()(exchange);
      },
    });
    expect(streamed(await ask(dropping.url, { body: CALL }))).toBe('');
  });

  it('stands in front of what the filters add at the end, in place of an error', async () => {
    const ours = { jsonrpc: '2.0', id: 1, result: { isError: true } };
    const adding: Filter = { stage: 'gate', wants: () => true, onEnd: () => [ours] };
    const { url } = await serve((_req, res) => res.writeHead(500).end('broken'), {
      filters: telling({ ...adding, holdsErrors: () => true }),
    });
    expect(streamed(await ask(url, { body: CALL }))).toBe(event(JSON.stringify(ours)));
  });

  it.each(['takesOver', 'onMessage'] as const)(
    'comes too late where the app has answered: %s',
    async (seen) => {
      const { url, errors } = await serve(json, {
        filters: ({ tap }) => [
          { stage: 'gate', wants: () => true, [seen]: () => tap.notifyAhead(NOTE) },
        ],
      });
      const answer = await ask(url, { body: CALL });
      expect([header(answer, 'content-type'), answer.body.toString()]).toEqual([
        'application/json',
        RESULT,
      ]);
      expect(errors).toEqual([]);
    },
  );

  it('leaves the client an end where the upstream breaks off', async () => {
    const told = latch();
    const upstream: Upstream = async (_req, res) => {
      await told.opened;
      res.destroy();
    };
    const { url } = await serve(upstream, { filters: telling(ONLOOKER) });
    const reading = await open(url, { body: CALL });
    await reading.until(TOLD);
    told.open();
    await reading.done;
    expect([reading.bytes.toString(), reading.response.complete]).toEqual([TOLD, false]);
  });
});
