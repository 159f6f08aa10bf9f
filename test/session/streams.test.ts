import { describe, expect, it } from 'vitest';
import { connect } from '../helpers/client.ts';
import { callOf, sendAndHold, stream } from '../helpers/raw.ts';
import { scene, settle, staysQuiet } from '../helpers/scene.ts';

const CHANGED = { jsonrpc: '2.0', method: 'notifications/tools/list_changed' };
const STATELESS = { mode: 'stateless', answers: 'json' } as const;

describe('where the upstream has no GET stream of its own', () => {
  it('the middleware serves one, with headers against buffering proxies', async () => {
    const app = await scene({ shape: STATELESS });
    const session = await app.session();
    const { status, headers } = await session.listen();
    expect(status).toBe(200);
    expect(headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    });
    expect(headers).not.toHaveProperty('allow');
    expect(headers).not.toHaveProperty('content-length');
    expect(headers).not.toHaveProperty('etag');
  });

  it('keeps it alive with comments, every keepAliveMs, while the client stays', async () => {
    const app = await scene({ shape: STATELESS, session: { keepAliveMs: 20_000 } });
    const session = await app.session();
    const listening = await session.listen();
    app.clock.advance(19_999);
    await settle();
    expect(listening.text).toBe('');
    app.clock.advance(1);
    await expect.poll(() => listening.text).toBe(': keep-alive\n\n');
    app.clock.advance(20_000);
    await expect.poll(() => listening.text).toBe(': keep-alive\n\n: keep-alive\n\n');
    listening.cut();
    await app.isServing(0);
    await staysQuiet(app);
  });

  it('tells there that the list changed, where a JSON answer has no room for it', async () => {
    const app = await scene({ shape: STATELESS });
    const session = await app.session();
    const listening = await session.listen();
    await session.call('cart.add_item');
    await expect.poll(() => listening.messages).toEqual([CHANGED]);
    await session.call('cart.view');
    await session.call('cart.add_item');
    await session.call('cart.checkout');
    await expect.poll(() => listening.messages).toEqual([CHANGED, CHANGED]);
  });

  it('serves four for one session, or maxStreams, and another when one ends', async () => {
    const app = await scene({ shape: STATELESS });
    const [ann, bob] = [await app.session(), await app.session()];
    const first = await ann.listen();
    for (let more = 0; more < 3; more++) expect((await ann.listen()).status).toBe(200);
    expect((await ann.listen()).status).toBe(405);
    expect((await bob.listen()).status).toBe(200);
    first.cut();
    await expect.poll(async () => (await ann.listen()).status).toBe(200);
    const few = await scene({ shape: STATELESS, session: { maxStreams: 1 } });
    const session = await few.session();
    expect([(await session.listen()).status, (await session.listen()).status]).toEqual([200, 405]);
  });

  it.each([
    ['the client does not read event streams', {}, 'application/json'],
    ['it was told not to', { serveStreams: false }, 'text/event-stream'],
  ])('serves none where %s', async (_, options, accept) => {
    const app = await scene({ shape: STATELESS, session: options });
    const { headers } = await app.session();
    const refused = await stream(app.url, { method: 'GET', headers: { ...headers, accept } });
    expect([refused.status, refused.headers.allow]).toEqual([405, 'POST']);
    await expect.poll(() => refused.text).toContain('Method not allowed.');
  });

  it('ends them when the session has ended elsewhere', async () => {
    const app = await scene({ shape: { mode: 'stateful' } });
    const session = await app.session();
    const listening = await session.listen();
    await app.store.delete(session.id);
    app.clock.advance(5_000);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
    await expect.poll(() => listening.ended).toBe(true);
  });

  it("looks to the SDK's client like the upstream's", async () => {
    const app = await scene({ shape: STATELESS });
    const client = await connect(app.url);
    await client.streaming;
    await client.call('cart.add_item');
    await expect.poll(() => client.log).toContain('list_changed');
    await client.close();
  });
});

