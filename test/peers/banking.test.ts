import { describe, expect, it } from 'vitest';
import { type Scene, type SceneClient, scene } from '../helpers/scene.ts';
import { POLICIES, POLICY_NAMES, upTo } from './banking/policies.ts';
import { bankingServer, openBank } from './banking/tools.ts';
import { type Call, SHARPER, VERDICTS, type Verdict } from './banking/verdicts.ts';
import { gateOf, joined, type RuleTable } from './rule-tables.ts';

/*
 * AWS's published sample of temporal policies, played against the same policies as rules: the same
 * tools, calls and verdicts. `banking/tools.ts` says where the sample is.
 */

const TWO_DAYS = 48 * 60 * 60 * 1_000;

/** A bank behind a gate of these policies. Longer sessions than any window of theirs. */
async function openApp(policies: readonly RuleTable[]): Promise<Scene> {
  const bank = openBank();
  return scene({
    workflow: gateOf(joined(policies), 'bank'),
    session: { idleMs: TWO_DAYS },
    makeServer: bankingServer(bank),
  });
}

const nameOf = ({ stage, row, call, refused }: Verdict): string =>
  `${stage} ${row}: ${refused === undefined ? 'allows' : 'refuses'} ${call.tool}`;

/** The names of other tools in the advice are no reason. */
const withoutAdvice = (text: string): string => text.replace(/Available now: [^.]*\./, '');

/** Plays a table from its first row on. A row has a session of its own, unless it continues one. */
async function play(app: Scene, verdicts: readonly Verdict[]): Promise<void> {
  let client: SceneClient | undefined;
  for (const verdict of verdicts) {
    if (client === undefined || verdict.continues !== true) client = await app.client();
    for (const call of verdict.first) await isAllowed(app, client, call, nameOf(verdict));
    if (verdict.refused === undefined) await isAllowed(app, client, verdict.call, nameOf(verdict));
    else await isRefused(app, client, verdict);
  }
  expect(app.errors).toEqual([]);
}

/** The gate lets the call through. The tool itself may fail, as some trades do. */
async function isAllowed(app: Scene, client: SceneClient, call: Call, row: string): Promise<void> {
  const { said, refusal, ran } = await answerOf(app, client, call);
  expect({ refusal, ran }, `${row}: ${call.tool}: ${said}`).toEqual({
    refusal: undefined,
    ran: true,
  });
}

async function isRefused(app: Scene, client: SceneClient, verdict: Verdict): Promise<void> {
  const { said, refusal, ran } = await answerOf(app, client, verdict.call);
  expect({ refusal, ran }, `${nameOf(verdict)}: ${said}`).toEqual({
    refusal: expect.objectContaining({ tool: verdict.call.tool }),
    ran: false,
  });
  expect(withoutAdvice(said), nameOf(verdict)).toMatch(verdict.refused?.naming ?? /^/);
}

async function answerOf(app: Scene, client: SceneClient, call: Call) {
  app.clock.advance(call.passes ?? 0);
  const before = app.ledger.calls.length;
  const { text, meta } = await client.raw.call(call.tool, { ...call.args });
  const ran = app.ledger.calls.slice(before).includes(call.tool);
  return { said: text, refusal: meta['mcp-interlock/refusal'], ran };
}

describe('the tables', () => {
  it('are those of the sample: 49 rows, of which 24 are denied', () => {
    expect(VERDICTS).toHaveLength(49);
    expect(VERDICTS.filter(({ refused }) => refused !== undefined)).toHaveLength(24);
    const rows = POLICY_NAMES.map((name) => VERDICTS.filter(({ stage }) => stage === name).length);
    expect(rows).toEqual([5, 5, 6, 4, 5, 3, 5, 5, 3, 4, 4]);
  });
});

describe.each(POLICY_NAMES)('with the policies up to %s', (stage) => {
  const verdicts = VERDICTS.filter((each) => each.stage === stage);

  it(`gives the ${verdicts.length} verdicts of its table`, async () => {
    await play(await openApp(upTo(stage)), verdicts);
  });

  it.each(SHARPER.filter((each) => each.stage === stage).map((each) => [nameOf(each), each]))(
    'also: %s',
    async (_, verdict) => {
      await play(await openApp(upTo(stage)), [verdict]);
    },
  );
});

describe('with all eleven policies in one gate', () => {
  it('gives the 49 verdicts, and no policy hides another', async () => {
    await play(await openApp(Object.values(POLICIES)), VERDICTS);
  }, 60_000);
});

describe('the tools', () => {
  it('answer as the sample does: JSON as text, and failures as errors', async () => {
    const app = await scene({ makeServer: bankingServer(openBank()) });
    const client = await app.client();
    const asked = async (tool: string, args: Record<string, unknown>) => {
      const { text, isError } = await client.raw.call(tool, args);
      return isError ? text : (JSON.parse(text) as Record<string, unknown>);
    };
    const move = (to_account: string, amount: number) =>
      asked('transfer_funds', { from_account: 'ACC-1001', to_account, amount });
    expect(await asked('get_account_balance', { account_id: 'ACC-2002' })).toMatchObject({
      accountId: 'ACC-2002',
      balance: 12_500,
    });
    expect(await asked('get_account_balance', { account_id: 'ACC-9' })).toBe(
      'Account ACC-9 not found',
    );
    expect(await move('ACC-5005', 1)).toBe('Account ACC-5005 is frozen');
    expect(await move('ACC-2002', 0)).toBe('Transfer amount must be positive');
    expect(await move('ACC-2002', 85_001)).toBe('Insufficient funds: balance is $85000.00');
    expect(await move('ACC-2002', 500)).toMatchObject({ status: 'completed', amount: 500 });
    expect(await asked('get_transaction_history', { account_id: 'ACC-2002' })).toMatchObject({
      count: 3,
    });
    expect(await asked('get_client_profile', { client_id: 'CLIENT-001' })).toMatchObject({
      portfolioIds: ['PORT-8821', 'PORT-8822'],
    });
    const trade = { portfolio_id: 'PORT-8821', symbol: 'aapl', action: 'buy', cost: 1 };
    expect(await asked('execute_trade', { ...trade, shares: 84 })).toBe(
      'Insufficient cash: have $12500.00, need $14994.00',
    );
    expect(await asked('execute_trade', { ...trade, shares: 2 })).toMatchObject({ cost: 357 });
    expect(await asked('approve_trade', { trade_request_id: 'T', approved_by: 'A' })).toMatchObject(
      {
        status: 'approved',
      },
    );
  });
});
