import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import { gateFetch } from '../../src/doors/fetch.ts';
import { Aliases } from '../../src/gate/replies.ts';
import {
  fsmGate,
  handleKey,
  managedHandle,
  principalKey,
  StateMachineGate,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { callOf, INITIALIZE, send, type WireMessage } from '../helpers/raw.ts';
import { type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { serve } from '../helpers/serve.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { AUTO, ask, callStateless, connectV2, PINNED } from '../helpers/two-eras.ts';
import type { Ledger } from '../helpers/upstream.ts';

const TOOLS = ['cart.add_item', 'cart.checkout', 'cart.pay', 'id.show', 'admin.wipe'];
const DENIED =
  '[System: admin.wipe was not run, because this server does not let it be called. ' +
  'Available now: cart.add_item. Do not repeat the call.]';

const identity = () =>
  new StateMachineGate({
    id: 'identity',
    initial: 'unknown',
    states: { unknown: { on: { SHOW: 'known' } }, known: {} },
  }).bindTool('id.show', 'unknown', 'SHOW');

const shop = (options: SceneOptions = {}) =>
  scene({ makeServer: toolServer(TOOLS), gate: { unbound: 'refuse' }, ...options });

const namesIn = ({ messages }: { messages: WireMessage[] }): string[] =>
  messages[0]?.result.tools.map(({ name }: WireMessage) => name);

describe("a tool that no gate binds, under unbound: 'refuse'", () => {
  it('is hidden from an SDK client, and its calls are refused in words', async () => {
    const app = await shop();
    const client = await app.client();
    await client.sees(['cart.add_item']);
    const refused = await client.isRefused('admin.wipe', 'unbound');
    expect(refused.text).toBe(DENIED);
    expect(refused.meta['mcp-interlock/refusal']).toEqual({
      workflow: 'checkout',
      state: 'empty',
      tool: 'admin.wipe',
      reason: 'unbound',
      available: ['cart.add_item'],
    });
    expect(app.ledger.calls).toEqual([]);
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) await client.calls(tool);
  });

  it('is open without the option', async () => {
    const app = await shop({ gate: {} });
    const client = await app.client();
    await client.sees(['cart.add_item', 'id.show', 'admin.wipe']);
    await client.calls('admin.wipe');
    expect(app.ledger.calls).toEqual(['admin.wipe']);
  });

  it('is left out of stable lists, whose other tools keep their notes', async () => {
    const app = await shop({ gate: { unbound: 'refuse', visibility: 'stable' } });
    const client = await app.client();
    const { tools } = await client.raw.client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
    expect(tools[0]?.description).toContain('Available only while checkout is in');
  });

  it.each([AUTO, PINNED])('is hidden and refused for SDK v2 clients (%o)', async (negotiation) => {
    const { url, calls } = await sceneOfBothEras({
      session: { key: [sessionKey(), principalKey()] },
      gate: { unbound: 'refuse' },
      register: (server) => {
        server.registerTool('admin.wipe', {}, () => ({ content: [] }));
      },
    });
    const client = await connectV2(url, 'alice', negotiation);
    onTestFinished(() => client.close());
    const { tools } = await client.listTools();
    const names = tools.map(({ name }) => name);
    expect(names).toContain('cart.add_item');
    expect(names).not.toContain('admin.wipe');
    expect(names).not.toContain('cart.view');
    const refused = await client.callTool({ name: 'admin.wipe', arguments: {} });
    expect(refused._meta?.['mcp-interlock/refusal']).toMatchObject({ reason: 'unbound' });
    await client.callTool({ name: 'cart.add_item', arguments: {} });
    expect(calls.map(({ tool }) => tool)).toEqual(['cart.add_item']);
  });

  it('is refused where a process has seen no list, and when the server adds it later', async () => {
    const later = [...TOOLS];
    const app = await shop({ makeServer: (ledger) => toolServer(later)(ledger) });
    const session = await app.session();
    const call = await session.ask('tools/call', { name: 'new.tool', arguments: {} });
    expect(call?.result._meta['mcp-interlock/refusal'].reason).toBe('unbound');
    later.push('new.tool');
    const client = await app.client();
    await client.sees(['cart.add_item']);
    await client.isRefused('new.tool', 'unbound');
    expect(app.ledger.calls).toEqual([]);
  });

  it.each(['hide', 'stable'] as const)(
    "is answered as unknown under refusal: 'unknown-tool' (%s lists)",
    async (visibility) => {
      const app = await shop({
        gate: { unbound: 'refuse', refusal: 'unknown-tool', visibility },
      });
      const session = await app.session();
      const say = async (name: string): Promise<string> =>
        JSON.stringify(await session.ask('tools/call', { name, arguments: {} }));
      const absent = await say('admin.wope');
      const denied = await say('admin.wipe');
      const noId = (text: string): string => text.replace(/"id":\d+/, '');
      expect(noId(denied)).toBe(noId(absent).replaceAll('wope', 'wipe'));
      expect(denied).not.toContain('mcp-interlock');
      expect(app.ledger.calls).toEqual([]);
    },
  );

  it('leaves nothing behind, however many and long names a client makes up', async () => {
    const aliases = new Aliases();
    const kept = Array.from({ length: 1_000 }, (_, i) =>
      aliases.ofName(`made.up.by.a.client.${i}`),
    );
    expect(aliases.ofName('made.up.by.a.client.999')).toBe(kept[999]);
    for (const name of ['made.up.by.a.client.1000', 'x'.repeat(257)])
      expect(aliases.ofName(name).length).toBeGreaterThan(2 * name.length);
    const app = await shop({ gate: { unbound: 'refuse', refusal: 'unknown-tool' } });
    const session = await app.session();
    const plain = await shop({ gate: { unbound: 'allow' } });
    const open = await plain.session();
    for (const name of ['x'.repeat(300), '\u00fc\ud83d\ude00\ud800"\\'.repeat(40)]) {
      const { content } = (await session.call(name)).result;
      expect(content).toEqual((await open.call(name)).result.content);
      expect(content[0].text).toContain('not found');
    }
    expect(app.ledger.calls).toEqual([]);
  });

  it('is hidden from kept lists, which are answered without the server', async () => {
    const app = await shop({ gate: { unbound: 'refuse', listCache: true } });
    const client = await app.client();
    for (let i = 0; i < 3; i++) await client.sees(['cart.add_item']);
    await client.calls('cart.add_item');
    for (let i = 0; i < 3; i++) await client.sees(['cart.add_item', 'cart.checkout']);
  });

  it('is refused in a batch, whose other calls run', async () => {
    const app = await shop();
    const session = await app.session({ 'mcp-protocol-version': '2025-03-26' });
    const { messages } = await session.post([
      callOf(7, 'admin.wipe'),
      callOf(8, 'cart.add_item'),
    ] as unknown as WireMessage);
    const answers = messages.flat().filter(({ id }) => id !== undefined);
    const reasons = answers.map(({ id, result }) => [
      id,
      result?._meta?.['mcp-interlock/refusal']?.reason,
    ]);
    expect(new Map(reasons as [number, unknown][])).toEqual(
      new Map([
        [7, 'unbound'],
        [8, undefined],
      ]),
    );
    expect(app.ledger.calls).toEqual(['cart.add_item']);
  });

  it('is refused as that, whatever stops the run, and without a run too', async () => {
    const app = await shop();
    const session = await app.session();
    await app.runs.freeze(session.id, { actor: 'ann', note: 'a test' });
    const frozen = await session.ask('tools/call', { name: 'admin.wipe', arguments: {} });
    expect(frozen?.result._meta['mcp-interlock/refusal'].reason).toBe('unbound');
    app.store.fail('read');
    const away = await session.ask('tools/call', { name: 'admin.wipe', arguments: {} });
    expect(away?.result._meta['mcp-interlock/refusal'].reason).toBe('unbound');
    const { url } = await sceneOfBothEras({ gate: { unbound: 'refuse' } });
    const { text } = await callStateless(url, 'cart.view');
    expect(text).toBe(
      '[System: cart.view was not run, because this server does not let it be called. ' +
        'Do not repeat the call.]',
    );
  });

  it('is told as an event, and kept in the trail where refusals are', async () => {
    const events: unknown[] = [];
    const app = await shop({
      gate: { unbound: 'refuse', trail: { refusals: true }, onEvent: (each) => events.push(each) },
    });
    const client = await app.client();
    await client.calls('cart.add_item');
    await client.isRefused('admin.wipe', 'unbound');
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'call.refused', reason: 'unbound', tool: 'admin.wipe' }),
    );
    expect(await app.runs.history(client.run)).toMatchObject([
      { tool: 'cart.add_item' },
      { tool: 'admin.wipe', outcome: 'refused', kind: 'unbound', from: 'has_items' },
    ]);
  });
});

