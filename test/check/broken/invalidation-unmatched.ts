import { type BrokenGate, sound } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'invalidation-unmatched',
  place: 'policies[0].invalidates[1]',
  says: /"cart_add" makes "cart.\*" stale, and the server has no tool that it matches/,
  gate: () => sound(),
  options: {
    tools: ['cart_add', 'cart_pay', 'cart_view'],
    sync: { policies: [{ match: 'cart_add', invalidates: ['cart_view', 'cart.*'] }] },
  },
};
