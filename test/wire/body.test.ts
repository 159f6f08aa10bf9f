import { once } from 'node:events';
import { connect } from 'node:net';
import type { Readable } from 'node:stream';
import express, { type RequestHandler } from 'express';
import fc from 'fast-check';
import { createProxyMiddleware, fixRequestBody } from 'http-proxy-middleware';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Exchange } from '../../src/wire/exchange.ts';
import { few } from '../helpers/few.ts';
import {
  type Answer,
  ask,
  express4,
  header,
  rawHead,
  serve,
  type Upstream,
  wiring,
} from './wire-server.ts';

const MIB = 1024 * 1024;
const PING = '{"jsonrpc":"2.0","id":1.0,"method":"ping"}';
const AMENDED = '{"jsonrpc":"2.0","id":1.0,"method":"ping","params":{"é":"💶"}}';

async function textOf(stream: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

/** The body as the upstream finds it in each of its places. */
interface Seen {
  readonly stream: string;
  readonly body?: unknown;
  readonly raw?: string | undefined;
  readonly length?: string | undefined;
}

const tell: Upstream = async (req, res) => {
  const { body, rawBody } = req as { body?: unknown; rawBody?: Buffer | string };
  const seen: Seen = {
    stream: await textOf(req),
    body: Buffer.isBuffer(body) ? `bytes: ${body}` : body,
    raw: rawBody?.toString(),
    length: req.headers['content-length'],
  };
  res.writeHead(200, { 'content-type': 'text/plain' }).end(JSON.stringify(seen));
};

/** A body without requests, so that a response of any type passes. */
const NOTICE = '{"jsonrpc":"2.0","method":"notifications/é"}';
const seenIn = ({ body }: Answer): Seen => JSON.parse(body.toString()) as Seen;
const codeIn = ({ body }: Answer): unknown => JSON.parse(body.toString()).error.code;

/** Sets a member of the first message, as a gate does when it claims. */
const amend = (exchange: Exchange): never[] => {
  exchange.messages[0]?.message.set(['params'], { é: '💶' });
  return [];
};
const AMENDED_NOTICE = '{"jsonrpc":"2.0","method":"notifications/é","params":{"é":"💶"}}';

describe('a body that no parser has read', () => {
  it.each<[string, string | Buffer[]]>([
    ['with its length', NOTICE],
    ['in chunks', [Buffer.from(NOTICE)]],
    ['in single bytes', Array.from(Buffer.from(NOTICE), (byte) => Buffer.of(byte))],
    ['with a byte order mark', `\ufeff${NOTICE}`],
    ['with space around it', ` \r\n${NOTICE}\n `],
  ])('reaches the upstream as it came: %s', async (_, body) => {
    const { url } = await serve(tell);
    const came =
      Buffer.isBuffer(body) || typeof body === 'string' ? body : Buffer.concat(body).toString();
    expect(seenIn(await ask(url, { body })).stream).toBe(came);
  });

  it('reaches the upstream as it came, wherever the network cut it', async () => {
    const { url } = await serve(tell);
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: 'binary', maxLength: 200 }),
        fc.array(fc.nat(300)),
        async (text, cuts) => {
          const whole = Buffer.from(
            JSON.stringify({ jsonrpc: '2.0', method: 'x', params: { text } }),
          );
          const at = [...cuts.map((cut) => cut % whole.length), whole.length].sort((a, b) => a - b);
          const body = at.map((end, index) => whole.subarray(at[index - 1] ?? 0, end));
          expect(seenIn(await ask(url, { body })).stream).toBe(whole.toString());
        },
      ),
      few(8),
    );
  });

  it('may be as large as the limit, and reaches the upstream whole', async () => {
    const { url } = await serve(tell);
    const [head, tail] = ['{"jsonrpc":"2.0","method":"x","params":{"a":"', '"}}'];
    const body = head + 'é'.repeat((4 * MIB - head.length - tail.length) / 2) + tail;
    expect(Buffer.byteLength(body)).toBeGreaterThan(4 * MIB - 2);
    for (const sent of [body, [body.slice(0, 1000), body.slice(1000)]]) {
      expect(seenIn(await ask(url, { body: sent })).stream === body).toBe(true);
    }
  });

  it('may come slowly', async () => {
    const { url } = await serve(tell);
    const socket = connect(Number(url.port), url.hostname);
    socket.write(rawHead(Buffer.byteLength(NOTICE), 'connection: close'));
    for (const byte of Buffer.from(NOTICE)) {
      socket.write(Buffer.of(byte));
      await new Promise(setImmediate);
    }
    expect(await textOf(socket)).toContain(JSON.stringify(NOTICE).slice(1, -1));
  });

  it('is in `rawBody` too, for adapters that refuse a stream which was read', async () => {
    const { url } = await serve(tell);
    expect(seenIn(await ask(url, { body: NOTICE })).raw).toBe(NOTICE);
  });

  it('does not block the next request on its connection where no handler reads it', async () => {
    const refusing = (exchange: Exchange): never[] => {
      for (const incoming of exchange.messages) void incoming.drop();
      return [];
    };
    const { url } = await serve(tell, { filters: refusing });
    const socket = connect(Number(url.port), url.hostname);
    const body = JSON.stringify({ jsonrpc: '2.0', method: 'x', params: 'x'.repeat(MIB) });
    const request = rawHead(body.length) + body;
    socket.write(request + request + rawHead(body.length, 'connection: close') + body);
    expect((await textOf(socket)).match(/^HTTP\/1.1 202 /gm)).toHaveLength(3);
  });

  it('can be piped', async () => {
    const behind = await serve(tell, { wired: false });
    const proxy = createProxyMiddleware({ target: behind.url.origin, changeOrigin: true });
    const { url } = await serve(tell, { host: 'express 5', behind: [proxy as RequestHandler] });
    expect(seenIn(await ask(url, { body: NOTICE })).stream).toBe(NOTICE);
    expect(seenIn(await ask(url, { body: [NOTICE] })).stream).toBe(NOTICE);
  });

  it('is read by a parser that is mounted behind', async () => {
    for (const [host, { json }] of [
      ['express 4', express4],
      ['express 5', express],
    ] as const) {
      const { url } = await serve(tell, { host, behind: [json() as RequestHandler] });
      expect(seenIn(await ask(url, { body: NOTICE })).body).toEqual(JSON.parse(NOTICE));
    }
  });

  it('may be read as text by a middleware in front', async () => {
    for (const encoding of ['utf8', 'latin1', 'base64'] as const) {
      const upstream: Upstream = async (req, res) => {
        let text = '';
        for await (const chunk of req) text += chunk as string;
        res.writeHead(200, { 'content-type': 'text/plain' }).end(Buffer.from(text, encoding));
      };
      const setEncoding: RequestHandler = (req, _res, next) =>
        void next(req.setEncoding(encoding) && undefined);
      const filters = amend;
      const plain = await serve(upstream, { host: 'express 5', front: [setEncoding] });
      expect((await ask(plain.url, { body: NOTICE })).body.toString()).toBe(NOTICE);
      const amended = await serve(upstream, { host: 'express 5', front: [setEncoding], filters });
      expect((await ask(amended.url, { body: NOTICE })).body.toString()).toBe(AMENDED_NOTICE);
    }
  });

  it('is found although a parser of another type left an empty object', async () => {
    const { url } = await serve(tell, {
      host: 'express 4',
      front: [express4.urlencoded({ extended: false })],
      filters: amend,
    });
    expect(seenIn(await ask(url, { body: NOTICE }))).toMatchObject({
      stream: AMENDED_NOTICE,
      body: {},
    });
  });
});

