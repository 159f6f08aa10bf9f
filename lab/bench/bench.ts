/**
 * Measures what the middlewares cost: the same app of the official SDK bare and gated, in fresh
 * processes that take many short turns under load. `ratio` is the bare server's CPU time for a
 * request divided by the gated one's, so 1 is a gate that costs nothing. It is one of sums, over
 * all turns: a server gets dearer from request to request until its next major collection, some
 * seconds of load apart. `min`, `median` and `max` are those of single turns. `one core` is the
 * ratio where server and clients share a core, so that no server pays to wake up its clients.
 * `floor` is the ratio of a gate in one file that keeps no promise, and `to floor` how far ours is
 * below it. The row of lookups side by side has the time on the clock in place of the CPU's.
 *
 *   npm run bench -- [--full] [--quick] [--only TEXT] [--rounds N] [--node PATH] [--one-core]
 *                    [--json FILE] [--compare FILE] [--profile FOLDER] [--by-function]
 *                    [--ways FOLDER]
 *
 *   --rounds     how many turns each server takes: else 32, or 8 longer ones with --scale
 *   --quick      12 turns, after a short time to warm up
 *   --full       also SSE, SDK v2, a stateless server, Node 24, other lists, stores on servers
 *   --trace      the way of a request in place of its time: calls of our functions, moves between
 *                our files and folders (columns with a star leave leaf helpers out), promises and
 *                bytes; with --by-function also which functions of ours allocate most, and with
 *                --ways also the calls in order, a file for each request
 *   --scale      how cost and memory grow: tools, states, runs, streams, answers, bodies
 *   --cold       the time to import, and to the first list
 *   --stdio      what `mcp-interlock stdio` adds to the first list, a call and a step
 *   --rules      a step whose rules have windows and sums, against one of plain rules
 *   --observe    what a gate costs that only observes, against one that enforces
 *   --modes      how soon four instances go from enforcing to observing, on each store
 *   --replay     a million recorded calls, played through a gate by the command
 *   --growth     how the time that an input costs grows with its length
 *   --bodies     bodies of 4 MiB in every shape, against JSON.parse
 *   --renew-leaf-helpers   only renews the list of leaf helpers
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Progress } from '../../test/helpers/progress.ts';
import { startPostgres } from '../../test/services/postgres.ts';
import { startRedis } from '../../test/services/redis.ts';
import { BODIES, measureBody } from './bodies.ts';
import { measureCold } from './cold.ts';
import { GROWING, measureGrowth } from './lengths.ts';
import { quantile } from './load.ts';
import { measureModes } from './modes.ts';
import { node24 } from './node24.ts';
import { measureReplay } from './replay.ts';
import {
  compare,
  type Measurement,
  markdown,
  type Print,
  type Report,
  type Row,
  write,
} from './report.ts';
import { measureDecisions } from './rules.ts';
import { scales } from './scale.ts';
import {
  ALL_CORES,
  type Allocated,
  clockOfRequests,
  cpuOfRequest,
  ServerProcess,
  type StartOptions,
  stayOn,
  type Turn,
} from './server-process.ts';
import {
  DEFAULT,
  FULL,
  OBSERVED,
  RULED,
  type Setup,
  STORE_NAMES,
  type StoreName,
  type Workload,
} from './setups.ts';
import { measureStdio } from './stdio.ts';
import { meanWay, type Way } from './way.ts';

const { values } = parseArgs({
  options: {
    full: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
    'by-function': { type: 'boolean', default: false },
    'renew-leaf-helpers': { type: 'boolean', default: false },
    ways: { type: 'string' },
    scale: { type: 'boolean', default: false },
    rules: { type: 'boolean', default: false },
    observe: { type: 'boolean', default: false },
    replay: { type: 'boolean', default: false },
    modes: { type: 'boolean', default: false },
    cold: { type: 'boolean', default: false },
    stdio: { type: 'boolean', default: false },
    growth: { type: 'boolean', default: false },
    bodies: { type: 'boolean', default: false },
    'one-core': { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    rounds: { type: 'string' },
    node: { type: 'string' },
    json: { type: 'string' },
    compare: { type: 'string' },
    profile: { type: 'string' },
  },
});
/** Short turns in great number: all servers meet the same noise, and some collections each. */
const turns = Number(values.rounds ?? (values.quick ? 12 : 32));
const turnMs = 250;
/** A difference of a tenth drowns in the garbage collections of a shorter turn. */
const PAIRED_TURN_MS = 700;
/** How often, and for how long, the modes measure that compare no turns. */
const rounds = Number(values.rounds ?? 8);
const roundMs = values.quick ? 300 : 1_200;
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

