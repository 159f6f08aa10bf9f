import { describe, expect, it, onTestFinished } from 'vitest';
import { parseWorkflows } from '../../packages/cli/src/json-gate.ts';
import { type TestGate, testGate } from '../../packages/testing/src/index.ts';
import { StateMachineGate } from '../../src/index.ts';
import { Page } from '../helpers/markdown.ts';

const page = new Page('docs/build/rules.md');
const patterns = new Page('docs/build/rule-patterns.md');

const MINUTE = 60_000;
const answer = (structuredContent: Record<string, unknown>) => ({ structuredContent });

/** Calls until one is refused, by the title of the pattern. Each one before it must succeed. */
const PATTERNS: Readonly<Record<string, (t: Player) => Promise<string>>> = {
  'A sequence': async (t) => {
    await t.may('add_item');
    await t.may('checkout');
    return t.mayNot('pay');
  },
  "A result's value reaches the argument": async (t) => {
    await t.may('find_account', { name: 'Ann' }, answer({ accountId: 'A-1' }));
    await t.may('transfer', { to: 'A-1' });
    return t.mayNot('transfer', { to: 'A-7' });
  },
  Freshness: async (t) => {
    await t.may('get_price', { symbol: 'ACME' });
    await t.may('buy', { symbol: 'ACME' });
    await t.passes(30_000);
    return t.mayNot('buy', { symbol: 'ACME' });
  },
  'A rate': async (t) => {
    for (let i = 0; i < 3; i++) await t.may('send_mail', { to: 'ann' });
    await t.passes(20 * MINUTE + 50_000);
    await t.may('send_mail', { to: 'bob' });
    return t.mayNot('send_mail', { to: 'ann' });
  },
  'A running total': async (t) => {
    await t.may('refund', { amount: 69.9 });
    await t.passes(60 * MINUTE);
    return t.mayNot('refund', { amount: 30.2 });
  },
  'An approval that is used once': async (t) => {
    await t.may('approve', { release: 'v1' });
    await t.may('deploy', { release: 'v1' });
    return t.mayNot('deploy', { release: 'v1' });
  },
  'Either, or': async (t) => {
    await t.may('approve', { id: 'T-1' });
    await t.passes(2 * MINUTE);
    await t.may('reject', { id: 'T-2' });
    return t.mayNot('reject', { id: 'T-1' });
  },
  'Trust that ends without a new check': async (t) => {
    await t.may('verify_identity');
    await t.may('read_record');
    await t.passes(10 * MINUTE);
    return t.mayNot('read_record');
  },
};

