import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  claimed,
  claimOf,
  commitOf,
  HOUR,
  recordingOf,
  step,
} from '../../packages/testing/src/fixtures.ts';
import { freezeOf, thawOf } from '../../packages/testing/src/freezes.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { InterlockError } from '../../src/basics/errors.ts';
import { type SqliteDatabase, sqliteStore } from '../../src/stores/sqlite.ts';
import { verifyTrail } from '../../src/stores/trail.ts';
import { ManualTime } from '../helpers/manual-clock.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';

async function makeStore(chainTrail = false) {
  const file = makeSqliteFile();
  const { now, advance } = new ManualTime();
  const open = () => sqliteStore({ database: file.connect(), now, chainTrail });
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
  /** Runs, their workflows, their entries, and what is in the index of no run. */
  const rowCounts = () => {
    const orphans =
      '(SELECT 1 FROM workflow_index WHERE key NOT IN (SELECT key FROM workflow_documents))';
    const names = ['workflow_runs', 'workflows', 'workflow_events', orphans];
    const count = (name: string) =>
      database.prepare(`SELECT count(*) AS n FROM ${name}`).get() as { n: number };
    return names.map((name) => count(name).n);
  };
  // Longer than a busy machine pauses a test.
  const store = sqliteStore({ database, now, busyTimeoutMs: 20_000 });
  return { file, database, store, run: randomUUID(), now, advance, rowCounts };
}

const RETRY = { uncertain: 'retry' } as const;

describeStateStore('sqliteStore()', () => makeStore(), { describe, it });
describeStateStore('sqliteStore({ chainTrail })', () => makeStore(true), {
  describe,
  it,
  chainTrail: true,
});

describe('sqliteStore() on a file of another format', () => {
  it.each([0, 2, 4])('refuses %i at construction, and in each operation', async (format) => {
    const { database, store, run, rowCounts } = openStore();
    await store.open(run, {}, HOUR);
    const request = claimOf(run);
    await claimed(store, request);
    database.exec(`UPDATE workflow_format SET format = ${format}`);
    const before = rowCounts();
    const message = new RegExp(`the format ${format}, and this version of mcp-interlock knows 3`);
    expect(() => sqliteStore({ database })).toThrow(message);
    const key = { run, workflow: 'checkout' };
    const page = { workflow: 'checkout', limit: 1, forMs: 0 };
    const operations = [
      () => store.open('other', {}, HOUR),
      () => store.read(run, HOUR),
      () => store.claim(claimOf(run)),
      () => store.commit(commitOf(request)),
      () => store.record(recordingOf(run, 0, 'a')),
      () => store.renew(key, request.token, 1),
      () => store.release(key, request.token),
      () => store.history(key),
      () => store.append(key, { from: 'empty', event: null }),
      () => store.held(page),
      () => store.stuck(page),
      () => store.count(page),
      () => store.list({ principal: 'ann', limit: 1 }),
      () => store.runs({ workflow: 'checkout', state: 'empty' })[Symbol.asyncIterator]().next(),
      () => store.end(run),
      () => store.delete(run),
      () => store.anonymize(run),
      () => store.purge(),
    ];
    for (const operation of operations) await expect(operation()).rejects.toThrow(message);
    expect(rowCounts()).toEqual(before);
  });
});

describe('sqliteStore() on a file that says no format', () => {
  it('finds nothing unknown in it, but refuses it', async () => {
    const { database, store, run } = openStore();
    await store.open(run, {}, HOUR);
    database.exec('DELETE FROM workflow_format');
    const refused = { code: 'ERR_INTERLOCK_STORE' };
    await expect(store.read(run, HOUR)).rejects.toMatchObject(refused);
    await expect(store.open('other', {}, HOUR)).rejects.toMatchObject(refused);
    await expect(store.held({ workflow: 'checkout', limit: 1 })).rejects.toMatchObject(refused);
  });
});

