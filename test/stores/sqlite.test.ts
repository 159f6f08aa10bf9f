import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { InterlockError } from '../../src/errors.ts';
import { type SqliteDatabase, sqliteStore } from '../../src/stores/sqlite.ts';
import { verifyTrail } from '../../src/stores/trail.ts';
import { claimed, claimOf, commitOf, HOUR, step } from '../../src/testing/fixtures.ts';
import { describeStateStore } from '../../src/testing/index.ts';
import { ManualTime } from '../helpers/manual-clock.ts';
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
  // Longer than a busy machine pauses a test.
  const store = sqliteStore({ database, now, busyTimeoutMs: 20_000 });
  return { file, database, store, run: randomUUID(), now, advance, rowCounts };
}

describeStateStore('sqliteStore()', makeStore, { describe, it });

/** The tables of the first version, without `opened_by` and `ended`. */
const FIRST_TABLES = `
CREATE TABLE workflow_runs (
  run TEXT PRIMARY KEY, principal TEXT, minted INTEGER, created_at REAL NOT NULL,
  expires_at REAL NOT NULL
) STRICT;
CREATE TABLE workflows (
  run TEXT NOT NULL, workflow_type TEXT NOT NULL, state TEXT NOT NULL, context TEXT,
  version INTEGER NOT NULL, updated_at REAL NOT NULL, claim TEXT, unsettled TEXT NOT NULL,
  settled TEXT NOT NULL, PRIMARY KEY (run, workflow_type)
) STRICT;
CREATE TABLE workflow_events (
  run TEXT NOT NULL, workflow_type TEXT NOT NULL, version INTEGER NOT NULL,
  from_state TEXT NOT NULL, to_state TEXT NOT NULL, event TEXT, payload TEXT, actor TEXT,
  tool TEXT, occurred_at REAL NOT NULL, PRIMARY KEY (run, workflow_type, version)
) STRICT;
`;

/** The writes of the version before this one at a commit. */
function commitAsBefore(
  database: SqliteDatabase,
  run: string,
  version: number,
  time: number,
): void {
  database.exec(`
    INSERT OR REPLACE INTO workflows
      (run, workflow_type, state, context, version, updated_at, claim, ended, unsettled, settled)
    VALUES ('${run}', 'checkout', 'has_items', NULL, ${version}, ${time}, NULL, 0, '[]', '[]');
    INSERT INTO workflow_events
      (run, workflow_type, version, from_state, to_state, event, payload, actor, tool, occurred_at)
    VALUES ('${run}', 'checkout', ${version}, 'has_items', 'has_items', 'ADD', NULL, NULL,
            'cart.add_item', ${time})`);
}

describe('sqliteStore() on a file of an older version', () => {
  it('keeps its runs, and goes on beside a process of the older version', async () => {
    const file = makeSqliteFile();
    const database = file.connect();
    database.exec(FIRST_TABLES);
    const time = 1_700_000_000_000;
    const expires = time + HOUR;
    database.exec(`
      INSERT INTO workflow_runs (run, created_at, expires_at, principal, minted)
      VALUES ('old', ${time}, ${expires}, 'alice', 0);
      INSERT INTO workflows
        (run, workflow_type, state, context, version, updated_at, claim, unsettled, settled)
      VALUES ('old', 'checkout', 'has_items', NULL, 1, ${time}, NULL, '[]', '[]');
      INSERT INTO workflow_events VALUES
        ('old', 'checkout', 1, 'empty', 'has_items', 'ADD', '{"n":1}', NULL, 'cart.add_item',
         ${time})`);
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
      `INSERT INTO workflow_runs (run, created_at, expires_at, principal, minted)
       VALUES ('beside', ${time}, ${expires}, NULL, NULL)`,
    );
    expect(await step(store, 'beside')).toBe(1);
    file.remove();
  });

  it('numbers the entries of a process of the older version, and goes on after them', async () => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const database = file.connect();
    database.exec(FIRST_TABLES);
    const time = 1_700_000_000_000;
    const store = sqliteStore({ database, now: () => time });
    await store.open('run', {}, HOUR);
    expect(await step(store, 'run')).toBe(1);
    const request = claimOf('run');
    await claimed(store, request);
    const entry = {
      from: 'has_items',
      event: null,
      outcome: 'failed',
      tool: 'cart.add_item',
    } as const;
    await store.release(request, request.token, { entry });
    commitAsBefore(database, 'run', 2, time);
    commitAsBefore(database, 'run', 3, time);
    expect(await step(store, 'run')).toBe(4);
    commitAsBefore(database, 'run', 5, time);
    const trail = await store.history({ run: 'run', workflow: 'checkout' });
    expect(trail.map(({ seq, version }) => [seq, version])).toEqual([
      [1, 1],
      [2, 1],
      [3, 2],
      [4, 3],
      [5, 4],
      [6, 5],
    ]);
  });

  it('keeps the trail that an older version has written', async () => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const database = file.connect();
    database.exec(FIRST_TABLES);
    const time = Date.now();
    database.exec(`
      INSERT INTO workflow_runs VALUES ('old', NULL, NULL, ${time}, ${time + HOUR});
      INSERT INTO workflows
      VALUES ('old', 'checkout', 'has_items', NULL, 1, ${time}, NULL, '[]', '[]');
      INSERT INTO workflow_events VALUES
        ('old', 'checkout', 1, 'empty', 'has_items', 'ADD', '{"n":1}', 'ann', 'cart.add_item',
         ${time})`);
    const store = sqliteStore({ database });
    await step(store, 'old');
    const [first, second] = await store.history({ run: 'old', workflow: 'checkout' });
    expect(first).toEqual({
      ...{ seq: 1, version: 1, attempt: 1, at: time, from: 'empty', to: 'has_items' },
      ...{ event: 'ADD', payload: { n: 1 }, actor: 'ann', tool: 'cart.add_item' },
    });
    expect(second).toMatchObject({ seq: 2, version: 2 });
  });
});

