import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { finished } from 'node:stream/promises';
import type { RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import type { Exchange } from '../../src/wire/exchange.ts';
import type { Filter } from '../../src/wire/filter.ts';
import { latch } from '../helpers/latch.ts';
import { ask, header, LIST, ONLOOKER, serve } from './wire-server.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const SSE_TYPE = { 'content-type': 'text/event-stream' };
const RESULT = '{"jsonrpc":"2.0","id":1,"result":{}}';
const EVENT = `data: ${RESULT}\n\n`;

const codeOf = (error: unknown): unknown => (error as { code?: unknown } | null | undefined)?.code;

/** Holds back all that the upstream writes until the test releases it. */
function holding(): { filter: Filter; release(): void } {
  const { opened, open } = latch();
  return { filter: { ...ONLOOKER, onMessage: () => opened }, release: open };
}

/** Runs an upstream's code on a response, and returns its result. */
async function seeing<T>(
  look: (res: ServerResponse) => T | Promise<T>,
  filters: Filter[] = [ONLOOKER],
): Promise<T> {
  let seen: T | undefined;
  let failure: unknown;
  const { url } = await serve(
    async (_req, res) => {
      try {
        seen = await look(res);
      } catch (error) {
        failure = error;
      }
      if (!res.writableEnded) res.end();
    },
    { filters: () => filters },
  );
  await ask(url, { body: LIST });
  if (failure !== undefined) throw failure;
  return seen as T;
}

describe('an upstream', () => {
  it('sees its headers sent once it has given them, and no sooner', async () => {
    const seen = await seeing((res) => {
      const before = res.headersSent;
      res.writeHead(200, JSON_TYPE);
      const after = res.headersSent;
      res.write(RESULT);
      return [before, after, res.writableEnded];
    });
    expect(seen).toEqual([false, true, false]);
  });

  it.each<[string, (res: ServerResponse) => unknown]>([
    ['write', (res) => res.write(RESULT)],
    ['end', (res) => res.end(RESULT)],
    ['flushHeaders', (res) => res.flushHeaders()],
  ])('sees its headers sent by %s', async (_, send) => {
    const seen = await seeing((res) => {
      res.setHeader('content-type', 'application/json');
      send(res);
      return res.headersSent;
    });
    expect(seen).toBe(true);
  });

  it('cannot write its headers twice, although we have not sent them', async () => {
    const seen = await seeing((res) => {
      res.writeHead(200, JSON_TYPE);
      const again = (): unknown => res.writeHead(500);
      expect(again).toThrow(expect.objectContaining({ code: 'ERR_HTTP_HEADERS_SENT' }));
      res.end(RESULT);
      expect(again).toThrow(expect.objectContaining({ code: 'ERR_HTTP_HEADERS_SENT' }));
      return res.statusCode;
    });
    expect(seen).toBe(200);
  });

  it('sees its response ended once it has ended it, and finished once all was sent', async () => {
    const { filter, release } = holding();
    const seen = await seeing(
      async (res) => {
        res.writeHead(200, SSE_TYPE);
        res.write(EVENT);
        res.end();
        const atOnce = [res.writableEnded, res.writableFinished];
        release();
        await once(res, 'finish');
        return [...atOnce, res.writableFinished];
      },
      [filter],
    );
    expect(seen).toEqual([true, false, true]);
  });

  it('is called back when its bytes were sent, then when its response is finished', async () => {
    const { filter, release } = holding();
    const seen = await seeing(
      async (res) => {
        const order: string[] = [];
        res.writeHead(200, SSE_TYPE);
        res.write(EVENT, () => order.push('first'));
        res.write(EVENT, 'utf8', () => order.push('second'));
        res.once('finish', () => order.push('finish'));
        const done = new Promise<void>((resolve) => {
          res.end(EVENT, () => {
            order.push('end');
            resolve();
          });
        });
        await new Promise(setImmediate);
        order.push('released');
        release();
        await done;
        return order;
      },
      [filter],
    );
    expect(seen.filter((each) => each !== 'finish')).toEqual([
      'released',
      'first',
      'second',
      'end',
    ]);
    expect(seen).toContain('finish');
  });

  it('hears of a write after the end by the callback alone', async () => {
    const seen = await seeing(async (res) => {
      res.on('error', () => expect.unreachable('no error is emitted'));
      res.writeHead(200, JSON_TYPE).end(RESULT);
      const call = (method: (done: (error?: unknown) => void) => unknown): Promise<unknown> =>
        new Promise((resolve) => method((error) => resolve(codeOf(error))));
      return [
        res.write(RESULT),
        await call((done) => res.write(RESULT, done)),
        await call((done) => res.end(RESULT, done)),
        await call((done) => res.end(done)),
      ];
    });
    const late = 'ERR_STREAM_WRITE_AFTER_END';
    expect(seen).toEqual([false, late, late, 'ERR_STREAM_ALREADY_FINISHED']);
  });

  it('may write a little while a filter thinks, and must wait with more', async () => {
    const { filter, release } = holding();
    const seen = await seeing(
      async (res) => {
        res.writeHead(200, SSE_TYPE);
        const answers = [res.write(EVENT), res.writableNeedDrain];
        answers.push(res.write(`: ${'x'.repeat(16 * 1024)}\n\n`), res.writableNeedDrain);
        const drained = once(res, 'drain');
        release();
        await drained;
        return [...answers, res.writableNeedDrain, res.write(EVENT)];
      },
      [filter],
    );
    expect(seen).toEqual([true, false, false, true, false, true]);
  });

  it.each([null, undefined, 7, {}, [1]])('cannot write %j', async (chunk) => {
    const seen = await seeing((res) => {
      res.writeHead(200, JSON_TYPE);
      expect(() => res.write(chunk)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_ARG_TYPE' }),
      );
      res.end(RESULT);
      return res.writableEnded;
    });
    expect(seen).toBe(true);
  });

  it('may wait for its response as for a stream', async () => {
    const seen = await seeing(async (res) => {
      res.writeHead(200, SSE_TYPE).end(EVENT);
      await finished(res);
      return res.writableFinished;
    });
    expect(seen).toBe(true);
  });

  it('may have a middleware behind us that sets headers at the last moment', async () => {
    // As `on-headers` does, which sessions, timings and compression use.
    const behind: RequestHandler = (_req, res, next) => {
      const { writeHead } = res;
      Object.assign(res, {
        writeHead(this: ServerResponse, ...args: [number]) {
          res.setHeader('x-last', 'moment');
          return writeHead.apply(this, args as never);
        },
      });
      next();
    };
    for (const end of ['implicit', 'explicit']) {
      const { url } = await serve(
        (_req, res) => {
          res.setHeader('content-type', 'application/json');
          if (end === 'explicit') res.writeHead(200);
          res.end(RESULT);
        },
        { host: 'express 5', behind: [behind], filters: () => [ONLOOKER] },
      );
      expect(header(await ask(url, { body: LIST }), 'x-last')).toBe('moment');
    }
  });

  it('sees its own headers, and none that we set later', async () => {
    const setsLate = ({ tap }: Exchange): Filter => ({
      ...ONLOOKER,
      onHead() {
        tap.res.setHeader('x-late', '1');
      },
    });
    let seen: unknown;
    const { url } = await serve(
      (_req, res) => {
        res.writeHead(200, JSON_TYPE);
        seen = [res.getHeader('content-type'), res.getHeader('x-late')];
        res.end(RESULT);
      },
      { filters: (exchange) => [setsLate(exchange)] },
    );
    expect(header(await ask(url, { body: LIST }), 'x-late')).toBe('1');
    expect(seen).toEqual(['application/json', undefined]);
  });

  it('is asked for plain bytes wherever it looks, and a middleware in front is not', async () => {
    const seen: unknown[] = [];
    const { url } = await serve(
      (req, res) => {
        const at = req.rawHeaders.findIndex((name) => name.toLowerCase() === 'accept-encoding');
        seen.push(req.headers['accept-encoding'], at < 0 ? undefined : req.rawHeaders[at + 1]);
        res.once('finish', () => seen.push(req.headers['accept-encoding']));
        res.writeHead(200, JSON_TYPE).end(RESULT);
      },
      { filters: () => [ONLOOKER] },
    );
    await ask(url, { body: LIST, headers: { 'Accept-Encoding': 'gzip, br' } });
    await ask(url, { body: LIST });
    // Where the client sent no such header, no upstream compresses, and none is added.
    expect(seen).toEqual(['identity', 'identity', 'gzip, br', undefined, undefined, undefined]);
  });
});

describe('an upstream that destroys its response', () => {
  it('cuts the connection, and its filters are told once', async () => {
    let closed = 0;
    const filter: Filter = {
      ...ONLOOKER,
      onClose() {
        closed++;
      },
    };
    const { url } = await serve(
      (_req, res) => {
        res.writeHead(200, SSE_TYPE);
        res.write(EVENT, () => res.destroy());
      },
      { filters: () => [filter] },
    );
    const answer = await ask(url, { body: LIST });
    expect([answer.body.toString(), answer.complete]).toEqual([EVENT, false]);
    await expect.poll(() => closed).toBe(1);
  });
});
