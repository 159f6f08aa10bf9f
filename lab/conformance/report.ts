import { type Check, STATUSES, type Status } from './checks.ts';
import { type Difference, differencesOf, faultsOf, type Results } from './comparison.ts';
import { nameOf, type TestSet } from './plan.ts';
import { COLUMNS } from './servers/mounts.ts';

export interface SetResult {
  readonly set: TestSet;
  readonly results: Results;
}

const WORDS: Readonly<Record<Status, string>> = {
  SUCCESS: 'passed',
  FAILURE: 'failed',
  WARNING: 'warned',
  SKIPPED: 'skipped',
  INFO: 'noted',
};

/** The columns side by side, a line a scenario, and below them what differs. */
export function describeSet({ set, results }: SetResult): string {
  const differences = differencesOf(results);
  return [
    nameOf(set),
    tableOf(results, new Set(differences.map(({ scenario }) => scenario))),
    ...differences.map(describeDifference),
    ...faultsOf(set, results).map((fault) => `FAULT ${fault}`),
  ].join('\n');
}

/** The last line. */
export function summaryOf(sets: readonly SetResult[]): string {
  const differences = sets.reduce((sum, { results }) => sum + differencesOf(results).length, 0);
  const faults = sets.reduce((sum, { set, results }) => sum + faultsOf(set, results).length, 0);
  const details = sets.map((each) => `${nameOf(each.set)}: ${verdictOf(each)}`).join('; ');
  if (differences === 0 && faults === 0 && sets.length > 0)
    return `EQUAL in all columns. ${details}`;
  return `NOT SHOWN EQUAL: ${differences} checks differ, ${faults} faults. ${details || 'nothing was run'}`;
}

export function areEqual(sets: readonly SetResult[]): boolean {
  const isEqual = ({ set, results }: SetResult) =>
    differencesOf(results).length === 0 && faultsOf(set, results).length === 0;
  return sets.length > 0 && sets.every(isEqual);
}

function verdictOf({ set, results }: SetResult): string {
  const [differences, faults] = [differencesOf(results).length, faultsOf(set, results).length];
  const passed = COLUMNS.map((column) => count(results[column].checks, 'SUCCESS')).join('/');
  if (differences === 0 && faults === 0)
    return `equal, ${passed} of ${results.bare.checks.length} passed`;
  return `${differences} differ, ${faults} faults, ${passed} passed`;
}

function describeDifference({ scenario, id, statuses }: Difference): string {
  const sides = COLUMNS.map((column) => `${column} ${statuses[column].join('+') || 'absent'}`);
  return `DIFFERS ${scenario} ${id}: ${sides.join(', ')}`;
}

function tableOf(results: Results, differing: ReadonlySet<string>): string {
  const scenarios = new Set(
    COLUMNS.flatMap((column) => results[column].checks.map((each) => each.scenario)),
  );
  const rows = [...scenarios].sort().map((scenario) => {
    const of = (checks: readonly Check[]) => checks.filter((check) => check.scenario === scenario);
    const cells = COLUMNS.map((column) => tally(of(results[column].checks)));
    return [differing.has(scenario) ? '≠' : '', scenario, ...cells];
  });
  const totals = COLUMNS.map((column) => tally(results[column].checks));
  return align([['', 'scenario', ...COLUMNS], ...rows, ['', 'total', ...totals]]);
}

/** Such as `3 passed, 1 failed`. */
function tally(checks: readonly Check[]): string {
  const parts = STATUSES.map((status) => [count(checks, status), WORDS[status]] as const);
  const said = parts.filter(([number]) => number > 0).map((part) => part.join(' '));
  return said.join(', ') || 'none';
}

function count(checks: readonly Check[], status: Status): number {
  return checks.filter((check) => check.status === status).length;
}

function align(rows: readonly string[][]): string {
  const widths = (rows[0] ?? []).map((_, at) =>
    Math.max(...rows.map((row) => row[at]?.length ?? 0)),
  );
  const line = (row: string[]) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  ');
  return rows.map((row) => line(row).trimEnd()).join('\n');
}
