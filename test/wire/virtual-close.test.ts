import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import type { Exchange } from '../../src/wire/exchange.ts';
import type { Filter } from '../../src/wire/filter.ts';
import type { Host } from '../../src/wire/node-host.ts';
import { Tap } from '../../src/wire/tap.ts';
import { latch } from '../helpers/latch.ts';
import {
  ask,
  CALL,
  HOSTS,
  LIST,
  ONLOOKER,
  open,
  rawHead,
  send,
  serve,
  type Upstream,
} from './wire-server.ts';

const SSE_TYPE = { 'content-type': 'text/event-stream' };
const PROGRESS = 'data: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n';
const RESULT = 'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n';

/** A filter that holds a claim, and records in order what it is told. */
function claiming(told: string[]) {
  const note =
    (event: string) =>
    (..._: unknown[]): void =>
      void told.push(event);
  const filter: Filter = {
    stage: 'gate',
    wants: () => true,
    onHead: note('head'),
    onMessage: (message) => void told.push(`message ${message.at('method') ?? message.at('id')}`),
    onEnd: () => {
      told.push('end');
      return [{ jsonrpc: '2.0', method: 'last' }];
    },
    onDepart: note('depart'),
    onClose: note('close'),
  };
  return ({ tap }: Exchange): Filter[] => {
    tap.withholdClose();
    return [filter];
  };
}

interface Shown {
  readonly destroyed: boolean;
  readonly closed: boolean;
  readonly writableNeedDrain: boolean;
  readonly writableEnded: boolean;
  readonly writableFinished: boolean;
}
const shown = ({
  destroyed,
  closed,
  writableNeedDrain,
  writableEnded,
  writableFinished,
}: ServerResponse): Shown => ({
  destroyed,
  closed,
  writableNeedDrain,
  writableEnded,
  writableFinished,
});
const HEALTHY: Shown = {
  destroyed: false,
  closed: false,
  writableNeedDrain: false,
  writableEnded: false,
  writableFinished: false,
};

/** Settles when the connection has really closed, which the response may not tell. */
const trulyClosed = (req: IncomingMessage): Promise<unknown> =>
  req.socket.destroyed ? Promise.resolve() : once(req.socket, 'close');

