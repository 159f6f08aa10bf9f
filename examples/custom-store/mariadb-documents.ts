import type { Pool, PoolConnection, UpsertResult } from 'mariadb';
import type { Documents, IndexCount, IndexPlace } from 'mcp-interlock/stores/document';

/** This collation compares bytes: others take "A" for "a", or ignore spaces at the end. */
const OPTIONS = 'ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin';

/** Run these once. A label may be longer than a key of InnoDB, so its digest is in the index. */
export const MARIADB_TABLES = [
  `CREATE TABLE IF NOT EXISTS interlock_documents (
    id VARCHAR(100) PRIMARY KEY,
    document LONGTEXT NOT NULL,
    revision VARCHAR(20) NOT NULL,
    expires_at BIGINT,
    INDEX (expires_at)
  ) ${OPTIONS}`,
  `CREATE TABLE IF NOT EXISTS interlock_index (
    id VARCHAR(100),
    list VARCHAR(60),
    label LONGTEXT NOT NULL,
    digest BINARY(32) AS (UNHEX(SHA2(label, 256))) STORED,
    score BIGINT NOT NULL,
    expires_at BIGINT,
    PRIMARY KEY (id, list),
    INDEX (list, score, id),
    INDEX (list, digest, score, id),
    FOREIGN KEY (id) REFERENCES interlock_documents (id) ON DELETE CASCADE
  ) ${OPTIONS}`,
];

/** Of UTC. `UNIX_TIMESTAMP(NOW(3))` is an hour wrong once a year, where clocks are set back. */
const NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000";
const READ = `SELECT document, revision, ${NOW} AS now
  FROM (SELECT 1) AS always LEFT JOIN interlock_documents ON id = ?`;
// IGNORE is for the key that is there already. Nothing else of the row can be wrong.
const INSERT = `INSERT IGNORE interlock_documents
  SET document = ?, revision = ?, expires_at = ?, id = ?`;
const UPDATE = `UPDATE interlock_documents
  SET document = ?, revision = ?, expires_at = ? WHERE id = ? AND revision = ?`;
const REMOVE = 'DELETE FROM interlock_documents WHERE id = ? AND revision = ?';
const ADD = 'INSERT interlock_index SET id = ?, list = ?, label = ?, score = ?, expires_at = ?';
const SWEEP = `DELETE FROM interlock_documents WHERE expires_at <= ${NOW} LIMIT 2`;

/**
 * Documents in MariaDB.
 *
 * - Give it a pool of the primary, since a replica may lag. In a Galera cluster set
 *   `wsrep_sync_wait = 1`.
 * - Leave `innodb_flush_log_at_trx_commit` at 1, so that each commit is flushed to the disk. Where
 *   there is a binary log, set `sync_binlog = 1` too.
 * - `max_allowed_packet` must be more than the option `maxBytes` of `documentStore()`; as they
 *   come, it is.
 */
export function mariadbDocuments(pool: Pool): Required<Documents> {
  return {
    async read(key) {
      const [{ document, revision, now }] = await pool.execute(READ, [key]);
      return { document: document ?? undefined, revision: revision ?? undefined, now: Number(now) };
    },

    async swap(key, expected, { document, revision, expiresAt = null, index }) {
      // So that expired documents cannot pile up. If it fails, the next new one tries again.
      if (expected === undefined) await pool.query(SWEEP).catch(() => {});
      return transaction(pool, async (sql) => {
        const values = [document, revision, expiresAt, key];
        const { affectedRows }: UpsertResult =
          expected === undefined
            ? await sql.execute(INSERT, values)
            : await sql.execute(UPDATE, [...values, expected]);
        // Some clients leave out a row that stays as it is. Here a row gets another revision.
        if (affectedRows === 0) return { swapped: false };
        await sql.execute('DELETE FROM interlock_index WHERE id = ?', [key]);
        const rows = index.map(({ list, label, score }) => [key, list, label, score, expiresAt]);
        if (rows.length > 0) await sql.batch(ADD, rows);
        const [{ now }] = await sql.query(`SELECT ${NOW} AS now`);
        return { swapped: true, now: Number(now) };
      });
    },

    async remove(key, expected) {
      const { affectedRows }: UpsertResult = await pool.execute(REMOVE, [key, expected]);
      return affectedRows > 0;
    },

    async find({ list, label, upTo, after = { score: Number.MIN_SAFE_INTEGER, key: '' }, limit }) {
      const labels = label === undefined ? [] : [label];
      const ofLabel = labels.map(() => 'AND digest = UNHEX(SHA2(?, 256))').join('');
      const places: IndexPlace[] = await pool.execute(
        `SELECT id AS 'key', score FROM interlock_index WHERE list = ? ${ofLabel}
            AND score BETWEEN ? AND ? AND (score > ? OR id > ?) ORDER BY score, id LIMIT ?`,
        [list, ...labels, after.score, upTo, after.score, after.key, limit],
      );
      return places.map(({ key, score }) => ({ key, score: Number(score) }));
    },

    async count({ list, now, upTo }) {
      const counts: IndexCount[] = await pool.execute(
        `SELECT MIN(label) AS label, COUNT(*) AS entries, SUM(score <= ?) AS upTo
           FROM interlock_index
          WHERE list = ? AND (expires_at IS NULL OR expires_at > ?) GROUP BY digest`,
        [upTo, list, now],
      );
      return counts.map(({ label, entries, upTo }) => {
        return { label, entries: Number(entries), upTo: Number(upTo) };
      });
    },
  };
}

/** A deadlock or a lost connection rejects; `documentStore()` reads and tries once more. */
async function transaction<T>(pool: Pool, work: (sql: PoolConnection) => Promise<T>): Promise<T> {
  const sql = await pool.getConnection();
  try {
    // MariaDB's own level locks the gaps between rows, where other documents would deadlock.
    await sql.query('SET TRANSACTION ISOLATION LEVEL READ COMMITTED');
    await sql.beginTransaction();
    const result = await work(sql);
    await sql.commit();
    return result;
  } finally {
    // It rolls back what is not committed.
    await sql.release();
  }
}
