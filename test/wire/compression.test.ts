import { once } from 'node:events';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import compression from 'compression';
import { describe, expect, it } from 'vitest';
import type { Filter } from '../../src/wire/filter.ts';
import type { Message } from '../../src/wire/message.ts';
import { latch } from '../helpers/latch.ts';
import {
  ask,
  CALL,
  header,
  LIST,
  MARKER,
  ONLOOKER,
  open,
  rawHead,
  serve,
  type Upstream,
} from './wire-server.ts';

const HOSTS = ['express 4', 'express 5'] as const;
const TOOLS = JSON.stringify(Array.from({ length: 100 }, (_, n) => ({ name: `tool ${n}` })));
const RESULT = `{"jsonrpc":"2.0","id":1,"result":{"tools":${TOOLS}}}`;
const MARKED = `${RESULT.slice(0, -2)},"marked":true}}`;
const PROGRESS = 'data: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n';
const gzip = { 'accept-encoding': 'gzip' };
const json: Upstream = (_req, res) =>
  res.writeHead(200, { 'content-type': 'application/json' }).end(RESULT);

describe.each(HOSTS)('compression in front of us, on %s', (host) => {
  it('leaves the upstream its head where we answered before it gave one', async () => {
    const answered = { jsonrpc: '2.0', id: 1, result: { early: true } };
    const seen: unknown[] = [];
    const upstream: Upstream = (_req, res) => {
      seen.push(res.headersSent);
      res.writeHead(200, { 'content-type': 'application/json' }).end(RESULT);
      seen.push(res.headersSent);
    };
    const { url, errors } = await serve(upstream, {
      host,
      front: [compression({ threshold: 0 })],
      filters: ({ tap }) => {
        tap.withholdClose();
        tap.abandon([answered]);
        const onMessage = (message: Message): void => void seen.push(message.value.id);
        return [{ stage: 'gate', wants: () => true, onMessage }];
      },
    });
    const answer = await ask(url, { body: CALL, headers: gzip });
    expect(JSON.parse(gunzipSync(answer.body).toString())).toEqual(answered);
    await expect.poll(() => seen).toEqual([false, 1, true]);
    expect(errors).toEqual([]);
  });

  it.each<[string, Upstream]>([
    ['writeHead', json],
    [
      'implicit headers',
      (_req, res) => res.setHeader('content-type', 'application/json').end(RESULT),
    ],
    [
      'res.json',
      (_req, res) => (res as unknown as { json(value: unknown): void }).json(JSON.parse(RESULT)),
    ],
  ])('compresses JSON that we have read and changed: %s', async (_, upstream) => {
    const { url, errors } = await serve(upstream, {
      host,
      front: [compression()],
      filters: () => [MARKER],
    });
    for (const [encoding, decode] of [
      ['gzip', gunzipSync],
      ['br', brotliDecompressSync],
    ] as const) {
      const answer = await ask(url, { body: LIST, headers: { 'accept-encoding': encoding } });
      expect(header(answer, 'content-encoding')).toBe(encoding);
      expect(decode(answer.body).toString()).toBe(MARKED);
    }
    const plain = await ask(url, { body: LIST });
    expect([header(plain, 'content-encoding'), plain.body.toString()]).toEqual([undefined, MARKED]);
    expect(errors).toEqual([]);
  });

  it.each(['no-cache, no-transform', 'no-cache'])(
    'does not hold events back: %s',
    async (control) => {
      const firstCame = latch();
      const upstream: Upstream = async (_req, res) => {
        res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': control });
        res.write(PROGRESS);
        await firstCame.opened;
        res.end(PROGRESS);
      };
      const { url } = await serve(upstream, {
        host,
        front: [compression()],
        filters: () => [ONLOOKER],
      });
      const reading = await open(url, { body: CALL, headers: gzip });
      if (control.includes('no-transform')) await reading.until(PROGRESS);
      else await expect.poll(() => reading.bytes.length).toBeGreaterThan(30);
      firstCame.open();
      await reading.done;
      const { bytes, response } = reading;
      const text = response.headers['content-encoding'] === 'gzip' ? gunzipSync(bytes) : bytes;
      expect(text.toString()).toBe(PROGRESS + PROGRESS);
    },
  );

  it.each<[string, Filter[]]>([
    ['as it is', []],
    ['while a filter thinks', [{ ...ONLOOKER, onMessage: () => new Promise(setImmediate) }]],
  ])('lets a pipe go on once its own stream drains: %s', async (_, filters) => {
    const event = `data: {"jsonrpc":"2.0","method":"${'x'.repeat(9_000)}"}\n\n`;
    const upstream: Upstream = (_req, res) =>
      pipeline(
        Readable.from(Array.from({ length: 300 }, () => event)),
        res.writeHead(200, { 'content-type': 'text/event-stream' }),
      );
    const { url } = await serve(upstream, { host, front: [compression()], filters: () => filters });
    const answer = await ask(url, { body: CALL, headers: gzip });
    expect(header(answer, 'content-encoding')).toBe('gzip');
    expect(gunzipSync(answer.body).toString()).toBe(event.repeat(300));
  });

  it('lets an upstream go on whose client left, so that its outcome is seen', async () => {
    const [left, done] = [latch(), latch()];
    const upstream: Upstream = async (_req, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      // Random, so that it cannot be compressed away.
      const noise = (): string =>
        Array.from({ length: 4_000 }, () => Math.random().toString(36)).join('');
      const event = (): string => `data: {"jsonrpc":"2.0","method":"${noise()}"}\n\n`;
      for (let n = 0; n < 500 && res.write(event()); n++);
      left.open();
      await once(res, 'drain');
      res.end(`data: ${RESULT}\n\n`);
      done.open();
    };
    let seen = false;
    const filter: Filter = {
      ...ONLOOKER,
      onMessage(message) {
        seen ||= message.at('id') === 1;
      },
    };
    const { url } = await serve(upstream, {
      host,
      front: [compression()],
      filters: ({ tap }) => {
        tap.withholdClose();
        return [filter];
      },
    });
    const socket = connect(Number(url.port), url.hostname);
    socket.write(rawHead(CALL.length, 'accept-encoding: gzip') + CALL);
    socket.pause();
    await left.opened;
    socket.resetAndDestroy();
    await done.opened;
    await expect.poll(() => seen).toBe(true);
  });
});

