import express from 'express';
import * as built from 'mcp-interlock';
import { runsOf as builtRunsOf } from 'mcp-interlock/runs';
import { expect, it, onTestFinished } from 'vitest';
import { fsmGate, StateMachineGate, sessionStore } from '../../../src/index.ts';
import { connect } from '../../../test/helpers/client.ts';
import { ManualClock } from '../../../test/helpers/manual-clock.ts';
import { callOf, RawSession, send } from '../../../test/helpers/raw.ts';
import { begins, pass } from '../../../test/helpers/scene.ts';
import { serve } from '../../../test/helpers/serve.ts';
import { startUpstream } from '../../../test/helpers/upstream.ts';
import { mcpProxy } from '../src/proxy.ts';

/** A gate in front of a server that hangs up on each call of a tool. */
async function gateBeforeDeserter(): Promise<URL> {
  const result = {
    protocolVersion: '2025-11-25',
    capabilities: { tools: {} },
    serverInfo: { name: 'deserter', version: '1' },
    tools: [{ name: 'pay', inputSchema: { type: 'object' } }],
  };
  const upstream = express().use(express.json());
  upstream.all('/mcp', (req, res) => {
    if (req.body?.id === undefined) res.status(req.method === 'POST' ? 202 : 405).end();
    else if (req.body.method === 'tools/call') req.socket.destroy();
    else res.json({ jsonrpc: '2.0', id: req.body.id, result });
  });
  const { url } = await serve(upstream);
  const states = { due: { on: { PAID: 'paid' } }, paid: {} };
  const gate = new StateMachineGate({ id: 'bill', initial: 'due', states });
  gate.bindTool('pay', 'due', 'PAID');
  const stages = [sessionStore({ onError() {} }), fsmGate(gate)];
  return (await serve(express().all('/mcp', ...stages, mcpProxy(url)))).url;
}

it('gives one answer where the server hangs up, which a client shows to its model', async () => {
  const url = await gateBeforeDeserter();
  const session = await RawSession.begin(url);
  const { status, text } = await session.post(callOf(7, 'pay'));
  expect([status, JSON.parse(text)]).toEqual([
    200,
    {
      jsonrpc: '2.0',
      id: 7,
      result: {
        content: [{ type: 'text', text: expect.stringContaining('pay may have run') }],
        isError: true,
        _meta: { 'mcp-interlock/outcome': { workflow: 'bill', tool: 'pay', outcome: 'unknown' } },
      },
    },
  ]);
  const client = await connect(url);
  onTestFinished(client.close);
  expect((await client.call('pay')).text).toContain('Do not call it again');
});

it('answers also a client that expects 100, where the server leaves HTTP', async () => {
  const seen: unknown[] = [];
  const upstream = express().all('/mcp', (req, res) => {
    seen.push(req.headers.expect);
    req.socket.end('HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n');
    res.destroy();
  });
  const { url } = await serve(upstream);
  const { url: front } = await serve(express().all('/mcp', mcpProxy(url)));
  const { status } = await send(front, { body: {}, headers: { expect: '100-continue' } });
  expect([status, seen]).toEqual([502, [undefined]]);
});

it('frames its own answer anew where the server has broken HTTP behind its headers', async () => {
  const upstream = express().all('/mcp', (req, res) => {
    req.socket.end('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{"too":"long"}');
    res.destroy();
  });
  const { url } = await serve(upstream);
  const { url: front } = await serve(express().all('/mcp', mcpProxy(url)));
  const { status, headers, text } = await send(front, { body: {} });
  expect([status, headers['content-length']]).toEqual([502, String(text.length)]);
  expect(JSON.parse(text)).toMatchObject({ id: null, error: { code: -32000 } });
});

it('gives an answer whose server names a trailer and sends none', async () => {
  const upstream = express().all('/mcp', (req, res) => {
    // Node refuses to write such an answer, and other servers do not.
    req.socket.end(
      'HTTP/1.1 200 OK\r\nTrailer: x-late\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\n' +
        'Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}',
    );
    res.destroy();
  });
  const { url } = await serve(upstream);
  const { url: front } = await serve(express().all('/mcp', mcpProxy(url)));
  const response = await fetch(front, { method: 'POST', body: '{}' });
  expect([response.status, await response.json()]).toEqual([200, {}]);
  for (const name of ['trailer', 'upgrade']) expect(response.headers.get(name)).toBeNull();
});

/** A call behind another one, whose client was told so, in front of a server of the SDK. */
async function toldBehindAnother() {
  const upstream = await startUpstream({ shape: { answers: 'json' } });
  onTestFinished(() => upstream.close());
  const { server, url: target } = await serve(upstream.app);
  const clock = new ManualClock();
  // Those of the copy that the proxy tells of calls which were not forwarded.
  const states = { open: { on: { ADD: 'full' } }, full: { on: { CHECK: 'due' } }, due: {} };
  const gate = new built.StateMachineGate({ id: 'cart', initial: 'open', states })
    .bindTool('cart.add_item', 'open', 'ADD')
    .bindTool('cart.checkout', 'full', 'CHECK');
  const sessions = built.sessionStore({ clock });
  const runs = builtRunsOf(gate, { sessions });
  const stages = [sessions, built.fsmGate(gate, { clock }), mcpProxy(target)];
  const { url } = await serve(express().all('/mcp', ...stages));
  const session = await RawSession.begin(url);
  const first = await begins(upstream, 'cart.add_item', () => session.call('cart.add_item'));
  const params = { name: 'cart.checkout', arguments: {}, _meta: { progressToken: 'p' } };
  const opening = session.stream({ ...callOf('waits', 'cart.checkout'), params });
  // Two timers are the first call's, and two the waiting one's.
  await expect.poll(() => clock.pending).toBe(4);
  await pass(clock, 5_000);
  return { server, runs, session, first, reading: await opening };
}

it('gives its answer on the stream on which a client was told that its call waits', async () => {
  const { first, reading } = await toldBehindAnother();
  first.finish();
  await expect.poll(() => reading.ended).toBe(true);
  expect(reading.messages.map(({ method, id, result }) => [method, id, result?.content])).toEqual([
    ['notifications/progress', undefined, undefined],
    [undefined, 'waits', [{ type: 'text', text: 'cart.checkout done' }]],
  ]);
});

it('says on that stream that the server cannot be reached any more, and frees the run', async () => {
  const { server, runs, session, first, reading } = await toldBehindAnother();
  // It answers what it has, and takes no other connection.
  server.close();
  first.finish();
  await expect.poll(() => reading.ended).toBe(true);
  expect(reading.messages.at(-1)).toMatchObject({
    id: 'waits',
    error: { message: expect.stringMatching(/^The server answered with HTTP 502 .*reached/) },
  });
  const view = await runs.read(session.id);
  expect([view?.status, view?.snapshot.state]).toEqual(['idle', 'full']);
});
