import type { CheckOptions, FindingCode } from '../../../src/check/index.ts';
import { StateMachineGate } from '../../../src/workflow/gate.ts';

/** A gate with one fault, and the finding that it must have. */
export interface BrokenGate {
  readonly code: FindingCode;
  readonly place: string;
  readonly gate: () => StateMachineGate;
  readonly options?: CheckOptions;
  /** A part of the finding's message. */
  readonly says: RegExp;
}

/** A gate without a fault. */
export function sound() {
  return new StateMachineGate({
    id: 'shop',
    initial: 'empty',
    states: {
      empty: { on: { ADD: 'full' } },
      full: { on: { PAY: 'paid' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('cart_add', 'empty', 'ADD')
    .bindTool('cart_pay', 'full', 'PAY');
}