/** The floor is that of plain requests to one kind of server. */
function variantsOf(workload: Workload): readonly Setup['variant'][] {
  const { sdk, mode, answers, ambient, listCache, store, isSideBySide } = workload;
  const isKind = sdk === 'v1' && mode === 'stateful' && answers === 'json';
  const isPlain = !(ambient || listCache || store || isSideBySide || values.trace);
  return isKind && isPlain ? ['bare', 'gated', 'floor'] : ['bare', 'gated'];
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
  await warmUp(servers, workload);
  const cost = workload.isSideBySide ? clockOfRequests : cpuOfRequest;
  const apart = await takeTurns(servers, turns);
  const isDefault = DEFAULT.includes(workload);
  if (!isDefault || isOnOneCore || ALL_CORES.length === 1) return summary(cost, apart);
  pin(servers, [0]);
  const together = await takeTurns(servers, Math.ceil(turns / 3));
  pin(servers, ALL_CORES);
  return summary(cost, apart, together);
}

/**
 * All at once, which spares the run a minute or two; but a file of SQLite has one writer at a time.
 * V8 optimises a server through its first 5,000 requests or so, and on Node 24 for longer.
 */
async function warmUp(servers: Servers, { onNode24, store }: Workload): Promise<void> {
  const ms = values.quick ? 3_000 : onNode24 ? 14_000 : 11_000;
  if (store === 'SQLite') for (const server of servers.values()) await server.turn(ms);
  else await Promise.all([...servers.values()].map((server) => server.turn(ms)));
}

function pin(servers: Servers, cores: readonly number[]): void {
  stayOn(cores, process.pid);
  for (const server of servers.values()) server.stayOn(cores);
}

/** The later ones find a warmer machine, so they take turns at that too. */
async function takeTurns(servers: Servers, count: number): Promise<Round[]> {
  const taken: Round[] = [];
  for (let at = 0; at < count; at++) {
    const round = new Map<Setup['variant'], Turn>();
    const inOrder = at % 2 === 0 ? [...servers] : [...servers].reverse();
    for (const [variant, server] of inOrder) round.set(variant, await server.turn(turnMs));
    taken.push(round);
  }
  return taken;
}

/** What a request costs, over all of these turns. */
type Cost = (turns: readonly Turn[]) => number;

function summary(cost: Cost, apart: readonly Round[], together?: readonly Round[]): Row {
  const ofTurns = apart.map((round) => ratioOf(cost, [round], 'gated'));
  return {
    ratio: hundredths(ratioOf(cost, apart, 'gated')),
    min: hundredths(Math.min(...ofTurns)),
    median: hundredths(quantile(ofTurns, 0.5)),
    max: hundredths(Math.max(...ofTurns)),
    ...(together !== undefined && { 'one core': hundredths(ratioOf(cost, together, 'gated')) }),
    ...(apart[0]?.has('floor') && distance(cost, apart)),
    ...figuresOf(cost, apart, 'bare'),
    ...figuresOf(cost, apart, 'gated'),
  };
}

/** The share of bare that the floor reaches, and how far ours is below it. */
function distance(cost: Cost, taken: readonly Round[]): Row {
  const floor = ratioOf(cost, taken, 'floor');
  return {
    floor: hundredths(floor),
    'to floor': hundredths(floor - ratioOf(cost, taken, 'gated')),
  };
}

/** What a request costs the bare server by what it costs another one, over all of these rounds. */
function ratioOf(cost: Cost, taken: readonly Round[], variant: Setup['variant']): number {
  return cost(turnsOf(taken, 'bare')) / cost(turnsOf(taken, variant));
}

function turnsOf(taken: readonly Round[], variant: Setup['variant']): readonly Turn[] {
  return taken.flatMap((round) => round.get(variant) ?? []);
}

function figuresOf(cost: Cost, taken: readonly Round[], variant: Setup['variant']): Row {
  const turns = turnsOf(taken, variant);
  const times = turns.flatMap((turn) => turn.times);
  const seconds = turns.reduce((sum, turn) => sum + turn.seconds, 0);
  return {
    [`${variant} µs`]: Math.round(cost(turns)),
    [`${variant} /s`]: Math.round(times.length / seconds),
    [`${variant} p50 ms`]: hundredths(quantile(times, 0.5)),
    [`${variant} p99 ms`]: hundredths(quantile(times, 0.99)),
  };
}

