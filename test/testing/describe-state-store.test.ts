import * as nodeTest from 'node:test';
import { describe, expect, it } from 'vitest';
import {
  type DescribeStateStoreOptions,
  describeStateStore,
  type StoreScope,
  type StoreUnderTest,
} from '../../packages/testing/src/index.ts';
import { memoryStore } from '../../src/stores/memory.ts';
import type { FsmStateStore } from '../../src/stores/store.ts';
import { JsonStateStore } from '../helpers/json-state-store.ts';
import { ManualTime } from '../helpers/manual-clock.ts';
import { DRIVER_FAULTS, makeDocumentStore } from './faulty-documents.ts';
import { FAULTS, type Fault, type WholeStore, withoutClock } from './faulty-stores.ts';

describe('the contract suite', () => {
  it('lets a sound store pass, in each scope', async () => {
    for (const scope of ['process', 'restarts', 'processes'] as const) {
      expect(await brokenPromises(() => ({}), scope)).toEqual([]);
    }
  });

  it('lets a store pass without a clock and without the optional operations', async () => {
    const none = { runs: undefined, append: undefined, held: undefined, stuck: undefined };
    const rest = { count: undefined, list: undefined, anonymize: undefined, purge: undefined };
    const switches = { readSwitch: undefined, swapSwitch: undefined };
    const plain: Fault = (store) => ({
      ...withoutClock(store),
      ...({ ...none, ...rest, ...switches } as object),
    });
    expect(await brokenPromises(plain, 'processes')).toEqual([]);
  });

  it('lets a store pass that lists its runs and does not count them', async () => {
    const uncounted: Fault = () => ({ count: undefined as never });
    expect(await brokenPromises(uncounted, 'processes')).toEqual([]);
  });

  it('takes a store of load and save as it is', async () => {
    for (const scope of ['process', 'restarts'] as const) {
      const promises = collectOf(scope, () => new JsonStateStore());
      expect(await brokenOf(promises)).toEqual([]);
    }
  });

  it('catches a store of load and save that loses a part of its snapshots', async () => {
    const texts = new Map<string, string>();
    const forgetful: FsmStateStore = {
      load: async (key) => JSON.parse(texts.get(key) ?? 'null') ?? undefined,
      save: async (key, { state, updatedAt }) =>
        void texts.set(key, JSON.stringify({ state, updatedAt })),
    };
    const broken = await brokenOf(collectOf('process', () => forgetful));
    expect(broken.length).toBeGreaterThan(50);
  });

  it('says which scope a store of load and save has', async () => {
    const [first] = collectOf('processes', () => new JsonStateStore());
    await expect(first?.run()).rejects.toThrow(/within one process only: say scope: 'restarts'/);
  });

  it('has more promises for a store that several processes share', () => {
    const [one, restarted, shared] = (['process', 'restarts', 'processes'] as const).map(
      (scope) => collect(() => ({}), scope).length,
    );
    expect(one).toBeLessThan(restarted ?? 0);
    expect(restarted).toBeLessThan(shared ?? 0);
  });

  it('names what is missing where a shared store cannot be reopened', async () => {
    const promises = collect(() => ({}), 'processes', { reopens: false });
    const failures = await Promise.all(
      promises.map(({ run }) => run().catch((error) => String(error))),
    );
    expect(failures.join()).toContain(
      "makeStore() gives no reopen(): add it, or say scope: 'process'",
    );
  });

  it('closes each store, even where a promise is broken', async () => {
    let open = 0;
    const made = () => {
      open += 1;
    };
    const closed = () => {
      open -= 1;
    };
    const broken = await brokenPromises(
      () => ({ claim: async () => ({ status: 'unknown' }) }),
      'process',
      {
        made,
        closed,
      },
    );
    expect(broken.length).toBeGreaterThan(0);
    expect(open).toBe(0);
  });

  it('says which option is missing, wrong or unknown', () => {
    const describeWith = (options: object) => () =>
      describeStateStore(
        'store',
        async () => ({ store: memoryStore(), close: async () => {} }),
        options as never,
      );
    expect(describeWith({ describe })).toThrow(
      /describeStateStore\(\): it: expected a function, got undefined/,
    );
    expect(describeWith({ describe, it, scope: 'cluster' })).toThrow(
      /scope: expected one of "processes"/,
    );
    expect(describeWith({ describe, it, timeout: 5 })).toThrow(/did you mean "timeoutMs"\?/);
  });

  it('fits the test runner of Node as well as Vitest', () => {
    const runners: Pick<DescribeStateStoreOptions, 'describe' | 'it'>[] = [
      { describe, it },
      nodeTest,
    ];
    expect(runners).toHaveLength(2);
  });

  const canBreak = new Set<string>();

  async function expectCaught(promises: readonly Collected[]): Promise<void> {
    const fresh = promises.filter(({ name }) => !canBreak.has(name));
    const broken = await brokenOf(fresh);
    for (const promise of broken) canBreak.add(promise);
    // A promise that an earlier store has broken is asked only where no other one is broken.
    const others = promises.filter((each) => !fresh.includes(each));
    if (broken.length === 0) expect(await isAnyBroken(others)).toBe(true);
  }

  it.each(Object.entries(FAULTS))('catches a store that %s', (_name, fault) =>
    expectCaught(collect(fault, 'processes')),
  );

  it('lets a store pass whose driver is sound', async () => {
    expect(await brokenOf(collectFrom(async () => makeDocumentStore(() => ({}))))).toEqual([]);
  });

  it.each(Object.entries(DRIVER_FAULTS))('catches a store whose driver %s', (_name, fault) =>
    expectCaught(collectFrom(async () => makeDocumentStore(fault))),
  );

  it.each([
    'removes whatever the revision is',
    'removes a moment after it compared',
    'keeps the entries of a loser',
    'takes the entries of a winner away where it lost',
  ])('catches a store whose driver %s, though it is not given the driver', async (name) => {
    const fault = DRIVER_FAULTS[name];
    const made = async () => ({
      ...makeDocumentStore(fault ?? (() => ({}))),
      documents: undefined,
    });
    const races = collectFrom(made).filter(({ name }) =>
      /one side opens while|claim at once/.test(name),
    );
    expect(await brokenOf(races)).not.toEqual([]);
  });

  it('has no promise that none of these stores breaks', () => {
    const promises = collect(() => ({}), 'processes').map(({ name }) => name);
    expect(promises.filter((promise) => !canBreak.has(promise))).toEqual([]);
  });
});

