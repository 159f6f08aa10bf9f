import express, { type RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import type { Call } from '../../src/wire/call.ts';
import { DEFAULT_LIMITS, Exchange } from '../../src/wire/exchange.ts';
import type { Filter } from '../../src/wire/filter.ts';
import type { JsonObject } from '../../src/wire/json-rpc.ts';
import { NodeHost } from '../../src/wire/node-host.ts';
import {
  type Answer,
  ask,
  LIST,
  ONLOOKER,
  serve,
  type Upstream,
  type WireOptions,
  wiring,
} from './wire-server.ts';

const request = (id: unknown, method = 'tools/call'): JsonObject => ({
  jsonrpc: '2.0',
  id,
  method,
});
const refusal = (id: unknown): JsonObject => ({ jsonrpc: '2.0', id, result: { isError: true } });
const jsonIn = ({ body }: Answer): unknown => JSON.parse(body.toString());

/** Records each body, and answers each request in it. */
function recording(): { upstream: Upstream; given: unknown[] } {
  const given: unknown[] = [];
  const upstream: Upstream = async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const value = req.body ?? JSON.parse(Buffer.concat(chunks).toString());
    given.push(value);
    const responses = [value]
      .flat()
      .flatMap(({ id }) => (id === undefined ? [] : [{ jsonrpc: '2.0', id, result: 0 }]));
    const body = Array.isArray(value) ? responses : responses[0];
    if (body === undefined || responses.length === 0) res.writeHead(202).end();
    else res.setHeader('content-type', 'application/json').end(JSON.stringify(body));
  };
  return { upstream, given };
}

/** Serves with several middlewares, one behind the other. */
const serveAll = (
  upstream: Upstream,
  mounts: NonNullable<WireOptions['filters']>[],
  options: WireOptions = {},
) =>
  serve(upstream, {
    host: 'express 5',
    ...options,
    ...(mounts[0] === undefined ? {} : { filters: mounts[0] }),
    behind: mounts.slice(1).map((filters) => wiring(filters, [])),
  });

const edit =
  (id: unknown) =>
  ({ messages }: Exchange): Filter[] => {
    messages.find((each) => each.id === id)?.message.set(['params', 'key'], 'k');
    return [ONLOOKER];
  };
const refuse =
  (id: unknown) =>
  (exchange: Exchange): Filter[] => {
    const found = exchange.messages.find((each) => each.id === id);
    if (found !== undefined) void found.answerWith(refusal(id));
    return [ONLOOKER];
  };

describe('an exchange', () => {
  it('is the same for every middleware of a request', async () => {
    const seen: Exchange[] = [];
    const note = (exchange: Exchange): Filter[] => {
      seen.push(exchange);
      return [];
    };
    const { upstream } = recording();
    const { url } = await serveAll(upstream, [note, note, note]);
    await ask(url, { body: LIST });
    expect([seen.length, new Set(seen).size]).toEqual([3, 1]);
  });

  it.each(['GET', 'DELETE', 'PUT'])('of a %s has no messages, and passes', async (method) => {
    const { url, exchanges } = await serve((req, res) => res.end(req.method));
    expect((await ask(url, { method })).body.toString()).toBe(method);
    expect([exchanges[0]?.messages, exchanges[0]?.isBatch]).toEqual([[], false]);
  });

  it.each([true, false])(
    'is there in the same tick, with a parser in front: %s',
    async (parsed) => {
      const seen: boolean[] = [];
      const look: RequestHandler = (req, res, next) => {
        const opened = Exchange.of(new NodeHost(req, res), DEFAULT_LIMITS, () => {});
        seen.push(opened instanceof Promise);
        void Promise.resolve(opened).then(() => next());
      };
      const { upstream } = recording();
      const front = parsed ? [express.json(), look] : [look];
      const { url } = await serve(upstream, { wired: false, front, host: 'express 5' });
      await ask(url, { body: LIST });
      await ask(url, { method: 'GET' });
      // Only an unread body must be awaited.
      expect(seen).toEqual([!parsed, false]);
    },
  );

  it('knows which of its requests are still to be forwarded', async () => {
    const seen: unknown[] = [];
    const { upstream } = recording();
    const { url } = await serve(upstream, {
      filters: (exchange) => {
        const ids = (list: readonly { id: unknown }[]): unknown[] => list.map(({ id }) => id);
        refuse(1)(exchange);
        seen.push(
          exchange.isBatch,
          ids(exchange.messages),
          ids(exchange.requests),
          ids(exchange.forwardable),
        );
        return [];
      },
    });
    const notice = { jsonrpc: '2.0', method: 'x' };
    const answer = { jsonrpc: '2.0', id: 's', result: {} };
    await ask(url, { body: JSON.stringify([request(1), notice, answer, request('1')]) });
    expect(seen).toEqual([true, [1, undefined, 's', '1'], [1, '1'], ['1']]);
  });
});

