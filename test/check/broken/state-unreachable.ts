import { StateMachineGate } from '../../../src/workflow/gate.ts';
import type { BrokenGate } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'state-unreachable',
  place: 'refunded',
  says: /no way leads to state "refunded" of workflow "shop", so "refund_print" can never be called/,
  gate: () =>
    new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: {
        open: { on: { PAY: 'paid' } },
        paid: { type: 'final' },
        refunded: { type: 'final' },
      },
    })
      .bindTool('pay', 'open', 'PAY')
      .bindTool('refund_print', 'refunded'),
};
