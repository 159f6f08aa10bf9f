/**
 * Tests the promise "a step commits once" with several server processes on a real store. Duplicates
 * race, runs are held, processes are killed in mid-step, and a store is killed under load. `--help` says how.
 */
import { inspect } from 'node:util';
import { Progress } from '../../test/helpers/progress.ts';
import { type Backend, startBackend } from './backends.ts';
import { raceDuplicates } from './duplicates.ts';
import { failStoreOver } from './failovers.ts';
import { killServers } from './kills.ts';
import { raceForLastUses } from './last-uses.ts';
import {
  FULL,
  HELP,
  type PartName,
  parseOptions,
  QUICK,
  type Scale,
  type TortureOptions,
} from './options.ts';
import { partBus } from './partitions.ts';
import { holdRuns } from './pins.ts';
import { raceForUses } from './races.ts';
import { describeRow, type PartResult, type Row, summaryOf, tableOf } from './report.ts';
import { restartStore } from './restarts.ts';
import type { StoreName } from './stores.ts';
import { throwSwitches } from './switches.ts';

/** As fsmGate() has them. */
const USUAL_TIMES = { leaseMs: 8_000, waitMs: 10_000 };
/**
 * Where processes die: short leases, so that calls wait little, and a longer wait than a lease.
 */
const SHORT_TIMES = { leaseMs: 1_000, waitMs: 3_000 };
/** In which no process dies, nor the store. */
const UNDISTURBED: readonly PartName[] = ['duplicates', 'switch', 'races'];
const SERVERS = 4;

const interrupt = new AbortController();

async function playPart(
  part: PartName,
  backend: Backend,
  scale: Scale,
  { seed, defect, count, races }: TortureOptions,
): Promise<PartResult | string> {
  const options = {
    store: backend.address,
    ...(UNDISTURBED.includes(part) ? USUAL_TIMES : SHORT_TIMES),
    servers: SERVERS,
    defect,
    signal: interrupt.signal,
  };
  switch (part) {
    case 'duplicates':
      return raceDuplicates(options, { ...scale.duplicates, longestRun: backend.keeps }, seed);
    case 'pins':
      return holdRuns(options, scale.pins, seed);
    case 'kills':
      if (!backend.isShared) return 'the store dies with its process';
      return killServers(options, scale.kills, seed);
    case 'restarts':
      if (backend.server === undefined) return 'the store has no server';
      return restartStore(options, backend.server, scale.restarts, seed);
    case 'failovers':
      if (backend.failover === undefined) return 'no server takes the place of the dead one';
      return failStoreOver(options, backend.failover, scale.failovers, seed);
    case 'partitions':
      if (!backend.hasBus) return 'there is no bus to it';
      return partBus(backend.address, scale.partitions, seed);
    case 'switch':
      if (!backend.isShared) return 'one process alone can use the store';
      return throwSwitches(
        options,
        { ...scale.switch, ...(count !== undefined && { throws: count }) },
        seed,
      );
    case 'rules':
      return raceForLastUses(options, backend, scale.rules, seed);
    case 'races':
      return raceForUses(
        { ...options, servers: 2 },
        { ...scale.races, races, ...(count !== undefined && { uses: count }) },
        seed,
      );
  }
}

async function rowOf(
  store: StoreName,
  part: PartName,
  play: () => Promise<PartResult | string>,
): Promise<Row> {
  const start = performance.now();
  const result = await play().catch((error: unknown): PartResult => {
    const fault = inspect(error);
    return { did: 'broke off', measured: '', details: '', faults: [fault] };
  });
  const seconds = (performance.now() - start) / 1000;
  if (typeof result !== 'string') return { store, part, seconds, applies: true, ...result };
  return {
    store,
    part,
    seconds,
    applies: false,
    did: result,
    measured: '',
    details: '',
    faults: [],
  };
}

async function tortureStore(
  store: StoreName,
  options: TortureOptions,
  progress: Progress,
): Promise<Row[]> {
  const scale = options.isQuick ? QUICK : FULL;
  const rows: Row[] = [];
  const backend = await startBackend(store, options.durability);
  try {
    for (const part of options.parts) {
      if (interrupt.signal.aborted) break;
      const row = await rowOf(store, part, () => playPart(part, backend, scale, options));
      if (!interrupt.signal.aborted) {
        progress.print(describeRow(row));
        progress.done({ hadNothingToDo: !row.applies });
      }
      rows.push(row);
    }
  } finally {
    await backend.stop();
  }
  return rows;
}

async function torture(options: TortureOptions): Promise<number> {
  const args = process.argv
    .slice(2)
    .filter((each, index, all) => each !== '--seed' && all[index - 1] !== '--seed');
  const command = ['npm run torture --', ...args, '--seed', options.seed].join(' ');
  console.log(`${command}: ${SERVERS} servers, Node ${process.version}`);
  const rows: Row[] = [];
  // A part asks each store for the same. It has counts to reach, so no plan says how long it takes.
  const parts = options.stores.flatMap((store) =>
    options.parts.map((part) => ({ name: `${store}, ${part}`, kind: part })),
  );
  const progress = new Progress(parts);
  // Once to come to an orderly end, twice to end at once: what was started ends with this process.
  const onSignal = (): void => {
    progress.end();
    if (interrupt.signal.aborted) process.exit(130);
    interrupt.abort();
    console.log('Coming to an end; once more to end at once.');
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    for (const store of options.stores) {
      if (!interrupt.signal.aborted) rows.push(...(await tortureStore(store, options, progress)));
    }
  } finally {
    progress.end();
  }
  if (interrupt.signal.aborted) {
    console.log('INTERRUPTED: nothing was shown');
    return 130;
  }
  console.log(`\n${tableOf(rows)}\n\n${summaryOf(rows, command)}`);
  return rows.some(({ faults }) => faults.length > 0) ? 1 : 0;
}

try {
  const options = parseOptions(process.argv.slice(2));
  if (options === undefined) console.log(HELP);
  else process.exitCode = await torture(options);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
