import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import {
  attemptOf,
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  LONG,
  recordingOf,
  step,
} from '../../packages/testing/src/fixtures.ts';
import { changed, freezeOf, thawOf } from '../../packages/testing/src/freezes.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { InterlockError } from '../../src/basics/errors.ts';
import { keyOfRun, keyOfSwitch, LAYOUT } from '../../src/stores/document/run-text.ts';
import type { FoundDocument } from '../../src/stores/document.ts';
import {
  documentsOfTest,
  openDocuments,
  type WholeDocumentStore,
  WRITE_FAULTS,
  type WriteFault,
} from '../helpers/controlled-documents.ts';

const DAY = 24 * HOUR;
const RETRY = { step: { uncertain: 'retry' } } as const;
const ENTRY = { entry: { tool: 'cart.pay', actor: 'alice' } } as const;

describeStateStore(
  'documentStore() on a backend that tells the time',
  async () => {
    const opened = openDocuments({ tellsTime: true });
    const start = (offMs = 0) => opened.start({ offMs, chainTrail: true });
    const open = async (offMs?: number) => start(offMs).store;
    return {
      ...start(),
      reopen: () => open(),
      reopenWithClock: open,
      advance: opened.time.advance,
      close: async () => opened.close(),
    };
  },
  { describe, it, chainTrail: true },
);

/** An operation on a run of alice's that moved once, and what comes before it. */
interface Case {
  readonly before?: (store: WholeDocumentStore, run: string) => Promise<unknown>;
  readonly ask: (store: WholeDocumentStore, run: string) => Promise<unknown>;
  /** How much later it comes. */
  readonly laterMs?: number;
}

const claimBy = (run: string) => claimOf(run, { token: `${run} token`, ...ENTRY });
const hold = (store: WholeDocumentStore, run: string) => claimed(store, claimBy(run));

const CASES: Readonly<Record<string, Case>> = {
  'an open': { ask: (store, run) => store.open(`${run} 2`, { principal: 'bob' }, HOUR, run) },
  'an open over an expired run': {
    ask: (store, run) => store.open(run, { principal: 'bob' }, HOUR, run),
    laterMs: 2 * HOUR,
  },
  'a read that prolongs': { ask: (store, run) => store.read(run, HOUR), laterMs: HOUR / 2 },
  'a claim': { ask: (store, run) => store.claim(claimBy(run)) },
  'a claim that takes over': {
    before: (store, run) => claimed(store, claimOf(run, { ...RETRY, ...ENTRY, leaseMs: 1 })),
    ask: (store, run) => store.claim(claimBy(run)),
    laterMs: 10,
  },
  'a claim that makes its run': {
    ask: (store, run) => store.claim({ ...claimBy(run), run: `${run} 2`, create: {} }),
  },
  'a commit': { before: hold, ask: (store, run) => store.commit(commitOf(claimBy(run))) },
  'a record': {
    ask: (store, run) => store.record(recordingOf(run, 1, 'seen', { token: `${run} record` })),
  },
  'a freeze': { ask: (store, run) => store.freeze(freezeOf(run)) },
  'a freeze during a step': { before: hold, ask: (store, run) => store.freeze(freezeOf(run)) },
  'a freeze that makes its run': {
    ask: (store, run) => store.freeze(freezeOf(`${run} 2`, { create: {} })),
  },
  'a thaw of a run whose session is over': {
    before: (store, run) => changed(store, freezeOf(run)),
    ask: (store, run) => store.freeze(thawOf(run)),
    laterMs: 2 * HOUR,
  },
  'a renewal': {
    before: hold,
    ask: (store, run) => store.renew(claimBy(run), `${run} token`, 2 * LONG),
  },
  'a release': {
    before: hold,
    ask: (store, run) =>
      store.release(claimBy(run), `${run} token`, { entry: attemptOf(claimBy(run)) }),
  },
  'an entry of a refused call': {
    ask: (store, run) =>
      store.append(claimBy(run), { from: 'empty', event: null, outcome: 'refused' }),
  },
  'an end': { ask: (store, run) => store.end(run) },
  'an end during a step': { before: hold, ask: (store, run) => store.end(run) },
  'a delete': { ask: (store, run) => store.delete(run) },
  'a delete of a long trail': {
    before: async (store, run) => {
      for (let steps = 0; steps < 20; steps++) await step(store, run);
    },
    ask: (store, run) => store.delete(run),
  },
  'a step of a long trail': {
    before: async (store, run) => {
      for (let steps = 0; steps < 11; steps++) await step(store, run);
    },
    ask: async (store, run) => [
      await store.claim(claimBy(run)),
      await store.commit(commitOf(claimBy(run))),
    ],
  },
  'an anonymization': {
    before: (store, run) => claimed(store, { ...claimBy(run), leaseMs: 1 }),
    ask: (store, run) => store.anonymize(run),
    laterMs: 10,
  },
};

