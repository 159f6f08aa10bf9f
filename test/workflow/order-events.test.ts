import { expect, it } from 'vitest';
import { NO_ANSWER, testGate } from '../../src/testing/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';

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
