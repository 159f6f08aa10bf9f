import type { SqliteDatabase } from './database.ts';

/**
 * Times are milliseconds since the epoch. A context, a payload and the three columns of a workflow
 * that only the store reads are JSON text. In other text a backslash is doubled, and NUL and half
 * surrogate pairs are written `\uXXXX`.
 */
export const SCHEMA = `
CREATE TABLE IF NOT EXISTS workflow_runs (
  run         TEXT PRIMARY KEY,
  principal   TEXT,
  minted      INTEGER,
  created_at  REAL NOT NULL,
  expires_at  REAL NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS workflow_runs_expiry ON workflow_runs (expires_at);

CREATE TABLE IF NOT EXISTS workflows (
  run            TEXT NOT NULL,
  workflow_type  TEXT NOT NULL,
  state          TEXT NOT NULL,
  context        TEXT,
  version        INTEGER NOT NULL,
  updated_at     REAL NOT NULL,
  claim          TEXT,
  unsettled      TEXT NOT NULL,
  settled        TEXT NOT NULL,
  PRIMARY KEY (run, workflow_type)
) STRICT;

CREATE INDEX IF NOT EXISTS workflows_state ON workflows (state, updated_at, run);

CREATE TABLE IF NOT EXISTS workflow_events (
  run            TEXT NOT NULL,
  workflow_type  TEXT NOT NULL,
  version        INTEGER NOT NULL,
  from_state     TEXT NOT NULL,
  to_state       TEXT NOT NULL,
  event          TEXT,
  payload        TEXT,
  actor          TEXT,
  tool           TEXT,
  occurred_at    REAL NOT NULL,
  PRIMARY KEY (run, workflow_type, version)
) STRICT;
`;

/**
 * What later versions keep beside that. `NULL` is what an older version, which may use the file at
 * the same time, says of it.
 */
const ADDED = [
  // The token that opened the run.
  ['workflow_runs', 'opened_by', 'TEXT'],
  // What the last commit said of the workflow's end.
  ['workflows', 'ended', 'INTEGER'],
] as const;

export function addMissingColumns(database: SqliteDatabase): void {
  for (const [table, column, type] of ADDED) {
    const known = database.prepare('SELECT 1 FROM pragma_table_info(?) WHERE name = ?');
    if (known.all(table, column).length > 0) continue;
    database.exec(`ALTER TABLE ${table} ADD COLUMN ${column} ${type}`);
  }
}
