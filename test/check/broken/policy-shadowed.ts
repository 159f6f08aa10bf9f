import { type BrokenGate, sound } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'policy-shadowed',
  place: 'policies[1]',
  says: /policies\[1\] \("cart_add"\) never applies/,
  gate: () => sound(),
  options: { sync: { policies: [{ match: 'cart_*' }, { match: 'cart_add' }] } },
};
