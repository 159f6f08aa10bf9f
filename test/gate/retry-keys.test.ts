import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { currentStep, StateMachineGate } from '../../src/index.ts';
import { reasonOf } from '../helpers/raw.ts';
import { begins, pass, scene } from '../helpers/scene.ts';

const MINUTE = 60_000;

/** A session whose first payment has an unknown outcome. */
async function triedOnce(workflow: StateMachineGate<string, string>) {
  const keys: unknown[] = [];
  const answers: CallToolResult[] = [];
  const app = await scene({
    workflow,
    gate: { maxStepMs: 2_000 },
    makeServer: (ledger) => {
      const server = new McpServer({ name: 'shop', version: '1.0.0' });
      server.registerTool('cart.pay', {}, async (extra) => {
        keys.push(currentStep(extra)?.idempotencyKey);
        ledger.calls.push('cart.pay');
        await ledger.gates.get('cart.pay');
        return answers.pop() ?? { content: [] };
      });
      return server;
    },
  });
  const session = await app.session();
  const lost = await begins(app, 'cart.pay', () => session.call('cart.pay'));
  await pass(app.clock, 3_000);
  await lost.answer;
  lost.finish();
  await pass(app.clock, 9_000);
  return { ...app, session, keys, answers };
}

describe('the idempotency key of a step whose outcome is unknown', () => {
  it('is kept while a guard refuses the next try', async () => {
    let answer: boolean | string = true;
    const workflow = new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {} },
    }).bindTool('cart.pay', 'open', { success: 'PAY', guard: () => answer, uncertain: 'retry' });
    const { session, keys } = await triedOnce(workflow);
    answer = 'the bank is away';
    expect(reasonOf(await session.call('cart.pay'))).toBe('guard');
    answer = true;
    await session.call('cart.pay');
    expect(keys).toHaveLength(2);
    expect(keys[1]).toBe(keys[0]);
  });

  it('is kept while the next try asks for something, though its count is saved', async () => {
    const workflow = new StateMachineGate(
      { id: 'shop', initial: 'open', states: { open: { on: { PAY: 'paid' } }, paid: {} } },
      { loopShield: { max: 9, fallback: { event: 'PAY' } } },
    ).bindTool('cart.pay', 'open', { success: 'PAY', uncertain: 'retry' });
    const { session, keys, answers } = await triedOnce(workflow);
    answers.push({ resultType: 'input_required', content: [] });
    await session.call('cart.pay');
    await session.call('cart.pay');
    expect(keys).toHaveLength(3);
    expect(new Set(keys).size).toBe(1);
  });

  it('is kept while the state does not allow the next try', async () => {
    const workflow = new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: {
        open: { on: { PAY: 'paid', PAUSE: 'paused' }, after: { 99000000: 'paused' } },
        paused: { on: { GO: 'open' } },
        paid: {},
      },
    }).bindTool('cart.pay', 'open', { success: 'PAY', uncertain: 'retry' });
    const { session, keys, runs } = await triedOnce(workflow);
    await runs.send(session.id, 'PAUSE');
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    await runs.send(session.id, 'GO');
    await session.call('cart.pay');
    expect(keys).toHaveLength(2);
    expect(keys[1]).toBe(keys[0]);
  });

  it('is kept where the time of the state was over when it was tried again', async () => {
    const workflow = new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: {
        open: { on: { PAY: 'paid' }, after: { 60000: 'late' } },
        late: { on: { PAY: 'paid' } },
        paid: {},
      },
    }).bindTool('cart.pay', ['open', 'late'], { success: 'PAY', uncertain: 'retry' });
    const { session, keys, clock } = await triedOnce(workflow);
    clock.advance(2 * MINUTE);
    await session.call('cart.pay');
    expect(keys).toHaveLength(2);
    expect(keys[1]).toBe(keys[0]);
  });
});
