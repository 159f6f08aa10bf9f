import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'libsql';

/** A test's own database file, with as many connections as it needs. */
export interface SqliteFile {
  readonly path: string;
  connect(): Database.Database;
  remove(): void;
}

export function makeSqliteFile(): SqliteFile {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-sqlite-'));
  const path = join(folder, 'runs.db');
  const connections: Database.Database[] = [];
  return {
    path,
    connect() {
      const database = new Database(path);
      connections.push(database);
      return database;
    },
    remove() {
      for (const database of connections) database.close();
      rmSync(folder, { recursive: true });
    },
  };
}
