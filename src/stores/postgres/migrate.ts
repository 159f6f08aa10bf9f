import { InterlockError } from '../../errors.ts';
import { createIndexFunctions } from './index-functions.ts';
import {
  FIXED_PATH,
  hashed,
  otherPostgresFormat,
  type PostgresClient,
  type PostgresNames,
  type PostgresPool,
} from './names.ts';
import { createRunFunctions } from './run-functions.ts';
import { createStepFunctions } from './step-functions.ts';
import { createSwitchFunctions } from './switch-functions.ts';
import { createTrailFunctions } from './trail-functions.ts';

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
  const creators = [
    createRunFunctions,
    createTrailFunctions,
    createStepFunctions,
    createIndexFunctions,
    createSwitchFunctions,
  ];
  await client.query(creators.map((create) => create(names)).join(''));
}

async function refuseOtherFormat(client: PostgresClient, names: PostgresNames): Promise<void> {
  const { rows } = await client.query('SELECT to_regprocedure($1) IS NOT NULL AS known', [
    `${names.format}()`,
  ]);
  if (!(rows[0] as { known: boolean }).known) return;
  const found = await client.query(`SELECT ${names.format}()::text AS format`);
  const refused = otherPostgresFormat((found.rows[0] as { format: string }).format, names);
  if (refused) throw refused;
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

/**
 * The tables. A context and a payload must come back as the caller saved them. So they are `json`:
 * `jsonb` reorders keys, rewrites numbers and refuses the escape for NUL. A query can still use
 * `context::jsonb`.
 */
function createTables({ runs, workflows, events, switches }: PostgresNames): string {
  return `
CREATE TABLE ${runs} (
  run            text COLLATE "C" PRIMARY KEY,
  long_key       text,
  principal      text,
  minted         boolean,
  client_info    json,
  opened_by      text,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at     timestamptz NOT NULL,
  session_ended  boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);

COMMENT ON TABLE ${runs} IS
  'One row for each run: a client''s session, or what else names a run. An operation that writes '
  'in a run first locks this row.';
COMMENT ON COLUMN ${runs}.run IS
  'The run key. Here and in every other text column a backslash is doubled, and NUL and half '
  'surrogate pairs are written \\uXXXX. A key over 1000 bytes is its beginning and a SHA-256 '
  'digest.';
COMMENT ON COLUMN ${runs}.long_key IS
  'The run key where run is only its beginning and a digest, else NULL.';
COMMENT ON COLUMN ${runs}.principal IS 'Who may use the run. NULL: unauthenticated callers.';
COMMENT ON COLUMN ${runs}.minted IS 'Whether the middleware made up the session id.';
COMMENT ON COLUMN ${runs}.client_info IS
  'What the session''s client called itself: {"name", "version"}. NULL: nothing.';
COMMENT ON COLUMN ${runs}.opened_by IS
  'The token of the call that opened the run, so that a call that arrives twice is known. NULL: '
  'not opened, but made by a claim.';
COMMENT ON COLUMN ${runs}.expires_at IS
  'From then on the session is over. The run stays known while a hold step has a claim in it, the '
  'lease of a claim lives, or a workflow of it is frozen. Any other run is unknown then, also '
  'while its row is here.';
COMMENT ON COLUMN ${runs}.session_ended IS
  'Whether the session was over before expires_at: until then the run can still be read.';
CREATE INDEX ON ${runs} (expires_at);
CREATE INDEX ON ${runs} (${hashed('principal')}, run) WHERE principal IS NOT NULL;

CREATE TABLE ${workflows} (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run              text COLLATE "C" NOT NULL REFERENCES ${runs} ON DELETE CASCADE,
  workflow_type    text COLLATE "C" NOT NULL,
  state            text COLLATE "C" NOT NULL,
  context          json,
  version          bigint NOT NULL,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at       timestamptz NOT NULL,
  ended            boolean,
  claim_token      text,
  claim_tool       text,
  claim_digest     text,
  claim_uncertain  text CHECK (claim_uncertain IN ('hold', 'retry')),
  claim_use        json,
  claim_kind       text,
  claim_entry      json,
  claimed_at       timestamptz,
  lease_until      timestamptz,
  idempotency_key  text,
  frozen           json,
  unsettled        jsonb NOT NULL DEFAULT '[]',
  committed        text[] NOT NULL DEFAULT '{}',
  released         text[] NOT NULL DEFAULT '{}',
  trail_seq        bigint NOT NULL DEFAULT 0,
  attempts         bigint NOT NULL DEFAULT 0,
  trail_hash       text,
  name_digest      text,
  CONSTRAINT claim_is_whole_or_not_there CHECK (
    num_nulls(
      claim_token, claim_tool, claim_digest, claim_uncertain, claimed_at, lease_until,
      idempotency_key
    ) IN (0, 7)
  )
) WITH (fillfactor = 70);

-- A name may be longer than an entry of an index, so they hold its hash and its beginning.
CREATE UNIQUE INDEX ON ${workflows} (run, ${hashed('workflow_type')});
CREATE INDEX ON ${workflows} (left(state, 250), updated_at, id);
CREATE INDEX ON ${workflows} (${hashed('workflow_type')}, claim_uncertain, lease_until, id)
  WHERE claim_token IS NOT NULL;
CREATE INDEX ON ${workflows} (${hashed('workflow_type')}, updated_at, id) WHERE ended IS NOT TRUE;

COMMENT ON TABLE ${workflows} IS
  'Where each run is in each of its workflows. The functions workflow_held and workflow_stuck list '
  'by the indexes.';
COMMENT ON COLUMN ${workflows}.workflow_type IS 'The gate''s id.';
COMMENT ON COLUMN ${workflows}.context IS
  'What the workflow carries along. NULL: nothing, which is not the JSON value null.';
COMMENT ON COLUMN ${workflows}.version IS 'How many moves were saved.';
COMMENT ON COLUMN ${workflows}.ended IS
  'Whether the last commit said that the workflow has come to its end. NULL: no commit yet.';
COMMENT ON COLUMN ${workflows}.claim_token IS
  'Whose step is under way, or ended with an unknown outcome. NULL: there is no claim. The columns '
  'as far as idempotency_key go with it.';
COMMENT ON COLUMN ${workflows}.claim_digest IS 'A digest of the call''s arguments.';
COMMENT ON COLUMN ${workflows}.claim_uncertain IS
  'What follows once the lease has run out without a commit. hold: the run waits to be resolved, '
  'and stays until then. retry: the next step may take over.';
COMMENT ON COLUMN ${workflows}.claim_use IS
  'What the call would use up of its run''s limits. NULL: nothing.';
COMMENT ON COLUMN ${workflows}.claim_kind IS
  'Why the step is held, where its own process said so. NULL: its lease may have run out.';
COMMENT ON COLUMN ${workflows}.claim_entry IS
  'What the trail says of the call if another claim takes this one over.';
COMMENT ON COLUMN ${workflows}.claimed_at IS 'When the claim was taken.';
COMMENT ON COLUMN ${workflows}.idempotency_key IS
  'What the step hands to a payment provider and the like.';
COMMENT ON COLUMN ${workflows}.frozen IS
  'Who has stopped the run, and why: {"actor", "note"}. NULL: it goes on. While it is there, no '
  'claim is granted, and the run stays.';
COMMENT ON COLUMN ${workflows}.unsettled IS
  'Steps of unknown outcome that gave way to others, newest last: [{"tool", "digest", "key", '
  '"since", "use"}]. Since is milliseconds, and use the text of a JSON value, if there was one.';
COMMENT ON COLUMN ${workflows}.committed IS
  'Tokens that made a version and take no claim again, newest first: one for each version.';
COMMENT ON COLUMN ${workflows}.released IS
  'Tokens that were let go without a move and take no claim again, newest first.';
COMMENT ON COLUMN ${workflows}.trail_seq IS 'How many entries the trail ever had.';
COMMENT ON COLUMN ${workflows}.attempts IS 'How many attempts there were since the last move.';
COMMENT ON COLUMN ${workflows}.trail_hash IS
  'The hash of the newest entry, or the anchor of an empty trail. NULL: the trail is not chained.';
COMMENT ON COLUMN ${workflows}.name_digest IS
  'A digest of workflow_type, of which an anchor is made. NULL where the trail is not chained.';

CREATE TABLE ${events} (
  workflow_id       bigint NOT NULL,
  seq               bigint NOT NULL,
  run               text COLLATE "C" NOT NULL,
  principal         text,
  workflow_type     text COLLATE "C" NOT NULL,
  version           bigint NOT NULL,
  attempt           bigint NOT NULL,
  from_state        text NOT NULL,
  to_state          text,
  event             text,
  outcome           text,
  kind              text,
  tool              text,
  digest            text,
  args              json,
  actor             text,
  request_id        json,
  workflow_version  json,
  payload           json,
  errors            json,
  note              text,
  called_by         text,
  occurred_at       timestamptz NOT NULL,
  previous          text,
  hash              text,
  PRIMARY KEY (workflow_id, seq)
);

CREATE INDEX ON ${events} (run, occurred_at DESC);
CREATE INDEX ON ${events} (${hashed('principal')}) WHERE principal IS NOT NULL;

COMMENT ON TABLE ${events} IS
  'The trail of each workflow: every attempt and every move, appended and never changed. It '
  'outlives its run, as an audit log. docs/operate/stores.md says how to keep it for a time and no '
  'longer, and how to remove what is left of a person.';
COMMENT ON COLUMN ${events}.workflow_id IS
  'The id of the workflow''s row, which goes when the run ends. A run that begins anew under its '
  'old key gets new ones.';
COMMENT ON COLUMN ${events}.seq IS
  'The place in the workflow''s trail: 1, 2, 3 and so on without gaps.';
COMMENT ON COLUMN ${events}.principal IS
  'Whom the run belonged to, also once it is gone. NULL: unauthenticated callers.';
COMMENT ON COLUMN ${events}.version IS
  'The workflow''s version after it: one more than before where to_state is there.';
COMMENT ON COLUMN ${events}.attempt IS
  'How many attempts there were since the last move, this one included.';
COMMENT ON COLUMN ${events}.to_state IS 'NULL: nothing was committed.';
COMMENT ON COLUMN ${events}.event IS 'NULL: a step that succeeded without sending one.';
COMMENT ON COLUMN ${events}.outcome IS
  'What became of the call: succeeded, failed, input_required, not_run, unknown, refused. NULL: it '
  'was no call.';
COMMENT ON COLUMN ${events}.kind IS 'What kind of outcome, such as tool_error or taken_over.';
COMMENT ON COLUMN ${events}.digest IS 'A digest of the call''s arguments.';
COMMENT ON COLUMN ${events}.args IS 'The arguments, where the app lets them through.';
COMMENT ON COLUMN ${events}.actor IS 'Who made the call or the move.';
COMMENT ON COLUMN ${events}.request_id IS 'The id of the JSON-RPC request: a string or a number.';
COMMENT ON COLUMN ${events}.workflow_version IS 'Which deployment of the workflow it was.';
COMMENT ON COLUMN ${events}.errors IS
  'Why the call failed or was refused: a list of what the app lets through of a failure, or the '
  'words of a refusal.';
COMMENT ON COLUMN ${events}.note IS 'What a person said who resolved it.';
COMMENT ON COLUMN ${events}.called_by IS
  'Who made the call, where actor is the person who resolved it.';
COMMENT ON COLUMN ${events}.previous IS
  'The hash of the entry before; of the first one, a digest of its run and workflow. NULL where '
  'the trail is not chained.';
COMMENT ON COLUMN ${events}.hash IS
  'Of this entry together with previous. NULL where the trail is not chained.';

CREATE TABLE ${switches} (
  workflow_type  text COLLATE "C" PRIMARY KEY,
  value          json NOT NULL,
  revision       text NOT NULL,
  changed_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE ${switches} IS
  'What operators have set for all runs of a workflow, such as a freeze. A row never expires.';
COMMENT ON COLUMN ${switches}.workflow_type IS
  'The gate''s id. One over 1000 bytes is its beginning and a SHA-256 digest.';
COMMENT ON COLUMN ${switches}.revision IS 'Names the last write of the row.';
`;
}
