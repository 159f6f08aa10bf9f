import type { StateMachineGate as PublishedGate } from 'mcp-interlock';
import { checkWorkflow as checkPublished, workflowGraph } from 'mcp-interlock-check';
import { describe, expect, it } from 'vitest';
import { bookingGate } from '../../examples/booking/booking.ts';
import { approval } from '../../examples/custom-store/app.ts';
import { EVENTS_OF, orderGate } from '../../examples/order-approval/workflow.ts';
import { report } from '../../examples/proxy-gate/gate.ts';
import { checkout } from '../../examples/vercel/lib/checkout.ts';
import { seeded } from '../../lab/checker/random.ts';
import { randomRules } from '../../lab/checker/rules-random.ts';
import {
  checkWorkflow,
  FINDING_CODES,
  type Finding,
  type Findings,
} from '../../packages/check/src/index.ts';
import { testGate } from '../../packages/testing/src/index.ts';
import { handleKey, principalKey, sessionKey } from '../../src/session/run-key.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { orderMachine } from '../workflow/charts.ts';
import { BROKEN_GATES, sound } from './broken-gates.ts';

/** The findings, and what is only worth knowing. Most gates of these tests have no id. */
function told(findings: Findings, about?: string): readonly Finding[] {
  const all = [...findings, ...findings.notes];
  return all.filter(({ code }) => code !== 'gate-unnamed' || code === about);
}

describe('a gate with a single fault', () => {
  it('exists for each code', () => {
    expect(BROKEN_GATES.map(({ code }) => code).sort()).toEqual(Object.keys(FINDING_CODES).sort());
  });

  it.each(BROKEN_GATES)('has only the finding $code at $place', ({ gate, options, ...fault }) => {
    const findings = told(checkWorkflow(gate(), options), fault.code);
    expect(findings.map(({ code, place }) => ({ code, place }))).toEqual([
      { code: fault.code, place: fault.place },
    ]);
    const [{ message, remedy, severity } = { message: '', remedy: '', severity: '' }] = findings;
    expect(message).toMatch(fault.says);
    expect(remedy).toMatch(/^[A-Z].*\.$/);
    expect(severity).toBe(FINDING_CODES[fault.code]);
  });

  it.each(BROKEN_GATES)(
    'can have $code ignored, everywhere or in one place',
    ({ gate, options, code, place }) => {
      const ignoring = (entry: string) =>
        told(checkWorkflow(gate(), { ...options, ignore: [entry] }), code);
      expect(ignoring(code)).toEqual([]);
      expect(ignoring(`${code}:${place}`)).toEqual([]);
      expect(ignoring(`${code}:elsewhere`)).toHaveLength(1);
    },
  );
});

describe('an honest gate', () => {
  const examples: readonly (readonly [string, PublishedGate, readonly string[]])[] = [
    ['booking', bookingGate({ isFree: async () => true } as never), []],
    ['approval', approval, []],
    ['order', orderGate(), Object.values(EVENTS_OF).flat()],
    ['report', report, []],
    ['checkout', checkout, ['CANCEL']],
  ];

  it.each(examples)('has no finding: %s of the examples', (_, gate, outside) => {
    expect(checkPublished(gate)).toEqual([]);
    const bound = workflowGraph(gate).tools.map(({ name }) => name);
    const tools = [...bound, 'get-structured-content'];
    const policies = [{ match: 'get-structured-content', invalidates: ['get-*'] }];
    const more = { tools, sync: { policies }, outside, idleMs: 86_400_000 };
    expect(checkPublished(gate, more)).toEqual([]);
  });

  it('has no finding: a statechart with regions, history and guards', () => {
    const gate = new StateMachineGate(orderMachine, { onAction: () => {} })
      .bindTool('pay', 'placed.billing.due', 'PAID')
      .bindTool('pack', { all: ['placed.packing.waiting', 'placed.billing.settled'] }, 'PACK');
    expect(checkWorkflow(gate)).toEqual([]);
  });

  it('may have deadlines, wait for people, and let a function choose its event', () => {
    const gate = new StateMachineGate({
      initial: 'asked',
      states: {
        asked: { on: { YES: 'done', NO: 'gone' }, after: { 5000: 'late' } },
        done: { type: 'final' },
        gone: { type: 'final' },
        late: { type: 'final' },
      },
    }).bindTool('answer', 'asked', { success: ({ args }) => (args.yes === true ? 'YES' : 'NO') });
    expect(checkWorkflow(gate, { outside: [], idleMs: 10_000 })).toEqual([]);
    expect(checkWorkflow(gate, { idleMs: 5000 })).toMatchObject([
      { code: 'idle-too-short', place: 'asked', remedy: expect.stringContaining('more than 5000') },
    ]);
  });
});

