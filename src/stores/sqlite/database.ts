/** A value that a statement is given. */
export type SqliteValue = string | number | null;

/** What the store uses of a prepared statement. */
export interface SqliteStatement {
  all(...values: SqliteValue[]): unknown[];
  run(...values: SqliteValue[]): unknown;
}

/** What the store uses of an opened database: of `libsql`, `better-sqlite3` or Node's own `node:sqlite`. */
export interface SqliteDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
}

const PAUSE_MS = 10;

/**
 * Makes what is committed survive a power failure: the write-ahead log is flushed to the disk at every commit, on macOS
 * past the drive's own cache too.
 */
export function makeDurable(database: SqliteDatabase, busyTimeoutMs: number): void {
  database.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  switchToWal(database, Math.ceil(busyTimeoutMs / PAUSE_MS));
  database.exec('PRAGMA synchronous = FULL');
  database.exec('PRAGMA fullfsync = ON');
}

/** SQLite's own waiting does not cover this switch, which fails where another process makes it at the same moment. */
function switchToWal(database: SqliteDatabase, retries: number): void {
  try {
    database.exec('PRAGMA journal_mode = WAL');
  } catch (error) {
    if (retries <= 0 || !isLocked(error)) throw error;
    pause(PAUSE_MS);
    switchToWal(database, retries - 1);
  }
}

/** By its message, since each driver has codes of its own. */
function isLocked(error: unknown): boolean {
  return error instanceof Error && error.message.includes('database is locked');
}

function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Runs `work` alone among all writers of the file, in this process and others. */
export function change<T>(database: SqliteDatabase, work: () => T): T {
  return transaction(database, 'BEGIN IMMEDIATE', work);
}

/** Runs `work` on the file as it is at one moment, next to writers. */
export function look<T>(database: SqliteDatabase, work: () => T): T {
  return transaction(database, 'BEGIN', work);
}

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
