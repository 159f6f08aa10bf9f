import { ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import type { RequestHandler } from 'express';
import { describe, expect, it } from 'vitest';
import { gateFetch } from '../../src/doors/fetch.ts';
import { ListCache } from '../../src/gate/list-cache.ts';
import {
  type FsmGateOptions,
  type ListCacheOptions,
  managedHandle,
  principalKey,
  StateMachineGate,
  stateSync,
} from '../../src/index.ts';
import { PageBytes } from '../../src/wire/pages.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import {
  INITIALIZE,
  PROTOCOL,
  type RawResponse,
  RawSession,
  send,
  sendAndHold,
  stream,
  type WireMessage,
} from '../helpers/raw.ts';
import { begins, makeStage, type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { ask, type StatelessOptions, stateless } from '../helpers/two-eras.ts';
import { cartServer, type UpstreamShape } from '../helpers/upstream.ts';

const EMPTY = ['cart.add_item', 'cart.view'];
const HAS_ITEMS = ['cart.add_item', 'cart.checkout', 'cart.view'];

const namesIn = (message: WireMessage | undefined): string[] =>
  (message?.result?.tools ?? []).map((tool: WireMessage) => String(tool.name));

/** Counts how often the upstream is asked for a list, and may delay it. */
function counter() {
  const state = { asked: 0, gate: Promise.resolve() };
  const count: RequestHandler = (req, _res, next) => {
    const messages: WireMessage[] = [req.body].flat();
    if (!messages.some((each) => each?.method === 'tools/list')) return next();
    state.asked++;
    void state.gate.then(() => next());
  };
  return { state, count };
}

type CacheSceneOptions = Omit<SceneOptions, 'gate' | 'shape'> & {
  readonly cache?: FsmGateOptions['listCache'];
  readonly shape?: Partial<UpstreamShape>;
};

/** An app of SDK v1 whose gate keeps lists by default. */
async function caching({ cache = true, behind = [], shape, ...options }: CacheSceneOptions = {}) {
  const { state, count } = counter();
  const app = await scene({
    gate: { listCache: cache },
    shape: { parser: true, answers: 'json', ...shape },
    behind: [count, ...behind],
    ...options,
  });
  return { ...app, upstream: state };
}

/** Answers `tools/list` as the test says. */
function answering(answer: (asked: WireMessage, headers: RequestHandlerHeaders) => WireMessage) {
  const handler: RequestHandler = (req, res, next) => {
    const asked: WireMessage = req.body ?? {};
    if (asked.method !== 'tools/list') return next();
    const { status = 200, headers = {}, ...message } = answer(asked, req.headers);
    res.status(status).set(headers);
    res.json({ ...message, jsonrpc: '2.0', id: asked.id });
  };
  return handler;
}
type RequestHandlerHeaders = Parameters<RequestHandler>[0]['headers'];

const toolsOf = (...names: string[]): WireMessage => {
  return { result: { tools: names.map((name) => ({ name, inputSchema: { type: 'object' } })) } };
};

const listOf = (session: RawSession, params?: unknown, headers = {}): Promise<RawResponse> =>
  session.post({ jsonrpc: '2.0', id: 7, method: 'tools/list', params }, headers);

describe.each(['json', 'sse'] as const)(
  'a list that is kept, of an upstream that answers in %s',
  (answers) => {
    const shape = { answers };

    it('is answered without the upstream, with the id of each request', async () => {
      const { session, upstream } = await caching({ shape });
      const client = await session();
      const { messages: first } = await listOf(client);
      for (const id of [8, 'eight', 9_007_199_254_740_991]) {
        const { status, headers, messages } = await client.post({
          jsonrpc: '2.0',
          id,
          method: 'tools/list',
        });
        expect(status).toBe(200);
        expect(headers['content-type']).toMatch(/^application\/json/);
        expect(messages).toEqual([{ ...first[0], id }]);
      }
      expect(namesIn(first[0])).toEqual(EMPTY);
      expect(upstream.asked).toBe(1);
    });

    it('is shown as the run stands, and the store is read once for it', async () => {
      const { session, upstream, store } = await caching({ shape });
      const client = await session();
      expect(await client.tools()).toEqual(EMPTY);
      await client.call('cart.add_item');
      store.take();
      expect(await client.tools()).toEqual(HAS_ITEMS);
      expect(await client.tools()).toEqual(HAS_ITEMS);
      expect(store.take()).toEqual(['read', 'read']);
      expect(upstream.asked).toBe(1);
    });

    it('is dropped when the upstream says on the session’s stream that it changed', async () => {
      const servers: ReturnType<typeof cartServer>[] = [];
      const { session, upstream } = await caching({
        shape,
        makeServer(ledger) {
          const server = cartServer(ledger);
          servers.push(server);
          return server;
        },
      });
      const client = await session();
      const stream = await client.listen();
      expect(await client.tools()).toEqual(EMPTY);
      for (const server of servers) server.registerTool('cart.help', {}, () => ({ content: [] }));
      await expect.poll(() => stream.messages.length).toBeGreaterThan(0);
      expect(await client.tools()).toEqual([...EMPTY, 'cart.help']);
      expect(upstream.asked).toBe(2);
      stream.cut();
    });

    it('is asked for again once it is too old, or if the clock went back', async () => {
      const { session, upstream, clock } = await caching({ shape });
      const client = await session();
      await client.tools();
      clock.advance(4_999);
      await client.tools();
      expect(upstream.asked).toBe(1);
      clock.advance(1);
      await client.tools();
      expect(upstream.asked).toBe(2);
      clock.advance(-10);
      await client.tools();
      expect(upstream.asked).toBe(3);
      await client.call('cart.add_item');
      await client.tools();
      expect(upstream.asked).toBe(3);
    });

    it('never goes to another session', async () => {
      let made = 0;
      const { session, upstream } = await caching({
        shape,
        makeServer(ledger) {
          const server = cartServer(ledger);
          server.registerTool(`own.${made++}`, {}, () => ({ content: [] }));
          return server;
        },
      });
      const [one, other] = [await session(), await session()];
      const lists = [
        await one.tools(),
        await other.tools(),
        await one.tools(),
        await other.tools(),
      ];
      expect(lists[0]).not.toEqual(lists[1]);
      expect(lists.slice(2)).toEqual(lists.slice(0, 2));
      expect(upstream.asked).toBe(2);
    });

    it('is filtered by each of two gates, and decorated by what stands behind them', async () => {
      const looks = new StateMachineGate({
        id: 'looks',
        initial: 'open',
        states: { open: { on: { LOOK: 'seen' } }, seen: {} },
      }).bindTool('cart.view', 'open', 'LOOK');
      const { session, upstream } = await caching({
        shape,
        workflow: [checkoutGate(), looks],
        sync: { policies: [{ match: 'cart.add_item', cacheControl: 'no-store' }] },
      });
      const client = await session();
      const first = await client.ask('tools/list');
      const second = await client.ask('tools/list');
      expect(second.result).toEqual(first.result);
      expect(JSON.stringify(second)).toContain('[Cache-Control: no-store]');
      await client.call('cart.view');
      expect(await client.tools()).toEqual(['cart.add_item']);
      expect(upstream.asked).toBe(1);
    });
  },
);

describe('whose list is kept', () => {
  it('is not kept unless the option says so', async () => {
    for (const cache of [undefined, false] as const) {
      const { state, count } = counter();
      const options = cache === undefined ? {} : { gate: { listCache: cache } };
      const app = await scene({ shape: { parser: true }, behind: [count], ...options });
      const client = await app.session();
      for (const times of [1, 2]) {
        await client.tools();
        expect(state.asked).toBe(times);
      }
    }
  });

  it('is shared with `shared`, apart by what clients say of themselves', async () => {
    const { url, session, upstream } = await caching({ cache: { shared: true } });
    const [one, other] = [await session(), await session({ 'x-request-id': 'r-1' })];
    expect([await one.tools(), await other.tools()]).toEqual([EMPTY, EMPTY]);
    expect(upstream.asked).toBe(1);
    await one.call('cart.add_item');
    expect([await one.tools(), await other.tools()]).toEqual([HAS_ITEMS, EMPTY]);
    expect(upstream.asked).toBe(1);
    const changes = [{ capabilities: {} }, { clientInfo: { name: 'another', version: '1' } }];
    for (const [at, change] of changes.entries()) {
      const body = { ...INITIALIZE, params: { ...INITIALIZE.params, ...change } };
      const { headers } = await send(url, { body });
      const client = RawSession.resume(url, String(headers['mcp-session-id']));
      expect(await client.tools()).toEqual(EMPTY);
      expect(upstream.asked).toBe(2 + at);
    }
  });

  it('is a session’s own if another process initialized it, even if `shared`', async () => {
    const shape = { mode: 'stateless' } as const;
    const first = await caching({ cache: { shared: true }, shape });
    const second = await caching({ cache: { shared: true }, shape, beside: first });
    const { id } = await first.session();
    const [client, own] = [RawSession.resume(second.url, id), await second.session()];
    for (const each of [client, own, client, own]) expect(await each.tools()).toEqual(EMPTY);
    expect(second.upstream.asked).toBe(2);
  });

  it('is a session’s own in the session era, even if principals name the runs', async () => {
    const { session, upstream, url } = await caching({ session: { key: principalKey() } });
    const [one, other] = [await session({ 'x-user': 'ann' }), await session({ 'x-user': 'ann' })];
    for (const client of [one, other, one, other]) await client.tools();
    expect(upstream.asked).toBe(2);
    const { headers } = stateless('tools/list', {}, { user: 'ann' });
    const body = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    for (const times of [3, 4]) {
      await send(url, { headers: { 'x-user': headers['x-user'] ?? '' }, body });
      expect(upstream.asked).toBe(times);
    }
  });

  it('is not kept for a caller with credentials but no principal', async () => {
    const { session, upstream } = await caching();
    for (const headers of [{ authorization: 'Bearer x' }, { cookie: 'sid=1' }]) {
      const client = await session(headers);
      const before = upstream.asked;
      for (const times of [1, 2]) {
        await client.tools();
        expect(upstream.asked - before).toBe(times);
      }
    }
  });

  it('is kept for a principal with credentials, apart by the scopes of the token', async () => {
    const scoped: RequestHandler = (req, _res, next) => {
      const { auth } = req as { auth?: { scopes: string[] } };
      const scopes = req.headers['x-scopes'];
      if (auth !== undefined) auth.scopes = String(scopes ?? '').split(' ');
      next();
    };
    const { session, upstream } = await caching({ before: [scoped] });
    const client = await session({ 'x-user': 'ann', authorization: 'Bearer 1' });
    const list = (headers: Record<string, string>) => listOf(client, undefined, headers);
    await list({});
    await list({ authorization: 'Bearer 2', cookie: 'sid=2' });
    expect(upstream.asked).toBe(1);
    await list({ 'x-scopes': 'admin' });
    await list({ 'x-scopes': 'admin' });
    expect(upstream.asked).toBe(2);
    await list({});
    expect(upstream.asked).toBe(2);
  });

  it('is apart by what `vary` returns; if it throws, the upstream is asked', async () => {
    const seen: unknown[] = [];
    const vary: NonNullable<ListCacheOptions['vary']> = ({ headers }) => {
      const plan = headers['x-plan'];
      seen.push(plan);
      if (plan === 'throw') throw new Error('no plan');
      return plan === 'number' ? (1 as never) : (plan as string | undefined);
    };
    const { session, upstream, errors } = await caching({ cache: { vary } });
    const client = await session();
    for (const plan of ['free', 'paid', 'free', 'paid', undefined, undefined])
      await listOf(client, undefined, plan === undefined ? {} : { 'x-plan': plan });
    expect(upstream.asked).toBe(3);
    for (const plan of ['throw', 'throw', 'number'])
      expect((await listOf(client, undefined, { 'x-plan': plan })).status).toBe(200);
    expect(upstream.asked).toBe(6);
    expect(errors.map(String)).toEqual([
      'Error: no plan',
      'Error: no plan',
      expect.stringContaining('listCache.vary() must return a string or undefined; it returned 1'),
    ]);
    expect(seen).toContain('paid');
  });

  it('is apart by address, host and origin', async () => {
    const { session, upstream, url } = await caching();
    const client = await session();
    await client.tools();
    const body = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    const asks = [
      { target: `${url.pathname}?tenant=2` },
      { headers: { host: 'other.example' } },
      { headers: { origin: 'https://evil.example' } },
    ];
    for (const [at, { target, headers }] of asks.entries()) {
      await send(url, {
        headers: { ...client.headers, ...headers },
        body,
        ...(target !== undefined && { target }),
      });
      expect(upstream.asked).toBe(2 + at);
    }
    await client.tools();
    expect(upstream.asked).toBe(4);
  });
});

describe('a request that passes the cache by', () => {
  it('says more than which page it wants', async () => {
    const { session, upstream } = await caching();
    const client = await session();
    await client.tools();
    const others = [
      { filter: 'cart' },
      { _meta: { 'example.com/tenant': 1 } },
      { _meta: { progressToken: 1, trace: 'x' } },
    ];
    for (const [at, params] of others.entries()) {
      await listOf(client, params);
      expect(upstream.asked).toBe(2 + at);
    }
    const more = { jsonrpc: '2.0', id: 7, method: 'tools/list', trace: 1 };
    await client.post(more);
    expect(upstream.asked).toBe(5);
    const { messages } = await listOf(client, { _meta: { progressToken: 5 } });
    expect(namesIn(messages[0])).toEqual(EMPTY);
    expect(upstream.asked).toBe(5);
  });

  it('stands in a batch', async () => {
    const { session, upstream } = await caching({ shape: { mode: 'stateless' } });
    const client = await session();
    await client.tools();
    const { messages } = await client.post([{ jsonrpc: '2.0', id: 1, method: 'tools/list' }]);
    expect(namesIn(messages[0])).toEqual(EMPTY);
    expect(upstream.asked).toBe(2);
  });

  it.each([
    'text/event-stream',
    'application/json',
    '*/*',
    'application/json;q=0, text/event-stream',
  ])('accepts %s', async (accept) => {
    const { session, upstream } = await caching({
      behind: [answering(() => toolsOf('cart.view'))],
    });
    const client = await session();
    await client.tools();
    await listOf(client, undefined, { accept });
    expect(upstream.asked).toBe(2);
  });

  it('comes while the run cannot be read', async () => {
    const { session, upstream, store } = await caching();
    const client = await session();
    await client.tools();
    store.fail('read');
    expect(await client.tools()).toEqual(['cart.view']);
    expect(upstream.asked).toBe(2);
    store.heal();
    expect(await client.tools()).toEqual(EMPTY);
  });
});

describe('what is kept', () => {
  it('are pages, apart by cursor', async () => {
    const pages = ['cart.add_item', 'cart.pay', 'cart.view'];
    const { session, upstream } = await caching({
      behind: [
        answering(({ params }) => {
          const at = Number(params?.cursor ?? 0);
          const { result } = toolsOf(pages[at] ?? '');
          return { result: at < 2 ? { ...result, nextCursor: String(at + 1) } : result };
        }),
      ],
    });
    const client = await session();
    const all = async () => {
      const found: string[] = [];
      for (let cursor: string | undefined; ; ) {
        const { messages } = await listOf(client, cursor === undefined ? {} : { cursor });
        found.push(...namesIn(messages[0]));
        cursor = messages[0]?.result.nextCursor;
        if (cursor === undefined) return found;
      }
    };
    expect([await all(), await all(), await all()]).toEqual([EMPTY, EMPTY, EMPTY]);
    expect(upstream.asked).toBe(3);
  });

  it('is no error, no other status, and nothing that sets a cookie or says more', async () => {
    const answers: WireMessage[] = [
      { error: { code: -32000, message: 'busy' } },
      { status: 203, ...toolsOf('cart.view') },
      { headers: { 'set-cookie': 'a=1' }, ...toolsOf('cart.view') },
      { result: { ...toolsOf('cart.view').result, prompts: [] } },
      { result: { ...toolsOf('cart.view').result, extra: 1 } },
      toolsOf('cart.view'),
    ];
    let next = 0;
    const { session, upstream } = await caching({
      behind: [answering(() => answers[next++] as WireMessage)],
    });
    const client = await session();
    for (const times of [1, 2, 3, 4, 5, 6, 6, 6]) {
      await listOf(client);
      expect(upstream.asked).toBe(times);
    }
  });

  it('is good for as long as the option says, or else the upstream', async () => {
    const behind = [
      answering(({ params }) => {
        const { result } = toolsOf('cart.view');
        return { result: { ...result, ttlMs: params?.cursor === 'none' ? 0 : 1_000 } };
      }),
    ];
    const told = await caching({ behind });
    const client = await told.session();
    for (const [pass, asked] of [
      [0, 1],
      [999, 1],
      [1, 2],
    ] as const) {
      told.clock.advance(pass);
      await listOf(client);
      expect(told.upstream.asked).toBe(asked);
    }
    // A server of SDK v2 says 0 by default.
    for (const asked of [3, 3]) {
      await listOf(client, { cursor: 'none' });
      expect(told.upstream.asked).toBe(asked);
    }
    const own = await caching({ behind, cache: { ttlMs: 60_000 } });
    const other = await own.session();
    for (const [pass, asked] of [
      [0, 1],
      [59_999, 1],
      [1, 2],
    ] as const) {
      own.clock.advance(pass);
      await listOf(other);
      expect(own.upstream.asked).toBe(asked);
    }
  });

  it('is no list that changed on its way', async () => {
    const servers: ReturnType<typeof cartServer>[] = [];
    const { session, upstream } = await caching({
      makeServer(ledger) {
        const server = cartServer(ledger);
        servers.push(server);
        return server;
      },
    });
    const client = await session();
    const stream = await client.listen();
    const held = latch();
    upstream.gate = held.opened;
    const asking = client.tools();
    await expect.poll(() => upstream.asked).toBe(1);
    for (const server of servers) server.sendToolListChanged();
    await expect.poll(() => stream.messages.length).toBeGreaterThan(0);
    held.open();
    await asking;
    await client.tools();
    expect(upstream.asked).toBe(2);
    stream.cut();
  });

  it('is dropped where a call’s own stream says that the list changed', async () => {
    let more = false;
    const { session, upstream } = await caching({
      shape: { answers: 'sse', mode: 'stateless' },
      makeServer(ledger) {
        const server = cartServer(ledger);
        if (more) server.registerTool('cart.help', {}, () => ({ content: [] }));
        server.registerTool('grow', {}, async (extra) => {
          more = true;
          await extra.sendNotification({ method: 'notifications/tools/list_changed' });
          return { content: [] };
        });
        return server;
      },
    });
    const client = await session();
    expect(await client.tools()).toEqual([...EMPTY, 'grow']);
    await client.call('grow');
    expect(await client.tools()).toEqual([...EMPTY, 'cart.help', 'grow']);
    expect(upstream.asked).toBe(2);
  });

  it('stays when a gate says that its own list changed: the upstream’s is the same', async () => {
    const { session, upstream } = await caching({ shape: { answers: 'sse' } });
    const client = await session();
    await client.tools();
    const { text } = await client.post({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'cart.add_item', arguments: {} },
    });
    expect(text).toContain('notifications/tools/list_changed');
    expect(await client.tools()).toEqual(HAS_ITEMS);
    expect(upstream.asked).toBe(1);
  });

  it('is dropped with its session, and not found by another one of the same id', async () => {
    let made = 0;
    const { session, upstream } = await caching({
      sessionIdGenerator: () => 'the-only-one',
      makeServer(ledger) {
        const server = cartServer(ledger);
        server.registerTool(`own.${made++}`, {}, () => ({ content: [] }));
        return server;
      },
    });
    const first = await session();
    const before = await first.tools();
    expect((await first.end()).status).toBe(200);
    const second = await session();
    expect(second.id).toBe(first.id);
    expect(await second.tools()).not.toEqual(before);
    expect(upstream.asked).toBe(2);
  });

  it('is not shown to an ended session', async () => {
    const { session, upstream } = await caching();
    const client = await session();
    await client.tools();
    await client.end();
    expect((await listOf(client)).status).toBe(404);
    const stranger = RawSession.resume(client.url, 'no-such-session');
    expect((await listOf(stranger)).status).toBe(404);
    expect(upstream.asked).toBe(1);
  });

  it('does not wait for a step of the run that is under way', async () => {
    const app = await caching();
    const client = await app.session();
    await client.tools();
    const step = await begins(app, 'cart.add_item', () => client.call('cart.add_item'));
    expect(await client.tools()).toEqual(EMPTY);
    step.finish();
    await step.answer;
    expect(await client.tools()).toEqual(HAS_ITEMS);
  });

  it('is decorated by a middleware for the requests that `vary` tells apart', async () => {
    const sync = stateSync({ policies: [{ match: 'cart.view', cacheControl: 'no-store' }] });
    const { state: upstream, count } = counter();
    const { session } = await caching({
      cache: { vary: ({ headers }) => String(headers['x-plain']) },
      behind: [(req, res, next) => (req.headers['x-plain'] ? next() : sync(req, res, next)), count],
    });
    const client = await session();
    const list = async (headers = {}) => (await listOf(client, undefined, headers)).text;
    for (let times = 0; times < 2; times++) {
      expect(await list({ 'x-plain': '1' })).not.toContain('no-store');
      expect(await list()).toContain('no-store');
    }
    expect(upstream.asked).toBe(2);
  });
});

