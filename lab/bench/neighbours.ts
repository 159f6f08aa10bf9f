/**
 * Measures what an honest client feels of another one that takes all it can get. It times the
 * client's calls, alone and beside each nuisance, on the same app bare and gated.
 *
 *   npm run bench:neighbours -- [--quick] [--only TEXT]
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Caller, quantile } from './load.ts';
import { NUISANCES } from './nuisances.ts';
import type { Setup, Workload } from './setups.ts';

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
  },
});
const measureMs = values.quick ? 1_500 : 6_000;
const warmUpMs = values.quick ? 500 : 2_000;

const KIND = { sdk: 'v1', mode: 'stateful', answers: 'json', tools: 8 } as const;
const HONEST: Workload = {
  ...KIND,
  name: 'step',
  requests: [
    { method: 'tools/call', params: { name: 'cart.add_item', arguments: { sku: 'a-1' } } },
  ],
};

function start(file: string, args: readonly string[]): ChildProcess {
  const path = fileURLToPath(new URL(file, import.meta.url));
  return fork(path, args, { execArgv: ['--import', 'tsx'] });
}

async function stop(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

/** How long each call took, in milliseconds, with a pause between them as a model makes it. */
async function times(caller: Caller, ms: number): Promise<number[]> {
  const taken: number[] = [];
  const end = performance.now() + ms;
  while (performance.now() < end) {
    const began = performance.now();
    await caller.callOnce();
    taken.push(performance.now() - began);
    await delay(5);
  }
  return taken;
}

interface Felt {
  readonly alone: readonly number[];
  readonly beside: readonly number[];
}

async function measure(variant: Setup['variant'], nuisance: string): Promise<Felt> {
  const setup: Setup = { variant, ...KIND, parser: false };
  const server = start('server.ts', [JSON.stringify(setup)]);
  const [port] = (await once(server, 'message')) as [number];
  const caller = new Caller(port, HONEST);
  let other: ChildProcess | undefined;
  try {
    await caller.open();
    await times(caller, warmUpMs);
    const alone = await times(caller, measureMs);
    other = start('nuisances.ts', [String(port), nuisance]);
    await delay(warmUpMs);
    return { alone, beside: await times(caller, measureMs) };
  } finally {
    caller.close();
    if (other !== undefined) await stop(other);
    await stop(server);
  }
}

function percentile(numbers: readonly number[], share: number): number {
  return Number(quantile(numbers, share).toFixed(1));
}

const table: Record<string, Record<string, number>> = {};
for (const nuisance of Object.keys(NUISANCES).filter((name) => name.includes(values.only))) {
  const bare = await measure('bare', nuisance);
  const gated = await measure('gated', nuisance);
  table[nuisance] = {
    'bare p50': percentile(bare.beside, 0.5),
    'bare p99': percentile(bare.beside, 0.99),
    'alone p99': percentile(gated.alone, 0.99),
    'gated p50': percentile(gated.beside, 0.5),
    'gated p99': percentile(gated.beside, 0.99),
    'gated max': percentile(gated.beside, 1),
  };
  console.log(nuisance, JSON.stringify(table[nuisance]));
}
console.log(`Milliseconds that a step of an honest client takes, Node ${process.version}`);
console.table(table);
process.exit();