describe('checkWorkflow()', () => {
  it('says of each tool whether it is a step, recorded or free', () => {
    const rules = {
      pay: { after: ['checkout', 'look', 'quote'] },
      checkout: {},
      quote: { step: false },
      draft: { after: 'look', step: false },
    } as const;
    const tools = ['pay', 'checkout', 'quote', 'draft', 'look'].map((name) => ({ name }));
    const found = checkWorkflow(StateMachineGate.fromOrder(rules), { tools });
    // Only the tool without a word of its author may be no step by mistake.
    expect(found.map(({ code, place }) => [code, place])).toEqual([['tool-no-step', 'look']]);
    const kinds = found.tools.map(({ tool, kind }) => `${tool}: ${kind}`);
    expect(kinds.sort()).toEqual([
      'checkout: step',
      'draft: free',
      'look: recorded',
      'pay: step',
      'quote: recorded',
    ]);
    const machine = sound().bindTool('cart_view', 'full');
    expect(checkWorkflow(machine).tools).toEqual([
      { tool: 'cart_add', kind: 'step' },
      { tool: 'cart_pay', kind: 'step' },
      { tool: 'cart_view', kind: 'free' },
    ]);
  });

  it('changes nothing in the gate', () => {
    const gate = sound();
    checkWorkflow(gate);
    expect(() => gate.bindTool('cart_view', 'full')).not.toThrow();
  });

  it('refuses an unknown code and an unknown event, and names the right ones', () => {
    expect(() => checkWorkflow(sound(), { ignore: ['dead-ends:paid'] })).toThrow(
      /ignore: "dead-ends:paid" begins with no code; did you mean "dead-end"\?/,
    );
    expect(() => checkWorkflow(sound(), { outside: ['PYA'] })).toThrow(/did you mean "PAY"\?/);
    const wrong = { tool: [] } as object;
    expect(() => checkWorkflow(sound(), wrong)).toThrow(/unknown key "tool", did you mean "tools"/);
  });
});