describe('what never makes a wrong list', () => {
  const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
  const said = (clientInfo: string) =>
    JSON.stringify(INITIALIZE).replace(JSON.stringify(INITIALIZE.params.clientInfo), clientInfo);

  it('is a client that says very much of itself', async () => {
    const { url, upstream, errors } = await caching({ cache: { shared: true } });
    for (const times of [1, 2]) {
      const body = said(`{"name":"raw","version":"1","x${times}":${deep}}`);
      const { status, headers } = await send(url, { body });
      expect(status).toBe(200);
      const client = RawSession.resume(url, String(headers['mcp-session-id']));
      expect([await client.tools(), await client.tools()]).toEqual([EMPTY, EMPTY]);
      expect(upstream.asked).toBe(times);
    }
    expect(errors).toEqual([]);
  });

  it.each(['json', 'sse'] as const)(
    'is an answer in %s to an earlier request of the same id, which was cut',
    async (answers) => {
      const late = { first: latch(), second: latch(), isIn: false };
      let asked = 0;
      const app = await caching({
        cache: { shared: true },
        shape: { answers },
        makeServer(ledger) {
          const server = cartServer(ledger);
          server.server.setRequestHandler(ListToolsRequestSchema, async ({ params }) => {
            const isSecondPage = params?.cursor === 'p2';
            if (isSecondPage) {
              late.isIn = true;
              await late.first.opened;
            } else if (++asked === 1) await late.second.opened;
            return toolsOf(isSecondPage ? 'page.two' : 'page.one').result;
          });
          return server;
        },
      });
      const [client, other] = [await app.session(), await app.session()];
      const body = { jsonrpc: '2.0', id: 7, method: 'tools/list', params: { cursor: 'p2' } };
      const cut = sendAndHold(app.url, { headers: client.headers, body });
      await expect.poll(() => late.isIn).toBe(true);
      cut.cut();
      await app.isServing(0);
      const mixed = listOf(client);
      await expect.poll(() => asked).toBe(1);
      late.first.open();
      await mixed;
      late.second.open();
      expect(await other.tools()).toEqual(['page.one']);
      expect(await client.tools()).toEqual(['page.one']);
      expect(asked).toBe(3);
    },
  );

  it('is a flood of requests that all differ: the memory stays bounded', () => {
    const cache = ListCache.of(true, new ManualClock());
    const page = PageBytes.of('{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}');
    if (cache === undefined || page === undefined) throw new Error('nothing to keep');
    const long = 'x'.repeat(10_000);
    const isKept = (owner: string): boolean =>
      cache.lookup([{ owner, key: `${long}0` }], '') !== undefined;
    for (let owner = 0; owner < 20; owner++) {
      const asked = cache.ask(String(owner));
      for (let at = 0; at < 200; at++)
        cache.keep({ owner: String(owner), key: `${long}${at}` }, page, '', asked);
    }
    expect([isKept('0'), isKept('19')]).toEqual([false, true]);
  });

  it('is a request that says of its own which client it comes from', async () => {
    const { session, upstream } = await caching();
    const client = await session();
    const _meta = { 'io.modelcontextprotocol/clientInfo': { name: 'another', version: '1' } };
    for (const [params, asked] of [
      [{}, 1],
      [{ _meta }, 2],
      [{ _meta }, 2],
      [{}, 2],
    ] as const) {
      await listOf(client, params);
      expect(upstream.asked).toBe(asked);
    }
  });

  it('is a `vary` that returns a promise: that is told, and a rejection ends nothing', async () => {
    const vary = (async () => {
      throw new Error('late');
    }) as never;
    const { session, upstream, errors } = await caching({ cache: { vary } });
    const client = await session();
    for (const times of [1, 2]) {
      await client.tools();
      expect(upstream.asked).toBe(times);
    }
    expect(String(errors[0])).toContain('must return a string or undefined');
  });

  it('is another host in front of a proxy', async () => {
    const { session, upstream } = await caching();
    const client = await session();
    const headers = [{}, { 'x-forwarded-host': 'b.example' }, { forwarded: 'host=c.example' }];
    for (const [at, each] of headers.entries()) {
      await listOf(client, undefined, each);
      await listOf(client, undefined, each);
      expect(upstream.asked).toBe(at + 1);
    }
  });

  const POISONS = [
    ...['x-forwarded-prefix', 'x-forwarded-proto', 'x-forwarded-port', 'x-original-url'],
    ...['x-rewrite-url', 'x-api-key', 'accept-language'],
  ];

  it.each(POISONS)('is one that %s led to, also within a session', async (header) => {
    const app = await caching({
      cache: { shared: true },
      behind: [answering((_, headers) => toolsOf(`tool.${String(headers[header] ?? 'none')}`))],
    });
    const client = await app.session();
    const poisoned = await listOf(client, undefined, { [header]: 'evil' });
    expect(namesIn(poisoned.messages[0])).toEqual(['tool.evil']);
    expect(await client.tools()).toEqual(['tool.none']);
    expect(await (await app.session()).tools()).toEqual(['tool.none']);
    await listOf(client, undefined, { 'x-request-id': 'r-1', 'x-forwarded-for': '10.0.0.1' });
    expect(app.upstream.asked).toBe(2);
  });

  it('is an answer that HTTP calls private, or forbids to store', async () => {
    const said = { 'cache-control': 'max-age=60, Private' };
    const answer = answering(() => ({ headers: said, ...toolsOf('cart.view') }));
    const app = await caching({ cache: { shared: true }, behind: [answer] });
    const client = await app.session();
    for (let times = 0; times < 2; times++) await client.tools();
    expect(app.upstream.asked).toBe(1);
    await (await app.session()).tools();
    expect(app.upstream.asked).toBe(2);

    said['cache-control'] = 'no-store';
    const other = await app.session();
    for (let times = 0; times < 2; times++) await other.tools();
    expect(app.upstream.asked).toBe(4);
  });

  it('is an answer that varies by more than requests are kept apart by', async () => {
    const varying = ['*', 'Accept, X-Tenant', 'Origin, accept-encoding'];
    let next = 0;
    const { session, upstream } = await caching({
      behind: [answering(() => ({ headers: { vary: varying[next++] }, ...toolsOf('cart.view') }))],
    });
    const client = await session();
    for (const times of [1, 2, 3, 3]) {
      await listOf(client);
      expect(upstream.asked).toBe(times);
    }
  });

  it('is a token that the upstream alone has looked at', async () => {
    const { session, upstream } = await caching({
      session: { principal: ({ headers }) => headers['x-name']?.toString() },
    });
    const client = await session({ 'x-name': 'ann' });
    const tokens = [{ authorization: 'Bearer 1' }, { authorization: 'forged' }, { cookie: 'a=1' }];
    for (const [at, each] of tokens.entries()) {
      await listOf(client, undefined, each);
      await listOf(client, undefined, each);
      expect(upstream.asked).toBe(at + 1);
    }
  });

  it('is a token whose scopes are a set', async () => {
    const scoped: RequestHandler = (req, _res, next) => {
      const { auth } = req as { auth?: { scopes: unknown } };
      if (auth !== undefined) auth.scopes = new Set([String(req.headers['x-scopes'])]);
      next();
    };
    const { session, upstream } = await caching({ before: [scoped] });
    const client = await session({ 'x-user': 'ann' });
    for (const [scopes, asked] of [
      ['read', 1],
      ['admin', 2],
      ['read', 2],
    ] as const) {
      await listOf(client, undefined, { 'x-scopes': scopes });
      expect(upstream.asked).toBe(asked);
    }
  });

  it('is a gate that was told less than another one on the route', async () => {
    const looks = () =>
      new StateMachineGate({ id: 'looks', initial: 'open', states: { open: {} } }).bindTool(
        'x',
        'open',
      );
    const vary: NonNullable<ListCacheOptions['vary']> = ({ headers }) => String(headers['x-plan']);
    for (const [own, asked] of [
      [{ vary }, 2],
      [{ ttlMs: 10 }, 2],
      [{ shared: true }, 2],
      [{ shared: false }, 1],
    ] as const) {
      const { session, upstream } = await caching({
        workflow: [checkoutGate(), [looks(), { listCache: own }]],
      });
      const client = await session();
      await client.tools();
      await client.tools();
      expect(upstream.asked).toBe(asked);
    }
  });

  it.each(['3e4', '30000.0', '30000000000000000'])(
    'is a page that is good for %s ms',
    async (ttl) => {
      let asked = 0;
      const odd: RequestHandler = (req, res, next) => {
        if (req.body?.method !== 'tools/list') return next();
        asked++;
        res.type('json').send(`{"jsonrpc":"2.0","id":7,"result":{"tools":[],"ttlMs":${ttl}}}`);
      };
      const { session } = await caching({ behind: [odd] });
      const client = await session();
      await listOf(client);
      await listOf(client);
      expect(asked).toBe(2);
    },
  );

  it('is a session that ended unheard, and whose id another one was given', async () => {
    let made = 0;
    const { session, upstream, clock } = await caching({
      cache: { ttlMs: 3_600_000 },
      session: { idleMs: 60_000 },
      sessionIdGenerator: () => 'the-only-one',
      makeServer(ledger) {
        const server = cartServer(ledger);
        server.registerTool(`own.${made++}`, {}, () => ({ content: [] }));
        return server;
      },
    });
    const before = await (await session()).tools();
    clock.advance(600_000);
    expect(await (await session()).tools()).not.toEqual(before);
    expect(upstream.asked).toBe(2);
  });

  it('is the end of another session, which keeps no list from being kept', async () => {
    const { session, upstream } = await caching();
    const [one, other] = [await session(), await session()];
    const held = latch();
    upstream.gate = held.opened;
    const asking = one.tools();
    await expect.poll(() => upstream.asked).toBe(1);
    expect((await other.end()).status).toBe(200);
    held.open();
    await asking;
    await one.tools();
    expect(upstream.asked).toBe(1);
  });
});