interface Collected {
  readonly name: string;
  readonly run: () => Promise<void>;
}

interface Watch {
  readonly made?: () => void;
  readonly closed?: () => void;
  readonly reopens?: boolean;
}

/** The promises of the suite for a memory store with the fault; the test runs them itself. */
function collect(
  fault: Fault,
  scope: StoreScope,
  { made, closed, reopens = true }: Watch = {},
): Collected[] {
  const makeStore = async () => {
    const time = new ManualTime();
    const sound = memoryStore({ now: time.now, chainTrail: true }) as WholeStore;
    const view = (offMs = 0) => {
      return { ...operationsOf(sound), ...fault(sound, { offMs, advance: time.advance }) };
    };
    made?.();
    return {
      store: view(),
      advance: time.advance,
      reopen: reopens ? async () => view() : undefined,
      reopenWithClock: reopens ? async (offMs: number) => view(offMs) : undefined,
      close: async () => closed?.(),
    };
  };
  return collectFrom(makeStore, scope);
}

/** The promises of the suite. */
function collectFrom(
  makeStore: () => Promise<StoreUnderTest>,
  scope: StoreScope = 'processes',
  chainTrail = true,
): Collected[] {
  const collected: Collected[] = [];
  describeStateStore('store', makeStore, {
    describe: (_name, body) => body(),
    it: (name, run) => collected.push({ name, run }),
    scope,
    chainTrail,
  });
  return collected;
}

/** The promises of the suite for a store of `load` and `save`. */
function collectOf(scope: StoreScope, make: () => FsmStateStore): Collected[] {
  const makeStore = async () => {
    const store = make();
    return { store, reopen: async () => ({ ...operationsOfPlain(store) }), close: async () => {} };
  };
  return collectFrom(makeStore, scope, false);
}

function operationsOfPlain(store: FsmStateStore): FsmStateStore {
  return { load: (key) => store.load(key), save: (key, snapshot) => store.save(key, snapshot) };
}

/** The names of the promises that a store with the fault does not keep. */
function brokenPromises(fault: Fault, scope: StoreScope, watch?: Watch): Promise<string[]> {
  return brokenOf(collect(fault, scope, watch));
}

async function brokenOf(promises: readonly Collected[]): Promise<string[]> {
  const broken: string[] = [];
  await Promise.all(promises.map(({ name, run }) => run().catch(() => broken.push(name))));
  return broken;
}

async function isAnyBroken(promises: readonly Collected[]): Promise<boolean> {
  for (let from = 0; from < promises.length; from += 10)
    if ((await brokenOf(promises.slice(from, from + 10))).length > 0) return true;
  return false;
}

function operationsOf(store: WholeStore): WholeStore {
  return {
    contract: store.contract,
    open: (...args) => store.open(...args),
    read: (...args) => store.read(...args),
    claim: (...args) => store.claim(...args),
    commit: (...args) => store.commit(...args),
    record: (...args) => store.record(...args),
    freeze: (...args) => store.freeze(...args),
    renew: (...args) => store.renew(...args),
    release: (...args) => store.release(...args),
    end: (...args) => store.end(...args),
    delete: (...args) => store.delete(...args),
    history: (...args) => store.history(...args),
    append: (...args) => store.append(...args),
    runs: (query) => store.runs(query),
    held: (query) => store.held(query),
    ...(store.unsettled && { unsettled: store.unsettled.bind(store) }),
    stuck: (query) => store.stuck(query),
    count: (query) => store.count(query),
    list: (query) => store.list(query),
    anonymize: (run) => store.anonymize(run),
    purge: (query) => store.purge(query),
    readSwitch: (workflow) => store.readSwitch(workflow),
    swapSwitch: (...args) => store.swapSwitch(...args),
  };
}