describe('a body that was read in front', () => {
  const parsers: [string, RequestHandler, unknown, unknown][] = [
    ['into a value', express.json(), JSON.parse(NOTICE), JSON.parse(AMENDED_NOTICE)],
    ['into text', express.text({ type: () => true }), NOTICE, AMENDED_NOTICE],
    [
      'into bytes',
      express.raw({ type: () => true }),
      `bytes: ${NOTICE}`,
      `bytes: ${AMENDED_NOTICE}`,
    ],
  ];

  it.each(parsers)('%s is left in that form', async (_, parser, body) => {
    const { url } = await serve(tell, { host: 'express 5', front: [parser] });
    expect(seenIn(await ask(url, { body: NOTICE }))).toEqual({
      stream: '',
      body,
      length: String(Buffer.byteLength(NOTICE)),
    });
  });

  it.each(parsers)('%s is amended in that form', async (_, parser, __, body) => {
    const { url } = await serve(tell, { host: 'express 5', front: [parser], filters: amend });
    const length = String(Buffer.byteLength(AMENDED_NOTICE));
    expect(seenIn(await ask(url, { body: NOTICE }))).toEqual({ stream: '', body, length });
  });

  it('is proxied as it was amended', async () => {
    const behind = await serve(tell, { wired: false });
    const proxy = createProxyMiddleware({
      target: behind.url.origin,
      on: { proxyReq: fixRequestBody },
    });
    const { url } = await serve(tell, {
      host: 'express 5',
      front: [express.json()],
      behind: [proxy as RequestHandler],
      filters: amend,
    });
    expect(seenIn(await ask(url, { body: NOTICE })).stream).toBe(AMENDED_NOTICE);
  });

  it('is amended in `rawBody` too, as text or as bytes', async () => {
    for (const raw of [NOTICE, Buffer.from(NOTICE)]) {
      const keep: RequestHandler = (req, _res, next) =>
        void next(Object.assign(req, { rawBody: raw }) && undefined);
      const { url } = await serve(tell, {
        host: 'express 5',
        front: [express.json(), keep],
        filters: amend,
      });
      expect(seenIn(await ask(url, { body: NOTICE }))).toMatchObject({
        raw: AMENDED_NOTICE,
        body: JSON.parse(AMENDED_NOTICE),
      });
    }
  });

  it('is read once where the host parses it on demand', async () => {
    let reads = 0;
    const lazy: RequestHandler = (req, _res, next) => {
      const get = (): unknown => {
        reads++;
        return JSON.parse(NOTICE);
      };
      Object.defineProperty(req, 'body', { configurable: true, get });
      next();
    };
    const upstream: Upstream = (_req, res) => res.end();
    const { url } = await serve(upstream, { host: 'express 5', front: [lazy], filters: amend });
    expect((await ask(url, { body: NOTICE })).status).toBe(200);
    expect(reads).toBe(1);
  });

  it('is refused as no JSON where the host throws on demand', async () => {
    const lazy: RequestHandler = (req, _res, next) => {
      const get = (): never => {
        throw new SyntaxError('Invalid JSON');
      };
      Object.defineProperty(req, 'body', { configurable: true, get });
      next();
    };
    const { url } = await serve(tell, { host: 'express 5', front: [lazy] });
    const answer = await ask(url, { body: '{' });
    expect([answer.status, codeIn(answer)]).toEqual([400, -32700]);
  });

  it('is refused as no JSON where the reader kept nothing', async () => {
    const swallow: RequestHandler = (req, _res, next) =>
      void req.resume().once('end', () => next());
    const { url } = await serve(tell, { host: 'express 5', front: [swallow] });
    const answer = await ask(url, { body: PING });
    expect([answer.status, codeIn(answer)]).toEqual([400, -32700]);
  });
});