describe.each(HOSTS)('a client that leaves in the middle of a step, on %s,', (host) => {
  it('goes unnoticed by the upstream until it is done, and its messages are all seen', async () => {
    const told: string[] = [];
    const seen: unknown[] = [];
    const done = latch();
    const upstream: Upstream = async (req, res) => {
      res.once('close', () => {
        seen.push('close', shown(res).destroyed);
        done.open();
      });
      res.on('error', () => seen.push('error'));
      res.writeHead(200, SSE_TYPE);
      res.write(PROGRESS);
      await trulyClosed(req);
      seen.push(shown(res), res.write(PROGRESS));
      await new Promise<void>((resolve) => void res.write(RESULT, () => resolve()));
      seen.push(shown(res));
      await new Promise<void>((resolve) => void res.end(resolve));
      seen.push(shown(res).writableFinished);
    };
    const { url, errors } = await serve(upstream, { host, filters: claiming(told) });
    const reading = await open(url, { body: CALL });
    await reading.until(PROGRESS);
    reading.cut();
    await done.opened;
    await new Promise(setImmediate);
    expect(told).toEqual([
      'message notifications/progress',
      'head',
      'depart',
      'message notifications/progress',
      'message 1',
      'end',
      'close',
    ]);
    expect(seen).toEqual([HEALTHY, true, HEALTHY, 'close', true, true]);
    expect(errors).toEqual([]);
  });

  it('before the headers goes unnoticed too, and they are prepared all the same', async () => {
    const told: string[] = [];
    const [reached, done] = [latch(), latch()];
    const upstream: Upstream = async (req, res) => {
      res.once('close', done.open);
      reached.open();
      await trulyClosed(req);
      expect(shown(res)).toEqual(HEALTHY);
      res.setHeader('content-type', 'application/json');
      res.end('{"jsonrpc":"2.0","id":1,"result":{}}');
    };
    const { url, errors } = await serve(upstream, { host, filters: claiming(told) });
    const sent = send(url, { body: CALL }).on('error', () => {});
    await reached.opened;
    sent.destroy();
    await done.opened;
    expect(told).toEqual(['depart', 'message 1', 'end', 'head', 'close']);
    expect(errors).toEqual([]);
  });

  it.each(['drain', 'a callback'])('does not stall an upstream that waits for %s', async (what) => {
    const told: string[] = [];
    const noted: unknown[] = [];
    const [full, done] = [latch(), latch()];
    const noise = `data: {"jsonrpc":"2.0","method":"${'x'.repeat(60_000)}"}\n\n`;
    const upstream: Upstream = async (_req, res) => {
      res.writeHead(200, SSE_TYPE);
      let count = 0;
      while (count++ < 1_000 && res.write(noise));
      full.open();
      if (what === 'drain') await once(res, 'drain');
      else noted.push(await new Promise<unknown>((resolve) => void res.write(noise, resolve)));
      noted.push(res.writableNeedDrain, res.write(PROGRESS), res.write(PROGRESS));
      res.end(RESULT);
      done.open();
    };
    const { url } = await serve(upstream, { host, filters: claiming(told) });
    const socket = connect(Number(url.port), url.hostname);
    socket.on('error', () => {});
    socket.write(rawHead(CALL.length) + CALL);
    socket.pause();
    await full.opened;
    socket.resetAndDestroy();
    await done.opened;
    await expect.poll(() => told.at(-1)).toBe('close');
    expect(told).toContain('message 1');
    expect(noted.slice(-3)).toEqual([false, true, true]);
    if (what !== 'drain') expect(noted[0] ?? undefined).toBeUndefined();
  });

  it('is told to the upstream as soon as that is wanted', async () => {
    const told: string[] = [];
    const [closed, done] = [latch(), latch()];
    const upstream: Upstream = async (_req, res) => {
      res.once('close', closed.open);
      res.writeHead(200, SSE_TYPE);
      res.write(PROGRESS);
      await closed.opened;
      expect([res.destroyed, res.closed]).toEqual([true, true]);
      res.end(RESULT);
      done.open();
    };
    const { url, exchanges } = await serve(upstream, { host, filters: claiming(told) });
    const reading = await open(url, { body: CALL });
    await reading.until(PROGRESS);
    reading.cut();
    await expect.poll(() => exchanges[0]?.tap.departed).toBe(true);
    expect(told).not.toContain('close');
    exchanges[0]?.tap.releaseClose();
    await done.opened;
    await expect.poll(() => told).toContain('end');
    expect(told.filter((each) => each === 'close' || each === 'depart')).toEqual([
      'depart',
      'close',
    ]);
    expect(told).toContain('message 1');
  });

  it('is told to an upstream that destroys its response', async () => {
    const told: string[] = [];
    const upstream: Upstream = async (req, res) => {
      res.writeHead(200, SSE_TYPE);
      res.write(PROGRESS);
      await trulyClosed(req);
      expect(res.destroyed).toBe(false);
      res.destroy();
      expect(res.destroyed).toBe(true);
    };
    const { url } = await serve(upstream, { host, filters: claiming(told) });
    const reading = await open(url, { body: CALL });
    await reading.until(PROGRESS);
    reading.cut();
    await expect.poll(() => told).toContain('close');
    expect(told.filter((each) => each === 'close')).toHaveLength(1);
  });

  it('may have its step abandoned, and the upstream is still seen to its end', async () => {
    const told: string[] = [];
    const [left, wrote] = [latch(), latch()];
    const upstream: Upstream = async (_req, res) => {
      res.writeHead(200, SSE_TYPE);
      res.write(PROGRESS);
      await left.opened;
      res.write(RESULT);
      res.end();
      wrote.open();
    };
    const { url, exchanges, errors } = await serve(upstream, { host, filters: claiming(told) });
    const reading = await open(url, { body: CALL });
    await reading.until(PROGRESS);
    reading.cut();
    await expect.poll(() => exchanges[0]?.tap.departed).toBe(true);
    exchanges[0]?.tap.abandon([{ jsonrpc: '2.0', id: 1, error: { code: 0, message: '' } }]);
    exchanges[0]?.tap.releaseClose();
    await expect.poll(() => told.at(-1)).toBe('close');
    left.open();
    await wrote.opened;
    await expect.poll(() => told.slice(-2)).toEqual(['message 1', 'end']);
    expect(errors).toEqual([]);
  });
});

