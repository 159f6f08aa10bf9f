import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import type { Ledger } from '../../helpers/upstream.ts';

/*
 * The tools of a banking assistant, which do what the tools of AWS's sample do: the same accounts,
 * arguments, members of results, and failures. The sample is
 * `01-features/07-centralize-and-govern-your-ai-infrastructure/02-policy/03-temporal-policies/`
 * `bankingassistant` in github.com/awslabs/agentcore-samples (commit 5aa03fb, 2026-08-06):
 * `banking-tools/handler.py`, `portfolio-tools/handler.py`, and a `tool-schema.json` beside each.
 *
 * As there, a result is JSON in one text block, and no tool has `structuredContent` or an
 * `outputSchema`. A failure is `isError` with plain text. The gateway of the sample puts the name of
 * a target before each tool's name (`banking-tools___transfer_funds`), which is left out here.
 */

type Args = Record<string, unknown>;
type Json = Record<string, unknown>;

/** What a tool does. It returns its result, or throws a {@link Failure}. */
type Handler = (args: never) => Json;

/** A failure that a tool reports to its client. */
class Failure extends Error {}

function fail(text: string): never {
  throw new Failure(text);
}

interface Account {
  readonly owner: string;
  balance: number;
  frozen: boolean;
}

interface Transaction {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly amount: number;
  readonly ts: string;
  readonly status: string;
  readonly memo?: string;
}

interface Holding {
  readonly symbol: string;
  shares: number;
  avgCost: number;
}

interface Portfolio {
  readonly clientId: string;
  holdings: Holding[];
  cash: number;
}

const id = z.string();
const text = z.string().optional();

/** The arguments of each tool, as the sample's schemas have them. */
const INPUTS = {
  get_account_balance: { account_id: id },
  transfer_funds: { from_account: id, to_account: id, amount: z.number(), memo: text },
  get_transaction_history: { account_id: id, limit: z.int().optional() },
  freeze_account: { account_id: id, reason: text },
  unfreeze_account: { account_id: id },
  approve_transfer: { transfer_id: id, approved_by: id, notes: text },
  reject_transfer: { transfer_id: id, rejected_by: id, reason: text },
  get_client_profile: { client_id: id },
  load_portfolio: { portfolio_id: id },
  get_market_price: { symbol: id },
  execute_trade: {
    portfolio_id: id,
    symbol: id,
    action: z.string(),
    shares: z.int(),
    cost: z.number(),
  },
  rebalance_portfolio: {
    portfolio_id: id,
    target_allocations: z.array(z.object({ symbol: id, target_pct: z.number() })),
  },
  approve_trade: { trade_request_id: id, approved_by: id, notes: text },
  interact_advisor: { advisor_id: id, action: text, notes: text },
} as const;

/** The names of the sample's fourteen tools. */
export type BankingTool = keyof typeof INPUTS;

/** The bank's books and its tools. All sessions of an app share them, as in the sample. */
export interface Bank {
  readonly handlers: Readonly<Record<BankingTool, Handler>>;
}

/** A bank in which nothing has happened yet. */
export function openBank(now: () => number = Date.now): Bank {
  let ids = 100_000;
  const next = (prefix: string): string => `${prefix}-${ids++}`;
  const time = (): string => `${new Date(now()).toISOString().slice(0, 19)}Z`;
  return { handlers: { ...accounts(next, time), ...portfolios(next, time) } };
}

type NextId = (prefix: string) => string;

