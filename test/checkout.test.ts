import { describe, expect, it } from 'vitest';
import { scene } from './helpers/scene.ts';
import { SHAPES, shapeName } from './helpers/upstream.ts';

describe.each(SHAPES)(
  'checkout on an upstream: $mode $answers Express $express parser $parser',
  (shape) => {
    it(`shows in each state the tools of that state, and moves on with each success (${shapeName(shape)})`, async () => {
      const policies = [{ match: 'cart.add_item', invalidates: ['cart.*'] }];
      const { client: connect, ledger, run } = await scene({ shape, sync: { policies } });
      const client = await connect();

      await client.sees(['cart.add_item', 'cart.view']);
      const early = await client.isRefused('cart.pay', 'state');
      expect(early.isError).toBe(true);
      expect(early.text).toBe(
        '[System: cart.pay is not available while checkout is in "empty". Available now: cart.add_item. ' +
          'To reach cart.pay, call cart.add_item, then cart.checkout first.]',
      );
      const added = await client.calls('cart.add_item');
      expect(added.texts).toEqual([
        'cart.add_item done',
        '[System: Cache invalidated for cart.* — caused by cart.add_item]',
      ]);
      await client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
      await client.calls('cart.checkout');
      await client.sees(['cart.pay', 'cart.view']);
      await client.calls('cart.pay');
      await client.sees(['cart.view']);
      await run(client.run).isIn('confirmed');
      expect(ledger.calls).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
      await client.isTold(3);
    });
  },
);
