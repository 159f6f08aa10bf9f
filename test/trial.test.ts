import { readFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { claimed, claimOf, HOUR, step } from '../packages/testing/src/fixtures.ts';
import {
  InterlockError,
  type InterlockEvent,
  type Migrate,
  memoryStore,
  runDigest,
  StateMachineGate,
} from '../src/index.ts';
import { type CheckedRuns, runsOf } from '../src/runs/index.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  FoundRun,
  Json,
  RunsPage,
} from '../src/stores/index.ts';
import { sqliteStore } from '../src/stores/sqlite.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { sealed } from './helpers/envelope.ts';
import { FaultyStore } from './helpers/faulty-store.ts';
import { JsonStateStore } from './helpers/json-state-store.ts';
import { ManualClock } from './helpers/manual-clock.ts';
import { makeSqliteFile } from './helpers/sqlite-file.ts';

const LEASE = 8_000;

/** The checkout of the README after a deployment that renamed "payment", and dropped `cart.pay`. */
function nextGate(options: { version?: number; migrate?: Migrate } = {}) {
  return new StateMachineGate(
    {
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { ADD_ITEM: 'has_items' } },
        has_items: { on: { CHECKOUT: 'paying' } },
        paying: { on: { PAY: 'confirmed' } },
        confirmed: { type: 'final' },
      },
    },
    options,
  )
    .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
    .bindTool('cart.settle', ['paying'], 'PAY');
}

const renamed: Migrate = ({ state, context }) => ({
  state: state === 'payment' ? 'paying' : state,
  context,
});

/** A store whose time stands still until the test moves it, with runs that the test makes. */
function shop(made?: (clock: ManualClock) => AtomicStateStore) {
  const clock = new ManualClock();
  const store = new FaultyStore(made?.(clock) ?? memoryStore({ now: clock.now }));
  const told: unknown[] = [];
  const tell = (what: unknown): void => void told.push(what);
  const onEvent = (event: InterlockEvent): void => tell(event);
  return {
    clock,
    store,
    /** What was told: errors, warnings and events. */
    told,
    check: (gate: StateMachineGate<string, string> = nextGate()): Promise<CheckedRuns> =>
      runsOf(gate, { store, onError: tell, onWarning: tell, onEvent }).check(),
    /** A run that comes to a state by one step. */
    async make(run: string, state: string, context?: Json, ended = false): Promise<void> {
      await store.open(run, { principal: 'ann' }, HOUR);
      const snapshot = context === undefined ? { state } : { state, context };
      await step(store, run, {}, { snapshot, ended });
    },
    /** A step that never ends. */
    async leaveClaim(run: string, said: Partial<ClaimRequest['step']> = {}): Promise<void> {
      await claimed(store, claimOf(run, { leaseMs: LEASE, step: said }));
    },
  };
}

const stamped = (version: number, data?: Json): Json =>
  sealed({ version, ...(data !== undefined && { data }) });

const NOTHING: CheckedRuns = {
  runs: 0,
  states: [],
  unreadable: 0,
  faults: [],
  migrated: [],
  unbound: [],
  isCut: false,
  compared: { with: 'none', noted: [], tools: [], limits: [], unread: 0 },
};

