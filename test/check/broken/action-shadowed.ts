import { createMachine } from 'xstate';
import { StateMachineGate } from '../../../src/workflow/gate.ts';
import type { BrokenGate } from './broken-gate.ts';

const machine = createMachine({
  id: 'order',
  initial: 'open',
  states: {
    open: {
      initial: 'empty',
      on: { CANCEL: { target: 'gone', actions: { type: 'refund' } } },
      states: {
        empty: { on: { ADD: 'full', CANCEL: {} } },
        full: { on: { CANCEL: '#order.gone' } },
      },
    },
    gone: { type: 'final' },
  },
});

export const broken: BrokenGate = {
  code: 'action-shadowed',
  place: 'open.full',
  says: /"open.full" takes "CANCEL" itself, so the actions that state "open" has for it are not done/,
  gate: () =>
    new StateMachineGate(machine, { onAction: () => {} })
      .bindTool('add', 'open.empty', 'ADD')
      .bindTool('cancel', 'open', 'CANCEL') as StateMachineGate,
};
