import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'libsql';
import { describeStateStore } from 'mcp-interlock/testing';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { approvalApp } from '../../examples/custom-store/app.ts';
import { documentStore } from '../../examples/custom-store/document-store.ts';
import { type Documents, fileDocuments } from '../../examples/custom-store/documents.ts';
import { smallestStore } from '../../examples/custom-store/smallest-store.ts';
import { latch } from '../helpers/latch.ts';
import { expectQuoted } from '../helpers/markdown.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { RawSession, reasonOf, type WireMessage } from '../helpers/raw.ts';

const SERVER = fileURLToPath(new URL('../../examples/custom-store/server.ts', import.meta.url));

const makeFolder = () => mkdtemp(join(tmpdir(), 'interlock-documents-'));

describeStateStore(
  'the store in files',
  async () => {
    const root = await makeFolder();
    let time = Date.now();
    const open = () => documentStore(fileDocuments(root), () => time);
    return {
      store: open(),
      reopen: async () => open(),
      advance: (ms) => {
        time += ms;
      },
      close: () => rm(root, { recursive: true }),
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

/** One row for each key, as the page says of SQL. */
function rowDocuments(): Documents {
  const database = new Database(':memory:');
  database.exec('CREATE TABLE documents (key TEXT PRIMARY KEY, number INTEGER, text TEXT)');
  const read = database.prepare('SELECT number, text FROM documents WHERE key = ?');
  const first = database.prepare('INSERT INTO documents VALUES (?, 1, ?) ON CONFLICT DO NOTHING');
  const next = database.prepare(
    'UPDATE documents SET number = number + 1, text = ? WHERE key = ? AND number = ?',
  );
  return {
    newest: async (key) => {
      const row = read.get(key) as { number: number; text: string } | undefined;
      return row === undefined ? { number: 0 } : { number: row.number, text: row.text };
    },
    put: async (key, number, text) => {
      const { changes } = number === 1 ? first.run(key, text) : next.run(text, key, number - 1);
      return changes === 1;
    },
  };
}

describe.each(['files', 'rows'])('documents in %s', (kind) => {
  it('let no process put a revision that was replaced since it read', async () => {
    const root = await makeFolder();
    onTestFinished(() => rm(root, { recursive: true }));
    const documents = kind === 'files' ? fileDocuments(root) : rowDocuments();
    for (const number of [1, 2, 3, 4])
      expect(await documents.put('run', number, `text ${number}`)).toBe(true);
    for (const number of [1, 2, 3, 4])
      expect(await documents.put('run', number, 'of a slow process')).toBe(false);
    expect(await documents.newest('run')).toEqual({ number: 4, text: 'text 4' });
  });
});

describe('a server with the store in files', () => {
  it('shares its runs with other processes, and goes on where it was after all of them were killed', async () => {
    const root = await makeFolder();
    onTestFinished(() => rm(root, { recursive: true }));
    const start = async () => {
      const { match, kill9 } = await startProgram(SERVER, {
        env: { RUNS: root, PORT: '0' },
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
  const files = ['documents', 'document-store', 'smallest-store'].map(
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
