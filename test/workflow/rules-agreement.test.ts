import { describe, expect, it } from 'vitest';
import { seeded } from '../../lab/checker/random.ts';
import { type Json, judge, type RulesHistory } from '../../lab/checker/rules.ts';
import { compareRules } from '../../lab/checker/rules-compare.ts';
import {
  type RulesCase,
  randomArgs,
  randomCases,
  randomResult,
} from '../../lab/checker/rules-random.ts';
import { cases, firstSeed } from '../helpers/few.ts';
import { judgeOfGate, standingAt } from './rules-gate.ts';

/** How many refusals are looked at, from which seed on: 10,000 where this code changes. */
const REFUSALS = Number(process.env.REFUSALS ?? cases(100));
const REFUSALS_SEED = Number(process.env.REFUSALS_SEED ?? firstSeed());

describe('a gate of rules, and an evaluator that reads the whole history at each call', () => {
  it('say the same of any rules and any history, also where the clock jumps', () => {
    const first = firstSeed();
    const seeds = Array.from({ length: cases(5) }, (_, i) => first + i);
    const { compared, verdicts, disagreements } = compareRules({ seeds, count: 100, judgeOfGate });
    expect(disagreements).toEqual([]);
    expect(compared).toBeGreaterThan(250);
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

it('adds up what a window has, also where another rule asks for the same calls for ever', () => {
  const login = (at: number, amount: number) => ({
    ...{ tool: 'login', args: { amount }, claimedAt: at, decidedAt: at },
    ...{ outcome: 'succeeded' as const, result: {} },
  });
  const max = { sum: { args: 'amount' }, of: 'login', within: '1s' } as const;
  const { rules, history, call }: RulesCase = {
    rules: {
      rules: { login: {}, find: { limit: { sum: 'amount', max } }, pay: { after: 'login' } },
    },
    history: [login(1_000, 10), login(2_000, 10), login(60_000, 0)],
    call: { tool: 'find', args: { amount: 5 }, at: 60_001 },
  };
  expect(judge(rules, history, call).verdict).toBe('limit');
  expect(judgeOfGate(rules, history, call)?.verdict).toBe('limit');
});

it('uses up no call whose value is a list, where values must differ', () => {
  const rules = {
    rules: {
      login: {},
      pay: { after: { tool: 'login', times: 1, distinct: 'id', consumes: true } },
    },
  };
  const ended = (tool: string, id: Json, at: number) =>
    ({ tool, args: { id }, outcome: 'succeeded', claimedAt: at, decidedAt: at }) as const;
  const history = [ended('login', [1], 1), ended('login', 2, 2), ended('pay', 0, 3)];
  const call = { tool: 'pay', args: {}, at: 4 };
  expect(judge(rules, history, call).verdict).toBe('order');
  expect(judgeOfGate(rules, history, call)?.verdict).toBe('order');
});

describe('the words of a refusal, and the same evaluator', () => {
  it(
    'never say that calls cannot open a tool which some calls open',
    () => {
      const wrong: unknown[] = [];
      let [refusals, denials] = [0, 0];
      for (let seed = REFUSALS_SEED; refusals < REFUSALS; seed++) {
        let cases = 0;
        for (const { wanted, ...each } of randomCases(seed)) {
          if (++cases > 60 || refusals === REFUSALS) break;
          if (wanted.verdict !== 'order') continue;
          const standing = standingAt(each.rules, each.history, each.call);
          if (standing === undefined) continue;
          const { workflow, position } = standing;
          const states = workflow.matchAlways(each.call.tool)?.states ?? [];
          if (workflow.allows(position.state, { states })) continue;
          refusals++;
          const { path, foreseen } = workflow.wayTo(states, position);
          if (path !== undefined || !foreseen) continue;
          denials++;
          const opened = openedBy(each, seed);
          if (opened !== undefined) wrong.push({ seed, ...each, opened });
        }
      }
      expect(wrong).toEqual([]);
      expect(denials).toBeGreaterThan(0);
    },
    1_000 * REFUSALS,
  );
});

/** Calls, made at random, after which the tool may be called; `undefined` where none was found. */
function openedBy({ rules, history, call }: RulesCase, seed: number): RulesHistory | undefined {
  const random = seeded(seed, 'opened');
  const tools = Object.keys(rules.rules);
  for (let tries = 0; tries < 12; tries++) {
    const made = [...history];
    for (let calls = 0; calls < 5; calls++) {
      const at = call.at + calls;
      const idempotencyKey = `opening ${calls}`;
      const last = { tool: call.tool, args: randomArgs(random), at, idempotencyKey };
      if (judge(rules, made, last).verdict === 'allowed') return made.slice(history.length);
      const next = { ...last, tool: random.pick(tools) };
      if (judge(rules, made, next).verdict !== 'allowed') continue;
      const { tool, args } = next;
      const outcome = random.chance(0.7) ? 'succeeded' : 'failed';
      const result = randomResult(random);
      const ended = { tool, args, claimedAt: at, decidedAt: at, idempotencyKey, outcome } as const;
      made.push({ ...ended, ...(result !== undefined && { result }) });
    }
  }
  return undefined;
}