function accounts(next: NextId, time: () => string) {
  const book = new Map<string, Account>([
    ['ACC-1001', { owner: 'Alice Johnson', balance: 85_000, frozen: false }],
    ['ACC-2002', { owner: 'Bob Smith', balance: 12_500, frozen: false }],
    ['ACC-3003', { owner: 'Carol White', balance: 250_000, frozen: false }],
    ['ACC-4004', { owner: 'David Lee', balance: 3_400, frozen: false }],
    ['ACC-5005', { owner: 'Eve Martinez', balance: 99_000, frozen: true }],
  ]);
  const done = (n: number, from: string, to: string, amount: number, at: string): Transaction => ({
    id: `TXN-000${n}`,
    from,
    to,
    amount,
    ts: `2026-08-04T${at}:00Z`,
    status: 'completed',
  });
  const log: Transaction[] = [
    done(1, 'ACC-1001', 'ACC-2002', 500, '10:00'),
    done(2, 'ACC-3003', 'ACC-1001', 1_200, '11:30'),
    done(3, 'ACC-2002', 'ACC-4004', 300, '14:00'),
  ];
  const find = (accountId: string, what = 'Account'): Account =>
    book.get(accountId) ?? fail(`${what} ${accountId} not found`);

  return {
    get_account_balance({ account_id }: { account_id: string }) {
      const { owner, balance, frozen } = find(account_id);
      return { accountId: account_id, owner, balance, frozen, currency: 'USD', asOf: time() };
    },
    transfer_funds(args: {
      from_account: string;
      to_account: string;
      amount: number;
      memo?: string;
    }) {
      const { from_account, to_account, amount, memo = '' } = args;
      const from = find(from_account, 'Source account');
      const to = find(to_account, 'Destination account');
      if (from.frozen) fail(`Account ${from_account} is frozen`);
      if (to.frozen) fail(`Account ${to_account} is frozen`);
      if (amount <= 0) fail('Transfer amount must be positive');
      if (from.balance < amount) fail(`Insufficient funds: balance is $${from.balance.toFixed(2)}`);
      from.balance -= amount;
      to.balance += amount;
      const moved = {
        ...{ id: next('TXN'), from: from_account, to: to_account, amount, memo },
        ...{ ts: time(), status: 'completed' },
      };
      log.push(moved);
      return {
        ...{ transactionId: moved.id, status: moved.status, fromAccount: from_account },
        ...{ toAccount: to_account, amount, memo, timestamp: moved.ts },
      };
    },
    get_transaction_history({ account_id, limit = 10 }: { account_id: string; limit?: number }) {
      find(account_id);
      const transactions = log
        .filter(({ from, to }) => from === account_id || to === account_id)
        .sort((a, b) => b.ts.localeCompare(a.ts))
        .slice(0, limit);
      return { accountId: account_id, transactions, count: transactions.length };
    },
    freeze_account({ account_id, reason = '' }: { account_id: string; reason?: string }) {
      find(account_id).frozen = true;
      return { accountId: account_id, frozen: true, reason, timestamp: time() };
    },
    unfreeze_account({ account_id }: { account_id: string }) {
      find(account_id).frozen = false;
      return { accountId: account_id, frozen: false, timestamp: time() };
    },
    approve_transfer(args: { transfer_id: string; approved_by: string; notes?: string }) {
      const { transfer_id, approved_by, notes = '' } = args;
      return {
        ...{ transferId: transfer_id, status: 'approved', approvedBy: approved_by },
        ...{ notes, timestamp: time() },
      };
    },
    reject_transfer(args: { transfer_id: string; rejected_by: string; reason?: string }) {
      const { transfer_id, rejected_by, reason = '' } = args;
      return {
        ...{ transferId: transfer_id, status: 'rejected', rejectedBy: rejected_by },
        ...{ reason, timestamp: time() },
      };
    },
  };
}

const CLIENTS: Readonly<Record<string, Json>> = {
  'CLIENT-001': {
    name: 'Alice Johnson',
    riskTolerance: 'moderate',
    restrictions: ['no_tobacco', 'no_weapons'],
    portfolioIds: ['PORT-8821', 'PORT-8822'],
  },
  'CLIENT-002': {
    name: 'Bob Smith',
    riskTolerance: 'aggressive',
    restrictions: [],
    portfolioIds: ['PORT-3347'],
  },
  'CLIENT-003': {
    name: 'Carol White',
    riskTolerance: 'conservative',
    restrictions: ['esg_only'],
    portfolioIds: ['PORT-5501', 'PORT-5502'],
  },
};

