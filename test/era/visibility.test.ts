import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type FsmGateOptions,
  handleKey,
  principalKey,
  type RunKeyStrategy,
  sessionKey,
} from '../../src/index.ts';
import { connect } from '../helpers/client.ts';
import { INITIALIZE, RawSession, send, type WireMessage } from '../helpers/raw.ts';
import { sceneOfBothEras } from '../helpers/scene.ts';
import { ask, callStateless, stateless, type TwoErasOptions } from '../helpers/two-eras.ts';

const HINTS: TwoErasOptions = {
  serverOptions: {
    cacheHints: { 'tools/list': { ttlMs: 60_000, cacheScope: 'public' } },
    capabilities: { tools: { listChanged: false } },
  },
};

function serve(
  key: RunKeyStrategy | readonly RunKeyStrategy[],
  gate: FsmGateOptions = {},
  app: TwoErasOptions = HINTS,
) {
  return sceneOfBothEras({ session: { key }, gate, ...app });
}

const alice = { user: 'alice' };

async function listed(url: URL, user = 'alice'): Promise<WireMessage> {
  const { messages } = await ask(url, 'tools/list', {}, { user });
  return messages[0]?.result;
}

const namesIn = (result: WireMessage): string[] =>
  result.tools.map(({ name }: WireMessage) => name);

async function declares(url: URL, user = 'alice'): Promise<readonly [unknown, unknown]> {
  const [handshake, discovered] = [
    await send(url, { body: INITIALIZE, headers: { 'x-user': user } }),
    await ask(url, 'server/discover', {}, { user }),
  ];
  const declared = ({ messages }: { messages: WireMessage[] }): unknown =>
    messages[0]?.result.capabilities.tools.listChanged;
  return [declared(handshake), declared(discovered)];
}

describe('a stable list', () => {
  it('is the same bytes for every caller and state, and as cacheable as before', async () => {
    const { url } = await serve(principalKey());
    const request = (user?: string) => {
      const { headers, body } = stateless('tools/list', {}, user === undefined ? {} : { user });
      return send(url, { headers, body: { ...body, id: 1 } });
    };
    const { text: first } = await request('alice');
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) {
      await callStateless(url, tool, {}, alice);
      for (const user of ['alice', 'bob', undefined])
        expect((await request(user)).text).toBe(first);
    }
    expect(await listed(url)).toMatchObject({ ttlMs: 60_000, cacheScope: 'public' });
  });

  it('keeps every tool in order, and says where each bound one is available', async () => {
    const { url } = await serve(principalKey());
    const { tools } = await listed(url);
    expect(tools.map(({ name, description }: WireMessage) => [name, description])).toEqual([
      [
        'cart.add_item',
        'Does cart.add_item.\n\n[System: Available only while checkout is in "empty" or ' +
          '"has_items". A run begins there.]',
      ],
      [
        'cart.checkout',
        'Does cart.checkout.\n\n[System: Available only while checkout is in "has_items". ' +
          'From the start of a run, cart.add_item leads there.]',
      ],
      [
        'cart.pay',
        'Does cart.pay.\n\n[System: Available only while checkout is in "payment". From the ' +
          'start of a run, cart.add_item, then cart.checkout leads there.]',
      ],
      ['cart.view', 'Does cart.view.'],
    ]);
  });

  it('changes no capability, and its refusals and results carry no caching fields', async () => {
    const { url, warnings } = await serve(principalKey());
    expect((await declares(url))[1]).toBe(false);
    for (const { result } of [
      await callStateless(url, 'cart.pay', {}, alice),
      await callStateless(url, 'cart.add_item', {}, alice),
    ]) {
      expect(result).not.toHaveProperty('ttlMs');
      expect(result).not.toHaveProperty('cacheScope');
    }
    expect(warnings).toEqual([]);
  });

  it('may be chosen for sessions: their clients are told of no change', async () => {
    const { url } = await serve(sessionKey(), { visibility: 'stable' });
    expect((await declares(url))[0]).toBe(false);
    const client = await connect(url, { 'x-user': 'alice' });
    onTestFinished(() => client.close());
    await client.streaming;
    const list = await client.client.listTools();
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) {
      expect((await client.call(tool)).isError).toBe(false);
      expect(await client.client.listTools()).toEqual(list);
    }
    expect(list.tools.map(({ name }) => name)).toContain('cart.pay');
    expect(client.log).not.toContain('list_changed');
    expect((await client.call('cart.pay')).text).toContain('not available');
  });

  it('is what handles get in every case, and a warning says so once', async () => {
    const key = handleKey('basket_id', { createdBy: 'create_basket' });
    const { url, warnings } = await serve(key, { visibility: 'hide' });
    expect(await declares(url)).toEqual([false, false]);
    expect(namesIn(await listed(url))).toContain('cart.pay');
    const { messages } = await send(url, { body: { jsonrpc: '2.0', id: 1, method: 'tools/list' } });
    expect(namesIn(messages[0]?.result)).toContain('cart.pay');
    expect(
      warnings.filter((each) => each.includes('visibility "hide" has no effect')),
    ).toHaveLength(1);
    expect(warnings).toHaveLength(1);
  });

  it('is not what sessions have that name their runs themselves, beside handles', async () => {
    const key = [sessionKey(), handleKey('basket_id', { createdBy: 'create_basket' })];
    const { url } = await serve(key);
    expect(await declares(url)).toEqual([true, false]);
    expect(await (await RawSession.begin(url)).tools()).toEqual(['cart.add_item', 'cart.view']);
  });
});

