import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import express from 'express';
import { createProxyMiddleware, fixRequestBody } from 'http-proxy-middleware';
import { fsmGate, memoryStore, sessionStore } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { gateInFrontOf, report } from '../../examples/proxy-gate/gate.ts';
import { connect } from '../helpers/client.ts';
import { latch } from '../helpers/latch.ts';
import { expectQuoted } from '../helpers/markdown.ts';
import { ADDRESS, type Program, startProgram } from '../helpers/program.ts';
import {
  callOf,
  RawSession,
  reasonOf,
  send,
  sendAndHold,
  type WireMessage,
} from '../helpers/raw.ts';
import { serve } from '../helpers/serve.ts';
import { startUpstream, type Upstream } from '../helpers/upstream.ts';
import { freePort } from '../services/ports.ts';

// Less than the 15 s after which the server behind the gate writes into a quiet stream of its own
// accord.
vi.setConfig({ testTimeout: 12_000 });

const EVERYTHING = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/dist/index.js',
);
const SERVER = fileURLToPath(new URL('../../examples/proxy-gate/server.ts', import.meta.url));
const LONG = 'trigger-long-running-operation';

interface Everything extends Program {
  readonly target: string;
}

async function startEverything(): Promise<Everything> {
  const port = await freePort();
  const program = await startProgram(EVERYTHING, {
    args: ['streamableHttp'],
    env: { PORT: String(port) },
    ready: /listening on port/,
  });
  return { ...program, target: `http://127.0.0.1:${port}` };
}

const everything = await startEverything();
afterAll(() => everything.kill9());

async function startGate(target = everything.target) {
  const store = memoryStore();
  return { url: (await serve(gateInFrontOf(target, store))).url, runs: runsOf(report, { store }) };
}

/** A call that reports progress ten times a second. */
function longCall(id: number, seconds: number): WireMessage {
  const call = callOf(id, LONG, { duration: seconds, steps: seconds * 10 });
  return { ...call, params: { ...call.params, _meta: { progressToken: 'token' } } };
}

const isProgress = ({ method }: WireMessage) => method === 'notifications/progress';

it('holds no connection to the server for a client that left while its call was looked at', async () => {
  let connections = 0;
  const open = new Set<Socket>();
  const { url: target, server } = await serve((req, res) => {
    req.resume().on('end', () => res.end('{}'));
  });
  server.on('connection', (socket) => {
    connections++;
    open.add(socket.on('close', () => open.delete(socket)));
  });
  const store = memoryStore();
  await store.open('known', {}, 60_000);
  const asked = latch();
  const answer = latch();
  const read = store.read.bind(store);
  store.read = async (...about) => {
    asked.open();
    await answer.opened;
    return read(...about);
  };
  const gate = await serve(gateInFrontOf(target.origin, store));
  const left = latch();
  gate.server.on('connection', (socket) => socket.once('close', left.open));
  const headers = { 'mcp-session-id': 'known', 'mcp-protocol-version': '2025-06-18' };
  const call = sendAndHold(gate.url, { headers, body: callOf(1, 'get-tiny-image') });
  await asked.opened;
  call.cut();
  await left.opened;
  answer.open();
  await expect.poll(() => connections).toBe(1);
  await expect.poll(() => open.size).toBe(0);
});

it('leads a client of the SDK through a workflow that the server knows nothing of', async () => {
  const { url } = await startGate();
  const client = await connect(url);
  onTestFinished(client.close);
  const gated = async () =>
    (await client.tools()).filter((tool) => ['echo', 'get-sum', LONG].includes(tool));

  expect(await gated()).toEqual(['get-sum']);
  expect(await client.tools()).toContain('get-tiny-image');
  expect((await client.call('echo', { message: 'hello' })).text).toBe(
    '[System: echo is not available while report is in "started". Available now: get-sum. ' +
      `To reach echo, call get-sum, then ${LONG} first.]`,
  );
  expect((await client.call('get-sum', { a: 1, b: 2 })).texts).toEqual([
    'The sum of 1 and 2 is 3.',
    '[System: Cache invalidated for get-structured-content — caused by get-sum]',
  ]);
  expect(await gated()).toEqual(['get-sum', LONG]);
  await client.call(LONG, { duration: 0.2, steps: 2 });
  expect(await gated()).toEqual(['echo']);
  expect((await client.call('echo', { message: 'hello' })).text).toBe('Echo: hello');
  expect(await gated()).toEqual(['get-sum']);
  expect(client.log.filter((each) => each === 'progress')).toHaveLength(2);
});

