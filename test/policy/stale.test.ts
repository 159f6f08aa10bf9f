import { describe, expect, it } from 'vitest';
import type { StateMachineGate, SyncPolicy } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { type SceneClient, scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

const STALE = 'orders.* — caused by';

/** A cart whose `cart.view` and `cart.total` are annotated readOnlyHint. */
const ANNOTATIONS = {
  'cart.add_item': { destructiveHint: true },
  'cart.checkout': { destructiveHint: true },
  'cart.pay': { destructiveHint: true },
  'cart.view': { readOnlyHint: true },
  'cart.total': { readOnlyHint: true },
  'cart.log': { readOnlyHint: false },
};

type Gate = StateMachineGate<string, string>;

/** A client of the cart, and the invalidations that the app was told of. */
async function cart(policies: readonly SyncPolicy[], workflow: Gate = checkoutGate()) {
  const told: string[] = [];
  const app = await scene({
    workflow,
    shape: { mode: 'stateless', answers: 'json' },
    makeServer: toolServer(Object.keys(ANNOTATIONS), {}, ANNOTATIONS),
    sync: {
      policies,
      onInvalidation: ({ causedBy }) => void told.push(causedBy),
      notificationSink: ({ params }) => void told.push(params.uri),
    },
  });
  return { client: await app.client(), told };
}

const staleAfter = async (client: SceneClient, tool: string): Promise<string | undefined> =>
  (await client.calls(tool)).texts[1];

describe('a tool that is annotated readOnlyHint', () => {
  it('makes nothing stale where only a glob matched it', async () => {
    const { client, told } = await cart([{ match: 'cart.*', invalidates: ['orders.*'] }]);
    await client.raw.tools();
    expect(await staleAfter(client, 'cart.view')).toBeUndefined();
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
    expect(told).toEqual([]);
    expect(await staleAfter(client, 'cart.add_item')).toContain(STALE);
    expect(await staleAfter(client, 'cart.log')).toContain(STALE);
    expect(told).toHaveLength(4);
  });

  it('makes nothing stale where a gate hid it from the list, too', async () => {
    const gate = checkoutGate().bindTool('cart.total', 'has_items');
    const { client } = await cart([{ match: 'cart.*', invalidates: ['orders.*'] }], gate);
    expect(await client.raw.tools()).not.toContain('cart.total');
    await client.calls('cart.add_item');
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
  });

  it('makes stale what its own policy says', async () => {
    const { client } = await cart([
      { match: 'cart.view', invalidates: ['orders.*'] },
      { match: 'cart.*', invalidates: ['orders.*'] },
    ]);
    await client.raw.tools();
    expect(await staleAfter(client, 'cart.view')).toContain(STALE);
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
  });

  it('counts as any other tool until a list has shown the annotation', async () => {
    const { client } = await cart([{ match: 'cart.*', invalidates: ['orders.*'] }]);
    expect(await staleAfter(client, 'cart.view')).toContain(STALE);
    await client.raw.tools();
    expect(await staleAfter(client, 'cart.view')).toBeUndefined();
  });
});

describe('a list of what went stale', () => {
  it.each([[['cart.view']], [['cart.view', 'cart.view']]])(
    'is left out where it names the called tool alone: %j',
    async (invalidates) => {
      const { client, told } = await cart([{ match: 'cart.view', invalidates }]);
      expect(await staleAfter(client, 'cart.view')).toBeUndefined();
      expect(told).toEqual([]);
    },
  );

  it('is whole where it names others too', async () => {
    const { client, told } = await cart([
      { match: 'cart.view', invalidates: ['cart.view', 'cart.total'] },
    ]);
    expect(await staleAfter(client, 'cart.view')).toBe(
      '[System: Cache invalidated for cart.view, cart.total — caused by cart.view]',
    );
    expect(told).toHaveLength(3);
  });
});
