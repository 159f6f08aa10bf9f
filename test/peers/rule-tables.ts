import { StateMachineGate } from '../../src/index.ts';

/** A part of a rule, such as one member of `after`. */
type Part = string | { readonly [member: string]: unknown };
type Parts = Part | readonly Part[];

/** A rule as these tests write it. */
export interface RuleOfTest {
  readonly after?: Parts;
  readonly notAfter?: Parts;
  readonly limit?: Parts;
  readonly once?: boolean;
  readonly guard?: (call: { readonly args: Readonly<Record<string, unknown>> }) => boolean;
}

/** Rules by tool. */
export type RuleTable = { readonly [tool: string]: RuleOfTest };

/** One gate of all rules of a table. A result is the JSON in a text block, where a tool has one. */
export function gateOf(rules: RuleTable, id: string): StateMachineGate<string, string> {
  // Only until the types of `fromOrder()` know the words of these tables.
  const fromOrder = StateMachineGate.fromOrder as unknown as (
    rules: RuleTable,
    options: { readonly id: string; readonly results: 'text' },
  ) => StateMachineGate<string, string>;
  return fromOrder.call(StateMachineGate, rules, { id, results: 'text' });
}

const LISTS = ['after', 'notAfter', 'limit'] as const;

/** Several policies as one table: each tool has all the parts that one of them has for it. */
export function joined(policies: readonly RuleTable[]): RuleTable {
  const tools: { [tool: string]: { [list in (typeof LISTS)[number]]?: readonly Part[] } } = {};
  for (const policy of policies)
    for (const [tool, rule] of Object.entries(policy)) {
      const parts = tools[tool] ?? {};
      tools[tool] = parts;
      for (const list of LISTS)
        if (rule[list] !== undefined)
          parts[list] = [...(parts[list] ?? []), ...[rule[list]].flat()];
    }
  return tools;
}
