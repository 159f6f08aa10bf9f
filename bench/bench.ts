/**
 * Measures what the middlewares cost: the same app of the official SDK bare and gated, in fresh
 * processes that take turns under load. Each figure is the median of the turns; `ratio` is the
 * bare server's CPU time for a request divided by the gated one's, so 1 is a gate that costs
 * nothing. `one core` is the ratio where server and clients share a core, so that no server pays to
 * wake up its clients.
 *
 *   npm run bench -- [--full] [--quick] [--only TEXT] [--rounds N] [--node PATH] [--one-core]
 *                    [--minimal] [--json FILE] [--compare FILE] [--profile FOLDER]
 *
 *   --full       also SSE, SDK v2, a stateless server, Node 24, other lists, stores on servers
 *   --minimal    also a gate in one file without any promise, beside ours
 *   --trace      files entered and promises created by a request, in place of its time
 *   --scale      how cost and memory grow: tools, states, runs, streams, answers, bodies
 *   --cold       the time to import, and to the first list
 *   --growth     how the time that an input costs grows with its length
 *   --bodies     bodies of 4 MiB in every shape, against JSON.parse
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startPostgres } from '../test/services/postgres.ts';
import { startRedis } from '../test/services/redis.ts';
import { measureBodies } from './bodies.ts';
import { measureCold } from './cold.ts';
import { GROWING, measureGrowth } from './lengths.ts';
import { quantile } from './load.ts';
import { node24 } from './node24.ts';
import { compare, markdown, type Report, type Row, type Rows, write } from './report.ts';
import { measureScale } from './scale.ts';
import {
  ALL_CORES,
  ServerProcess,
  type StartOptions,
  stayOn,
  type Turn,
} from './server-process.ts';
import { DEFAULT, FULL, type Setup, type StoreName, type Workload } from './setups.ts';

const { values } = parseArgs({
  options: {
    full: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    minimal: { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
    scale: { type: 'boolean', default: false },
    cold: { type: 'boolean', default: false },
    growth: { type: 'boolean', default: false },
    bodies: { type: 'boolean', default: false },
    'one-core': { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    rounds: { type: 'string', default: '8' },
    node: { type: 'string' },
    json: { type: 'string' },
    compare: { type: 'string' },
    profile: { type: 'string' },
  },
});
const rounds = Number(values.rounds);
const turnMs = values.quick ? 300 : 1_200;
const warmUpMs = values.quick ? 1_000 : 2_000;
const isOnOneCore = values['one-core'];
const options: StartOptions = {
  connections: 8,
  node: values.node,
  core: isOnOneCore ? 0 : undefined,
  nodeArguments:
    values.profile === undefined ? [] : ['--cpu-prof', '--cpu-prof-dir', values.profile],
};

const isChosen = ({ name }: { readonly name: string }): boolean => name.includes(values.only);

/** The servers of one row, which take turns so that they meet the same noise. */
type Servers = ReadonlyMap<Setup['variant'], ServerProcess>;

/** What each server's turn of one round came to. */
type Round = ReadonlyMap<Setup['variant'], Turn>;

function variantsOf({ sdk, mode, answers, onNode24 }: Workload): readonly Setup['variant'][] {
  const isKnownToMinimal = sdk === 'v1' && mode === 'stateful' && answers === 'json';
  const isAsked = values.minimal || onNode24 === true;
  return isAsked && isKnownToMinimal ? ['bare', 'gated', 'minimal'] : ['bare', 'gated'];
}

async function withServers<T>(
  workload: Workload,
  use: (servers: Servers) => Promise<T>,
): Promise<T> {
  const store = workload.store === undefined ? undefined : await startStore(workload.store);
  const node = workload.onNode24 ? node24() : options.node;
  const given = { ...options, node, address: store?.address };
  const servers = new Map<Setup['variant'], ServerProcess>();
  try {
    for (const variant of variantsOf(workload))
      servers.set(variant, await ServerProcess.start(variant, workload, given));
    return await use(servers);
  } finally {
    for (const server of servers.values()) await server.stop();
    await store?.stop();
  }
}

/** A place for runs, of its own for each row. */
async function startStore(
  name: StoreName,
): Promise<{ readonly address: string; stop(): Promise<unknown> }> {
  if (name !== 'SQLite') {
    const service = await (name === 'Redis' ? startRedis() : startPostgres());
    return { address: service.url, stop: () => service.stop() };
  }
  const folder = mkdtempSync(join(tmpdir(), 'interlock-bench-'));
  const stop = async (): Promise<void> => rmSync(folder, { recursive: true });
  return { address: join(folder, 'runs.db'), stop };
}

async function measure(servers: Servers, workload: Workload): Promise<Row> {
  // Node 24 optimises code later: after 2 s the gated server still gets faster from turn to turn.
  const warmMs = workload.onNode24 ? 4 * warmUpMs : warmUpMs;
  for (const server of servers.values()) await server.turn(warmMs);
  const apart = await takeTurns(servers, rounds);
  const isDefault = DEFAULT.includes(workload);
  if (!isDefault || isOnOneCore || ALL_CORES.length === 1) return summary(apart);
  pin(servers, [0]);
  const together = await takeTurns(servers, Math.ceil(rounds / 2));
  pin(servers, ALL_CORES);
  return summary(apart, together);
}

function pin(servers: Servers, cores: readonly number[]): void {
  stayOn(cores, process.pid);
  for (const server of servers.values()) server.stayOn(cores);
}