describe('what is forwarded', () => {
  const batch = JSON.stringify([request(1), request(2), request(3)]);

  it('is what came, to the letter, where no middleware changed it', async () => {
    const text = ' {"jsonrpc":"2.0", "id":1.0 ,"method":"x"}\n';
    const { url } = await serve(
      async (req, res) => {
        for await (const chunk of req) res.write(chunk);
        res.end();
      },
      { filters: () => [] },
    );
    const answer = await ask(url, { method: 'POST', body: text });
    expect(answer.status).toBe(502);
    let forwarded = '';
    const echo = await serve(async (req, res) => {
      for await (const chunk of req) forwarded += String(chunk);
      res.writeHead(400).end();
    });
    await ask(echo.url, { body: text });
    expect(forwarded).toBe(text);
  });

  it.each([
    ['unparsed', []],
    ['parsed', [express.json()]],
  ])('leaves out what any middleware answered, %s', async (_, front) => {
    const { upstream, given } = recording();
    const { url } = await serveAll(upstream, [refuse(1), edit(2), refuse(3)], { front });
    expect(jsonIn(await ask(url, { body: batch }))).toEqual([
      { jsonrpc: '2.0', id: 2, result: 0 },
      refusal(1),
      refusal(3),
    ]);
    expect(given).toEqual([[{ ...request(2), params: { key: 'k' } }]]);
  });

  it.each([1, 2, 3])(
    'leaves out a message that one middleware amended and the next one answered: %i',
    async (id) => {
      const { upstream, given } = recording();
      const { url } = await serveAll(upstream, [edit(id), refuse(id)]);
      await ask(url, { body: batch });
      expect(given).toEqual([[1, 2, 3].filter((each) => each !== id).map((each) => request(each))]);
    },
  );

  it('stays a batch where one message of it is left', async () => {
    const { upstream, given } = recording();
    const { url } = await serveAll(upstream, [refuse(1), refuse(3)]);
    await ask(url, { body: batch });
    expect(given).toEqual([[request(2)]]);
  });

  it('is nothing where all is answered, in the shape of the request', async () => {
    const { upstream, given } = recording();
    const all = (exchange: Exchange): Filter[] => [1, 2, 3].flatMap((id) => refuse(id)(exchange));
    const { url } = await serve(upstream, { filters: all });
    expect(jsonIn(await ask(url, { body: batch }))).toEqual([refusal(1), refusal(2), refusal(3)]);
    expect(jsonIn(await ask(url, { body: JSON.stringify(request(1)) }))).toEqual(refusal(1));
    expect(given).toEqual([]);
  });

  it('has no dropped message, which gets no answer either', async () => {
    const drop = (exchange: Exchange): Filter[] => {
      const [first] = exchange.messages;
      if (first !== undefined) void first.drop();
      return [ONLOOKER];
    };
    const { upstream, given } = recording();
    const { url } = await serve(upstream, { filters: drop });
    expect(jsonIn(await ask(url, { body: JSON.stringify([request(1), request(2)]) }))).toEqual([
      { jsonrpc: '2.0', id: 2, result: 0 },
    ]);
    expect((await ask(url, { body: JSON.stringify(request(1)) })).status).toBe(202);
    expect(given).toEqual([[request(2)]]);
  });

  it('lacks answered calls, of which each holder lets go, one after another', async () => {
    const told: string[] = [];
    const holder = (name: string, { id }: Call) => ({
      withdraw: async () => {
        told.push(`${name} begins ${id}`);
        await Promise.resolve();
        told.push(`${name} ends ${id}`);
      },
    });
    const { upstream } = recording();
    const { url } = await serve(upstream, {
      filters: (exchange) => {
        for (const call of exchange.messages)
          call.holders = [holder('first', call), holder('second', call)];
        return refuse(2)(exchange);
      },
    });
    await ask(url, { body: JSON.stringify([request(1), request(2)]) });
    expect(told).toEqual(['first begins 2', 'first ends 2', 'second begins 2', 'second ends 2']);
  });
});

