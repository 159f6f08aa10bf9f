import express5, { type RequestHandler } from 'express';
import express4 from 'express4';
import { describe, expect, it } from 'vitest';
import { claimed, claimOf, HOUR, step } from '../packages/testing/src/fixtures.ts';
import { localBus, memoryStore, type NotificationBus, sessionStore } from '../src/index.ts';
import {
  type HealthHandler,
  type HealthReport,
  type Runs,
  runsOf,
  type WorkflowHealthOptions,
  workflowHealth,
} from '../src/runs/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { FaultyStore } from './helpers/faulty-store.ts';
import { JsonStateStore } from './helpers/json-state-store.ts';
import { ManualClock } from './helpers/manual-clock.ts';
import { send } from './helpers/raw.ts';
import { settle } from './helpers/scene.ts';
import { serve } from './helpers/serve.ts';

const LEASE = 8_000;
const STUCK_AFTER = 60_000;

type Asks = (path?: string, options?: Parameters<typeof send>[1]) => ReturnType<typeof send>;

/** An app that serves its health beside three runs: one is held, one is stuck, one has ended. */
async function shop(
  options: Partial<WorkflowHealthOptions> = {},
  { bus, express = express5 }: { bus?: NotificationBus; express?: typeof express5 } = {},
) {
  const clock = new ManualClock();
  const data = memoryStore({ now: clock.now });
  const store = new FaultyStore(data);
  const errors: unknown[] = [];
  const onError = (error: unknown): void => void errors.push(error);
  const sessions = sessionStore({ store, clock, onError, bus });
  const runs = runsOf(checkoutGate(), { sessions }) as Runs;
  const make = (run: string, state: string, ended = false) =>
    step(data, run, { create: {} }, { snapshot: { state, context: { card: '4111' } }, ended });
  await make('key-of-stuck', 'payment');
  await make('key-of-ended', 'confirmed', true);
  clock.advance(STUCK_AFTER);
  await make('key-of-held', 'payment');
  await claimed(data, claimOf('key-of-held', { leaseMs: LEASE }));
  clock.advance(LEASE + 1_000);
  const health = workflowHealth({ runs: [runs], stuckAfterMs: STUCK_AFTER, ...options });
  const app = express();
  app.get('/live', health.live);
  app.all('/health', health);
  const served = await serve(app);
  const ask: Asks = (path = '/health', request = { method: 'GET' }) =>
    send(new URL(path, served.url), request);
  return { clock, data, store, errors, sessions, runs, health, ask };
}

const reportIn = ({ text }: { readonly text: string }): HealthReport => JSON.parse(text);

const COUNTED = {
  workflow: 'checkout',
  store: 'ok',
  index: 'ok',
  runs: 2,
  states: [{ state: 'payment', runs: 2, stuck: 1 }],
  stuck: 1,
  unreadable: 0,
  held: 1,
  running: 0,
  unsettled: 0,
  oldestClaimMs: LEASE + 1_000,
};

