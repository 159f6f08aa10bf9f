import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { type McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  PromptListChangedNotificationSchema,
  ResourceListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type GuardedCall,
  managedHandle,
  principalKey,
  StateMachineGate,
  type VisibleTest,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { RawSession } from '../helpers/raw.ts';
import { type SceneClient, type SceneOptions, scene } from '../helpers/scene.ts';
import { cartServer, type Ledger, startUpstream } from '../helpers/upstream.ts';

/**
 * The cart with two prompts, three documents, and one for each receipt. What is asked of it stands
 * in the ledger.
 */
function shopServer(ledger: Ledger): McpServer {
  const server = cartServer(ledger);
  for (const name of ['order.summary', 'help']) {
    server.registerPrompt(name, { description: `About ${name}.` }, () => {
      ledger.calls.push(name);
      return { messages: [{ role: 'user', content: { type: 'text', text: `${name} text` } }] };
    });
  }
  const contents = (uri: URL) => {
    ledger.calls.push(uri.href);
    return { contents: [{ uri: uri.href, text: `${uri.href} text` }] };
  };
  for (const uri of ['docs://terms', 'docs://receipts/latest']) {
    server.registerResource(uri, uri, { description: `Says ${uri}.` }, contents);
  }
  const receipts = new ResourceTemplate('docs://receipts/{id}', { list: undefined });
  server.registerResource('receipt', receipts, {}, contents);
  const pages = new ResourceTemplate('docs://{chapter}/{page}', { list: undefined });
  server.registerResource('page', pages, {}, contents);
  return server;
}

function shopGate() {
  return checkoutGate()
    .bindPrompt('order.summary', ['has_items', 'payment'])
    .bindResource('docs://receipts/**', 'confirmed');
}

/** The shop with a client in it, whose SDK client is `sdk`. */
async function openShop(options: SceneOptions = {}) {
  const app = await scene({ workflow: shopGate(), makeServer: shopServer, ...options });
  const client = await app.client();
  const sdk = client.raw.client;
  const changes: string[] = [];
  sdk.setNotificationHandler(
    PromptListChangedNotificationSchema,
    () => void changes.push('prompts'),
  );
  sdk.setNotificationHandler(
    ResourceListChangedNotificationSchema,
    () => void changes.push('resources'),
  );
  return {
    ...app,
    anotherClient: app.client,
    client,
    sdk,
    calls: app.ledger.calls,
    /** The lists of prompts and resources whose changes the client was told of. */
    changes,
    prompts: async () => (await sdk.listPrompts()).prompts.map(({ name }) => name),
    resources: async () => (await sdk.listResources()).resources.map(({ uri }) => uri),
    templates: async () =>
      (await sdk.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate),
  };
}

async function confirm(client: SceneClient): Promise<void> {
  for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) await client.calls(tool);
}

const textOf = async (sdk: Client, uri: string): Promise<unknown> =>
  (await sdk.readResource({ uri })).contents[0];