describe('documentStore() where writes are lost', () => {
  const opened = openDocuments();
  afterAll(opened.close);
  const { time } = opened;

  /** What became of a case in a process that knows the run, or does not. */
  async function play(
    { before, ask, laterMs = 0 }: Case,
    isWarm: boolean,
    faults: readonly (WriteFault | undefined)[] = [],
  ) {
    const [began, run, workflow] = [time.now(), randomUUID(), 'checkout'];
    const warm = opened.start();
    await step(warm.store, run, { create: { principal: 'alice' } });
    await before?.(warm.store, run);
    time.advance(laterMs);
    const { store, documents } = isWarm ? warm : opened.start();
    documents.take();
    documents.faults = [...faults];
    const result = await ask(store, run);
    expect(documents.faults.filter(Boolean)).toEqual([]);
    const { calls } = documents.take();
    await documents.settle();
    const writes = calls.filter(({ method }) => method === 'swap' || method === 'remove').length;

    const fresh = opened.start().store;
    const found: unknown[] = [];
    for (const key of [run, `${run} 2`, String(result)]) {
      const { n } = opened.database
        .prepare('SELECT count(*) AS n FROM workflow_documents WHERE key = ?')
        .get(keyOfRun(key)) as { n: number };
      found.push([n, await fresh.read(key, HOUR), await fresh.history({ run: key, workflow })]);
    }
    const text = JSON.stringify([result ?? 'nothing', found])
      .replaceAll(run, 'RUN')
      .replaceAll(/"idempotencyKey":"[^"]+"/g, '"idempotencyKey":"KEY"')
      .replaceAll(/anonymous [\w-]+/g, 'UNNAMED')
      .replaceAll(/"token":"[\w-]{36}"/g, '"token":"TOKEN"')
      .replaceAll(/\b1\d{12}\b/g, (at) => String(Number(at) - began));
    return { outcome: JSON.parse(text) as unknown, writes };
  }

  for (const [name, each] of Object.entries(CASES))
    for (const isWarm of [true, false]) {
      const where = isWarm ? 'that it knows' : 'that it does not know';
      it.each(WRITE_FAULTS)(
        `does ${name} of a run ${where} once, where any one write is: %s`,
        async (fault) => {
          const { outcome, writes } = await play(each, isWarm);
          expect(writes).toBeGreaterThan(0);
          for (let at = 0; at < writes; at++) {
            const faults = [...new Array<undefined>(at), fault];
            const played = await play(each, isWarm, faults);
            expect(played.outcome, `write ${at + 1} of ${writes}`).toEqual(outcome);
          }
        },
      );
    }

  it.each(WRITE_FAULTS)('writes a switch once, where its one write is: %s', async (fault) => {
    const [name, other] = [randomUUID(), opened.start().store];
    const [first, second] = ['r1', 'r2'].map((revision) => ({ value: revision, revision }));
    if (!first || !second) throw new Error('unreachable');
    const { store, documents } = opened.start();
    const write = async (expected: string | undefined, next: typeof first) => {
      documents.faults = [fault];
      const written = await store.swapSwitch(name, expected, next).catch(() => 'unsure');
      expect(documents.faults).toEqual([]);
      // No answer but `true` may say that it was written, and `false` only that it was not.
      const found = (await other.readSwitch(name))?.revision;
      if (written !== 'unsure') expect(written).toBe(found === next.revision);
      expect(await store.swapSwitch(name, expected, next)).toBe(true);
      await documents.settle();
      expect(await other.readSwitch(name)).toEqual(next);
    };
    await write(undefined, first);
    await write('r1', second);
    expect(await store.swapSwitch(name, undefined, first)).toBe(false);
    expect(await store.swapSwitch(name, 'r1', second)).toBe(true);
  });

  it.each(Object.entries(CASES))('rejects %s while the backend is away', async (_, each) => {
    for (const isWarm of [true, false]) {
      const [run, warm] = [randomUUID(), opened.start()];
      await step(warm.store, run, { create: { principal: 'alice' } });
      await each.before?.(warm.store, run);
      time.advance(each.laterMs ?? 0);
      const seen = () => opened.start().store.history({ run, workflow: 'checkout' });
      const before = await seen();
      const { store, documents } = isWarm ? warm : opened.start();
      documents.isAway = true;
      await expect(each.ask(store, run)).rejects.toThrow('ECONNREFUSED');
      expect(await seen()).toEqual(before);
      documents.isAway = false;
      await expect(each.ask(store, run)).resolves.not.toThrow();
    }
  });
});