/** What a share costs. The price never moves. */
export const PRICES: Readonly<Record<string, number>> = {
  ...{ AAPL: 178.5, MSFT: 335, AMZN: 3_450, GOOGL: 2_950, TSLA: 195 },
  ...{ NVDA: 520, VTI: 235, SPY: 445, QQQ: 380 },
};

const cents = (amount: number): number => Math.round(amount * 100) / 100;

function portfolios(next: NextId, time: () => string) {
  const holding = (symbol: string, shares: number, avgCost: number): Holding => ({
    symbol,
    shares,
    avgCost,
  });
  const opened = (clientId: string, cash: number, ...holdings: Holding[]): Portfolio => ({
    clientId,
    holdings,
    cash,
  });
  const shelf = new Map<string, Portfolio>([
    [
      'PORT-8821',
      opened(
        'CLIENT-001',
        12_500,
        holding('AAPL', 100, 155),
        holding('MSFT', 50, 310),
        holding('AMZN', 20, 3_200),
      ),
    ],
    ['PORT-8822', opened('CLIENT-001', 5_000, holding('GOOGL', 10, 2_800))],
    ['PORT-3347', opened('CLIENT-002', 8_000, holding('TSLA', 200, 220), holding('NVDA', 30, 450))],
    ['PORT-5501', opened('CLIENT-003', 25_000, holding('VTI', 300, 220))],
    ['PORT-5502', opened('CLIENT-003', 50_000)],
  ]);
  const find = (portfolioId: string): Portfolio =>
    shelf.get(portfolioId) ?? fail(`Portfolio ${portfolioId} not found`);
  const priceOf = (symbol: string): number => PRICES[symbol] ?? fail(`Symbol ${symbol} not found`);
  const worth = ({ symbol, shares, avgCost }: Holding): number =>
    (PRICES[symbol] ?? avgCost) * shares;
  const total = ({ holdings, cash }: Portfolio): number =>
    holdings.reduce((sum, each) => sum + worth(each), cash);
  const held = ({ holdings }: Portfolio, symbol: string): Holding | undefined =>
    holdings.find((each) => each.symbol === symbol);

  function buy(portfolio: Portfolio, symbol: string, shares: number, price: number): void {
    const cost = shares * price;
    if (portfolio.cash < cost)
      fail(`Insufficient cash: have $${portfolio.cash.toFixed(2)}, need $${cost.toFixed(2)}`);
    portfolio.cash -= cost;
    const owned = held(portfolio, symbol);
    if (owned === undefined) {
      portfolio.holdings.push(holding(symbol, shares, price));
      return;
    }
    owned.avgCost = (owned.avgCost * owned.shares + cost) / (owned.shares + shares);
    owned.shares += shares;
  }

  function sell(portfolio: Portfolio, symbol: string, shares: number, price: number): void {
    const owned = held(portfolio, symbol);
    if (owned === undefined || owned.shares < shares)
      throw new Failure(`Insufficient shares: have ${owned?.shares ?? 0}, need ${shares}`);
    owned.shares -= shares;
    portfolio.holdings = portfolio.holdings.filter((each) => each.shares > 0);
    portfolio.cash += shares * price;
  }

  return {
    get_client_profile({ client_id }: { client_id: string }) {
      const client = CLIENTS[client_id] ?? fail(`Client ${client_id} not found`);
      return { clientId: client_id, ...client, asOf: time() };
    },
    load_portfolio({ portfolio_id }: { portfolio_id: string }) {
      const portfolio = find(portfolio_id);
      const holdings = portfolio.holdings.map((each) => ({
        ...each,
        currentPrice: PRICES[each.symbol] ?? each.avgCost,
        marketValue: cents(worth(each)),
        unrealizedPnL: cents(worth(each) - each.avgCost * each.shares),
      }));
      return {
        ...{ portfolioId: portfolio_id, clientId: portfolio.clientId, holdings },
        ...{ cash: portfolio.cash, totalValue: cents(total(portfolio)), asOf: time() },
      };
    },
    get_market_price({ symbol }: { symbol: string }) {
      const name = symbol.toUpperCase();
      return { symbol: name, price: priceOf(name), currency: 'USD', asOf: time() };
    },
    /** It takes the price from its own table: `cost` is only what the caller says. */
    execute_trade(args: {
      portfolio_id: string;
      symbol: string;
      action: string;
      shares: number;
      cost: number;
    }) {
      const portfolio = find(args.portfolio_id);
      const [symbol, action] = [args.symbol.toUpperCase(), args.action.toUpperCase()];
      if (action !== 'BUY' && action !== 'SELL') fail('action must be BUY or SELL');
      const price = priceOf(symbol);
      (action === 'BUY' ? buy : sell)(portfolio, symbol, args.shares, price);
      return {
        ...{ tradeId: next('TRD'), portfolioId: args.portfolio_id, symbol, action },
        ...{ shares: args.shares, price, cost: cents(args.shares * price) },
        ...{ timestamp: time(), status: 'executed' },
      };
    },
    /** It only proposes: nothing is bought or sold. */
    rebalance_portfolio(args: {
      portfolio_id: string;
      target_allocations: { symbol: string; target_pct: number }[];
    }) {
      const portfolio = find(args.portfolio_id);
      const value = total(portfolio);
      const proposedActions = args.target_allocations.flatMap(({ symbol, target_pct }) => {
        const name = symbol.toUpperCase();
        const price = PRICES[name];
        if (price === undefined) return [];
        const target = Math.trunc((value * target_pct) / 100 / price);
        const change = target - (held(portfolio, name)?.shares ?? 0);
        const shares = Math.abs(change);
        const action = change > 0 ? 'BUY' : 'SELL';
        return change === 0
          ? []
          : [{ symbol: name, action, shares, estimatedCost: cents(shares * price) }];
      });
      return {
        ...{ rebalanceId: next('RBL'), portfolioId: args.portfolio_id },
        ...{ totalPortfolioValue: cents(value), proposedActions },
        ...{ timestamp: time(), status: 'proposed' },
      };
    },
    approve_trade(args: { trade_request_id: string; approved_by: string; notes?: string }) {
      const { trade_request_id, approved_by, notes = '' } = args;
      return {
        ...{ tradeRequestId: trade_request_id, status: 'approved', approvedBy: approved_by },
        ...{ notes, timestamp: time() },
      };
    },
    interact_advisor(args: { advisor_id: string; action?: string; notes?: string }) {
      const { advisor_id, action = 'check_in', notes = '' } = args;
      return {
        ...{ advisorId: advisor_id, action, notes, timestamp: time() },
        message: 'The interaction with the advisor is recorded.',
      };
    },
  };
}

/** An MCP server of a bank. It writes each call to the ledger. */
export function bankingServer(bank: Bank) {
  return (ledger: Ledger): McpServer => {
    const server = new McpServer({ name: 'bank', version: '1.0.0' });
    for (const [name, inputSchema] of Object.entries(INPUTS) as [BankingTool, object][])
      server.registerTool(name, { inputSchema: z.object(inputSchema as never) }, (args: Args) => {
        ledger.calls.push(name);
        return answer(bank.handlers[name] as (args: Args) => Json, args);
      });
    return server;
  };
}

function answer(handler: (args: Args) => Json, args: Args) {
  const content = (said: string) => [{ type: 'text' as const, text: said }];
  try {
    return { content: content(JSON.stringify(handler(args), null, 2)) };
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return { content: content(error.message), isError: true };
  }
}
