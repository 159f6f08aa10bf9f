import { gzipSync } from 'node:zlib';
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
  LIST,
  ONLOOKER,
  open,
  send,
  serve,
  type Upstream,
} from './wire-server.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const SSE_TYPE = { 'content-type': 'text/event-stream' };
const SECRET = '"tools":[{"name":"secret"}]';
const LISTED = `{"jsonrpc":"2.0","id":1,"result":{${SECRET}}}`;
const EVENT = `data: ${LISTED}\n\n`;
const BATCH = '[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":"two","method":"b"}]';

const sending =
  (headers: Record<string, string>, ...chunks: (string | Buffer)[]): Upstream =>
  (_req, res) => {
    res.writeHead(200, { 'x-own': 'kept', etag: '"x"', ...headers });
    for (const chunk of chunks) res.write(chunk);
    res.end();
  };

/** The ids of the errors that replace the response. */
function refusedIds({ body, headers }: Answer): unknown[] {
  const text = body.toString();
  const isStream = headers.some(([, value]) => value === 'text/event-stream');
  const values = isStream
    ? [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data ?? ''))
    : [JSON.parse(text)].flat();
  return values.filter((each) => each.error?.code === -32603).map((each) => each.id);
}

async function expectRefusal(
  upstream: Upstream,
  filters: Filter[] = [ONLOOKER],
): Promise<unknown[]> {
  return (await refusal(upstream, filters)).errors;
}

async function refusal(upstream: Upstream, filters: Filter[], limits = {}) {
  const { url, errors } = await serve(upstream, { filters: () => filters, limits });
  const answer = await ask(url, { body: LIST });
  expect(answer.body.toString()).not.toContain('secret');
  expect([answer.status, refusedIds(answer), answer.complete]).toEqual([502, [1], true]);
  expect(header(answer, 'content-length')).toBe(String(answer.body.length));
  expect([header(answer, 'content-type'), header(answer, 'etag')]).toEqual([
    'application/json',
    undefined,
  ]);
  return { answer, errors };
}

describe('a response that cannot be inspected is refused:', () => {
  it.each<[string, Upstream]>([
    ['encoded JSON', sending({ ...JSON_TYPE, 'content-encoding': 'gzip' }, gzipSync(LISTED))],
    ['an encoded stream', sending({ ...SSE_TYPE, 'content-encoding': 'br' }, 'x')],
    [
      'JSON in another charset',
      sending({ 'content-type': 'application/json; charset=utf-16le' }, LISTED),
    ],
    ['JSON that is said to be text', sending({ 'content-type': 'text/plain' }, LISTED)],
    ['JSON of no type', sending({}, LISTED)],
    ['a 200 with nothing in it', (_req, res) => res.end()],
    ['no JSON', sending(JSON_TYPE, `${LISTED}x`)],
    ['half of JSON', sending(JSON_TYPE, LISTED.slice(0, -1))],
    ['JSON with a byte order mark', sending(JSON_TYPE, `\ufeff${LISTED}`)],
    ['a JSON string', sending(JSON_TYPE, JSON.stringify(LISTED))],
    ['a batch with something else in it', sending(JSON_TYPE, `[${LISTED},[${LISTED}]]`)],
  ])('%s', async (_, upstream) => {
    const errors = await expectRefusal(upstream);
    expect(errors).toHaveLength(1);
    expect(String(errors[0])).toMatch(
      /cannot be inspected: status 200, .*Answer with application\/json|is not JSON-RPC: mount/,
    );
  });

  it.each<[string, Upstream]>([
    ['a body', sending(JSON_TYPE, LISTED, ' '.repeat(2_000))],
    ['a body in one piece', sending(JSON_TYPE, LISTED + ' '.repeat(2_000))],
    ['an event', sending(SSE_TYPE, `data: ${' '.repeat(2_000)}${LISTED}\n\n`)],
    [
      'an event that never ends',
      sending(SSE_TYPE, `data: ${LISTED}`, ' '.repeat(500), ' '.repeat(2_000)),
    ],
  ])('%s that is larger than the limit, with both in words', async (_, upstream) => {
    const { answer, errors } = await refusal(upstream, [ONLOOKER], { maxMessageBytes: 1_000 });
    const [, bytes] = /has (\d{4}) bytes or more, and "maxMessageBytes" is 1000: send less/.exec(
      String(errors[0]),
    ) as RegExpExecArray;
    expect(Number(bytes)).toBeGreaterThan(2_000);
    const words = `the server's response has ${bytes} bytes or more, and may have 1000`;
    expect(JSON.parse(answer.body.toString()).error.message).toBe(words);
  });

  it('but not a body of just that size', async () => {
    const { url } = await serve(sending(JSON_TYPE, LISTED), {
      filters: () => [ONLOOKER],
      limits: { maxMessageBytes: LISTED.length },
    });
    expect((await ask(url, { body: LIST })).body.toString()).toBe(LISTED);
  });

  it('an event that is no message is left out, and those around it come', async () => {
    const { url, errors } = await serve(
      sending(SSE_TYPE, EVENT.replace('secret', 'a'), 'data: no JSON\n\n', ': b\n\n'),
      {
        filters: () => [ONLOOKER],
      },
    );
    expect((await ask(url, { body: LIST })).body.toString()).toBe(
      `${EVENT.replace('secret', 'a')}: b\n\n`,
    );
    expect(String(errors[0])).toContain('not JSON-RPC');
  });

  it('half an event at the end of a stream never goes out', async () => {
    const { url } = await serve(sending(SSE_TYPE, `data: ${LISTED}\n`), {
      filters: () => [ONLOOKER],
    });
    expect((await ask(url, { body: LIST })).body.toString()).toBe('');
  });

  it('a batch, with an error for each request that was not answered here', async () => {
    const filters = (exchange: Exchange): Filter[] => {
      const [first] = exchange.messages;
      if (first !== undefined) void first.answerWith({ jsonrpc: '2.0', id: 1, result: {} });
      return [ONLOOKER];
    };
    const { url } = await serve(sending(JSON_TYPE, 'x'), { filters });
    const answer = await ask(url, { body: BATCH });
    expect(JSON.parse(answer.body.toString())).toEqual([
      { jsonrpc: '2.0', id: 1, result: {} },
      expect.objectContaining({ id: 'two', error: expect.anything() }),
    ]);
    const whole = await serve(sending(JSON_TYPE, 'x'), { filters: () => [ONLOOKER] });
    expect(refusedIds(await ask(whole.url, { body: BATCH }))).toEqual([1, 'two']);
  });

  it('a stream that has begun, with an error for each unanswered request', async () => {
    const upstream = sending(
      SSE_TYPE,
      'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n',
      `data: ${' '.repeat(2_000)}`,
    );
    const { url } = await serve(upstream, {
      filters: () => [ONLOOKER],
      limits: { maxMessageBytes: 1_000 },
    });
    const answer = await ask(url, { body: BATCH });
    expect([answer.status, refusedIds(answer), answer.complete]).toEqual([200, ['two'], true]);
  });
});