describe('documentStore() and its backend', () => {
  const KEY = { workflow: 'checkout' };

  /** Runs with as many commits as that, in a process that knows them. */
  async function longRun(steps: number, options?: Parameters<typeof documentsOfTest>[0]) {
    const opened = documentsOfTest(options);
    const { documents, store } = opened.start();
    const run = randomUUID();
    for (let at = 1; at <= steps; at++) await stepAt(store, run, at);
    return { ...opened, documents, store, run };
  }

  function stepAt(store: WholeDocumentStore, run: string, at: number, ttlMs = HOUR) {
    const trail = { from: 'empty', to: 'has_items', event: 'ADD', actor: 'alice' };
    const each = { digest: `digest-${at}` };
    const life = { create: { principal: 'alice' }, ttlMs };
    return step(store, run, { ...life, step: each }, { trail, ttlMs });
  }

  const seqs = async (store: WholeDocumentStore, run: string) =>
    (await store.history({ run, ...KEY })).map(({ seq }) => seq);
  const last50 = (steps: number) => Array.from({ length: 50 }, (_, at) => steps - 49 + at);

  it.each([false, true])(
    'asks it twice for a step of a run that it knows, three times for another, and once for a read',
    async (tellsTime) => {
      const { documents, store, run, start } = await longRun(1, { tellsTime });
      const rounds = async (ask: () => Promise<unknown>, asked = documents) => {
        asked.take();
        await ask();
        const { rounds, calls } = asked.take();
        return [rounds, calls.length];
      };
      expect(await rounds(() => step(store, run))).toEqual([2, 2]);
      expect(await rounds(() => store.read(run, HOUR))).toEqual([1, 1]);
      const cold = start();
      expect(await rounds(() => step(cold.store, run), cold.documents)).toEqual([3, 3]);
      // The other process wrote the run: its first write fails, then it reads and writes again.
      expect(await rounds(() => step(store, run))).toEqual([4, 4]);
      for (let steps = 0; steps < 150; steps++) {
        const [waited = 9] = await rounds(() => step(store, run));
        expect(waited).toBe(2);
      }
    },
  );

  it('writes at most 8 kB for a step, however long its trail is', async () => {
    const { documents, store, run } = await longRun(60);
    for (let at = 61; at <= 90; at++) {
      documents.take();
      await stepAt(store, run, at);
      expect(documents.take().bytes).toBeLessThanOrEqual(8_000);
    }
  });

  it('gives the last 50 entries in their order, also to a process that has just begun', async () => {
    const { store, run, start } = await longRun(0);
    for (let at = 1; at <= 75; at++) {
      await stepAt(store, run, at);
      if (at < 50) continue;
      expect(await seqs(store, run)).toEqual(last50(at));
      expect(await seqs(start().store, run)).toEqual(last50(at));
    }
    const limited = await store.history({ run, ...KEY }, 20);
    expect(limited.map(({ seq }) => seq)).toEqual(last50(75).slice(-20));
  });

  it.each([
    [
      'by four processes in turn',
      async (stores: readonly WholeDocumentStore[], run: string, at: number) =>
        stepAt(stores[at % 4] as WholeDocumentStore, run, at),
    ],
    [
      'of freezes, which read first',
      async ([store]: readonly WholeDocumentStore[], run: string, at: number) =>
        store?.freeze((at % 2 === 1 ? freezeOf : thawOf)(run, { create: {} })),
    ],
  ] as const)('loses no entry of a long trail %s', async (_, change) => {
    const { start } = documentsOfTest();
    const stores = [1, 2, 3, 4].map(() => start().store);
    const run = randomUUID();
    for (let at = 1; at <= 133; at++) await change(stores, run, at);
    const trail = await start().store.history({ run, ...KEY }, 1_000);
    expect(trail.map(({ seq }) => seq)).toEqual(Array.from({ length: 133 }, (_, at) => at + 1));
  });

  it('keeps older entries as long as the run, over months of use, and no longer', async () => {
    const { start, time, left } = documentsOfTest();
    const processes = [start().store, start().store] as const;
    const [read, moved] = [randomUUID(), randomUUID()];
    const ttlMs = 7 * DAY;
    for (let at = 1; at <= 60; at++)
      for (const run of [read, moved]) await stepAt(processes[0], run, at, ttlMs);
    for (let day = 1; day <= 120; day++) {
      time.advance(DAY);
      const [one, other] = [processes[day % 2] ?? processes[0], processes[1 - (day % 2)]];
      if (day % 5 === 0) await one.read(read, ttlMs);
      if (day % 5 === 0) await stepAt(one, moved, 60 + day / 5, ttlMs);
      // A new run sweeps two expired documents.
      await other?.open(`${day}`, {}, HOUR);
      await other?.purge();
    }
    const fresh = start().store;
    expect(await seqs(fresh, read)).toEqual(last50(60));
    expect(await seqs(fresh, moved)).toEqual(last50(84));
    time.advance(400 * DAY);
    await fresh.purge();
    expect(left()).toEqual([]);
  });

  it('keeps the older entries of a held run for two weeks after its session is over', async () => {
    const { store, run, time, start } = await longRun(60);
    await claimed(store, claimOf(run, { leaseMs: 1 }));
    time.advance(HOUR + 14 * DAY);
    await start().store.purge();
    expect(await start().store.read(run, HOUR)).toMatchObject({ sessionEnded: true });
    expect(await seqs(start().store, run)).toEqual(last50(60));
  });

  it('keeps the older entries of a frozen run for as long as people look at it', async () => {
    const { store, run, time, start } = await longRun(60);
    await changed(store, freezeOf(run));
    for (let weeks = 0; weeks < 10; weeks += 1) {
      time.advance(7 * DAY);
      await start().store.purge();
      expect(await start().store.read(run, HOUR)).toMatchObject({ sessionEnded: true });
    }
    expect(await seqs(start().store, run)).toEqual(last50(61));
    await changed(start().store, thawOf(run));
    expect(await seqs(start().store, run)).toEqual(last50(62));
    time.advance(DAY);
    expect(await start().store.purge()).toBe(1);
  });

  it.each([
    ['delete', (store: WholeDocumentStore, run: string) => store.delete(run)],
    ['end', (store: WholeDocumentStore, run: string) => store.end(run)],
  ])('leaves no document of a long run after its %s', async (_, remove) => {
    const { store, run, start, left } = await longRun(150);
    expect(left().length).toBeGreaterThan(10);
    await remove(start().store, run);
    expect(left()).toEqual([]);
    await store.open(run, { principal: 'bob' }, HOUR);
    expect(await seqs(store, run)).toEqual([]);
  });

  it('leaves no document of a long run that has expired, once it is purged', async () => {
    const { start, run, time, left } = await longRun(100);
    time.advance(2 * HOUR);
    expect(await start().store.purge({ principal: 'alice' })).toBe(1);
    expect(left()).toEqual([]);
    expect(await start().store.read(run, HOUR)).toBeUndefined();
  });

  it('refuses a claim whose commit would find no room, and leaves the run as it was', async () => {
    const { start } = documentsOfTest();
    const { store, documents } = start({ maxBytes: 20_000 });
    const run = randomUUID();
    const context = (bytes: number) => ({ state: 'has_items', context: 'x'.repeat(bytes) });
    await step(store, run, { create: {} }, { snapshot: context(14_000) });
    const before = await store.read(run, HOUR);
    documents.take();
    const args = { entry: { args: 'y'.repeat(2_000) } };
    const refused = await store.claim(claimOf(run, args)).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'ERR_INTERLOCK_STORE' });
    expect(String(refused)).toMatch(
      /has 1\d{4} bytes, and maxBytes is 20000, of which a claim leaves/,
    );
    expect(documents.take().calls.filter(({ method }) => method === 'swap')).toEqual([]);
    expect(await start().store.read(run, HOUR)).toEqual(before);
    // A commit may use the quarter that its claim left.
    const request = claimOf(run);
    await claimed(store, request);
    const grown = commitOf(request, { snapshot: context(18_000) });
    expect(await store.commit(grown)).toMatchObject({ status: 'committed' });
    expect(await store.claim(claimOf(run)).catch(({ code }) => code)).toBe('ERR_INTERLOCK_STORE');
    expect(await store.delete(run)).toBe('deleted');
  });

  const SECRET = 'a secret of alice';
  const faulty: Readonly<Record<string, (found: FoundDocument, other: string) => FoundDocument>> = {
    'has another layout': (found) => ({
      ...found,
      document: String(found.document).replace(`"layout":${LAYOUT}`, `"layout":${LAYOUT + 1}`),
    }),
    'is of another key': (found, document) => ({ ...found, document }),
    'has no revision': ({ document }) => ({ document }),
    'is no JSON': (found) => ({ ...found, document: `{${SECRET}` }),
    'is no object': (found) => ({ ...found, document: JSON.stringify(SECRET) }),
    'is empty': (found) => ({ ...found, document: '' }),
  };

  it.each(Object.entries(faulty))(
    'refuses a document that %s, changes nothing and shows none of it',
    async (_, change) => {
      const { database, start, left } = documentsOfTest();
      const [run, other] = [randomUUID(), randomUUID()];
      const first = start();
      for (const key of [run, other])
        await step(first.store, key, { create: { principal: SECRET } }, {});
      const request = claimOf(run, { leaseMs: 1 });
      await claimed(first.store, request);
      const documentOf = (key: string) => {
        const rows = 'SELECT document FROM workflow_documents WHERE key = ?';
        return (database.prepare(rows).get(keyOfRun(key)) as { document: string }).document;
      };
      const before = [left(), documentOf(run)];
      const key = { run, ...KEY };
      const operations: Readonly<Record<string, (store: WholeDocumentStore) => Promise<unknown>>> =
        {
          open: (store) => store.open(run, {}, HOUR),
          read: (store) => store.read(run, HOUR),
          claim: (store) => store.claim(claimOf(run)),
          commit: (store) => store.commit(commitOf(request)),
          record: (store) => store.record(recordingOf(run, 1, 'seen')),
          freeze: (store) => store.freeze(freezeOf(run)),
          renew: (store) => store.renew(key, request.token, LONG),
          release: (store) => store.release(key, request.token),
          append: (store) => store.append(key, { from: 'empty', event: null }),
          history: (store) => store.history(key),
          end: (store) => store.end(run),
          delete: (store) => store.delete(run),
          anonymize: (store) => store.anonymize(run),
          list: (store) => {
            // A list goes on past the run, once it has told of it.
            const onError = (error: unknown): never => {
              throw error;
            };
            return store.list({ principal: SECRET, limit: 10, onError });
          },
        };
      for (const [name, ask] of Object.entries(operations)) {
        const { store, documents } = start();
        documents.changed = (found) => {
          return found?.document === undefined ? found : change(found, documentOf(other));
        };
        const refused = await ask(store).catch((error: unknown) => error);
        expect(refused, name).toBeInstanceOf(InterlockError);
        expect(refused, name).toMatchObject({ code: 'ERR_INTERLOCK_STORE' });
        expect(String(refused), name).not.toContain(SECRET);
        expect([left(), documentOf(run)], name).toEqual(before);
      }
    },
  );

  it.each(Object.entries(faulty))(
    'refuses the document of a switch that %s, changes nothing and shows none of it',
    async (_, change) => {
      const { database, start } = documentsOfTest();
      const { store, documents } = start();
      const [name, other] = [randomUUID(), randomUUID()];
      const set = { value: SECRET, revision: 'r1' };
      for (const each of [name, other]) await store.swapSwitch(each, undefined, set);
      const documentOf = (workflow: string) => {
        const rows = 'SELECT document FROM workflow_documents WHERE key = ?';
        const found = database.prepare(rows).get(keyOfSwitch(workflow));
        return (found as { document: string }).document;
      };
      const before = documentOf(name);
      documents.changed = (found) => found && change(found, documentOf(other));
      const next = { value: 'next', revision: 'r2' };
      for (const ask of [store.readSwitch(name), store.swapSwitch(name, 'r1', next)]) {
        const refused = await ask.catch((error: unknown) => error);
        expect(refused).toMatchObject({ code: 'ERR_INTERLOCK_STORE' });
        expect(String(refused)).not.toContain(SECRET);
      }
      expect(documentOf(name)).toBe(before);
    },
  );

  it('refuses a switch that has no room, and a backend that does not say whether it wrote', async () => {
    const { start } = documentsOfTest();
    const { store, documents } = start({ maxBytes: 10_000 });
    const refused = { code: 'ERR_INTERLOCK_STORE' };
    const big = { value: 'x'.repeat(10_000), revision: 'r1' };
    await expect(store.swapSwitch('checkout', undefined, big)).rejects.toMatchObject(refused);
    documents.swap = async () => ({}) as never;
    const small = { ...big, value: 'x' };
    await expect(store.swapSwitch('checkout', undefined, small)).rejects.toMatchObject(refused);
    expect(await store.readSwitch('checkout')).toBeUndefined();
  });

  it('refuses older entries of another layout, and leaves no gap in a trail', async () => {
    const { database, start, left } = documentsOfTest();
    const { store } = start();
    for (let steps = 0; steps < 20; steps++) await step(store, 'run', { create: {} });
    expect(await store.history({ run: 'run', ...KEY })).toHaveLength(20);
    const before = left();
    database.exec(`UPDATE workflow_documents
      SET document = replace(document, '"layout":${LAYOUT}', '"layout":${LAYOUT + 1}') WHERE key GLOB 'trail-*'`);
    const refused = expect.stringMatching(`layout ${LAYOUT + 1}.*knows layout ${LAYOUT}`);
    const history = start().store.history({ run: 'run', ...KEY });
    await expect(history).rejects.toMatchObject({ message: refused });
    expect(left()).toEqual(before);
  });

  it('notes its layout with the first run, and reads that once a process for a new run', async () => {
    const { start, database } = documentsOfTest();
    const [first, second] = [start(), start()];
    const opens = async ({ documents, store }: typeof first, run: string) => {
      await store.open(run, {}, HOUR);
      const { rounds, calls } = documents.take();
      return [rounds, ...calls.flatMap(({ method, key }) => (key === 'layout' ? [method] : []))];
    };
    expect(await opens(first, 'a')).toEqual([5, 'read', 'read', 'swap']);
    expect(await opens(first, 'b')).toEqual([1]);
    expect(await opens(second, 'c')).toEqual([3, 'read']);
    expect(await opens(second, 'd')).toEqual([1]);
    const note = database.prepare("SELECT document FROM workflow_documents WHERE key = 'layout'");
    expect(note.get()).toMatchObject({ document: JSON.stringify({ layout: LAYOUT }) });
  });

  it('gives of what a late index names only what is true of the run itself', async () => {
    const { start } = documentsOfTest();
    const { store, documents } = start();
    const [moved, resolved, deleted, kept] = ['moved', 'resolved', 'deleted', 'kept'] as const;
    for (const run of [moved, resolved, deleted, kept]) {
      const create = { principal: 'alice' };
      await step(store, run, { create }, { snapshot: { state: 'payment' } });
      await claimed(store, claimOf(run, { leaseMs: 0 }));
    }
    const other = start().store;
    const happens = async () => {
      for (const run of [moved, resolved, deleted]) {
        const token = (await other.read(run, HOUR))?.workflows.checkout?.claim?.token ?? '';
        if (run === moved) await other.commit(commitOf(claimOf(run, { token })));
        else await other.release({ run, ...KEY }, token);
      }
      await other.delete(deleted);
      await other.open(deleted, { principal: 'bob' }, HOUR);
    };
    // Between the index and the runs that it named.
    let happened: Promise<unknown> | undefined;
    documents.before = async (method, key) => {
      if (method !== 'read' || !key.startsWith('run-')) return;
      happened ??= happens();
      await happened;
    };
    const listings = await Promise.all([
      store.held({ ...KEY, limit: 10 }),
      store.stuck({ ...KEY, limit: 10, states: ['payment'], forMs: 0 }),
      store.list({ principal: 'alice', limit: 10 }),
    ]);
    const [held, stuck] = listings.map(({ runs }) =>
      runs.map((each) => (typeof each === 'string' ? each : each.run)).toSorted(),
    );
    expect(happened).toBeDefined();
    expect(held).toEqual([kept]);
    expect(stuck).toEqual([kept, resolved]);
    expect(listings[2].runs.toSorted()).toEqual([kept, moved, resolved]);
  });
});