describe('a list that hides, in the stateless era', () => {
  it('shows each principal its own tools, and a caller without one what all have', async () => {
    const { url, warnings } = await serve(principalKey(), { visibility: 'hide' });
    await callStateless(url, 'cart.add_item', {}, alice);
    expect(namesIn(await listed(url))).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
    expect(namesIn(await listed(url, 'bob'))).toEqual(['cart.add_item', 'cart.view']);
    const { messages } = await ask(url, 'tools/list');
    expect(namesIn(messages[0]?.result)).toEqual(['cart.view']);
    expect(await declares(url)).toEqual([true, true]);
    expect(warnings.filter((each) => each.includes('"MUST NOT vary'))).toHaveLength(1);
  });

  it('is private and without a ttl, on every page', async () => {
    const { url } = await serve(
      principalKey(),
      { visibility: 'hide' },
      {
        ...HINTS,
        register(server) {
          server.server.setRequestHandler('tools/list', async ({ params }) => {
            const page = Number(params?.cursor ?? 0);
            const name = ['cart.pay', 'free', 'cart.add_item'][page] as string;
            const more = page < 2 ? { nextCursor: String(page + 1) } : {};
            return { tools: [{ name, inputSchema: { type: 'object' as const } }], ...more };
          });
        },
      },
    );
    const pages: WireMessage[] = [];
    for (const params of [{}, { cursor: '1' }, { cursor: '2' }]) {
      const { messages } = await ask(url, 'tools/list', params, alice);
      pages.push(messages[0]?.result);
    }
    expect(pages.map(namesIn)).toEqual([[], ['free'], ['cart.add_item']]);
    for (const page of pages) expect(page).toMatchObject({ ttlMs: 0, cacheScope: 'private' });
    expect((await ask(url, 'server/discover', {}, alice)).messages[0]?.result).toHaveProperty(
      'ttlMs',
    );
  });

  it('answers for a hidden tool as for an absent one, in header and body', async () => {
    const { url, calls } = await serve(principalKey(), {
      visibility: 'hide',
      refusal: 'unknown-tool',
    });
    const hidden = await ask(url, 'tools/call', { name: 'cart.pay', arguments: {} }, alice);
    const absent = await ask(url, 'tools/call', { name: 'cart.gone', arguments: {} }, alice);
    const told = ({ status, messages }: typeof hidden) => [
      status,
      messages.map(({ error, result }) => error ?? result),
    ];
    expect(JSON.stringify(told(hidden))).toBe(
      JSON.stringify(told(absent)).replaceAll('cart.gone', 'cart.pay'),
    );
    expect(hidden.messages[0]?.error.message).toContain('cart.pay');
    expect(calls).toEqual([]);
  });
});
