import { describe, expect, it, onTestFinished } from 'vitest';
import { type TestGate, testGate } from '../../packages/testing/src/index.ts';
import { type OrderRules, StateMachineGate } from '../../src/index.ts';

/** A model's calls, one after the other. */
class Player {
  readonly gate: TestGate;

  constructor(rules: OrderRules, options: object = {}) {
    this.gate = testGate(StateMachineGate.fromOrder(rules, { id: 'more', ...options } as never));
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
