import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { claimed, claimOf, HOUR, step } from '../packages/testing/src/fixtures.ts';
import {
  InterlockError,
  memoryStore,
  principalKey,
  runDigest,
  StateMachineGate,
  sessionKey,
} from '../src/index.ts';
import { type PageOptions, type RunViews, runsOf } from '../src/runs/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { JsonStateStore } from './helpers/json-state-store.ts';
import { orderGate } from './helpers/order-app.ts';
import { begins, passUntil, scene } from './helpers/scene.ts';

const LEASE = 8_000;

/** A store whose time stands still until the test moves it, and the checkout's runs in it. */
function shop() {
  let time = 1_700_000_000_000;
  const store = memoryStore({ now: () => time });
  const errors: unknown[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  return {
    store,
    errors,
    runs: runsOf(checkoutGate(), { store, onError }),
    pass(ms: number): void {
      time += ms;
    },
    /** A run that comes to a state by one step. */
    async makeRun(run: string, state: string, { ended = false, workflow = 'checkout' } = {}) {
      await store.open(run, { principal: 'ann' }, HOUR);
      await step(store, run, { workflow }, { snapshot: { state }, ended });
    },
    /** The same, with a step that never ends. */
    async leaveClaim(run: string, uncertain: 'hold' | 'retry' = 'hold') {
      await claimed(
        store,
        claimOf(run, { create: {}, leaseMs: LEASE, step: { uncertain, tool: 'cart.pay' } }),
      );
    },
  };
}

const keysOf = ({ runs }: RunViews): string[] => runs.map(({ run }) => run);

/** All parts of a list, in order. */
async function all(list: (page: PageOptions) => Promise<RunViews>, limit: number) {
  const parts: string[][] = [];
  let after: string | undefined;
  do {
    const part = await list({ limit, after });
    parts.push(keysOf(part));
    after = part.next;
  } while (after !== undefined);
  return parts;
}

describe('held()', () => {
  it('gives each held run, with its step and how long it has been held', async () => {
    const { runs, leaveClaim, makeRun, pass } = shop();
    await makeRun('order-1', 'payment');
    pass(1_000);
    await leaveClaim('order-1');
    expect(await runs.held()).toEqual({ runs: [] });
    pass(LEASE + 60_000);
    expect(await runs.held()).toEqual({
      runs: [
        {
          run: 'order-1',
          state: 'payment',
          snapshot: expect.objectContaining({ state: 'payment', version: 1 }),
          status: 'held',
          ended: false,
          available: [],
          claim: expect.objectContaining({ tool: 'cart.pay', live: false }),
          heldForMs: 60_000,
          unmovedForMs: 1_000 + LEASE + 60_000,
        },
      ],
    });
    const [held] = (await runs.held()).runs;
    expect(await runs.read('order-1')).toEqual(held);
  });

  it('gives no running step, none that may be tried again, and no resolved one', async () => {
    const { runs, leaveClaim, pass } = shop();
    await leaveClaim('tried-again', 'retry');
    await leaveClaim('resolved');
    pass(LEASE);
    await leaveClaim('running');
    expect(keysOf(await runs.held())).toEqual(['resolved']);
    await runs.resolve('resolved', 'failed');
    expect(await runs.held()).toEqual({ runs: [] });
  });

  it('gives them in parts, the longest held first', async () => {
    const { runs, leaveClaim, pass } = shop();
    const keys = Array.from({ length: 5 }, (_, index) => `order-${9 - index}`);
    for (const key of keys) {
      await leaveClaim(key);
      pass(10);
    }
    pass(LEASE);
    expect(await all((page) => runs.held(page), 2)).toEqual([
      ['order-9', 'order-8'],
      ['order-7', 'order-6'],
      ['order-5'],
    ]);
  });

  it('tells of each of them once', async () => {
    const { runs, errors, leaveClaim, pass } = shop();
    const run = randomUUID();
    await leaveClaim(run);
    pass(LEASE);
    for (let times = 0; times < 3; times++) await runs.held();
    expect(errors).toEqual([
      expect.objectContaining({
        run,
        message: expect.stringContaining(
          `in the run with the digest ${runDigest(run)} until a person resolves it`,
        ),
      }),
    ]);
  });

  it('keeps no session alive, and says where one has ended', async () => {
    const { runs, leaveClaim, pass } = shop();
    await leaveClaim('order-1');
    pass(HOUR - 1);
    const [held] = (await runs.held()).runs;
    expect(held).toMatchObject({ run: 'order-1' });
    expect(held).not.toHaveProperty('sessionEnded');
    pass(1);
    expect((await runs.held()).runs).toMatchObject([{ run: 'order-1', sessionEnded: true }]);
  });
});

describe('stuck()', () => {
  it('gives the open runs that have not moved for so long', async () => {
    const { runs, makeRun, pass } = shop();
    await makeRun('old', 'payment');
    await makeRun('paid', 'confirmed', { ended: true });
    await makeRun('another', 'payment', { workflow: 'refund' });
    pass(60_000);
    await makeRun('new', 'payment');
    const { runs: found } = await runs.stuck({ forMs: 60_000 });
    expect(found).toMatchObject([{ run: 'old', status: 'idle', unmovedForMs: 60_000 }]);
    expect(keysOf(await runs.stuck({ forMs: 0 }))).toEqual(['old', 'new']);
    expect(await all((page) => runs.stuck({ forMs: 0, ...page }), 1)).toEqual([['old'], ['new']]);
  });

  it('looks in one state where it is told to', async () => {
    const { runs, makeRun } = shop();
    await makeRun('a', 'payment');
    await makeRun('b', 'has_items');
    expect(keysOf(await runs.stuck({ state: 'has_items', forMs: 0 }))).toEqual(['b']);
    expect(keysOf(await runs.stuck({ state: 'empty', forMs: 0 }))).toEqual([]);
    expect(keysOf(await runs.stuck({ state: { any: ['empty', 'has_items'] }, forMs: 0 }))).toEqual([
      'b',
    ]);
  });

  it("finds a statechart's runs by a path, by a tag and by what is stored", async () => {
    const store = memoryStore();
    const runs = runsOf(orderGate(), { store });
    for (const [run, state] of [
      ['in-cart', 'cart'],
      ['due', 'placed.(billing.due|packing.waiting)'],
      ['packed', 'placed.(billing.due|packing.packed)'],
      ['settled', 'placed.(billing.settled|packing.waiting)'],
    ] as const)
      await step(store, run, { workflow: 'order', create: {} }, { snapshot: { state } });
    const found = async (state: Parameters<typeof runs.stuck>[0]['state']) =>
      keysOf(await runs.stuck({ state, forMs: 0 })).sort();
    expect(await found('placed')).toEqual(['due', 'packed', 'settled']);
    expect(await found('placed.packing.waiting')).toEqual(['due', 'settled']);
    expect(await found({ tag: 'money' })).toEqual(['due', 'packed']);
    expect(await found({ all: ['placed', { not: { tag: 'money' } }] })).not.toContain('due');
    expect(await found('placed.(billing.due|packing.packed)')).toEqual(['packed']);
    expect(await found('paused')).toEqual([]);
  });

  it('finds runs of an older deployment by the state that the gate migrates them to', async () => {
    const { store, makeRun } = shop();
    await makeRun('old', 'paying');
    await makeRun('other', 'basket');
    const states = { basket: { on: { GO: 'payment' } }, payment: {} };
    const gate = new StateMachineGate(
      { id: 'checkout', initial: 'basket', states },
      { migrate: ({ state }) => ({ state: state === 'paying' ? 'payment' : state }) },
    );
    const found = await runsOf(gate, { store }).stuck({ state: 'payment', forMs: 0 });
    expect(found.runs).toMatchObject([{ run: 'old', state: 'payment' }]);
  });

  it('does not let a run that the gate does not understand hide the others', async () => {
    const { runs, makeRun, pass } = shop();
    await makeRun('strange', 'no such state');
    pass(1);
    await makeRun('known', 'payment');
    const [strange, known] = (await runs.stuck({ forMs: 0 })).runs;
    expect(strange).toMatchObject({
      run: 'strange',
      state: 'no such state',
      available: [],
      fault: expect.stringContaining('"no such state"'),
    });
    expect(known).not.toHaveProperty('fault');
    await expect(runs.read('strange')).rejects.toThrow('no such state');
  });

  it.each([
    ['paymnt', '"paymnt", which is no state of workflow "checkout", did you mean "payment"?'],
    [{ tag: 'money' }, '"money", which is no tag of workflow "checkout"'],
  ])('names the right states for a wrong one: %j', async (state, message) => {
    const { runs } = shop();
    const wrong = runs.stuck({ state: state as never, forMs: 0 });
    await expect(wrong).rejects.toThrow(message);
    await expect(wrong).rejects.toMatchObject({ code: 'ERR_INTERLOCK_CONFIG' });
  });
});

describe('count()', () => {
  it('counts what has not ended by state, what is held and what runs', async () => {
    const { runs, makeRun, leaveClaim, pass } = shop();
    await makeRun('a', 'payment');
    await makeRun('paid', 'confirmed', { ended: true });
    await leaveClaim('held');
    pass(60_000);
    await makeRun('b', 'payment');
    await leaveClaim('b');
    expect(await runs.count()).toEqual({
      runs: 3,
      states: [
        { state: 'payment', runs: 2 },
        { state: 'empty', runs: 1 },
      ],
      held: 1,
      running: 1,
      unsettled: 0,
      unreadable: 0,
      oldestClaimMs: 60_000,
    });
    expect(await runs.count({ forMs: 60_000 })).toMatchObject({
      states: [
        { state: 'payment', runs: 2, stuck: 1 },
        { state: 'empty', runs: 1, stuck: 1 },
      ],
      stuck: 2,
    });
  });

  it('counts nothing where there is nothing', async () => {
    const { runs } = shop();
    expect(await runs.count({ forMs: 1 })).toEqual({
      runs: 0,
      states: [],
      stuck: 0,
      held: 0,
      running: 0,
      unsettled: 0,
      unreadable: 0,
    });
  });
});

describe('a person is erased', () => {
  it('by a list of what is theirs, and by deleting each', async () => {
    const app = await scene({
      session: { key: [principalKey(), sessionKey()], principal: (req) => user(req.headers) },
    });
    const ann = await app.client('ann');
    const bob = await app.client('bob');
    for (const client of [ann, bob]) await client.calls('cart.add_item');
    const { runs } = await app.runs.list({ principal: 'ann' });
    expect([...runs].sort()).toEqual([ann.run, principalKey().runKey('ann')].sort());
    for (const run of runs) await app.runs.delete(run);
    expect(await app.runs.list({ principal: 'ann' })).toEqual({ runs: [] });
    for (const run of runs) {
      expect(await app.runs.read(run)).toBeUndefined();
      expect(await app.runs.history(run)).toEqual([]);
    }
    await app.run(principalKey().runKey('bob')).isIn('has_items');
  });

  it('by issuer and subject too', async () => {
    const { store, runs } = shop();
    await store.open('theirs', { principal: '["https://id.example","7"]' }, HOUR);
    const principal = { issuer: 'https://id.example', subject: '7' };
    expect(await runs.list({ principal, limit: 1 })).toEqual({ runs: ['theirs'] });
  });
});

const user = (headers: Record<string, unknown>): string => String(headers['x-user']);

describe('delete()', () => {
  it('ends a session: its client is answered 404, as after a DELETE of its own', async () => {
    const app = await scene();
    const client = await app.client();
    await client.calls('cart.add_item');
    expect(await app.runs.delete(client.run)).toEqual({ deleted: true });
    await expect(client.raw.tools()).rejects.toThrow('Session not found');
    expect(await app.runs.read(client.run)).toBeUndefined();
    const again = await app.runs.delete(client.run);
    expect(again).toEqual({ deleted: false, reason: 'unknown-run' });
  });

  it('leaves a run alone whose step must not be repeated: it is running or held', async () => {
    const app = await scene();
    const client = await app.client();
    const step = await begins(app, 'cart.add_item', () => client.raw.call('cart.add_item'));
    const pinned = { deleted: false, reason: 'pinned' };
    expect(await app.runs.delete(client.run)).toEqual(pinned);
    expect(await runsOf(checkoutGate(), { store: app.data }).delete(client.run)).toEqual(pinned);
    step.finish();
    expect(await step.answer).toMatchObject({ isError: false });
    expect(await app.runs.delete(client.run)).toEqual({ deleted: true });
  });

  it("begins a principal's run anew with the next call, and has its clients told", async () => {
    const app = await scene({
      session: { key: [principalKey(), sessionKey()], principal: () => 'ann' },
    });
    const client = await app.client();
    await client.raw.streaming;
    await client.calls('cart.add_item');
    const { told } = client;
    const run = principalKey().runKey('ann');
    await app.runs.delete(run);
    await client.isTold(told + 1);
    await client.sees(['cart.add_item', 'cart.view']);
    await client.calls('cart.add_item');
    expect(await app.runs.history(run)).toMatchObject([{ seq: 1, from: 'empty' }]);
  });

  it('saves nothing of a running `retry` step, and its client is told so', async () => {
    const app = await scene({
      workflow: checkoutGate('retry'),
      session: { key: [principalKey(), sessionKey()], principal: () => 'ann' },
    });
    const client = await app.client();
    const step = await begins(app, 'cart.add_item', () => client.raw.call('cart.add_item'));
    const run = principalKey().runKey('ann');
    await app.runs.delete(run);
    step.finish();
    expect((await step.answer).text).toContain(
      'cart.add_item ran, but its outcome could not be recorded',
    );
    expect(await app.runs.read(run)).toBeUndefined();
  });

  it('ends a session at its next step, where another process deleted the run', async () => {
    const app = await scene();
    const client = await app.client();
    await client.calls('cart.add_item');
    await runsOf(checkoutGate(), { store: app.data }).delete(client.run);
    await expect(client.raw.call('cart.checkout')).rejects.toThrow('Session not found');
  });
});

describe('a store that keeps no index', () => {
  const runs = runsOf(checkoutGate(), { store: new JsonStateStore(), onWarning() {} });
  const listings: readonly [string, () => Promise<unknown>][] = [
    ['held()', () => runs.held()],
    ['stuck()', () => runs.stuck({ forMs: 0 })],
    ['count()', () => runs.count()],
    ['list()', () => runs.list({ principal: 'ann' })],
  ];
  it.each(listings)('has no %s, and the error names the stores that have', async (what, list) => {
    await expect(list()).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_STORE',
      message: expect.stringMatching(
        new RegExp(`^${what.replace('()', '\\(\\)')}: .*redisStore\\(\\).*postgresStore\\(\\)`),
      ),
    });
  });
});

