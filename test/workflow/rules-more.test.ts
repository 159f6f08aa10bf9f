import { describe, expect, it, onTestFinished } from 'vitest';
import { NO_ANSWER, type TestGate, testGate } from '../../packages/testing/src/index.ts';
import { type OrderRules, StateMachineGate } from '../../src/index.ts';
import { readerOf } from '../../src/workflow/condition.ts';
import { callWith } from '../../src/workflow/own-call.ts';
import { Page } from '../helpers/markdown.ts';

/** A model's calls, one after the other. */
class Player {
  readonly gate: TestGate;

  constructor(rules: OrderRules | StateMachineGate, options: object = {}) {
    const more = { id: 'more', ...options } as never;
    const isGate = rules instanceof StateMachineGate;
    const gate = isGate ? rules : StateMachineGate.fromOrder(rules, more);
    this.gate = testGate(gate as StateMachineGate);
    onTestFinished(() => this.gate.close());
  }

  async may(tool: string, args: Record<string, unknown> = {}, result: object = {}): Promise<void> {
    const answer = { structuredContent: result } as never;
    const { outcome, text } = await this.gate.call(tool, args, answer);
    expect(outcome, text).toBe('ok');
  }

  /** The words of the refusal. */
  async mayNot(tool: string, args: Record<string, unknown> = {}): Promise<string> {
    const { ran, text } = await this.gate.call(tool, args);
    expect(ran, `${tool} ran`).toBe(false);
    return text;
  }

  async fails(tool: string, answer: unknown, args: Record<string, unknown> = {}): Promise<void> {
    const { ran, outcome } = await this.gate.call(tool, args, answer as never);
    expect(ran).toBe(true);
    expect(outcome).not.toBe('ok');
  }
}

describe("same: 'all'", () => {
  it('lets an approval through for just the arguments that were approved', async () => {
    const player = new Player({ pay: { after: { tool: 'approve', same: 'all' } }, approve: {} });
    await player.may('approve', { to: 'ann', amount: 5 });
    const words = await player.mayNot('pay', { to: 'ann', amount: 5, urgent: true });
    expect(words).toContain('call approve with the same arguments first');
    await player.mayNot('pay', { to: 'ann' });
    await player.mayNot('pay', { to: 'ann', amount: '5' });
    await player.may('pay', { amount: 5, to: 'ann' });
  });

  it('keeps apart calls that differ, in notAfter and in a limit', async () => {
    const player = new Player({
      pay: { notAfter: { tool: 'reject', same: 'all' }, limit: { times: 1, same: 'all' } },
    });
    await player.may('reject', { id: 1 });
    await player.mayNot('pay', { id: 1 });
    await player.may('pay', { id: 2 });
    expect(await player.mayNot('pay', { id: 2 })).toContain('at most 1 for each set of arguments');
    await player.may('pay', { id: 2, note: 'again' });
  });
});

describe("outcome: 'any'", () => {
  const invalid = Object.assign(new Error('Invalid arguments'), { code: -32602 });
  const words = {
    isError: true,
    content: [{ type: 'text', text: 'MCP error -32602: Input validation error: x' }],
  };

  it.each([
    ['the error -32602', invalid],
    ['its words, as newer servers of the SDK do', words],
  ])('needs a call that was not answered with %s', async (_, answer) => {
    const player = new Player({ refund: { after: { tool: 'check', outcome: 'any' } } });
    await player.fails('check', answer);
    await player.mayNot('refund');
    await player.fails('check', { isError: true, content: [{ type: 'text', text: 'no' }] });
    await player.may('refund');
  });

  it('counts such a call for a limit and for notAfter', async () => {
    const player = new Player({
      check: { limit: { times: 1, outcome: 'any' } },
      calm: { notAfter: { tool: 'check', outcome: 'any' } },
      retry: { after: { tool: 'check', outcome: 'failed' } },
    });
    await player.fails('check', invalid);
    await player.mayNot('check');
    await player.mayNot('calm');
    await player.may('retry');
  });
});

