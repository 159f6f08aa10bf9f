import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { currentStep, runsOf, StateMachineGate } from '../../src/index.ts';
import { pass, startCheckout } from '../helpers/checkout-app.ts';
import { latch } from '../helpers/latch.ts';
import { reasonOf } from '../helpers/raw.ts';
import type { Ledger } from '../helpers/upstream.ts';

const MINUTE = 60_000;

describe('the idempotency key of a step whose outcome is unknown', () => {
  const keys: unknown[] = [];
  const answers: CallToolResult[] = [];
  const makeServer = (ledger: Ledger): McpServer => {
    const server = new McpServer({ name: 'shop', version: '1.0.0' });
    server.registerTool('cart.pay', {}, async () => {
      keys.push(currentStep()?.idempotencyKey);
      ledger.calls.push('cart.pay');
      await ledger.gates.get('cart.pay');
      return answers.pop() ?? { content: [] };
    });
    return server;
  };

  const tried = async (workflow: StateMachineGate<string, string>) => {
    keys.length = 0;
    const app = await startCheckout({ workflow, gate: { maxStepMs: 2_000 }, makeServer });
    const session = await app.begin();
    const never = latch();
    app.ledger.gates.set('cart.pay', never.opened);
    const lost = session.call('cart.pay');
    await expect.poll(() => app.ledger.calls).toEqual(['cart.pay']);
    await pass(app.clock, 3_000);
    await lost;
    app.ledger.gates.delete('cart.pay');
    never.open();
    await pass(app.clock, 9_000);
    return { app, session };
  };

  it('is kept while a guard refuses the next try', async () => {
    let answer: boolean | string = true;
    const workflow = new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {} },
    }).bindTool('cart.pay', 'open', { success: 'PAY', guard: () => answer, uncertain: 'retry' });
    const { session } = await tried(workflow);
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
    const { session } = await tried(workflow);
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
    const { app, session } = await tried(workflow);
    const runs = runsOf(workflow, { store: app.data });
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
    const { app, session } = await tried(workflow);
    app.clock.advance(2 * MINUTE);
    await session.call('cart.pay');
    expect(keys).toHaveLength(2);
    expect(keys[1]).toBe(keys[0]);
  });
});
