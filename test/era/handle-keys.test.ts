import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import {
  handleKey,
  managedHandle,
  principalKey,
  type RunKeyStrategy,
  sessionKey,
} from '../../src/index.ts';
import { connect } from '../helpers/client.ts';
import { ListEventStore } from '../helpers/event-store.ts';
import { RawSession, reasonOf, send } from '../helpers/raw.ts';
import { pass, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { callStateless, stateless } from '../helpers/two-eras.ts';
import { cartServer, type Ledger } from '../helpers/upstream.ts';

const baskets = (field?: string) =>
  handleKey('basket_id', { createdBy: ['create_basket', 'copy_basket'], field });
const alice = { user: 'alice' };

/** The name of the next basket, and whether making it fails. */
interface Made {
  readonly basket_id?: unknown;
  readonly isError?: boolean;
}

function serve(
  key: RunKeyStrategy | readonly RunKeyStrategy[] = baskets(),
  made: Made = { basket_id: 7 },
) {
  return sceneOfBothEras({
    session: { key },
    register(server) {
      for (const name of ['create_basket', 'copy_basket']) {
        server.registerTool(name, {}, () => {
          const { basket_id, isError = false } = made;
          return {
            content: [],
            isError,
            structuredContent: { basket_id, other: { basket_id: 'inner' }, id: 'b' },
          };
        });
      }
    },
  });
}

/** A handle that is passed by its text, as clients write it. */
const add = (url: URL, basket_id: unknown, options = alice) =>
  callStateless(url, 'cart.add_item', { basket_id }, options);

describe('handleKey()', () => {
  it('takes numbers for handles, and names their runs alike for the operator', async () => {
    const { url, run: runOf } = await serve();
    await callStateless(url, 'create_basket', {}, alice);
    expect((await add(url, 7)).text).toBe('cart.add_item done');
    const run = baskets().runKey(7, { issuer: 'https://issuer.example', subject: 'alice' });
    await runOf(run).isIn('has_items');
    expect(run).toBe(baskets().runKey('7', JSON.stringify(['https://issuer.example', 'alice'])));
  });

  it('takes no number that JavaScript rounds to the handle', async () => {
    const { url } = await serve();
    await callStateless(url, 'create_basket', {}, alice);
    const named = async (handle: string): Promise<unknown> => {
      const params = { name: 'cart.add_item', arguments: { basket_id: 'here' } };
      const { headers, body } = stateless('tools/call', params, alice);
      const text = JSON.stringify(body).replace('"here"', handle);
      return (await send(url, { headers, body: text })).messages.at(-1)?.result;
    };
    expect(reasonOf({ result: await named('7.00000000000000000001') })).toBe('no-run');
    expect(await named('7.00000000000000000000')).toMatchObject({ isError: false });
  });

  it('leaves a run where it is when its handle is returned again', async () => {
    const { url } = await serve();
    await callStateless(url, 'create_basket', {}, alice);
    await add(url, 7);
    await callStateless(url, 'copy_basket', {}, alice);
    await callStateless(url, 'create_basket', {}, alice);
    expect((await callStateless(url, 'cart.checkout', { basket_id: 7 }, alice)).text).toBe(
      'cart.checkout done',
    );
  });

  it('gives the same handle two runs for two principals', async () => {
    const { url } = await serve();
    await callStateless(url, 'create_basket', {}, alice);
    await add(url, 7);
    await callStateless(url, 'create_basket', {}, { user: 'bob' });
    expect(
      (await callStateless(url, 'cart.checkout', { basket_id: 7 }, { user: 'bob' })).isError,
    ).toBe(true);
  });

  it.each([
    ['failed', { basket_id: 7, isError: true }],
    ['returned none', {}],
    ['returned a fraction', { basket_id: 1.5 }],
    ['returned an object', { basket_id: { id: 7 } }],
    ['returned an empty one', { basket_id: '' }],
  ])('learns no handle of a tool that %s', async (_what, made) => {
    const { url, calls } = await serve(baskets(), made);
    await callStateless(url, 'create_basket', {}, alice);
    for (const handle of [7, 1.5, '', 'inner', 'undefined', '[object Object]']) {
      expect((await add(url, handle)).result._meta['mcp-interlock/refusal'].reason).toBe('no-run');
    }
    expect(calls).toEqual([]);
  });

  it('records the run of a handle although the store fails for a moment', async () => {
    const { url, clock, store } = await serve();
    store.fail('claim', 2);
    const creating = callStateless(url, 'create_basket', {}, alice);
    await expect.poll(() => store.asked).toContain('claim');
    await pass(clock, 10_000);
    await creating;
    expect((await add(url, 7)).text).toBe('cart.add_item done');
  });

  it('passes a result on, and tells onError, if its handle’s run was not recorded', async () => {
    const { url, clock, store } = await serve();
    store.fail('claim');
    const creating = callStateless(url, 'create_basket', {}, alice);
    await expect.poll(() => store.asked).toContain('claim');
    await pass(clock, 10_000);
    const { text, result } = await creating;
    expect(result.structuredContent).toMatchObject({ basket_id: 7 });
    expect(text).toContain('no gated tool takes this "basket_id"');
    store.heal();
    expect((await add(url, 7)).result._meta['mcp-interlock/refusal'].reason).toBe('no-run');
  });

  it('reads the member that it was told of', async () => {
    const { url } = await serve(baskets('id'));
    await callStateless(url, 'create_basket', {}, alice);
    expect((await add(url, 'b')).isError).toBe(false);
    expect((await add(url, 7)).isError).toBe(true);
  });

  it('learns of a handle that comes on a resumed stream', async () => {
    const events = new ListEventStore();
    const makeServer = (ledger: Ledger): McpServer => {
      const server = cartServer(ledger);
      server.registerTool(
        'create_basket',
        { inputSchema: { id: z.string() } },
        async ({ id }, { closeSSEStream }) => {
          closeSSEStream?.();
          return { content: [], structuredContent: { basket_id: id } };
        },
      );
      return server;
    };
    const app = await scene({
      makeServer,
      eventStore: () => events,
      session: { key: baskets() },
    });
    const session = await app.session();
    const body = {
      jsonrpc: '2.0',
      id: 90,
      method: 'tools/call',
      params: { name: 'create_basket', arguments: { id: 'late' } },
    };
    const cut = await session.stream(body);
    await expect.poll(() => cut.ended).toBe(true);
    expect(cut.messages.some(({ id }) => id === 90)).toBe(false);
    expect(reasonOf(await session.call('cart.add_item', { basket_id: 'late' }))).toBe('no-run');
    const rest = await session.listen(cut.lastEventId);
    onTestFinished(() => rest.cut());
    await expect.poll(() => rest.messages.some(({ id }) => id === 90)).toBe(true);
    const added = await session.call('cart.add_item', { basket_id: 'late' });
    expect(added.result.content[0].text).toBe('cart.add_item done');
  });
});

describe('a tool that makes handles and is bound', () => {
  it('can never be called by them, and the developer is told', async () => {
    const key = handleKey('basket_id', { createdBy: 'cart.add_item' });
    const { url, warnings } = await sceneOfBothEras({ session: { key } });
    for (const _ of [1, 2])
      expect((await callStateless(url, 'cart.add_item', {}, alice)).isError).toBe(true);
    expect(warnings).toEqual([
      'a call of "cart.add_item" was refused: it makes the handles that name runs, so it can ' +
        'have none before. Do not bind it, or have another key name its runs',
    ]);
  });
});

describe('the order of preference', () => {
  it('lets a handle name the run before the principal, and never both', async () => {
    const { url } = await serve([baskets(), principalKey()]);
    await callStateless(url, 'create_basket', {}, alice);
    await add(url, 7);
    expect((await callStateless(url, 'cart.checkout', {}, alice)).text).toContain('is in "empty"');
    expect((await callStateless(url, 'cart.checkout', { basket_id: 8 }, alice)).text).toContain(
      'names no run',
    );
    expect((await callStateless(url, 'cart.checkout', { basket_id: 7 }, alice)).isError).toBe(
      false,
    );
  });

  it('lets a principal name it before a handle', async () => {
    const { url } = await serve([principalKey(), baskets()]);
    await callStateless(url, 'create_basket', {}, alice);
    await add(url, 7);
    expect((await callStateless(url, 'cart.checkout', {}, alice)).isError).toBe(false);
  });

  it('asks a caller without a principal for the handle that comes next', async () => {
    const { url } = await serve([principalKey(), baskets()]);
    expect((await callStateless(url, 'cart.add_item')).text).toContain(
      'It needs the argument "basket_id"',
    );
    await callStateless(url, 'create_basket');
    expect((await callStateless(url, 'cart.add_item', { basket_id: 7 })).isError).toBe(false);
  });

  it('tries one handle after the other', async () => {
    const orders = handleKey('order_id', { createdBy: 'create_order', field: 'id' });
    const { url } = await serve([orders, baskets()]);
    await callStateless(url, 'create_basket', {}, alice);
    expect((await add(url, 7)).isError).toBe(false);
    expect(
      (await callStateless(url, 'cart.checkout', { basket_id: 7, order_id: 'o' }, alice)).text,
    ).toContain('Its "order_id" names no run');
  });
});

describe('a session id that is the key of another kind of run', () => {
  it.each([
    ['a principal', principalKey().runKey({ issuer: 'https://issuer.example', subject: 'alice' })],
    ['a handle', baskets().runKey(7, { issuer: 'https://issuer.example', subject: 'alice' })],
    ['a handle of no basket', baskets().runKey(7)],
    ['a managed handle', managedHandle({ start: 's', argument: 'basket_id' }).runKey('7')],
    ['nothing but a space', 'a b'],
  ])('is unknown: of %s', async (_what, id) => {
    const { url, calls } = await serve([sessionKey(), baskets(), principalKey()]);
    await callStateless(url, 'create_basket', {}, alice);
    await add(url, 7);
    await callStateless(url, 'cart.add_item', {}, alice);
    const before = calls.length;
    for (const headers of [{}, { 'x-user': 'alice' }]) {
      const { status } = await RawSession.resume(url, id, headers).post({
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name: 'cart.checkout', arguments: {} },
      });
      expect(status).toBe(404);
    }
    expect(calls).toHaveLength(before);
  });
});

describe('a session whose runs are named by handles', () => {
  it('is not told that its list changes, since it does not', async () => {
    const { url } = await serve(baskets());
    const client = await connect(url, { 'x-user': 'alice' });
    onTestFinished(() => client.close());
    const list = await client.client.listTools();
    await client.call('create_basket');
    await client.call('cart.add_item', { basket_id: 7 });
    expect(await client.client.listTools()).toEqual(list);
    expect(client.log).not.toContain('list_changed');
  });
});