describe('check()', () => {
  it('counts the runs that have not ended by their saved state, the most common first', async () => {
    const { check, make } = shop();
    expect(await check()).toEqual(NOTHING);
    await make('one', 'has_items');
    await make('two', 'empty');
    await make('three', 'has_items');
    await make('over', 'confirmed', undefined, true);
    expect(await check()).toEqual({
      ...NOTHING,
      runs: 3,
      states: [
        { state: 'has_items', runs: 2 },
        { state: 'empty', runs: 1 },
      ],
    });
  });

  it('names the runs in a state that is no more, one of them by its digest', async () => {
    const { check, make } = shop();
    await make('one', 'payment');
    await make('two', 'payment');
    await make('fine', 'empty');
    const { faults, ...rest } = await check();
    expect(rest).toMatchObject({ runs: 3, unreadable: 2, migrated: [] });
    expect(faults).toEqual([
      {
        kind: 'unknown-state',
        state: 'payment',
        version: 0,
        runs: 2,
        run: runDigest('one'),
        reason:
          'a run is in "payment", a state that "checkout" does not have, known are "empty", ' +
          '"has_items", "paying", "confirmed"; give the gate a "migrate"',
      },
    ]);
  });

  interface Unread {
    /** What is wrong, in the title. */
    readonly of: string;
    readonly kind: string;
    readonly context?: Json;
    readonly options: { version?: number; migrate?: Migrate };
    readonly reason: string;
  }
  const wrong = (answer: unknown) => ({ migrate: (() => answer) as unknown as Migrate });
  const throws: Migrate = () => {
    throw new Error('no price');
  };

  it.each<Unread>([
    {
      of: 'an older version saved, without migrate',
      kind: 'older-version',
      context: stamped(1),
      options: { version: 2 },
      reason: 'was saved by version 1; give the gate a "migrate" that takes it to 2',
    },
    {
      of: 'a newer version saved',
      kind: 'newer-version',
      context: stamped(3),
      options: { version: 2, migrate: renamed },
      reason: 'was saved by version 3, and this one is 2',
    },
    {
      of: 'a newer version of the package saved',
      kind: 'newer-package',
      context: { 'mcp-interlock/format': [9, 9] },
      options: { migrate: renamed },
      reason: 'was saved by a newer version of mcp-interlock',
    },
    {
      of: 'migrate throws for',
      kind: 'migrate-threw',
      options: { migrate: throws },
      reason: 'a run of "checkout" in "payment": "migrate" threw: no price',
    },
    {
      of: 'migrate takes to a state that there is not',
      kind: 'migrate-returned',
      options: wrong({ state: 'payed' }),
      reason: '"migrate" took it to "payed", which is no state of it, known are "empty"',
    },
    {
      of: 'migrate returns nothing for',
      kind: 'migrate-returned',
      options: wrong(undefined),
      reason: '"migrate" returned: ',
    },
    {
      of: 'migrate returns a promise for',
      kind: 'migrate-returned',
      options: wrong(Promise.resolve({ state: 'paying' })),
      reason: '"migrate" returned: ',
    },
    {
      of: 'migrate gives data that is no JSON',
      kind: 'migrate-returned',
      options: wrong({ state: 'paying', context: new Date() }),
      reason: '"migrate" returned what cannot be saved: the context is a Date, which is not JSON',
    },
  ])('says why it cannot read a run that $of', async ({ kind, context, options, reason }) => {
    const { check, make } = shop();
    await make('one', 'payment', context);
    const { unreadable, faults, migrated } = await check(nextGate(options));
    expect([unreadable, faults.length, migrated]).toEqual([1, 1, []]);
    expect(faults[0]).toMatchObject({ kind, state: 'payment', runs: 1, run: runDigest('one') });
    expect(faults[0]?.reason).toContain(reason);
    expect(faults[0]?.reason).not.toContain('ERR_INTERLOCK');
  });

  it('says of each version that saved them why runs cannot be read', async () => {
    const { check, make } = shop();
    for (const version of [1, 1, 3])
      await make(`${version}${Math.random()}`, 'empty', stamped(version));
    const { faults } = await check(nextGate({ version: 2 }));
    expect(faults.map(({ kind, version, runs }) => [kind, version, runs])).toEqual([
      ['older-version', 1, 2],
      ['newer-version', 3, 1],
    ]);
  });

  it('says of a run that a store gives back malformed that it is, and goes on', async () => {
    const { check, make, store } = shop();
    await make('broken', 'empty');
    await make('fine', 'empty');
    const { stuck } = store;
    const changed: AtomicStateStore['stuck'] = async (query) => {
      const page = (await stuck?.(query)) as RunsPage;
      const broken = (found: FoundRun): FoundRun =>
        found.run === 'broken' ? { ...found, snapshot: { state: 7 } as never } : found;
      return { ...page, runs: page.runs.map(broken) };
    };
    Object.assign(store, { stuck: changed });
    expect(await check()).toMatchObject({
      runs: 2,
      unreadable: 1,
      states: [
        { state: '7', runs: 1 },
        { state: 'empty', runs: 1 },
      ],
      faults: [{ kind: 'malformed', state: '7', run: runDigest('broken') }],
    });
  });

  it('says of a run whose version is no number that it is malformed', async () => {
    const { check, make } = shop();
    await make('one', 'empty', { 'mcp-interlock/format': [2, 2], version: 'two' });
    const { faults } = await check(nextGate({ version: 2, migrate: renamed }));
    expect(faults).toMatchObject([
      { kind: 'malformed', version: 0, reason: expect.stringContaining('is no number') },
    ]);
  });

  it('reads runs of rules, as their gate would', async () => {
    const { check, make } = shop();
    const rules = (tool: string) =>
      StateMachineGate.fromOrder({ pay: { after: { tool, within: '2m' } } }, { id: 'checkout' });
    for (const tool of ['approve', 'confirm']) {
      const gate = rules(tool).compile();
      const { state, context } = gate.next(gate.start, tool).position;
      await make(tool, state, context);
    }
    expect(await check(rules('approve'))).toMatchObject({
      runs: 2,
      unreadable: 0,
      faults: [],
    });
  });

  it('says where migrate takes each state, also where that stays the same', async () => {
    const { check, make } = shop();
    await make('one', 'payment', { slot: 1 });
    await make('two', 'payment', stamped(1));
    await make('three', 'payment', stamped(1));
    await make('same', 'empty', stamped(1));
    await make('own', 'paying', stamped(2));
    const { migrated, unreadable } = await check(nextGate({ version: 2, migrate: renamed }));
    expect(unreadable).toBe(0);
    expect(migrated).toEqual([
      { from: 'payment', version: 1, to: 'paying', runs: 2 },
      expect.objectContaining({ runs: 1 }),
      expect.objectContaining({ runs: 1 }),
    ]);
    expect(migrated).toContainEqual({ from: 'payment', version: 0, to: 'paying', runs: 1 });
    expect(migrated).toContainEqual({ from: 'empty', version: 1, to: 'empty', runs: 1 });
  });

  it('tells one state from another by what migrate makes of its data', async () => {
    const { check, make } = shop();
    await make('paid', 'payment', { paid: true });
    await make('open', 'payment', { paid: false });
    const byData: Migrate = ({ context }) => ({
      state: (context as { paid?: boolean } | undefined)?.paid ? 'confirmed' : 'paying',
    });
    const { migrated } = await check(nextGate({ migrate: byData }));
    expect(migrated.map(({ to }) => to).sort()).toEqual(['confirmed', 'paying']);
  });

  it('names the held and running steps of a tool that is bound no more, and no others', async () => {
    const { check, make, leaveClaim, clock } = shop();
    for (const run of ['held', 'later', 'again', 'bound', 'send']) await make(run, 'has_items');
    await leaveClaim('held');
    await leaveClaim('again', { uncertain: 'retry' });
    await leaveClaim('bound', { tool: 'cart.checkout' });
    await leaveClaim('send', { tool: 'send PAY', digest: 'outside-1' });
    clock.advance(LEASE);
    await leaveClaim('later');
    expect(await check()).toMatchObject({
      runs: 5,
      unreadable: 0,
      unbound: [{ tool: 'cart.pay', held: 1, running: 1, run: expect.any(String) }],
    });
    expect((await check(checkoutGate())).unbound).toEqual([]);
  });

  it('sees a held step of a run that has ended', async () => {
    const { check, make, leaveClaim, clock } = shop();
    await make('over', 'confirmed', undefined, true);
    await leaveClaim('over', { tool: 'cart.refund' });
    clock.advance(LEASE);
    expect(await check()).toMatchObject({
      runs: 1,
      states: [{ state: 'confirmed', runs: 1 }],
      unbound: [{ tool: 'cart.refund', held: 1, running: 0, run: runDigest('over') }],
    });
  });

  it('sees no run of another workflow', async () => {
    const { check, store } = shop();
    await store.open('one', {}, HOUR);
    await step(store, 'one', { workflow: 'refund' }, { snapshot: { state: 'gone' } });
    expect(await check()).toEqual(NOTHING);
  });

  it('counts each run once, page by page, also while runs move', async () => {
    const { check, make, store, clock } = shop();
    for (let index = 0; index < 450; index++) {
      await make(`run-${index}`, index % 3 === 0 ? 'payment' : 'empty');
      clock.advance(1);
    }
    store.take();
    expect(await check(nextGate({ migrate: renamed }))).toMatchObject({
      runs: 450,
      migrated: [{ from: 'payment', to: 'paying', runs: 150 }],
    });
    expect(store.take()).toEqual(['stuck', 'stuck', 'stuck', 'held']);
    // After each page, runs that were on it move, and so does one that is on no page yet.
    const { stuck } = store;
    let pages = 0;
    const moving: AtomicStateStore['stuck'] = async (query) => {
      const page = (await stuck?.(query)) as RunsPage;
      clock.advance(1);
      if (++pages > 20) return page;
      for (const { run } of page.runs.slice(0, 100)) await step(store, run);
      if (pages === 1) await step(store, 'run-449');
      return page;
    };
    Object.assign(store, { stuck: moving });
    const { runs, states } = await check();
    expect(runs).toBe(449);
    expect(states.reduce((sum, each) => sum + each.runs, 0)).toBe(449);
    // It does not run after those that move for ever.
    expect(pages).toBeLessThan(6);
  });

  it('keeps at most 1,000 rows of a table, and says that there were more', async () => {
    const { check, make } = shop();
    for (let index = 0; index < 1_010; index++) await make(`run-${index}`, `gone-${index}`);
    const { runs, states, unreadable, faults, isCut } = await check();
    expect({ runs, unreadable, isCut }).toEqual({ runs: 1_010, unreadable: 1_010, isCut: true });
    expect([states.length, faults.length]).toEqual([1_000, 1_000]);
  });

  it('writes nothing, keeps no run alive, and tells no event', async () => {
    const { check, make, leaveClaim, clock, store, told } = shop();
    await make('idle', 'payment');
    await make('pinned', 'payment');
    await leaveClaim('pinned');
    clock.advance(HOUR - 1);
    const kept = async () =>
      JSON.stringify([await store.held?.(ASKED), await store.stuck?.(ASKED)]);
    const before = await kept();
    store.take();
    for (const gate of [nextGate(), nextGate({ version: 2, migrate: renamed })]) await check(gate);
    expect(new Set(store.take())).toEqual(new Set(['stuck', 'held']));
    expect(await kept()).toBe(before);
    expect(told).toEqual([]);
    clock.advance(1);
    // It has lived for its hour: looking at it has not counted as use.
    expect(await store.read('idle', HOUR)).toBeUndefined();
  });

  it('never gives the key of a run', async () => {
    const { check, make, leaveClaim } = shop();
    const key = 'a-session-id-is-a-credential';
    await make(key, 'payment', { order: 7 });
    await leaveClaim(key);
    for (const gate of [nextGate(), nextGate({ migrate: renamed })])
      expect(JSON.stringify(await check(gate))).not.toContain(key);
  });

  it('rejects with ERR_INTERLOCK_STORE where the store cannot list its runs', async () => {
    const runs = runsOf(nextGate(), { store: new JsonStateStore(), onWarning() {} });
    await expect(runs.check()).rejects.toThrow(InterlockError);
    await expect(runs.check()).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_STORE',
      message: expect.stringContaining('check(): this store keeps no index of its runs'),
    });
  });

  it('rejects where the store cannot be asked', async () => {
    const { check, store } = shop();
    store.fail('stuck');
    await expect(check()).rejects.toMatchObject({ name: 'StoreUnavailable' });
  });
});

