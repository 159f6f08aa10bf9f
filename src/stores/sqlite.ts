import * as z from 'zod/mini';
import { atCaller } from '../basics/errors.ts';
import {
  clockOption,
  flagOption,
  integerOption,
  lazyOptions,
  parseOptions,
} from '../basics/options.ts';
import { documentStore, type IndexedDocumentStateStore } from './document.ts';
import { type SqliteDatabase, setUp, Transactions } from './sqlite/database.ts';
import { SqliteDocuments } from './sqlite/documents.ts';
import type { CountQuery, RunsCount } from './store.ts';

export type { SqliteDatabase, SqliteStatement, SqliteValue } from './sqlite/database.ts';

export interface SqliteStoreOptions {
  /**
   * An opened database of `libsql`, `better-sqlite3` or `node:sqlite`, on a disk of this machine.
   * The caller closes it, and does not use this connection itself: while the caller has a
   * transaction open on it, the store's calls fail.
   */
  readonly database: SqliteDatabase;
  /**
   * The clock, in milliseconds since the epoch; one for all processes that use the file. Default
   * `Date.now`.
   */
  readonly now?: (() => number) | undefined;
  /**
   * How long an operation waits for other processes before it rejects, in milliseconds. Default
   * 2,000.
   */
  readonly busyTimeoutMs?: number | undefined;
  /** Chains the trail of each run by hashes, which `verifyTrail()` checks. Default `false`. */
  readonly chainTrail?: boolean | undefined;
}

export interface SqliteStore extends IndexedDocumentStateStore {
  count(query: CountQuery): Promise<RunsCount>;
}

const optionsSchema = lazyOptions(() => ({
  database: z.custom<SqliteDatabase>(
    isDatabase,
    'expected an opened SQLite database with exec() and prepare()',
  ),
  now: clockOption(),
  busyTimeoutMs: z._default(integerOption(0), 2000),
  chainTrail: flagOption(),
}));

/**
 * Keeps runs in one SQLite file, as documents in the tables `workflow_documents` and
 * `workflow_index`, which it makes itself. For one machine: steps are exact between all processes
 * that open the file. A commit survives a crash of the process and a power failure, since it
 * flushes the disk. The trail of a run goes with the run. Each new run removes two expired ones.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown,
 * `ERR_INTERLOCK_STORE` where another version of the package has made the file
 */
export function sqliteStore(options: SqliteStoreOptions): SqliteStore {
  return atCaller(sqliteStore, () => {
    const { database, now, busyTimeoutMs, chainTrail } = parseOptions(
      'sqliteStore() options',
      optionsSchema,
      options,
    );
    const transactions = new Transactions(database, busyTimeoutMs);
    const documents = setUp(database, busyTimeoutMs, () => {
      return new SqliteDocuments(database, transactions, now);
    });
    return documentStore(documents, { now, chainTrail, trailLimit: Infinity }) as SqliteStore;
  });
}

function isDatabase(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return ['exec', 'prepare'].every((name) => typeof Reflect.get(value, name) === 'function');
}
