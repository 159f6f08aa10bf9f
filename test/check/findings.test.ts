import type { StateMachineGate as PublishedGate } from 'mcp-interlock';
import { checkWorkflow as checkPublished, workflowGraph } from 'mcp-interlock/check';
import { describe, expect, it } from 'vitest';
import { bookingGate } from '../../examples/booking/booking.ts';
import { approval } from '../../examples/custom-store/app.ts';
import { EVENTS_OF, orderGate } from '../../examples/order-approval/workflow.ts';
import { report } from '../../examples/proxy-gate/gate.ts';
import { checkout } from '../../examples/vercel/lib/checkout.ts';
import { checkWorkflow, FINDING_CODES } from '../../src/check/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { orderMachine } from '../workflow/charts.ts';
import { BROKEN_GATES, sound } from './broken-gates.ts';

describe('a gate with a single fault', () => {
  it('exists for each code', () => {
    expect(BROKEN_GATES.map(({ code }) => code).sort()).toEqual(Object.keys(FINDING_CODES).sort());
  });

  it.each(BROKEN_GATES)('has only the finding $code at $place', ({ gate, options, ...fault }) => {
    const findings = checkWorkflow(gate(), options);
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
      expect(checkWorkflow(gate(), { ...options, ignore: [code] })).toEqual([]);
      expect(checkWorkflow(gate(), { ...options, ignore: [`${code}:${place}`] })).toEqual([]);
      expect(checkWorkflow(gate(), { ...options, ignore: [`${code}:elsewhere`] })).toHaveLength(1);
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
