import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import * as oursTesting from '../../packages/testing/src/test-gate.ts';
import type { FsmSnapshot } from '../../src/index.ts';
import * as ours from '../../src/index.ts';
import * as oursRuns from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import * as oursStores from '../../src/stores/index.ts';
import * as oursPostgres from '../../src/stores/postgres.ts';
import * as oursRedis from '../../src/stores/redis.ts';
import * as oursSqlite from '../../src/stores/sqlite.ts';
import type { Envelope } from '../../src/workflow/envelope.ts';
import { JsonStateStore } from '../helpers/json-state-store.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { sharedRedis } from '../services/shared.ts';

/** The whole package, loaded once as it is and once as a later release may be. */
interface Build {
  readonly main: typeof ours;
  readonly runs: typeof oursRuns;
  readonly stores: typeof oursStores;
  readonly postgres: typeof oursPostgres;
  readonly redis: typeof oursRedis;
  readonly sqlite: typeof oursSqlite;
  readonly testing: typeof oursTesting;
}

const OURS: Build = {
  main: ours,
  runs: oursRuns,
  stores: oursStores,
  postgres: oursPostgres,
  redis: oursRedis,
  sqlite: oursSqlite,
  testing: oursTesting,
};
const FORMAT = 'mcp-interlock/format';
const LATER = 'mcp-interlock/later';
const KEPT = { only: ['it', 'knows', { this: 1 }] };

/** Loads the package anew as a build whose format is one higher, with a member of its own. */
async function newerBuild({ moves }: { readonly moves: number }): Promise<Build> {
  vi.resetModules();
  vi.doMock('../../src/workflow/format.ts', () => ({ FORMAT: 3, MOVES: moves, OLDEST: 2 }));
  vi.doMock('../../src/workflow/envelope.ts', async (original) => {
    const actual = await original<typeof import('../../src/workflow/envelope.ts')>();
    const sealContext = (envelope: Envelope) =>
      actual.sealContext({ [LATER]: KEPT, ...envelope } as Envelope);
    return { ...actual, sealContext };
  });
  return {
    main: await import('../../src/index.ts'),
    runs: await import('../../src/runs/index.ts'),
    stores: await import('../../src/stores/index.ts'),
    postgres: await import('../../src/stores/postgres.ts'),
    redis: await import('../../src/stores/redis.ts'),
    sqlite: await import('../../src/stores/sqlite.ts'),
    testing: await import('../../packages/testing/src/test-gate.ts'),
  };
}

afterEach(() => {
  vi.doUnmock('../../src/workflow/format.ts');
  vi.doUnmock('../../src/workflow/envelope.ts');
  vi.resetModules();
});

/** A backend that two builds share, each by a store of its own. */
type Backend = (of: Build) => AtomicStateStore;
type MakeBackend = () => Backend | Promise<Backend>;

const BACKENDS: Readonly<Record<string, MakeBackend>> = {
  memory() {
    const shared = ours.memoryStore();
    return () => shared;
  },
  SQLite() {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const stores = new Map<Build, AtomicStateStore>();
    return (build) => {
      const store = stores.get(build) ?? build.sqlite.sqliteStore({ database: file.connect() });
      stores.set(build, store);
      return store;
    };
  },
  async PostgreSQL() {
    const { connect, schema, drop } = await makePostgresSchema();
    onTestFinished(drop);
    const pool = connect();
    await oursPostgres.postgresStore({ pool, schema }).migrate();
    return ({ postgres }) => postgres.postgresStore({ pool, schema });
  },
  async Redis() {
    const client = new Redis(await sharedRedis());
    onTestFinished(() => client.disconnect());
    const prefix = `formats ${randomUUID()}`;
    return ({ redis }) => redis.redisStore({ client, prefix });
  },
  'load and save'() {
    const { texts } = new JsonStateStore();
    // Without claims of another process, each build meets what the other one has saved.
    return ({ stores }) =>
      stores.adaptStateStore(new JsonStateStore(texts), { onWarning: () => {} });
  },
};

/** One run of a principal, in two processes of different builds. */
function bothBuilds(backend: Backend, newer: Build) {
  const side = (build: Build) => {
    const { StateMachineGate, principalKey } = build.main;
    const { runsOf } = build.runs;
    const gate = new StateMachineGate(
      {
        id: 'checkout',
        initial: 'empty',
        states: {
          empty: { on: { ADD_ITEM: 'has_items' } },
          has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
          payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
          confirmed: {},
        },
      },
      { loopShield: { max: 5, fallback: { state: 'empty' } } },
    )
      .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
      .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
      .bindTool('cart.pay', ['payment'], 'PAY');
    const store = backend(build);
    const app = build.testing.testGate(gate, {
      principal: 'alice',
      session: { store, key: principalKey() },
      gate: { statusTool: 'workflow_status' },
    });
    const runs = runsOf(gate, { store, onWarning: () => {}, onError: () => {} });
    return { app, runs, store };
  };
  const [old, later] = [side(OURS), side(newer)];
  const stored = async (): Promise<FsmSnapshot | undefined> =>
    (await old.store.read(await old.app.run(), 60_000))?.workflows.checkout?.snapshot;
  return { old, later, stored };
}

