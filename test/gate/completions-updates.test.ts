import { completable } from '@modelcontextprotocol/sdk/server/completable.js';
import { type McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  ResourceUpdatedNotificationSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { FsmGateOptions } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect } from '../helpers/client.ts';
import { callOf, type RawSession, type WireMessage } from '../helpers/raw.ts';
import { type SceneOptions, scene, settle } from '../helpers/scene.ts';
import { cartServer, type Ledger } from '../helpers/upstream.ts';

const RECEIPT = 'docs://receipts/7';
const TEMPLATE = 'docs://receipts/{id}';
const UPDATED = 'notifications/resources/updated';
const NOTHING = { values: [], total: 0, hasMore: false };

/**
 * A shop whose prompt and receipts complete their arguments, and whose resources can be watched.
 */
function shopServer(ledger: Ledger, servers: McpServer[]): McpServer {
  const server = cartServer(ledger);
  const complete = (what: string) => () => {
    ledger.calls.push(`completed ${what}`);
    return ['secret-1', 'secret-2'];
  };
  const content = { role: 'user' as const, content: { type: 'text' as const, text: 'text' } };
  for (const name of ['order.summary', 'help']) {
    const argsSchema = { order: completable(z.string(), complete(name)) };
    server.registerPrompt(name, { argsSchema }, () => ({ messages: [content] }));
  }
  const read = (uri: URL) => ({ contents: [{ uri: uri.href, text: 'text' }] });
  for (const template of [TEMPLATE, 'docs://manual/{id}']) {
    const resource = new ResourceTemplate(template, {
      list: undefined,
      complete: { id: complete(template) },
    });
    server.registerResource(template, resource, {}, read);
  }
  server.registerResource('terms', 'docs://terms', {}, read);
  server.server.registerCapabilities({ resources: { subscribe: true } });
  server.server.setRequestHandler(SubscribeRequestSchema, ({ params: { uri } }) => {
    ledger.calls.push(`subscribed ${uri}`);
    return {};
  });
  server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params: { uri } }) => {
    ledger.calls.push(`unsubscribed ${uri}`);
    return {};
  });
  // Its handler reports changed resources on the stream of its own call.
  server.registerTool(
    'shop.touch',
    { inputSchema: { uri: z.string() } },
    async ({ uri }, extra) => {
      await extra.sendNotification({ method: UPDATED, params: { uri } });
      return { content: [] };
    },
  );
  servers.push(server);
  return server;
}

async function serve(gate: FsmGateOptions = {}, options: SceneOptions = {}) {
  const servers: McpServer[] = [];
  const app = await scene({
    workflow: checkoutGate()
      .bindPrompt('order.summary', ['has_items', 'payment'])
      .bindResource('docs://receipts/**', 'has_items'),
    gate,
    makeServer: (ledger) => shopServer(ledger, servers),
    ...options,
  });
  return { ...app, servers };
}

const completion = (ref: unknown) => ({ ref, argument: { name: 'id', value: '' } });
const ofPrompt = (name: unknown) => ({
  ref: { type: 'ref/prompt', name },
  argument: { name: 'order', value: '' },
});
const ofResource = (uri: unknown) => completion({ type: 'ref/resource', uri });

async function values(session: RawSession, params: unknown): Promise<unknown> {
  const { result, error } = await session.ask('completion/complete', params);
  return result?.completion ?? error;
}

describe.each(['hide', 'stable'] as const)('completion, where lists %s', (visibility) => {
  it('is empty for a prompt or a template that the state hides, and is no error', async () => {
    const app = await serve({ visibility });
    const session = await app.session();
    expect(await values(session, ofPrompt('order.summary'))).toEqual(NOTHING);
    expect(await values(session, ofResource(TEMPLATE))).toEqual(NOTHING);
    expect(await values(session, ofResource(TEMPLATE.toUpperCase()))).toEqual(NOTHING);
    expect(await values(session, ofResource(RECEIPT))).toEqual(NOTHING);
    expect(await values(session, ofResource('docs://receipts/../receipts/7'))).toEqual(NOTHING);
    expect(app.ledger.calls).toEqual([]);
    await session.call('cart.add_item');
    expect(await values(session, ofPrompt('order.summary'))).toMatchObject({ total: 2 });
    expect(await values(session, ofResource(TEMPLATE))).toMatchObject({ total: 2 });
  });

  it('is the upstream’s for what no binding names', async () => {
    const app = await serve({ visibility });
    const session = await app.session();
    expect(await values(session, ofPrompt('help'))).toMatchObject({ total: 2 });
    expect(await values(session, ofResource('docs://manual/{id}'))).toMatchObject({ total: 2 });
    expect(await values(session, ofPrompt('absent'))).toMatchObject({ code: -32602 });
  });
});