/**
 * Counted after warming up, since what is made once is not a request's. The bytes come first:
 * whoever counts calls has V8 optimise less.
 */
async function trace(servers: Servers, workload: Workload, print: Print): Promise<Row> {
  const [bare, gated] = [servers.get('bare'), servers.get('gated')];
  if (bare === undefined || gated === undefined) return {};
  await warmUp(servers, workload);
  const sampleMs = values.quick ? 2_000 : 12_000;
  const plain = await bare.sample(sampleMs);
  const sampled = await gated.sample(sampleMs);
  if (values['by-function']) printMost(sampled, print);
  const promises = (await gated.countPromises(50)) - (await bare.countPromises(50));
  return {
    ...(await walk(workload)),
    promises: Number(promises.toFixed(1)),
    bytes: Math.round(sampled.bytes - plain.bytes),
  };
}

async function walk(workload: Workload): Promise<Way> {
  const given = { ...options, connections: 1, isWalked: true };
  const server = await ServerProcess.start('gated', workload, given);
  try {
    const ways = await server.ways(workload, 20);
    if (values.ways !== undefined) {
      mkdirSync(values.ways, { recursive: true });
      const name = workload.name.replaceAll('/', '-');
      for (const [at, way] of ways.entries())
        writeFileSync(join(values.ways, `${name} ${at + 1}.txt`), `${way.join('\n')}\n`);
    }
    return meanWay(ways);
  } finally {
    await server.stop();
  }
}

/** The functions of ours that allocate most, with what Node allocates for them. */
function printMost({ functions }: Allocated, print: Print): void {
  const most = Object.entries(functions).sort(([, a], [, b]) => b - a);
  for (const [at, bytes] of most.slice(0, 30))
    print(`${String(Math.round(bytes)).padStart(8)} ${at}`);
}

function hundredths(value: number): number {
  return Number(value.toFixed(2));
}

function rowsOf(
  use: (servers: Servers, workload: Workload, print: Print) => Promise<Row>,
): Measurement[] {
  const workloads = [...DEFAULT, ...(values.full ? FULL : [])].filter(
    // A trace is the way of one request.
    (each) => isChosen(each) && !(values.trace && each.isSideBySide),
  );
  return workloads.map((workload) => ({
    name: workload.name,
    measure: async (print) => ({
      [workload.name]: await withServers(workload, (servers) => use(servers, workload, print)),
    }),
  }));
}

/** Two gated servers, which take turns. */
async function paired(pair: readonly Workload[], names: readonly string[]): Promise<Row> {
  const servers = await Promise.all(
    pair.map((each) => ServerProcess.start('gated', each, options)),
  );
  try {
    await Promise.all(servers.map((server) => server.turn(values.quick ? 3_000 : 11_000)));
    const rounds: (readonly Turn[])[] = [];
    for (let at = 0; at < turns; at++) {
      const round: Turn[] = [];
      for (const i of at % 2 === 0 ? [0, 1] : [1, 0])
        round[i] = (await servers[i]?.turn(PAIRED_TURN_MS)) as Turn;
      rounds.push(round);
    }
    const ratios = rounds.map(([one, other]) => cost(other) / cost(one));
    const costs = names.map((name, i) => {
      const all = rounds.flatMap((round) => round[i] ?? []);
      return [`${name} µs`, Math.round(cpuOfRequest(all))];
    });
    return {
      ...Object.fromEntries(costs),
      median: hundredths(quantile(ratios, 0.5)),
      min: hundredths(Math.min(...ratios)),
      max: hundredths(Math.max(...ratios)),
    };
  } finally {
    for (const server of servers) await server.stop();
  }
}

/** What the second server's rules ask beyond the first one's. */
function ruled(): Measurement[] {
  const kinds = ['plain', 'windows and sums'] as const;
  const pair = kinds.map((rules) => ({ ...RULED, rules }));
  return [
    { name: 'decision', measure: () => ({ decision: measureDecisions(turns) }) },
    { name: RULED.name, measure: async () => ({ [RULED.name]: await paired(pair, kinds) }) },
  ];
}

function observed(): Measurement[] {
  return OBSERVED.flatMap((pair) =>
    [true, false].map((syncs) => {
      const [enforced, { name }] = pair;
      const both = pair.map((each) => ({ ...each, syncs }));
      const row = `${name} ÷ ${enforced.name}${syncs ? '' : ', without stateSync()'}`;
      const measure = async () => ({ [row]: await paired(both, ['enforced', 'observed']) });
      return { name: row, measure };
    }),
  );
}

