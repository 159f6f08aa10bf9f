import type { IndexEntry, IndexedDocuments } from 'mcp-interlock/stores/document';

/**
 * Documents in etcd, through the JSON gateway that each member has.
 *
 * - etcd gives no time, so the clocks of the processes count. They may differ by 3 s at most. A
 *   step renews its lease of 8 s after a third of it, so at least 3 s of it are always left.
 * - It removes nothing by itself here: call `store.purge()` once an hour.
 * - It keeps what was overwritten until it compacts: set `--auto-compaction-retention=1h`.
 * - It takes requests of 1.5 MiB: give `documentStore()` the option `maxBytes: 1_000_000`.
 * - It takes 128 changes in a transaction, which are enough for a run of some 15 workflows.
 */
export function etcdDocuments(url: string): IndexedDocuments {
  async function ask(operation: 'range' | 'txn', request: object): Promise<Answer> {
    const body = JSON.stringify(request);
    const init = { method: 'POST', body, signal: AbortSignal.timeout(10_000) };
    const response = await fetch(`${url}/v3/kv/${operation}`, init);
    if (!response.ok) throw new Error(`etcd: ${response.status} ${await response.text()}`);
    return (await response.json()) as Answer;
  }

  /** The keys from `start` on and before `end`, all as of one moment. */
  async function range(start: string, end: string, limit = 0) {
    const { kvs = [] } = await ask('range', { key: base64(start), range_end: base64(end), limit });
    return kvs.map(({ key, value = '' }) => ({ key: textOf(key), value: textOf(value) }));
  }

  /** One transaction: if the document is at `expected`, it is at `revision` now, or removed. */
  async function change(key: string, expected?: string, revision?: string, document?: string) {
    const own = `documents/${key}`;
    const changes = new Map([
      [`${own}/document`, document],
      [`${own}/revision`, revision],
    ]);
    for (const entry of entriesIn(expected)) changes.set(entry, undefined);
    for (const entry of entriesIn(revision)) if (!changes.delete(entry)) changes.set(entry, '');
    const success = [...changes].map(([name, value]) => {
      if (value === undefined) return { request_delete_range: { key: base64(name) } };
      return { request_put: { key: base64(name), value: base64(value) } };
    });
    const condition =
      expected === undefined ? { target: 'CREATE' } : { target: 'VALUE', value: base64(expected) };
    const compare = [{ key: base64(`${own}/revision`), ...condition }];
    return (await ask('txn', { compare, success })).succeeded === true;
  }

  return {
    async read(key) {
      const [document, revision] = await range(`documents/${key}/`, `documents/${key}0`);
      return { document: document?.value, revision: revision?.value };
    },

    async swap(key, expected, next) {
      // It names the entries of the index, so the next swap knows which ones are over.
      const revision = [next.revision, ...entriesOf(key, next.index)].join(' ');
      return { swapped: await change(key, expected, revision, next.document), revision };
    },

    remove: (key, expected) => change(key, expected),

    async find({ list, label, upTo, after, limit }) {
      const folder = folderOf(list, label);
      const start = after ? `${folder}${padded(after.score)}/${after.key}\0` : folder;
      // "0" comes next to "/": all keys with the score `upTo` are before this end.
      const found = await range(start, `${folder}${padded(upTo)}0`, limit);
      const places = found.map(({ key }) => key.slice(folder.length).split('/'));
      return places.map(([score, key = '']) => ({ key, score: Number(score) }));
    },
  };
}

type Answer = { succeeded?: boolean; kvs?: { key: string; value?: string }[] };

/** Two keys for each entry of the index: one in its list, and one in the list of its label. */
function entriesOf(key: string, index: readonly IndexEntry[]): string[] {
  return index.flatMap(({ list, label, score }) =>
    [undefined, label].map((each) => `${folderOf(list, each)}${padded(score)}/${key}`),
  );
}

const entriesIn = (revision = ''): string[] => revision.split(' ').slice(1);

const folderOf = (list: string, label: string | undefined): string =>
  `lists/${list}/${label === undefined ? '*' : Buffer.from(label).toString('base64url')}/`;

/** Numbers of which the order is that of their texts. */
const padded = (score: number): string => String(Math.max(0, score)).padStart(16, '0');

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const textOf = (encoded: string): string => Buffer.from(encoded, 'base64').toString();
