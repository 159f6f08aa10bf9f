import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'libsql';
import { describe, it } from 'vitest';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { describeStateStore } from '../../src/testing/index.ts';

async function makeStore() {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-sqlite-'));
  const databases: Database.Database[] = [];
  let time = 1_700_000_000_000;
  const reopen = async () => {
    const database = new Database(join(folder, 'runs.db'));
    databases.push(database);
    return sqliteStore({ database, now: () => time });
  };
  const close = async () => {
    for (const database of databases) database.close();
    rmSync(folder, { recursive: true });
  };
  const advance = (ms: number) => {
    time += ms;
  };
  return { store: await reopen(), reopen, advance, close };
}

describeStateStore('sqliteStore()', makeStore, { describe, it });