describe('a filter that fails', () => {
  const failing = (method: keyof Filter, how: 'throws' | 'rejects'): Filter => ({
    ...ONLOOKER,
    [method]: () => {
      if (how === 'throws') throw new Error('a store is down: password');
      return Promise.reject(new Error('a store is down: password'));
    },
  });
  const ways = (['throws', 'rejects'] as const).flatMap((how) =>
    (['onHead', 'onMessage', 'onEnd'] as const).map((method) => [method, how] as const),
  );

  it.each(ways)('in %s, and %s, lets no JSON body through', async (method, how) => {
    const errors = await expectRefusal(sending(JSON_TYPE, LISTED), [failing(method, how)]);
    expect(errors.map(String)).toEqual(['Error: a store is down: password']);
  });

  it.each(ways)('in %s, and %s, ends a stream with an error', async (method, how) => {
    const { url, errors } = await serve(sending(SSE_TYPE, EVENT, EVENT), {
      filters: () => [failing(method, how)],
    });
    const answer = await ask(url, { body: CALL });
    expect(refusedIds(answer)).toEqual(method === 'onEnd' ? [] : [1]);
    if (method !== 'onEnd') expect(answer.body.toString()).not.toContain('secret');
    expect(answer.complete).toBe(true);
    expect(errors.map(String)).toEqual(['Error: a store is down: password']);
  });

  it.each(ways.filter(([method]) => method !== 'onMessage'))(
    'in %s, and %s, ends a raw body',
    async (method, how) => {
      const upstream: Upstream = (_req, res) => {
        res.write('abc');
        res.end('def');
      };
      const { url, errors } = await serve(upstream, { filters: () => [failing(method, how)] });
      const answer = await ask(url, { method: 'GET' });
      expect([answer.status, answer.complete]).toEqual([method === 'onHead' ? 502 : 200, true]);
      expect(errors).toHaveLength(1);
    },
  );

  it.each(['takesOver', 'wants'] as const)('in %s lets nothing through', async (method) => {
    for (const type of [JSON_TYPE, SSE_TYPE]) {
      await expectRefusal(sending(type, EVENT), [failing(method, 'throws')]);
    }
  });

  it.each(['throws', 'rejects'] as const)(
    'in onUnreadable, and %s, still leaves the client its answer',
    async (how) => {
      const errors = await expectRefusal(sending(JSON_TYPE, 'x'), [failing('onUnreadable', how)]);
      expect(errors).toHaveLength(2);
    },
  );

  it('twice cuts the connection, and lets nothing through', async () => {
    let thrown = 0;
    const filter: Filter = {
      ...ONLOOKER,
      onHead() {
        thrown++;
        throw new Error('no headers');
      },
    };
    const { url } = await serve(sending(JSON_TYPE, 'not JSON'), { filters: () => [filter] });
    await expect(ask(url, { body: LIST })).rejects.toThrow();
    expect(thrown).toBe(1);
  });

  it.each(['onClose', 'onDepart'] as const)(
    'in %s harms nothing, and the other filters are told',
    async (method) => {
      const { opened: told, open: tell } = latch();
      const filters = ({ tap }: Exchange): Filter[] => {
        if (method === 'onDepart') tap.withholdClose();
        return [failing(method, 'throws'), { ...ONLOOKER, [method]: tell }];
      };
      const { url, errors } = await serve(
        (_req, res) => void res.writeHead(200, SSE_TYPE).write(EVENT),
        {
          filters,
        },
      );
      const reading = await open(url, { body: CALL });
      await reading.until(EVENT);
      reading.cut();
      await told;
      expect(errors).toHaveLength(1);
    },
  );

  it('is reported to an observer that throws, and the client gets its answer', async () => {
    const { url, errors } = await serve(sending(JSON_TYPE, LISTED), {
      filters: () => [failing('onMessage', 'throws')],
      onError: () => {
        throw new Error('an observer');
      },
    });
    expect(refusedIds(await ask(url, { body: LIST }))).toEqual([1]);
    expect(errors).toHaveLength(1);
  });
});

