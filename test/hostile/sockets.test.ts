import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { latch } from '../helpers/latch.ts';
import { callOf, RawSession, reasonOf, type WireMessage } from '../helpers/raw.ts';
import { scene, settle } from '../helpers/scene.ts';

interface Wire {
  readonly socket: Socket;
  /** All bytes that came back. */
  readonly text: string;
  /** The JSON-RPC messages in them, of JSON bodies and of streams. */
  readonly messages: WireMessage[];
}

/** A bare connection: the test's bytes go out as they are. */
async function dial(url: URL): Promise<Wire> {
  const socket = connect(Number(url.port), url.hostname);
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  socket.on('error', () => {});
  await once(socket, 'connect');
  onTestFinished(() => void socket.destroy());
  return {
    socket,
    get text() {
      return text;
    },
    get messages() {
      // A JSON body does not end with a line break: the next response begins on the same line.
      const lines = text.replaceAll('HTTP/1.1 ', '\nHTTP/1.1 ');
      return [...lines.matchAll(/^(?:data: )?(\{"(?:jsonrpc|result|error)".*\})\r?$/gm)].map(
        ([, json]) => JSON.parse(json ?? '') as WireMessage,
      );
    },
  };
}

/** A POST as bytes. `length` states another length than its body has. */
function postOf({ url, headers }: RawSession, body: unknown, length?: number): string {
  const text = JSON.stringify(body);
  const lines = Object.entries({
    host: url.host,
    accept: 'application/json, text/event-stream',
    'content-type': 'application/json',
    'content-length': length ?? Buffer.byteLength(text),
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST ${url.pathname} HTTP/1.1\r\n${lines.join('')}\r\n${text}`;
}

const textOf = (message: WireMessage | undefined): unknown => message?.result?.content?.[0]?.text;

describe.each([
  ['stateful', 'sse'],
  ['stateful', 'json'],
  ['stateless', 'sse'],
  ['stateless', 'json'],
] as const)('two calls that are pipelined on one connection, %s %s', (mode, answers) => {
  it('are both answered, each by the state that the one before has left', async () => {
    const app = await scene({ shape: { mode, answers } });
    const session = await app.sessionAt('has_items');
    const wire = await dial(app.url);
    wire.socket.write(
      postOf(session, callOf(11, 'cart.checkout')) + postOf(session, callOf(12, 'cart.pay')),
    );
    await expect.poll(() => wire.text).toContain('cart.pay done');
    const answered = wire.messages.filter(({ id }) => id !== undefined);
    expect(answered.map((each) => [each.id, textOf(each)])).toEqual([
      [11, 'cart.checkout done'],
      [12, 'cart.pay done'],
    ]);
    expect(app.ledger.calls).toEqual(['cart.checkout', 'cart.pay']);
  });

  it('do not both run where only one may', async () => {
    const app = await scene({ shape: { mode, answers } });
    const session = await app.sessionAt('payment');
    const wire = await dial(app.url);
    wire.socket.write(
      postOf(session, callOf(11, 'cart.pay')) + postOf(session, callOf(12, 'cart.pay')),
    );
    await expect.poll(() => wire.messages.filter(({ id }) => id !== undefined).length).toBe(2);
    const [paid, refused] = wire.messages.filter(({ id }) => id !== undefined);
    expect([paid?.id, textOf(paid)]).toEqual([11, 'cart.pay done']);
    expect([refused?.id, reasonOf(refused)]).toEqual([12, 'state']);
    expect(refused?.result._meta['mcp-interlock/refusal'].state).toBe('confirmed');
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });
});

describe('a call that is pipelined behind one that runs', () => {
  it('is never forwarded if the connection ends before its turn', async () => {
    const app = await scene();
    const session = await app.sessionAt('has_items');
    const handler = latch();
    app.ledger.gates.set('cart.checkout', handler.opened);
    const wire = await dial(app.url);
    wire.socket.write(
      postOf(session, callOf(11, 'cart.checkout')) + postOf(session, callOf(12, 'cart.pay')),
    );
    await app.isServing(2);
    wire.socket.destroy();
    await once(wire.socket, 'close');
    await settle();
    handler.open();
    await app.run(session.id).becomes('idle');
    expect(app.ledger.calls).toEqual(['cart.checkout']);
    expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
  });
});

describe('a client that hangs up in the middle of its request', () => {
  it('at any byte is forgotten: nothing runs, nothing is held, the server goes on', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    const request = postOf(session, callOf(1, 'cart.pay'));
    const step = Math.ceil(request.length / 25);
    for (let length = 1; length < request.length; length += step) {
      const wire = await dial(app.url);
      wire.socket.write(request.slice(0, length));
      wire.socket.destroy();
    }
    expect((await session.call('cart.view')).result.content[0].text).toBe('cart.view done');
    expect(app.ledger.calls).toEqual(['cart.view']);
    expect(app.errors).toEqual([]);
    expect((await session.post(callOf(1, 'cart.pay'))).status).toBe(200);
  });

  it('with only half of its connection is answered all the same', async () => {
    const app = await scene();
    const session = await app.session();
    const wire = await dial(app.url);
    wire.socket.end(postOf(session, callOf(1, 'cart.view')));
    await expect.poll(() => app.ledger.calls).toEqual(['cart.view']);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(200);
  });

  it('after more bytes than it announced runs nothing of the rest', async () => {
    const app = await scene();
    const session = await app.session();
    const wire = await dial(app.url);
    const more = JSON.stringify(callOf(2, 'cart.add_item'));
    wire.socket.write(postOf(session, callOf(1, 'cart.view')) + more);
    await expect.poll(() => wire.text).toMatch(/^HTTP\/1\.1 (200|400)/);
    expect(await session.tools()).toEqual(['cart.add_item', 'cart.view']);
    expect(app.ledger.calls).not.toContain('cart.add_item');
  });
});

describe('a client that sends its request very slowly', () => {
  it('keeps no other client waiting, and is served at its end', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    const slow = await dial(app.url);
    const request = postOf(session, callOf(1, 'cart.pay'));
    slow.socket.write(request.slice(0, -5));
    expect((await session.call('cart.view')).result.content[0].text).toBe('cart.view done');
    expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
    for (const byte of request.slice(-5)) {
      slow.socket.write(byte);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expect.poll(() => slow.text).toContain('cart.pay done');
  });

  it('and never ends it costs only its own connection', async () => {
    const app = await scene();
    const session = await app.sessionAt('payment');
    const wires = await Promise.all(Array.from({ length: 50 }, () => dial(app.url)));
    for (const { socket } of wires) socket.write(postOf(session, callOf(1, 'cart.pay'), 1_000_000));
    expect((await session.post(callOf(1, 'cart.pay'))).messages.at(-1)?.id).toBe(1);
    for (const { socket } of wires) socket.destroy();
    expect(app.ledger.calls).toEqual(['cart.pay']);
    expect(await session.tools()).toEqual(['cart.view']);
  });
});

describe('a connection that is kept alive', () => {
  it('carries on after a request of every bad kind', async () => {
    const app = await scene();
    const session = await app.session();
    const wire = await dial(app.url);
    const bad = [callOf(1.5, 'x'), [], callOf(2, 'cart.pay'), callOf(3, 7)];
    for (const body of bad) wire.socket.write(postOf(session, body));
    wire.socket.write(postOf(session, callOf(4, 'cart.view')));
    await expect.poll(() => wire.text).toContain('cart.view done');
    expect(wire.text.match(/HTTP\/1\.1 \d+/g)).toEqual([
      'HTTP/1.1 400',
      'HTTP/1.1 400',
      'HTTP/1.1 200',
      'HTTP/1.1 200',
      'HTTP/1.1 200',
    ]);
  });

  it('does not mix up two sessions', async () => {
    const app = await scene();
    const [ann, bob] = [await app.sessionAt('payment'), await RawSession.begin(app.url)];
    const wire = await dial(app.url);
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    wire.socket.write(postOf(ann, list) + postOf(bob, list) + postOf(ann, { ...list, id: 2 }));
    await expect.poll(() => wire.messages.length).toBe(3);
    expect(
      wire.messages.map(({ result }) => result.tools.map((tool: WireMessage) => tool.name)),
    ).toEqual([
      ['cart.pay', 'cart.view'],
      ['cart.add_item', 'cart.view'],
      ['cart.pay', 'cart.view'],
    ]);
  });
});

describe('a client that leaves during its answer', () => {
  it('at any time leaves a server that serves', async () => {
    const app = await scene();
    const session = await app.session();
    const view = latch();
    app.ledger.gates.set('cart.view', view.opened);
    const wires = await Promise.all(Array.from({ length: 10 }, () => dial(app.url)));
    for (const [id, { socket }] of wires.entries())
      socket.write(postOf(session, callOf(id, 'cart.view')));
    await expect.poll(() => app.ledger.calls.length).toBe(10);
    for (const { socket } of wires) socket.resetAndDestroy();
    view.open();
    await expect.poll(async () => (await session.post(callOf(5, 'cart.view'))).status).toBe(200);
    expect(app.errors).toEqual([]);
  });
});