describe('an amended body', () => {
  it('reaches every reader of the stream, with its own length', async () => {
    const { url } = await serve(tell, { filters: amend });
    const length = String(Buffer.byteLength(AMENDED_NOTICE));
    expect(seenIn(await ask(url, { body: NOTICE }))).toEqual({
      stream: AMENDED_NOTICE,
      raw: AMENDED_NOTICE,
      length,
    });
    expect(seenIn(await ask(url, { body: [NOTICE] }))).toEqual({
      stream: AMENDED_NOTICE,
      raw: AMENDED_NOTICE,
    });
  });

  it('is piped, and read by a parser behind', async () => {
    const behind = await serve(tell, { wired: false });
    const proxy = createProxyMiddleware({ target: behind.url.origin });
    const piped = await serve(tell, {
      host: 'express 5',
      behind: [proxy as RequestHandler],
      filters: amend,
    });
    expect(seenIn(await ask(piped.url, { body: NOTICE })).stream).toBe(AMENDED_NOTICE);
    const parsed = await serve(tell, {
      host: 'express 5',
      behind: [express.json()],
      filters: amend,
    });
    expect(seenIn(await ask(parsed.url, { body: NOTICE })).body).toEqual(
      JSON.parse(AMENDED_NOTICE),
    );
  });

  it.each<[string, RequestHandler, unknown]>([
    ['a value', express.json(), JSON.parse(AMENDED_NOTICE)],
    ['text', express.text({ type: () => true }), AMENDED_NOTICE],
    ['bytes', express.raw({ type: () => true }), `bytes: ${AMENDED_NOTICE}`],
  ])('may be read into %s between two middlewares', async (_, parser, body) => {
    const errors: unknown[] = [];
    const { url } = await serve(tell, {
      host: 'express 5',
      behind: [parser, wiring(amend, errors)],
    });
    expect(seenIn(await ask(url, { body: NOTICE }))).toMatchObject({
      stream: '',
      body,
      raw: AMENDED_NOTICE,
    });
    expect(errors).toEqual([]);
  });

  it('keeps every character that was not amended, also of big numbers and escapes', async () => {
    const body =
      '{"jsonrpc":"2.0","method":"x","params":{"n":12345678901234567890,"f":1.0,"e":"\\u00e9"}}';
    const { url } = await serve(tell, {
      filters: ({ messages }) => {
        messages[0]?.message.set(['params', 'key'], 'k');
        return [];
      },
    });
    expect(seenIn(await ask(url, { body })).stream).toBe(`${body.slice(0, -2)},"key":"k"}}`);
  });

  it('is not handed on as it was where other code has read the stream', async () => {
    const swallow: RequestHandler = (req, _res, next) =>
      void req.resume().once('end', () => next());
    let reached = false;
    const { url, errors } = await serve(
      (_req, res) => {
        reached = true;
        res.end();
      },
      { host: 'express 5', behind: [swallow, wiring(amend, [])] },
    );
    const answer = await ask(url, { body: PING });
    expect([answer.status, codeIn(answer), reached]).toEqual([500, -32603, false]);
    expect(String(errors[0])).toContain('consumed before the middleware could amend it');
  });
});

