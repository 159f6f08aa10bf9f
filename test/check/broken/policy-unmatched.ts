import { type BrokenGate, sound } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'policy-unmatched',
  place: 'policies[0]',
  says: /the server has no tool that "cart_vew" matches/,
  gate: () => sound(),
  options: {
    tools: ['cart_add', 'cart_pay', 'cart_view'],
    sync: { policies: [{ match: 'cart_vew' }] },
  },
};