describe.each([
  ['a stream', 'sse'],
  ['JSON', 'json'],
] as const)('bound prompts and resources of an upstream that answers in %s', (_, answers) => {
  it('are listed in their states, and the others always', async () => {
    const shop = await openShop({ shape: { answers } });
    expect(await shop.prompts()).toEqual(['help']);
    expect(await shop.resources()).toEqual(['docs://terms']);
    expect(await shop.templates()).toEqual(['docs://{chapter}/{page}']);
    await shop.client.calls('cart.add_item');
    expect(await shop.prompts()).toEqual(['order.summary', 'help']);
    expect(await shop.resources()).toEqual(['docs://terms']);
    await shop.client.calls('cart.checkout');
    await shop.client.calls('cart.pay');
    expect(await shop.prompts()).toEqual(['help']);
    expect(await shop.resources()).toEqual(['docs://terms', 'docs://receipts/latest']);
    expect(await shop.templates()).toEqual(['docs://receipts/{id}', 'docs://{chapter}/{page}']);
  });

  it('are refused outside of their states, in words and in facts', async () => {
    const { sdk, calls } = await openShop({ shape: { answers } });
    await expect(sdk.getPrompt({ name: 'order.summary' })).rejects.toMatchObject({
      code: -32602,
      message: expect.stringContaining(
        '[System: The prompt order.summary is not available while checkout is in "empty". ' +
          'Available now: cart.add_item. To reach it, call cart.add_item first.]',
      ),
      data: {
        'mcp-interlock/refusal': {
          workflow: 'checkout',
          state: 'empty',
          prompt: 'order.summary',
          reason: 'state',
          available: ['cart.add_item'],
          path: ['cart.add_item'],
        },
      },
    });
    await expect(sdk.readResource({ uri: 'docs://receipts/7' })).rejects.toMatchObject({
      code: -32602,
      message: expect.stringContaining('The resource docs://receipts/7 is not available'),
      data: {
        'mcp-interlock/refusal': {
          resource: 'docs://receipts/7',
          reason: 'state',
          path: ['cart.add_item', 'cart.checkout', 'cart.pay'],
        },
      },
    });
    expect(calls).toEqual([]);
  });

  it('are given in their states, and the others always', async () => {
    const shop = await openShop({ shape: { answers } });
    const { sdk } = shop;
    expect((await sdk.getPrompt({ name: 'help' })).messages).toHaveLength(1);
    expect(await textOf(sdk, 'docs://terms')).toMatchObject({ text: 'docs://terms text' });
    await shop.client.calls('cart.add_item');
    expect((await sdk.getPrompt({ name: 'order.summary' })).messages).toHaveLength(1);
    await shop.client.calls('cart.checkout');
    await shop.client.calls('cart.pay');
    expect(await textOf(sdk, 'docs://receipts/7')).toMatchObject({
      text: 'docs://receipts/7 text',
    });
    await expect(sdk.getPrompt({ name: 'order.summary' })).rejects.toMatchObject({
      message: expect.stringContaining('It cannot be reached from here by calling tools.'),
    });
  });
});

describe('a change of state', () => {
  const gate = () =>
    new StateMachineGate({
      id: 'steps',
      initial: 'a',
      states: {
        a: { on: { NEXT: 'b' } },
        b: { on: { NEXT: 'c' } },
        c: { on: { NEXT: 'd' } },
        d: {},
      },
    })
      .bindTool('cart.view', ['a', 'b', 'c', 'd'], 'NEXT')
      .bindPrompt('order.summary', ['b', 'c', 'd'])
      .bindResource('docs://receipts/*', ['c', 'd']);

  it.each(['sse', 'json'] as const)(
    'is told of each list that shows other things now, and of no other (%s)',
    async (answers) => {
      const shop = await openShop({ workflow: gate(), shape: { answers } });
      await shop.client.raw.streaming;
      await shop.client.calls('cart.view');
      await expect.poll(() => shop.changes).toEqual(['prompts']);
      await shop.client.calls('cart.view');
      await expect.poll(() => shop.changes).toEqual(['prompts', 'resources']);
      await shop.client.calls('cart.view');
      expect(shop.changes).toEqual(['prompts', 'resources']);
      expect(shop.client.told).toBe(0);
    },
  );

  it('is told once of each list where all of them change, in front of the result', async () => {
    const shop = await openShop();
    await confirm(shop.client);
    expect(shop.changes).toEqual(['prompts', 'prompts', 'resources']);
    expect(shop.client.told).toBe(3);
  });

  it('reaches the other sessions of a run that they share', async () => {
    const session = { key: principalKey(), principal: () => 'alice' };
    const shop = await openShop({ workflow: gate(), session });
    await shop.client.raw.streaming;
    const other = await shop.anotherClient();
    await other.calls('cart.view');
    await expect.poll(() => shop.changes).toEqual(['prompts']);
    expect(await shop.prompts()).toContain('order.summary');
  });

  it('is not told where every prompt and resource is always shown', async () => {
    const shop = await openShop({ workflow: gate(), gate: { visibility: 'stable' } });
    await shop.client.calls('cart.view');
    await shop.client.calls('cart.view');
    expect(await shop.prompts()).toHaveLength(2);
    expect(shop.changes).toEqual([]);
  });
});

