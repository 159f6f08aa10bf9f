import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type CallerRequest,
  handleKey,
  localBus,
  principalKey,
  type SessionStoreOptions,
  sessionKey,
} from '../../src/index.ts';
import { connect } from '../helpers/client.ts';
import { latch } from '../helpers/latch.ts';
import { callOf, RawSession, type RawStream, send, stream } from '../helpers/raw.ts';
import { type Scene, type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { callStateless } from '../helpers/two-eras.ts';
import type { UpstreamShape } from '../helpers/upstream.ts';

const CHANGED = 'notifications/tools/list_changed';

type Beside = Pick<Scene, 'clock' | 'data'>;

/** Processes of one app: they share a store and, by default, a bus. */
function processes(bus: SessionStoreOptions['bus'] = localBus()) {
  let beside: Beside | undefined;
  const start = async <A extends Beside>(begin: (beside?: Beside) => Promise<A>): Promise<A> => {
    const app = await begin(beside);
    beside ??= app;
    return app;
  };
  const open = async (session: SessionStoreOptions, shape: Partial<UpstreamShape> = {}) =>
    (await start((beside) => scene({ session: { bus, ...session }, shape, beside }))).url;
  return {
    start,
    instance: () => open({ key: principalKey() }),
    /** The same, with sessions of the middleware, so that each process can serve them. */
    minting: (shape: Partial<UpstreamShape>) =>
      open({ key: [principalKey(), sessionKey()] }, shape),
  };
}

/** An app that runs in one process, without a bus. */
async function alone(): Promise<URL> {
  return (await scene({ session: { key: principalKey() } })).url;
}

interface Listening {
  readonly session: RawSession;
  readonly heard: RawStream;
  changes(): number;
}

async function listen(url: URL, user: string): Promise<Listening> {
  const session = await RawSession.begin(url, { 'x-user': user });
  const heard = await session.listen();
  onTestFinished(() => heard.cut());
  return {
    session,
    heard,
    changes: () => heard.messages.filter(({ method }) => method === CHANGED).length,
  };
}

describe('sessions of one principal', () => {
  it('hear of what another of them did, once, and another principal hears nothing', async () => {
    const url = await alone();
    const [mover, sameUser, other] = [
      await listen(url, 'alice'),
      await listen(url, 'alice'),
      await listen(url, 'bob'),
    ];
    const body = {
      jsonrpc: '2.0',
      id: 50,
      method: 'tools/call',
      params: { name: 'cart.add_item', arguments: {} },
    };
    const { messages } = await mover.session.post(body);
    expect(messages.map(({ method, id }) => method ?? id)).toEqual([CHANGED, 50]);
    await expect.poll(sameUser.changes).toBe(1);
    expect(await sameUser.session.tools()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
    // A client that hears of the second move has heard of the first one.
    await other.session.call('cart.add_item');
    await mover.session.call('cart.checkout');
    await expect.poll(sameUser.changes).toBe(2);
    expect([mover.changes(), other.changes()]).toEqual([0, 0]);
  });

  it('hear of it in another process', async () => {
    const { instance } = processes();
    const [here, there] = [await instance(), await instance()];
    const [mover, sameUser, other] = [
      await listen(here, 'alice'),
      await listen(there, 'alice'),
      await listen(there, 'bob'),
    ];
    await mover.session.call('cart.add_item');
    await expect.poll(sameUser.changes).toBe(1);
    await mover.session.call('cart.checkout');
    await expect.poll(sameUser.changes).toBe(2);
    expect([mover.changes(), other.changes()]).toEqual([0, 0]);
  });

  it('that a bus joins are told on one stream each, in any process', async () => {
    for (const [answers, onCall, onStream] of [
      ['sse', 1, 0],
      ['json', 0, 1],
    ] as const) {
      const shape = { mode: 'stateless', answers } as const;
      const { minting } = processes();
      const [here, there] = [await minting(shape), await minting(shape)];
      const mover = await RawSession.begin(here, { 'x-user': answers });
      const own = await RawSession.resume(there, mover.id, mover.headers).listen();
      const sameUser = await listen(there, answers);
      onTestFinished(() => own.cut());
      const body = {
        jsonrpc: '2.0',
        id: 50,
        method: 'tools/call',
        params: { name: 'cart.add_item' },
      };
      const { messages } = await mover.post(body);
      await expect.poll(sameUser.changes).toBe(1);
      const told = (each: { method?: string }[]) =>
        each.filter(({ method }) => method === CHANGED).length;
      await expect.poll(() => told(own.messages)).toBe(onStream);
      expect(told(messages)).toBe(onCall);
    }
  });

  it('hear nothing of a move that changes no list, or of one that is refused', async () => {
    const url = await alone();
    const [mover, sameUser] = [await listen(url, 'alice'), await listen(url, 'alice')];
    await mover.session.call('cart.pay');
    await mover.session.call('cart.add_item', { fail: true });
    await mover.session.call('cart.view');
    await mover.session.call('cart.add_item');
    await expect.poll(sameUser.changes).toBe(1);
  });

  it('hear nothing any more once their streams are closed', async () => {
    const url = await alone();
    const [mover, gone, sameUser] = [
      await listen(url, 'alice'),
      await listen(url, 'alice'),
      await listen(url, 'alice'),
    ];
    gone.heard.cut();
    await mover.session.call('cart.add_item');
    await expect.poll(sameUser.changes).toBe(1);
    expect(gone.changes()).toBe(0);
  });

  it('hear of what the principal does without a session', async () => {
    const bus = localBus();
    const { start, instance } = processes(bus);
    const app = await start(() => sceneOfBothEras({ session: { key: principalKey(), bus } }));
    const there = await instance();
    const [sameUser, other] = [await listen(there, 'alice'), await listen(there, 'bob')];
    await callStateless(app.url, 'cart.add_item', {}, { user: 'alice' });
    // By default that call's era hides nothing, but the sessions' own lists change.
    await expect.poll(sameUser.changes).toBe(1);
    expect(other.changes()).toBe(0);
  });
});

/** A client without a session opens a GET stream, and hears on it. */
describe('clients of one principal that were given no session', () => {
  const SERVERS = [
    { answers: 'json', host: 'express' },
    { answers: 'json', host: 'hono' },
    { answers: 'sse', host: 'express' },
  ] as const;

  /** An upstream without sessions. */
  function lone(options: SceneOptions = {}) {
    const principal = ({ headers }: CallerRequest): string | undefined =>
      headers['x-user'] === undefined ? undefined : String(headers['x-user']);
    return scene({
      ...options,
      shape: { mode: 'stateless', answers: 'json', ...options.shape },
      session: { key: principalKey(), principal, ...options.session },
    });
  }

  /** The SDK's client of version 1 or 2, and how often it heard of a change. */
  async function client(url: URL, user: string, version: 1 | 2) {
    if (version === 1) {
      const { streaming, log, tools, call, close } = await connect(url, { 'x-user': user });
      onTestFinished(() => close());
      await streaming;
      const heard = () => log.filter((each) => each === 'list_changed').length;
      return { heard, tools, call };
    }
    let count = 0;
    const stream = latch();
    const made = new Client({ name: 'test', version: '1.0.0' });
    made.setNotificationHandler(CHANGED, () => void count++);
    const transport = new StreamableHTTPClientTransport(url, {
      requestInit: { headers: { 'x-user': user } },
      async fetch(input, init) {
        const response = await fetch(input, init);
        if (init?.method === 'GET' && response.ok) stream.open();
        return response;
      },
    });
    await made.connect(transport);
    onTestFinished(() => made.close());
    await stream.opened;
    return {
      heard: () => count,
      tools: async () => (await made.listTools()).tools.map(({ name }) => name),
      call: (name: string) => made.callTool({ name, arguments: {} }),
    };
  }

  const listening = (url: URL, headers: Record<string, string>) =>
    stream(url, { method: 'GET', headers: { accept: 'text/event-stream', ...headers } });

  it.each(SERVERS.flatMap((shape) => ([1, 2] as const).map((version) => ({ ...shape, version }))))(
    'hear of a move, and list anew: SDK v$version, $answers in $host',
    async ({ version, ...shape }) => {
      const { url } = await lone({ shape });
      const [mover, sameUser] = [
        await client(url, 'ann', version),
        await client(url, 'ann', version),
      ];
      const other = await client(url, 'bob', version);
      expect(await sameUser.tools()).toEqual(['cart.add_item', 'cart.view']);
      await mover.call('cart.add_item');
      await expect.poll(sameUser.heard).toBe(1);
      // Also on the call's own stream: the GET stream may be another client's.
      await expect.poll(mover.heard).toBe(shape.answers === 'sse' ? 2 : 1);
      expect(await sameUser.tools()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
      expect(other.heard()).toBe(0);
    },
  );

  it('hear of a move from outside, and of one in another process', async () => {
    const bus = localBus();
    const here = await lone({ session: { bus } });
    const there = await lone({ session: { bus }, beside: here });
    const listener = await client(there.url, 'ann', 1);
    const run = principalKey().runKey('ann');
    await (await client(here.url, 'ann', 1)).call('cart.add_item');
    await expect.poll(listener.heard).toBe(1);
    await here.runs.send(run, 'CLEAR');
    await expect.poll(listener.heard).toBe(2);
  });

  it("hear of it on the upstream's own stream, where that has one", async () => {
    const { url } = await lone({
      behind: [
        (req, res, next) => {
          if (req.method !== 'GET') return next();
          res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
        },
      ],
    });
    const heard = await listening(url, { 'x-user': 'ann' });
    onTestFinished(() => heard.cut());
    await send(url, { headers: { 'x-user': 'ann' }, body: callOf(1, 'cart.add_item') });
    await expect.poll(() => heard.messages.map(({ method }) => method)).toEqual([CHANGED]);
  });

  it('are as many as there may be sessions of one, and end with the process', async () => {
    const { url, sessions } = await lone({ session: { maxSessionsPerPrincipal: 2 } });
    const [first, second] = [
      await listening(url, { 'x-user': 'ann' }),
      await listening(url, { 'x-user': 'ann' }),
    ];
    expect([first.status, second.status]).toEqual([200, 200]);
    const third = await listening(url, { 'x-user': 'ann' });
    expect(third.status).toBe(405);
    const other = await listening(url, { 'x-user': 'bob' });
    expect(other.status).toBe(200);
    first.cut();
    await expect
      .poll(async () => {
        const again = await listening(url, { 'x-user': 'ann' });
        if (again.status !== 200) again.cut();
        return again.status;
      })
      .toBe(200);
    await sessions.close();
    for (const each of [second, other]) await expect.poll(() => each.ended).toBe(true);
  });

  it('are given none where there is no run to hear of, or none is to be served', async () => {
    const { url } = await lone();
    expect((await listening(url, {})).status).toBe(405);
    const { url: short } = await lone({ session: { serveStreams: false } });
    expect((await listening(short, { 'x-user': 'ann' })).status).toBe(405);
    const { url: handles } = await lone({
      session: { key: [handleKey('basket', { createdBy: 'make' }), principalKey()] },
    });
    expect((await listening(handles, { 'x-user': 'ann' })).status).toBe(405);
  });
});