describe('sqliteStore({ chainTrail })', () => {
  it('keeps to what a trail began with, chained or not, in each process', async () => {
    const { database, store, run, now } = openStore();
    const chained = sqliteStore({ database, now, chainTrail: true });
    const faults = async (key: string) => {
      const from = { run: key, workflow: 'checkout' };
      const found = verifyTrail(await store.history(from), { from });
      return found.map(({ seq, fault }) => `${seq} ${fault}`);
    };
    for (const [key, first, second] of [
      [`${run}-plain`, store, chained],
      [`${run}-chained`, chained, store],
    ] as const) {
      await first.open(key, {}, HOUR);
      await step(first, key);
      await step(second, key);
      await step(first, key);
    }
    expect(await faults(`${run}-plain`)).toEqual(['1 unchained', '2 unchained', '3 unchained']);
    expect(await faults(`${run}-chained`)).toEqual([]);
  });

  it('shows what a person changed in the file, and rows of another run', async () => {
    const { database, run, now } = openStore();
    const store = sqliteStore({ database, now, chainTrail: true });
    const [own, other] = [`${run}-own`, `${run}-other`];
    for (const key of [own, other]) {
      await store.open(key, {}, HOUR);
      for (let steps = 0; steps < 3; steps += 1) await step(store, key);
    }
    const from = { run: own, workflow: 'checkout' };
    const faults = async () => verifyTrail(await store.history(from), { from });
    expect(await faults()).toEqual([]);
    const trailOf = (run: string) =>
      `(SELECT document -> '$.workflows[0][1].trail' FROM workflow_documents
         WHERE document ->> '$.run' = '${run}')`;
    const write = (path: string, value: string) =>
      database.exec(`
        UPDATE workflow_documents
           SET document = json_set(document, '$.workflows[0][1].trail${path}', ${value})
         WHERE document ->> '$.run' = '${own}'`);
    write('', `json(${trailOf(other)})`);
    expect(await faults()).toEqual([{ index: 0, seq: 1, fault: 'foreign' }]);
    write('[1].at', '1');
    expect(await faults()).toMatchObject([{ fault: 'foreign' }, { index: 1, fault: 'altered' }]);
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
      `CREATE TRIGGER full BEFORE INSERT ON workflow_index BEGIN SELECT RAISE(ABORT, 'full'); END`,
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
    expect(rowCounts()).toEqual([4, 3, 3, 0]);
    expect(await store.purge()).toBe(3);
    expect(rowCounts()).toEqual([1, 0, 0, 0]);
    expect(await store.purge()).toBe(0);
  });

  it('removes expired runs past a held one, which stays', async () => {
    const { store, run, advance } = openStore();
    const held = claimOf(`${run}-held`, { create: {}, leaseMs: 1 });
    await claimed(store, held);
    for (let index = 0; index < 3; index += 1) {
      advance(1);
      await step(store, `${run}-${index}`, { create: {} });
    }
    advance(HOUR);
    await store.open(`${run}-a`, {}, HOUR);
    await store.open(`${run}-b`, {}, HOUR);
    expect(await store.purge()).toBe(0);
    expect(await store.read(held.run, HOUR)).toMatchObject({
      sessionEnded: true,
      workflows: { checkout: { claim: { token: held.token } } },
    });
    expect(await store.commit(commitOf(held))).toMatchObject({ status: 'committed' });
    advance(24 * HOUR);
    expect(await store.purge()).toBe(3);
  });

  it('removes expired runs past a frozen one and a switch, which stay', async () => {
    const { store, run, advance } = openStore();
    const set = { value: { all: null }, revision: 'r1' };
    await store.swapSwitch('checkout', undefined, set);
    await store.freeze(freezeOf(`${run}-frozen`, { create: {} }));
    await step(store, `${run}-other`, { create: {} });
    advance(HOUR);
    for (const name of ['a', 'b', 'c']) await store.open(`${run}-${name}`, {}, HOUR);
    advance(HOUR);
    expect(await store.purge()).toBe(3);
    expect(await store.readSwitch('checkout')).toEqual(set);
    expect(await store.freeze(thawOf(`${run}-frozen`))).toMatchObject({ status: 'changed' });
    advance(24 * HOUR);
    expect(await store.purge()).toBe(1);
    expect(await store.readSwitch('checkout')).toEqual(set);
  });

  it('removes what is left of one principal’s runs, in as many rounds as it takes', async () => {
    const { store, run, advance, rowCounts } = openStore();
    const create = (principal: string) => ({ create: { principal } });
    for (let index = 0; index < 201; index += 1)
      await store.claim(claimOf(`${run}-${index}`, { ...create('alice'), step: RETRY }));
    await step(store, `${run}-bob`, create('bob'));
    await claimed(store, claimOf(`${run}-held`, { ...create('alice'), leaseMs: 1 }));
    advance(HOUR);
    expect(await store.purge({ principal: 'carol' })).toBe(0);
    expect(await store.purge({ principal: 'alice' })).toBe(201);
    expect(rowCounts()).toEqual([2, 2, 1, 0]);
    expect(await store.purge({ principal: 'bob' })).toBe(1);
    expect(await store.list({ principal: 'alice', limit: 10 })).toEqual({ runs: [`${run}-held`] });
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
    const by = { actor: 'mary', note: 'wait' };
    await store.freeze(freezeOf(run, { freeze: by }));
    await store.swapSwitch('checkout', undefined, { value: 1, revision: 'r1' });
    const frozen = `SELECT run, frozen ->> 'actor' AS actor FROM workflows WHERE frozen IS NOT NULL`;
    expect(database.prepare(frozen).all()).toMatchObject([{ run, actor: 'mary' }]);
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
