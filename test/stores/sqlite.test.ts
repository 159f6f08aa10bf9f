import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { InterlockError } from '../../src/errors.ts';
import { SCHEMA } from '../../src/stores/sqlite/rows.ts';
import { type SqliteDatabase, sqliteStore } from '../../src/stores/sqlite.ts';
import { claimed, claimOf, commitOf, HOUR, step } from '../../src/testing/fixtures.ts';
import { describeStateStore } from '../../src/testing/index.ts';
import { ManualTime } from '../helpers/manual-time.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';

async function makeStore() {
  const file = makeSqliteFile();
  const { now, advance } = new ManualTime();
  const open = () => sqliteStore({ database: file.connect(), now });
  return {
    store: open(),
    reopen: async () => open(),
    advance,
    close: async () => file.remove(),
  };
}

/** A store on a file of the test's own, and a run. */
function openStore() {
  const file = makeSqliteFile();
  onTestFinished(() => file.remove());
  const { now, advance } = new ManualTime();
  const database = file.connect();
  const rowCounts = () => {
    const names = ['workflow_runs', 'workflows', 'workflow_events'];
    const count = (name: string) =>
      database.prepare(`SELECT count(*) AS n FROM ${name}`).get() as { n: number };
    return Object.fromEntries(names.map((name) => [name, count(name).n]));
  };
  const store = sqliteStore({ database, now });
  return { file, database, store, run: randomUUID(), now, advance, rowCounts };
}

describeStateStore('sqliteStore()', makeStore, { describe, it });

describe('sqliteStore() on a file of an older version', () => {
  it('keeps its runs, and goes on beside a process that is not deployed anew yet', async () => {
    const file = makeSqliteFile();
    const database = file.connect();
    database.exec(SCHEMA);
    const time = 1_700_000_000_000;
    const expires = time + HOUR;
    database.exec(`
      INSERT INTO workflow_runs (run, created_at, expires_at, principal, minted) VALUES ('old', ${time}, ${expires}, 'alice', 0);
      INSERT INTO workflows (run, workflow_type, state, context, version, updated_at, claim, unsettled, settled)
      VALUES ('old', 'checkout', 'has_items', NULL, 1, ${time}, NULL, '[]', '[]')`);
    const store = sqliteStore({ database, now: () => time });
    const other = sqliteStore({ database: file.connect(), now: () => time });
    expect(await store.open('old', {}, HOUR)).toEqual({ status: 'taken' });
    expect(await store.read('old', HOUR)).toMatchObject({
      session: { principal: 'alice' },
      workflows: { checkout: { snapshot: { state: 'has_items', version: 1 } } },
    });
    expect((await store.read('old', HOUR))?.workflows.checkout).not.toHaveProperty('ended');
    expect(await step(other, 'old')).toBe(2);
    database.exec(
      `INSERT INTO workflow_runs (run, created_at, expires_at, principal, minted) VALUES ('beside', ${time}, ${expires}, NULL, NULL)`,
    );
    expect(await step(store, 'beside')).toBe(1);
    file.remove();
  });
});

