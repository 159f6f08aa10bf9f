import { setImmediate as nextTurn } from 'node:timers/promises';
import Database from 'libsql';
import type { StoreUnderTest } from '../../packages/testing/src/fixtures.ts';
import {
  type DocumentStateStore,
  type Documents,
  documentStore,
  type FoundDocument,
  type IndexEntry,
  type IndexPlace,
  type IndexQuery,
  type NextDocument,
} from '../../src/stores/document.ts';
import { setUp, Transactions } from '../../src/stores/sqlite/database.ts';
import { SqliteDocuments } from '../../src/stores/sqlite/documents.ts';
import { ManualTime } from '../helpers/manual-clock.ts';

type Driver = Required<Documents>;

/** The methods in which the driver of one process differs from the sound one. */
export type DriverFault = (sound: Driver, backend: Backend) => Partial<Documents>;

/** Drivers that each break one sentence of `Documents`. */
export const DRIVER_FAULTS: Readonly<Record<string, DriverFault>> = {
  'reads what it read first, as a cache does': (sound) => {
    const kept = new Map<string, FoundDocument>();
    return {
      read: async (key) => {
        const found = kept.get(key) ?? (await sound.read(key));
        if (found?.document !== undefined) kept.set(key, found);
        return found;
      },
      swap: async (key, ...rest) => {
        kept.delete(key);
        return sound.swap(key, ...rest);
      },
    };
  },
  'reads a replica that lags by one write': (sound, { lagging }) => ({
    read: async (key) => lagging.get(key) ?? sound.read(key),
    swap: async (key, ...rest) => {
      const before = (await sound.read(key)) ?? {};
      const answer = await sound.swap(key, ...rest);
      if (answer.swapped) lagging.set(key, before);
      return answer;
    },
  }),
  'reads the last document where there is none': (sound) => {
    let last = '';
    return {
      read: async (key) => {
        const found = await sound.read(key);
        return found?.document === undefined ? sound.read(last) : found;
      },
      swap: async (key, ...rest) => {
        last = key;
        return sound.swap(key, ...rest);
      },
    };
  },
  'hides a document from its expiry on': (sound, backend) => ({
    read: async (key) => (backend.isOver(key) ? {} : sound.read(key)),
  }),
  'hides a document that never expires': (sound, backend) => ({
    read: async (key) => (backend.expiryOf(key) === null ? {} : sound.read(key)),
  }),
  'swaps whatever the revision is': (sound) => ({
    swap: async (key, _, next) => sound.swap(key, await revisionIn(sound, key), next),
  }),
  'replaces what is there where it expects nothing': (sound) => ({
    swap: async (key, expected, next) =>
      sound.swap(key, expected ?? (await revisionIn(sound, key)), next),
  }),
  'makes what is gone where it expects a revision': (sound) => ({
    swap: async (key, expected, next) =>
      sound.swap(key, (await revisionIn(sound, key)) && expected, next),
  }),
  'swaps a moment after it compared': (sound) => ({
    swap: async (key, expected, next) => {
      if ((await revisionIn(sound, key)) !== expected) return { swapped: false };
      await nextTurn();
      return sound.swap(key, await revisionIn(sound, key), next);
    },
  }),
  'tells a loser before the winner has written': (sound, { busy }) => ({
    swap: async (key, ...rest) => {
      if (busy.has(key)) return { swapped: false };
      busy.add(key);
      await nextTurn();
      return sound.swap(key, ...rest).finally(() => busy.delete(key));
    },
  }),
  'says that it swapped where it lost': (sound) => ({
    swap: async (...args) => ({ ...(await sound.swap(...args)), swapped: true }),
  }),
  'says that it lost where it swapped': (sound) => ({
    swap: async (...args) => ({ ...(await sound.swap(...args)), swapped: false }),
  }),
  'says that it swapped, and does nothing': () => ({ swap: async () => ({ swapped: true }) }),
  'keeps another revision than it was given': (sound) => ({
    swap: (key, expected, next) => sound.swap(key, expected, { ...next, revision: 'r' }),
  }),
  'counts the revisions of each document': (sound) => ({
    swap: async (key, expected, next) => {
      const revision = `${Number(expected ?? 0) + 1}`;
      return { ...(await sound.swap(key, expected, { ...next, revision })), revision };
    },
  }),
  'removes a document at the first expiry that it had': (sound, backend) =>
    backend.removing(sound, (key, expiresAt) => backend.expiryOf(key) ?? expiresAt),
  'removes a document at its last expiry where it has none': (sound, backend) =>
    backend.removing(sound, (key, expiresAt) => expiresAt ?? backend.expiryOf(key)),
  'takes seconds for milliseconds of an expiry': (sound, backend) =>
    backend.removing(sound, (_, expiresAt) => expiresAt && expiresAt / 1_000),
  'writes the index of the first revision only': (sound) => ({
    swap: (key, expected, next) =>
      sound.swap(key, expected, expected === undefined ? next : { ...next, put: [], drop: [] }),
  }),
  'puts no entry': (sound) => withPut(sound, () => []),
  'puts entries without their labels': (sound) =>
    withPut(sound, (put) => put.map((entry) => ({ ...entry, label: '' }))),
  'puts entries without their scores': (sound) =>
    withPut(sound, (put) => put.map((entry) => ({ ...entry, score: 0 }))),
  'drops no entry': (sound) => ({
    swap: (key, expected, next) => sound.swap(key, expected, { ...next, drop: [] }),
  }),
  'drops each entry that it does not put': (sound, backend) => ({
    swap: (key, expected, next) => {
      backend.drop(key);
      return sound.swap(key, expected, next);
    },
  }),
  'keeps the entries of a loser': (sound, backend) => ({
    swap: (key, expected, next) => {
      backend.put(key, next.put);
      return sound.swap(key, expected, next);
    },
  }),
  'takes the entries of a winner away where it lost': (sound, backend) => ({
    swap: async (key, expected, next) => {
      const answer = await sound.swap(key, expected, next);
      if (!answer.swapped) for (const { list } of next.put) backend.drop(key, list);
      return answer;
    },
  }),
  'drops the entries of a loser': (sound, backend) => ({
    swap: (key, expected, next) => {
      for (const list of next.drop) backend.drop(key, list);
      return sound.swap(key, expected, next);
    },
  }),
  'removes whatever the revision is': (sound) => ({
    remove: async (key, _, lists) => sound.remove(key, (await revisionIn(sound, key)) ?? '', lists),
  }),
  'removes a moment after it compared': (sound) => ({
    remove: async (key, expected, lists) => {
      if ((await revisionIn(sound, key)) !== expected) return false;
      await nextTurn();
      return sound.remove(key, (await revisionIn(sound, key)) ?? '', lists);
    },
  }),
  'removes nothing': () => ({ remove: async () => true }),
  'removes a document, and leaves its lists as they are': (sound, backend) => ({
    remove: async (key, ...rest) => {
      const entries = backend.entriesOf(key);
      const isRemoved = await sound.remove(key, ...rest);
      backend.put(key, entries);
      return isRemoved;
    },
  }),
  'removes the entries, and not the document': (_, backend) => ({
    remove: async (key) => backend.drop(key),
  }),
  'removes the entries of a document of another revision': (sound, backend) => ({
    remove: (key, ...rest) => {
      backend.drop(key);
      return sound.remove(key, ...rest);
    },
  }),
  'says that it removed nothing': (sound) => ({
    remove: async (...args) => (await sound.remove(...args)) && false,
  }),
  'says that it removed what it left': (sound) => ({
    remove: async (...args) => (await sound.remove(...args)) || true,
  }),
  'finds nothing': () => ({ find: async () => [] }),
  'finds the last ones first': (sound) => withFound(sound, (all) => all.toReversed()),
  'finds in the order of keys alone': (sound) =>
    withFound(sound, (all) => all.toSorted((a, b) => (a.key < b.key ? -1 : 1))),
  'finds those of one score the other way round': (sound) =>
    withFound(sound, (all) =>
      all.toSorted((a, b) => a.score - b.score || (a.key > b.key ? -1 : 1)),
    ),
  'drops the first that it finds': (sound) => withFound(sound, (all) => all.slice(1)),
  'finds one, whatever the limit is': (sound) => withQuery(sound, { limit: 1 }),
  'finds as many as there are': (sound) => withQuery(sound, { limit: ALL }),
  'finds the first ones on each page': (sound) => withQuery(sound, { after: undefined }),
  'finds the last one of a page again': (sound) => ({
    find: ({ after, ...query }) =>
      sound.find({ ...query, after: after && { ...after, key: after.key.slice(0, -1) } }),
  }),
  'finds behind a score, and not behind a key': (sound) => ({
    find: ({ after, ...query }) => sound.find({ ...query, after: after && { ...after, key: 'z' } }),
  }),
  'finds entries of any label': (sound) => withQuery(sound, { label: undefined }),
  'finds entries of any score': (sound) => withQuery(sound, { upTo: ALL }),
  'finds only those with a lower score': (sound) => ({
    find: (query) => sound.find({ ...query, upTo: query.upTo - 1 }),
  }),
  'counts nothing': () => ({ count: async () => [] }),
  'counts one too many': (sound) => ({
    count: async (query) =>
      (await sound.count(query)).map((each) => ({ ...each, entries: each.entries + 1 })),
  }),
  'counts all as those up to the score': (sound) => ({
    count: async (query) =>
      (await sound.count(query)).map((each) => ({ ...each, upTo: each.entries })),
  }),
  'counts only those with a lower score': (sound) => ({
    count: (query) => sound.count({ ...query, upTo: query.upTo - 1 }),
  }),
  'counts all as those of one label': (sound) => ({
    count: async (query) => {
      const all = await sound.count(query);
      return all.map((each) => ({ ...each, label: all[0]?.label ?? '' }));
    },
  }),
  'counts what has expired': (sound) => ({ count: (query) => sound.count({ ...query, now: 0 }) }),
  'counts nothing that never expires': (sound, backend) => ({
    count: async (query) => {
      const all = await sound.count(query);
      const lasting = backend.countLasting(query.list);
      return all.map((each) => ({ ...each, entries: each.entries - lasting }));
    },
  }),
};

