/** Documents in the file. Hides the statements: what is in which column, and what a new run sweeps. */
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
  type SqliteDatabase,
  type SqliteStatement,
  type Transactions,
} from './database.ts';

const STATEMENTS = {
  format: 'SELECT format FROM workflow_format',
  read: 'SELECT document, revision FROM workflow_documents WHERE key = ?',
  insert: `
    INSERT INTO workflow_documents (document, revision, expires_at, key) VALUES (?, ?, ?, ?)
        ON CONFLICT DO NOTHING RETURNING 1`,
  update: `
    UPDATE workflow_documents SET document = ?, revision = ?, expires_at = ?
     WHERE key = ? AND revision = ? RETURNING 1`,
  remove: 'DELETE FROM workflow_documents WHERE key = ? AND revision = ? RETURNING 1',
  // More than one, so that expired documents cannot pile up.
  sweep: `
    DELETE FROM workflow_documents WHERE key IN (
      SELECT key FROM workflow_documents WHERE expires_at <= ? ORDER BY expires_at LIMIT 2
    ) RETURNING key`,
  removeEntries: 'DELETE FROM workflow_index WHERE key = ?',
  insertEntry: `
    INSERT INTO workflow_index (key, list, label, score, expires_at) VALUES (?, ?, ?, ?, ?)`,
  find: `
    SELECT key, score FROM workflow_index
     WHERE list = ? AND score <= ? AND (score, key) > (?, ?) ORDER BY score, key LIMIT ?`,
  findLabel: `
    SELECT key, score FROM workflow_index
     WHERE list = ? AND label = ? AND score <= ? AND (score, key) > (?, ?)
     ORDER BY score, key LIMIT ?`,
  count: `
    SELECT label, count(*) AS entries, sum(score <= ?) AS upTo FROM workflow_index
     WHERE list = ? AND (expires_at IS NULL OR expires_at > ?) GROUP BY label`,
} as const;

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

  read(key: string): Promise<FoundDocument | undefined> {
    return this.#look(() => {
      const [row] = this.#sql.read.all(key) as { document: string; revision: string }[];
      return row;
    });
  }

  swap(key: string, expected: string | undefined, next: NextDocument): Promise<Swapped> {
    const { document, revision, expiresAt = null, index } = next;
    return this.#change(() => {
      const values = [document, revision, expiresAt, key];
      const written =
        expected === undefined
          ? this.#sql.insert.all(...values)
          : this.#sql.update.all(...values, expected);
      if (written.length === 0) return { swapped: false };
      this.#sql.removeEntries.run(key);
      for (const { list, label, score } of index)
        this.#sql.insertEntry.run(key, list, label, score, expiresAt);
      if (expected === undefined) this.#sweep();
      return { swapped: true };
    });
  }

  remove(key: string, expected: string): Promise<boolean> {
    return this.#change(() => {
      if (this.#sql.remove.all(key, expected).length === 0) return false;
      this.#sql.removeEntries.run(key);
      return true;
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
    for (const { key } of swept) this.#sql.removeEntries.run(key);
  }

  #look<T>(work: () => T): Promise<T> {
    return this.#transactions.look(() => {
      this.#assertFormat();
      return work();
    });
  }

  #change<T>(work: () => T): Promise<T> {
    return this.#transactions.change(() => {
      this.#assertFormat();
      return work();
    });
  }

  /** @throws InterlockError `ERR_INTERLOCK_STORE` where another version has made the file anew */
  #assertFormat(): void {
    const [row] = this.#sql.format.all() as { format: number }[];
    const refused = row && otherSqliteFormat(row.format);
    if (refused) throw refused;
  }
}