describe('completion', () => {
  it.each([
    ['a name that is no text', ofPrompt(['order.summary'])],
    ['a URI that is no text', ofResource([TEMPLATE])],
    ['another type', completion({ type: 'ref/tool', uri: TEMPLATE, name: 'order.summary' })],
    ['a type in other letters', completion({ Type: 'ref/prompt', name: 'order.summary' })],
    ['no reference', completion(undefined)],
  ])('for %s is refused in front of the upstream', async (_, params) => {
    const app = await serve();
    expect(await values(await app.session(), params)).toMatchObject({ code: -32602 });
    expect(app.ledger.calls).toEqual([]);
  });

  it.each([
    ['name', -32600],
    ['Name', -32602],
  ])('with two names is refused, whichever an upstream would take: %s', async (key, code) => {
    const app = await serve();
    const session = await app.session();
    const ref = '{"type":"ref/prompt","name":"order.summary","KEY":"help"}'.replace('KEY', key);
    const body = `{"jsonrpc":"2.0","id":9,"method":"completion/complete","params":{"ref":${ref},"argument":{"name":"order","value":""}}}`;
    const { messages } = await session.post(body);
    expect(messages[0]?.error.code).toBe(code);
    expect(app.ledger.calls).toEqual([]);
  });

  it.each([
    ['a hidden prompt', { type: 'ref/resource', Type: 'ref/prompt', name: 'order.summary' }],
    ['another name', { type: 'ref/resource', uri: 'docs://terms', Name: 'order.summary' }],
  ])(
    'that another reader would take for %s is refused where only prompts are bound',
    async (_, ref) => {
      const workflow = checkoutGate().bindPrompt('order.summary', ['has_items', 'payment']);
      const app = await serve({}, { workflow });
      expect(await values(await app.session(), completion(ref))).toMatchObject({ code: -32602 });
      expect(app.ledger.calls).toEqual([]);
    },
  );

  it('of a secret prompt or resource is the upstream’s error', async () => {
    const app = await serve({ refusal: 'unknown-tool' });
    const session = await app.session();
    const same = async (hidden: unknown, absent: unknown, [name, other]: [string, string]) => {
      const [told, expected] = [await values(session, hidden), await values(session, absent)];
      expect(JSON.stringify(told)).toBe(JSON.stringify(expected).replaceAll(other, name));
      expect(JSON.stringify(told)).toContain('not found');
    };
    const prompts: [string, string] = ['order.summary', 'order.absence'];
    await same(ofPrompt(prompts[0]), ofPrompt(prompts[1]), prompts);
    const templates: [string, string] = [TEMPLATE, 'docs://absences/{id}'];
    await same(ofResource(templates[0]), ofResource(templates[1]), templates);
    expect(app.ledger.calls).toEqual([]);
  });

  it('is empty while the store fails', async () => {
    const app = await serve();
    const session = await app.session();
    await session.call('cart.add_item');
    app.store.fail('read');
    expect(await values(session, ofPrompt('order.summary'))).toEqual(NOTHING);
    app.store.heal();
    expect(await values(session, ofPrompt('order.summary'))).toMatchObject({ total: 2 });
  });
});

describe('a subscription to a resource', () => {
  it('is refused as a read is, and can end in every state', async () => {
    const app = await serve();
    const session = await app.session();
    const refused = await session.ask('resources/subscribe', { uri: RECEIPT });
    const unread = await session.ask('resources/read', { uri: RECEIPT });
    expect(refused.error).toEqual(unread.error);
    expect(refused.error.data['mcp-interlock/refusal']).toMatchObject({
      resource: RECEIPT,
      reason: 'state',
      path: ['cart.add_item'],
    });
    const odd = await session.ask('resources/subscribe', { uri: 'docs://receipts/./7' });
    expect(odd.error.code).toBe(-32602);
    expect((await session.ask('resources/subscribe', { uri: 'docs://terms' })).result).toEqual({});
    expect((await session.ask('resources/unsubscribe', { uri: RECEIPT })).result).toEqual({});
    await session.call('cart.add_item');
    expect((await session.ask('resources/subscribe', { uri: RECEIPT })).result).toEqual({});
    expect(app.ledger.calls).toEqual([
      'subscribed docs://terms',
      `unsubscribed ${RECEIPT}`,
      'cart.add_item',
      `subscribed ${RECEIPT}`,
    ]);
  });

  it('of a secret resource goes to one that does not exist', async () => {
    const app = await serve({ refusal: 'unknown-tool' });
    const session = await app.session();
    expect((await session.ask('resources/subscribe', { uri: RECEIPT })).result).toEqual({});
    expect(app.ledger.calls.join()).not.toContain('receipts');
  });
});

