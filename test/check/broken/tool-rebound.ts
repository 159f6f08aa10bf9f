import { type BrokenGate, sound } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'tool-rebound',
  place: 'cart_view',
  says: /tool "cart_view" is bound again/,
  gate: () => sound().bindTool('cart_view', 'empty').bindTool('cart_view', 'full'),
};