describe('the patterns of docs/build/rule-patterns.md', () => {
  it('are these', () => {
    expect([...patterns.text.matchAll(/^## (.*)$/gm)].map(([, title]) => title)).toEqual(
      Object.keys(PATTERNS),
    );
  });

  it.each(Object.entries(PATTERNS))('refuse in the words of the page: %s', async (title, play) => {
    const { rules, words } = sectionOf(title);
    const player = new Player(gateOf(`return ${rules.trim()}`));
    expect(`${await play(player)}\n`).toBe(words);
    expect(player.errors).toEqual([]);
  });

  it('have two people approve, where the rule says so', async () => {
    const rule = { tool: 'approve', times: 2, distinct: 'approver', consumes: true } as const;
    const player = new Player(StateMachineGate.fromOrder({ deploy: { after: rule } }));
    await player.may('approve', { approver: 'ann' });
    await player.may('approve', { approver: 'ann' });
    await player.mayNot('deploy');
    await player.may('approve', { approver: 'bob' });
    await player.may('deploy');
    await player.mayNot('deploy');
  });
});

describe('the bank of docs/build/rules.md', () => {
  const [code = ''] = page.blocks('ts');
  const bank = () => gateOf(`${code.replace(/^(import|const middlewares) .*$/gm, '')} return bank`);
  const balance = async (player: Player) =>
    player.may('get_balance', { account: 'A-1' }, answer({ accountId: 'A-1' }));

  it('asks for a fresh balance of the very account', async () => {
    const player = new Player(bank());
    await player.mayNot('transfer_funds', { to_account: 'A-1', amount: 1 });
    await balance(player);
    await player.mayNot('transfer_funds', { to_account: 'A-7', amount: 1 });
    await player.may('transfer_funds', { to_account: 'A-1', amount: 1 });
    expect(await player.state()).toBe('{"get_balance within 2 minutes"}');
    await player.passes(2 * MINUTE);
    await player.mayNot('transfer_funds', { to_account: 'A-1', amount: 1 });
  });

  it('asks for an approval above 10,000, and uses it up', async () => {
    const player = new Player(bank());
    await balance(player);
    const large = { to_account: 'A-1', amount: 10_001 };
    await player.may('transfer_funds', { ...large, amount: 10_000 });
    await player.mayNot('transfer_funds', large);
    await player.mayNot('transfer_funds', { ...large, amount: '15000' });
    await player.mayNot('transfer_funds', { to_account: 'A-1' });
    await player.may('approve_transfer');
    await player.may('transfer_funds', large);
    await player.mayNot('transfer_funds', large);
  });

  it('lets five transfers through in five minutes, and less than 60,000 in 24 hours', async () => {
    const player = new Player(bank());
    const one = { to_account: 'A-1', amount: 10_000 };
    await balance(player);
    for (let i = 0; i < 5; i++) await player.may('transfer_funds', one);
    await player.mayNot('transfer_funds', { ...one, amount: 1 });
    await player.passes(5 * MINUTE);
    await balance(player);
    await player.mayNot('transfer_funds', one);
    await player.may('transfer_funds', { ...one, amount: 9_999.99 });
  });

  it('keeps approval and rejection apart, cancels open orders, and closes once', async () => {
    const player = new Player(bank());
    await player.may('reject_transfer');
    await player.mayNot('approve_transfer');
    await player.may('find_order', { order_id: 7 }, answer({ status: 'shipped' }));
    await player.mayNot('cancel_order', { order_id: 7 });
    await player.may('find_order', { order_id: 7 }, answer({ status: 'open' }));
    await player.may('cancel_order', { order_id: 7 });
    await player.mayNot('close_account');
    await player.may('login_face');
    await player.may('close_account');
    await player.mayNot('close_account');
  });
});

it('consumes a checkout that is less than ten minutes old, as the README says', async () => {
  const readme = new Page('README.md');
  const [, rules = ''] = /^const gate = (.*?^}.*?\));$/ms.exec(readme.blocks('ts')[0] ?? '') ?? [];
  const player = new Player(gateOf(`return ${rules}`));
  for (const tool of ['add_item', 'checkout', 'pay']) await player.may(tool);
  // No second payment without another item.
  await player.mayNot('checkout');
  await player.mayNot('pay');
  await player.may('add_item');
  await player.may('checkout');
  await player.passes(10 * MINUTE);
  const [said = ''] = readme.text.match(/call checkout again: [^`]*/) ?? [];
  expect(await player.mayNot('pay')).toContain(said);
  await player.may('checkout');
  await player.may('pay');
});

it('takes the JSON of docs/build/rules-more.md', () => {
  const [json = ''] = new Page('docs/build/rules-more.md').blocks('json');
  const [gate] = parseWorkflows(json).gates;
  const tools = (gate as { compile(): { toolNames: readonly string[] } } | undefined)?.compile();
  expect(tools?.toolNames).toEqual(['preview_mail', 'send_mail']);
});

/** A model's calls, one after the other. */
class Player {
  readonly #gate: TestGate;

  constructor(gate: StateMachineGate) {
    this.#gate = testGate(gate);
    onTestFinished(() => this.#gate.close());
  }

  get errors(): readonly unknown[] {
    return this.#gate.errors;
  }

  async may(tool: string, args: Record<string, unknown> = {}, result?: object): Promise<void> {
    const { outcome, text } = await this.#gate.call(tool, args, result as never);
    expect(outcome, text).toBe('ok');
  }

  /** The words of the refusal. */
  async mayNot(tool: string, args: Record<string, unknown> = {}): Promise<string> {
    const { ran, text } = await this.#gate.call(tool, args);
    expect(ran, `${tool} ran`).toBe(false);
    return text;
  }

  async passes(ms: number): Promise<void> {
    await this.#gate.clock.advance(ms);
  }

  async state(): Promise<string> {
    return this.#gate.state();
  }
}

/** The rules of a section of the page, and what a model reads. */
function sectionOf(title: string): { readonly rules: string; readonly words: string } {
  const [, below = ''] = patterns.text.split(`\n## ${title}\n`);
  const [, rules = '', words = ''] = /^```ts\n(.*?)^```\n\n```\n(.*?)^```$/ms.exec(below) ?? [];
  return { rules, words };
}

function gateOf(code: string): StateMachineGate {
  return new Function('StateMachineGate', code)(StateMachineGate) as StateMachineGate;
}
