import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { etcdDocuments } from '../../examples/custom-store/etcd-documents.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { documentStore } from '../../src/stores/document.ts';
import { sharedEtcd } from '../services/shared.ts';

const url = await sharedEtcd();

describeStateStore(
  'documentStore() on etcd',
  async () => {
    const documents = etcdDocuments(url);
    const open = () => documentStore(documents, { maxBytes: 1_000_000 });
    return { store: open(), documents, reopen: async () => open(), close: async () => {} };
  },
  { describe: describe.concurrent, it },
);

describe('etcdDocuments()', () => {
  it('moves the entries of a document with each revision, and removes them with it', async () => {
    const documents = etcdDocuments(url);
    const key = `run-${randomUUID()}`;
    const find = (label?: string) => documents.find({ list: key, label, upTo: 20, limit: 10 });
    let expected: string | undefined;
    for (const [label, score] of [
      ['a/b', 7],
      ['a/b', 20],
      ['', 20],
      ['', 20],
    ] as const) {
      const index = [{ list: key, label, score }];
      const changes = { index, put: index, drop: [] };
      const next = { document: '{}', revision: randomUUID(), expiresAt: undefined, ...changes };
      const { swapped, revision = '' } = await documents.swap(key, expected, next);
      expect(swapped).toBe(true);
      expect(await documents.read(key)).toEqual({ document: '{}', revision });
      expect([await find(), await find(label), await find('a')]).toEqual([
        [{ key, score }],
        [{ key, score }],
        [],
      ]);
      expect(await documents.swap(key, expected, next)).toMatchObject({ swapped: false });
      expected = revision;
    }
    expect(await documents.remove(key, 'another', [])).toBe(false);
    expect(await documents.remove(key, expected ?? '', [])).toBe(true);
    expect([await documents.read(key), await find(), await find('')]).toEqual([
      { document: undefined, revision: undefined },
      [],
      [],
    ]);
  });

  it('rejects where etcd cannot be asked', async () => {
    await expect(etcdDocuments('http://127.0.0.1:1').read('key')).rejects.toThrow('fetch failed');
    await expect(etcdDocuments(`${url}/elsewhere`).read('key')).rejects.toThrow('etcd: 404');
  });
});
