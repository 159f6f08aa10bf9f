import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { localBus, type NotificationBus } from '../../src/index.ts';
import { type RawStream, send, stream } from '../helpers/raw.ts';
import { begins, type Scene, scene } from '../helpers/scene.ts';

type Instance = Pick<Scene, 'url'>;

/** Several instances of an app, which share a store and a bus, and nothing else. */
async function instances(count: number, bus: NotificationBus = localBus()) {
  const session = { bus };
  const shape = { mode: 'stateless', answers: 'json' } as const;
  const first = await scene({ session, shape });
  const apps = [first];
  while (apps.length < count) apps.push(await scene({ session, shape, beside: first }));
  return apps as [Scene, Scene, Scene];
}

async function initialize({ url }: Instance): Promise<Record<string, string>> {
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'raw', version: '1' },
  };
  const { headers } = await send(url, {
    body: { jsonrpc: '2.0', id: 0, method: 'initialize', params },
  });
  return { 'mcp-session-id': String(headers['mcp-session-id']) };
}

async function listen({ url }: Instance, headers: Record<string, string>): Promise<RawStream> {
  const opened = await stream(url, { method: 'GET', headers });
  expect(opened.status).toBe(200);
  onTestFinished(() => opened.cut());
  return opened;
}

async function call({ url }: Instance, headers: Record<string, string>, name: string) {
  const { messages } = await send(url, {
    headers,
    body: {
      jsonrpc: '2.0',
      id: randomUUID(),
      method: 'tools/call',
      params: { name, arguments: {} },
    },
  });
  return messages[0];
}

const methods = ({ messages }: RawStream): unknown[] => messages.map(({ method }) => method);
const CHANGED = 'notifications/tools/list_changed';

/** Waits until all hints on the local bus and all messages on real sockets have arrived. */
async function settle({ url }: Instance, headers: Record<string, string>): Promise<void> {
  for (let i = 0; i < 3; i++)
    await send(url, { headers, body: { jsonrpc: '2.0', id: randomUUID(), method: 'ping' } });
}

describe('a move', () => {
  it('is told once, on the stream of the instance that has one', async () => {
    const [a, b, c] = await instances(3);
    const session = await initialize(a);
    const there = await listen(b, session);
    expect((await call(c, session, 'cart.add_item'))?.result.isError).toBeUndefined();
    await expect.poll(() => methods(there)).toEqual([CHANGED]);
    await call(a, session, 'cart.checkout');
    await expect.poll(() => methods(there)).toEqual([CHANGED, CHANGED]);
  });

  it('is told on the newest stream only, where another instance holds an old one', async () => {
    const [a, b] = await instances(2);
    const session = await initialize(a);
    const old = await listen(a, session);
    a.clock.advance(1);
    const young = await listen(b, session);
    // Also where the instance with the old stream makes the move.
    await call(a, session, 'cart.add_item');
    await expect.poll(() => methods(young)).toEqual([CHANGED]);
    await settle(a, session);
    expect(methods(old)).toEqual([]);
  });

  it('is told on the newest stream though the clock of its host is behind', async () => {
    const [a, b] = await instances(2);
    const session = await initialize(a);
    await settle(b, session);
    const old = await listen(a, session);
    await settle(b, session);
    // The instances of a scene share one clock, which stands for two.
    b.clock.advance(-1_000);
    const young = await listen(b, session);
    await settle(b, session);
    await call(a, session, 'cart.add_item');
    await expect.poll(() => methods(young)).toEqual([CHANGED]);
    expect(methods(old)).toEqual([]);
  });

  it('is told on the old stream again once the newer one is closed', async () => {
    const bus = localBus();
    const heard: string[] = [];
    await bus.subscribe((text) => void heard.push(text));
    const [a, b] = await instances(2, bus);
    const session = await initialize(a);
    const old = await listen(a, session);
    a.clock.advance(1);
    const young = await listen(b, session);
    young.cut();
    await expect.poll(() => heard.some((text) => text.includes('"silence"'))).toBe(true);
    await call(a, session, 'cart.add_item');
    await expect.poll(() => methods(old)).toEqual([CHANGED]);
  });

  it('is told on the old stream after three silent heartbeats of the other instance', async () => {
    const [a, b] = await instances(2);
    const session = await initialize(a);
    const old = await listen(a, session);
    a.clock.advance(1);
    await listen(b, session);
    await b.sessions.close();
    a.clock.advance(45_000);
    await call(a, session, 'cart.add_item');
    await expect.poll(() => methods(old)).toEqual([CHANGED]);
  });

  it('reaches no client twice where two streams were opened at the same time', async () => {
    const [a, b] = await instances(2);
    const session = await initialize(a);
    const both = [await listen(a, session), await listen(b, session)];
    await call(a, session, 'cart.add_item');
    await expect.poll(() => both.flatMap(methods)).toEqual([CHANGED]);
    await settle(a, session);
    await settle(b, session);
    expect(both.flatMap(methods)).toEqual([CHANGED]);
  });

  it('is saved even where the bus is down: only the hint is lost, with a report', async () => {
    const down: NotificationBus = {
      publish: () => Promise.reject(new Error('the bus is down')),
      subscribe: () => Promise.reject(new Error('the bus is down')),
    };
    const [a] = await instances(1, down);
    const session = await initialize(a);
    expect((await call(a, session, 'cart.add_item'))?.result.content[0].text).toBe(
      'cart.add_item done',
    );
    expect((await call(a, session, 'cart.checkout'))?.result.content[0].text).toBe(
      'cart.checkout done',
    );
    expect(a.errors.map(String)).toContain('Error: the bus is down');
  });
});