const ALL = 100_000;

async function revisionIn(sound: Driver, key: string): Promise<string | undefined> {
  return (await sound.read(key))?.revision;
}

function withPut(
  sound: Driver,
  change: (put: readonly IndexEntry[]) => readonly IndexEntry[],
): Partial<Documents> {
  return {
    swap: (key, expected, next) => sound.swap(key, expected, { ...next, put: change(next.put) }),
  };
}

function withQuery(sound: Driver, change: Partial<IndexQuery>): Partial<Documents> {
  return { find: (query) => sound.find({ ...query, ...change }) };
}

function withFound(
  sound: Driver,
  change: (all: readonly IndexPlace[]) => readonly IndexPlace[],
): Partial<Documents> {
  return {
    find: async ({ limit, ...query }) =>
      change(await sound.find({ ...query, limit: ALL })).slice(0, limit),
  };
}

/** The tables under the drivers of all processes. */
class Backend {
  readonly #database: Database.Database;
  readonly #now: () => number;
  /** What a replica has of a document, and the keys that are being written. */
  readonly lagging = new Map<string, FoundDocument>();
  readonly busy = new Set<string>();

  constructor(database: Database.Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  expiryOf(key: string): number | null | undefined {
    const statement = this.#database.prepare(
      'SELECT expires_at AS at FROM workflow_documents WHERE key = ?',
    );
    return (statement.get(key) as { readonly at: number | null } | undefined)?.at;
  }

