import { StateMachineGate } from '../../src/index.ts';

/** The checkout of the README, which most tests play. */
export function checkoutGate() {
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
    .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
    .bindTool('cart.pay', ['payment'], 'PAY');
}
