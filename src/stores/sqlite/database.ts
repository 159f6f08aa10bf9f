import { setTimeout as sleep } from 'node:timers/promises';

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
