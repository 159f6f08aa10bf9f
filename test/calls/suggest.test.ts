import { createHash } from 'node:crypto';
import { expect, it } from 'vitest';
import { type Random, seeded } from '../../lab/checker/random.ts';
import { type SuggestedRule, suggestRules } from '../../packages/check/src/index.ts';
import { cases } from '../helpers/few.ts';

const hmac = (value: unknown): string =>
  `s${createHash('sha256').update(String(value)).digest('base64url').slice(0, 21)}`;

interface TrueRule {
  after?: string;
  /** Whether the argument `id` must be that of the earlier call. */
  same?: boolean;
  once?: boolean;
}

interface Made {
  tool: string;
  id: string;
}

/** Rules of some of six tools, in which each comes after an earlier one at most. */
function trueRules(random: Random): Map<string, TrueRule> {
  const rules = new Map<string, TrueRule>();
  for (let at = 1; at < 6; at++) {
    const rule: TrueRule = {};
    if (random.chance(0.5)) {
      rule.after = `t${random.between(0, at - 1)}`;
      if (random.chance(0.5)) rule.same = true;
    }
    if (random.chance(0.3)) rule.once = true;
    if (Object.keys(rule).length > 0) rules.set(`t${at}`, rule);
  }
  return rules;
}

/** What an agent does that keeps the rules, and is otherwise free. */
function play(random: Random, rules: ReadonlyMap<string, TrueRule>): Made[] {
  const made: Made[] = [];
  const length = random.between(8, 24);
  for (let tries = 0; made.length < length && tries < 300; tries++) {
    const tool = random.chance(0.25) ? `x${random.between(0, 2)}` : `t${random.between(0, 5)}`;
    const { after, same, once } = rules.get(tool) ?? {};
    const earlier = made.filter((each) => each.tool === after);
    if (after !== undefined && earlier.length === 0) continue;
    if (once && made.some((each) => each.tool === tool)) continue;
    const id = same ? random.pick(earlier).id : String(random.between(0, 60));
    made.push({ tool, id });
  }
  return made;
}

/** One call dropped, moved, or with another value. */
function disturbed(random: Random, made: readonly Made[]): Made[] {
  const at = random.between(0, made.length - 1);
  const call = made[at];
  if (call === undefined) return [...made];
  const rest = made.toSpliced(at, 1);
  const kind = random.between(0, 2);
  if (kind === 0) return rest;
  if (kind === 1) return rest.toSpliced(random.between(0, rest.length), 0, call);
  return made.with(at, { ...call, id: String(random.between(0, 60)) });
}

function linesOf(runs: readonly (readonly Made[])[], key = ''): string[] {
  let seq = 0;
  let call = 0;
  return runs.flatMap((made, number) =>
    made.flatMap(({ tool, id }) => {
      const of = { instance: 'one', at: 0, call: ++call };
      const run = createHash('sha256').update(`${key}${number}`).digest('hex').slice(0, 16);
      const args = { hmacs: { '/id': hmac(id), '/note': hmac(call) } };
      return [
        { type: 'start', seq: ++seq, ...of, tool, run, args },
        {
          type: 'end',
          seq: ++seq,
          ...of,
          outcome: 'ok',
          result: { hmacs: { '/ref': hmac(call) } },
        },
      ].map((line) => JSON.stringify(line));
    }),
  );
}

const named = ({ kind, tool, after, same }: SuggestedRule): string =>
  [kind, tool, after ?? '', same ? `${same.argument}=${same.from}${same.earlier}` : ''].join(' ');

/** The true rules as they should be suggested: a rule with a value implies the plain one. */
function wantedOf(rules: ReadonlyMap<string, TrueRule>): string[] {
  return [...rules].flatMap(([tool, { after, same, once }]) => [
    ...(after === undefined
      ? []
      : [same ? `same ${tool} ${after} /id=args/id` : `order ${tool} ${after} `]),
    ...(once ? [`once ${tool}  `] : []),
  ]);
}

