import { StateMachineGate } from '../../src/index.ts';
import type { Uncertain } from '../../src/stores/index.ts';

/**
 * The checkout of the README, which most tests play.
 *
 * @param uncertain of all of its tools. Default: what their annotations say.
 */
export function checkoutGate(uncertain?: Uncertain) {
  const said = uncertain && { uncertain };
  return new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: {
      empty: { on: { ADD_ITEM: 'has_items' } },
      has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
      payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
      confirmed: { type: 'final' },
    },
  })
    .bindTool('cart.add_item', ['empty', 'has_items'], { success: 'ADD_ITEM', ...said })
    .bindTool('cart.checkout', ['has_items'], { success: 'CHECKOUT', ...said })
    .bindTool('cart.pay', ['payment'], { success: 'PAY', ...said });
}
