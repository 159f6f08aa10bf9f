import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { handleKey, principalKey, StateMachineGate, sessionKey } from '../../src/index.ts';
import { connect } from '../helpers/client.ts';
import { sceneOfBothEras } from '../helpers/scene.ts';
import { AUTO, connectV2, PINNED } from '../helpers/two-eras.ts';

/**
 * A basket by the upstream's handle, and a list of wishes that has none: each principal has one, or
 * each session.
 */
const gate = () =>
  new StateMachineGate({
    id: 'shop',
    initial: 'empty',
    states: {
      empty: { on: { ADD: 'full' } },
      full: { on: { PAY: 'paid' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('cart.add_item', ['empty', 'full'], 'ADD')
    .bindTool('cart.pay', 'full', 'PAY');

type V2 = Awaited<ReturnType<typeof connectV2>>;

describe('one Express route with one gate', () => {
  it('serves clients of both eras, two principals and handles, each by itself', async () => {
    const app = await sceneOfBothEras({
      workflow: gate(),
      session: {
        key: [sessionKey(), handleKey('sku', { createdBy: 'create_basket' }), principalKey()],
      },
      register(server) {
        server.registerTool('create_basket', {}, () => {
          const structuredContent = { sku: randomUUID() };
          return { content: [{ type: 'text', text: 'made' }], structuredContent };
        });
      },
    });
    const v1 = await connect(app.url, { 'x-user': 'alice' });
    const auto = await connectV2(app.url, 'alice', AUTO);
    const pinned = await connectV2(app.url, 'bob', PINNED);
    for (const each of [v1, auto, pinned]) onTestFinished(() => each.close());
    const call = async (client: V2, name: string, args: Record<string, unknown> = {}) => {
      const { content, structuredContent, isError } = await client.callTool({
        name,
        arguments: args,
      });
      const [text] = content as { text: string }[];
      return {
        text: text?.text,
        basket: structuredContent as { sku: string },
        isError: isError === true,
      };
    };

    // A session sees its own tools, and a client without one sees the same stable list.
    const all = ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view', 'create_basket'];
    expect(await v1.tools()).toEqual([
      'cart.add_item',
      'cart.checkout',
      'cart.view',
      'create_basket',
    ]);
    const [autoList, pinnedList] = [await auto.listTools(), await pinned.listTools()];
    expect(autoList.tools.map(({ name }) => name)).toEqual(all);
    expect(pinnedList.tools).toEqual(autoList.tools);

    // Each handle is a workflow of its own.
    const { basket: one } = await call(auto, 'create_basket');
    const { basket: two } = await call(auto, 'create_basket');
    const { basket: bobs } = await call(pinned, 'create_basket');
    expect(await call(auto, 'cart.add_item', one)).toMatchObject({ text: 'cart.add_item done' });
    expect(await call(auto, 'cart.pay', two)).toMatchObject({ isError: true });
    expect((await call(auto, 'cart.pay', two)).text).toContain(
      'not available while shop is in "empty"',
    );
    expect(await call(pinned, 'cart.add_item', bobs)).toMatchObject({ text: 'cart.add_item done' });

    // No principal can use another one's handle.
    for (const tool of ['cart.add_item', 'cart.pay']) {
      expect((await call(pinned, tool, one)).text).toContain('names no run that is known');
      expect((await call(auto, tool, bobs)).text).toContain('names no run that is known');
    }

    // Without a handle the call is about the principal's own run, which no handle has moved.
    expect((await call(auto, 'cart.pay')).text).toContain('not available while shop is in "empty"');
    await call(auto, 'cart.add_item');
    expect((await call(pinned, 'cart.pay')).text).toContain(
      'not available while shop is in "empty"',
    );
    expect(await call(auto, 'cart.pay')).toMatchObject({ text: 'cart.pay done' });

    // The session has a run of its own, and only that one changes its list.
    expect((await v1.call('cart.pay')).isError).toBe(true);
    await v1.call('cart.add_item');
    expect(await v1.tools()).toEqual(all);
    expect((await v1.call('cart.pay')).text).toBe('cart.pay done');

    // The baskets are where they were.
    expect(await call(auto, 'cart.pay', one)).toMatchObject({ text: 'cart.pay done' });
    expect(await call(pinned, 'cart.pay', bobs)).toMatchObject({ text: 'cart.pay done' });
    expect((await call(auto, 'cart.pay', one)).text).toContain(
      'not available while shop is in "paid"',
    );
    expect(app.calls.filter(({ tool }) => tool === 'cart.pay')).toHaveLength(4);
  });
});
