/**
 * The file: its connection, its transactions and its tables. Hides how processes wait for each
 * other, and what each version of the package has changed in the tables.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { InterlockError } from '../../errors.ts';

/** A parameter of a statement. */
export type SqliteValue = string | number | null;

/**
 * What the store uses of a prepared statement. Its values are `unknown`, since each client types
 * them otherwise.
 */
export interface SqliteStatement {
  all(...values: unknown[]): unknown[];
  run(...values: unknown[]): unknown;
}

/** What the store uses of an opened database of `libsql`, `better-sqlite3` or `node:sqlite`. */
export interface SqliteDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
}

/**
 * Without SQLite's own waiting, since it blocks the event loop and does not cover the switch to the
 * write-ahead log. Its pauses are also so long that a process starves among busy ones.
 */
const SETTINGS = `
PRAGMA busy_timeout = 0;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA fullfsync = ON;
`;

/** Short, since busy processes leave the lock free for moments only. */
const PAUSE_MS = 2;

/**
 * Prepares a connection, and then does `work` in a transaction. Every commit on the connection
 * flushes the write-ahead log, on macOS past the drive's cache too, so it survives a power failure.
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

/** Transactions that wait for those of other processes, without blocking the event loop. */
export class Transactions {
  readonly #database: SqliteDatabase;
  readonly #busyTimeoutMs: number;

  constructor(database: SqliteDatabase, busyTimeoutMs: number) {
    this.#database = database;
    this.#busyTimeoutMs = busyTimeoutMs;
  }

  /** Runs `work` while no other process writes the file. */
  change<T>(work: () => T): Promise<T> {
    return this.#run('BEGIN IMMEDIATE', work);
  }

  /** Runs `work` on the file as it is at one moment; other processes may write meanwhile. */
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

/** Synchronous, so that no other operation on this connection comes in between. */
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

/** Goes by the message, since each driver has its own codes. */
function isLocked(error: unknown): boolean {
  return error instanceof Error && error.message.includes('database is locked');
}

/**
 * Times are milliseconds since the epoch. The columns `context`, `payload`, `claim`, `unsettled`
 * and `settled` are JSON text. In other text a backslash is doubled, and NUL and half surrogate
 * pairs are written `\uXXXX`.
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
 * The trail, in the order of its entries. `entry` is the whole entry as JSON. The columns before it
 * are for queries and for older versions of the package, which write no `seq`. In those columns, an
 * entry that moved nothing has its `from_state` as its `to_state`.
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

/** The old table has the version as its key, so it cannot hold an attempt that moved nothing. */
const EVENTS_ANEW = `
ALTER TABLE workflow_events RENAME TO workflow_events_before;
${EVENTS}
INSERT INTO workflow_events
  (run, workflow_type, version, from_state, to_state, event, payload, actor, tool,
   occurred_at, seq, attempt)
SELECT run, workflow_type, version, from_state, to_state, event, payload, actor, tool,
       occurred_at, version, 1
  FROM workflow_events_before ORDER BY run, workflow_type, version;
DROP TABLE workflow_events_before;
`;

/** For the listings, none of which goes through runs that have ended. */
const INDEXES = `
CREATE INDEX IF NOT EXISTS workflows_open
  ON workflows (workflow_type, updated_at, run, state) WHERE ended IS NOT 1;
CREATE INDEX IF NOT EXISTS workflows_claimed ON workflows (workflow_type) WHERE claim IS NOT NULL;
CREATE INDEX IF NOT EXISTS workflow_runs_owned ON workflow_runs (principal, run);
`;

/**
 * The format of the file. Its number grows with a change that older versions of the package cannot
 * work with. A new column is no such change.
 */
export const FORMAT = 1;

export function newerFormat(found: number): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `sqliteStore(): the file has the format ${found}, and this version of mcp-interlock ` +
      `knows ${FORMAT}; a newer version has changed it. Nothing was written`,
  );
}

/**
 * Columns that later versions have added. `NULL` means that an older version, which may use the
 * file at the same time, wrote the row.
 */
const ADDED = [
  // The token that opened the run.
  ['workflow_runs', 'opened_by', 'TEXT'],
  // Whether the last commit ended the workflow.
  ['workflows', 'ended', 'INTEGER'],
  // What the next entry of its trail follows on.
  ['workflows', 'seq', 'INTEGER'],
  ['workflows', 'attempts', 'INTEGER'],
  ['workflows', 'trail_hash', 'TEXT'],
] as const;

/** Brings a file of any older version up to date, in the transaction that the caller has open. */
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
