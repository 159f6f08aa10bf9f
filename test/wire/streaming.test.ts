import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import type { Filter } from '../../src/wire/filter.ts';
import { latch } from '../helpers/latch.ts';
import {
  CALL,
  HOSTS,
  MARKER,
  ONLOOKER,
  open,
  rawHead,
  serve,
  type Upstream,
} from './wire-server.ts';

const SSE_TYPE = { 'content-type': 'text/event-stream' };
const PROGRESS =
  'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}\n\n';
const RESULT = 'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n';

const SLOW: Filter = { ...ONLOOKER, onMessage: () => new Promise(setImmediate) };

describe.each(HOSTS)('a stream of events, on %s', (host) => {
  it.each<[string, Filter[]]>([
    ['no filter reads', []],
    ['a filter reads', [ONLOOKER]],
    ['a filter changes', [MARKER]],
    ['a slow filter reads', [SLOW]],
  ])('that %s arrives event by event, and not at the end', async (_, filters) => {
    // The upstream does not go on before the client has the last event.
    const [headersCame, firstCame, secondCame] = [latch(), latch(), latch()];
    const upstream: Upstream = async (_req, res) => {
      res.writeHead(200, SSE_TYPE);
      res.flushHeaders();
      await headersCame.opened;
      res.write(PROGRESS);
      await firstCame.opened;
      res.write(PROGRESS.replace('1}', '2}').slice(0, 20));
      res.write(PROGRESS.replace('1}', '2}').slice(20));
      await secondCame.opened;
      res.end(RESULT);
    };
    const { url } = await serve(upstream, { host, filters: () => filters });
    const reading = await open(url, { body: CALL });
    headersCame.open();
    await reading.until('"progress":1');
    firstCame.open();
    await reading.until('"progress":2');
    expect(reading.bytes.includes('result')).toBe(false);
    secondCame.open();
    await reading.done;
    expect(reading.bytes.includes('result')).toBe(true);
  });

  it.each([
    ['with the event that follows at once', true],
    ['alone where none does', false],
  ])('has its headers go %s', async (_, follows) => {
    let flushed = 0;
    const front: RequestHandler = (_req, res, next) => {
      const { flushHeaders } = res;
      res.flushHeaders = function (this: ServerResponse) {
        flushed++;
        flushHeaders.call(this);
      };
      next();
    };
    const headersCame = latch();
    const upstream: Upstream = async (_req, res) => {
      res.writeHead(200, SSE_TYPE).flushHeaders();
      if (!follows) await headersCame.opened;
      res.end(RESULT);
    };
    const { url } = await serve(upstream, { front: [front], filters: () => [ONLOOKER] });
    const reading = await open(url, { body: CALL });
    headersCame.open();
    await reading.done;
    expect(reading.bytes.toString()).toBe(RESULT);
    expect(flushed).toBe(follows ? 0 : 1);
  });

  it('goes on in order behind an event that a filter still reads', async () => {
    const { opened, open: let1Go } = latch();
    const filter: Filter = {
      ...ONLOOKER,
      onMessage: (message) => (message.at('id') === 1 ? opened : undefined),
    };
    const written = latch();
    const { url } = await serve(
      (_req, res) => {
        res.writeHead(200, SSE_TYPE);
        res.write(PROGRESS + RESULT);
        res.end(PROGRESS);
        written.open();
      },
      { host, filters: () => [filter] },
    );
    const reading = await open(url, { body: CALL });
    await reading.until(PROGRESS);
    await written.opened;
    expect(reading.bytes.toString()).toBe(PROGRESS);
    let1Go();
    await reading.done;
    expect(reading.bytes.toString()).toBe(PROGRESS + RESULT + PROGRESS);
  });
});

describe('a raw body', () => {
  it('streams too, and its headers are sent when they are flushed', async () => {
    const [headersCame, firstCame] = [latch(), latch()];
    const { url } = await serve(
      async (_req, res) => {
        res.writeHead(200, { 'content-type': 'text/plain' }).flushHeaders();
        await headersCame.opened;
        res.write('first');
        await firstCame.opened;
        res.end('second');
      },
      { filters: () => [ONLOOKER] },
    );
    const reading = await open(url, { method: 'GET' });
    headersCame.open();
    await reading.until('first');
    firstCame.open();
    await reading.done;
    expect(reading.bytes.toString()).toBe('firstsecond');
  });
});

describe('a client that does not read', () => {
  const PARAMS = `{"text":"${'x'.repeat(64_000)}"}`;
  const EVENT = `data: {"jsonrpc":"2.0","method":"x","params":${PARAMS}}\n\n`;
  const EVENTS = 800;

  /** The ways in which upstreams keep their client's pace. `sent` counts the events. */
  const pumps: [string, (sent: { events: number }) => Upstream][] = [
    [
      'a pipe',
      (sent) => (_req, res) => {
        const events = Readable.from(
          (function* () {
            for (sent.events = 0; sent.events < EVENTS; sent.events++) yield EVENT;
          })(),
          { objectMode: false },
        );
        return pipeline(events, res.writeHead(200, SSE_TYPE)).catch(() => {});
      },
    ],
    [
      'a loop that waits for `drain`',
      (sent) => async (_req, res) => {
        res.writeHead(200, SSE_TYPE);
        for (sent.events = 0; sent.events < EVENTS; sent.events++) {
          if (!res.write(EVENT)) await once(res, 'drain');
        }
        res.end();
      },
    ],
    [
      'a loop that waits for the callback',
      (sent) => async (_req, res) => {
        res.writeHead(200, SSE_TYPE);
        for (sent.events = 0; sent.events < EVENTS; sent.events++) {
          await new Promise<void>((resolve) => void res.write(EVENT, () => resolve()));
        }
        res.end();
      },
    ],
    [
      'a loop that polls `writableNeedDrain`',
      (sent) => async (_req, res) => {
        res.writeHead(200, SSE_TYPE);
        for (sent.events = 0; sent.events < EVENTS; sent.events++) {
          if (res.writableNeedDrain) await once(res, 'drain');
          res.write(EVENT);
        }
        res.end();
      },
    ],
  ];

  const filters: [string, Filter[]][] = [
    ['no filter', []],
    ['a slow filter', [SLOW]],
  ];

  it.each(
    pumps.flatMap(([pump, make]) => filters.map(([who, each]) => ({ pump, make, who, each }))),
  )('does not have 50 MB of events kept for it: $pump, $who', async ({ make, each }) => {
    const sent = { events: 0 };
    const { url } = await serve(make(sent), { filters: () => each });
    const socket = connect(Number(url.port), url.hostname);
    socket.write(rawHead(CALL.length, 'connection: close') + CALL);
    socket.pause();
    await untilItStands(() => sent.events);
    // The sockets of both sides hold some bytes, but far less than all.
    expect(sent.events * EVENT.length).toBeLessThan(12_000_000);
    expect(sent.events).toBeGreaterThan(0);
    let received = 0;
    socket.on('data', (chunk: Buffer) => {
      received += chunk.length;
    });
    socket.resume();
    await once(socket, 'close');
    expect(sent.events).toBe(EVENTS);
    expect(received).toBeGreaterThan(EVENTS * EVENT.length);
  });

  /** Waits until the number has not changed for many turns of the process. */
  async function untilItStands(read: () => number): Promise<void> {
    for (let last = 0, turns = 0; turns < 100; turns++) {
      await new Promise((resolve) => setTimeout(resolve));
      if (read() !== last || last === 0) turns = 0;
      last = read();
    }
  }
});
