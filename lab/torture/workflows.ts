import type { Machine } from '../checker/evidence.ts';

/** What a tool may do, for the clients: they choose by it. */
export interface Rule {
  readonly workflow: 'checkout' | 'rally' | 'till';
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
  'till.pay': { workflow: 'till', from: ['open'], to: 'open', uncertain: 'hold' },
  'till.look': { workflow: 'till', from: ['open'], to: 'open', uncertain: 'hold' },
} as const satisfies Record<string, Rule>;

export type ToolName = keyof typeof RULES;
export type WorkflowName = Rule['workflow'];

export const TOOL_NAMES = Object.keys(RULES) as ToolName[];
export const INITIAL: Record<WorkflowName, string> = {
  checkout: 'empty',
  rally: 'left',
  till: 'open',
};

export function isLegal(tool: ToolName, state: string): boolean {
  const rule: Rule = RULES[tool];
  return rule.from.includes(state);
}

export function toolsOf(workflow: WorkflowName): ToolName[] {
  return TOOL_NAMES.filter((tool) => RULES[tool].workflow === workflow);
}

/** The workflow of the README; it ends after a few steps. */
const checkout: Machine = {
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { ADD_ITEM: 'has_items' },
    has_items: { CHECKOUT: 'payment', CLEAR: 'empty' },
    payment: { PAY: 'confirmed', CANCEL: 'has_items' },
    confirmed: {},
  },
  final: ['confirmed'],
  bindings: bindingsOf('checkout', {
    'cart.add_item': 'ADD_ITEM',
    'cart.checkout': 'CHECKOUT',
    'cart.pay': 'PAY',
  }),
};

/**
 * A workflow without an end, so that one run can make thousands of steps; each is legal in one
 * state only.
 */
const rally: Machine = {
  id: 'rally',
  initial: 'left',
  states: { left: { PING: 'right' }, right: { PONG: 'left' } },
  bindings: bindingsOf('rally', { 'rally.ping': 'PING', 'rally.pong': 'PONG' }),
};

/** A payment after the other, and a lookup that needs no claim. */
const till: Machine = {
  id: 'till',
  initial: 'open',
  states: { open: { PAY: 'open' } },
  bindings: bindingsOf('till', { 'till.pay': 'PAY' }),
};

export const MACHINES: Readonly<Record<WorkflowName, Machine>> = { checkout, rally, till };

function bindingsOf(workflow: WorkflowName, events: Partial<Record<ToolName, string>>) {
  return toolsOf(workflow).map((tool) => {
    const { from, uncertain }: Rule = RULES[tool];
    const success = events[tool];
    return { tool, from, uncertain, ...(success !== undefined && { success }) };
  });
}
