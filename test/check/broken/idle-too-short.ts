import { StateMachineGate } from '../../../src/workflow/gate.ts';
import type { BrokenGate } from './broken-gate.ts';

export const broken: BrokenGate = {
  code: 'idle-too-short',
  place: 'waiting',
  says: /waits in "waiting" for an event from outside, and is forgotten after an idleMs of 3600000 ms/,
  gate: () =>
    new StateMachineGate({
      id: 'approval',
      initial: 'open',
      states: {
        open: { on: { ASK: 'waiting' } },
        waiting: { on: { APPROVE: 'done', REJECT: 'open' } },
        done: { type: 'final' },
      },
    })
      .bindTool('ask', 'open', 'ASK')
      .bindTool('look', 'waiting'),
  options: { idleMs: 3_600_000 },
};