describe('sqliteStore({ chainTrail }) beside a process of an older version', () => {
  /** A file of the first version with one run, and a claim of the version before this one. */
  async function openChained() {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const database = file.connect();
    database.exec(FIRST_TABLES);
    const time = 1_700_000_000_000;
    const store = sqliteStore({ database, now: () => time, chainTrail: true });
    await store.open('run', {}, HOUR);
    const fail = async () => {
      const request = claimOf('run');
      await claimed(store, request);
      const failed = { from: 'has_items', event: null, outcome: 'failed' } as const;
      await store.release(request, request.token, { entry: failed });
    };
    const faults = async () =>
      verifyTrail(await store.history({ run: 'run', workflow: 'checkout' })).map(
        ({ seq, fault }) => `${seq} ${fault}`,
      );
    return { database, store, time, fail, faults };
  }

  it('finds only that the other process chains nothing', async () => {
    const { database, store, time, faults } = await openChained();
    commitAsBefore(database, 'run', 1, time);
    await step(store, 'run');
    expect(await faults()).toEqual(['1 unchained']);
    commitAsBefore(database, 'run', 3, time);
    const refused = { from: 'has_items', event: null, outcome: 'refused' } as const;
    await store.append({ run: 'run', workflow: 'checkout' }, refused);
    await step(store, 'run');
    expect(await faults()).toEqual(['1 unchained', '3 unchained']);
  });

  it('keeps the chain and the count of attempts after a release of the other process', async () => {
    const { database, store, fail, faults } = await openChained();
    await step(store, 'run');
    await fail();
    // An older process replaces the row, with only the columns that it knows.
    database.exec('UPDATE workflows SET seq = NULL, attempts = NULL, trail_hash = NULL');
    await fail();
    expect(await faults()).toEqual([]);
    const trail = await store.history({ run: 'run', workflow: 'checkout' });
    expect(trail.map(({ seq, attempt }) => [seq, attempt])).toEqual([
      [1, 1],
      [2, 1],
      [3, 2],
    ]);
  });

  it('keeps the chain where a process beside it has no chainTrail', async () => {
    const { database, store, time, faults } = await openChained();
    await step(store, 'run');
    await step(sqliteStore({ database, now: () => time }), 'run');
    await step(store, 'run');
    expect(await faults()).toEqual([]);
  });
});

describe('sqliteStore() on a file of a newer format', () => {
  it('refuses it at construction, and in each operation of an open store', async () => {
    const { database, store, run, rowCounts } = openStore();
    await store.open(run, {}, HOUR);
    const request = claimOf(run);
    await claimed(store, request);
    database.exec('UPDATE workflow_format SET format = 2');
    const before = rowCounts();
    const message = /format 2.*knows 1/s;
    expect(() => sqliteStore({ database })).toThrow(message);
    const key = { run, workflow: 'checkout' };
    const page = { workflow: 'checkout', limit: 1, forMs: 0 };
    const operations = [
      () => store.open('other', {}, HOUR),
      () => store.read(run, HOUR),
      () => store.claim(claimOf(run)),
      () => store.commit(commitOf(request)),
      () => store.renew(key, request.token, 1),
      () => store.release(key, request.token),
      () => store.history(key),
      () => store.append(key, { from: 'empty', event: null }),
      () => store.held(page),
      () => store.stuck(page),
      () => store.count(page),
      () => store.list({ principal: 'ann', limit: 1 }),
      () => store.delete(run),
      () => store.sweep(),
    ];
    for (const operation of operations) await expect(operation()).rejects.toThrow(message);
    expect(rowCounts()).toEqual(before);
  });
});

describe('sqliteStore({ chainTrail })', () => {
  it('chains its trails, also those that began before', async () => {
    const { database, store, run, now } = openStore();
    await store.open(run, {}, HOUR);
    await step(store, run);
    const chained = sqliteStore({ database, now, chainTrail: true });
    await step(chained, run);
    await step(chained, run);
    const trail = await chained.history({ run, workflow: 'checkout' });
    expect(verifyTrail(trail.slice(1))).toEqual([]);
    const altered = trail.slice(1).map((each, index) => (index === 1 ? { ...each, at: 1 } : each));
    expect(verifyTrail(altered)).toMatchObject([{ index: 1, fault: 'altered' }]);
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

  it('undoes a commit of which one part fails, and works again at once', async () => {
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

  it('rejects after its timeout while another connection writes, then serves again', async () => {
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

  it('rejects during the caller’s transaction on its connection, and leaves it open', async () => {
    const { database, store, run } = openStore();
    database.exec('CREATE TABLE orders (id TEXT)');
    database.exec('BEGIN');
    database.exec(`INSERT INTO orders VALUES ('a')`);
    await expect(store.open(run, {}, HOUR)).rejects.toThrow('transaction');
    database.exec('COMMIT');
    expect(database.prepare('SELECT id FROM orders').all()).toHaveLength(1);
  });

  it('does not write to read a run whose expiry moved a moment ago', async () => {
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

  it('removes two expired runs with all of their rows for each new one', async () => {
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

  it('takes any database with exec() and prepare(), and names them otherwise', () => {
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
