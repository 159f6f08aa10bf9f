import { StateMachineGate } from '../../../src/workflow/gate.ts';
import type { BrokenGate } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'event-unhandled',
  place: 'pay',
  says: /tool "pay" sends "PAYS", which no state handles; did you mean "PAY"\?/,
  gate: () =>
    new StateMachineGate<string, string>({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: { type: 'final' } },
    }).bindTool('pay', 'open', 'PAYS'),
};
