import { describe, expect, it } from 'vitest';
import { compareRules } from '../../tools/checker/rules-compare.ts';
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
});
