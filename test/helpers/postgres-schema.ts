import { randomUUID } from 'node:crypto';
import { Pool, type PoolConfig } from 'pg';
import { sharedPostgres } from '../services/shared.ts';

/** A test's own schema in the shared PostgreSQL, with as many pools as it needs. */
export interface PostgresSchema {
  readonly url: string;
  readonly schema: string;
  connect(config?: PoolConfig): Pool;
  /** Closes a pool before the test ends. */
  disconnect(pool: Pool): Promise<void>;
  drop(): Promise<void>;
}

export async function makePostgresSchema(): Promise<PostgresSchema> {
  const url = await sharedPostgres();
  const schema = `test_${randomUUID().replaceAll('-', '')}`;
  const pools = new Set<Pool>();

  const connect = (config: PoolConfig = {}) => {
    const pool = new Pool({ connectionString: url, max: 4, ...config });
    pools.add(pool);
    return pool;
  };
  const disconnect = async (pool: Pool) => {
    pools.delete(pool);
    await pool.end();
  };
  const drop = async () => {
    await connect().query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
    await Promise.all([...pools].map(disconnect));
  };
  return { url, schema, connect, disconnect, drop };
}

const REVISION = 'written-once';
const MS = (time: string) => `floor(extract(epoch FROM ${time}) * 1000)`;

/**
 * A statement that makes many runs of one workflow, as the store itself would write them.
 *
 * @param tables the schema, and the prefix of the tables
 * @param rows a query for `run`, `expires_at`, `state` and `updated_at`; and `principal`, `ended`
 * and `lease_until` of a `hold` step, which may all be NULL
 */
export function insertRuns(tables: string, workflow: string, rows: string): string {
  const life = `json_strip_nulls(json_build_object('run', run, 'birth', run,
      'session', json_build_object('principal', principal), 'expiresAt', ${MS('expires_at')}))`;
  const claim = `CASE WHEN lease_until IS NOT NULL THEN json_build_object(
      'token', run, 'tool', 'cart.pay', 'digest', 'd', 'uncertain', 'hold', 'idempotencyKey', run,
      'since', ${MS('lease_until')}) END`;
  const head = `json_strip_nulls(json_build_object('workflow', '${workflow}',
      'state', state, 'updatedAt', ${MS('updated_at')}, 'version', 1, 'ended', ended,
      'head', json_build_object('seq', 0, 'attempts', 0)))`;
  return `
    WITH made AS MATERIALIZED (${rows}), runs AS (
      INSERT INTO ${tables}workflow_runs (run, principal, expires_at, revisions, life)
      SELECT run, principal, expires_at, '${REVISION}', ${life} FROM made
    )
    INSERT INTO ${tables}workflows (
      run, workflow_type, state, version, updated_at, ended, claim_uncertain, claim_tool,
      claimed_at, lease_until, needed_until, revisions, head, settled, claim, lease
    )
    SELECT run, '${workflow}', state, 1, updated_at, ended,
           CASE WHEN lease_until IS NOT NULL THEN 'hold' END,
           CASE WHEN lease_until IS NOT NULL THEN 'cart.pay' END, lease_until, lease_until,
           CASE WHEN lease_until IS NOT NULL THEN 'infinity' ELSE to_timestamp(0) END,
           '${REVISION}', ${head}, '', ${claim}, ${MS('lease_until')}::text
      FROM made`;
}

/** A statement that moves the expiry of the run `$1` by `$2` milliseconds. */
export function moveExpiry(tables: string): string {
  return `
    UPDATE ${tables}workflow_runs
       SET expires_at = expires_at + $2 * interval '1 millisecond', revisions = '${REVISION}',
           life = (life::jsonb || jsonb_build_object(
             'expiresAt', (life ->> 'expiresAt')::float8 + $2::float8
           ))::json
     WHERE run = $1`;
}
