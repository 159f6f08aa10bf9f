import { StateMachineGate } from '../../src/index.ts';
import type { Machine } from './evidence.ts';

/** A shop without an end, so that a run can go on for ever; it has a binding of each kind. */
export const SHOP: Machine = {
  id: 'shop',
  initial: 'empty',
  states: {
    empty: { ADD: 'filled' },
    filled: { CHECKOUT: 'payment', CLEAR: 'empty' },
    payment: { PAY: 'paid', DECLINE: 'filled' },
    paid: { RESET: 'empty' },
  },
  bindings: [
    { tool: 'cart.add', from: ['empty', 'filled'], success: 'ADD', uncertain: 'retry' },
    { tool: 'cart.checkout', from: ['filled'], success: 'CHECKOUT', uncertain: 'hold' },
    { tool: 'cart.pay', from: ['payment'], success: 'PAY', failure: 'DECLINE', uncertain: 'hold' },
    { tool: 'cart.reset', from: ['paid'], success: 'RESET', uncertain: 'retry' },
    { tool: 'cart.peek', from: ['filled', 'payment'], uncertain: 'hold' },
  ],
};

/** What the server lists: the machine's tools, and one that no gate knows. */
export const SHOP_TOOLS = [...SHOP.bindings.map(({ tool }) => tool), 'cart.view'];
/** A gate as the machine's data says. */
export function gateOf({ id, initial, states, bindings, final = [] }: Machine): StateMachineGate {
  assertMachine({ id, initial, states, bindings });
  const config = Object.fromEntries(
    Object.entries(states).map(([state, on]) => [
      state,
      final.includes(state) ? { type: 'final' as const } : { on },
    ]),
  );
  const gate = new StateMachineGate({ id, initial, states: config });
  for (const { tool, from, success, failure, uncertain, when } of bindings) {
    gate.bindTool(tool, [...from], {
      ...(success !== undefined && { success }),
      ...(failure !== undefined && { failure }),
      ...(when !== undefined && {
        when: (args: Record<string, unknown>) => args[when.argument] === when.equals,
      }),
      uncertain,
    });
  }
  return gate as StateMachineGate;
}

/** The machine's states and bindings, checked for what would make every test pass. */
export function assertMachine({ id, initial, states, bindings }: Machine): void {
  const unknown = [
    initial,
    ...bindings.flatMap(({ from }) => from),
    ...Object.values(states).flatMap((on) => Object.values(on)),
  ];
  const wrong = unknown.filter((state) => !Object.hasOwn(states, state));
  if (wrong.length > 0) throw new Error(`the machine ${id} has no state "${wrong[0]}"`);
}