describe('documentStore() where a held run is anonymized', () => {
  /** A held run of alice's. */
  async function heldRun() {
    const opened = documentsOfTest();
    const run = randomUUID();
    const { store } = opened.start();
    for (let steps = 0; steps < 15; steps++)
      await step(store, run, { create: { principal: 'alice' } });
    const request = claimOf(run, { leaseMs: 1, ...ENTRY });
    await claimed(store, request);
    opened.time.advance(10);
    return { ...opened, run, request };
  }

  const heldBy = async (store: WholeDocumentStore) =>
    (await store.held({ workflow: 'checkout', limit: 10 })).runs;

  it('leaves one copy and no old run, after which write ever it was cut off', async () => {
    for (let cut = 0; ; cut++) {
      const { run, request, start, left, database } = await heldRun();
      const { store, documents } = start();
      documents.faults = [...new Array<undefined>(cut)];
      documents.before = (method) => {
        // The process is gone: nothing that it asks arrives any more.
        if (method !== 'find' && documents.faults.length === 0) documents.isAway = true;
      };
      const isCut = await store.anonymize(run).then(
        () => false,
        () => true,
      );
      const again = start().store;
      const name = await again.anonymize(run);
      const [held, ...others] = await heldBy(again);
      expect(others).toEqual([]);
      expect(held).toMatchObject({ claim: { token: request.token }, snapshot: { version: 15 } });
      expect([held?.run, undefined]).toContain(name);
      expect(await again.read(run, HOUR)).toBeUndefined();
      expect(new Set(left())).toEqual(new Set([keyOfRun(held?.run ?? '')]));
      const [{ document } = { document: '' }] = database
        .prepare('SELECT document FROM workflow_documents')
        .all() as { document: string }[];
      for (const word of ['alice', run]) expect(document).not.toContain(word);
      if (isCut) continue;
      expect(cut).toBeGreaterThan(3);
      return;
    }
  });

  it('leaves one copy where two processes do so at once, whichever is ahead', async () => {
    for (let ahead = 0; ahead < 12; ahead++) {
      const { run, request, start, left } = await heldRun();
      const [one, other] = [start(), start()];
      // One of them stops before one of its calls until the other is through.
      let calls = 0;
      let through: Promise<unknown> | undefined;
      one.documents.before = async () => {
        calls += 1;
        if (calls !== ahead + 1) return;
        through = other.store.anonymize(run);
        await through;
      };
      const name = await one.store.anonymize(run);
      const second = await (through ?? other.store.anonymize(run));
      const held = await heldBy(start().store);
      expect(held, `before call ${ahead}`).toMatchObject([{ claim: { token: request.token } }]);
      for (const given of [name, second]) expect([held[0]?.run, undefined]).toContain(given);
      expect(new Set(left())).toEqual(new Set([keyOfRun(held[0]?.run ?? '')]));
    }
  });
});

