import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { quantile } from './load.ts';
import type { Row, Rows } from './report.ts';
import { ServerProcess, type StartOptions } from './server-process.ts';
import { DEFAULT } from './setups.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** What is loaded before the package. */
const BEFORE = {
  'an empty process': '',
  'a process with Express and the SDK': `
    await import('express');
    await import('@modelcontextprotocol/sdk/server/mcp.js');
    await import('@modelcontextprotocol/sdk/server/streamableHttp.js');`,
} as const;

/** Milliseconds on the clock, and of CPU: of all threads of the process, under any load. */
interface Cost {
  readonly ms: number;
  readonly cpu: number;
}

/**
 * What the import costs, and what a fresh server does until it has answered its first list. All
 * kinds of process take turns, so that they meet the same noise; each turn is in fresh processes.
 * The bare server does not import the package. It stops after each round, and gives all rows after the last one.
 */
export async function* measureCold(
  rounds: number,
  options: StartOptions,
): AsyncGenerator<Rows, Rows> {
  // Beside the installed packages, which it imports.
  const folder = mkdtempSync(join(ROOT, 'node_modules/.interlock-bench-'));
  const built = join(folder, 'server.mjs');
  const rows = new Map<string, Cost[]>();
  const add = (name: string, cost: Cost): void => {
    rows.set(name, [...(rows.get(name) ?? []), cost]);
  };
  try {
    await build({
      entryPoints: [join(ROOT, 'lab/bench/server.ts')],
      outfile: built,
      bundle: true,
      packages: 'external',
      platform: 'node',
      format: 'esm',
      logLevel: 'error',
    });
    for (let round = 0; round < rounds; round++) {
      for (const [name, before] of Object.entries(BEFORE))
        add(`import in ${name}`, importAfter(before, options.node ?? process.execPath));
      const variants =
        round % 2 === 0 ? (['bare', 'gated'] as const) : (['gated', 'bare'] as const);
      const lists = new Map<string, Cost>();
      for (const variant of variants)
        lists.set(variant, await firstList(variant, { ...options, built, connections: 1 }));
      const [bare, gated] = [lists.get('bare'), lists.get('gated')];
      if (bare === undefined || gated === undefined) continue;
      add('first list of a bare server', bare);
      add('first list of a gated server', gated);
      add('the gated one beyond the bare one', {
        ms: gated.ms - bare.ms,
        cpu: gated.cpu - bare.cpu,
      });
      if (round + 1 < rounds) yield {};
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return Object.fromEntries([...rows].map(([name, costs]) => [name, summaryOf(costs)]));
}

function importAfter(before: string, node: string): Cost {
  const code = `${before}
    const { user, system } = process.cpuUsage();
    const start = performance.now();
    await import('mcp-interlock');
    const ms = performance.now() - start;
    const used = process.cpuUsage({ user, system });
    console.log(JSON.stringify({ ms, cpu: (used.user + used.system) / 1000 }));`;
  const evaluated = ['--input-type=module', '--eval', code];
  return JSON.parse(execFileSync(node, evaluated, { cwd: ROOT, encoding: 'utf8' }));
}

/** From the start of its process on. */
async function firstList(variant: 'bare' | 'gated', options: StartOptions): Promise<Cost> {
  const list = DEFAULT.find(({ name }) => name === 'tools/list of 100');
  if (list === undefined) throw new Error('no row for the list');
  const start = performance.now();
  const server = await ServerProcess.start(variant, list, options);
  try {
    await server.turn(0);
    return { ms: performance.now() - start, cpu: (await server.ask('cpu')) / 1000 };
  } finally {
    await server.stop();
  }
}

function summaryOf(costs: readonly Cost[]): Row {
  const of = (part: keyof Cost, share: number): number =>
    Number(
      quantile(
        costs.map((cost) => cost[part]),
        share,
      ).toFixed(1),
    );
  return {
    min: of('ms', 0),
    median: of('ms', 0.5),
    max: of('ms', 1),
    'CPU min': of('cpu', 0),
    'CPU median': of('cpu', 0.5),
  };
}
