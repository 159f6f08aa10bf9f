import { StateMachineGate } from '../../../src/workflow/gate.ts';
import type { BrokenGate } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'dead-end',
  place: 'paid',
  says: /a run that comes to "paid" of workflow "shop" can never leave it/,
  gate: () =>
    new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {} },
    }).bindTool('pay', 'open', 'PAY'),
};
