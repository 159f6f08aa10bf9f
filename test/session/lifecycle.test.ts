import type { IncomingHttpHeaders } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { CallerRequest } from '../../src/index.ts';
import { connect } from '../helpers/client.ts';
import { latch } from '../helpers/latch.ts';
import {
  callOf,
  INITIALIZE,
  PROTOCOL,
  type RawResponse,
  RawSession,
  send,
} from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';

const MODES = ['stateful', 'stateless'] as const;
const UNKNOWN = { code: -32001, message: 'Session not found' };
const DAY = 24 * 3_600_000;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** A response without what is not the server's choice, such as its date. */
function comparable({ status, headers, text }: RawResponse): [number, IncomingHttpHeaders, string] {
  const { date: _, ...rest } = headers;
  return [status, rest, text];
}

describe('a session begins', () => {
  it("under the upstream's id, where the upstream makes one", async () => {
    const app = await scene({ shape: { mode: 'stateful' } });
    const session = await app.session();
    expect(session.id).toMatch(UUID);
    expect(await session.tools()).toEqual(['cart.add_item', 'cart.view']);
  });

  it('under a random id of visible ASCII, where the upstream makes none', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const ids = await Promise.all(Array.from({ length: 20 }, async () => (await app.session()).id));
    expect(new Set(ids).size).toBe(20);
    for (const id of ids) {
      expect(id).toMatch(/^[\x21-\x7e]+$/);
      expect(Buffer.from(id, 'base64url').length * 8).toBeGreaterThanOrEqual(128);
    }
  });

  it('for each client separately: the state of one is not seen by another', async () => {
    const app = await scene();
    const [ann, bob] = [await app.sessionAt('payment'), await app.session()];
    expect(await ann.tools()).toEqual(['cart.pay', 'cart.view']);
    expect(await bob.tools()).toEqual(['cart.add_item', 'cart.view']);
  });

  it.each(MODES)('not at all with an initialize that fails (%s)', async (mode) => {
    const app = await scene({ shape: { mode } });
    const params = { protocolVersion: PROTOCOL, capabilities: 'none' };
    const refused = await send(app.url, { body: { ...INITIALIZE, params } });
    expect(refused.messages[0]).toMatchObject({ error: { code: expect.any(Number) } });
    expect(refused.headers).not.toHaveProperty('mcp-session-id');
    expect(app.store.asked).toEqual([]);
  });

  it.each([401, 403, 500])(
    'not at all with an initialize that the app answers %i',
    async (status) => {
      const app = await scene({
        shape: { mode: 'stateless' },
        behind: [(_req, res) => void res.status(status).json({ error: 'no' })],
      });
      const refused = await send(app.url, { body: INITIALIZE });
      expect([refused.status, refused.text]).toEqual([status, '{"error":"no"}']);
      expect(refused.headers).not.toHaveProperty('mcp-session-id');
      expect(app.store.asked).toEqual([]);
    },
  );

  it('never under an id that the client names in its initialize', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const headers = { 'mcp-session-id': 'chosen-by-the-client' };
    const { headers: answer } = await send(app.url, { headers, body: INITIALIZE });
    expect(answer['mcp-session-id']).toMatch(/^[\w-]{32}$/);
    const late = await send(app.url, { headers, body: callOf(1, 'cart.view') });
    expect(late.status).toBe(404);
  });

  it('anew where an initialize names a known session, and tells nothing of that one', async () => {
    const app = await scene({ shape: { mode: 'stateful' } });
    const old = await app.sessionAt('payment');
    const headers = { 'mcp-session-id': old.id };
    const again = await send(app.url, { headers, body: INITIALIZE });
    expect(again.status).toBe(200);
    expect(again.headers['mcp-session-id']).not.toBe(old.id);
    expect(await old.tools()).toEqual(['cart.pay', 'cart.view']);
  });

  it.each([
    ['beside another request', [INITIALIZE, callOf(1, 'cart.view')], ['init', 1]],
    ['alone in a batch', [INITIALIZE], ['init']],
    ['twice', [INITIALIZE, { ...INITIALIZE, id: 2 }], ['init', 2]],
  ])('never in a batch: %s', async (_, body, ids) => {
    const app = await scene();
    const refused = await send(app.url, { body });
    expect(refused.status).toBe(400);
    expect(refused.messages.map((message) => [message.id, message.error.code])).toEqual(
      ids.map((id) => [id, -32600]),
    );
    expect(JSON.parse(refused.text)).toBeInstanceOf(Array);
    expect(app.store.asked).toEqual([]);
  });
});