describe('workflowHealth()', () => {
  it.each([
    ['4', express4 as unknown as typeof express5],
    ['5', express5],
  ])('counts the runs that are under way, in Express %s', async (_, express) => {
    const { ask } = await shop({}, { express });
    const answer = await ask();
    expect(answer.status).toBe(200);
    expect(answer.headers).toMatchObject({
      'content-type': 'application/json; charset=utf-8',
      'cache-control': 'no-store',
    });
    expect(reportIn(answer)).toEqual({ status: 'ok', failing: [], workflows: [COUNTED] });
  });

  it('shows keys only where the app allows it, and never data', async () => {
    const { ask, errors } = await shop({
      authorize: async ({ headers }) => {
        if (headers.authorization === 'throw') throw new Error('no such user');
        return headers.authorization === 'operator' || (headers.authorization as never);
      },
    });
    for (const authorization of ['', 'throw', 'truthy']) {
      const { status, text } = await ask('/health', { method: 'GET', headers: { authorization } });
      expect(status).toBe(200);
      expect(text).not.toContain('key-of');
    }
    expect(errors).toContainEqual(new Error('no such user'));
    const shown = await ask('/health', {
      method: 'GET',
      headers: { authorization: 'operator' },
    });
    expect(reportIn(shown).workflows).toEqual([
      {
        ...COUNTED,
        heldRuns: [
          {
            run: 'key-of-held',
            state: 'payment',
            status: 'held',
            heldForMs: 1_000,
            unmovedForMs: LEASE + 1_000,
            tool: 'cart.pay',
            idempotencyKey: expect.any(String),
          },
        ],
        stuckRuns: [
          {
            run: 'key-of-stuck',
            state: 'payment',
            status: 'idle',
            unmovedForMs: STUCK_AFTER + LEASE + 1_000,
          },
        ],
      },
    ]);
    expect(shown.text).not.toContain('4111');
  });

  it('tells of the held runs that it meets, once', async () => {
    const { ask, clock, errors } = await shop();
    for (let times = 0; times < 3; times++) {
      await ask();
      clock.advance(1_000);
    }
    expect(errors).toEqual([expect.objectContaining({ run: 'key-of-held' })]);
  });

  it('answers 503 where a store grants no claims though it counts, without the reason', async () => {
    const { ask, clock, errors, store } = await shop();
    store.fail('claim');
    const answer = await ask();
    expect(answer.status).toBe(503);
    expect(reportIn(answer)).toEqual({
      status: 'failing',
      failing: ['store'],
      workflows: [{ ...COUNTED, store: 'failing' }],
    });
    expect(errors).toContainEqual(expect.objectContaining({ name: 'StoreUnavailable' }));
    store.heal();
    clock.advance(10_000);
    expect((await ask()).status).toBe(200);
  });

  it('answers 200 where a store counts nothing though it grants claims, and alarms 503', async () => {
    const ready = await shop();
    const alarm = await shop({ failOn: ['held'] });
    const deaf = await shop({ failOn: ['stuck'] });
    for (const { store } of [ready, alarm, deaf]) store.fail('count');
    const workflows = [{ workflow: 'checkout', store: 'ok', index: 'unavailable' }];
    const answer = await ready.ask();
    expect(answer.status).toBe(200);
    expect(reportIn(answer)).toEqual({ status: 'ok', failing: [], workflows });
    for (const { ask } of [alarm, deaf]) {
      const rung = await ask();
      expect(rung.status).toBe(503);
      expect(reportIn(rung)).toEqual({ status: 'failing', failing: ['index'], workflows });
    }
  });

  it('takes a granted claim of a call for proof, for ten seconds', async () => {
    const { ask, clock, runs, store } = await shop();
    await runs.send('key-of-stuck', 'PAY');
    store.take();
    clock.advance(9_000);
    await ask();
    expect(store.times('claim')).toBe(0);
    clock.advance(2_000);
    await ask();
    expect(store.times('claim')).toBe(1);
    expect(store.times('delete')).toBe(1);
  });

  it('tests the store at most each ten seconds, by a run that no list or count has', async () => {
    const { ask, clock, data, runs, store } = await shop();
    for (let times = 0; times < 10; times++) {
      await Promise.all([ask(), ask()]);
      clock.advance(1_000);
    }
    expect(store.times('claim')).toBe(1);
    const before = await runs.count({ forMs: 0 });
    expect(before.runs).toBe(2);
    const probe = 'mcp-interlock probe';
    expect(await data.history({ run: probe, workflow: probe })).toEqual([]);
    clock.advance(60_000);
    expect(await data.read(probe, 1)).toBeUndefined();
  });

  it('answers within the deadline of a store that hangs', async () => {
    const { ask, clock, store } = await shop();
    store.fail('claim', 1, 'hang');
    const asked = ask();
    await expect.poll(() => store.times('claim')).toBe(1);
    await settle();
    clock.advance(2_000);
    expect((await asked).status).toBe(503);
  });

  it('waits for no list of the oldest runs once it has looked at them', async () => {
    const { ask, clock, store } = await shop();
    await ask();
    clock.advance(60_000);
    store.fail('stuck', Number.POSITIVE_INFINITY, 'hang');
    const [{ index, held } = {}] = reportIn(await ask()).workflows;
    expect([index, held]).toEqual(['ok', 1]);
    expect(store.times('stuck')).toBe(2);
  });

  it('asks the store once for many probes at a time, and once a second', async () => {
    const { ask, clock, store } = await shop();
    store.take();
    const storm = await Promise.all(Array.from({ length: 50 }, () => ask()));
    expect(new Set(storm.map(({ text }) => text)).size).toBe(1);
    await ask();
    const looks = () => store.take().filter((each) => each === 'count' || each === 'held');
    expect(looks()).toEqual(['count', 'held']);
    clock.advance(1_000);
    await ask();
    expect(looks()).toEqual(['count', 'held']);
    // The clock went back: an answer of the future is not used. The claim lives again.
    clock.advance(-5_000);
    await ask();
    expect(looks()).toEqual(['count']);
  });

  it('answers liveness without asking a store that is down', async () => {
    const { ask, store } = await shop();
    store.fail('claim', Number.POSITIVE_INFINITY, 'hang');
    store.take();
    const answer = await ask('/live');
    expect(answer).toMatchObject({ status: 200, text: '{"status":"ok"}' });
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(store.take()).toEqual([]);
  });

  it.each([
    ['held', ['held']],
    ['stuck', ['stuck']],
    ['both', ['held', 'stuck']],
  ] as const)('rings for runs that are %s where it is told to', async (_, failOn) => {
    const { ask } = await shop({ failOn });
    const answer = await ask();
    expect(answer.status).toBe(503);
    expect(reportIn(answer)).toMatchObject({ status: 'failing', failing: failOn });
  });

  it('is well again once the held runs are resolved', async () => {
    const { ask, clock, runs } = await shop({ failOn: ['held'] });
    expect((await ask()).status).toBe(503);
    await runs.resolve('key-of-held', 'failed');
    clock.advance(1_000);
    expect((await ask()).status).toBe(200);
  });

  it('answers 503 in a process that ends', async () => {
    const { ask, sessions } = await shop();
    await sessions.close();
    const answer = await ask();
    expect(answer.status).toBe(503);
    expect(reportIn(answer).failing).toEqual(['ending']);
    expect((await ask('/live')).status).toBe(200);
  });

  it('says whether the process hears the bus, and answers 200 without it', async () => {
    let hears = true;
    const bus = { ...localBus(), hears: () => hears };
    const ready = await shop({}, { bus });
    const alarm = await shop({ failOn: ['bus'] }, { bus });
    await settle();
    expect(reportIn(await ready.ask()).bus).toBe('hears');
    expect((await alarm.ask()).status).toBe(200);
    hears = false;
    const answer = await ready.ask();
    expect([answer.status, reportIn(answer).bus]).toEqual([200, 'deaf']);
    expect(reportIn(await alarm.ask())).toMatchObject({ status: 'failing', failing: ['bus'] });
  });

  it('answers HEAD without a body, and other methods 405', async () => {
    const { ask } = await shop({ failOn: ['held'] });
    for (const path of ['/health', '/live']) {
      const { headers, status, text } = await ask(path, { method: 'HEAD' });
      const got = await ask(path);
      expect([status, text]).toEqual([got.status, '']);
      expect(headers['content-length']).toBe(got.headers['content-length']);
    }
    const refused = await ask('/health', { method: 'POST', body: {} });
    expect([refused.status, refused.headers.allow]).toEqual([405, 'GET, HEAD']);
  });

  it('does nothing with a response that was answered already', async () => {
    const { health, errors } = await shop();
    const late: RequestHandler = (req, res) => {
      res.end('mine');
      health(req, res);
    };
    const { url } = await serve(express5().get('/mcp', late));
    expect((await send(url, { method: 'GET' })).text).toBe('mine');
    await settle();
    expect(errors).toEqual([expect.objectContaining({ run: 'key-of-held' })]);
  });

  it('serves hosts of the Fetch API', async () => {
    const { health } = await shop({
      failOn: ['held'],
      authorize: ({ url, headers }) => url === '/health?keys' && headers['x-user'] === 'operator',
    });
    const get = (path: string, init?: RequestInit) =>
      health.fetch(new Request(`https://app.example${path}`, init));
    const shown = await get('/health?keys', { headers: { 'x-user': 'operator' } });
    expect(shown.status).toBe(503);
    expect(await shown.json()).toMatchObject({
      workflows: [{ heldRuns: [{ run: 'key-of-held' }] }],
    });
    expect(await (await get('/health')).text()).not.toContain('key-of');
    const head = await get('/health', { method: 'HEAD' });
    expect([head.status, await head.text()]).toEqual([503, '']);
    expect((await get('/health', { method: 'POST' })).status).toBe(405);
  });
});

