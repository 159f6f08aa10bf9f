import { type BrokenGate, sound } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'tool-name',
  place: 'cart.view',
  says: /OpenAI and Anthropic take no tool that is called "cart.view"/,
  gate: () => sound().bindTool('cart.view', 'full'),
};