  isOver(key: string): boolean {
    return (this.expiryOf(key) ?? Number.POSITIVE_INFINITY) <= this.#now();
  }

  /** A driver that removes what has expired at once, by another expiry than it was given. */
  removing(
    sound: Driver,
    expiryOf: (key: string, expiresAt: number | undefined) => number | null | undefined,
  ): Partial<Documents> {
    return {
      read: async (key) => {
        const revision = await revisionIn(sound, key);
        if (revision !== undefined && this.isOver(key)) await sound.remove(key, revision, []);
        return sound.read(key);
      },
      swap: (key, expected, next: NextDocument) => {
        const expiresAt = expiryOf(key, next.expiresAt) ?? undefined;
        return sound.swap(key, expected, { ...next, expiresAt });
      },
    };
  }

  entriesOf(key: string): IndexEntry[] {
    const rows = 'SELECT list, label, score FROM workflow_index WHERE key = ?';
    return this.#database.prepare(rows).all(key) as IndexEntry[];
  }

  put(key: string, entries: readonly IndexEntry[]): void {
    const put = this.#database.prepare('INSERT OR REPLACE INTO workflow_index VALUES (?, ?, ?, ?)');
    for (const { list, label, score } of entries) put.run(key, list, label, score);
  }

  drop(key: string, list = '%'): true {
    this.#database
      .prepare('DELETE FROM workflow_index WHERE key = ? AND list LIKE ?')
      .run(key, list);
    return true;
  }

  countLasting(list: string): number {
    const rows = this.#database.prepare(
      `SELECT count(*) AS n FROM workflow_index JOIN workflow_documents USING (key)
        WHERE list = ? AND expires_at IS NULL`,
    );
    return (rows.get(list) as { readonly n: number }).n;
  }
}

/** A store on documents in memory, of which each process has a driver with the fault. */
export function makeDocumentStore(fault: DriverFault): StoreUnderTest {
  const database = new Database(':memory:');
  const { now, advance } = new ManualTime();
  const transactions = new Transactions(database, 0);
  const inner = setUp(database, 0, () => new SqliteDocuments(database, transactions, now));
  // Each call takes a turn, so that calls of two processes come between each other.
  const sound: Driver = {
    read: (...args) => nextTurn().then(() => inner.read(...args)),
    swap: (...args) => nextTurn().then(() => inner.swap(...args)),
    remove: (key, expected) => nextTurn().then(() => inner.remove(key, expected)),
    find: (...args) => nextTurn().then(() => inner.find(...args)),
    count: (...args) => nextTurn().then(() => inner.count(...args)),
  };
  const backend = new Backend(database, now);
  const drive = (): Driver => ({ ...sound, ...fault(sound, backend) });
  const open = (documents: Driver): DocumentStateStore =>
    documentStore(documents, { now, chainTrail: true });
  const documents = drive();
  return {
    store: open(documents),
    documents,
    reopen: async () => open(drive()),
    advance,
    close: async () => void database.close(),
  };
}