describe('a resource by another spelling', () => {
  it.each([
    'DOCS://receipts/7',
    'docs://Receipts/7',
    'docs://receipts/7/',
    'docs://receipts//7',
    'docs://receipts./7',
    'docs://receipts%2F7',
    'docs://%72eceipts/7',
    'docs:/receipts/7',
    'docs://receipts/7?x=1',
    'docs://receipts/7#x',
    'docs://terms/../receipts/7',
    'docs://terms/%2e%2e/receipts/7',
    'docs://user@receipts/7',
    'docs://receipts\\7',
    'docs://receipts/7%00',
    ' docs://receipts/7',
    'receipts/7',
  ])('is refused all the same: %j', async (uri) => {
    const { sdk, calls } = await openShop();
    await expect(sdk.readResource({ uri })).rejects.toMatchObject({ code: -32602 });
    expect(calls).toEqual([]);
  });

  it('is left to the upstream where no bound pattern has its scheme', async () => {
    const { sdk } = await openShop();
    await expect(sdk.readResource({ uri: 'other://a/../b' })).rejects.toMatchObject({
      message: expect.stringContaining('not found'),
    });
  });

  it('must be a text, as the name of a prompt must be', async () => {
    const { session: begin, calls } = await openShop();
    const session = await begin();
    for (const [method, params] of [
      ['resources/read', { uri: ['docs://receipts/7'] }],
      ['resources/read', {}],
      ['prompts/get', { name: 7 }],
    ] as const) {
      const { messages } = await session.post({ jsonrpc: '2.0', id: 9, method, params });
      expect(messages[0]?.error).toMatchObject({
        code: -32602,
        message: expect.stringMatching(/must be a string/),
      });
    }
    expect(calls).toEqual([]);
  });
});

describe('guards of prompts and resources', () => {
  it('are asked with the name or the URI, and refuse in their own words', async () => {
    const asked: GuardedCall[] = [];
    const guard = (call: GuardedCall) => {
      asked.push(call);
      return call.args.topic === 'cart' || 'The shop is closed';
    };
    const gate = checkoutGate()
      .bindPrompt('order.summary', 'empty', { guard })
      .bindResource('docs://receipts/*', 'empty', { guard });
    const { sdk, prompts, calls } = await openShop({ workflow: gate });
    await expect(sdk.getPrompt({ name: 'order.summary' })).rejects.toMatchObject({
      message: expect.stringContaining(
        'The prompt order.summary was refused while checkout is in "empty": The shop is closed.',
      ),
      data: { 'mcp-interlock/refusal': { reason: 'guard' } },
    });
    await expect(sdk.readResource({ uri: 'docs://receipts/7' })).rejects.toMatchObject({
      code: -32602,
    });
    expect(calls).toEqual([]);
    await sdk.getPrompt({ name: 'order.summary', arguments: { topic: 'cart' } });
    expect(calls).toEqual(['order.summary']);
    expect(await prompts()).toContain('order.summary');
    expect(asked.map(({ tool, args, state }) => [tool, args, state])).toEqual([
      ['order.summary', {}, 'empty'],
      ['docs://receipts/7', {}, 'empty'],
      ['order.summary', { topic: 'cart' }, 'empty'],
    ]);
  });
});

describe('a refusal that does not tell what exists', () => {
  it('is the upstream’s error for a prompt or a resource that it does not have', async () => {
    const { session: begin, calls } = await openShop({ gate: { refusal: 'unknown-tool' } });
    const session = await begin();
    const error = async (method: string, params: object): Promise<unknown> =>
      (await session.post({ jsonrpc: '2.0', id: 5, method, params })).messages[0]?.error;
    const named = (name: string, text: unknown): unknown =>
      JSON.parse(JSON.stringify(text).replaceAll(name, 'X'));
    const hidden = await error('prompts/get', { name: 'order.summary' });
    expect(named('order.summary', hidden)).toEqual(
      named('nothing', await error('prompts/get', { name: 'nothing' })),
    );
    const unknown = await error('resources/read', { uri: 'docs://nothing' });
    for (const uri of [
      'docs://receipts/latest',
      'docs://receipts/7',
      'docs://terms/../receipts/7',
    ]) {
      expect(named(uri, await error('resources/read', { uri }))).toEqual(
        named('docs://nothing', unknown),
      );
    }
    expect(calls).toEqual([]);
  });

  it('is the plain one where everything is shown', async () => {
    const { sdk } = await openShop({ gate: { refusal: 'unknown-tool', visibility: 'stable' } });
    await expect(sdk.getPrompt({ name: 'order.summary' })).rejects.toMatchObject({
      message: expect.stringContaining('is not available'),
    });
  });
});

