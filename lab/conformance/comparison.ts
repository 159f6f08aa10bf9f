import type { Check, Status } from './checks.ts';
import { nameOf, type TestSet } from './plan.ts';
import { COLUMNS, type Column } from './servers/mounts.ts';

/** What came of one set in one column. */
export interface ColumnResult {
  readonly checks: readonly Check[];
  /** Why the column says nothing, also where its checks pass. */
  readonly faults: readonly string[];
}

export type Results = Readonly<Record<Column, ColumnResult>>;

/**
 * A check that did not come to the same everywhere: its statuses in each column, sorted, as often
 * as they occurred.
 */
export interface Difference {
  readonly scenario: string;
  readonly id: string;
  readonly statuses: Readonly<Record<Column, readonly Status[]>>;
}

/**
 * Where the columns differ as multisets of (scenario, check, status); their order and their texts
 * do not matter.
 */
export function differencesOf(results: Results): Difference[] {
  const all = COLUMNS.flatMap((column) => results[column].checks);
  const keys = new Map(
    all.map(({ scenario, id }) => [JSON.stringify([scenario, id]), { scenario, id }]),
  );
  return [...keys.values()].flatMap(({ scenario, id }) => {
    const statuses = byColumn((column) => statusesOf(results[column].checks, scenario, id));
    const distinct = new Set(Object.values(statuses).map((each) => each.join()));
    return distinct.size === 1 ? [] : [{ scenario, id, statuses }];
  });
}

/** Everything that keeps equal columns from being a proof. */
export function faultsOf(set: TestSet, results: Results): string[] {
  return COLUMNS.flatMap((column) => {
    const { checks, faults } = results[column];
    const known = faults.length > 0 ? faults : countFaults(set, column, checks);
    return known.map((fault) => `${nameOf(set)}, ${column}: ${fault}`);
  });
}

/**
 * A column with middlewares may fail checks, which is a difference; the server alone must do as
 * well as it is known to.
 */
function countFaults({ least }: TestSet, column: Column, checks: readonly Check[]): string[] {
  const passed = checks.filter(({ status }) => status === 'SUCCESS').length;
  if (checks.length < least.checks)
    return [`${checks.length} checks, expected at least ${least.checks}`];
  if (column === 'bare' && passed < least.passed)
    return [`${passed} passed, expected at least ${least.passed}`];
  return [];
}

export function byColumn<T>(of: (column: Column) => T): Record<Column, T> {
  return Object.fromEntries(COLUMNS.map((column) => [column, of(column)])) as Record<Column, T>;
}

function statusesOf(checks: readonly Check[], scenario: string, id: string): Status[] {
  const same = checks.filter((check) => check.scenario === scenario && check.id === id);
  return same.map(({ status }) => status).sort();
}
