import { StateMachineGate } from '../../../src/workflow/gate.ts';
import type { BrokenGate } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'event-unsent',
  place: 'CANCEL',
  says: /no tool of workflow "shop" sends "CANCEL", and nothing from outside does; "CANCELED" is sent/,
  gate: () =>
    new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: {
        open: { on: { CANCEL: 'closed', CANCELED: 'closed', TIDY: 'closed' } },
        closed: { type: 'final' },
      },
    }).bindTool('cancel', 'open', 'CANCELED'),
  options: { outside: ['TIDY'] },
};