describe('a cancellation that lands on another instance', () => {
  it('reaches the waiting call, which is never forwarded', async () => {
    const [a, b] = await instances(2);
    const session = await initialize(a);
    const first = await begins(a, 'cart.add_item', () => call(a, session, 'cart.add_item'));
    const waiting = send(a.url, {
      headers: session,
      body: {
        jsonrpc: '2.0',
        id: 'waits',
        method: 'tools/call',
        params: { name: 'cart.add_item', arguments: {} },
      },
    });
    let answered: number | undefined;
    void waiting.then(({ status }) => {
      answered = status;
    });
    const notice = {
      jsonrpc: '2.0',
      method: 'notifications/cancelled',
      params: { requestId: 'waits' },
    };
    await expect
      .poll(async () => {
        await send(b.url, { headers: session, body: notice });
        return answered;
      })
      .toBe(202);
    first.finish();
    await first.answer;
    expect(a.ledger.calls).toEqual(['cart.add_item']);
  });
});

it('keeps a cancelled id that no request can have to itself', async () => {
  const bus = localBus();
  const sent: string[] = [];
  const told: NotificationBus = {
    publish(message) {
      sent.push(JSON.stringify(message));
      return bus.publish(message);
    },
    subscribe: (listener) => bus.subscribe(listener),
  };
  const [a] = await instances(1, told);
  const headers = await initialize(a);
  for (const requestId of ['x'.repeat(257), 'gone']) {
    const body = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } };
    expect((await send(a.url, { headers, body })).status).toBe(202);
  }
  const cancelled = sent.filter((message) => message.includes('cancelled'));
  expect([cancelled.length, cancelled[0]]).toEqual([1, expect.stringContaining('gone')]);
});

describe('a session that ends on one instance', () => {
  it('is unknown to the others at once, and its streams end there', async () => {
    const [a, b] = await instances(2);
    const session = await initialize(a);
    const there = await listen(b, session);
    expect((await send(a.url, { method: 'DELETE', headers: session })).status).toBe(200);
    await expect.poll(() => there.ended).toBe(true);
    const { status } = await send(b.url, {
      headers: session,
      body: { jsonrpc: '2.0', id: 1, method: 'ping' },
    });
    expect(status).toBe(404);
  });
});

describe('close()', () => {
  it('ends the streams of this process, while the session lives on elsewhere', async () => {
    const [a, b] = await instances(2);
    const session = await initialize(a);
    const here = await listen(a, session);
    await a.sessions.close();
    await expect.poll(() => here.ended).toBe(true);
    expect((await call(b, session, 'cart.add_item'))?.result.isError).toBeUndefined();
  });
});

describe('a session that listens alone', () => {
  it('is announced once in each interval, however many streams it opened', async () => {
    const bus = localBus();
    const heard: string[] = [];
    await bus.subscribe((text) => void heard.push(text));
    const [a] = await instances(1, bus);
    const session = await initialize(a);
    await listen(a, session);
    for (let i = 0; i < 5; i++) (await listen(a, session)).cut();
    await settle(a, session);
    heard.length = 0;
    for (let i = 0; i < 3; i++) a.clock.advance(15_000);
    await settle(a, session);
    expect(heard.filter((text) => text.includes('"stream"'))).toHaveLength(3);
  });
});

describe('a bus that throws', () => {
  it('is like one that is down, also in timers', async () => {
    const bus = localBus();
    const broken: NotificationBus = {
      publish() {
        throw new Error('no connection');
      },
      subscribe: (listener) => bus.subscribe(listener),
    };
    const [a] = await instances(1, broken);
    const session = await initialize(a);
    expect((await call(a, session, 'cart.add_item'))?.result.isError).toBeUndefined();
    const here = await listen(a, session);
    expect((await call(a, session, 'cart.checkout'))?.result.isError).toBeUndefined();
    await expect.poll(() => methods(here)).toEqual([CHANGED]);
    a.errors.length = 0;
    a.clock.advance(15_000);
    await expect.poll(() => a.errors.map(String)).toEqual(['Error: no connection']);
    // The bus cannot tell either that the stream has closed.
    here.cut();
    await expect.poll(() => a.errors).toHaveLength(2);
  });
});

describe('what goes over the bus', () => {
  it('names no session id, and no stranger’s message does harm', async () => {
    const bus = localBus();
    const published: string[] = [];
    const spied: NotificationBus = {
      publish: (text) => {
        published.push(text);
        return bus.publish(text);
      },
      subscribe: (listener) => bus.subscribe(listener),
    };
    const [a] = await instances(1, spied);
    const session = await initialize(a);
    const here = await listen(a, session);
    await call(a, session, 'cart.add_item');
    await expect.poll(() => methods(here)).toEqual([CHANGED]);
    expect(published.length).toBeGreaterThan(0);
    expect(published.join()).not.toContain(session['mcp-session-id']);
    for (const text of [
      '',
      'null',
      '{}',
      '{"v":2}',
      '[1]',
      published[0]?.replace('"v":1', '"v":1,"kind":7') ?? '',
    ]) {
      await bus.publish(text);
    }
    await settle(a, session);
    expect(a.errors).toEqual([]);
    expect(here.ended).toBe(false);
  });
});