const ASKED = { workflow: 'checkout', limit: 100, forMs: 0 };

describe('check() on SQLite', () => {
  it('says the same, and leaves the file as it is', async () => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const { check, make, leaveClaim, clock } = shop(({ now }) =>
      sqliteStore({ database: file.connect(), now }),
    );
    for (let index = 0; index < 205; index++) await make(`run-${index}`, 'payment', stamped(1));
    await make('new', 'empty', stamped(3));
    await leaveClaim('run-0');
    clock.advance(LEASE);
    const reader = file.connect();
    const all = () =>
      ['workflow_documents', 'workflow_index'].map((name) =>
        reader.prepare(`SELECT * FROM ${name} ORDER BY key`).all(),
      );
    // The log is empty from here on, so that a write would be in it.
    reader.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    const before = all();
    expect(await check(nextGate({ version: 2, migrate: renamed }))).toEqual({
      runs: 206,
      states: [
        { state: 'payment', runs: 205 },
        { state: 'empty', runs: 1 },
      ],
      unreadable: 1,
      faults: [
        {
          kind: 'newer-version',
          state: 'empty',
          version: 3,
          runs: 1,
          run: runDigest('new'),
          reason: 'a run of "checkout" in "empty" was saved by version 3, and this one is 2',
        },
      ],
      migrated: [{ from: 'payment', version: 1, to: 'paying', runs: 205 }],
      unbound: [{ tool: 'cart.pay', held: 1, running: 0, run: runDigest('run-0') }],
      isCut: false,
      compared: NOTHING.compared,
    });
    expect(all()).toEqual(before);
    expect(readFileSync(`${file.path}-wal`)).toHaveLength(0);
  });
});
