import type { PolicyName } from './policies.ts';
import { type BankingTool, PRICES } from './tools.ts';

/*
 * The 49 verdicts of AWS's banking assistant: the tables of steps 5 and 6 of the sample's
 * `README.md`; `tools.ts` says where that is. A row of a table is a prompt, such as "check the
 * balance of ACC-2002, then transfer $500". Here it is the calls of that prompt, the last of which is
 * judged. The earlier ones are allowed.
 *
 * A table is a stage: its policy and those before it are active. "Pause more than" is one second
 * more. Trades name an amount in dollars only, so the number of shares is what that amount buys.
 *
 * Doubts about the tables, none of which changes a verdict here:
 *
 * - `portfolio_approval_gate` 3: the published policy reads `input.status`, and would deny it.
 * - `portfolio_trade_integrity_freshness` 1, and every trade that is allowed: the published policy
 *   sets the list `portfolioIds` beside the one `portfolio_id`. Dogwood's open interpreter compares
 *   them for equality (`dogwood-language/src/interpreter/eval.rs`), and would deny each trade. Here a
 *   value agrees with a list that has it.
 * - `portfolio_approval_gate` 5: the gateway of the sample ends a session after an hour
 *   (`setup.py`, `sessionTimeoutInSeconds`), so no approval is a day old in it. The row holds, but
 *   not for its reason.
 * - `portfolio_rebalance_trust` 4: after 15 minutes the portfolio is older than 5 minutes too, so the
 *   row says nothing of the advisor. `SHARPER` has the row that does.
 * - `portfolio_approval_gate` 3, `portfolio_budget_cap` 1 and others: the trades are allowed, but
 *   cost more than the cash of the portfolio, and fail. So the cap counts trades that never were.
 * - `mutual_exclusion` 2 and 3: the tool's schema speaks of the same transfer, the policies do not.
 * - `execute_trade` reads `action` and `symbol` in any case, the policies only in capitals. A `sell`
 *   passes `portfolio_mutual_exclusion`. And `cost` is what the caller says, not the price.
 */

export interface Call {
  readonly tool: BankingTool;
  readonly args: Readonly<Record<string, unknown>>;
  /** What passes before the call, in milliseconds. Default: nothing. */
  readonly passes?: number;
}

export interface Verdict {
  readonly stage: PolicyName;
  readonly row: number;
  /** Whether it goes on in the session of the row before. Default: a session of its own. */
  readonly continues?: boolean;
  /** The calls of the prompt before the one that is judged. The gate allows each of them. */
  readonly first: readonly Call[];
  /** The call that is judged. */
  readonly call: Call;
  /** Which policy refuses it, and words in the refusal that name the part. Default: it is allowed. */
  readonly refused?: { readonly by: PolicyName; readonly naming: RegExp };
}

type Refused = NonNullable<Verdict['refused']>;

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** A call that comes later than the one before. */
const later = (passes: number, call: Call): Call => ({ ...call, passes });

const balance = (account_id = 'ACC-2002'): Call => ({
  tool: 'get_account_balance',
  args: { account_id },
});
const transfer = (amount: number, to_account = 'ACC-2002'): Call => ({
  tool: 'transfer_funds',
  args: { from_account: 'ACC-1001', to_account, amount },
});
const approve = (transfer_id: string, approved_by: string): Call => ({
  tool: 'approve_transfer',
  args: { transfer_id, approved_by },
});
const reject = (transfer_id: string, reason = ''): Call => ({
  tool: 'reject_transfer',
  args: { transfer_id, rejected_by: 'ops@bank.com', reason },
});
const profile: Call = { tool: 'get_client_profile', args: { client_id: 'CLIENT-001' } };
const price = (symbol = 'AAPL'): Call => ({ tool: 'get_market_price', args: { symbol } });
const trade = (
  action: 'BUY' | 'SELL',
  cost: number,
  symbol = 'AAPL',
  owner = 'PORT-8821',
): Call => ({
  tool: 'execute_trade',
  args: {
    portfolio_id: owner,
    symbol,
    action,
    shares: Math.max(1, Math.trunc(cost / (PRICES[symbol] ?? 1))),
    cost,
  },
});
const buy = (cost: number, owner?: string): Call => trade('BUY', cost, 'AAPL', owner);
const approveTrade = (trade_request_id: string): Call => ({
  tool: 'approve_trade',
  args: { trade_request_id, approved_by: 'advisor' },
});
const load: Call = { tool: 'load_portfolio', args: { portfolio_id: 'PORT-8821' } };
const advisor: Call = { tool: 'interact_advisor', args: { advisor_id: 'ADV-1' } };
const rebalance: Call = {
  tool: 'rebalance_portfolio',
  args: { portfolio_id: 'PORT-8821', target_allocations: [{ symbol: 'AAPL', target_pct: 50 }] },
};

