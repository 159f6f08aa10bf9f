/**
 * Measures what the middlewares cost: the same app of the official SDK bare and gated, in fresh
 * processes that take turns under load. Each figure is the median of the turns; `ratio` is the
 * bare server's CPU time for a request divided by the gated one's, so 1 is a gate that costs
 * nothing.
 *
 *   npm run bench -- [--full] [--quick] [--only TEXT] [--rounds N] [--node PATH] [--one-core]
 *                    [--json FILE] [--compare FILE] [--profile FOLDER]
 *   npm run bench -- --trace      files entered and promises created by a request
 *   npm run bench -- --cold       the time to import, and to the first list
 *   npm run bench -- --growth     how the time that an input costs grows with its length
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { measureCold } from './cold.ts';
import { GROWING, measureGrowth } from './lengths.ts';
import { quantile } from './load.ts';
import { ServerProcess, type StartOptions, stayOn, type Turn } from './server-process.ts';
import { DEFAULT, FULL, type Workload } from './setups.ts';

const { values } = parseArgs({
  options: {
    full: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
    cold: { type: 'boolean', default: false },
    growth: { type: 'boolean', default: false },
    'one-core': { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    rounds: { type: 'string', default: '12' },
    node: { type: 'string' },
    json: { type: 'string' },
    compare: { type: 'string' },
    profile: { type: 'string' },
  },
});
const rounds = Number(values.rounds);
const turnMs = values.quick ? 300 : 1_500;
const warmUpMs = values.quick ? 1_000 : 3_000;
const core = values['one-core'] ? 0 : undefined;
const options: StartOptions = {
  connections: 8,
  node: values.node,
  core,
  nodeArguments:
    values.profile === undefined ? [] : ['--cpu-prof', '--cpu-prof-dir', values.profile],
};

/** Bare and gated, one after the other, so that both meet the same noise. */
type Pair = readonly [bare: Turn, gated: Turn];

type Row = Readonly<Record<string, number>>;

/** What is written to a file, and compared with one. */
interface Report {
  readonly date: string;
  readonly node: string;
  readonly machine: string;
  readonly command: string;
  readonly rows: Readonly<Record<string, Row>>;
}

async function withServers<T>(
  workload: Workload,
  use: (bare: ServerProcess, gated: ServerProcess) => Promise<T>,
): Promise<T> {
  const bare = await ServerProcess.start('bare', workload, options);
  const gated = await ServerProcess.start('gated', workload, options);
  try {
    return await use(bare, gated);
  } finally {
    await Promise.all([bare.stop(), gated.stop()]);
  }
}

async function measure(bare: ServerProcess, gated: ServerProcess): Promise<Row> {
  for (const server of [bare, gated]) await server.turn(warmUpMs);
  const pairs: Pair[] = [];
  for (let round = 0; round < rounds; round++) pairs.push(await measureRound(bare, gated, round));
  return summary(pairs);
}

/** The second one finds a warmer machine, so they take turns at that too. */
async function measureRound(
  bare: ServerProcess,
  gated: ServerProcess,
  round: number,
): Promise<Pair> {
  if (round % 2 === 0) return [await bare.turn(turnMs), await gated.turn(turnMs)];
  const second = await gated.turn(turnMs);
  return [await bare.turn(turnMs), second];
}

function summary(pairs: readonly Pair[]): Row {
  const ratios = pairs.map(([bare, gated]) => bare.cpu / gated.cpu);
  const [bare, gated] = [pairs.map(([turn]) => turn), pairs.map(([, turn]) => turn)];
  const median = (turns: readonly Turn[], value: (turn: Turn) => number): number =>
    quantile(turns.map(value), 0.5);
  const timesOf = (turns: readonly Turn[], share: number): number =>
    round(
      quantile(
        turns.flatMap(({ times }) => times),
        share,
      ),
      2,
    );
  return {
    ratio: round(quantile(ratios, 0.5), 2),
    min: round(Math.min(...ratios), 2),
    max: round(Math.max(...ratios), 2),
    'bare µs': round(median(bare, ({ cpu }) => cpu)),
    'gated µs': round(median(gated, ({ cpu }) => cpu)),
    'bare /s': round(median(bare, ({ throughput }) => throughput)),
    'gated /s': round(median(gated, ({ throughput }) => throughput)),
    'bare p50 ms': timesOf(bare, 0.5),
    'gated p50 ms': timesOf(gated, 0.5),
    'bare p99 ms': timesOf(bare, 0.99),
    'gated p99 ms': timesOf(gated, 0.99),
  };
}

/** Counted after warming up, since what is made once is not a request's. */
async function trace(bare: ServerProcess, gated: ServerProcess): Promise<Row> {
  for (const server of [bare, gated]) await server.turn(1_000);
  const alone = await bare.trace(50);
  const { files, promises } = await gated.trace(50);
  return { files, promises: round(promises - alone.promises, 1) };
}

function round(value: number, digits = 0): number {
  return Number(value.toFixed(digits));
}

/** How the medians changed since another report. */
function compare(report: Report, file: string): void {
  const before = JSON.parse(readFileSync(file, 'utf8')) as Report;
  console.log(`Since ${before.date} (Node ${before.node}, ${before.machine})`);
  const changed = Object.entries(report.rows).flatMap(([name, row]) => {
    const known = before.rows[name];
    if (known === undefined) return [];
    const change = (key: string): number => round((row[key] ?? 0) - (known[key] ?? 0), 2);
    return [
      [
        name,
        {
          before: known.ratio,
          now: row.ratio,
          change: change('ratio'),
          'gated µs': change('gated µs'),
          'bare µs': change('bare µs'),
        },
      ] as const,
    ];
  });
  console.table(Object.fromEntries(changed));
}

const isChosen = ({ name }: { readonly name: string }): boolean => name.includes(values.only);

async function rowsOf(
  use: (bare: ServerProcess, gated: ServerProcess) => Promise<Row>,
): Promise<Record<string, Row>> {
  const rows: Record<string, Row> = {};
  for (const workload of [...DEFAULT, ...(values.full ? FULL : [])].filter(isChosen)) {
    rows[workload.name] = await withServers(workload, use);
    console.log(`${workload.name}: ${JSON.stringify(rows[workload.name])}`);
  }
  return rows;
}

async function main(): Promise<void> {
  if (values.growth) {
    console.log('Microseconds by length; a growth of 1 is in proportion to it');
    const growing = GROWING.filter(isChosen);
    const measured = growing.map((each) => [each.name, measureGrowth(each, turnMs)] as const);
    console.table(Object.fromEntries(measured));
    return;
  }
  if (values.cold) {
    console.table(await measureCold(rounds, options));
    return;
  }
  if (values.trace) {
    console.log('Of one request: files of ours entered, and promises beyond the bare server’s');
    console.table(await rowsOf(trace));
    return;
  }
  if (core !== undefined) stayOn(core, process.pid);
  const machine = `${availableParallelism()} × ${cpus()[0]?.model.trim()}`;
  const where = core === undefined ? '' : ', server and clients on one core';
  const node = values.node ?? process.version;
  console.log(
    `CPU time of bare ÷ gated, ${rounds} rounds of ${turnMs} ms, ${node}, ${machine}${where}`,
  );
  const rows = await rowsOf(measure);
  console.table(rows);
  const date = new Date().toISOString().slice(0, 10);
  const command = ['npm run bench --', ...process.argv.slice(2)].join(' ');
  const report: Report = { date, node, machine, command, rows };
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(report, null, 2)}\n`);
  if (values.compare !== undefined) compare(report, values.compare);
}

await main();