describe('lists that are stable', () => {
  it('say of each bound prompt, resource and template where it is available', async () => {
    const { sdk } = await openShop({ gate: { visibility: 'stable' } });
    const { prompts } = await sdk.listPrompts();
    expect(prompts.map(({ description }) => description)).toEqual([
      'About order.summary.\n\n[System: Available only while checkout is in "has_items" or ' +
        '"payment". From the start of a run, cart.add_item leads there.]',
      'About help.',
    ]);
    const { resources } = await sdk.listResources();
    expect(resources.map(({ description }) => description)).toEqual([
      'Says docs://terms.',
      expect.stringContaining('Available only while checkout is in "confirmed"'),
    ]);
    const { resourceTemplates } = await sdk.listResourceTemplates();
    expect(resourceTemplates.map(({ description }) => description)).toEqual([
      expect.stringContaining('Available only while checkout is in "confirmed"'),
      undefined,
    ]);
  });
});

describe('a run that only a handle names', () => {
  it('has no prompts and resources: they are listed with notes, and refused', async () => {
    const key = managedHandle({ start: 'checkout.start', argument: 'checkout' });
    const { sdk, prompts, calls, warnings } = await openShop({ session: { key } });
    expect(await prompts()).toEqual(['order.summary', 'help']);
    await expect(sdk.getPrompt({ name: 'order.summary' })).rejects.toMatchObject({
      message: expect.stringContaining('it belongs to no run of checkout'),
      data: { 'mcp-interlock/refusal': { reason: 'no-run' } },
    });
    expect(calls).toEqual([]);
    expect(warnings.join('\n')).toContain('and to no handle');
  });
});

describe('a store that cannot be read', () => {
  it('makes the gate refuse and hide bound prompts and resources, and no others', async () => {
    const { sdk, prompts, resources, store } = await openShop({
      session: { key: principalKey(), principal: () => 'alice' },
    });
    store.fail('read');
    expect(await prompts()).toEqual(['help']);
    expect(await resources()).toEqual(['docs://terms']);
    expect((await sdk.getPrompt({ name: 'help' })).messages).toHaveLength(1);
    const refused = sdk.getPrompt({ name: 'order.summary' });
    await expect(refused).rejects.toMatchObject({
      message: expect.stringContaining('cannot be read now'),
      data: { 'mcp-interlock/refusal': { reason: 'unavailable', available: [] } },
    });
    await expect(refused).rejects.not.toMatchObject({
      message: expect.stringContaining('hunter2'),
    });
  });
});

describe('a prompt that the upstream does not have', () => {
  it('is warned of at the first list', async () => {
    const workflow = checkoutGate().bindPrompt('order.sumary', 'empty');
    const { prompts, warnings } = await openShop({ workflow });
    await prompts();
    await prompts();
    expect(warnings).toEqual([
      'the gate "checkout" binds "order.sumary", which the upstream does not list. No request ' +
        'meets this binding, and what waits for it stays unavailable. ' +
        'Did you mean "order.summary"? This gate does not gate "order.summary" now.',
    ]);
  });
});

describe('a gate that binds neither prompts nor resources', () => {
  it('changes no byte of them', async () => {
    const bare = await startUpstream({ makeServer: shopServer });
    onTestFinished(bare.close);
    const gated = await scene({ makeServer: shopServer });
    const [plain, through] = [await RawSession.begin(bare.url), await gated.session()];
    for (const [method, params] of [
      ['prompts/list', {}],
      ['resources/list', {}],
      ['resources/templates/list', {}],
      ['prompts/get', { name: 'order.summary' }],
      ['resources/read', { uri: 'docs://receipts/../receipts/7' }],
    ] as const) {
      const message = { jsonrpc: '2.0', id: 3, method, params };
      expect((await through.post(message)).text).toBe((await plain.post(message)).text);
    }
  });
});