const refused = (by: PolicyName, naming: RegExp): { readonly refused: Refused } => ({
  refused: { by, naming },
});

const looked = refused('transfer_integrity_freshness', /get_account_balance/);
const approved = refused('approval_gate', /approve_transfer/);
const owned = refused('portfolio_trade_integrity_freshness', /get_client_profile/);
const priced = refused('portfolio_trade_integrity_freshness', /get_market_price/);
const advised = refused('portfolio_approval_gate', /approve_trade/);

type Row = Omit<Verdict, 'stage' | 'row'>;

const table = (stage: PolicyName, rows: readonly Row[]): readonly Verdict[] =>
  rows.map((row, at) => ({ stage, row: at + 1, ...row }));

const check = balance();
const fund = transfer(500);
const day = { continues: true, first: [later(70 * SECOND, check)], call: transfer(10_000) };
const small = [check, transfer(100)];
const setup = [profile, price()];
const bought = [...setup, buy(10_000)];
const loss = (symbol = 'AAPL'): Call => trade('SELL', -500, symbol);

export const VERDICTS: readonly Verdict[] = [
  ...table('transfer_integrity_freshness', [
    { first: [check], call: fund },
    {
      first: [check],
      call: transfer(500, 'ACC-9999'),
      ...refused('transfer_integrity_freshness', /to_account/),
    },
    { first: [], call: fund, ...looked },
    { first: [check], call: later(2 * MINUTE + SECOND, fund), ...looked },
    { continues: true, first: [check], call: fund },
  ]),
  ...table('approval_gate', [
    { first: [check], call: transfer(5_000) },
    { first: [check], call: transfer(15_000), ...approved },
    { first: [approve('REQ-001', 'manager@bank.com'), check], call: transfer(15_000) },
    { continues: true, first: [check], call: transfer(15_000), ...approved },
    {
      first: [approve('REQ-002', 'manager@bank.com'), later(30 * MINUTE + SECOND, check)],
      call: transfer(15_000),
      ...approved,
    },
  ]),
  // The table lets no time pass. With 70 seconds each, the rate limit allows these calls too.
  ...table('daily_transfer_cap', [
    { first: [check], call: transfer(10_000) },
    day,
    day,
    day,
    day,
    { ...day, ...refused('daily_transfer_cap', /60[,_ ]?000/) },
  ]),
  ...table('transfer_rate_limit', [
    { first: [check], call: transfer(100) },
    {
      continues: true,
      first: [...small, ...small, ...small, check],
      call: transfer(100),
    },
    {
      continues: true,
      first: [check],
      call: transfer(100),
      ...refused('transfer_rate_limit', /\b5\b.*\b5 ?m/i),
    },
    {
      continues: true,
      first: [later(5 * MINUTE + SECOND, check)],
      call: transfer(100),
    },
  ]),
  ...table('mutual_exclusion', [
    { first: [], call: approve('TRF-001', 'ops@bank.com') },
    {
      continues: true,
      first: [],
      call: reject('TRF-001', 'changed mind'),
      ...refused('mutual_exclusion', /approve_transfer/),
    },
    {
      first: [reject('TRF-002')],
      call: approve('TRF-002', 'ops@bank.com'),
      ...refused('mutual_exclusion', /reject_transfer/),
    },
    { first: [], call: approve('TRF-003', 'ops@bank.com') },
    { first: [], call: reject('TRF-004') },
  ]),
  ...table('portfolio_sequence_load', [
    { first: [], call: load, ...refused('portfolio_sequence_load', /get_client_profile/) },
    { first: [profile], call: load },
    {
      first: [profile],
      call: later(5 * MINUTE + SECOND, load),
      ...refused('portfolio_sequence_load', /get_client_profile/),
    },
  ]),
  ...table('portfolio_trade_integrity_freshness', [
    { first: setup, call: buy(15_000) },
    {
      first: setup,
      call: buy(15_000, 'PORT-3347'),
      ...refused('portfolio_trade_integrity_freshness', /portfolio_id/),
    },
    { first: [profile], call: buy(15_000), ...priced },
    { first: setup, call: later(31 * SECOND, buy(15_000)), ...priced },
    { first: [price()], call: buy(15_000), ...owned },
  ]),
  ...table('portfolio_approval_gate', [
    { first: setup, call: buy(15_000) },
    { first: setup, call: buy(30_000), ...advised },
    { first: [approveTrade('TRD-001'), ...setup], call: buy(30_000) },
    { continues: true, first: [price()], call: buy(30_000), ...advised },
    {
      first: [approveTrade('TRD-002'), later(24 * HOUR + SECOND, profile), price()],
      call: buy(30_000),
      ...advised,
    },
  ]),
  ...table('portfolio_budget_cap', [
    { first: setup, call: buy(20_000) },
    { continues: true, first: [price()], call: buy(20_000) },
    {
      continues: true,
      first: [price()],
      call: buy(20_000),
      ...refused('portfolio_budget_cap', /60[,_ ]?000/),
    },
  ]),
  ...table('portfolio_mutual_exclusion', [
    { first: bought, call: loss(), ...refused('portfolio_mutual_exclusion', /symbol/) },
    { first: [...bought, later(5 * MINUTE + SECOND, profile), price()], call: loss() },
    { first: bought, call: loss('MSFT') },
    { first: bought, call: trade('SELL', 500) },
  ]),
  ...table('portfolio_rebalance_trust', [
    { first: [profile, load, advisor], call: rebalance },
    {
      first: [profile, load],
      call: rebalance,
      ...refused('portfolio_rebalance_trust', /interact_advisor/),
    },
    {
      first: [profile, advisor],
      call: rebalance,
      ...refused('portfolio_rebalance_trust', /load_portfolio/),
    },
    {
      first: [profile, load, advisor],
      call: later(15 * MINUTE + SECOND, rebalance),
      ...refused('portfolio_rebalance_trust', /interact_advisor|load_portfolio/),
    },
  ]),
];

/** Rows that are not the sample's, where a row of the sample does not show what it says. */
export const SHARPER: readonly Verdict[] = [
  {
    ...{ stage: 'portfolio_rebalance_trust', row: 5 },
    first: [advisor, later(15 * MINUTE + SECOND, profile), load],
    call: rebalance,
    ...refused('portfolio_rebalance_trust', /interact_advisor/),
  },
  {
    // The trade that failed used the first approval up. The second one allows another trade.
    ...{ stage: 'portfolio_approval_gate', row: 6 },
    first: [approveTrade('TRD-003'), ...setup, buy(30_000), approveTrade('TRD-004'), price()],
    call: buy(29_000),
  },
  {
    // A small transfer leaves the approval; in the sample it uses it up.
    ...{ stage: 'approval_gate', row: 6 },
    first: [approve('REQ-003', 'manager@bank.com'), check, fund, check],
    call: transfer(15_000),
  },
];
