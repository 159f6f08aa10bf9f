import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'libsql';
import { documentStore, type NextDocument } from 'mcp-interlock/stores/document';
import { describeStateStore } from 'mcp-interlock-testing';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { approvalApp } from '../../examples/custom-store/app.ts';
import { CLEAN_UP, TABLE, tableDocuments } from '../../examples/custom-store/documents.ts';
import { smallestStore } from '../../examples/custom-store/smallest-store.ts';
import { latch } from '../helpers/latch.ts';
import { expectQuoted } from '../helpers/markdown.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { RawSession, reasonOf, type WireMessage } from '../helpers/raw.ts';

const SERVER = fileURLToPath(new URL('../../examples/custom-store/server.ts', import.meta.url));

function openTable(): Database.Database {
  const database = new Database(':memory:');
  database.exec(TABLE);
  return database;
}

describeStateStore(
  'documents in a table',
  async () => {
    const database = openTable();
    let time = Date.now();
    const documents = tableDocuments(database);
    const open = () => documentStore(documents, { now: () => time });
    return {
      store: open(),
      documents,
      reopen: async () => open(),
      advance: (ms) => {
        time += ms;
      },
      close: async () => void database.close(),
    };
  },
  { describe, it },
);

describeStateStore(
  'the smallest store',
  async () => {
    const data = mapOf();
    const open = () => smallestStore(data);
    return { store: open(), reopen: async () => open(), close: async () => {} };
  },
  { describe, it, scope: 'restarts' },
);

describe('documents in a table', () => {
  const next = (revision: string, expiresAt?: number): NextDocument => {
    return { document: '{}', revision, expiresAt, index: [], put: [], drop: [] };
  };

  it('let no process write over a revision that was replaced or removed since it read', async () => {
    const documents = tableDocuments(openTable());
    const swap = (expected: string | undefined, revision: string) =>
      documents.swap('run', expected, next(revision));
    expect(await swap(undefined, 'one')).toEqual({ swapped: true });
    expect(await swap(undefined, 'another')).toEqual({ swapped: false });
    expect(await swap('one', 'two')).toEqual({ swapped: true });
    expect(await swap('one', 'of a slow process')).toEqual({ swapped: false });
    expect(await documents.remove('run', 'one', [])).toBe(false);
    expect(await documents.read('run')).toMatchObject({ document: '{}', revision: 'two' });
    expect(await documents.remove('run', 'two', [])).toBe(true);
    expect(await swap('two', 'of a slower process')).toEqual({ swapped: false });
    expect(await documents.read('run')).toBeUndefined();
  });

  it('are cleaned up once they have expired, and never where they have no expiry', async () => {
    const database = openTable();
    const documents = tableDocuments(database);
    for (const [key, expiresAt] of [
      ['expired', 1_000],
      ['live', 1_001],
      ['pinned', undefined],
    ] as const)
      await documents.swap(key, undefined, next(key, expiresAt));
    database.prepare(CLEAN_UP).run(1_000);
    const rows = database.prepare('SELECT key FROM documents ORDER BY key').all();
    expect(rows).toEqual([{ key: 'live' }, { key: 'pinned' }]);
  });
});

describe('a server with documents in a table', () => {
  it('shares its runs with other processes, and goes on where it was after all of them were killed', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'interlock-documents-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const start = async () => {
      const { match, kill9 } = await startProgram(SERVER, {
        env: { RUNS: join(folder, 'runs.db'), PORT: '0' },
        ready: ADDRESS,
      });
      onTestFinished(kill9);
      return { url: new URL(match), kill9 };
    };

    const [one, two] = await Promise.all([start(), start()]);
    const onOne = await RawSession.begin(one.url);
    const onTwo = RawSession.resume(two.url, onOne.id);
    const sides = [onOne, onTwo, onOne, onTwo, onOne, onTwo];
    const answers = await Promise.all(sides.map((side) => side.call('doc_submit')));
    expect(answers.filter((answer) => textOf(answer) === 'doc_submit done')).toHaveLength(1);
    expect(answers.filter((answer) => reasonOf(answer) === 'state')).toHaveLength(5);
    await Promise.all([one.kill9(), two.kill9()]);

    const three = await start();
    const onThree = RawSession.resume(three.url, onOne.id);
    expect(await onThree.tools()).toEqual(['doc_approve', 'doc_reject', 'doc_show']);
    expect(textOf(await onThree.call('doc_approve'))).toBe('doc_approve done');
    expect(await onThree.tools()).toEqual(['doc_show']);
  }, 60_000);
});

describe('the smallest store', () => {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  afterAll(() => warn.mockRestore());

  it('keeps a run, and a warning says what it cannot promise', async () => {
    const data = mapOf();
    const session = await RawSession.begin(await listen(smallestStore(data)));
    await session.call('doc_submit');
    const restarted = RawSession.resume(await listen(smallestStore(data)), session.id);
    expect(await restarted.tools()).toEqual(['doc_approve', 'doc_reject', 'doc_show']);
    expect(warn.mock.calls.join()).toContain('steps are exact within one process only');
  });

  it('lets one of two parallel calls run in one process, and both of them in two', async () => {
    for (const processes of [1, 2]) {
      const data = mapOf();
      const ran: string[] = [];
      const hold = latch();
      const work = async (tool: string) => {
        ran.push(tool);
        await hold.opened;
      };
      const first = await listen(smallestStore(data), work);
      const session = await RawSession.begin(first);
      const second = processes === 1 ? first : await listen(smallestStore(data), work);
      const calls = [session, RawSession.resume(second, session.id)].map((side, index) =>
        side.post({
          jsonrpc: '2.0',
          id: `call-${index}`,
          method: 'tools/call',
          params: { name: 'doc_submit' },
        }),
      );
      await expect.poll(() => ran.length).toBe(processes);
      hold.open();
      await Promise.all(calls);
      expect(ran).toHaveLength(processes);
    }
  });
});

it('is what its page of the documentation shows', () => {
  const files = ['documents', 'server', 'dynamodb-documents', 'smallest-store'].map(
    (name) => `examples/custom-store/${name}.ts`,
  );
  expectQuoted('docs/operate/custom-store.md', [...files, 'test/examples/custom-store.test.ts']);
});

function mapOf() {
  const data = new Map<string, string>();
  return {
    get: async (key: string) => data.get(key) ?? null,
    set: async (key: string, value: string) => data.set(key, value),
  };
}

async function listen(...app: Parameters<typeof approvalApp>): Promise<URL> {
  const server = approvalApp(...app).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
}

function textOf(answer: WireMessage): unknown {
  return answer.result?.content?.[0]?.text;
}
