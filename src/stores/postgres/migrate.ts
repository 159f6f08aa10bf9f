import { configError } from '../../basics/errors.ts';
import {
  FIXED_PATH,
  otherPostgresFormat,
  type PostgresClient,
  type PostgresNames,
  type PostgresPool,
} from './names.ts';
import { createFunctions, createTables } from './schema.ts';

/**
 * What each version does to the tables. `migrate()` runs each once in a schema, in this order. None
 * may change once it is published, but for the layout of its text. After the last one, `migrate()`
 * makes all functions anew.
 */
const VERSIONS: readonly ((names: PostgresNames) => string)[] = [createTables];

/** One lock for all stores, since two of them may make the same schema. */
const LOCK = 'mcp-interlock: migrate';

const SAFE_SETTINGS = `
SET LOCAL standard_conforming_strings = on;
${FIXED_PATH.replace('SET', 'SET LOCAL')};
`;

const DUPLICATE_TABLE = '42P07';

/**
 * Brings the schema up to date in one transaction. Of several processes one does it; the others
 * wait, and then find it done.
 */
export async function migrate(pool: PostgresPool, names: PostgresNames): Promise<void> {
  const client = await pool.connect();
  try {
    // Under a stricter level, no statement would see what another process did while this one
    // waited for the lock.
    await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
    // The types of columns and parameters must be PostgreSQL's own, and a backslash only itself.
    await client.query(SAFE_SETTINGS);
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

/** Only reads where nothing is pending, so that a role without the right to create may call it. */
async function applyPending(client: PostgresClient, names: PostgresNames): Promise<void> {
  await refuseOtherFormat(client, names);
  const applied = await latestVersion(client, names);
  if (applied === 0) await client.query(createMigrationsTable(names));
  if (applied >= VERSIONS.length) return;
  for (const [index, changeTables] of VERSIONS.entries()) {
    const version = index + 1;
    if (version <= applied) continue;
    await client.query(changeTables(names));
    await client.query(`INSERT INTO ${names.migrations} (version) VALUES ($1)`, [version]);
  }
  await client.query(createFunctions(names));
}

async function refuseOtherFormat(client: PostgresClient, names: PostgresNames): Promise<void> {
  if (!(await isThere(client, 'to_regprocedure', `${names.format}()`))) return;
  const found = await textOf(client, `SELECT ${names.format}()::text AS answer`);
  const refused = otherPostgresFormat(found, names);
  if (refused) throw refused;
}

async function latestVersion(client: PostgresClient, names: PostgresNames): Promise<number> {
  if (!(await isThere(client, 'to_regclass', names.migrations))) return 0;
  const latest = `SELECT coalesce(max(version), 0)::text AS answer FROM ${names.migrations}`;
  return Number(await textOf(client, latest));
}

async function isThere(client: PostgresClient, look: string, name: string): Promise<boolean> {
  return (
    (await textOf(client, `SELECT (${look}($1) IS NOT NULL)::text AS answer`, name)) === 'true'
  );
}

/** Asks for text, which the caller's type parsers leave alone. */
async function textOf(client: PostgresClient, query: string, ...values: string[]): Promise<string> {
  const { rows } = await client.query(query, values);
  return (rows[0] as { answer: string }).answer;
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
  return configError(message, { cause: error });
}

function isDuplicateTable(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === DUPLICATE_TABLE;
}
