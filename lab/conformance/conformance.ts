/**
 * Shows that the middlewares are transparent. The official suite judges example servers without
 * them, with a gate that binds nothing, and with one that binds a tool which the suite never calls.
 * It finds the same each time. `--help` says how.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { byColumn, type ColumnResult } from './comparison.ts';
import { ExampleServer, mountFaults } from './example-server.ts';
import { nameOf, TEST_SETS, type TestSet } from './plan.ts';
import { areEqual, describeSet, type SetResult, summaryOf } from './report.ts';
import { COLUMNS, type Column } from './servers/mounts.ts';
import { installSuite, runSuite, type Suite } from './suite.ts';

const HELP = `npm run conformance -- [options]

  --only TEXT   only the sets whose name has the text in it: ${TEST_SETS.map(nameOf).join('; ')}
  --keep        leaves what the suite wrote in its folder, and says where it is
`;

const interrupt = new AbortController();

async function runColumn(
  suite: Suite,
  set: TestSet,
  column: Column,
  folder: string,
): Promise<ColumnResult> {
  let server: ExampleServer | undefined;
  try {
    server = await ExampleServer.start(set.server, column, interrupt.signal);
    const mounted = mountFaults(column, await server.evidence());
    const { checks, faults } = await runSuite(suite, set, server.url, folder, interrupt.signal);
    return { checks, faults: [...mounted, ...faults] };
  } catch (error) {
    return { checks: [], faults: [error instanceof Error ? error.message : String(error)] };
  } finally {
    await server?.stop();
  }
}

/** One column after another, so that none is slowed by its neighbour. */
async function runSet(suite: Suite, set: TestSet, folder: string): Promise<SetResult> {
  const results: Record<Column, ColumnResult> = byColumn(() => ({
    checks: [],
    faults: ['it was not run'],
  }));
  for (const column of COLUMNS) {
    if (interrupt.signal.aborted) break;
    results[column] = await runColumn(
      suite,
      set,
      column,
      join(folder, `${nameOf(set)}, ${column}`),
    );
  }
  return { set, results };
}

async function conformance(only: string, keep: boolean): Promise<number> {
  const chosen = TEST_SETS.filter((set) => nameOf(set).includes(only));
  if (chosen.length === 0)
    throw new Error(`--only: expected a part of ${TEST_SETS.map(nameOf).join('; ')}`);
  const suite = await installSuite(console.log, interrupt.signal);
  const folder = mkdtempSync(join(tmpdir(), 'interlock-conformance-'));
  const sets: SetResult[] = [];
  try {
    for (const set of chosen) {
      if (interrupt.signal.aborted) break;
      const result = await runSet(suite, set, folder);
      console.log(`\n${describeSet(result)}`);
      sets.push(result);
    }
  } finally {
    if (keep) console.log(`\nWhat the suite wrote is in ${folder}.`);
    else rmSync(folder, { recursive: true, force: true });
  }
  if (interrupt.signal.aborted) {
    console.log('\nINTERRUPTED: nothing was shown');
    return 130;
  }
  console.log(`\n${summaryOf(sets)}`);
  return areEqual(sets) ? 0 : 1;
}

/** Once to come to an orderly end, twice to end at once. */
function onSignal(): void {
  if (interrupt.signal.aborted) process.exit(130);
  interrupt.abort();
}

process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
try {
  const options = {
    help: { type: 'boolean' },
    only: { type: 'string' },
    keep: { type: 'boolean' },
  } as const;
  const { help, only = '', keep = false } = parseArgs({ options }).values;
  if (help) console.log(HELP);
  else process.exitCode = await conformance(only, keep);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