describe('documentStore() and time', () => {
  const LEASE = 30_000;
  const ttlMs = DAY;

  async function remaining(store: WholeDocumentStore, run: string): Promise<number> {
    const result = await store.claim(claimOf(run, { ttlMs }));
    return result.status === 'busy' ? result.remainingMs : 0;
  }

  it('goes by the time of the backend, though the clocks of its processes are hours off', async () => {
    const { start, time } = documentsOfTest({ tellsTime: true });
    const [ahead, behind, right] = [5 * HOUR, -7 * HOUR, 0].map((offMs) => start({ offMs }).store);
    if (!ahead || !behind || !right) throw new Error('no stores');
    const run = randomUUID();
    await step(right, run, { create: {} });
    for (const [holder, others] of [
      [ahead, [behind, right]],
      [behind, [ahead, right]],
    ] as const) {
      await step(holder, run);
      const request = claimOf(run, { leaseMs: LEASE });
      await claimed(holder, request);
      time.advance(LEASE - 1);
      for (const other of others) expect(await remaining(other, run)).toBe(1);
      expect(await holder.renew(request, request.token, LEASE)).toBe(true);
      for (const other of others) expect(await remaining(other, run)).toBe(LEASE);
      time.advance(LEASE);
      for (const other of others) expect(await claimStatus(other, run)).toBe('held');
      expect(await holder.commit(commitOf(request))).toMatchObject({ status: 'committed' });
    }
  });

  it('lets a lease begin by the time of the backend after the machine has slept', async () => {
    const { start, sleep } = documentsOfTest({ tellsTime: true });
    const [store, other] = [start().store, start().store];
    const run = randomUUID();
    await step(store, run, { create: {}, ttlMs }, { ttlMs });
    sleep(2 * HOUR);
    const request = claimOf(run, { leaseMs: LEASE, ttlMs });
    await claimed(store, request);
    expect(await remaining(other, run)).toBe(LEASE);
    sleep(2 * HOUR);
    expect(await store.renew(request, request.token, LEASE)).toBe(true);
    expect(await remaining(other, run)).toBe(LEASE);
  });

  it('lets a lease begin again by the time of the backend where its clock has jumped', async () => {
    const { start, time, jump } = documentsOfTest({ tellsTime: true });
    const [store, other] = [start(), start()];
    const run = randomUUID();
    await step(store.store, run, { create: {}, ttlMs }, { ttlMs });
    jump(2 * HOUR);
    const request = claimOf(run, { leaseMs: LEASE, ttlMs });
    store.documents.take();
    await claimed(store.store, request);
    expect(store.documents.take().rounds).toBe(3);
    expect(await remaining(other.store, run)).toBe(LEASE);
    jump(2 * HOUR);
    expect(await store.store.renew(request, request.token, LEASE)).toBe(true);
    expect(await remaining(other.store, run)).toBe(LEASE);
    time.advance(LEASE);
    expect(await claimStatus(other.store, run)).toBe('held');
  });
});

