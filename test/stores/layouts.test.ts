import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  claimOf,
  commitOf,
  HOUR,
  LONG,
  recordingOf,
  step,
} from '../../packages/testing/src/fixtures.ts';
import { freezeOf } from '../../packages/testing/src/freezes.ts';
import { documentStore } from '../../src/stores/document.ts';
import { type PostgresStore, postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { type SqliteDatabase, sqliteStore } from '../../src/stores/sqlite.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import { documentsOfTest } from '../helpers/controlled-documents.ts';
import { LayoutBuilds } from '../helpers/other-layout.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { sharedRedis } from '../services/shared.ts';

const redis = new Redis(await sharedRedis());
const builds = new LayoutBuilds();
afterAll(() => {
  redis.disconnect();
  builds.remove();
});
const [otherStores, otherDocuments] = await Promise.all([
  builds.make('other', ['texts', 'sqlite']),
  builds.make('documents', ['texts']),
]);

type Store = Required<Omit<AtomicStateStore, 'unsettled'>>;

/** One store as this build opens it, and as one with the next layout does. */
interface Place {
  readonly own: () => Promise<Store>;
  readonly other: () => Promise<Store>;
}

/** The same function of another build. */
async function of<Make>(build: string, file: string, name: string): Promise<Make> {
  return (await import(join(build, 'src/stores', file)))[name];
}

const places: readonly [string, () => Promise<Place>][] = [
  [
    'Redis',
    async () => {
      const options = { client: redis, prefix: `layouts-${randomUUID()}` };
      const copy = await of<typeof redisStore>(otherStores, 'redis.js', 'redisStore');
      return { own: async () => redisStore(options), other: async () => copy(options) };
    },
  ],
  [
    'PostgreSQL',
    async () => {
      const place = await makePostgresSchema();
      onTestFinished(() => place.drop());
      const options = { pool: place.connect(), schema: place.schema };
      const copy = await of<typeof postgresStore>(otherStores, 'postgres.js', 'postgresStore');
      const opened = async (make: typeof postgresStore) => make(options) as unknown as Store;
      return { own: () => opened(postgresStore), other: () => opened(copy) };
    },
  ],
  [
    'SQLite',
    async () => {
      const file = makeSqliteFile();
      onTestFinished(() => file.remove());
      const copy = await of<typeof sqliteStore>(otherStores, 'sqlite.js', 'sqliteStore');
      const opened = async (make: typeof sqliteStore) =>
        make({ database: file.connect() as SqliteDatabase }) as Store;
      return { own: () => opened(sqliteStore), other: () => opened(copy) };
    },
  ],
  [
    'documents',
    async () => {
      const { start } = documentsOfTest();
      const copy = await of<typeof documentStore>(otherDocuments, 'document.js', 'documentStore');
      const opened = async (make: typeof documentStore) =>
        make(start().documents, { now: Date.now }) as Store;
      return { own: () => opened(documentStore), other: () => opened(copy) };
    },
  ],
];

function isMigrated(store: Store): store is Store & Pick<PostgresStore, 'migrate'> {
  return 'migrate' in store;
}

const checkout = { workflow: 'checkout', limit: 10 };

/** Each operation that asks for a run, or about all of them. */
function operationsOn(store: Store, run: string): Record<string, () => Promise<unknown>> {
  const request = claimOf(run, { create: { principal: 'alice' } });
  return {
    open: () => store.open(run, { principal: 'alice' }, HOUR),
    read: () => store.read(run, HOUR),
    claim: () => store.claim(request),
    'claim of a known run': () => store.claim(claimOf(run)),
    commit: () => store.commit(commitOf(request)),
    record: () => store.record(recordingOf(run, 0, 'seen', { create: {} })),
    renew: () => store.renew(request, request.token, LONG),
    release: () => store.release(request, request.token),
    freeze: () => store.freeze(freezeOf(run, { create: { principal: 'alice' } })),
    readSwitch: () => store.readSwitch('checkout'),
    swapSwitch: () => store.swapSwitch('checkout', undefined, { value: 1, revision: 'r' }),
    append: () => store.append(request, { from: 'empty', event: null }),
    end: () => store.end(run),
    delete: () => store.delete(run),
    history: () => store.history(request),
    anonymize: () => store.anonymize(run),
    held: () => store.held(checkout),
    stuck: () => store.stuck({ ...checkout, forMs: 0 }),
    count: () => store.count({ ...checkout, forMs: 0 }),
    list: () => store.list({ principal: 'alice', limit: 10 }),
    runs: () =>
      store
        .runs({ ...checkout, state: 'has_items' })
        [Symbol.asyncIterator]()
        .next(),
    purge: () => store.purge(),
    'purge of a principal': () => store.purge({ principal: 'alice' }),
    ...(isMigrated(store) && { migrate: () => store.migrate() }),
  };
}

/** All that a store says of the runs of {@link write}. */
async function said(store: Store) {
  const { now: _, ...counted } = await store.count({ ...checkout, forMs: HOUR });
  return {
    counted,
    held: (await store.held(checkout)).runs.map(({ run }) => run),
    list: await store.list({ principal: 'alice', limit: 10 }),
    trail: await store.history({ run: 'moved', workflow: 'checkout' }, 100),
  };
}

/** A run with a long trail, one that is held, and one with a step at work. */
async function write(store: Store) {
  const create = { principal: 'alice' };
  for (let steps = 0; steps < 20; steps++) await step(store, 'moved', { create });
  await store.claim(claimOf('held', { create, leaseMs: 0 }));
  const atWork = claimOf('at work', { create });
  await store.claim(atWork);
  return atWork;
}

describe.each(places)(
  'a process that meets the data of another layout, on %s',
  {
    timeout: 60_000,
  },
  (kind, place) => {
    it.each([
      ['newer', 'own', 'other'],
      ['older', 'other', 'own'],
    ] as const)(
      'and is the %s one says so in each operation, of each run, and changes nothing',
      async (_, writer, reader) => {
        const stores = await place();
        const store = await stores[writer]();
        if (isMigrated(store)) await store.migrate();
        const atWork = await write(store);
        const before = await said(store);
        expect(before).toMatchObject({ held: ['held'], counted: { running: 1 } });
        expect(before.trail).toHaveLength(20);

        const code = 'ERR_INTERLOCK_STORE';
        const message = expect.stringMatching(/(format|layout) \d+.*version of mcp-interlock/);
        const refused = { code, message };
        // It reads the number when it opens the file.
        if (kind === 'SQLite') await expect(stores[reader]()).rejects.toMatchObject(refused);
        else
          for (const run of ['moved', 'held', 'at work', 'of none'])
            for (const name of Object.keys(operationsOn(store, run))) {
              // Each as the first one of its process, which knows nothing of the store.
              const fresh = operationsOn(await stores[reader](), run)[name];
              await expect(fresh?.(), `${name} of ${run}`).rejects.toMatchObject(refused);
            }

        expect(await said(store)).toEqual(before);
        expect(await store.commit(commitOf(atWork))).toMatchObject({ status: 'committed' });
        expect(await store.open('of none', {}, HOUR)).toEqual({ status: 'opened' });
        const held = (await store.read('held', HOUR))?.workflows.checkout?.claim;
        expect(await store.commit(commitOf(claimOf('held', { token: held?.token ?? '' })))).toEqual(
          {
            status: 'committed',
            version: 1,
          },
        );
      },
    );
  },
);
