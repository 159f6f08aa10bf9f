/**
 * What all functions of the store share: the names of the tables and functions, the format of the
 * tables, and some SQL.
 */
import { InterlockError } from '../../errors.ts';

/**
 * The format of what this version stores. It grows with a change that processes of other versions
 * cannot work with. Any other change is only a new version of the schema.
 */
export const POSTGRES_FORMAT = 3;

/** What the store uses of a client of `pg`. */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
}

/** What the store uses of a `Pool` of `pg`. */
export interface PostgresPool extends PostgresClient {
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
  open: 'workflow_open',
  makeRun: 'workflow_make_run',
  lockRun: 'workflow_lock_run',
  nextExpiry: 'workflow_next_expiry',
  expireRun: 'workflow_expire_run',
  touchRun: 'workflow_touch_run',
  keepEvidence: 'workflow_keep_evidence',
  readRun: 'workflow_read_run',
  endRun: 'workflow_end_run',
  deleteRun: 'workflow_delete_run',
  anonymize: 'workflow_anonymize',
  sweepRuns: 'workflow_sweep_runs',
  purgeEvents: 'workflow_purge_events',
  toJson: 'workflow_to_json',
  begin: 'workflow_begin',
  judge: 'workflow_judge_claim',
  claim: 'workflow_claim',
  commit: 'workflow_commit',
  record: 'workflow_record',
  freeze: 'workflow_freeze',
  renew: 'workflow_renew',
  release: 'workflow_release',
  format: 'workflow_format',
  entryText: 'workflow_entry_text',
  addEntry: 'workflow_add_entry',
  append: 'workflow_append',
  trail: 'workflow_trail',
  inState: 'workflow_runs_in_state',
  held: 'workflow_held',
  stuck: 'workflow_stuck',
  count: 'workflow_count',
  list: 'workflow_list',
  readSwitch: 'workflow_read_switch',
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

/** SQL for a time as milliseconds since the epoch. */
export function milliseconds(time: string): string {
  return `floor(extract(epoch FROM ${time}) * 1000)`;
}

/** SQL for the time of an answer: after the look at the tables, which may have had to wait. */
export const NOW = milliseconds('clock_timestamp()');

/** SQL for the hash by which an index holds a name, which may be too long for its entries. */
export function hashed(name: string): string {
  return `hashtextextended(${name}, 0)`;
}

/**
 * SQL for whether a run stays though its session is over. So it does where a `hold` step has a
 * claim in it, the lease of a claim lives, or an operator has stopped it. The `OFFSET` keeps the
 * planner from reading the claims of all runs.
 */
export function needed({ workflows }: PostgresNames, run: string, moment: string): string {
  return `EXISTS (
      SELECT FROM ${workflows} p
       WHERE p.run = ${run}
         AND (p.claim_uncertain = 'hold' OR p.lease_until > ${moment} OR p.frozen IS NOT NULL)
      OFFSET 0
    )`;
}

/** SQL for whether the run in the row `r` is known. */
export function known(names: PostgresNames, moment: string): string {
  return `(r.expires_at > ${moment} OR ${needed(names, 'r.run', moment)})`;
}

/** SQL for whether the session is over that named the run in the row `r`. */
export function sessionEnded(moment: string): string {
  return `(r.session_ended OR r.expires_at <= ${moment})`;
}

/** SQL for the anchor of a chain, of two digests, as in trail.ts; NULL where one of them is. */
export function anchor(runDigest: string, workflowDigest: string): string {
  return `('sha256:' || encode(sha256(convert_to(
        '["' || ${runDigest} || '","' || ${workflowDigest} || '"]', 'UTF8')), 'hex'))`;
}
