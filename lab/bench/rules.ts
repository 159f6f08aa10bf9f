/**
 * What rules cost beside a server: a decision about one call among few rules and among many, and
 * the bytes of a run with many facts. Hides how such runs are made.
 */
import { StateMachineGate } from '../../src/index.ts';
import { readerOf } from '../../src/workflow/condition.ts';
import { callWith } from '../../src/workflow/own-call.ts';
import type { Position } from '../../src/workflow/position.ts';
import type { Workflow } from '../../src/workflow/workflow.ts';
import { quantile } from './load.ts';
import type { Row } from './report.ts';

const NOW = 1_764_108_000_000;
const RUN = 'principal https://issuer.example user-17';

/** The position after a success of a tool. */
function after(workflow: Workflow, from: Position, tool: string, args: object, at: number) {
  const noted = workflow.rules.ledger?.note(tool, 'args', readerOf(args), RUN) ?? { k: [], v: [] };
  const call = { tool, outcome: 'succeeded', claimedAt: at, decidedAt: at + 35, noted, uses: [] };
  return workflow.next(from, tool, undefined, call as never).position;
}

/** The bytes of a run with five tools, each with 100 facts of one value in its window. */
function bytesOfFacts(): number {
  const tools = ['a', 'b', 'c', 'd', 'e'];
  const limit = { times: 200, within: '1h', same: ['id'] } as const;
  const rules = Object.fromEntries(tools.map((tool) => [tool, { limit }]));
  const workflow = StateMachineGate.fromOrder(rules).compile();
  let position = workflow.start;
  for (let i = 0; i < 100; i++)
    for (const [at, tool] of tools.entries())
      position = after(workflow, position, tool, { id: `order-${i}` }, NOW + 10_000 * i + at);
  return JSON.stringify(position).length;
}

/** A decision about a call of one tool, with so many rules for half as many tools. */
function decision(count: number): () => boolean {
  const half = Array.from({ length: count / 2 }, (_, i) => i);
  const workflow = StateMachineGate.fromOrder<string, string>({
    ...Object.fromEntries(
      half.map((i) => [
        `pay_${i}`,
        {
          after: { tool: `find_${i}`, within: '5m', same: ['id'] },
          limit: { times: 5, within: '1m' },
        },
      ]),
    ),
    ...Object.fromEntries(
      half.map((i) => [`find_${i}`, { notAfter: { tool: `close_${i}`, within: '5m' } }]),
    ),
  }).compile();
  let position = workflow.start;
  for (const i of half.slice(0, 5))
    position = after(workflow, position, `find_${i}`, { id: i }, NOW);
  const binding = workflow.match('pay_1', {});
  const stored = JSON.stringify(position);
  if (binding === undefined) throw new Error('the call is not bound');
  return () => {
    const stands = workflow.rules.standAt(workflow.adopt(JSON.parse(stored)), NOW + 1_000);
    if (!workflow.allows(stands.state, binding)) return false;
    const call = callWith(readerOf({ id: 1 }), RUN);
    return (
      workflow.rules.judge(binding, workflow.rules.pastOf(stands, NOW + 1_000), call)?.allows ===
      true
    );
  };
}

/** @param turns of both, in turn */
export function measureDecisions(turns: number): Row {
  const [few, many] = [decision(10), decision(1_000)];
  if (!few() || !many()) throw new Error('the call is refused');
  const cost = (decide: () => boolean, times = 2_000): number => {
    const from = process.cpuUsage();
    for (let i = 0; i < times; i++) decide();
    const { user, system } = process.cpuUsage(from);
    return (user + system) / times;
  };
  for (const each of [few, many]) cost(each, 20_000);
  const rounds = Array.from({ length: turns }, () => [cost(few), cost(many)] as const);
  const median = (values: readonly number[]): number => Number(quantile(values, 0.5).toFixed(2));
  return {
    'with 10 rules µs': median(rounds.map(([one]) => one)),
    'with 1,000 rules µs': median(rounds.map(([, other]) => other)),
    median: median(rounds.map(([one, other]) => other / one)),
    'bytes of 500 facts': bytesOfFacts(),
  };
}
