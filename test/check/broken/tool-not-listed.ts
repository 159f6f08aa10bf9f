import { type BrokenGate, sound } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'tool-not-listed',
  place: 'cart_pay',
  says: /the server lists no tool "cart_pay", .* did you mean "card_pay"\?/,
  gate: () => sound(),
  options: { tools: ['cart_add', { name: 'card_pay' }] },
};