const contextIn = (snapshot: FsmSnapshot | undefined) =>
  snapshot?.context as Record<string, unknown> | undefined;

describe.each(Object.entries(BACKENDS))('two builds on %s', (_, makeBackend) => {
  it('write their format into each run, also where it carries nothing else', async () => {
    const { old, stored } = bothBuilds(await makeBackend(), OURS);
    await old.app.call('cart.add_item');
    expect(contextIn(await stored())?.[FORMAT]).toEqual([2, 2]);
    await old.app.call('cart.checkout');
    expect(await stored()).toMatchObject({ state: 'payment', context: { [FORMAT]: [2, 2] } });
  });

  it('move one run in turn, and the older one carries along what it does not know', async () => {
    const { old, later, stored } = bothBuilds(await makeBackend(), await newerBuild({ moves: 2 }));
    expect((await later.app.call('cart.add_item')).outcome).toBe('ok');
    expect(contextIn(await stored())).toMatchObject({ [FORMAT]: [3, 2], [LATER]: KEPT });
    const run = await old.app.run();
    await later.runs.update(run, () => ({ card: 'x' }));
    expect((await old.app.call('cart.checkout')).outcome).toBe('ok');
    expect(await stored()).toMatchObject({
      state: 'payment',
      context: { [FORMAT]: [2, 2], [LATER]: KEPT, data: { card: 'x' } },
    });
    expect((await old.runs.read(run))?.snapshot.context).toEqual({ card: 'x' });
    await old.runs.update(run, () => ({ card: 'y' }));
    expect(contextIn(await stored())).toMatchObject({ [LATER]: KEPT, data: { card: 'y' } });
    expect((await later.app.call('cart.pay')).outcome).toBe('ok');
    expect(await stored()).toMatchObject({
      state: 'confirmed',
      context: { [FORMAT]: [3, 2], [LATER]: KEPT, data: { card: 'y' } },
    });
  });

  it('move one run in turn where the older one began it', async () => {
    const { old, later, stored } = bothBuilds(await makeBackend(), await newerBuild({ moves: 2 }));
    await old.app.call('cart.add_item');
    expect(contextIn(await stored())).not.toHaveProperty(LATER);
    await later.app.call('cart.checkout');
    expect(contextIn(await stored())).toMatchObject({ [FORMAT]: [3, 2], [LATER]: KEPT });
    expect((await old.app.call('cart.pay')).outcome).toBe('ok');
    expect(await stored()).toMatchObject({ state: 'confirmed', context: { [LATER]: KEPT } });
  });

  it('leave a run alone that only the newer one may move, and the older one says so', async () => {
    const { old, later, stored } = bothBuilds(await makeBackend(), await newerBuild({ moves: 3 }));
    await old.app.call('cart.add_item');
    await later.app.call('cart.checkout');
    const before = await stored();
    expect(contextIn(before)).toMatchObject({ [FORMAT]: [3, 3], [LATER]: KEPT });
    const answer = await old.app.call('cart.pay');
    expect(answer).toMatchObject({ outcome: 'refused', ran: false });
    expect(answer.refusal?.reason).toBe('unreadable');
    expect(answer.text).toMatch(/a newer version of this server has saved it, so try again/i);
    const told = await old.app.call('workflow_status');
    expect(told.result).toMatchObject({
      isError: true,
      structuredContent: { workflows: [{ workflow: 'checkout', status: 'unreadable' }] },
    });
    const run = await old.app.run();
    const moves = { send: old.runs.send(run, 'CANCEL'), update: old.runs.update(run, () => 1) };
    for (const refused of Object.values(moves))
      await expect(refused).rejects.toMatchObject({ code: 'ERR_INTERLOCK_SNAPSHOT' });
    await expect(old.runs.read(run)).rejects.toThrow('only versions from format 3 on may move it');
    expect(await stored()).toEqual(before);
    expect((await later.app.call('cart.pay')).outcome).toBe('ok');
    expect((await stored())?.state).toBe('confirmed');
  });
});

describe('a build of format 3 beside one of format 2', () => {
  it('keeps the lowest format that may move a run, though its own would allow more', async () => {
    const three = await newerBuild({ moves: 3 });
    const { old, later, stored } = bothBuilds((await BACKENDS.memory?.()) as Backend, three);
    await later.app.call('cart.add_item');
    vi.resetModules();
    vi.doUnmock('../../src/workflow/envelope.ts');
    vi.doMock('../../src/workflow/format.ts', () => ({ FORMAT: 3, MOVES: 2, OLDEST: 2 }));
    const { sealContext } = await import('../../src/workflow/envelope.ts');
    const { context } = sealContext((await stored())?.context as Envelope);
    expect(context).toMatchObject({ [FORMAT]: [3, 3], [LATER]: KEPT });
    expect((await old.app.call('cart.add_item')).refusal?.reason).toBe('unreadable');
  });
});
