import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  fsmGate,
  localBus,
  memoryStore,
  type NotificationBus,
  principalKey,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { RawSession, type RawStream } from '../helpers/raw.ts';
import { authenticate, callStateless, startTwoEras } from '../helpers/two-eras.ts';
import { startUpstream, type UpstreamShape } from '../helpers/upstream.ts';

const CHANGED = 'notifications/tools/list_changed';

let store: ReturnType<typeof memoryStore>;
let bus: NotificationBus;
const closing: (() => unknown)[] = [];

beforeEach(() => {
  store = memoryStore();
  bus = localBus();
});

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** One of several processes of an app: they share a store and a bus, and nothing else. */
async function instance(ownBus: NotificationBus | undefined = bus): Promise<URL> {
  const sessions = sessionStore({ key: principalKey(), store, bus: ownBus });
  const { url, close } = await startUpstream({
    before: [authenticate],
    middlewares: [sessions, fsmGate(checkoutGate())],
  });
  closing.push(close, () => sessions.close());
  return url;
}

/** The same where the middleware serves the sessions, so that each process can. */
async function minting(shape: Partial<UpstreamShape>): Promise<URL> {
  const sessions = sessionStore({ key: [principalKey(), sessionKey()], store, bus });
  const { url, close } = await startUpstream({
    shape,
    before: [authenticate],
    middlewares: [sessions, fsmGate(checkoutGate())],
  });
  closing.push(close, () => sessions.close());
  return url;
}

interface Listening {
  readonly session: RawSession;
  readonly heard: RawStream;
  changes(): number;
}

async function listen(url: URL, user: string): Promise<Listening> {
  const session = await RawSession.begin(url, { 'x-user': user });
  const heard = await session.listen();
  closing.push(() => heard.cut());
  return {
    session,
    heard,
    changes: () => heard.messages.filter(({ method }) => method === CHANGED).length,
  };
}

describe('sessions of one principal', () => {
  it('hear of what another of them did, once, and another principal hears nothing', async () => {
    const url = await instance(undefined);
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
    // Whoever was told of the second move has been told of the first one by then.
    await other.session.call('cart.add_item');
    await mover.session.call('cart.checkout');
    await expect.poll(sameUser.changes).toBe(2);
    expect([mover.changes(), other.changes()]).toEqual([0, 0]);
  });

  it('hear of it in another process', async () => {
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

  it('that a bus joins are told on one stream: of the call, or else their own in another process', async () => {
    for (const [answers, onCall, onStream] of [
      ['sse', 1, 0],
      ['json', 0, 1],
    ] as const) {
      const shape = { mode: 'stateless', answers } as const;
      const [here, there] = [await minting(shape), await minting(shape)];
      const mover = await RawSession.begin(here, { 'x-user': answers });
      const own = await RawSession.resume(there, mover.id, mover.headers).listen();
      const sameUser = await listen(there, answers);
      closing.push(() => own.cut());
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
    const url = await instance(undefined);
    const [mover, sameUser] = [await listen(url, 'alice'), await listen(url, 'alice')];
    await mover.session.call('cart.pay');
    await mover.session.call('cart.add_item', { fail: true });
    await mover.session.call('cart.view');
    await mover.session.call('cart.add_item');
    await expect.poll(sameUser.changes).toBe(1);
  });

  it('hear nothing any more once their streams are closed', async () => {
    const url = await instance(undefined);
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
    const app = await startTwoEras({
      middlewares: [sessionStore({ key: principalKey(), store, bus }), fsmGate(checkoutGate())],
    });
    closing.push(app.close);
    const there = await instance();
    const [sameUser, other] = [await listen(there, 'alice'), await listen(there, 'bob')];
    await callStateless(app.url, 'cart.add_item', {}, { user: 'alice' });
    // By default nothing is hidden in the era of that call; the sessions' own lists change all the same.
    await expect.poll(sameUser.changes).toBe(1);
    expect(other.changes()).toBe(0);
  });
});