describe("unbound: 'refuse' is about tools alone", () => {
  it('lets the handshake, pings, discovery, prompts and the status tool pass', async () => {
    const { url } = await sceneOfBothEras({
      session: { key: [sessionKey(), principalKey()] },
      gate: { unbound: 'refuse', statusTool: 'checkout.status' },
      register: (server) => {
        server.registerPrompt('receipt', {}, () => ({ messages: [] }));
      },
    });
    const alice = { user: 'alice' };
    const discovered = await ask(url, 'server/discover', {}, alice);
    expect(discovered.messages[0]?.result).toBeDefined();
    const listed = await ask(url, 'prompts/list', {}, alice);
    expect(listed.messages[0]?.result.prompts).toHaveLength(1);
    const { result } = await callStateless(url, 'checkout.status', {}, alice);
    expect(result.structuredContent).toBeDefined();
    expect(namesIn(await ask(url, 'tools/list', {}, alice))).toContain('checkout.status');
    const client = await connectV2(url, 'alice');
    onTestFinished(() => client.close());
    await client.ping();
  });

  it('lets the tool pass that begins runs by handles', async () => {
    const { url } = await sceneOfBothEras({
      session: { key: managedHandle({ start: 'cart.begin', argument: 'cart_id' }) },
      gate: { unbound: 'refuse' },
    });
    expect(namesIn(await ask(url, 'tools/list'))).toContain('cart.begin');
    const { result } = await callStateless(url, 'cart.begin');
    expect(result.isError).not.toBe(true);
  });

  it("lets the server's own tools pass that make handles", async () => {
    const { url } = await sceneOfBothEras({
      session: {
        key: handleKey('basket_id', { createdBy: 'basket.open' }),
      },
      gate: { unbound: 'refuse' },
      register: (server) => {
        server.registerTool('basket.open', {}, () => ({
          content: [],
          structuredContent: { basket_id: 'b1' },
        }));
      },
    });
    expect(namesIn(await ask(url, 'tools/list'))).toContain('basket.open');
    expect((await callStateless(url, 'basket.open')).isError).toBe(false);
    const { result } = await callStateless(url, 'cart.view');
    expect(result._meta['mcp-interlock/refusal'].reason).toBe('unbound');
  });
});

