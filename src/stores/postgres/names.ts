/** The names of the tables and functions, the format of the tables, and some SQL. */
import { InterlockError } from '../../basics/errors.ts';
import { LAYOUT } from '../document/run-text.ts';

/**
 * The format of the tables: the layout of the texts in them. Any other change is only a new version
 * of the schema.
 */
export const POSTGRES_FORMAT = LAYOUT;

/** What the store uses of a client of `pg`. */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
}

/** What the store uses of a `Pool` of `pg`. */
export interface PostgresPool extends PostgresClient {
  readonly totalCount?: number;
  readonly idleCount?: number;
  readonly options?: { readonly max?: number };
  connect(): Promise<PostgresPoolClient>;
}

/** A client of a pool. With an error, `release()` closes it. */
export interface PostgresPoolClient extends PostgresClient {
  release(error?: Error | boolean): void;
}

/** Every table and function of the store, quoted and with its schema, for use in a statement. */
export type PostgresNames = Readonly<Record<'schema' | keyof typeof SUFFIXES, string>>;

const SUFFIXES = {
  runs: 'workflow_runs',
  workflows: 'workflows',
  events: 'workflow_events',
  switches: 'workflow_switches',
  migrations: 'workflow_migrations',
  format: 'workflow_format',
  look: 'workflow_look',
  read: 'workflow_read',
  swap: 'workflow_swap',
  sweep: 'workflow_sweep',
  forget: 'workflow_forget',
  find: 'workflow_find',
  count: 'workflow_count',
  swapSwitch: 'workflow_swap_switch',
} as const;

export function postgresNames(schema: string, prefix: string): PostgresNames {
  const quoted = quote(schema);
  const names = Object.entries(SUFFIXES).map(([key, suffix]) => [
    key,
    `${quoted}.${quote(prefix + suffix)}`,
  ]);
  return Object.fromEntries([['schema', quoted], ...names]);
}

function quote(identifier: string): string {
  return `"${identifier.replaceAll('"', '""')}"`;
}

/**
 * Set on every function: else a schema in the caller's path could replace what they use, and run
 * code as the caller. `pg_temp` comes last, since it comes first where it is not named.
 */
export const FIXED_PATH = 'SET search_path = pg_catalog, pg_temp';

/** The error to throw where the tables have this format; `undefined` where it is this version's. */
export function otherPostgresFormat(
  found: string,
  { schema }: PostgresNames,
): InterlockError | undefined {
  if (Number(found) === POSTGRES_FORMAT) return undefined;
  const message =
    `postgresStore(): what is stored in the schema ${schema} has format ${found}, ` +
    `and this version of mcp-interlock knows format ${POSTGRES_FORMAT}: ` +
    'deploy the version that wrote it. Nothing was written';
  return new InterlockError('ERR_INTERLOCK_STORE', message);
}

/**
 * SQL for a time as whole milliseconds since the epoch. Before PostgreSQL 14 it is computed with
 * floats, which may fall a little short.
 */
export function milliseconds(time: string): string {
  return `floor(extract(epoch FROM ${time}) * 1000 + 0.0005)`;
}

/** SQL for whole milliseconds since the epoch as a time. */
export function timeOf(ms: string): string {
  return `to_timestamp(${ms} / 1000.0)`;
}

/** SQL for the time of an answer: after the look at the tables, which may have had to wait. */
export const NOW = milliseconds('clock_timestamp()');

/** SQL for the hash by which an index holds a name, which may be too long for its entries. */
export function hashed(name: string): string {
  return `hashtextextended(${name}, 0)`;
}

/**
 * SQL for whether a part needs the run in the row `r` for longer than its life. The `OFFSET` keeps
 * the planner from reading the workflows of all runs.
 */
export function needed({ workflows }: PostgresNames, moment: string): string {
  return `EXISTS (
      SELECT FROM ${workflows} p WHERE p.run = r.run AND p.needed_until > ${moment} OFFSET 0
    )`;
}