describe('a client that stays', () => {
  it('sees no difference, and neither does the upstream', async () => {
    const told: string[] = [];
    const seen: string[] = [];
    const upstream: Upstream = (_req, res) => {
      res.once('finish', () => seen.push('finish')).once('close', () => seen.push('close'));
      res.writeHead(200, SSE_TYPE).end(RESULT);
    };
    const { url } = await serve(upstream, { filters: claiming(told) });
    const { body } = await ask(url, { body: CALL });
    expect(body.toString()).toBe(
      `${RESULT}event: message\ndata: {"jsonrpc":"2.0","method":"last"}\n\n`,
    );
    await expect.poll(() => seen).toEqual(['finish', 'close']);
    expect(told).toEqual(['message 1', 'head', 'end', 'close']);
  });

  it('is told when its step is abandoned, and the upstream is seen to its end', async () => {
    for (const type of ['text/event-stream', 'application/json', undefined] as const) {
      const told: string[] = [];
      const seen: unknown[] = [];
      const [begun, givenUp, over] = [latch(), latch(), latch()];
      const result = type === 'application/json' ? '{"jsonrpc":"2.0","id":1,"result":{}}' : RESULT;
      const upstream: Upstream = async (_req, res) => {
        res.once('close', () => seen.push('close'));
        if (type !== undefined)
          res.writeHead(200, { 'content-type': type, 'content-length': 5_000 });
        if (type === 'text/event-stream') res.write(PROGRESS);
        begun.open();
        await givenUp.opened;
        if (type === undefined) res.setHeader('x-late', '1').writeHead(200, SSE_TYPE);
        if (type === undefined) seen.push(res.getHeader('X-Late'), res.hasHeader('date'));
        seen.push(shown(res));
        res.write(result.slice(0, 20));
        await new Promise<void>((resolve) => void res.end(result.slice(20), resolve));
        over.open();
      };
      const { url, exchanges, errors } = await serve(upstream, { filters: claiming(told) });
      const reply = { jsonrpc: '2.0', id: 1, result: { isError: true } };
      const asking = ask(url, { body: CALL });
      await begun.opened;
      exchanges[0]?.tap.abandon([reply]);
      const { status, body, complete } = await asking;
      givenUp.open();
      await over.opened;
      const replied = type === 'text/event-stream' ? `${PROGRESS}event: message\ndata: ` : '';
      expect(body.toString().trimEnd()).toBe(replied + JSON.stringify(reply));
      expect([status, complete, errors]).toEqual([200, true, []]);
      await expect.poll(() => told.at(-1)).toBe('close');
      expect(told.filter((each) => each !== 'head')).toEqual([
        ...(type === 'text/event-stream' ? ['message notifications/progress'] : []),
        'depart',
        'message 1',
        'end',
        'close',
      ]);
      expect(seen).toEqual([...(type === undefined ? ['1', false] : []), HEALTHY, 'close']);
    }
  });
});

describe('a client that does not read the end of an abandoned step', () => {
  it('does not stall an upstream that waits for drain', async () => {
    const told: string[] = [];
    const [full, done] = [latch(), latch()];
    const noise = `data: {"jsonrpc":"2.0","method":"${'x'.repeat(60_000)}"}\n\n`;
    const upstream: Upstream = async (_req, res) => {
      res.writeHead(200, SSE_TYPE);
      for (let count = 0; count < 1_000 && res.write(noise); count++);
      full.open();
      await once(res, 'drain');
      res.end(RESULT);
      done.open();
    };
    const { url, exchanges } = await serve(upstream, { filters: claiming(told) });
    const socket = connect(Number(url.port), url.hostname);
    socket.on('error', () => {});
    socket.write(rawHead(CALL.length) + CALL);
    socket.pause();
    await full.opened;
    exchanges[0]?.tap.abandon([{ jsonrpc: '2.0', id: 1, error: { code: 0, message: '' } }]);
    await done.opened;
    await expect.poll(() => told).toContain('end');
    expect(told).toContain('message 1');
    socket.destroy();
  });
});