describe.each(['json', 'sse'] as const)(
  'a session id that the upstream uses twice (%s)',
  (answers) => {
    const IN_USE =
      'The server named the session by an id that is in use, so none was opened. ' +
      'It must make a new id for each session, such as randomUUID()';
    const start = () =>
      scene({
        shape: { mode: 'stateful', answers },
        sessionIdGenerator: () => 'shop-1',
        session: { principal: (req) => String(req.headers['x-user']), sessionCacheMs: 0 },
      });
    const as = (user: string) => ({ 'x-user': user });

    it.each(['ann', 'bob'])(
      'leaves the first run whole, and refuses the second session (%s)',
      async (user) => {
        const app = await start();
        const first = await app.sessionAt('payment', as('ann'));
        const refused = await send(app.url, { headers: as(user), body: INITIALIZE });
        expect([refused.status, refused.messages]).toEqual([
          500,
          [{ jsonrpc: '2.0', id: 'init', error: { code: -32603, message: IN_USE } }],
        ]);
        expect(refused.headers).not.toHaveProperty('mcp-session-id');
        expect(app.errors).toEqual([
          expect.objectContaining({
            message: expect.stringMatching(/id of a session that is in use.*sessionIdGenerator/s),
          }),
        ]);
        expect(String(app.errors[0])).not.toContain('shop-1');
        expect(await first.tools()).toEqual(['cart.pay', 'cart.view']);
        expect((await app.data.history({ run: 'shop-1', workflow: 'checkout' })).length).toBe(2);
        const stranger = RawSession.resume(app.url, 'shop-1', as('bob'));
        expect((await stranger.post(callOf(1, 'cart.pay'))).status).toBe(404);
      },
    );

    it('is told to the real client, which opens no session', async () => {
      const app = await start();
      await app.session(as('ann'));
      await expect(connect(app.url, as('bob'))).rejects.toThrow(/make a new id for each session/);
    });

    it('is free again after a DELETE, and after the session was idle for too long', async () => {
      const app = await start();
      const first = await app.sessionAt('payment', as('ann'));
      expect((await first.end()).status).toBe(200);
      const second = await app.sessionAt('has_items', as('bob'));
      expect(await second.tools()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
      app.clock.advance(DAY - 1);
      expect((await send(app.url, { headers: as('ann'), body: INITIALIZE })).status).toBe(500);
      app.clock.advance(1);
      const third = await app.session(as('ann'));
      expect(await third.tools()).toEqual(['cart.add_item', 'cart.view']);
    });

    it('is not reported where a driver asks twice by itself', async () => {
      const app = await start();
      const { open } = app.store;
      app.store.open = async (...args) => {
        await open(...args);
        return open(...args);
      };
      const session = await app.session(as('ann'));
      expect(await session.tools()).toEqual(['cart.add_item', 'cart.view']);
      expect(app.errors).toEqual([]);
    });
  },
);

describe.each(MODES)('a request outside of a session, %s', (mode) => {
  it('is told with its own id that the header is missing', async () => {
    const app = await scene({ shape: { mode } });
    const missing = await send(app.url, { body: callOf('a', 'cart.view') });
    expect([missing.status, missing.messages]).toEqual([
      400,
      [
        {
          jsonrpc: '2.0',
          id: 'a',
          error: {
            code: -32000,
            message: expect.stringMatching(
              /^Bad Request: Mcp-Session-Id header is required\. .*app\.all\(\)/,
            ),
          },
        },
      ],
    ]);
    expect(missing.headers['content-type']).toBe('application/json');
    expect(app.ledger.calls).toEqual([]);
  });

  it('is told with its own id that the session is unknown', async () => {
    const app = await scene({ shape: { mode } });
    const headers = { 'mcp-session-id': 'nobody' };
    const unknown = await send(app.url, { headers, body: callOf(7, 'cart.view') });
    expect([unknown.status, unknown.messages]).toEqual([
      404,
      [{ jsonrpc: '2.0', id: 7, error: UNKNOWN }],
    ]);
    expect(app.ledger.calls).toEqual([]);
  });

  it('is told so for each request of a batch', async () => {
    const app = await scene({ shape: { mode } });
    const body = [
      callOf(1, 'cart.view'),
      { jsonrpc: '2.0', method: 'notifications/progress' },
      callOf('1', 'x'),
    ];
    for (const [headers, status] of [
      [{}, 400],
      [{ 'mcp-session-id': 'nobody' }, 404],
    ] as const) {
      const refused = await send(app.url, { headers, body });
      expect(refused.status).toBe(status);
      expect(refused.messages.map((message) => message.id)).toEqual([1, '1']);
    }
  });

  it('is told so without an id where it has none: a notification, a GET, a DELETE', async () => {
    const app = await scene({ shape: { mode } });
    const notice = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } };
    for (const request of [{ body: notice }, { method: 'GET' }, { method: 'DELETE' }]) {
      const missing = await send(app.url, request);
      expect([missing.status, missing.messages[0]?.id]).toEqual([400, null]);
      const unknown = await send(app.url, { ...request, headers: { 'mcp-session-id': 'nobody' } });
      expect([unknown.status, unknown.messages]).toEqual([
        404,
        [{ jsonrpc: '2.0', id: null, error: UNKNOWN }],
      ]);
    }
  });
});