describe('fold', () => {
  const to = { to: { args: 'to', fold: ['space', 'case'] } } as const;

  it('counts spellings of an address as one, which are two without it', async () => {
    const folded = new Player({ mail: { limit: { times: 2, same: to } } });
    await folded.may('mail', { to: 'a@x' });
    await folded.may('mail', { to: 'A@x' });
    await folded.mayNot('mail', { to: ' a@x ' });
    await folded.may('mail', { to: 'b@x' });
    const plain = new Player({ mail: { limit: { times: 1, same: ['to'] } } });
    await plain.may('mail', { to: 'a@x' });
    await plain.may('mail', { to: 'A@x' });
  });

  it('folds both sides of `same`, members of lists, and what must differ', async () => {
    const player = new Player({
      pay: {
        after: [
          { tool: 'look', same: { to: { result: 'name', fold: ['case', 'nfkc', 'space'] } } },
          { tool: 'approve', times: 2, distinct: { args: 'by', fold: ['case'] } },
        ],
      },
    });
    await player.may('look', {}, { name: ['Ann  Lee', '\uff22ob'] });
    await player.may('approve', { by: 'ann' });
    await player.may('approve', { by: 'ANN' });
    await player.mayNot('pay', { to: 'ann lee' });
    await player.may('approve', { by: 'bob' });
    await player.may('pay', { to: ' ANN LEE' });
    await player.may('pay', { to: ['bob', 'Ann Lee'] });
    await player.mayNot('pay', { to: 'annlee' });
  });

  it('refuses what is no fold', () => {
    const order = (fold: unknown) => () =>
      StateMachineGate.fromOrder({
        a: { limit: { times: 1, same: { b: { args: 'b', fold } } } },
      } as never);
    expect(order(['upper'])).toThrow(/fold: expected a list of space, nfkc, case/);
    expect(order([])).toThrow(/fold/);
  });
});

describe('a limit over several tools', () => {
  const limits = [
    {
      of: [
        'transfer',
        'card_payment',
        { tool: 'wire', sum: 'total_cents', scale: '0.01', same: { account: 'from_account' } },
      ],
      sum: 'amount',
      below: 60_000,
      within: '1h',
      same: ['account'],
    },
  ];

  it('adds up what all of them spend, each in its unit and under its names', async () => {
    const player = new Player({ transfer: {} }, { limits });
    await player.may('transfer', { account: 'a', amount: 30_000 });
    await player.may('wire', { from_account: 'a', total_cents: 1_999_999 });
    const words = await player.mayNot('card_payment', { account: 'a', amount: 10_000.01 });
    expect(words).toContain(
      'amount together with transfer and wire may add up to less than 60000 for each account in ' +
        '1 hour, and less than 10000.01 is left',
    );
    await player.may('card_payment', { account: 'b', amount: 59_999 });
    await player.may('card_payment', { account: 'a', amount: 10_000 });
    await player.mayNot('wire', { from_account: 'a', total_cents: 1 });
    expect(await player.mayNot('wire', { from_account: 'a' })).toContain('"total_cents"');
    await player.gate.clock.advance(3_600_000);
    await player.may('wire', { from_account: 'a', total_cents: 5_999_999 });
  });

  it('counts calls, takes a condition for one tool, and leaves the lists together', async () => {
    const rules = { a: {}, b: {}, c: {} };
    const of = ['a', { tool: 'b', when: { large: true } }];
    const player = new Player(rules, { limits: [{ of, times: 2 }] });
    await player.may('b', { large: false });
    await player.may('b', { large: true });
    expect(await player.gate.list()).toEqual(['a', 'b', 'c']);
    await player.may('a');
    await player.mayNot('b', { large: true });
    await player.may('b', { large: false });
    expect(await player.gate.list()).toEqual(['b', 'c']);
  });

  it('counts a call of unknown outcome, and makes each tool a step', async () => {
    const player = new Player({ done: {} }, { limits: [{ of: ['a', 'b'], times: 1 }] });
    const { outcome } = await player.gate.call('a', {}, NO_ANSWER);
    expect(outcome).toBe('unknown');
    await player.mayNot('b');
    await player.gate.resolve('failed');
    await player.may('b');
    await player.mayNot('a');
  });

  it('stands on a machine, and says what is wrong with it', async () => {
    const machine = { id: 'm', initial: 'on', states: { on: {} } } as const;
    const gate = new StateMachineGate(machine, { limits: [{ of: ['a', 'b'], times: 2 }] });
    gate.bindTool('a', 'on').bindTool('b', 'on');
    const t = testGate(gate);
    onTestFinished(() => t.close());
    for (const tool of ['a', 'b']) expect((await t.call(tool)).ran).toBe(true);
    for (const tool of ['a', 'b']) expect((await t.call(tool)).ran).toBe(false);
    const bare = new StateMachineGate(machine, { limits: [{ of: ['a', 'b'], times: 2 }] });
    expect(() => bare.bindTool('a', 'on').compile()).toThrow(/limits: "b" is not bound/);
  });

  it.each([
    [{ of: ['a', 'a'], times: 1 }, /stands there twice/],
    [{ of: [], times: 1 }, /of/],
    [{ of: ['a'], sum: 'x', max: 1, same: ['k'], when: {} }, /when/],
    [{ of: [{ tool: 'a', scale: 0.1 }], sum: 'x', max: 1 }, /scale: expected a decimal text/],
    [{ of: [{ tool: 'a', same: { z: 'y' } }], sum: 'x', max: 1 }, /does not name "z"/],
  ])('is refused where it means nothing: %j', (limit, words) => {
    expect(() => new Player({ a: {} }, { limits: [limit] })).toThrow(words);
  });
});

