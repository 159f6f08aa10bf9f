/**
 * Documents in the file. Hides the statements: what is in which column, and what a new run sweeps.
 */
import type {
  Documents,
  FoundDocument,
  IndexCount,
  IndexCountQuery,
  IndexPlace,
  IndexQuery,
  NextDocument,
  Swapped,
} from '../document/documents.ts';
import {
  makeTables,
  otherSqliteFormat,
  SQLITE_FORMAT,
  type SqliteDatabase,
  type SqliteStatement,
  type Transactions,
} from './database.ts';

/** Part of each statement: a file that another version has made anew meanwhile stays as it is. */
const IS_OURS = `(SELECT format FROM workflow_format) = ${SQLITE_FORMAT}`;

const STATEMENTS = {
  format: 'SELECT format FROM workflow_format',
  read: `
    SELECT document, revision, format
      FROM workflow_format LEFT JOIN workflow_documents ON key = ?`,
  insert: `
    INSERT INTO workflow_documents (document, revision, expires_at, key)
    SELECT ?, ?, ?, ? WHERE ${IS_OURS} ON CONFLICT DO NOTHING`,
  update: `
    UPDATE workflow_documents SET document = ?, revision = ?, expires_at = ?
     WHERE key = ? AND revision = ? AND ${IS_OURS}`,
  remove: `DELETE FROM workflow_documents WHERE key = ? AND revision = ? AND ${IS_OURS}`,
  // More than one, so that expired documents cannot pile up.
  sweep: `
    DELETE FROM workflow_documents WHERE key IN (
      SELECT key FROM workflow_documents WHERE expires_at <= ? ORDER BY expires_at LIMIT 2
    ) RETURNING key`,
  put: `
    INSERT OR REPLACE INTO workflow_index (key, list, label, score) VALUES (?, ?, ?, ?)`,
  drop: 'DELETE FROM workflow_index WHERE key = ? AND list = ?',
  dropAll: 'DELETE FROM workflow_index WHERE key = ?',
  find: `
    SELECT key, score FROM workflow_index
     WHERE list = ? AND score <= ? AND (score, key) > (?, ?) ORDER BY score, key LIMIT ?`,
  findLabel: `
    SELECT key, score FROM workflow_index
     WHERE list = ? AND label = ? AND score <= ? AND (score, key) > (?, ?)
     ORDER BY score, key LIMIT ?`,
  count: `
    SELECT label, count(*) AS entries, sum(score <= ?) AS upTo
      FROM workflow_index JOIN workflow_documents USING (key)
     WHERE list = ? AND (expires_at IS NULL OR expires_at > ?) GROUP BY label`,
} as const;

interface SqliteDocumentRow {
  readonly document: string | null;
  readonly revision: string | null;
  readonly format: number;
}

/** In front of every entry. */
const FIRST: IndexPlace = { score: Number.MIN_SAFE_INTEGER, key: '' };

/** Each method is one transaction. */
export class SqliteDocuments implements Documents {
  readonly #sql: Readonly<Record<keyof typeof STATEMENTS, SqliteStatement>>;
  readonly #transactions: Transactions;
  readonly #now: () => number;

  /** @throws InterlockError `ERR_INTERLOCK_STORE` where another version has made the file */
  constructor(database: SqliteDatabase, transactions: Transactions, now: () => number) {
    makeTables(database);
    const prepared = Object.entries(STATEMENTS).map(([name, sql]) => [name, database.prepare(sql)]);
    this.#sql = Object.fromEntries(prepared);
    this.#transactions = transactions;
    this.#now = now;
  }

  read(key: string): Promise<FoundDocument> {
    return this.#transactions.look(() => {
      const [row] = this.#sql.read.all(key) as SqliteDocumentRow[];
      const { document, revision, format } = row ?? {};
      if (format !== SQLITE_FORMAT) this.#assertFormat();
      return { document: document ?? undefined, revision: revision ?? undefined };
    });
  }

  swap(key: string, expected: string | undefined, next: NextDocument): Promise<Swapped> {
    const { document, revision, expiresAt = null, put, drop } = next;
    return this.#transactions.change(() => {
      const values = [document, revision, expiresAt, key];
      const swapped =
        expected === undefined
          ? this.#hasChanged(this.#sql.insert.run(...values))
          : this.#hasChanged(this.#sql.update.run(...values, expected));
      if (!swapped) return { swapped };
      for (const { list, label, score } of put) this.#sql.put.run(key, list, label, score);
      for (const list of drop) this.#sql.drop.run(key, list);
      if (expected === undefined) this.#sweep();
      return { swapped };
    });
  }

  remove(key: string, expected: string): Promise<boolean> {
    return this.#transactions.change(() => {
      const isRemoved = this.#hasChanged(this.#sql.remove.run(key, expected));
      if (isRemoved) this.#sql.dropAll.run(key);
      return isRemoved;
    });
  }

  find({ list, label, upTo, after = FIRST, limit }: IndexQuery): Promise<readonly IndexPlace[]> {
    const place = [upTo, after.score, after.key, limit];
    return this.#look(() => {
      return label === undefined
        ? (this.#sql.find.all(list, ...place) as IndexPlace[])
        : (this.#sql.findLabel.all(list, label, ...place) as IndexPlace[]);
    });
  }

  count({ list, now, upTo }: IndexCountQuery): Promise<readonly IndexCount[]> {
    return this.#look(() => this.#sql.count.all(upTo, list, now) as IndexCount[]);
  }

  #sweep(): void {
    const swept = this.#sql.sweep.all(this.#now()) as { key: string }[];
    for (const { key } of swept) this.#sql.dropAll.run(key);
  }

  #look<T>(work: () => T): Promise<T> {
    return this.#transactions.look(() => {
      this.#assertFormat();
      return work();
    });
  }

  /** Whether a statement changed a row. All of the databases answer so. */
  #hasChanged(answer: unknown): boolean {
    if (Number((answer as { changes: number | bigint }).changes) > 0) return true;
    this.#assertFormat();
    return false;
  }

  /** @throws InterlockError `ERR_INTERLOCK_STORE` where another version has made the file anew */
  #assertFormat(): void {
    const [row] = this.#sql.format.all() as { format: number }[];
    const refused = otherSqliteFormat(row?.format);
    if (refused) throw refused;
  }
}
