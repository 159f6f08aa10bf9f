import type { RuleTable } from '../rule-tables.ts';

/*
 * The eleven policies of AWS's banking assistant, each as rules. They stand in steps 5 and 6 of the
 * sample's `README.md`; `tools.ts` says where that is. The names are those of the sample's
 * `create-policy` commands.
 *
 * Two things are different by design.
 *
 * - The sample permits, and what no policy permits is denied. So it splits `transfer_funds` by its
 *   amount, and writes the look-up in both policies. Rules require, and their parts add up. So the
 *   look-up is written once, and holds for each amount.
 * - The sample's windows include their edge: an event of exactly two minutes ago counts. Here it
 *   counts no more. No row of the tables asks for the edge.
 *
 * The sample's limits and exclusions ask for `::request`, which is recorded before the tool runs.
 * That is `outcome: 'any'`: a call that failed counts too. Here a refused call never counts.
 */

/**
 * Step 5, policy 1: the destination must be an account that the bank named less than two minutes ago.
 */
const transfer_integrity_freshness: RuleTable = {
  transfer_funds: {
    after: {
      tool: 'get_account_balance',
      within: '2m',
      same: { to_account: { result: 'accountId' } },
    },
  },
};

/**
 * Step 5, policy 2: more than 10,000 needs an approval, and uses it up. The sample says it with
 * `since`: there any transfer, also one of a dollar, uses up all approvals before it.
 */
const approval_gate: RuleTable = {
  transfer_funds: {
    after: {
      tool: 'approve_transfer',
      within: '30m',
      consumes: true,
      when: { amount: { gt: 10_000 } },
    },
  },
};

/** Step 5, policy 3: less than 60,000 in 24 hours. */
const daily_transfer_cap: RuleTable = {
  transfer_funds: { limit: { sum: 'amount', below: 60_000, within: '24h', outcome: 'any' } },
};

/** Step 5, policy 4: at most five transfers in five minutes. */
const transfer_rate_limit: RuleTable = {
  transfer_funds: { limit: { times: 5, within: '5m', outcome: 'any' } },
};

/**
 * Step 5, policy 5, which are the two policies `mutual_exclusion_approve` and
 * `mutual_exclusion_reject`. They do not compare `transfer_id`, though the schema of
 * `reject_transfer` says so: a rejection of one transfer keeps another from being approved.
 */
const mutual_exclusion: RuleTable = {
  reject_transfer: { notAfter: { tool: 'approve_transfer', within: '5m', outcome: 'any' } },
  approve_transfer: { notAfter: { tool: 'reject_transfer', within: '5m', outcome: 'any' } },
};

/** Step 6, policy 1: the client's profile comes before the portfolio. */
const portfolio_sequence_load: RuleTable = {
  load_portfolio: { after: { tool: 'get_client_profile', within: '5m' } },
};

const OWNED = { portfolio_id: { result: 'portfolioIds' } };

/**
 * Step 6, policy 2: the portfolio must be one of the client's, and a price must be fresh. The sample
 * compares no symbol: any price will do.
 */
const portfolio_trade_integrity_freshness: RuleTable = {
  execute_trade: {
    after: [
      { tool: 'get_client_profile', within: '24h', same: OWNED },
      { tool: 'get_market_price', within: '30s' },
    ],
  },
};

const YES = { status: 'approved' };
const LARGE = { cost: { gt: 25_000 } };

/**
 * Step 6, policy 3: more than 25,000 needs an approval. The sample asks for `input.status`, but
 * `approve_trade` has no such argument: `status` is in its result. As published the policy allows no
 * such trade, against row 3 of its table.
 *
 * A trade uses its approval up also where it fails, as row 4 wants. The portfolio has 12,500 in cash,
 * so the trade of row 3 is allowed, and fails.
 */
const portfolio_approval_gate: RuleTable = {
  execute_trade: {
    after: { tool: 'approve_trade', within: '24h', result: YES, consumes: 'calls', when: LARGE },
  },
};

/**
 * Step 6, policy 4: less than 60,000 in 24 hours. A cost below zero is a loss, in rows 1 to 3 of
 * policy 5. The sample adds it too, so a loss makes room for more. Here only costs from zero on
 * count.
 */
const portfolio_budget_cap: RuleTable = {
  execute_trade: {
    limit: {
      sum: 'cost',
      below: 60_000,
      within: '24h',
      outcome: 'any',
      when: { cost: { gte: 0 } },
    },
  },
};

const PURCHASE = { tool: 'execute_trade', args: { action: 'BUY' }, outcome: 'any' };
const LOSS = { action: 'SELL', cost: { lt: 0 } };

/** Step 6, policy 5: no sale at a loss within five minutes of a purchase of the same symbol. */
const portfolio_mutual_exclusion: RuleTable = {
  execute_trade: {
    notAfter: { ...PURCHASE, within: '5m', same: ['symbol'], when: LOSS },
  },
};

/** Step 6, policy 6: the portfolio was loaded, and the advisor was asked. */
const portfolio_rebalance_trust: RuleTable = {
  rebalance_portfolio: {
    after: [
      { tool: 'load_portfolio', within: '5m' },
      { tool: 'interact_advisor', within: '15m' },
    ],
  },
};

/** The policies in the order in which the sample adds them. */
export const POLICIES = {
  transfer_integrity_freshness,
  approval_gate,
  daily_transfer_cap,
  transfer_rate_limit,
  mutual_exclusion,
  portfolio_sequence_load,
  portfolio_trade_integrity_freshness,
  portfolio_approval_gate,
  portfolio_budget_cap,
  portfolio_mutual_exclusion,
  portfolio_rebalance_trust,
} as const;

export type PolicyName = keyof typeof POLICIES;

export const POLICY_NAMES = Object.keys(POLICIES) as readonly PolicyName[];

/** The policies that are active at a stage of the sample: it, and those that came before. */
export const upTo = (stage: PolicyName): readonly RuleTable[] =>
  POLICY_NAMES.slice(0, POLICY_NAMES.indexOf(stage) + 1).map((name) => POLICIES[name]);