describe('a client that left before its step began', () => {
  it('is told to the filters that join, and again after the headers', async () => {
    const told: string[] = [];
    const [reached, done] = [latch(), latch()];
    const { url, exchanges } = await serve(
      async (req, res) => {
        reached.open();
        await trulyClosed(req);
        const [exchange] = exchanges;
        for (const filter of exchange === undefined ? [] : claiming(told)(exchange))
          exchange?.join(filter);
        expect(res.destroyed).toBe(true);
        res.writeHead(200, SSE_TYPE).end(RESULT);
        done.open();
      },
      { filters: () => [ONLOOKER] },
    );
    const sent = send(url, { body: LIST }).on('error', () => {});
    await reached.opened;
    sent.destroy();
    await done.opened;
    await expect.poll(() => told).toEqual(['close', 'message 1', 'head', 'close', 'end']);
  });
});

describe('a close that a tap withholds', () => {
  const watched = (emitClose: () => void = () => {}) => {
    const told: string[] = [];
    const host = silentHost((event) => {
      if (event !== 'close') return;
      told.push('emit');
      emitClose();
    });
    const filter: Filter = {
      stage: 'gate',
      onDepart: () => void told.push('depart'),
      onClose: () => void told.push('close'),
    };
    const tap = new Tap(host, {
      req: host.request,
      messages: [],
      isBatch: false,
      filters: [filter],
      maxMessageBytes: 1,
      onError: (error) => void told.push(String(error)),
    });
    return { told, tap };
  };

  it('is withheld only if asked for, and never of a finished response', () => {
    const { told, tap } = watched();
    expect([tap.close(), tap.closed, tap.departed, told]).toEqual([false, true, false, ['close']]);
    const finished = watched();
    finished.tap.withholdClose();
    finished.tap.respond(200, undefined);
    expect([finished.tap.close(), finished.told]).toEqual([false, ['close']]);
  });

  it('is not withheld once the client has left', () => {
    const { told, tap } = watched();
    tap.close();
    tap.withholdClose();
    expect([tap.close(), tap.closeWithheld, told]).toEqual([false, false, ['close']]);
  });

  it('is told once, also if it is released twice', () => {
    const { told, tap } = watched();
    tap.withholdClose();
    expect([tap.close(), tap.close(), tap.closeWithheld]).toEqual([true, true, true]);
    tap.releaseClose();
    tap.releaseClose();
    expect([tap.close(), tap.departed, tap.closeWithheld]).toEqual([false, true, false]);
    expect(told).toEqual(['depart', 'emit', 'close']);
  });

  it('is told to the filters even if a listener of the upstream throws', () => {
    const { told, tap } = watched(() => {
      throw new Error('a listener');
    });
    tap.withholdClose();
    tap.close();
    expect(() => tap.releaseClose()).toThrow('a listener');
    expect(told).toEqual(['depart', 'emit', 'close']);
  });
});

/** A connection without a network, which only emits events. */
function silentHost(onEvent: (event: string) => void): Host {
  const head = new Map<string, unknown>();
  return {
    request: { method: 'POST', headers: {} },
    response: {
      req: { method: 'POST' },
      statusCode: 200,
      getHeader: () => undefined,
      setHeader: (name, value) => head.set(name, value),
      hasHeader: (name) => head.has(name),
      getHeaderNames: () => [],
      removeHeader: (name) => void head.delete(name),
      destroy() {},
    },
    isBodyLost: () => false,
    isGone: false,
    isCutHere: () => false,
    source: {},
    unserved: undefined,
    readBody: () => 'aborted',
    peekBody: () => 'aborted',
    dropBody() {},
    watch() {},
    refuse() {},
    fail() {},
    redirect: () => ({
      writeHead() {},
      write: () => true,
      end() {},
      flushHeaders() {},
      emit(event) {
        onEvent(event);
        return true;
      },
      onceFinished: (done) => done(),
      keepHeaders() {},
    }),
  };
}