it('finds the rules of synthetic traffic, and hardly any other', { timeout: 60_000 }, async () => {
  const none = (): [number, number, number] => [0, 0, 0];
  const counts = { order: none(), same: none(), once: none() };
  const wrong: string[] = [];
  for (let set = 0; set < cases(10); set++) {
    const random = seeded(set, 'suggest');
    const rules = trueRules(random);
    const runs = Array.from({ length: 200 }, () => {
      const made = play(random, rules);
      return random.chance(0.05) ? disturbed(random, made) : made;
    });
    const { rules: found } = await suggestRules(linesOf(runs), { reached: ['t0', 't1', 't5'] });
    const said = found.map(named);
    const wanted = wantedOf(rules);
    for (const kind of ['order', 'same', 'once'] as const) {
      const isOf = (each: string): boolean => each.startsWith(kind);
      const right = said.filter((each) => isOf(each) && wanted.includes(each)).length;
      counts[kind][0] += right;
      counts[kind][1] += said.filter(isOf).length;
      counts[kind][2] += wanted.filter(isOf).length;
    }
    for (const each of said) if (!wanted.includes(each)) wrong.push(`${set} false: ${each}`);
    for (const each of wanted) if (!said.includes(each)) wrong.push(`${set} missed: ${each}`);
  }
  const rates = Object.entries(counts).map(([kind, [right, found, wanted]]) => ({
    kind,
    precision: right / found,
    recall: right / wanted,
    isRight: right / found >= 0.95 && right / wanted >= 0.9,
  }));
  expect(rates, wrong.join('\n')).toEqual(rates.map((each) => ({ ...each, isRight: true })));
});

it('finds nothing where calls are drawn by chance', async () => {
  const found: string[] = [];
  for (let set = 0; set < cases(2); set++) {
    const random = seeded(set, 'chance');
    const runs = Array.from({ length: 200 }, () => play(random, new Map()));
    const { rules } = await suggestRules(linesOf(runs), { reached: ['t0'] });
    found.push(...rules.map(named));
  }
  expect(found).toEqual([]);
});

it('finds the same rules in the same traffic, whatever its sessions were named', async () => {
  const random = seeded(1, 'names');
  const rules = new Map([['t1', { after: 't0' }]]);
  const runs = Array.from({ length: 120 }, () => {
    const made = play(random, rules);
    return random.chance(0.06) ? made.filter(({ tool }) => tool !== 't0') : made;
  });
  const found = new Set<string>();
  for (let key = 0; key < cases(10); key++) {
    const { rules: kept } = await suggestRules(linesOf(runs, `${key}-`), {
      reached: ['t1', 't2', 't3'],
    });
    found.add(JSON.stringify(kept.map((each) => [named(each), each.runs, each.exceptions])));
  }
  expect([...found]).toEqual([expect.stringContaining('order t1 t0')]);
});

it('marks what only habit shows, with the evidence of each rule', async () => {
  const runs = Array.from({ length: 120 }, (_, at) => [
    { tool: 'view', id: `${at}` },
    { tool: 'add_item', id: `item${at}` },
    ...Array.from({ length: 6 }, (__, more) => ({ tool: 'look', id: `${at} ${more}` })),
  ]);
  const asHabit = (await suggestRules(linesOf(runs), { reached: ['add_item'] })).rules;
  expect(asHabit.filter(({ tool }) => tool === 'add_item')).not.toEqual([]);
  expect(asHabit.filter(({ isHabit }) => !isHabit)).toEqual([]);
  expect(asHabit[0]).toMatchObject({ runs: 120, exceptions: 0, confidence: 1 });
  // In one run the second item failed.
  const of = { instance: 'one', at: 0, call: 9_999, tool: 'add_item' };
  const run = (JSON.parse(linesOf(runs)[0] ?? '{}') as { run: string }).run;
  const failed = [
    { type: 'start', seq: 90_001, ...of, run, args: { hmacs: {} } },
    { type: 'end', seq: 90_002, ...of, outcome: 'tool_error' },
  ].map((line) => JSON.stringify(line));
  const { rules } = await suggestRules([...linesOf(runs), ...failed], { reached: ['add_item'] });
  const once = rules.filter(({ kind, tool }) => kind === 'once' && tool === 'add_item');
  expect(once).toEqual([expect.objectContaining({ isHabit: false })]);
});