/** The later ones find a warmer machine, so they take turns at that too. */
async function takeTurns(servers: Servers, count: number): Promise<Round[]> {
  const taken: Round[] = [];
  for (let at = 0; at < count; at++) {
    const turns = new Map<Setup['variant'], Turn>();
    const inOrder = at % 2 === 0 ? [...servers] : [...servers].reverse();
    for (const [variant, server] of inOrder) turns.set(variant, await server.turn(turnMs));
    taken.push(turns);
  }
  return taken;
}

function summary(apart: readonly Round[], together?: readonly Round[]): Row {
  const ratios = ratiosOf(apart, 'gated');
  const minimal = ratiosOf(apart, 'minimal');
  return {
    ratio: median(ratios),
    min: round(Math.min(...ratios), 2),
    max: round(Math.max(...ratios), 2),
    ...(together !== undefined && { 'one core': median(ratiosOf(together, 'gated')) }),
    ...(minimal.length > 0 && { minimal: median(minimal) }),
    ...figuresOf(apart, 'bare'),
    ...figuresOf(apart, 'gated'),
  };
}

/** The bare server's CPU time for a request by that of another one, in each round. */
function ratiosOf(taken: readonly Round[], variant: Setup['variant']): number[] {
  return taken.flatMap((turns) => {
    const [bare, other] = [turns.get('bare'), turns.get(variant)];
    return bare === undefined || other === undefined ? [] : [bare.cpu / other.cpu];
  });
}

function figuresOf(taken: readonly Round[], variant: Setup['variant']): Row {
  const turns = taken.flatMap((each) => each.get(variant) ?? []);
  const times = turns.flatMap((turn) => turn.times);
  return {
    [`${variant} µs`]: Math.round(
      quantile(
        turns.map(({ cpu }) => cpu),
        0.5,
      ),
    ),
    [`${variant} /s`]: Math.round(
      quantile(
        turns.map(({ throughput }) => throughput),
        0.5,
      ),
    ),
    [`${variant} p50 ms`]: round(quantile(times, 0.5), 2),
    [`${variant} p99 ms`]: round(quantile(times, 0.99), 2),
  };
}

/** Counted after warming up, since what is made once is not a request's. */
async function trace(servers: Servers): Promise<Row> {
  for (const server of servers.values()) await server.turn(1_000);
  const alone = await servers.get('bare')?.trace(50);
  const gated = await servers.get('gated')?.trace(50);
  if (alone === undefined || gated === undefined) return {};
  return { files: gated.files, promises: round(gated.promises - alone.promises, 1) };
}

function median(numbers: readonly number[]): number {
  return round(quantile(numbers, 0.5), 2);
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}

async function rowsOf(use: (servers: Servers, workload: Workload) => Promise<Row>): Promise<Rows> {
  const rows: Record<string, Row> = {};
  for (const workload of [...DEFAULT, ...(values.full ? FULL : [])].filter(isChosen)) {
    rows[workload.name] = await withServers(workload, (servers) => use(servers, workload));
    console.log(`${workload.name}: ${JSON.stringify(rows[workload.name])}`);
  }
  return rows;
}

async function scaled(): Promise<Rows> {
  const rows: Record<string, Row> = {};
  const given = { ...options, rounds, turnMs, isChosen };
  for await (const [name, row] of measureScale(given)) {
    rows[name] = row;
    console.log(`${name}: ${JSON.stringify(row)}`);
  }
  return rows;
}

function grown(): Rows {
  const growing = GROWING.filter(isChosen);
  return Object.fromEntries(growing.map((each) => [each.name, measureGrowth(each, turnMs)]));
}

/** What is measured, and the words above its table. */
function chosenMode(): readonly [title: string, rows: Promise<Rows>] {
  if (values.growth)
    return [
      'Microseconds by length; a growth of 1 is in proportion to it',
      Promise.resolve(grown()),
    ];
  if (values.bodies) {
    const bodies = measureBodies((name) => isChosen({ name }));
    return ['Milliseconds, and ratios to JSON.parse of the same text', Promise.resolve(bodies)];
  }
  if (values.cold) return ['Milliseconds', measureCold(rounds, options)];
  if (values.scale) return ['CPU time of a request in µs, and bytes that are kept', scaled()];
  if (values.trace)
    return ['Files of ours entered, and promises beyond the bare server’s', rowsOf(trace)];
  return [`CPU time of bare ÷ gated, ${rounds} rounds of ${turnMs} ms`, rowsOf(measure)];
}

async function main(): Promise<void> {
  if (isOnOneCore) stayOn([0], process.pid);
  const machine = `${availableParallelism()} × ${cpus()[0]?.model.trim()}`;
  const node = values.node ?? process.version;
  const date = new Date().toISOString().slice(0, 10);
  const command = ['npm run bench --', ...process.argv.slice(2)].join(' ');
  const [title, measured] = chosenMode();
  console.log(`${title}. ${date}, Node ${node}, ${machine}, ${command}`);
  const rows = await measured;
  console.table(rows);
  if (Object.values(rows).some(({ ratio, min }) => ratio !== undefined && min !== undefined))
    console.log(markdown(rows));
  const report: Report = { date, node, machine, command, rows };
  if (values.json !== undefined) write(report, values.json);
  if (values.compare !== undefined) compare(report, values.compare);
}

await main();
