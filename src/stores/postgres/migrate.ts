import { InterlockError } from '../../errors.ts';
import { createTables } from './create-tables.ts';
import type { PostgresNames } from './names.ts';
import { createRunFunctions } from './run-functions.ts';
import { createStepFunctions } from './step-functions.ts';
import type { PostgresClient, PostgresPool } from './types.ts';

/**
 * What each version does to the tables. Each is run once in a schema, in this order, and is never
 * changed once it was published. After the last of them the functions are made anew, whatever they
 * were.
 */
const VERSIONS: readonly ((names: PostgresNames) => string)[] = [
  createTables,
  ({ runs, workflows, events, readRun }) => `
DROP FUNCTION IF EXISTS ${readRun}(text, double precision);
ALTER TABLE ${workflows} ADD COLUMN ended boolean;
COMMENT ON COLUMN ${workflows}.ended IS
  'Whether the last commit said that the workflow has come to its end. NULL: none said anything.';
ALTER TABLE ${runs} ADD COLUMN opened_by text;
COMMENT ON COLUMN ${runs}.opened_by IS
  'The token of the call that opened the run, so that a call that arrives twice is known. NULL: not opened, but made by a claim.';
COMMENT ON COLUMN ${events}.claim_token IS
  'The claim that committed it, or a token of the person who resolved it: so a commit that arrives twice is known.';
`,
];

/** One for all schemas and prefixes, since two of them may make the same schema. */
const LOCK = 'mcp-interlock: migrate';

const DUPLICATE_TABLE = '42P07';

/**
 * Brings the schema up to date in one transaction. Of several at once one does it; the others wait
 * and find it done.
 */
export async function migrate(pool: PostgresPool, names: PostgresNames): Promise<void> {
  const client = await pool.connect();
  try {
    // Not the default level, which may be one where a statement does not see what was done during
    // the wait for the lock.
    await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
    await client.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [LOCK]);
    await applyPending(client, names);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {});
    client.release(error instanceof Error ? error : true);
    throw explained(error, names);
  }
  client.release();
}

/**
 * Where nothing is pending this only reads, so a role without the right to create may call it too.
 */
async function applyPending(client: PostgresClient, names: PostgresNames): Promise<void> {
  const applied = await latestVersion(client, names);
  if (applied === 0) await client.query(createMigrationsTable(names));
  if (applied >= VERSIONS.length) return;
  for (const [index, changeTables] of VERSIONS.entries()) {
    const version = index + 1;
    if (version <= applied) continue;
    await client.query(changeTables(names));
    await client.query(`INSERT INTO ${names.migrations} (version) VALUES ($1)`, [version]);
  }
  await client.query(createRunFunctions(names) + createStepFunctions(names));
}

async function latestVersion(client: PostgresClient, names: PostgresNames): Promise<number> {
  const exists = await client.query('SELECT to_regclass($1) IS NOT NULL AS known', [
    names.migrations,
  ]);
  if (!(exists.rows[0] as { known: boolean }).known) return 0;
  const latest = await client.query(
    `SELECT coalesce(max(version), 0) AS version FROM ${names.migrations}`,
  );
  return (latest.rows[0] as { version: number }).version;
}

const createMigrationsTable = ({ schema, migrations }: PostgresNames) => `
DO $$ BEGIN
  IF to_regnamespace('${schema.replaceAll("'", "''")}') IS NULL THEN
    CREATE SCHEMA ${schema};
  END IF;
END $$;
CREATE TABLE ${migrations} (
  version     integer PRIMARY KEY,
  applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE ${migrations} IS 'What migrate() has done to these tables and functions.';
`;

function explained(error: unknown, { schema, workflows }: PostgresNames): unknown {
  if (!isDuplicateTable(error)) return error;
  const message =
    `migrate(): a table such as ${workflows} is there already and is not this store's: ` +
    `choose another schema than ${schema}, or a tablePrefix`;
  return new InterlockError('ERR_INTERLOCK_CONFIG', message, { cause: error });
}

function isDuplicateTable(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === DUPLICATE_TABLE;
}