it('tells the client of a changed list once, on the stream of the call and before its result', async () => {
  const session = await RawSession.begin((await startGate()).url);
  const { messages } = await session.post(callOf(1, 'get-sum', { a: 1, b: 2 }));
  expect(messages.map(({ method, id }) => method ?? id)).toEqual([
    'notifications/tools/list_changed',
    1,
  ]);
});

it('streams progress while the call runs, and sees the outcome though the client leaves', async () => {
  const { url, runs } = await startGate();
  const session = await RawSession.begin(url);
  await session.call('get-sum', { a: 1, b: 2 });
  const stream = await session.stream(longCall(7, 1));
  await expect.poll(() => stream.messages.filter(isProgress).length).toBeGreaterThan(0);
  expect(await runs.read(session.id)).toMatchObject({
    status: 'running',
    snapshot: { state: 'measured' },
  });
  stream.cut();

  await expect
    .poll(() => runs.read(session.id), { timeout: 5_000 })
    .toMatchObject({
      status: 'idle',
      snapshot: { state: 'checked' },
    });
  const resumed = await session.listen(stream.lastEventId);
  const result = () => resumed.messages.find(({ id }) => id === 7)?.result;
  await expect.poll(() => result()?.content[0].text).toContain('operation completed');
  resumed.cut();
});

it('opens a quiet stream at once, and lets the server know when the client has left it', async () => {
  const session = await RawSession.begin((await startGate()).url);
  const first = await session.listen();
  expect([first.status, first.text]).toEqual([200, '']);
  first.cut();
  // A server that still believes in the first stream refuses a second one.
  await expect
    .poll(async () => {
      const second = await session.listen();
      second.cut();
      return second.status;
    })
    .toBe(200);
});

it('breaks off the answer of a server that died, and does not take the call for done', async () => {
  const victim = await startEverything();
  onTestFinished(victim.kill9);
  const { url, runs } = await startGate(victim.target);
  const session = await RawSession.begin(url);
  await session.call('get-sum', { a: 1, b: 2 });
  const answer = await fetch(url, {
    method: 'POST',
    headers: {
      ...session.headers,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    },
    body: JSON.stringify(longCall(7, 30)),
  });
  await victim.kill9();
  await expect(answer.text()).rejects.toThrow('terminated');
  expect((await runs.read(session.id))?.snapshot.state).toBe('measured');
  expect((await session.post({ jsonrpc: '2.0', id: 8, method: 'tools/list' })).status).toBe(502);
});

