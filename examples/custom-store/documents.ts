import type Database from 'libsql';
import type { Documents, FoundDocument } from 'mcp-interlock/stores/document';

/** The database is the reader's own; SQLite stands here, so that there is nothing to install. */
export const TABLE = `CREATE TABLE IF NOT EXISTS documents (
  key TEXT PRIMARY KEY, document TEXT NOT NULL, revision TEXT NOT NULL, expires_at INTEGER
)`;
export const CLEAN_UP = 'DELETE FROM documents WHERE expires_at <= ?';

export function tableDocuments(database: Database.Database): Documents {
  const read = database.prepare('SELECT document, revision FROM documents WHERE key = ?');
  const insert = database.prepare(`
    INSERT INTO documents (document, revision, expires_at, key) VALUES (?, ?, ?, ?)
        ON CONFLICT DO NOTHING`);
  const update = database.prepare(`
    UPDATE documents SET document = ?, revision = ?, expires_at = ?
     WHERE key = ? AND revision = ?`);
  const remove = database.prepare('DELETE FROM documents WHERE key = ? AND revision = ?');
  return {
    async read(key) {
      return read.get(key) as FoundDocument | undefined;
    },

    async swap(key, expected, { document, revision, expiresAt = null }) {
      const row = [document, revision, expiresAt, key];
      const { changes } = expected === undefined ? insert.run(row) : update.run([...row, expected]);
      return { swapped: changes === 1 };
    },

    async remove(key, expected) {
      return remove.run([key, expected]).changes === 1;
    },
  };
}
