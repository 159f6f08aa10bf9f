import { createParser } from 'eventsource-parser';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Exchange } from '../../src/wire/exchange.ts';
import type { Filter } from '../../src/wire/filter.ts';
import type { JsonObject } from '../../src/wire/json-rpc.ts';
import { latch } from '../helpers/latch.ts';
import {
  type Answer,
  ask,
  CALL,
  header,
  LIST,
  MARKER,
  ONLOOKER,
  serve,
  type Upstream,
} from './wire-server.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const SSE_TYPE = { 'content-type': 'text/event-stream' };
const RESULT = '{"jsonrpc":"2.0", "id":1,"result":{"n":12345678901234567890,"f":1.0}}';
const MARKED =
  '{"jsonrpc":"2.0", "id":1,"result":{"n":12345678901234567890,"f":1.0,"marked":true}}';
const NOTICE = '{"jsonrpc":"2.0","method":"notifications/progress"}';
const INITIALIZE = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}';

const json =
  (body: string, headers: Record<string, string> = {}): Upstream =>
  (_req, res) =>
    res
      .writeHead(200, {
        ...JSON_TYPE,
        'content-length': String(Buffer.byteLength(body)),
        ...headers,
      })
      .end(body);
const sse =
  (...chunks: (string | Buffer)[]): Upstream =>
  (_req, res) => {
    res.writeHead(200, SSE_TYPE);
    for (const chunk of chunks) res.write(chunk);
    res.end();
  };

interface Read {
  readonly id: string | undefined;
  readonly event: string | undefined;
  readonly data: string;
}

function eventsIn(body: Buffer): Read[] {
  const events: Read[] = [];
  createParser({ onEvent: ({ id, event, data }) => void events.push({ id, event, data }) }).feed(
    body.toString(),
  );
  return events;
}

const dataIn = ({ body }: Answer): unknown[] => eventsIn(body).map(({ data }) => JSON.parse(data));

/** Answers the messages with these ids, in front of the upstream. */
const answering =
  (...ids: unknown[]) =>
  (exchange: Exchange): Filter[] => {
    for (const incoming of exchange.messages) {
      if (!ids.includes(incoming.id)) continue;
      void incoming.answerWith({
        jsonrpc: '2.0',
        id: incoming.id,
        result: { answered: 'here' },
      });
    }
    return [ONLOOKER];
  };
const here = (id: unknown): JsonObject => ({ jsonrpc: '2.0', id, result: { answered: 'here' } });
const BATCH = '[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]';