describe('a server that cannot be reached', () => {
  const errors = () => {
    const spy = vi.spyOn(console, 'error').mockImplementation(() => {});
    onTestFinished(() => spy.mockRestore());
    return spy;
  };

  it('holds no run where it refuses the connection, and the call may be made again', async () => {
    const upstream = await startPlainServer('json');
    const { url, runs } = await startGate(upstream.url.origin);
    const session = await RawSession.begin(url);
    const told = errors();
    await upstream.close();
    for (let call = 0; call < 2; call++) {
      const { status, messages } = await session.post(callOf(call, 'get-sum'));
      expect([status, messages[0]?.error.message]).toEqual([
        502,
        'The server behind the gate could not be reached. Nothing was sent to it.',
      ]);
      await expect.poll(async () => (await runs.read(session.id))?.status).toBe('idle');
    }
    const batch = [callOf('a', 'get-sum'), { jsonrpc: '2.0', id: 'b', method: 'tools/list' }];
    expect((await session.post(batch)).status).toBe(502);
    await expect.poll(async () => (await runs.read(session.id))?.status).toBe('idle');
    expect(told).not.toHaveBeenCalled();
  });

  it('holds the run where it breaks off a connection that came about', async () => {
    const upstream = await startPlainServer('json');
    const { url, runs } = await startGate(upstream.url.origin);
    const session = await RawSession.begin(url);
    const told = errors();
    const hold = latch();
    upstream.ledger.gates.set('get-sum', hold.opened);
    const call = session.post(callOf(1, 'get-sum'));
    await expect.poll(() => upstream.ledger.calls).toEqual(['get-sum']);
    await upstream.close();
    expect(await call).toMatchObject({
      status: 200,
      messages: [{ id: 1, result: { isError: true } }],
    });
    hold.open();
    expect(told.mock.calls.flat().map(String).join()).toContain('the outcome of a call of');
    expect((await runs.read(session.id))?.status).toBe('running');
  });
});

/** A server that has `get-sum` and nothing else, and neither sessions nor event ids. */
async function startPlainServer(answers: 'sse' | 'json'): Promise<Upstream> {
  const upstream = await startUpstream({
    shape: { mode: 'stateless', answers },
    makeServer(ledger) {
      const server = new McpServer({ name: 'plain', version: '1.0.0' });
      server.registerTool('get-sum', { description: 'Adds.' }, async () => {
        ledger.calls.push('get-sum');
        await ledger.gates.get('get-sum');
        return { content: [] };
      });
      return server;
    },
  });
  onTestFinished(() => upstream.close());
  return upstream;
}

it('gives sessions and a stream to a server that has neither', async () => {
  const upstream = await startPlainServer('json');
  const session = await RawSession.begin((await startGate(upstream.url.origin)).url);
  const stream = await session.listen();
  expect(stream.status).toBe(200);
  await session.call('get-sum');
  await expect
    .poll(() => stream.messages.map(({ method }) => method))
    .toEqual(['notifications/tools/list_changed']);
  stream.cut();
});

/** A session with a call of `get-sum` under way, at a server that can be made to die. */
async function callUnderWay(answers: 'sse' | 'json', call: (session: RawSession) => void) {
  const upstream = await startPlainServer(answers);
  const { url, runs } = await startGate(upstream.url.origin);
  const session = await RawSession.begin(url);
  const hold = latch();
  upstream.ledger.gates.set('get-sum', hold.opened);
  call(session);
  await expect.poll(() => upstream.ledger.calls).toEqual(['get-sum']);
  return {
    session,
    runs,
    /** Resolves once the gate has said that the call's outcome is unknown. */
    async dies() {
      const errors = vi.spyOn(console, 'error').mockImplementation(() => {});
      onTestFinished(() => errors.mockRestore());
      await upstream.close();
      hold.open();
      await expect
        .poll(() => errors.mock.calls.flat().map(String).join())
        .toContain('the outcome of a call of "get-sum" is unknown');
    },
  };
}

it('gives a call up where its client had left when the server died, before it had said anything', async () => {
  let leave = (): void => {};
  const { session, runs, dies } = await callUnderWay('json', ({ url, headers }) => {
    leave = sendAndHold(url, { headers, body: callOf(1, 'get-sum') }).cut;
  });
  leave();
  // Until the gate has seen that it left.
  await session.ask('ping');
  expect(await runs.read(session.id)).toMatchObject({ status: 'running' });
  await dies();
});

it('gives a call up at once where the connection broke and no event id could bring its result', async () => {
  const { session, runs, dies } = await callUnderWay('sse', (session) => {
    session.call('get-sum').catch(() => {});
  });
  await dies();
  expect((await runs.read(session.id))?.snapshot.state).toBe('started');
});