describe('a body that is refused', () => {
  it('with a 415 if it is encoded, unless a parser in front has decoded it', async () => {
    const { gzipSync } = await import('node:zlib');
    const headers = { 'content-encoding': 'GZip' };
    const bare = await serve(tell);
    const answer = await ask(bare.url, { headers, body: gzipSync(NOTICE) });
    expect([answer.status, codeIn(answer)]).toEqual([415, -32700]);
    const parsed = await serve(tell, { host: 'express 5', front: [express.json()] });
    expect(seenIn(await ask(parsed.url, { headers, body: gzipSync(NOTICE) })).body).toEqual(
      JSON.parse(NOTICE),
    );
    expect(
      (await ask(bare.url, { headers: { 'content-encoding': 'Identity' }, body: NOTICE })).status,
    ).toBe(200);
  });

  it.each([
    'application/json; charset=utf-7',
    'application/json; charset="UTF-7"',
    'application/json;charset = utf-16le',
    'application/json; charset=utf-8; charset=utf-7',
    "application/json; charset='utf-7'",
    'application/json; charset="utf\\-7"',
    'application/json; charset=latin1',
  ])('with a 415 where a parser behind would read other text in it: %s', async (type) => {
    // `+ACI-` is a quote in UTF-7: a parser that goes by the charset reads another method here.
    const body = '{"jsonrpc":"2.0","method":"x","a":"+ACI-,+ACI-method+ACI-:+ACI-tools/call"}';
    for (const front of [[], [express.raw({ type: () => true })]]) {
      const { url } = await serve(tell, { host: 'express 5', front, behind: [express.json()] });
      const answer = await ask(url, { headers: { 'content-type': type }, body });
      expect([answer.status, codeIn(answer)]).toEqual([415, -32700]);
    }
  });

  it.each([
    'application/json; charset=utf-8',
    'application/json;charset="UTF-8"',
    'application/json; charset=UTF8',
  ])('is not one whose type says UTF-8: %s', async (type) => {
    const { url } = await serve(tell);
    expect(seenIn(await ask(url, { headers: { 'content-type': type }, body: NOTICE })).stream).toBe(
      NOTICE,
    );
  });

  it.each<[string, string | string[]]>([
    ['with its length', 'x'.repeat(8 * MIB)],
    ['in chunks', ['{"a":"', ...Array.from({ length: 8 }, () => 'x'.repeat(MIB)), '"}']],
  ])(
    'as too large gets a 413, which reaches a client that is still sending, %s',
    async (_, body) => {
      const { url } = await serve(tell);
      const answer = await ask(url, { body });
      expect([answer.status, codeIn(answer), answer.complete]).toEqual([413, -32700, true]);
      expect(answer.body.toString()).toContain('larger than 4194304 bytes');
    },
  );

  it.each([
    ['too large', 413, ''],
    ['encoded', 415, 'content-encoding: gzip\r\n'],
  ])('as %s is not read for ever', async (_, status, header) => {
    const { url } = await serve(tell);
    const socket = connect(Number(url.port), url.hostname);
    socket.on('error', () => {});
    const closed = new Promise((resolve) => socket.once('close', resolve));
    let answer = '';
    socket.on('data', (chunk: Buffer) => {
      answer += chunk.toString();
    });
    socket.write(`POST /mcp HTTP/1.1\r\nhost: x\r\n${header}transfer-encoding: chunked\r\n\r\n`);
    const chunk = Buffer.from(`${MIB.toString(16)}\r\n${' '.repeat(MIB)}\r\n`);
    let sent = 0;
    const pump = (): void => {
      while (!socket.destroyed && socket.write(chunk)) sent++;
      sent++;
    };
    socket.on('drain', pump);
    pump();
    await closed;
    expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(answer.toLowerCase()).toContain('\r\nconnection: close\r\n');
    expect(answer).toContain('"jsonrpc":"2.0"');
    // The buffers of both sides hold some more.
    expect(sent).toBeGreaterThan(16);
    expect(sent).toBeLessThan(64);
  });

  it('as too large is read for no longer than a second', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { url } = await serve(tell, { limits: { maxBodyBytes: 10 } });
    const socket = connect(Number(url.port), url.hostname);
    const closed = once(socket, 'close');
    socket.write('POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{');
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1.1 413 /);
    vi.advanceTimersByTime(999);
    await new Promise(setImmediate);
    expect(socket.closed).toBe(false);
    vi.advanceTimersByTime(1);
    await closed;
  });

  it('as too large gets a 413 where a parser in front has read it as text or bytes', async () => {
    const body = `{"a":"${'é'.repeat(600)}"}`;
    for (const parser of [express.text({ type: () => true }), express.raw({ type: () => true })]) {
      const { url } = await serve(tell, {
        host: 'express 5',
        front: [parser],
        limits: { maxBodyBytes: 1_000 },
      });
      expect((await ask(url, { body })).status).toBe(413);
    }
  });

  it('as aborted by its client reaches no upstream, and harms nothing', async () => {
    let reached = 0;
    const upstream: Upstream = (req, res) => {
      reached++;
      return tell(req, res);
    };
    const { url, server, exchanges } = await serve(upstream);
    const socket = connect(Number(url.port), url.hostname);
    socket.write('POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"jsonrpc":');
    const [req] = (await once(server, 'request')) as [Readable];
    socket.destroy();
    await new Promise<void>((resolve) => void req.once('close', () => resolve()));
    expect([reached, exchanges.length]).toEqual([0, 0]);
    expect(seenIn(await ask(url, { body: NOTICE })).stream).toBe(NOTICE);
  });

  it('as its client has left reaches no upstream', async () => {
    let reached = false;
    const gone = new Promise<void>((resolve) => {
      const front: RequestHandler = (req, res, next) => {
        req.once('close', () => {
          next();
          setImmediate(resolve);
        });
        res.socket?.destroy();
      };
      void serve(
        () => {
          reached = true;
        },
        { host: 'express 5', front: [front] },
      ).then(({ url }) => ask(url, { body: NOTICE }).catch(() => {}));
    });
    await gone;
    expect(reached).toBe(false);
  });

  it('is not even read for another method than POST', async () => {
    const { url } = await serve(tell);
    const answer = await ask(url, { method: 'PUT', body: 'not JSON' });
    expect(seenIn(answer).stream).toBe('not JSON');
    expect(header(answer, 'content-type')).toBe('text/plain');
  });
});

describe('the amended message', () => {
  it('is the sent one, but for the amended member', async () => {
    const { url } = await serve(
      async (req, res) => {
        res.setHeader('content-type', 'application/json').end(await textOf(req));
      },
      { filters: amend },
    );
    expect((await ask(url, { body: PING })).body.toString()).toBe(AMENDED);
  });
});