describe.each(['express 4', 'express 5'] as const)('an upstream that throws, on %s,', (host) => {
  const throws: Upstream = () => {
    throw new Error('upstream');
  };
  const rejects: Upstream = () => Promise.reject(new Error('upstream'));

  // Express 4 does not know promises.
  it.each(host === 'express 4' ? [throws] : [throws, rejects])(
    'is answered as without us',
    async (upstream) => {
      const answers: Answer[] = [];
      for (const wired of [false, true]) {
        const { url } = await serve(upstream, { host, wired, filters: () => [ONLOOKER] });
        answers.push(await ask(url, { body: CALL }));
      }
      expect(answers.map(({ status }) => status)).toEqual([500, 500]);
      expect(answers.map(({ body }) => body.includes('Error: upstream'))).toEqual([true, true]);
    },
  );

  it('after its headers loses its connection as without us, and nothing gets through', async () => {
    const upstream: Upstream = (_req, res) => {
      res.writeHead(200, JSON_TYPE);
      res.write(LISTED);
      throw new Error('upstream');
    };
    const { url } = await serve(upstream, { host, filters: () => [ONLOOKER] });
    await expect(ask(url, { body: CALL })).rejects.toThrow();
  });
});

describe.each(HOSTS)('an upstream, on %s,', (host) => {
  it('that states another length than it sends is told of, and keeps no client waiting', async () => {
    for (const isWhole of [true, false]) {
      const upstream: Upstream = (_req, res) => {
        res.strictContentLength = true;
        res.writeHead(200, { 'content-type': 'text/plain', 'content-length': '99' });
        if (!isWhole) res.write('short');
        res.end(isWhole ? 'short' : undefined);
      };
      const errors: unknown[] = [];
      const { url } = await serve(upstream, {
        host,
        filters: () => [ONLOOKER],
        onError: (error) => errors.push(error),
      });
      const answer = ask(url, { method: 'PUT', body: CALL });
      if (isWhole) expect((await answer).status).toBe(502);
      else await expect(answer).rejects.toThrow();
      expect(errors).toHaveLength(1);
    }
  });

  it('that destroys the socket tells its filters, and ends nothing else', async () => {
    const { opened, open: tell } = latch();
    const { url } = await serve((req) => void req.socket.destroy(), {
      host,
      filters: () => [{ ...ONLOOKER, onClose: tell }],
    });
    await expect(ask(url, { body: CALL })).rejects.toThrow();
    await opened;
  });

  it('that never answers tells its filters when the client leaves', async () => {
    const [reached, closed] = [latch(), latch()];
    const { url, errors } = await serve(reached.open, {
      host,
      filters: () => [{ ...ONLOOKER, onClose: closed.open }],
    });
    const sent = send(url, { body: CALL }).on('error', () => {});
    await reached.opened;
    sent.destroy();
    await closed.opened;
    expect(errors).toEqual([]);
  });

  it('that writes on after its client left does no harm', async () => {
    const [left, written] = [latch(), latch()];
    const { url, errors } = await serve(
      async (_req, res) => {
        res.on('error', () => expect.unreachable('no error is emitted'));
        res.once('close', left.open);
        res.writeHead(200, SSE_TYPE);
        res.write(EVENT);
        await left.opened;
        expect(res.destroyed).toBe(true);
        expect(res.write(EVENT)).toBe(true);
        const error = await new Promise<unknown>((resolve) => void res.write(EVENT, resolve));
        expect(error).toMatchObject({ code: 'ERR_STREAM_DESTROYED' });
        res.flushHeaders();
        res.end(EVENT);
        written.open();
      },
      { host, filters: () => [ONLOOKER] },
    );
    const reading = await open(url, { body: CALL });
    await reading.until(EVENT);
    reading.cut();
    await written.opened;
    expect(errors).toEqual([]);
  });
});