describe('a message that a filter changes', () => {
  it('in a JSON body goes out with its new length, without headers of the old bytes', async () => {
    const headers = {
      etag: '"x"',
      digest: 'y',
      'x-own': 'z',
      'content-type': 'application/vnd.x+json',
    };
    const { url } = await serve(json(RESULT, headers), { filters: () => [MARKER] });
    const answer = await ask(url, { body: LIST });
    expect(answer.body.toString()).toBe(MARKED);
    expect(header(answer, 'content-length')).toBe(String(Buffer.byteLength(MARKED)));
    expect(header(answer, 'x-own')).toBe('z');
    expect(header(answer, 'content-type')).toBe('application/vnd.x+json');
    expect([header(answer, 'etag'), header(answer, 'digest')]).toEqual([undefined, undefined]);
  });

  it('may come in chunks, with a transfer encoding and a trailer', async () => {
    const upstream: Upstream = (_req, res) => {
      res.writeHead(200, { ...JSON_TYPE, 'transfer-encoding': 'chunked', trailer: 'x' });
      res.write(RESULT.slice(0, 5));
      res.end(RESULT.slice(5));
    };
    const { url } = await serve(upstream, { filters: () => [MARKER] });
    const answer = await ask(url, { body: LIST });
    expect([answer.body.toString(), answer.complete]).toEqual([MARKED, true]);
    expect(header(answer, 'transfer-encoding')).toBeUndefined();
  });

  it('in a batch leaves the others to the letter', async () => {
    const { url } = await serve(json(` [ ${NOTICE}, ${RESULT} ]`), { filters: () => [MARKER] });
    expect((await ask(url, { body: LIST })).body.toString()).toBe(`[${NOTICE},${MARKED}]`);
  });

  it('in an event leaves its id, comments and retry time, wherever the stream is cut', async () => {
    const stream =
      `: one\nid: 7\nretry: 5\ndata: {"jsonrpc":"2.0",\ndata: "id":1,"result":{"é":"💶"}}\n\n` +
      `id: 8\r\ndata: ${NOTICE}\r\n\r\n` +
      `event: message\rdata: [${RESULT},${NOTICE}]\r\r`;
    let chunks: Buffer[] = [];
    const upstream: Upstream = (req, res) => sse(...chunks)(req, res);
    const { url } = await serve(upstream, { filters: () => [MARKER] });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(), { maxLength: 8 }), async (places) => {
        const whole = Buffer.from(stream);
        const cuts = [...places.map((place) => place % whole.length), whole.length].sort(
          (a, b) => a - b,
        );
        chunks = cuts.map((end, index) => whole.subarray(cuts[index - 1] ?? 0, end));
        const { body } = await ask(url, { body: LIST });
        expect(eventsIn(body)).toEqual([
          {
            id: '7',
            event: undefined,
            data: '{"jsonrpc":"2.0",\n"id":1,"result":{"é":"💶","marked":true}}',
          },
          { id: '8', event: undefined, data: NOTICE },
          { id: undefined, event: 'message', data: `[${MARKED},${NOTICE}]` },
        ]);
        expect(body.toString()).toContain(': one\n');
        expect(body.toString()).toContain('retry: 5\n');
        expect(body.toString()).toContain(`id: 8\r\ndata: ${NOTICE}\r\n`);
      }),
      { numRuns: 30 },
    );
  });

  it('may be changed by several filters, each after the one before', async () => {
    const order: string[] = [];
    const filter = (stage: Filter['stage']): Filter => ({
      stage,
      wants: () => true,
      onMessage: async (message) => {
        await new Promise(setImmediate);
        order.push(`${stage} sees ${JSON.stringify(message.at('result'))}`);
        message.set(['result'], stage);
      },
    });
    const { url } = await serve(json('{"jsonrpc":"2.0","id":1,"result":0}'), {
      filters: () => [filter('sync'), filter('gate'), filter('session')],
    });
    const answer = await ask(url, { body: LIST });
    expect(order).toEqual(['session sees 0', 'gate sees "session"', 'sync sees "gate"']);
    expect(answer.body.toString()).toBe('{"jsonrpc":"2.0","id":1,"result":"sync"}');
  });
});

describe('a message that no filter wants', () => {
  it.each([
    ['a JSON body', json('{"not even JSON')],
    ['an event', sse('data: {"not even JSON\n\n')],
  ])('is not parsed, in %s', async (_, upstream) => {
    const filter: Filter = {
      stage: 'gate',
      wants: () => false,
      onMessage: () => expect.unreachable(),
    };
    const { url, errors } = await serve(upstream, { filters: () => [filter] });
    const answer = await ask(url, { body: CALL });
    expect([answer.status, answer.body.toString().includes('{"not even JSON'), errors]).toEqual([
      200,
      true,
      [],
    ]);
  });

  it('is not held back for an `initialize` either', async () => {
    const filter: Filter = { stage: 'sync', wants: () => false };
    const { url } = await serve(sse(`data: ${RESULT}\n\n`), { filters: () => [filter] });
    expect(dataIn(await ask(url, { body: INITIALIZE }))).toHaveLength(1);
  });
});

