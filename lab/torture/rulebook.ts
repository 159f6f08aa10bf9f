import { StateMachineGate } from '../../src/index.ts';
import type { RuleSet } from '../checker/rules.ts';

/** How much of it a run has: less than its callers want. */
export const CAPACITY = { draws: 5, spent: 3.3, paid: 1.5, charges: 6, pings: 3 } as const;
export const PING_MS = 1_500;

/** A till at which many pay, each way that a use can run out. */
export const RULEBOOK = {
  rules: {
    draw: { limit: { times: CAPACITY.draws } },
    spend: {
      limit: [
        { sum: 'amount', max: CAPACITY.spent },
        { times: 500, within: '2h' },
      ],
    },
    book: {
      after: { tool: 'look', same: ['item'], within: '1h' },
      notAfter: 'cancel',
      limit: { times: 1, same: ['item'] },
    },
    ping: { limit: { times: CAPACITY.pings, within: PING_MS } },
    approve: {},
    pay: { after: { tool: 'approve', consumes: true } },
    refund: { after: { tool: 'approve', within: '1h', consumes: true } },
    charge: { after: { tool: 'approve', consumes: true }, limit: { times: CAPACITY.charges } },
    sign: {},
    release: { after: { tool: 'sign', times: 2, distinct: 'by', consumes: true } },
    code: {},
    guess: { after: { tool: 'code', consumes: 'calls' } },
    cancel: {},
    transfer: {},
    card_payment: {},
    wire: {},
  },
  limits: [
    {
      of: [
        'transfer',
        'card_payment',
        { tool: 'wire', sum: 'total_cents', scale: '0.01', same: { account: 'from_account' } },
      ],
      sum: 'amount',
      below: CAPACITY.paid,
      within: '24h',
      same: ['account'],
    },
  ],
} as const satisfies RuleSet;

export const RULED_ID = 'rules';
/** Their steps may be repeated with their key. */
export const RETRIED: readonly string[] = ['charge'];
/** Their calls are no steps. */
export const LOOKUPS: readonly string[] = ['look'];
export const RULED_TOOLS: readonly string[] = [...Object.keys(RULEBOOK.rules), ...LOOKUPS];

export function gateOfRules(): StateMachineGate {
  const { rules, limits } = RULEBOOK;
  const gate = StateMachineGate.fromOrder(
    { ...rules, charge: { ...rules.charge, uncertain: 'retry' } },
    { id: RULED_ID, limits },
  );
  return gate as StateMachineGate<string, string, never, string>;
}