describe('a change of the list', () => {
  it('is told on one stream only, the newest one', async () => {
    const app = await scene({ shape: STATELESS });
    const session = await app.session();
    const streams = [await session.listen(), await session.listen(), await session.listen()];
    await session.call('cart.add_item');
    await expect.poll(() => streams[2]?.messages).toEqual([CHANGED]);
    streams[2]?.cut();
    await app.isServing(2);
    await session.call('cart.checkout');
    await expect.poll(() => streams[1]?.messages).toEqual([CHANGED]);
    expect(streams[0]?.messages).toEqual([]);
  });

  it('is told to the session that moved, and to no other', async () => {
    const app = await scene({ shape: STATELESS });
    const [ann, bob] = [await app.session(), await app.session()];
    const [hers, his] = [await ann.listen(), await bob.listen()];
    await ann.call('cart.add_item');
    await expect.poll(() => hers.messages).toEqual([CHANGED]);
    await bob.call('cart.add_item');
    await expect.poll(() => his.messages).toEqual([CHANGED]);
    expect(hers.messages).toEqual([CHANGED]);
  });

  it.each(['stateful', 'stateless'] as const)(
    "is told on the call's own stream before its result, and not on the GET stream too (%s)",
    async (mode) => {
      const app = await scene({ shape: { mode, answers: 'sse' } });
      const session = await app.session();
      const listening = await session.listen();
      const { messages } = await session.post(callOf(1, 'cart.add_item'));
      expect(messages).toEqual([CHANGED, expect.objectContaining({ id: 1 })]);
      await settle();
      expect(listening.messages).toEqual([]);
    },
  );

  it("is told on the upstream's own GET stream, if any, where the answer is JSON", async () => {
    const app = await scene({ shape: { mode: 'stateful', answers: 'json' } });
    const session = await app.session();
    const listening = await session.listen();
    await session.call('cart.add_item');
    await expect.poll(() => listening.messages).toEqual([CHANGED]);
  });

  it('waits for the next stream where none is open, and is told once', async () => {
    const app = await scene({ shape: STATELESS });
    const session = await app.session();
    await session.call('cart.add_item');
    await session.call('cart.checkout');
    const listening = await session.listen();
    await expect.poll(() => listening.messages).toEqual([CHANGED]);
    const next = await session.listen();
    await settle();
    expect([listening.messages, next.messages]).toEqual([[CHANGED], []]);
  });

  it('is not told where a move shows the same tools, or nothing moved', async () => {
    const app = await scene({ shape: { mode: 'stateless', answers: 'sse' } });
    const session = await app.sessionAt('has_items');
    for (const [tool, args] of [
      ['cart.add_item', {}],
      ['cart.pay', {}],
      ['cart.checkout', { fail: true }],
      ['cart.view', {}],
    ] as const) {
      const { messages } = await session.post(callOf(1, tool, args));
      expect(messages.map((message) => message.id)).toEqual([1]);
    }
  });

  it('is declared once, in the answer to initialize', async () => {
    for (const mode of ['stateful', 'stateless'] as const) {
      const app = await scene({ shape: { mode } });
      const client = await connect(app.url);
      expect(client.client.getServerCapabilities()?.tools).toEqual({ listChanged: true });
      await client.close();
    }
  });
});

it('a GET whose client left is not forwarded: the upstream would keep it open', async () => {
  const forwarded: string[] = [];
  const app = await scene({
    shape: { mode: 'stateful' },
    behind: [
      (req, _res, next) => {
        forwarded.push(req.method);
        next();
      },
    ],
  });
  const session = await app.session();
  // The session has to be read again, and the store is slow.
  app.clock.advance(5_000);
  app.store.fail('read', 1, 'late');
  const left = sendAndHold(app.url, { method: 'GET', headers: session.headers });
  await expect.poll(() => app.store.late).toHaveLength(1);
  left.cut();
  await settle(100);
  app.store.late[0]?.();
  await settle(100);
  expect(forwarded).not.toContain('GET');
  const stream = await session.listen();
  expect([stream.status, forwarded.at(-1)]).toEqual([200, 'GET']);
  stream.cut();
});