describe('a list that is kept in the stateless era', () => {
  const hinted = (ttlMs: number, cacheScope: 'public' | 'private') => {
    return { serverOptions: { cacheHints: { 'tools/list': { ttlMs, cacheScope } } } };
  };
  const user = (name: string): StatelessOptions => ({ user: name });

  async function cachingBoth(options: Parameters<typeof sceneOfBothEras>[0] = {}) {
    const { state, count } = counter();
    // The tests' own authentication reads it. No list is shared between requests with two of them.
    const withoutUser: RequestHandler = (req, _res, next) => {
      delete req.headers['x-user'];
      next();
    };
    const json: RequestHandler = async (req, _res, next) => {
      const chunks: Buffer[] = [];
      for await (const chunk of req) chunks.push(chunk as Buffer);
      req.body = chunks.length > 0 ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
      next();
    };
    const app = await sceneOfBothEras({
      session: { key: principalKey() },
      ...options,
      before: [json, withoutUser],
      behind: [count],
    });
    const list = async (by: StatelessOptions, params = {}): Promise<WireMessage> =>
      (await ask(app.url, 'tools/list', params, by)).messages.at(-1) ?? {};
    return { ...app, upstream: state, list };
  }

  it('is each principal’s own, and costs no read of the store where it is stable', async () => {
    const { list, upstream, store } = await cachingBoth({ gate: { listCache: true } });
    const first = await list(user('ann'));
    expect(upstream.asked).toBe(1);
    store.take();
    const again = await list(user('ann'));
    expect(again.result).toEqual(first.result);
    expect(again.id).not.toBe(first.id);
    expect(JSON.stringify(again)).toContain('Available');
    expect(store.take()).toEqual([]);
    await list(user('ben'));
    expect(upstream.asked).toBe(2);
  });

  it('asks for the handles of a workflow whose runs they name', async () => {
    const { list, upstream } = await cachingBoth({
      session: { key: managedHandle({ start: 'checkout.start', argument: 'run' }) },
      gate: { listCache: true },
    });
    const [first, second] = [await list(user('ann')), await list(user('ann'))];
    expect(namesIn(first)[0]).toBe('checkout.start');
    expect(second.result).toEqual(first.result);
    expect(upstream.asked).toBe(1);
  });

  it('is not kept without a principal', async () => {
    const { list, upstream } = await cachingBoth({
      gate: { listCache: { shared: true } },
      ...hinted(60_000, 'public'),
    });
    for (const times of [1, 2]) {
      await list({});
      expect(upstream.asked).toBe(times);
    }
  });

  it('is kept for all if the upstream calls it public, with the ttl that is left', async () => {
    const { list, upstream, clock } = await cachingBoth(hinted(30_000, 'public'));
    const hint = ({ result: { ttlMs, cacheScope } }: WireMessage) => [ttlMs, cacheScope];
    expect(hint(await list(user('ann')))).toEqual([30_000, 'public']);
    clock.advance(10_000);
    expect(hint(await list(user('ben')))).toEqual([20_000, 'public']);
    clock.advance(19_999);
    expect(hint(await list(user('ann')))).toEqual([1, 'public']);
    expect(upstream.asked).toBe(1);
    clock.advance(1);
    expect(hint(await list(user('ann')))).toEqual([30_000, 'public']);
    expect(upstream.asked).toBe(2);
  });

  it('is not kept without an option if it is private or has no ttl, nor with `false`', async () => {
    const none = { gate: { listCache: false as const } };
    for (const options of [
      hinted(30_000, 'private'),
      hinted(0, 'public'),
      {},
      { ...hinted(30_000, 'public'), ...none },
    ]) {
      const { list, upstream } = await cachingBoth(options);
      await list(user('ann'));
      await list(user('ann'));
      expect(upstream.asked).toBe(2);
    }
  });

  it('goes out as private and with no ttl if it hides tools', async () => {
    const { list, upstream } = await cachingBoth({
      gate: { visibility: 'hide' },
      ...hinted(30_000, 'public'),
    });
    for (let times = 0; times < 2; times++) {
      const { result } = await list(user('ann'));
      expect(result).toMatchObject({ ttlMs: 0, cacheScope: 'private' });
      expect(namesIn({ result })).toEqual(EMPTY);
    }
    expect(upstream.asked).toBe(1);
  });

  it('is apart by what clients say of themselves, and by era', async () => {
    const { list, upstream, url } = await cachingBoth({
      gate: { listCache: { shared: true } },
      ...hinted(60_000, 'public'),
    });
    await list(user('ann'));
    await list({ user: 'ann', capabilities: { elicitation: {} } });
    expect(upstream.asked).toBe(2);
    const named = { _meta: { 'io.modelcontextprotocol/clientInfo': { name: 'x', version: '1' } } };
    await list(user('ann'), named);
    expect(upstream.asked).toBe(3);
    await send(url, {
      headers: { 'x-user': 'ann', 'mcp-protocol-version': PROTOCOL },
      body: { jsonrpc: '2.0', id: 1, method: 'tools/list' },
    });
    expect(upstream.asked).toBe(4);
    for (const params of [{}, named]) await list(user('ben'), params);
    expect(upstream.asked).toBe(4);
  });

  it('is dropped when the upstream says on a subscription that it changed', async () => {
    const { list, upstream, url, handler } = await cachingBoth(hinted(60_000, 'public'));
    const listening = await stream(
      url,
      stateless(
        'subscriptions/listen',
        { notifications: { toolsListChanged: true } },
        user('carl'),
      ),
    );
    await expect.poll(() => listening.messages.length).toBe(1);
    await list(user('ann'));
    await list(user('ann'));
    expect(upstream.asked).toBe(1);
    handler.notify.toolsChanged();
    await expect.poll(() => listening.messages.length).toBe(2);
    await list(user('ann'));
    expect(upstream.asked).toBe(2);
    listening.cut();
  });

  it('is not answered without the header that the upstream asks for', async () => {
    const { url, list, upstream } = await cachingBoth({ gate: { listCache: true } });
    await list(user('ann'));
    const { status } = await ask(
      url,
      'tools/list',
      {},
      { user: 'ann', changes: { 'mcp-method': '' } },
    );
    expect([status, upstream.asked]).toEqual([400, 2]);
  });

  it('is dropped when a stream of the session era says that it changed', async () => {
    const { list, upstream, url } = await cachingBoth({
      ...hinted(60_000, 'public'),
      register: (server) => {
        server.registerTool('grow', {}, async ({ mcpReq }) => {
          await mcpReq.notify({ method: 'notifications/tools/list_changed' });
          return { content: [] };
        });
      },
    });
    await list(user('ann'));
    await list(user('ann'));
    expect(upstream.asked).toBe(1);
    const { text } = await send(url, {
      headers: { 'x-user': 'ben', 'mcp-protocol-version': PROTOCOL },
      body: {
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name: 'grow', arguments: {} },
      },
    });
    expect(text).toContain('list_changed');
    await list(user('ann'));
    expect(upstream.asked).toBe(2);
  });
});