describe('amounts against amounts', () => {
  it('lets a quote bound a payment, by one quote and exactly', async () => {
    const quote = { tool: 'quote', same: ['order'], atMost: { amount: { result: 'quoted' } } };
    const player = new Player({ pay: { after: quote } });
    await player.may('quote', { order: 1 }, { quoted: 0.3 });
    await player.may('quote', { order: 1 }, { quoted: 0.2 });
    await player.may('quote', { order: 2 }, { quoted: 'five' });
    await player.may('pay', { order: 1, amount: 0.3 });
    const words = await player.mayNot('pay', { order: 1, amount: 0.300001 });
    expect(words).toContain('amount must be at most a quoted that quote returned');
    await player.mayNot('pay', { order: 2, amount: 1 });
    await player.mayNot('pay', { order: 1 });
    await player.mayNot('pay', { order: 1, amount: -1 });
  });

  const refund = {
    after: { tool: 'capture', same: { booking: 'booking_id' } },
    limit: {
      sum: { path: 'amount', text: true },
      max: {
        sum: { result: 'captured', text: true },
        of: 'capture',
        same: { booking: 'booking_id' },
      },
      same: ['booking'],
    },
  } as const;

  it('lets refunds through up to what was captured, by booking', async () => {
    const player = new Player({ refund, capture: { undoneBy: 'void' } });
    await player.may('capture', { booking_id: 1 }, { captured: '300.00' });
    await player.may('capture', { booking_id: 1 }, { captured: '200.00' });
    await player.may('capture', { booking_id: 2 }, { captured: 'some' });
    await player.may('refund', { booking: 1, amount: '95.00' });
    const words = await player.mayNot('refund', { booking: 1, amount: 405.01 });
    expect(words).toContain('at most 405.00');
    await player.mayNot('refund', { booking: 2, amount: 1 });
    await player.mayNot('refund', { booking: 3, amount: 1 });
    await player.mayNot('refund', { booking: 1, amount: -1 });
    await player.may('refund', { booking: 1, amount: 405 });
    await player.mayNot('refund', { booking: 1, amount: 0.01 });
    await player.may('void');
    await player.mayNot('refund', { booking: 1, amount: 0 });
  });

  it('keeps a total for each booking, not each call', () => {
    const workflow = StateMachineGate.fromOrder({ refund, capture: {} }).compile();
    const { rules } = workflow;
    let position = workflow.start;
    const done = (tool: string, at: number, told: object): void => {
      const call = rules.reportedCall(tool, 'run', at, told);
      if (call !== undefined) position = rules.decided(position, call);
    };
    for (let at = 1; at <= 3_000; at++) {
      done('capture', at, { args: { booking_id: at % 3 }, result: { captured: '0.30' } });
      done('refund', at, { args: { booking: at % 3, amount: 0.1 } });
    }
    const facts = rules.ledger?.read(position);
    expect(facts?.of('capture').facts.length).toBeLessThanOrEqual(7);
    expect(facts?.of('refund').facts.length).toBeLessThanOrEqual(7);
    const allows = (amount: number): boolean | undefined => {
      const own = callWith(readerOf({ booking: 1, amount }), 'run');
      const binding = workflow.matchAlways('refund');
      const past = rules.pastOf(position, 3_001);
      return binding && rules.judge(binding, past, own)?.allows;
    };
    expect([allows(200), allows(200.01)]).toEqual([true, false]);
  });

  it('counts no capture of unknown outcome, and a refund of unknown outcome in full', async () => {
    const player = new Player({ refund, capture: { uncertain: 'retry' } });
    await player.may('capture', { booking_id: 1 }, { captured: 100 });
    await player.gate.call('capture', { booking_id: 1 }, NO_ANSWER);
    await player.mayNot('refund', { booking: 1, amount: 101 });
    await player.gate.call('refund', { booking: 1, amount: 60 }, NO_ANSWER);
    await player.gate.resolve('succeeded');
    await player.mayNot('refund', { booking: 1, amount: 41 });
    await player.may('refund', { booking: 1, amount: 40 });
  });

  it('takes the result of a call whose answer was lost', async () => {
    const player = new Player({ refund, capture: {} });
    await player.gate.call('capture', { booking_id: 1 }, NO_ANSWER);
    await player.gate.resolve('succeeded', { result: { captured: '80.00' } });
    await player.mayNot('refund', { booking: 1, amount: 80.01 });
    await player.may('refund', { booking: 1, amount: 80 });
  });

  it('knows what bounds a sum, also of a tool without a rule, and on a machine', async () => {
    const max = { sum: { result: 'paid' }, of: 'charge' };
    const player = new Player({ give: { limit: { sum: 'amount', max } } });
    await player.may('charge', {}, { paid: 5 });
    await player.may('give', { amount: 5 });
    await player.mayNot('give', { amount: 1 });
    const machine = { id: 'm', initial: 'on', states: { on: {} } } as const;
    const gate = new StateMachineGate(machine).bindTool('charge', 'on');
    gate.bindTool('give', 'on', { limit: { sum: 'amount', max } });
    const onMachine = new Player(gate as never);
    await onMachine.mayNot('give', { amount: 1 });
    await onMachine.may('charge', {}, { paid: 5 });
    await onMachine.may('give', { amount: 5 });
    await onMachine.mayNot('give', { amount: 1 });
  });

  it('takes negative amounts where the rule says so', async () => {
    const sum = { path: 'amount', negative: true };
    const player = new Player({ move: { limit: { sum, max: 10 } } });
    await player.may('move', { amount: 10 });
    await player.mayNot('move', { amount: 0.5 });
    await player.may('move', { amount: -2 });
    await player.may('move', { amount: 1.5 });
    await player.mayNot('move', { amount: 0.51 });
  });
});