describe('documentStore() under many callers', () => {
  it('grants one claim at a time to 50 callers in two processes, and none of them starves', async () => {
    const { start } = documentsOfTest();
    const stores = [start().store, start().store] as const;
    const run = randomUUID();
    await stores[0].open(run, {}, HOUR);
    let holders = 0;
    const tries: number[] = [];
    const call = async (caller: number) => {
      const store = stores[caller % 2] ?? stores[0];
      for (let tried = 1; ; tried++) {
        const request = claimOf(run);
        const { status } = await store.claim(request);
        if (status === 'busy') continue;
        expect(status).toBe('claimed');
        holders += 1;
        expect(holders).toBe(1);
        await nextTurn();
        holders -= 1;
        expect(await store.commit(commitOf(request))).toMatchObject({ status: 'committed' });
        tries.push(tried);
        return;
      }
    };
    await Promise.all(Array.from({ length: 50 }, (_, caller) => call(caller)));
    expect(tries).toHaveLength(50);
    expect(Math.max(...tries)).toBeLessThanOrEqual(100);
    const trail = await stores[0].history({ run, workflow: 'checkout' });
    expect(trail.map(({ version }) => version)).toEqual(trail.map((_, at) => at + 1));
    expect(trail).toHaveLength(50);
  });
});