describe('a list that is kept behind gateFetch()', () => {
  it('is answered without the upstream', async () => {
    let asked = 0;
    const app = await scene({
      gate: { listCache: true },
      shape: { host: 'hono', mode: 'stateful', answers: 'sse' },
      makeServer(ledger) {
        const server = cartServer(ledger);
        const connect = server.connect.bind(server);
        server.connect = async (transport) => {
          await connect(transport);
          const { onmessage } = transport;
          transport.onmessage = (message, extra) => {
            if ('method' in message && message.method === 'tools/list') asked++;
            onmessage?.(message, extra);
          };
        };
        return server;
      },
    });
    const client = await app.session();
    expect(await client.tools()).toEqual(EMPTY);
    await client.call('cart.add_item');
    expect(await client.tools()).toEqual(HAS_ITEMS);
    expect(asked).toBe(1);
  });

  it('gives each client its own copy of the bytes', async () => {
    const clientsBytes = async (response: Response): Promise<string> => {
      let text = '';
      for await (const chunk of response.body ?? []) {
        text += Buffer.from(chunk).toString();
        chunk.fill(0);
      }
      return text;
    };
    const long = 'x'.repeat(100_000);
    const page = { tools: [{ name: 'cart.view', description: long }], ttlMs: 60_000 };
    let asked = 0;
    const { middlewares } = makeStage({
      session: { key: principalKey(), principal: () => 'ann' },
      gate: { listCache: true },
    });
    const handle = gateFetch(async (request) => {
      asked++;
      const { id } = (await request.json()) as WireMessage;
      return Response.json({ jsonrpc: '2.0', id, result: page });
    }, middlewares);
    const { headers, body } = stateless('tools/list');
    const all = {
      ...headers,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    };
    const list = () =>
      handle(
        new Request('http://a.example/mcp', {
          method: 'POST',
          headers: all,
          body: JSON.stringify(body),
        }),
      );
    const [first, second, third] = [
      await clientsBytes(await list()),
      await clientsBytes(await list()),
      await clientsBytes(await list()),
    ];
    expect([second, third]).toEqual([first, first]);
    expect(first).toContain(long);
    expect(asked).toBe(1);
  });
});
