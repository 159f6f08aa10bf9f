import { createMachine } from 'xstate';
import { StateMachineGate } from '../../../src/workflow/gate.ts';
import type { BrokenGate } from './broken-gate.ts';

/** The same event takes both regions out of their first states, so neither leaves first. */
const machine = createMachine({
  id: 'twins',
  type: 'parallel',
  states: {
    left: { initial: 'off', states: { off: { on: { GO: 'on' } }, on: {} } },
    right: { initial: 'off', states: { off: { on: { GO: 'on' } }, on: {} } },
  },
  on: { RESET: { target: ['.left.off', '.right.off'] } },
});

export const broken: BrokenGate = {
  code: 'tool-unavailable',
  place: 'look',
  says: /"look" can never be called: .* comes to \{ all: \["left.on", "right.off"\] \}/,
  gate: () =>
    new StateMachineGate(machine)
      .bindTool('go', ['left.off', 'right.off'], 'GO')
      .bindTool('reset', 'left', 'RESET')
      .bindTool('look', { all: ['left.on', 'right.off'] }) as StateMachineGate,
};
