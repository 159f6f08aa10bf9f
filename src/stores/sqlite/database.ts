/**
 * The file: its connection, its transactions and its tables. Hides how processes wait for each
 * other, and what each version of the package has changed in the tables.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { InterlockError } from '../../errors.ts';

/** A value that a statement is given. */
export type SqliteValue = string | number | null;

/**
 * What the store uses of a prepared statement: by `unknown`, since the clients type their values in
 * ways of their own.
 */
export interface SqliteStatement {
  all(...values: unknown[]): unknown[];
  run(...values: unknown[]): unknown;
}

/**
 * What the store uses of an opened database: of `libsql`, `better-sqlite3` or Node's own
 * `node:sqlite`.
 */
export interface SqliteDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
}

/**
 * SQLite's own waiting is off: it stands in the way of the event loop, does not cover the switch to
 * the write-ahead log, and pauses so long that a process starves where others are busy.
 */
const SETTINGS = `
PRAGMA busy_timeout = 0;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA fullfsync = ON;
`;

/** The lock is free for moments only where others are busy. */
const PAUSE_MS = 2;

/**
 * Prepares a connection: what is committed on it survives a power failure, since the write-ahead
 * log is flushed to the disk at every commit, on macOS past the drive's own cache too. Then does
 * `work` in a transaction.
 */
export function setUp<T>(database: SqliteDatabase, busyTimeoutMs: number, work: () => T): T {
  const deadline = performance.now() + busyTimeoutMs;
  for (;;) {
    try {
      database.exec(SETTINGS);
      return transaction(database, 'BEGIN IMMEDIATE', work);
    } catch (error) {
      if (!isLocked(error) || performance.now() >= deadline) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, PAUSE_MS);
    }
  }
}

/**
 * Transactions that wait for those of other processes, up to a limit, while the event loop goes on.
 */
export class Transactions {
  readonly #database: SqliteDatabase;
  readonly #busyTimeoutMs: number;

  constructor(database: SqliteDatabase, busyTimeoutMs: number) {
    this.#database = database;
    this.#busyTimeoutMs = busyTimeoutMs;
  }

  /** Runs `work` alone among all writers of the file. */
  change<T>(work: () => T): Promise<T> {
    return this.#run('BEGIN IMMEDIATE', work);
  }

  /** Runs `work` on the file as it is at one moment, beside writers. */
  look<T>(work: () => T): Promise<T> {
    return this.#run('BEGIN', work);
  }

  async #run<T>(begin: string, work: () => T): Promise<T> {
    const deadline = performance.now() + this.#busyTimeoutMs;
    for (;;) {
      try {
        return transaction(this.#database, begin, work);
      } catch (error) {
        if (!isLocked(error) || performance.now() >= deadline) throw error;
        await sleep(PAUSE_MS);
      }
    }
  }
}

/**
 * From beginning to end without a pause, so that nothing else on this connection comes in between.
 */
function transaction<T>(database: SqliteDatabase, begin: string, work: () => T): T {
  database.exec(begin);
  try {
    const result = work();
    database.exec('COMMIT');
    return result;
  } catch (error) {
    rollBack(database);
    throw error;
  }
}

/** After some errors, such as a full disk, SQLite has rolled back by itself. */
function rollBack(database: SqliteDatabase): void {
  try {
    database.exec('ROLLBACK');
  } catch {}
}

/** By its message, since each driver has codes of its own. */
function isLocked(error: unknown): boolean {
  return error instanceof Error && error.message.includes('database is locked');
}

/**
 * Times are milliseconds since the epoch. A context, a payload and the three columns of a workflow
 * that only the store reads are JSON text. In other text a backslash is doubled, and NUL and half
 * surrogate pairs are written `\uXXXX`.
 */
const SCHEMA = `
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

CREATE TABLE IF NOT EXISTS workflow_format (format INTEGER NOT NULL) STRICT;
`;

/**
 * The trail, in the order in which it was written. `entry` is all that an entry says, as JSON; the
 * columns before it are for queries, and what older versions of the package read and write. An
 * entry that moved nothing has its `from_state` as `to_state` there. They give it no `seq`.
 */
const EVENTS = `
CREATE TABLE workflow_events (
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
  seq            INTEGER,
  attempt        INTEGER,
  entry          TEXT,
  hash           TEXT
) STRICT;
CREATE INDEX workflow_events_run ON workflow_events (run, workflow_type);
`;

/** The old table is keyed by the version, of which an attempt that moved nothing makes none. */
const EVENTS_ANEW = `
ALTER TABLE workflow_events RENAME TO workflow_events_before;
${EVENTS}
INSERT INTO workflow_events
  (run, workflow_type, version, from_state, to_state, event, payload, actor, tool, occurred_at, seq, attempt)
SELECT run, workflow_type, version, from_state, to_state, event, payload, actor, tool, occurred_at, version, 1
  FROM workflow_events_before ORDER BY run, workflow_type, version;
DROP TABLE workflow_events_before;
`;

/** What listings go by. None of them goes through runs that have ended. */
const INDEXES = `
CREATE INDEX IF NOT EXISTS workflows_open
  ON workflows (workflow_type, updated_at, run, state) WHERE ended IS NOT 1;
CREATE INDEX IF NOT EXISTS workflows_claimed ON workflows (workflow_type) WHERE claim IS NOT NULL;
CREATE INDEX IF NOT EXISTS workflow_runs_owned ON workflow_runs (principal, run);
`;

/**
 * The format of the file. A change that this version of the package could not work with has a
 * greater number; columns that it does not know are none.
 */
export const FORMAT = 1;

export function newerFormat(found: number): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `sqliteStore(): the file has the format ${found}, and this version of mcp-interlock knows ${FORMAT}; ` +
      'a newer version has changed it. Nothing was written',
  );
}

/**
 * What later versions keep beside that. `NULL` is what an older version, which may use the file at
 * the same time, says of it.
 */
const ADDED = [
  // The token that opened the run.
  ['workflow_runs', 'opened_by', 'TEXT'],
  // What the last commit said of the workflow's end.
  ['workflows', 'ended', 'INTEGER'],
  // Where its trail stands.
  ['workflows', 'seq', 'INTEGER'],
  ['workflows', 'attempts', 'INTEGER'],
  ['workflows', 'trail_hash', 'TEXT'],
] as const;

/** Brings a file of any older version up to date. It has a transaction open. */
export function migrate(database: SqliteDatabase): void {
  database.exec(SCHEMA);
  const [row] = database.prepare('SELECT max(format) AS format FROM workflow_format').all() as {
    format: number | null;
  }[];
  const found = row?.format ?? 0;
  if (found > FORMAT) throw newerFormat(found);
  addMissingColumns(database);
  const columns = database.prepare("SELECT name FROM pragma_table_info('workflow_events')").all();
  const names = (columns as { name: string }[]).map(({ name }) => name);
  if (names.length === 0) database.exec(EVENTS);
  else if (!names.includes('seq')) database.exec(EVENTS_ANEW);
  database.exec(INDEXES);
  if (found < FORMAT) database.exec(`INSERT INTO workflow_format (format) VALUES (${FORMAT})`);
}

function addMissingColumns(database: SqliteDatabase): void {
  for (const [table, column, type] of ADDED) {
    const known = database.prepare('SELECT 1 FROM pragma_table_info(?) WHERE name = ?');
    if (known.all(table, column).length > 0) continue;
    database.exec(`ALTER TABLE ${table} ADD COLUMN ${column} ${type}`);
  }
}