describe('docs/build/rules-more.md', () => {
  const page = new Page('docs/build/rules-more.md');

  /** Calls until one is refused, by the title of the policy. Each one before it must succeed. */
  const policies: Readonly<Record<string, (t: Player) => Promise<string>>> = {
    'Folded addresses': async (t) => {
      await t.may('send_mail', { to: 'a@x' });
      await t.may('send_mail', { to: ' A@x' });
      await t.may('send_mail', { to: 'b@x' });
      return t.mayNot('send_mail', { to: '\uff21@x' });
    },
    'A combined limit in two units': async (t) => {
      await t.may('transfer', { account: 'a', amount: 30_000 });
      await t.may('wire', { from_account: 'a', total_cents: 1_999_999 });
      await t.may('card_payment', { account: 'b', amount: 59_999 });
      return t.mayNot('card_payment', { account: 'a', amount: 10_000.01 });
    },
    'A quote that bounds a payment': async (t) => {
      await t.may('get_quote', { order_id: 1 }, { quoted: 12.5 });
      await t.may('get_quote', { order_id: 1 }, { quoted: 10 });
      await t.may('pay', { order_id: 1, amount: 12.5 });
      return t.mayNot('pay', { order_id: 1, amount: 10.01 });
    },
    'Refunds within captures': async (t) => {
      await t.may('capture', { booking_id: 1 }, { captured: '300.00' });
      await t.may('capture', { booking_id: 1 }, { captured: '200.00' });
      await t.gate.call('refund', { booking: 1, amount: '95.00' }, NO_ANSWER);
      await t.mayNot('refund', { booking: 1, amount: '1.00' });
      await t.gate.resolve('succeeded');
      return t.mayNot('refund', { booking: 1, amount: '405.01' });
    },
  };

  it.each(Object.entries(policies))('says what a model reads: %s', async (title, play) => {
    const [, below = ''] = page.text.split(`\n## ${title}\n`);
    const [, rules = '', words = ''] = /^```ts\n(.*?)^```\n\n```\n(.*?)^```$/ms.exec(below) ?? [];
    const gate = new Function('StateMachineGate', `return ${rules.trim()}`)(StateMachineGate);
    expect(`${await play(new Player(gate as StateMachineGate))}\n`).toBe(words);
  });
});
