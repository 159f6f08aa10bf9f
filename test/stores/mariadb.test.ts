import { randomUUID } from 'node:crypto';
import { createPool } from 'mariadb';
import { afterAll, describe, expect, it } from 'vitest';
import { MARIADB_TABLES, mariadbDocuments } from '../../examples/custom-store/mariadb-documents.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { documentStore, type IndexEntry } from '../../src/stores/document.ts';
import { sharedMariadb } from '../services/shared.ts';

const url = await sharedMariadb();
const open = () => createPool(`${url}?connectionLimit=10`);
const [pool, other] = [open(), open()];
afterAll(() => Promise.all([pool.end(), other.end()]));
for (const sql of MARIADB_TABLES) await pool.query(sql);

describeStateStore(
  'documentStore() on MariaDB',
  async () => ({
    store: documentStore(mariadbDocuments(pool)),
    documents: mariadbDocuments(pool),
    reopen: async () => documentStore(mariadbDocuments(other)),
    close: async () => {},
  }),
  { describe: describe.concurrent, it },
);

describe('mariadbDocuments()', () => {
  const documents = mariadbDocuments(pool);
  const next = (revision: string, index: readonly IndexEntry[], expiresAt?: number) => {
    return { document: `{"of":"${revision}"}`, revision, expiresAt, index, put: index, drop: [] };
  };
  const listed = (list: string) => documents.find({ list, upTo: 10, limit: 10 });

  it('tells the time of UTC in a connection that has another time zone', async () => {
    const { hostname: host, port, username: user, pathname } = new URL(url);
    const elsewhere = createPool({
      ...{ host, port: Number(port), user, database: pathname.slice(1), connectionLimit: 1 },
      initSql: ["SET time_zone = '+05:45'", 'SET timestamp = 1793000000.25'],
    });
    const { now } = (await mariadbDocuments(elsewhere).read('none')) ?? {};
    await elsewhere.end();
    expect(now).toBe(1_793_000_000_250);
  });

  it('writes a document with its entries or neither', async () => {
    const key = `run-${randomUUID()}`;
    const entry = { list: key, label: 'a', score: 1 };
    const first = await documents.swap(key, undefined, next('first', [entry]));
    expect(first).toMatchObject({ swapped: true, now: expect.any(Number) });
    const twice = next('second', [
      { ...entry, score: 2 },
      { ...entry, score: 3 },
    ]);
    await expect(documents.swap(key, 'first', twice)).rejects.toThrow('Duplicate');
    expect(await documents.read(key)).toMatchObject({ revision: 'first' });
    expect(await listed(key)).toEqual([{ key, score: 1 }]);
    expect(await documents.swap(key, undefined, next('other', []))).toEqual({ swapped: false });
    expect(await documents.remove(key, 'other', [])).toBe(false);
    expect(await documents.remove(key, 'first', [])).toBe(true);
    expect(await listed(key)).toEqual([]);
  });

  it('removes expired documents with their entries where it makes others', async () => {
    const keys = [0, 1, 2].map(() => `run-${randomUUID()}`);
    const [list = ''] = keys;
    for (const key of keys)
      await documents.swap(key, undefined, next(key, [{ list, label: '', score: 1 }], 1));
    await documents.swap(`run-${randomUUID()}`, undefined, next('new', []));
    expect(await listed(list)).toEqual([]);
    expect(await documents.read(list)).toMatchObject({ document: undefined });
  });
});
