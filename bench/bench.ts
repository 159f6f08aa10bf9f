/**
 * Measures what the middlewares cost: the same app of the official SDK bare and gated, in two processes that take turns
 * under load. Prints throughput as a ratio, gated to bare, of paired rounds. Then how the time that a
 * client's input costs grows with its length.
 *
 *   npm run bench -- [--quick] [--only TEXT] [--rounds N] [--profile FOLDER]
 */
import { parseArgs } from 'node:util';
import { GROWING, measureGrowth } from './lengths.ts';
import { ServerProcess, type Turn } from './server-process.ts';
import { WORKLOADS, type Workload } from './setups.ts';

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    rounds: { type: 'string', default: '12' },
    profile: { type: 'string' },
  },
});
const rounds = Number(values.rounds);
const turnMs = values.quick ? 300 : 1500;
const warmUpMs = values.quick ? 1000 : 3000;
const connections = 8;
const nodeArguments =
  values.profile === undefined ? [] : ['--cpu-prof', '--cpu-prof-dir', values.profile];

/** Bare and gated, one after the other, so that both meet the same noise. */
type Pair = readonly [bare: Turn, gated: Turn];

async function measure(workload: Workload): Promise<Pair[]> {
  const start = (variant: 'bare' | 'gated') =>
    ServerProcess.start(variant, workload, { connections, nodeArguments });
  const [bare, gated] = await Promise.all([start('bare'), start('gated')]);
  try {
    for (const server of [bare, gated]) await server.turn(warmUpMs);
    const pairs: Pair[] = [];
    for (let round = 0; round < rounds; round++) pairs.push(await measureRound(bare, gated, round));
    return pairs;
  } finally {
    await Promise.all([bare.stop(), gated.stop()]);
  }
}

/** Whoever goes second finds a warmer machine, so they take turns at that too. */
async function measureRound(
  bare: ServerProcess,
  gated: ServerProcess,
  round: number,
): Promise<Pair> {
  if (round % 2 === 0) return [await bare.turn(turnMs), await gated.turn(turnMs)];
  const second = await gated.turn(turnMs);
  return [await bare.turn(turnMs), second];
}

function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return ((sorted[Math.ceil(middle) - 1] ?? 0) + (sorted[Math.floor(middle)] ?? 0)) / 2;
}

function summary(pairs: readonly Pair[]) {
  const ratios = pairs.map(([bare, gated]) => gated.throughput / bare.throughput);
  const ofBare = (value: (turn: Turn) => number) => median(pairs.map(([bare]) => value(bare)));
  const ofGated = (value: (turn: Turn) => number) => median(pairs.map(([, gated]) => value(gated)));
  return {
    minimum: round(Math.min(...ratios), 2),
    median: round(median(ratios), 2),
    maximum: round(Math.max(...ratios), 2),
    'bare/s': round(ofBare(({ throughput }) => throughput)),
    'gated/s': round(ofGated(({ throughput }) => throughput)),
    'bare CPU µs': round(ofBare(({ cpu }) => cpu)),
    'added CPU µs': round(median(pairs.map(([bare, gated]) => gated.cpu - bare.cpu))),
  };
}

function round(value: number, digits = 0): number {
  return Number(value.toFixed(digits));
}

const isChosen = ({ name }: { readonly name: string }): boolean => name.includes(values.only);
const chosen = WORKLOADS.filter(isChosen);
console.log(
  `Throughput gated / bare, ${rounds} rounds of ${turnMs} ms each, ${connections} connections, Node ${process.version}`,
);
const table: Record<string, ReturnType<typeof summary>> = {};
for (const workload of chosen) {
  table[workload.name] = summary(await measure(workload));
  console.log(`${workload.name}: ${table[workload.name]?.median}`);
}
if (chosen.length > 0) console.table(table);
const growing = GROWING.filter(isChosen).map(
  (each) => [each.name, measureGrowth(each, turnMs)] as const,
);
if (growing.length > 0) {
  console.log('Microseconds by length; a growth of 1 is in proportion to it');
  console.table(Object.fromEntries(growing));
}