/** A server that takes every path for its own, and every message for a request that it answers. */
async function startOpenServer(): Promise<{ target: string; seen: string[] }> {
  const seen: string[] = [];
  const app = express().use(express.json(), (req, res) => {
    seen.push(`${req.method} ${req.originalUrl} ${req.body?.method}`);
    res.json({ jsonrpc: '2.0', id: req.body?.id, result: {} });
  });
  return { target: (await serve(app)).url.origin, seen };
}

// Spellings of the route's own path that Express takes for it, or a server behind it might.
const TARGETS = [
  '/mcp',
  '/mcp/',
  '/MCP',
  '/Mcp/',
  '/mcp?x=1',
  '/mcp?/../other',
  '/mcpx',
  '/mcp-admin',
  '/mcp/x',
  '/mcp/mcp',
  '/mcp//',
  '/mcp;x',
  '/mcp;/..',
  '/mcp.json',
  '/mcp%2F',
  '/mcp%2f..%2fmcp',
  '/mcp%3Fx',
  '/mcp%00',
  '/%6dcp',
  '/mc%70',
  '//mcp',
  '///mcp',
  '/./mcp',
  '/mcp/.',
  '/mcp/../mcp',
  '/x/../mcp',
  '/%2e%2e/mcp',
  '\\mcp',
  'mcp',
  '*',
  'http://127.0.0.1/mcp',
  'http://127.0.0.1/mcpx',
  'http://other.example/mcp',
  'http:///mcp',
  'HTTP://127.0.0.1//mcp',
];

it.each(TARGETS)(
  'forwards no call of a hidden tool, and nothing but its own route: %s',
  async (target) => {
    const { target: server, seen } = await startOpenServer();
    const session = await RawSession.begin((await startGate(server)).url);
    const initialize = ['POST /mcp initialize', 'POST /mcp notifications/initialized'];
    expect(seen.splice(0)).toEqual(initialize);

    const { headers } = session;
    const call = await send(session.url, { target, headers, body: callOf(7, 'echo') });
    expect([call.status, reasonOf(call.messages[0])]).toBeOneOf([
      [200, 'state'],
      [400, undefined],
      [404, undefined],
    ]);
    expect(seen).toEqual([]);

    // The route itself takes an allowed call, and a GET only of a session. Anything else takes
    // nothing.
    await send(session.url, { method: 'GET', target, headers: { accept: 'text/event-stream' } });
    await send(session.url, { target, headers, body: callOf(8, 'get-sum') });
    const forwarded = seen.map((each) => each.split(' ').at(-1));
    expect(forwarded).toEqual(call.status === 200 ? ['tools/call'] : []);
  },
);

it('works behind a body parser, if the proxy writes the body anew', async () => {
  const app = express().use(express.json());
  const target = everything.target;
  const proxy = createProxyMiddleware({ target, on: { proxyReq: fixRequestBody } });
  app.all('/mcp', sessionStore(), fsmGate(report), proxy);
  const session = await RawSession.begin((await serve(app)).url);
  const batch = [callOf('a', 'echo', { message: 'hello' }), callOf('b', 'get-sum', { a: 1, b: 2 })];
  const { messages } = await session.post(batch);
  const answered = messages.filter(({ id }) => id !== undefined);
  expect(answered.map((message) => [message.id, reasonOf(message)]).sort()).toEqual([
    ['a', 'state'],
    ['b', undefined],
  ]);
});

it('is what its page of the documentation shows', () => {
  expectQuoted('docs/operate/proxy.md', [
    'examples/proxy-gate/gate.ts',
    'packages/cli/src/proxy.ts',
  ]);
});

it('serves as its README says', async () => {
  const { match, kill9 } = await startProgram(SERVER, {
    env: { PORT: '0', TARGET: everything.target },
    ready: ADDRESS,
  });
  onTestFinished(kill9);
  const session = await RawSession.begin(new URL(match));
  expect(await session.tools()).toContain('get-sum');
  expect(await session.tools()).not.toContain('echo');
});