describe.each([
  { mode: 'stateful', host: 'express' },
  { mode: 'stateless', host: 'express' },
  { mode: 'stateful', host: 'hono' },
] as const)('a HEAD that names a session, $mode in $host', (shape) => {
  it('is checked like GET: passed on for its owner, 404 without a body for others', async () => {
    const principal = ({ headers }: CallerRequest): string => String(headers['x-user']);
    const seen: string[] = [];
    const app = await scene({
      shape,
      session: { principal },
      before: [
        (req, res, next) => {
          if (req.method === 'HEAD') res.on('finish', () => seen.push(`${res.statusCode}`));
          next();
        },
      ],
    });
    const session = await app.session({ 'x-user': 'ann' });
    const ask = (id: string, user: string) =>
      send(app.url, { method: 'HEAD', headers: { 'mcp-session-id': id, 'x-user': user } });
    const unknown = await ask('nobody', 'ann');
    expect([unknown.status, unknown.text]).toEqual([404, '']);
    expect(comparable(await ask(session.id, 'bob'))).toEqual(comparable(unknown));
    app.store.fail('read');
    app.clock.advance(5_000);
    expect((await ask(session.id, 'bob')).status).toBe(503);
    app.store.heal();
    expect((await ask(session.id, 'ann')).status).not.toBe(404);
    expect(seen).toHaveLength(4);
    expect((await session.end()).status).toBe(200);
    expect(comparable(await ask(session.id, 'ann'))).toEqual(comparable(unknown));
  });
});

describe.each(MODES)('a session that is over, %s', (mode) => {
  it('answers like one that never was, after its end, its expiry or its eviction', async () => {
    const app = await scene({ shape: { mode }, session: { maxSessions: 1 } });
    const ended = await app.sessionAt('payment');
    expect((await ended.end()).status).toBe(200);
    const expired = await app.sessionAt('payment');
    app.clock.advance(DAY);
    const answers = [
      await ended.post(callOf(1, 'cart.pay')),
      await expired.post(callOf(1, 'cart.pay')),
    ];
    const evicted = await app.sessionAt('payment');
    app.clock.advance(5_000);
    await app.session();
    answers.push(await evicted.post(callOf(1, 'cart.pay')));
    const headers = { 'mcp-session-id': 'nobody', 'mcp-protocol-version': PROTOCOL };
    const never = await send(app.url, { headers, body: callOf(1, 'cart.pay') });
    expect(never.status).toBe(404);
    for (const answer of answers) expect(comparable(answer)).toEqual(comparable(never));
    expect(app.ledger.calls).toEqual([]);
  });

  it('stays over: no request begins it anew', async () => {
    const app = await scene({ shape: { mode } });
    const session = await app.sessionAt('payment');
    app.clock.advance(DAY);
    for (const tool of ['cart.add_item', 'cart.view', 'cart.pay']) {
      expect((await session.post(callOf(1, tool))).status).toBe(404);
    }
    expect((await session.post({ jsonrpc: '2.0', id: 1, method: 'tools/list' })).status).toBe(404);
    expect((await session.listen()).status).toBe(404);
    expect((await session.end()).status).toBe(404);
    expect(app.ledger.calls).toEqual([]);
  });
});

describe('a session that the upstream has forgotten', () => {
  const FORGOTTEN = 'Session not found';

  it.each(['cart.view', 'cart.add_item'])(
    "is answered in the upstream's own words, and %s does not hold the run",
    async (tool) => {
      let forgets = true;
      const app = await scene({
        behind: [
          (req, res, next) => {
            if (!forgets || req.headers['mcp-session-id'] === undefined) return next();
            res
              .status(404)
              .json({ jsonrpc: '2.0', error: { code: -32001, message: FORGOTTEN }, id: null });
          },
        ],
      });
      const session = await app.session();
      const unknown = await session.post(callOf(1, tool));
      expect([unknown.status, unknown.messages[0]?.error.message]).toEqual([404, FORGOTTEN]);
      forgets = false;
      expect((await session.post(callOf(1, tool))).messages.at(-1)?.result.content[0].text).toBe(
        `${tool} done`,
      );
    },
  );
});