describe('the health of runs in a store that keeps no index', () => {
  const shopOf = (options: Partial<WorkflowHealthOptions> = {}) => {
    const texts = new JsonStateStore();
    const errors: unknown[] = [];
    const observers = { onWarning() {}, onError: (error: unknown) => void errors.push(error) };
    const runs = runsOf(checkoutGate(), { store: texts, ...observers }) as Runs;
    const health = workflowHealth({ runs: [runs], stuckAfterMs: 1, maxAgeMs: 0, ...options });
    return { texts, errors, health };
  };
  const get = async (health: HealthHandler) => {
    const answer = await health.fetch(new Request('https://app.example/health'));
    return { status: answer.status, report: (await answer.json()) as HealthReport };
  };

  it('says so, counts nothing, and still finds out whether it can be asked', async () => {
    const { health, texts } = shopOf();
    const known = { workflow: 'checkout', index: 'none' };
    expect(await get(health)).toEqual({
      status: 200,
      report: { status: 'ok', failing: [], workflows: [{ ...known, store: 'ok' }] },
    });
    const asked = texts.takeCalls().find((each) => !each.includes('switch:')) ?? '';
    const away = shopOf();
    away.texts.failures.set(asked, new Error('ECONNREFUSED'));
    expect(await get(away.health)).toMatchObject({
      status: 503,
      report: { workflows: [{ ...known, store: 'failing' }] },
    });
    expect(away.errors).toHaveLength(1);
  });

  it.each(['held', 'stuck'] as const)('has no alarm for runs that are %s', (failOn) => {
    expect(() => shopOf({ failOn: [failOn] })).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_STORE' }),
    );
  });
});