function switched(): Measurement[] {
  const chosen = STORE_NAMES.filter((name) => isChosen({ name }));
  return chosen.map((name) => ({
    name,
    async measure() {
      const store = await startStore(name);
      try {
        return { [name]: await measureModes(name, store.address, values.quick ? 5 : 20) };
      } finally {
        await store.stop();
      }
    },
  }));
}

const cost = (turn: Turn | undefined): number => (turn ? cpuOfRequest([turn]) : Number.NaN);

interface Mode {
  /** The words above the table. */
  readonly title: string;
  readonly measurements: readonly Measurement[];
  /** Whether each row is printed as soon as it is measured. */
  readonly tellsRows?: boolean;
}

function chosenMode(): Mode {
  if (values.growth)
    return {
      title: 'Microseconds by length; a growth of 1 is in proportion to it',
      measurements: GROWING.filter(isChosen).map((each) => ({
        name: each.name,
        measure: () => ({ [each.name]: measureGrowth(each, roundMs) }),
      })),
    };
  if (values.bodies)
    return {
      title: 'Milliseconds, and ratios to JSON.parse of the same text',
      measurements: BODIES.map((name) => ({ name, measure: () => measureBody(name) })).filter(
        isChosen,
      ),
    };
  if (values.cold || values.stdio) {
    const measured = values.stdio ? measureStdio(rounds) : measureCold(rounds, options);
    const measure = async () => (await measured.next()).value;
    const measurements = Array.from({ length: rounds }, (_, at) => {
      return { name: `round ${at + 1}`, measure };
    });
    return { title: 'Milliseconds', measurements };
  }
  if (values.rules)
    return {
      title: 'CPU time of a step of rules in µs; windows and sums ÷ plain, by turn',
      measurements: ruled(),
    };
  if (values.observe)
    return {
      title: 'CPU time of a request in µs; observed ÷ enforced, by turn',
      measurements: observed(),
    };
  if (values.modes)
    return {
      title: 'From `runs.observe()` until each of four instances observes',
      measurements: switched(),
    };
  if (values.replay) {
    const measure = async () => ({ replay: await measureReplay(values.quick ? 10_000 : 100_000) });
    return {
      title: 'Recorded calls through a gate',
      measurements: [{ name: 'replay', measure }],
    };
  }
  if (values.scale)
    return {
      title: 'CPU time of a request in µs, and bytes that are kept',
      measurements: scales({ ...options, rounds, turnMs: roundMs, isChosen }),
      tellsRows: true,
    };
  if (values.trace)
    return {
      title: 'Our functions on the way; promises and bytes beyond the bare server’s',
      measurements: rowsOf(trace),
      tellsRows: true,
    };
  return {
    title: `CPU time of bare ÷ gated, ${turns} turns of ${turnMs} ms each`,
    measurements: rowsOf(measure),
    tellsRows: true,
  };
}

async function main(): Promise<void> {
  if (isOnOneCore) stayOn([0], process.pid);
  const machine = `${availableParallelism()} × ${cpus()[0]?.model.trim()}`;
  const node = values.node ?? process.version;
  const date = new Date().toISOString().slice(0, 10);
  const command = ['npm run bench --', ...process.argv.slice(2)].join(' ');
  const { title, measurements, tellsRows } = chosenMode();
  console.log(`${title}. ${date}, Node ${node}, ${machine}, ${command}`);
  const rows: Record<string, Row> = {};
  const progress = new Progress(measurements);
  const print: Print = (line) => progress.print(line);
  try {
    for (const { measure } of measurements) {
      const measured = await measure(print);
      Object.assign(rows, measured);
      if (tellsRows)
        for (const [name, row] of Object.entries(measured))
          print(`${name}: ${JSON.stringify(row)}`);
      progress.done();
    }
  } finally {
    progress.end();
  }
  console.table(rows);
  if (Object.values(rows).some(({ ratio, min }) => ratio !== undefined && min !== undefined))
    console.log(markdown(rows));
  const report: Report = { date, node, machine, command, rows };
  if (values.json !== undefined) write(report, values.json);
  if (values.compare !== undefined) compare(report, values.compare);
}

if (values['renew-leaf-helpers']) (await import('./functions.ts')).renewLeafHelpers();
else await main();