describe('an idle session', () => {
  it('lives for 24 hours after each use, and no longer', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const session = await app.sessionAt('has_items');
    for (let use = 0; use < 3; use++) {
      app.clock.advance(DAY - 1);
      expect(await session.call('cart.view')).toMatchObject({ result: expect.anything() });
    }
    app.clock.advance(DAY);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
  });

  it('expires in time, although sessionCacheMs spares reads of the store', async () => {
    const app = await scene({ session: { idleMs: 1_000 } });
    const session = await app.session();
    app.clock.advance(1_000);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
  });

  it('is used by each request, also where the process need not read the store', async () => {
    const app = await scene({ session: { idleMs: 10_000, sessionCacheMs: 10_000 } });
    const session = await app.session();
    for (let use = 0; use < 10; use++) {
      app.clock.advance(4_000);
      expect(await session.call('cart.view')).toMatchObject({ result: expect.anything() });
    }
  });

  it('is read anew where the clock was set back', async () => {
    const app = await scene();
    const session = await app.session();
    app.clock.advance(-DAY);
    app.store.take();
    await session.call('cart.view');
    await session.call('cart.view');
    expect(app.store.take()).toEqual(['read']);
  });

  it('does not make way for a new one, if it was used since', async () => {
    const app = await scene({ shape: { mode: 'stateless' }, session: { maxSessions: 2 } });
    const [first, second] = [await app.sessionAt('has_items'), await app.session()];
    app.clock.advance(5_000);
    await first.call('cart.view');
    await app.session();
    app.clock.advance(5_000);
    expect(await first.tools()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
    expect((await second.post(callOf(1, 'cart.view'))).status).toBe(404);
  });
});

describe('ending a session', () => {
  it('is answered 200 by the middleware where the upstream knows nothing of sessions', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const session = await app.session();
    const { status, text, headers } = await session.end();
    expect([status, text]).toEqual([200, '']);
    expect(headers).not.toHaveProperty('allow');
    expect((await session.end()).status).toBe(404);
  });

  it.each([
    [200, 404],
    [204, 404],
    [404, 404],
    [405, 200],
    [401, 200],
    [500, 200],
  ])(
    'is answered as the upstream answers, where that made the session: %i, then %i',
    async (status, after) => {
      const app = await scene({
        shape: { mode: 'stateful' },
        behind: [
          (req, res, next) => (req.method === 'DELETE' ? void res.status(status).end() : next()),
        ],
      });
      const session = await app.session();
      expect((await session.end()).status).toBe(status);
      expect((await session.post(callOf(1, 'cart.view'))).status).toBe(after);
    },
  );

  it.each([401, 403])(
    'is left to an upstream that says %i, also for a minted session',
    async (status) => {
      const app = await scene({
        shape: { mode: 'stateless' },
        behind: [
          (req, res, next) => (req.method === 'DELETE' ? void res.status(status).end() : next()),
        ],
      });
      const session = await app.session();
      expect((await session.end()).status).toBe(status);
      expect((await session.post(callOf(1, 'cart.view'))).status).toBe(200);
    },
  );

  it.each(MODES)('closes its streams, and is answered all the same (%s)', async (mode) => {
    const app = await scene({ shape: { mode } });
    const session = await app.session();
    const streams = [await session.listen()];
    if (mode === 'stateless') streams.push(await session.listen());
    expect((await session.end()).status).toBe(200);
    for (const stream of streams) await expect.poll(() => stream.ended).toBe(true);
    expect(app.errors).toEqual([]);
  });

  it.each(MODES)(
    'in the middle of a call neither ends the process nor loses the answer or its run (%s)',
    async (mode) => {
      const rejections: unknown[] = [];
      const note = (reason: unknown): void => void rejections.push(reason);
      process.on('unhandledRejection', note);
      onTestFinished(() => void process.off('unhandledRejection', note));
      const app = await scene({ shape: { mode } });
      const session = await app.sessionAt('payment');
      const pay = latch();
      app.ledger.gates.set('cart.pay', pay.opened);
      const call = session.call('cart.pay');
      await expect.poll(() => app.ledger.calls).toEqual(['cart.pay']);
      expect((await session.end()).status).toBe(200);
      pay.open();
      const { result } = await call;
      if (mode === 'stateless') {
        expect(result.isError).not.toBe(true);
        expect(await app.runs.read(session.id)).toMatchObject({
          state: 'confirmed',
          sessionEnded: true,
        });
      } else {
        // The upstream ends the call with its own session, so its outcome stays unknown.
        expect(result.isError).toBe(true);
        expect(result._meta['mcp-interlock/outcome']).toMatchObject({
          tool: 'cart.pay',
          outcome: 'unknown',
        });
      }
      expect((await session.post(callOf(1, 'cart.pay'))).status).toBe(404);
      const another = await RawSession.begin(app.url);
      expect(await another.tools()).toEqual(['cart.add_item', 'cart.view']);
      expect(rejections).toEqual([]);
    },
  );
});
