import { StateMachineGate } from 'mcp-interlock';

export const checkout = new StateMachineGate({
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD_ITEM: 'has_items' } },
    has_items: { on: { ADD_ITEM: 'has_items', CHECKOUT: 'payment' } },
    payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
    confirmed: { type: 'final' },
  },
})
  .bindTool('cart_add_item', ['empty', 'has_items'], 'ADD_ITEM')
  .bindTool('cart_checkout', ['has_items'], 'CHECKOUT')
  .bindTool('cart_pay', ['payment'], 'PAY');
