import { afterEach, describe, expect, it } from 'vitest';
import { fsmGate, sessionStore, stateSync } from '../src/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { connect, type TestClient } from './helpers/client.ts';
import { SHAPES, shapeName, startUpstream, type Upstream } from './helpers/upstream.ts';

let upstream: Upstream;
let client: TestClient;

afterEach(async () => {
  await client.close();
  await upstream.close();
});

describe.each(SHAPES)(
  'checkout on an upstream: $mode $answers Express $express parser $parser',
  (shape) => {
    it(`shows in each state the tools of that state, and moves on with each success (${shapeName(shape)})`, async () => {
      const policies = [{ match: 'cart.add_item', invalidates: ['cart.*'] }];
      upstream = await startUpstream({
        shape,
        middlewares: [sessionStore(), fsmGate(checkoutGate()), stateSync({ policies })],
      });
      client = await connect(upstream.url);

      expect(await client.tools()).toEqual(['cart.add_item', 'cart.view']);
      const early = await client.call('cart.pay');
      expect(early.isError).toBe(true);
      expect(early.text).toBe(
        '[System: cart.pay is not available while checkout is in "empty". Available now: cart.add_item. ' +
          'To reach cart.pay, call cart.add_item, then cart.checkout first.]',
      );
      const added = await client.call('cart.add_item');
      expect(added.texts).toEqual([
        'cart.add_item done',
        '[System: Cache invalidated for cart.* — caused by cart.add_item]',
      ]);
      expect(await client.tools()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
      await client.call('cart.checkout');
      expect(await client.tools()).toEqual(['cart.pay', 'cart.view']);
      await client.call('cart.pay');
      expect(await client.tools()).toEqual(['cart.view']);
      expect(upstream.ledger.calls).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
      await expect.poll(() => client.log.filter((each) => each === 'list_changed').length).toBe(3);
    });
  },
);