describe('sqliteStore()', () => {
  it('flushes the write-ahead log to the disk at every commit', () => {
    const { database } = openStore();
    const setting = (name: string) => database.prepare(`PRAGMA ${name}`).get();
    expect(setting('journal_mode')).toMatchObject({ journal_mode: 'wal' });
    expect(setting('synchronous')).toMatchObject({ synchronous: 2 });
    expect(setting('fullfsync')).toMatchObject({ fullfsync: 1 });
  });

  it('undoes a commit of which one part fails, and can be used again at once', async () => {
    const { database, store, run } = openStore();
    await store.open(run, {}, HOUR);
    const request = claimOf(run);
    await claimed(store, request);
    database.exec(
      `CREATE TRIGGER full BEFORE INSERT ON workflow_events BEGIN SELECT RAISE(ABORT, 'full'); END`,
    );
    await expect(store.commit(commitOf(request))).rejects.toThrow('full');
    expect((await store.read(run, HOUR))?.workflows.checkout).toMatchObject({
      snapshot: { state: 'empty', version: 0 },
      claim: { token: request.token },
    });
    database.exec('DROP TRIGGER full');
    expect(await store.commit(commitOf(request))).toEqual({ status: 'committed', version: 1 });
  });

  it('waits for another writer without holding up the process', async () => {
    const { file, store, run } = openStore();
    await store.open(run, {}, HOUR);
    const writer = file.connect();
    writer.exec('BEGIN IMMEDIATE');
    const waiting = claimed(store, claimOf(run));
    expect(await store.read(run, HOUR)).toBeDefined();
    await new Promise((resolve) => setTimeout(resolve, 10));
    writer.exec('COMMIT');
    await waiting;
  });

  it('rejects after its timeout while another connection writes, and serves again afterwards', async () => {
    const { file, database, run } = openStore();
    const impatient = sqliteStore({ database, busyTimeoutMs: 20 });
    await impatient.open(run, {}, HOUR);
    const writer = file.connect();
    writer.exec('BEGIN IMMEDIATE');
    await expect(impatient.claim(claimOf(run))).rejects.toThrow('locked');
    writer.exec('COMMIT');
    await claimed(impatient, claimOf(run));
  });

  it('waits at its start for another process that makes the file at the same moment', () => {
    const fresh = makeSqliteFile();
    const lockedFor = (times: number): SqliteDatabase => {
      const real = fresh.connect();
      let left = times;
      const exec = (sql: string) => {
        if (sql.includes('journal_mode') && left-- > 0) throw new Error('database is locked');
        return real.exec(sql);
      };
      return { exec, prepare: (sql) => real.prepare(sql) };
    };
    expect(() => sqliteStore({ database: lockedFor(5) })).not.toThrow();
    expect(() => sqliteStore({ database: lockedFor(1), busyTimeoutMs: 0 })).toThrow('locked');
    fresh.remove();
  });

  it('rejects while the caller has a transaction open on the connection, and leaves that as it is', async () => {
    const { database, store, run } = openStore();
    database.exec('CREATE TABLE orders (id TEXT)');
    database.exec('BEGIN');
    database.exec(`INSERT INTO orders VALUES ('a')`);
    await expect(store.open(run, {}, HOUR)).rejects.toThrow('transaction');
    database.exec('COMMIT');
    expect(database.prepare('SELECT id FROM orders').all()).toHaveLength(1);
  });

  it('does not write for a look at a run whose expiry was moved a moment ago', async () => {
    const { file, store, run, now, advance } = openStore();
    await store.open(run, {}, HOUR);
    const dataVersion = () => file.connect().prepare('SELECT expires_at FROM workflow_runs').get();
    const before = dataVersion();
    advance(HOUR / 20);
    await store.read(run, HOUR);
    expect(dataVersion()).toMatchObject({
      expires_at: (before as { expires_at: number }).expires_at,
    });
    advance(HOUR / 10);
    await store.read(run, HOUR);
    expect(dataVersion()).toMatchObject({ expires_at: now() + HOUR });
  });

  it('removes two expired runs, with all that was in them, for each new one', async () => {
    const { store, run, advance, rowCounts } = openStore();
    for (let index = 0; index < 5; index += 1) await step(store, `${run}-${index}`, { create: {} });
    advance(HOUR);
    await store.open(run, {}, HOUR);
    expect(rowCounts()).toEqual({ workflow_runs: 4, workflows: 3, workflow_events: 3 });
    expect(await store.sweep()).toBe(3);
    expect(rowCounts()).toEqual({ workflow_runs: 1, workflows: 0, workflow_events: 0 });
    expect(await store.sweep()).toBe(0);
  });

  it('is read with ordinary SQL', async () => {
    const { database, store, run } = openStore();
    await store.open(run, { principal: 'alice' }, HOUR);
    await step(store, run, {}, { snapshot: { state: 'payment', context: { total: 12.5 } } });
    const rows = database
      .prepare(`SELECT run, state, context ->> 'total' AS total FROM workflows`)
      .all();
    expect(rows).toMatchObject([{ run, state: 'payment', total: 12.5 }]);
    expect(
      database.prepare('SELECT from_state, to_state, event FROM workflow_events').all(),
    ).toMatchObject([{ from_state: 'empty', to_state: 'has_items', event: 'ADD_ITEM' }]);
  });

  it('takes any database that has exec() and prepare(), and says so of anything else', () => {
    const { database } = openStore();
    for (const wrong of [undefined, null, 'runs.db', {}, { exec: () => {} }]) {
      expect(() => sqliteStore({ database: wrong as unknown as SqliteDatabase })).toThrow(
        InterlockError,
      );
    }
    expect(() => sqliteStore({ database, clock: Date.now } as never)).toThrow(
      /unknown key "clock"/,
    );
  });
});