describe('rules and limits', () => {
  type Rules = Parameters<typeof StateMachineGate.fromOrder>[0];
  const codes = (rules: Rules, options: Parameters<typeof checkWorkflow>[1] = {}) =>
    told(checkWorkflow(StateMachineGate.fromOrder(rules), options)).map(
      ({ code, place }) => `${code}:${place}`,
    );

  it.each<[why: string, rules: Rules]>([
    ['once', { a: { once: true }, b: { after: { tool: 'a', times: 2 } } }],
    ['a limit of none', { a: { limit: { times: 0 } }, b: { after: 'a' } }],
    [
      'a wider window',
      {
        a: { limit: { times: 1, within: '2h', outcome: 'any' } },
        b: { after: { tool: 'a', times: 2, within: '1h' } },
      },
    ],
    ['what it needs', { a: {}, b: { after: ['a', 'c'], notAfter: 'a' } }],
    [
      'what it needs, for as long',
      { b: { after: { tool: 'a', within: '1m' }, notAfter: { tool: 'a', within: '5m' } } },
    ],
    [
      'each alternative',
      { a: {}, c: {}, b: { after: { any: ['a', { all: ['c', 'd'] }] }, notAfter: ['a', 'c'] } },
    ],
  ])('can never be met because of %s', (_, rules) => {
    expect(codes(rules)).toContain('rule-unmeetable:b');
  });

  it.each<[why: string, rules: Rules, options?: Parameters<typeof checkWorkflow>[1]]>([
    [
      'the window of the limit is shorter',
      {
        a: { limit: { times: 1, within: '1h', outcome: 'any' } },
        b: { after: { tool: 'a', times: 2 } },
      },
    ],
    [
      'the limit is for each value',
      {
        a: { limit: { times: 1, same: ['x'], outcome: 'any' } },
        b: { after: { tool: 'a', times: 2 } },
      },
    ],
    [
      'a use makes room',
      {
        a: { once: true },
        b: { after: { tool: 'a', times: 2 } },
        c: { after: { tool: 'a', consumes: 'calls' } },
      },
    ],
    [
      'another call counts as it',
      {
        a: { limit: { times: 0 } },
        b: { after: 'a' },
        c: { failure: 'a' },
      },
    ],
    ['the app tells of it', { a: { limit: { times: 0 } }, b: { after: 'a' } }, { outside: ['a'] }],
    ['the other one is older', { b: { after: 'a', notAfter: { tool: 'a', within: '5m' } } }],
    ['only some calls are barred', { b: { after: 'a', notAfter: { tool: 'a', same: ['x'] } } }],
    ['an alternative is left', { b: { after: { any: ['a', 'c'] }, notAfter: 'a' } }],
    ['only some calls need it', { b: { after: { tool: 'a', when: { x: 1 } }, notAfter: 'a' } }],
    [
      'the other outcome bars it',
      { b: { after: 'a', notAfter: { tool: 'a', outcome: 'failed' } } },
    ],
  ])('may be met because %s', (_, rules, options) => {
    expect(codes(rules, options)).toEqual([]);
  });

  it('that can never be met let no call through, in any run of any rules', async () => {
    let found = 0;
    for (let seed = 0; seed < 400 && found < 15; seed++) {
      const { rules, needs = {} } = randomRules(seeded(seed, 'findings'));
      let gate: StateMachineGate;
      try {
        gate = StateMachineGate.fromOrder(rules as never, { needs } as never) as never;
      } catch {
        continue;
      }
      const never = checkWorkflow(gate).filter(({ code }) => code === 'rule-unmeetable');
      if (never.length === 0) continue;
      found++;
      const closed = never.map(({ place }) => place);
      const tools = gate.clone().compile().toolNames;
      const { pick, chance, between } = seeded(seed, 'play');
      const t = testGate(gate);
      for (let made = 0; made < 25; made++) {
        if (chance(0.2)) await t.clock.advance(pick([1_000, 60_000]));
        const tool = chance(0.4) ? pick(closed) : pick(tools);
        const { ran } = await t.call(
          tool,
          { id: between(1, 2), kind: pick(['a', 'b']), amount: 0.1, tags: ['x'], deep: { a: 1 } },
          { content: [], structuredContent: { id: 1, status: 'open' }, isError: chance(0.2) },
        );
        if (closed.includes(tool)) expect(ran).toBe(false);
      }
      await t.close();
    }
    expect(found).toBeGreaterThan(4);
  }, 60_000);

  it('know the least amount of a schema', () => {
    const least = (schema: object, limit: object) =>
      codes({ pay: { limit: { sum: 'amount', ...limit } } } as Rules, {
        tools: [{ name: 'pay', inputSchema: { properties: { amount: schema } } }],
      });
    expect(least({ minimum: 10 }, { max: 9.99 })).toEqual(['limit-too-low:pay']);
    expect(least({ minimum: 10 }, { max: 10 })).toEqual([]);
    expect(least({ minimum: 10 }, { below: 10 })).toEqual(['limit-too-low:pay']);
    expect(least({ exclusiveMinimum: 10 }, { max: 10 })).toEqual(['limit-too-low:pay']);
    expect(least({ minimum: 1, exclusiveMinimum: 0 }, { max: 1 })).toEqual([]);
    expect(least({ type: 'number' }, { max: 0 })).toEqual([]);
    expect(least({ minimum: 10 }, { max: 1, when: { kind: 'gift' } })).toEqual([]);
  });

  it('know what names runs', () => {
    const rules: Rules = { a: { notAfter: { tool: 'b', within: '1m' } }, c: { after: 'b' } };
    expect(codes(rules)).toEqual([]);
    expect(codes(rules, { key: principalKey() })).toEqual([]);
    expect(codes(rules, { key: [principalKey(), sessionKey()] })).toEqual(['limit-resettable:a']);
    const handle = handleKey('cart', { createdBy: 'open' });
    expect(codes(rules, { key: handle })).toEqual(['limit-resettable:a']);
    const machine = sound().bindTool('cart_try', 'full', { limit: { times: 3 } });
    expect(checkWorkflow(machine, { key: sessionKey() })).toMatchObject([
      { code: 'limit-resettable', place: 'cart_try' },
    ]);
    expect(() => checkWorkflow(sound(), { key: 'session' as never })).toThrow('sessionKey()');
  });

  it("are also told of at the first call of a run that is no principal's", async () => {
    const gate = StateMachineGate.fromOrder({ pay: { limit: { times: 2 } }, look: {} });
    const t = testGate(gate);
    await t.call('look');
    expect(t.warnings).toEqual([]);
    for (let i = 0; i < 3; i++) await t.call('pay');
    expect(t.warnings).toEqual([
      expect.stringMatching(/"pay" of workflow "workflow" has a limit.*principalKey\(\)/s),
    ]);
    await t.close();
    const signed = testGate(gate, { principal: 'ann', session: { key: principalKey() } });
    await signed.call('pay');
    expect(signed.warnings).toEqual([]);
    await signed.close();
  });
});

it('ends for thousands of rules, also where the server lists none of their tools', () => {
  const names = Array.from({ length: 10_000 }, (_, at) => `tool_${at}`);
  const rules = names.map((name, at) => {
    const after = at === 0 ? {} : { after: { tool: names[at - 1] as string, same: ['id'] } };
    return [name, { ...after, limit: { times: 3, within: '1m' } }] as const;
  });
  const tools = names.map((name) => ({
    name: name.replace('_', '-'),
    inputSchema: { properties: {} },
  }));
  const gate = StateMachineGate.fromOrder(Object.fromEntries(rules) as never);
  const found = checkWorkflow(gate, { tools });
  const missing = found.filter(({ code }) => code === 'tool-not-listed');
  expect(missing).toHaveLength(10_000);
  // Only the first ones are compared with each listed name.
  expect(missing.filter(({ remedy }) => remedy.startsWith('Bind "tool-'))).toHaveLength(10);
  expect(found.filter(({ code }) => code === 'guesses-unlimited')).toHaveLength(9_999);
  expect(workflowGraph(gate as never).edges).toHaveLength(9_999);
});