describe('a message of our own', () => {
  const announcing: Filter = {
    ...ONLOOKER,
    onMessage(message) {
      if (message.at('result') !== undefined)
        message.before.push({ jsonrpc: '2.0', method: 'changed' });
    },
  };
  const changed = { jsonrpc: '2.0', method: 'changed' };

  it('goes out right before its message, which keeps its bytes', async () => {
    const event = `id: 4\r\ndata: ${RESULT}\r\n\r\n`;
    const { url } = await serve(sse(`data: ${NOTICE}\n\n`, event), { filters: () => [announcing] });
    const { body } = await ask(url, { body: CALL });
    expect(eventsIn(body).map(({ data }) => data)).toEqual([
      NOTICE,
      JSON.stringify(changed),
      RESULT,
    ]);
    expect(body.toString().endsWith(event)).toBe(true);
    expect(eventsIn(body).map(({ id }) => id)).toEqual([undefined, undefined, '4']);
  });

  it('does not hide the first event behind a byte order mark', async () => {
    const { url } = await serve(
      sse(Buffer.from([0xef]), Buffer.from([0xbb, 0xbf]), `data: ${RESULT}\n\n`),
      {
        filters: () => [announcing],
      },
    );
    expect(dataIn(await ask(url, { body: CALL }))).toEqual([changed, JSON.parse(RESULT)]);
  });

  it('goes out after the last one, at the end', async () => {
    const filter: Filter = { ...ONLOOKER, onEnd: () => [changed] };
    const stream = await serve(sse(`data: ${RESULT}\n\n`), { filters: () => [filter] });
    expect(dataIn(await ask(stream.url, { body: CALL }))).toEqual([JSON.parse(RESULT), changed]);
    const body = await serve(json(RESULT), { filters: () => [filter] });
    expect(JSON.parse((await ask(body.url, { body: CALL })).body.toString())).toEqual([
      JSON.parse(RESULT),
      changed,
    ]);
  });

  it('is put on a stream between two events, and into no other body', async () => {
    for (const upstream of [sse(`data: ${RESULT}\n\n`), json(RESULT)]) {
      const inject = ({ tap }: Exchange): Filter[] => [
        {
          ...ONLOOKER,
          onHead() {
            tap.inject(changed);
            tap.keepAlive();
          },
        },
      ];
      const { url, errors } = await serve(upstream, { filters: inject });
      const { body, complete } = await ask(url, { body: CALL });
      expect(errors).toEqual([]);
      expect(complete).toBe(true);
      if (upstream !== undefined && body.includes('data:')) {
        expect(eventsIn(body).map(({ data }) => JSON.parse(data))).toEqual([
          JSON.parse(RESULT),
          changed,
        ]);
        expect(body.toString()).toContain(': keep-alive\n\n');
      } else expect(body.toString()).toBe(RESULT);
    }
  });

  it('that comes too late is dropped, without an error', async () => {
    const { url, errors, exchanges } = await serve(sse(`data: ${RESULT}\n\n`));
    await ask(url, { body: CALL });
    exchanges[0]?.tap.inject(changed);
    exchanges[0]?.tap.keepAlive();
    exchanges[0]?.tap.abandon([changed]);
    await new Promise(setImmediate);
    expect(errors).toEqual([]);
  });
});

describe('our answers to some calls, and the upstream’s to the others,', () => {
  const second = '{"jsonrpc":"2.0","id":2,"result":1.0}';

  it('come in one JSON batch', async () => {
    for (const body of [second, `[${second}]`]) {
      const { url } = await serve(json(body), { filters: answering(1) });
      const answer = await ask(url, { body: BATCH });
      expect(answer.body.toString()).toBe(`[${second},${JSON.stringify(here(1))}]`);
      expect(header(answer, 'content-length')).toBe(String(answer.body.length));
    }
  });

  it('come in one stream', async () => {
    const { url } = await serve(sse(`data: ${second}\n\n`), { filters: answering(1) });
    expect(dataIn(await ask(url, { body: BATCH }))).toEqual([here(1), JSON.parse(second)]);
    const silent = await serve(sse(), { filters: answering(1) });
    expect(dataIn(await ask(silent.url, { body: BATCH }))).toEqual([here(1)]);
  });

  it.each([202, 204])('come in a 200 where the upstream says only %i', async (status) => {
    const body = '[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"}]';
    const { url } = await serve((_req, res) => res.writeHead(status, 'Quiet').end(), {
      filters: answering(1),
    });
    const answer = await ask(url, { body });
    expect([answer.status, answer.reason, answer.body.toString()]).toEqual([
      200,
      'OK',
      JSON.stringify([here(1)]),
    ]);
    expect(header(answer, 'content-type')).toBe('application/json');
  });

  it('come although no filter wants to see the response', async () => {
    const filters = (exchange: Exchange): Filter[] => {
      answering(1)(exchange);
      return [{ stage: 'sync', wants: () => false }];
    };
    const { url } = await serve(json(second), { filters });
    expect(JSON.parse((await ask(url, { body: BATCH })).body.toString())).toEqual([
      JSON.parse(second),
      here(1),
    ]);
  });

  it('do not come twice', async () => {
    const { url } = await serve(sse(`data: ${second}\n\n`, `data: ${second}\n\n`), {
      filters: answering(1),
    });
    expect(dataIn(await ask(url, { body: BATCH }))).toHaveLength(3);
  });
});