it('asks several gates, each in its own store', async () => {
  const stores = [new FaultyStore(memoryStore()), new FaultyStore(memoryStore())] as const;
  await stores[0].open('run', {}, HOUR);
  await step(stores[0], 'run');
  stores[1].fail('claim');
  const runs = stores.map((store) => runsOf(checkoutGate(), { store, onError() {} }) as Runs);
  const health = workflowHealth({ runs, stuckAfterMs: STUCK_AFTER });
  const answer = await health.fetch(new Request('https://app.example/health'));
  expect(await answer.json()).toMatchObject({
    failing: ['store'],
    workflows: [
      { store: 'ok', runs: 1 },
      { store: 'failing', index: 'ok' },
    ],
  });
});

it.each([
  [{}, 'runs'],
  [{ runs: [] }, 'what runsOf() returned, once at least'],
  [{ runs: [{}] }, 'runs[0]: expected what runsOf() returned'],
  [{ stuckAfterMs: -1 }, 'stuckAfterMs'],
  [{ failOn: ['hold'] }, '"held"'],
  [{ failOn: ['bus'] }, 'the sessions of sessionStore({ bus })'],
  [{ stuckAfter: 1 }, 'did you mean "stuckAfterMs"?'],
])('names what is wrong with its options: %j', (wrong, message) => {
  const runs = [runsOf(checkoutGate(), { store: memoryStore() }) as Runs];
  const options = 'runs' in wrong || Object.keys(wrong).length === 0 ? wrong : { runs, ...wrong };
  const given = { stuckAfterMs: 1, ...options } as WorkflowHealthOptions;
  expect(() => workflowHealth(given)).toThrow(expect.objectContaining({ name: 'InterlockError' }));
  expect(() => workflowHealth(given)).toThrow(message);
});