describe('a request that is rejected as a whole', () => {
  const rejecting = async (exchange: Exchange): Promise<void> =>
    exchange.reject(404, -32001, 'Session not found');

  it.each<[string, string | undefined, unknown]>([
    ['each id of a batch', JSON.stringify([request(1), request('b')]), [1, 'b']],
    ['its own id', JSON.stringify(request(7)), 7],
    ['no id, for a notification', '{"jsonrpc":"2.0","method":"x"}', null],
    ['no id, for a batch of notifications', '[{"jsonrpc":"2.0","method":"x"}]', null],
    ['no id, for a GET', undefined, null],
  ])('is answered with %s', async (_, body, ids) => {
    const errors: unknown[] = [];
    const { upstream, given } = recording();
    const { url } = await serve(upstream, {
      host: 'express 5',
      behind: [
        async (req, res) => {
          const { Exchange: Wire, DEFAULT_LIMITS } = await import('../../src/wire/exchange.ts');
          const exchange = await Wire.of(new NodeHost(req, res), DEFAULT_LIMITS, (error) =>
            errors.push(error),
          );
          if (exchange !== undefined) await rejecting(exchange);
        },
      ],
    });
    const answer = await ask(url, body === undefined ? { method: 'GET' } : { body });
    const value = jsonIn(answer) as { id: unknown; error: unknown } | { id: unknown }[];
    expect(answer.status).toBe(404);
    expect(Array.isArray(value) ? value.map(({ id }) => id) : value.id).toEqual(ids);
    expect(JSON.stringify(value)).toContain('{"code":-32001,"message":"Session not found"}');
    expect([given, errors]).toEqual([[], []]);
  });
});

describe('a body that is refused', () => {
  it.each<[string, string, number, unknown]>([
    ['is not JSON', '{', 400, -32700],
    ['is no message', '{"jsonrpc":"1.0"}', 400, -32600],
    ['is an empty batch', '[]', 400, -32600],
    [
      'is a batch of too many',
      JSON.stringify(Array.from({ length: 51 }, (_, n) => request(n))),
      413,
      -32600,
    ],
  ])('because it %s reaches no upstream', async (_, body, status, code) => {
    const { upstream, given } = recording();
    const { url, exchanges } = await serve(upstream, { filters: () => [ONLOOKER] });
    const answer = await ask(url, { body });
    expect([answer.status, (jsonIn(answer) as { error: { code: unknown } }).error.code]).toEqual([
      status,
      code,
    ]);
    expect([given, exchanges]).toEqual([[], []]);
  });
});

describe('the message that a list changed', () => {
  it('goes out once in front of a message on a stream, and on no other response', async () => {
    const said: boolean[] = [];
    const announcing = (exchange: Exchange): Filter[] => [
      {
        stage: 'gate',
        wants: () => true,
        onMessage: (message) =>
          void said.push(
            exchange.announceListChange(message, ['tools']),
            exchange.announceListChange(message, ['tools']),
          ),
      },
    ];
    const result = JSON.stringify({ jsonrpc: '2.0', id: 1, result: {} });
    const changed =
      'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n';
    const stream = await serve(
      (_req, res) =>
        res.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: ${result}\n\n`),
      { filters: announcing },
    );
    expect((await ask(stream.url, { body: LIST })).body.toString()).toBe(
      `${changed}data: ${result}\n\n`,
    );
    const body = await serve(
      (_req, res) => res.writeHead(200, { 'content-type': 'application/json' }).end(result),
      {
        filters: announcing,
      },
    );
    expect((await ask(body.url, { body: LIST })).body.toString()).toBe(result);
    expect(said).toEqual([true, true, false, false]);
  });
});

describe('a request object that is replaced between two middlewares', () => {
  it('is a mistake that the error names, since one response cannot serve both', async () => {
    let failure: unknown;
    const { url } = await serve(
      async (req, res) => {
        const replaced = Object.create(req) as typeof req;
        try {
          await Exchange.of(new NodeHost(replaced, res), DEFAULT_LIMITS, () => {});
        } catch (error) {
          failure = error;
        }
        res
          .writeHead(200, { 'content-type': 'application/json' })
          .end('{"jsonrpc":"2.0","id":1,"result":{}}');
      },
      { filters: () => [ONLOOKER] },
    );
    expect((await ask(url, { body: LIST })).status).toBe(200);
    expect(failure).toMatchObject({ code: 'ERR_INTERLOCK_MOUNT' });
  });
});