describe('what is wrong with a list', () => {
  const { runs } = shop();
  const wrong: readonly [string, () => Promise<unknown>, string][] = [
    ['no limit', () => runs.held({ limit: 0 }), 'limit'],
    ['too much', () => runs.held({ limit: 1_001 }), 'limit'],
    ['an unknown key', () => runs.held({ limt: 1 } as PageOptions), 'did you mean "limit"?'],
    ['no time', () => runs.stuck({} as never), 'forMs'],
    ['a time before', () => runs.stuck({ forMs: -1 }), 'forMs'],
    ['a state that is none', () => runs.stuck({ forMs: 1, state: 7 as never }), 'state'],
    ['a time to count by', () => runs.count({ forMs: '1' as never }), 'forMs'],
    ['no principal', () => runs.list({ principal: '' }), 'principal'],
    ['a place', () => runs.list({ principal: 'ann', after: 1 as never }), 'after'],
  ];
  it.each(wrong)('is said: %s', async (_, list, message) => {
    await expect(list()).rejects.toThrow(InterlockError);
    await expect(list()).rejects.toThrow(message);
  });
});

it('gives lists the same deadline as all other calls of the store', async () => {
  const app = await scene();
  for (const operation of ['held', 'stuck', 'count', 'list'] as const) {
    app.store.fail(operation, 1, 'hang');
    const asked: Promise<unknown> = {
      held: () => app.runs.held(),
      stuck: () => app.runs.stuck({ forMs: 0 }),
      count: () => app.runs.count(),
      list: () => app.runs.list({ principal: 'ann' }),
    }[operation]();
    await expect(passUntil(app.clock, asked)).rejects.toThrow(
      `the store did not answer ${operation} within 2000 ms`,
    );
  }
});