describe('several gates of one route', () => {
  it('refuse what none of them binds, from the first request of a process on', async () => {
    const app = await shop({
      workflow: [checkoutGate(), [identity(), { unbound: 'refuse', statusTool: 'id.status' }]],
      gate: { statusTool: 'checkout.status' },
    });
    const client = await app.client();
    await client.isRefused('admin.wipe', 'unbound');
    await client.sees(['cart.add_item', 'id.show', 'checkout.status', 'id.status']);
    await client.calls('cart.add_item');
    await client.calls('id.show');
    await client.calls('checkout.status');
    expect(app.ledger.calls).toEqual(['cart.add_item', 'id.show']);
  });

  it('cannot leave it to one that is not the last: its requests fail, and say why', async () => {
    const app = await shop({
      workflow: [[checkoutGate(), { unbound: 'refuse' }], identity()],
      gate: {},
    });
    const { status } = await send(app.url, { body: INITIALIZE });
    expect(status).toBe(500);
    expect(String(app.errors[0])).toContain('give that option to the last gate alone');
    expect(() =>
      gateFetch(
        async () => new Response(),
        [sessionStore(), fsmGate(checkoutGate(), { unbound: 'refuse' }), fsmGate(identity())],
      ),
    ).toThrow(/last gate alone/);
  });

  it('show a page of the same bytes differently, by what hands out handles', async () => {
    const ledger: Ledger = { calls: [], gates: new Map() };
    const makeServer = toolServer(TOOLS);
    const last = fsmGate(identity(), { unbound: 'refuse' }) as RequestHandler;
    const route: RequestHandler = async (req, res) => {
      const transport = new StreamableHTTPServerTransport({});
      await makeServer(ledger).connect(transport as never);
      await transport.handleRequest(req, res, req.body);
    };
    const app = express();
    for (const createdBy of ['cart.add_item', 'admin.wipe']) {
      const sessions = sessionStore({ key: handleKey('id', { createdBy }) }) as RequestHandler;
      app.all(`/${createdBy}`, sessions, last, route);
    }
    const { url } = await serve(app);
    for (const path of ['cart.add_item', 'admin.wipe', 'cart.add_item', 'admin.wipe']) {
      const listed = await send(new URL(path, url), {
        body: { jsonrpc: '2.0', id: 1, method: 'tools/list' },
        headers: { 'mcp-protocol-version': '2025-11-25' },
      });
      expect(namesIn(listed).sort()).toEqual([path, 'id.show'].sort());
    }
  });
});