describe('an update of a resource', () => {
  const urisIn = (messages: readonly WireMessage[]): unknown[] =>
    messages.filter(({ method }) => method === UPDATED).map(({ params }) => params.uri);

  it('comes on the GET stream only while the state shows the resource', async () => {
    const app = await serve();
    const session = await app.session();
    const stream = await session.listen();
    const update = async (): Promise<void> => {
      for (const uri of [RECEIPT, 'docs://terms', 'docs://receipts/%2e%2e/receipts/7'])
        await app.servers[0]?.server.sendResourceUpdated({ uri });
      await settle();
    };
    await update();
    await session.call('cart.add_item');
    await update();
    await session.call('cart.checkout');
    await update();
    const terms = 'docs://terms';
    await expect.poll(() => urisIn(stream.messages)).toEqual([terms, RECEIPT, terms, terms]);
    stream.cut();
  });

  it("comes on the stream of a call in the same way, before the call's result", async () => {
    const app = await serve();
    const session = await app.session();
    const touch = async (uri: string) => {
      const { messages } = await session.post(callOf('t', 'shop.touch', { uri }));
      expect(messages.at(-1)).toMatchObject({ id: 't', result: { content: [] } });
      return urisIn(messages);
    };
    expect(await touch(RECEIPT)).toEqual([]);
    expect(await touch('DOCS://Receipts//7')).toEqual([]);
    expect(await touch('docs://terms')).toEqual(['docs://terms']);
    await session.call('cart.add_item');
    expect(await touch(RECEIPT)).toEqual([RECEIPT]);
    app.store.fail('read');
    expect(await touch(RECEIPT)).toEqual([]);
    expect(await touch('docs://terms')).toEqual(['docs://terms']);
  });

  it.each([
    [
      'escaped slashes',
      String.raw`{"jsonrpc":"2.0","method":"notifications\/resources\/updated","params":{"uri":"docs:\/\/receipts\/7"}}`,
    ],
    [
      'escaped letters',
      String.raw`{"jsonrpc":"2.0","method":"notifications/resources/\u0075pdate\u0064","params":{"uri":"docs://receipts/7"}}`,
    ],
    [
      'a URI that is no text',
      `{"jsonrpc":"2.0","method":"${UPDATED}","params":{"uri":["${RECEIPT}"]}}`,
    ],
    [
      'another message beside it',
      `[{"jsonrpc":"2.0","method":"${UPDATED}","params":{"uri":"${RECEIPT}"}},{"jsonrpc":"2.0","method":"x"}]`,
    ],
  ])('is found with %s', async (_, data) => {
    const app = await serve(
      {},
      {
        shape: { mode: 'stateless', parser: true },
        behind: [
          (req, res, next) => {
            if (req.body?.params?.name !== 'cart.view') return next();
            const { id } = req.body;
            const answer = JSON.stringify({ jsonrpc: '2.0', id, result: { content: [] } });
            res.set('content-type', 'text/event-stream');
            res.end(`data: ${data}\n\ndata: ${answer}\n\n`);
          },
        ],
      },
    );
    const session = await app.session();
    const { text, messages } = await session.post(callOf('v', 'cart.view'));
    expect(text).not.toContain('eceipts');
    expect(text).not.toContain('7');
    expect(messages.at(-1)).toMatchObject({ id: 'v', result: { content: [] } });
    if (data.startsWith('[')) expect(messages).toHaveLength(2);
  });

  it('of a hidden resource does not reach the SDK’s client', async () => {
    const app = await serve();
    const client = await connect(app.url);
    const heard: string[] = [];
    client.client.setNotificationHandler(
      ResourceUpdatedNotificationSchema,
      ({ params }) => void heard.push(params.uri),
    );
    await client.streaming;
    await client.client.subscribeResource({ uri: 'docs://terms' });
    for (const uri of [RECEIPT, 'docs://terms'])
      await app.servers[0]?.server.sendResourceUpdated({ uri });
    await expect.poll(() => heard).toEqual(['docs://terms']);
    await client.close();
  });
});
