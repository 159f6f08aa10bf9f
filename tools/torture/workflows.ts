import { StateMachineGate } from '../../src/index.ts';

/** What a tool may do, written down once more and by hand: the judge must not ask the accused. */
export interface Rule {
  readonly workflow: 'checkout' | 'rally';
  /** The states in which a call may run. */
  readonly from: readonly string[];
  /** The state after a success. */
  readonly to: string;
  readonly uncertain: 'hold' | 'retry';
}

export const RULES = {
  'cart.add_item': {
    workflow: 'checkout',
    from: ['empty', 'has_items'],
    to: 'has_items',
    uncertain: 'retry',
  },
  'cart.checkout': { workflow: 'checkout', from: ['has_items'], to: 'payment', uncertain: 'hold' },
  'cart.pay': { workflow: 'checkout', from: ['payment'], to: 'confirmed', uncertain: 'retry' },
  'rally.ping': { workflow: 'rally', from: ['left'], to: 'right', uncertain: 'hold' },
  'rally.pong': { workflow: 'rally', from: ['right'], to: 'left', uncertain: 'retry' },
} as const satisfies Record<string, Rule>;

export type ToolName = keyof typeof RULES;
export type WorkflowName = Rule['workflow'];

export const TOOL_NAMES = Object.keys(RULES) as ToolName[];
export const INITIAL: Record<WorkflowName, string> = { checkout: 'empty', rally: 'left' };

/** For programs that read the name off a wire or a file. */
export function ruleOf(tool: string): Rule | undefined {
  return Object.hasOwn(RULES, tool) ? RULES[tool as ToolName] : undefined;
}

export function isLegal(tool: ToolName, state: string): boolean {
  const rule: Rule = RULES[tool];
  return rule.from.includes(state);
}

export function toolsOf(workflow: WorkflowName): ToolName[] {
  return TOOL_NAMES.filter((tool) => RULES[tool].workflow === workflow);
}

/** The workflow of the README; it ends after a few steps. */
export function checkoutGate() {
  return new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: {
      empty: { on: { ADD_ITEM: 'has_items' } },
      has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
      payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
      confirmed: { type: 'final' },
    },
  })
    .bindTool('cart.add_item', ['empty', 'has_items'], { success: 'ADD_ITEM', uncertain: 'retry' })
    .bindTool('cart.checkout', ['has_items'], { success: 'CHECKOUT', uncertain: 'hold' })
    .bindTool('cart.pay', ['payment'], { success: 'PAY', uncertain: 'retry' });
}

/** A workflow without an end, so that one run can make thousands of steps; each is legal in one state only. */
export function rallyGate() {
  return new StateMachineGate({
    id: 'rally',
    initial: 'left',
    states: { left: { on: { PING: 'right' } }, right: { on: { PONG: 'left' } } },
  })
    .bindTool('rally.ping', ['left'], { success: 'PING', uncertain: 'hold' })
    .bindTool('rally.pong', ['right'], { success: 'PONG', uncertain: 'retry' });
}
