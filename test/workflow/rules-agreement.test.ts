import { describe, expect, it } from 'vitest';
import { judge } from '../../tools/checker/rules.ts';
import { compareRules } from '../../tools/checker/rules-compare.ts';
import type { RulesCase } from '../../tools/checker/rules-random.ts';
import { judgeOfGate } from './rules-gate.ts';

describe('a gate of rules, and an evaluator that reads the whole history at each call', () => {
  it('say the same of any rules and any history, also where the clock jumps', () => {
    const first = Math.floor(Math.random() * 1e9);
    const seeds = Array.from({ length: 20 }, (_, i) => first + i);
    const { compared, verdicts, disagreements } = compareRules({ seeds, count: 100, judgeOfGate });
    expect(disagreements).toEqual([]);
    expect(compared).toBeGreaterThan(1_000);
    expect(Object.keys(verdicts).sort()).toEqual(['allowed', 'arguments', 'limit', 'order']);
  }, 60_000);

  it('say the same of a call that lost its answer and went on without the value of an alternative', () => {
    const signedIn = {
      any: [
        { tool: 'close', consumes: true },
        { tool: 'login', same: ['id'] },
      ],
    };
    const lost: RulesCase = {
      rules: { rules: { login: {}, close: {}, find: { after: signedIn } } },
      call: { tool: 'find', args: {}, at: 300 },
      history: [
        { tool: 'close', args: {}, claimedAt: 0, decidedAt: 10, outcome: 'succeeded', result: {} },
        { tool: 'find', args: {}, claimedAt: 100, idempotencyKey: 'key', outcome: 'unknown' },
      ],
    };
    expect(judge(lost.rules, lost.history, lost.call).verdict).toBe('order');
    expect(judgeOfGate(lost.rules, lost.history, lost.call)?.verdict).toBe('order');
  });
});
