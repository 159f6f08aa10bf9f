/**
 * The file: its connection, its transactions and its tables. Hides how processes wait for each
 * other, and how the tables are laid out.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { InterlockError } from '../../basics/errors.ts';

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
        if (!isLocked(error)) throw error;
        if (performance.now() >= deadline) throw stillLocked(error);
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

/** Certain, so that no caller asks again whether the file was written after all. */
function stillLocked(cause: unknown): InterlockError {
  const message = 'sqliteStore(): the database is locked by another writer for too long';
  return new InterlockError('ERR_INTERLOCK_STORE', message, { cause });
}

/** Goes by the message, since each driver has its own codes. */
function isLocked(error: unknown): boolean {
  return error instanceof Error && error.message.includes('database is locked');
}

/**
 * Times are whole milliseconds since the epoch. `document` is a run, older entries of its trail, or
 * a workflow's switch, as JSON text. A document without `expires_at` is never removed unasked. The
 * views are for queries of people; nothing here reads them.
 */
const SCHEMA = `
CREATE TABLE IF NOT EXISTS workflow_documents (
  key         TEXT PRIMARY KEY,
  revision    TEXT NOT NULL,
  expires_at  INTEGER,
  document    TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS workflow_documents_expiry
  ON workflow_documents (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS workflow_index (
  key         TEXT NOT NULL,
  list        TEXT NOT NULL,
  label       TEXT NOT NULL,
  score       INTEGER NOT NULL,
  PRIMARY KEY (key, list)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS workflow_index_order ON workflow_index (list, score, key);
CREATE INDEX IF NOT EXISTS workflow_index_label ON workflow_index (list, label, score, key);

CREATE TABLE IF NOT EXISTS workflow_format (format INTEGER NOT NULL) STRICT;

CREATE VIEW IF NOT EXISTS workflow_runs AS
SELECT document ->> '$.run' AS run, document ->> '$.session.principal' AS principal,
       document ->> '$.expiresAt' AS expires_at
  FROM workflow_documents WHERE key GLOB 'run-*';

CREATE VIEW IF NOT EXISTS workflows AS
SELECT d.document ->> '$.run' AS run, w.value ->> '$[0]' AS workflow_type,
       w.value ->> '$[1].snapshot.state' AS state, w.value -> '$[1].snapshot.context' AS context,
       w.value ->> '$[1].snapshot.version' AS version,
       w.value ->> '$[1].snapshot.updatedAt' AS updated_at, w.value ->> '$[1].ended' AS ended,
       w.value -> '$[1].claim' AS claim, w.value -> '$[1].frozen' AS frozen
  FROM workflow_documents d, json_each(d.document, '$.workflows') w WHERE d.key GLOB 'run-*';

CREATE VIEW IF NOT EXISTS workflow_events AS
WITH trails (run, workflow_type, trail) AS (
  SELECT d.document ->> '$.run', w.value ->> '$[0]', w.value -> '$[1].trail'
    FROM workflow_documents d, json_each(d.document, '$.workflows') w WHERE d.key GLOB 'run-*'
   UNION ALL
  SELECT document ->> '$.run', document ->> '$.workflow', document -> '$.entries'
    FROM workflow_documents WHERE key GLOB 'trail-*'
)
SELECT DISTINCT run, workflow_type, e.value ->> '$.seq' AS seq, e.value ->> '$.version' AS version,
       e.value ->> '$.attempt' AS attempt, e.value ->> '$.from' AS from_state,
       e.value ->> '$.to' AS to_state, e.value ->> '$.event' AS event,
       e.value ->> '$.actor' AS actor, e.value ->> '$.tool' AS tool,
       e.value ->> '$.at' AS occurred_at, e.value AS entry
  FROM trails, json_each(trail) e;
`;

/**
 * The format of the file. Its number grows with a change that other versions of the package cannot
 * work with. A new column is no such change.
 */
export const SQLITE_FORMAT = 3;

/** The error to throw where the file has another format; `undefined` where it has this one. */
export function otherSqliteFormat(found: number | undefined): InterlockError | undefined {
  if (found === SQLITE_FORMAT) return undefined;
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `sqliteStore(): the file has the format ${found ?? '?'}, and this version of mcp-interlock ` +
      `knows ${SQLITE_FORMAT}: another version has made it. Nothing was written`,
  );
}

/** Makes the tables where they are missing, in the transaction that the caller has open. */
export function makeTables(database: SqliteDatabase): void {
  const known = "SELECT name FROM sqlite_master WHERE name = 'workflow_format'";
  if (database.prepare(known).all().length > 0) {
    const [row] = database.prepare('SELECT format FROM workflow_format').all() as {
      format: number;
    }[];
    const refused = row && otherSqliteFormat(row.format);
    if (refused) throw refused;
    if (row) return;
  }
  database.exec(SCHEMA);
  database.exec(`INSERT INTO workflow_format (format) VALUES (${SQLITE_FORMAT})`);
}