describe.each(HOSTS)('compression behind us, on %s', (host) => {
  it('is asked not to compress, and its plain response is read', async () => {
    const { url, errors } = await serve(json, {
      host,
      behind: [compression()],
      filters: () => [MARKER],
    });
    const answer = await ask(url, { body: LIST, headers: gzip });
    expect([header(answer, 'content-encoding'), answer.body.toString()]).toEqual([
      undefined,
      MARKED,
    ]);
    expect(errors).toEqual([]);
  });

  it('leaves streams alone', async () => {
    const upstream: Upstream = async (_req, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      for (let n = 0; n < 200; n++) {
        if (!res.write(PROGRESS)) await once(res, 'drain');
      }
      res.end();
    };
    const slow: Filter = { ...ONLOOKER, onMessage: () => new Promise(setImmediate) };
    const { url } = await serve(upstream, { host, behind: [compression()], filters: () => [slow] });
    expect((await ask(url, { body: LIST, headers: gzip })).body.toString()).toBe(
      PROGRESS.repeat(200),
    );
  });

  it('is refused where it compresses all the same', async () => {
    const { url, errors } = await serve(
      (_req, res) => {
        res
          .writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' })
          .end('\x1f\x8b');
      },
      { host, filters: () => [ONLOOKER] },
    );
    const answer = await ask(url, { body: LIST, headers: gzip });
    expect([answer.status, header(answer, 'content-encoding')]).toEqual([502, undefined]);
    expect(String(errors[0])).toContain('content-encoding "gzip". Answer with');
  });
});
