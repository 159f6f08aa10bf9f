import { expect, it } from 'vitest';
import { NO_ANSWER, testGate } from '../../packages/testing/src/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import type { BoundState } from '../../src/workflow/position.ts';

const rules = {
  approve: { failure: 'reject' },
  reject: {},
  otp: {},
  pay: { notAfter: { tool: 'reject', within: '5m' } },
  ship: { after: { tool: 'otp', within: '5m' } },
} as const;

it('counts the success of a further tool, whose event is that of a tool of the rules', async () => {
  const gate = StateMachineGate.fromOrder(rules).bindTool('webhook', '*', { success: 'otp' });
  const t = testGate(gate);
  expect(await t.list()).not.toContain('ship');
  await t.call('webhook');
  expect(await t.list()).toContain('ship');
  await t.clock.advance(300_000);
  expect((await t.call('ship')).outcome).toBe('refused');
  await t.close();
});

it('counts the event of a failure from when it is known, also where a person says so', async () => {
  for (const isHeld of [false, true]) {
    const t = testGate(StateMachineGate.fromOrder(rules));
    await t.call('otp');
    await t.call('approve', {}, isHeld ? NO_ANSWER : new Error('no'));
    await t.clock.advance(290_000);
    if (isHeld) await t.runs().resolve(await t.run(), 'failed');
    expect((await t.call('pay')).outcome).toBe('refused');
    await t.clock.advance(10_000);
    expect((await t.call('pay')).ran).toBe(!isHeld);
    await t.clock.advance(290_000);
    expect((await t.call('pay')).ran).toBe(true);
    await t.close();
  }
});

it('says which values of a sent call the rules ask for and were not given', async () => {
  const t = testGate(
    StateMachineGate.fromOrder({
      approve: {},
      deploy: { after: { tool: 'approve', same: { release: 'release', who: { result: 'by' } } } },
    }),
  );
  await t.list();
  const run = await t.run();
  expect(await t.runs().send(run, 'approve')).toMatchObject({
    sent: true,
    lacks: ['arguments.release', 'result.by'],
  });
  const given = { arguments: { release: 'v1' }, result: { by: 'ann' } };
  expect(await t.runs().send(run, 'approve', given)).not.toHaveProperty('lacks');
  expect((await t.call('deploy', { release: 'v1', who: 'ann' })).ran).toBe(true);
  await t.close();
});

it.each([1, 600, 999])('asks for the unit of a window that is the number %i', (within) => {
  const make = (given: number | string) =>
    StateMachineGate.fromOrder({
      otp: {},
      ship: { after: { tool: 'otp', within: given as '1s' } },
    });
  expect(() => make(within)).toThrow(
    new RegExp(`${within} without a unit .* write "${within}ms", "${within}s" or "${within}m"`),
  );
  expect(() => make(`${within}ms`)).not.toThrow();
  expect(() => make(1_000)).not.toThrow();
});

it('leads by a function that says which events it sends, and says where no call opens a tool', () => {
  const { approve, submit } = { approve: { after: 'submit' }, submit: { once: true } } as const;
  const wayOf = (states: readonly BoundState[], sends?: readonly ['approve']) => {
    const gate = StateMachineGate.fromOrder({ approve, submit, pay: { after: 'approve' } });
    const workflow = gate
      .bindTool('fast_track', '*', { success: () => 'approve', ...(sends && { sends }) })
      .compile();
    const { position } = workflow.next(workflow.start, 'submit');
    return {
      toPay: workflow.wayTo(workflow.matchAlways('pay')?.states ?? [], workflow.start).path,
      back: workflow.wayTo(states, position).foreseen,
    };
  };
  expect(wayOf([{ not: 'submit' }])).toEqual({ toPay: ['submit', 'approve'], back: false });
  expect(wayOf([{ not: 'submit' }], ['approve'])).toEqual({ toPay: ['fast_track'], back: true });
});

it.each([
  ['few calls', {}, { notAfter: { tool: 'verify_pin', times: 4, within: '1h' } }],
  ['a failure', { undoneBy: 'lock' }, { after: [{ tool: 'verify_pin', outcome: 'failed' }] }],
  ['any outcome', { undoneBy: 'lock' }, { after: [{ tool: 'verify_pin', outcome: 'any' }] }],
] as const)(
  'never says that calls cannot open what one call opens: %s',
  async (kind, pin, rule) => {
    const after = kind === 'few calls' ? { after: 'verify_pin' } : {};
    const rules = { verify_pin: pin, lock: {}, withdraw: { ...rule, ...after } };
    const t = testGate(StateMachineGate.fromOrder(rules as never));
    await t.call('lock');
    const refused = await t.call('withdraw');
    expect(refused.outcome).toBe('refused');
    expect(refused.text).not.toContain('cannot be reached');
    const result = kind === 'a failure' ? { content: [], isError: true } : undefined;
    await t.call('verify_pin', {}, result);
    expect((await t.call('withdraw')).ran).toBe(true);
    await t.close();
  },
);