describe('the headers of an `initialize`', () => {
  /** Sets a header once it saw a response, as a session's handshake does. */
  const minting = ({ tap }: Exchange): Filter[] => [
    {
      stage: 'session',
      wants: () => true,
      async onMessage(message) {
        await new Promise(setImmediate);
        if (message.at('result') !== undefined) tap.res.setHeader('mcp-session-id', 'minted');
      },
    },
  ];

  it.each<[string, Upstream]>([
    ['a JSON body', json(RESULT)],
    ['a stream', sse('id: 1\ndata: \n\n', `data: ${RESULT}\n\n`)],
    [
      'a stream on which a notification comes first',
      sse(`data: ${NOTICE}\n\n`, `data: ${RESULT}\n\n`),
    ],
    [
      'a stream that is flushed first',
      (_req, res) => {
        res.writeHead(200, SSE_TYPE).flushHeaders();
        res.write(': hello\n\n');
        setImmediate(() => res.end(`data: ${RESULT}\n\n`));
      },
    ],
  ])('wait for its response, in %s', async (_, upstream) => {
    const { url } = await serve(upstream, { filters: minting });
    const answer = await ask(url, { body: INITIALIZE });
    expect(header(answer, 'mcp-session-id')).toBe('minted');
    expect(answer.body.toString()).toContain(RESULT);
  });

  it('go without it where none comes, with the events that waited', async () => {
    const { url } = await serve(sse('id: 1\ndata: \n\n', `data: ${NOTICE}\n\n`), {
      filters: minting,
    });
    const answer = await ask(url, { body: INITIALIZE });
    expect(header(answer, 'mcp-session-id')).toBeUndefined();
    expect(eventsIn(answer.body).map(({ data }) => data)).toEqual(['', NOTICE]);
  });

  it.each([401, 500])('go with a refusal’s body that is no message: %i', async (status) => {
    const upstream: Upstream = (_req, res) => {
      res.writeHead(status, { 'content-type': 'text/plain', 'content-length': 12 });
      res.write('Unauth');
      res.end('orized');
    };
    const { url } = await serve(upstream, { filters: minting });
    const answer = await ask(url, { body: INITIALIZE });
    expect([answer.status, answer.body.toString(), answer.complete]).toEqual([
      status,
      'Unauthorized',
      true,
    ]);
  });
});

describe('a response of our own', () => {
  it('has its length, and its type where it has a body', async () => {
    const dropping = (exchange: Exchange): Filter[] => {
      for (const incoming of exchange.messages) void incoming.drop();
      return [ONLOOKER];
    };
    for (const [filters, status, body, type] of [
      [dropping, 202, '', undefined],
      [answering(1), 200, JSON.stringify(here(1)), 'application/json'],
    ] as const) {
      const { url } = await serve(() => expect.unreachable('nothing is left to forward'), {
        filters,
      });
      const answer = await ask(url, { body: LIST });
      expect([answer.status, answer.body.toString()]).toEqual([status, body]);
      expect(header(answer, 'content-length')).toBe(String(body.length));
      expect(header(answer, 'content-type')).toBe(type);
    }
  });

  it('replaces the upstream’s response: a stream', async () => {
    const taking = ({ tap }: Exchange): Filter[] => [
      {
        stage: 'session',
        takesOver: (res) => (res.statusCode === 405 ? 'stream' : undefined),
        onHead() {
          tap.res.statusCode = 200;
          tap.res.setHeader('content-type', 'text/event-stream');
        },
      },
    ];
    const over = latch();
    const upstream: Upstream = (_req, res) => {
      res.statusMessage = 'Not Here';
      res.writeHead(405, { ...JSON_TYPE, 'content-length': 2, etag: '"x"' }).end('{}', over.open);
    };
    const { url, exchanges } = await serve(upstream, { filters: taking });
    const asking = ask(url, { method: 'GET' });
    // The upstream is done long before the stream ends.
    await over.opened;
    expect(exchanges[0]?.tap.mode).toBe('stream');
    exchanges[0]?.tap.inject({ jsonrpc: '2.0', method: 'changed' });
    exchanges[0]?.tap.abandon([]);
    const answer = await asking;
    expect([answer.status, answer.reason, answer.complete]).toEqual([200, 'OK', true]);
    expect([header(answer, 'transfer-encoding'), header(answer, 'etag')]).toEqual([
      'chunked',
      undefined,
    ]);
    expect(dataIn(answer)).toEqual([{ jsonrpc: '2.0', method: 'changed' }]);
  });

  it('replaces the upstream’s response: headers alone', async () => {
    const taking = ({ tap }: Exchange): Filter[] => [
      {
        stage: 'session',
        takesOver: () => 'empty',
        onHead() {
          tap.res.statusCode = 200;
        },
      },
    ];
    const { url } = await serve(json('{"jsonrpc":"2.0"}'), { filters: taking });
    const answer = await ask(url, { method: 'DELETE' });
    expect([answer.status, answer.body.length]).toEqual([200, 0]);
    expect([header(answer, 'content-length'), header(answer, 'content-type')]).toEqual([
      '0',
      undefined,
    ]);
  });
});