describe('prompts and resources that some callers must not see', () => {
  const isAdmin: VisibleTest = ({ principal }) => principal?.includes('admin') === true;
  const guarded = (visible: VisibleTest) =>
    checkoutGate()
      .bindPrompt('order.summary', ['empty', 'has_items'], { visible })
      .bindResource('docs://receipts/**', ['empty', 'has_items'], { visible });

  it.each(['hide', 'stable'] as const)(
    'are listed for others alone, whose calls are let through (%s)',
    async (visibility) => {
      const shop = await openShop({ workflow: guarded(isAdmin), gate: { visibility } });
      for (const user of ['admin', 'clerk']) {
        const isShown = user === 'admin';
        const { client: sdk } = (await shop.anotherClient(user)).raw;
        const { prompts } = await sdk.listPrompts();
        expect(prompts.some(({ name }) => name === 'order.summary')).toBe(isShown);
        const { resources } = await sdk.listResources();
        expect(resources.some(({ uri }) => uri === 'docs://receipts/latest')).toBe(isShown);
        const asked = await Promise.allSettled([
          sdk.getPrompt({ name: 'order.summary' }),
          sdk.readResource({ uri: 'docs://receipts/7' }),
        ]);
        const told = asked.map((each) =>
          each.status === 'fulfilled' ? true : each.reason.data['mcp-interlock/refusal'].reason,
        );
        expect(told).toEqual(isShown ? [true, true] : ['state', 'state']);
      }
    },
  );

  it('are told of where the run’s data alone have changed', async () => {
    const shop = await openShop({ workflow: guarded(({ context }) => context === 'vip') });
    await shop.client.raw.streaming;
    expect(await shop.prompts()).not.toContain('order.summary');
    await shop.runs.update(shop.client.run, () => 'vip');
    await expect.poll(() => shop.changes).toEqual(['prompts', 'resources']);
    expect(await shop.prompts()).toContain('order.summary');
    expect(await shop.resources()).toContain('docs://receipts/latest');
  });
});

describe('skills, which are resources under methods of their own', () => {
  const skillOf = (name: string, ...files: string[]) => {
    const uri = `docs://${name}/SKILL.md`;
    return { uri, name, resources: [uri, ...files].map((each) => ({ uri: each, size: 1 })) };
  };
  const open = skillOf('open');
  const hidden = skillOf('receipts');
  const mixed = skillOf('mixed', 'docs://receipts/7');

  async function skillShop() {
    const asked: string[] = [];
    const app = await scene({
      workflow: shopGate(),
      shape: { parser: true },
      behind: [
        (req, res, next) => {
          const { id, method = '', params } = req.body ?? {};
          if (!/^(skills|odd)\/|directory/.test(method)) return next();
          asked.push(method);
          const skill = [open, hidden, mixed].find(({ uri }) => uri === params?.uri);
          const result = method === 'skills/list' ? { skills: [open, hidden, mixed] } : { skill };
          res.json({ jsonrpc: '2.0', id, result });
        },
      ],
    });
    const client = await app.client();
    const raw = RawSession.resume(app.url, client.run);
    const ask = async (method: string, params = {}) =>
      (await raw.post({ jsonrpc: '2.0', id: 1, method, params })).messages.at(-1);
    return { ...app, client, ask, asked };
  }

  it('are listed where all their files are available', async () => {
    const { ask, client } = await skillShop();
    expect((await ask('skills/list'))?.result.skills).toEqual([open]);
    await confirm(client);
    expect((await ask('skills/list'))?.result.skills).toEqual([open, hidden, mixed]);
  });

  it('are refused by the same globs, with what they name', async () => {
    const { ask, asked, client } = await skillShop();
    for (const method of ['skills/get', 'resources/directory/read'])
      expect((await ask(method, { uri: hidden.uri }))?.error).toMatchObject({ code: -32602 });
    expect(asked).toEqual([]);
    expect((await ask('skills/get', { uri: open.uri }))?.result.skill).toEqual(open);
    expect(JSON.stringify(await ask('skills/get', { uri: mixed.uri }))).not.toContain('receipts');
    await confirm(client);
    expect((await ask('skills/get', { uri: mixed.uri }))?.result.skill).toEqual(mixed);
  });

  it('are told of once where an unknown method names one', async () => {
    const { ask, warnings } = await skillShop();
    for (let times = 0; times < 2; times++) await ask('odd/read', { uri: hidden.uri });
    expect(warnings.filter((each) => each.includes('"odd/read"'))).toHaveLength(1);
  });
});
