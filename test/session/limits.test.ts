import { describe, expect, it } from 'vitest';
import {
  type CallerRequest,
  localBus,
  memoryStore,
  principalKey,
  type SessionStoreOptions,
  sessionKey,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { callOf, INITIALIZE, RawSession, send } from '../helpers/raw.ts';
import { begins, type Scene, scene } from '../helpers/scene.ts';
import type { UpstreamShape } from '../helpers/upstream.ts';

const DAY = 24 * 3_600_000;
const FULL = {
  jsonrpc: '2.0',
  id: 'init',
  error: { code: -32000, message: expect.stringMatching(/^Too many sessions/) },
};

const header =
  (name: string) =>
  ({ headers }: CallerRequest): string | undefined => {
    const value = headers[name];
    return typeof value === 'string' ? value : undefined;
  };

const SHAPES = [
  { mode: 'stateful', host: 'express' },
  { mode: 'stateless', host: 'express' },
  { mode: 'stateful', host: 'hono' },
] as const;

/**
 * `x-user` names the caller, and `x-from` where it comes from. Each caller may have three sessions.
 */
function start(
  session: SessionStoreOptions = {},
  shape: Partial<UpstreamShape> = {},
  beside?: Scene,
) {
  const limits = { maxSessionsPerPrincipal: 3, maxSessionsPerClient: 3 };
  const who = { principal: header('x-user'), clientOf: header('x-from') };
  return scene({
    shape,
    session: { ...limits, ...who, ...session },
    ...(beside && { beside }),
  });
}

const ann = { 'x-user': 'ann' };
const bob = { 'x-user': 'bob' };

async function begin(app: Scene, count: number, headers: Record<string, string> = ann) {
  const sessions: RawSession[] = [];
  for (let index = 0; index < count; index++) sessions.push(await app.session(headers));
  return sessions;
}

/** Which sessions are known, asked by a request of each. That request is a use. */
async function known(sessions: readonly RawSession[]): Promise<boolean[]> {
  const answers: boolean[] = [];
  for (const each of sessions) {
    const { status } = await each.post(callOf(1, 'cart.view'));
    expect([200, 404]).toContain(status);
    answers.push(status === 200);
  }
  return answers;
}

const initialize = (app: Scene, headers: Record<string, string> = ann) =>
  send(app.url, { body: INITIALIZE, headers });

describe.each(SHAPES)('a principal with one session too many, $mode in $host', (shape) => {
  it('loses the least recently used one, for good', async () => {
    const app = await start({}, shape);
    const [first, second, third] = (await begin(app, 3)) as [RawSession, RawSession, RawSession];
    const others = await begin(app, 3, bob);
    await first.call('cart.add_item');
    const stream = await second.listen();
    await third.call('cart.view');
    app.clock.advance(60_000);
    // An open stream is no use: no request is in flight on it.
    await first.call('cart.view');
    await third.call('cart.view');
    const [fourth] = await begin(app, 1);
    expect(await app.data.read(second.id, DAY)).toBeUndefined();
    await expect.poll(() => stream.ended).toBe(true);
    expect(await known([first, second, third, fourth as RawSession])).toEqual([
      true,
      false,
      true,
      true,
    ]);
    expect(await first.tools()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
    expect(await known(others)).toEqual([true, true, true]);
    expect(app.warnings.filter((each) => each.includes('maxSessionsPerPrincipal'))).toHaveLength(1);
  });

  it('keeps those with a call in flight, and gets 429 where all have one', async () => {
    const app = await start({}, shape);
    const [first, second, third] = (await begin(app, 3)) as [RawSession, RawSession, RawSession];
    const held = await begins(app, 'cart.view', () => first.call('cart.view'));
    const step = await begins(app, 'cart.add_item', () => second.call('cart.add_item'));
    await begin(app, 1);
    expect(await app.data.read(third.id, DAY)).toBeUndefined();
    const [fourth] = (await begin(app, 1)) as [RawSession];
    const last = await begins(app, 'cart.view', () => fourth.call('cart.view'));
    const before = app.ledger.calls.length;
    const full = await initialize(app);
    expect([full.status, full.messages]).toEqual([429, [FULL]]);
    expect(full.headers).not.toHaveProperty('mcp-session-id');
    expect(app.ledger.calls).toHaveLength(before);
    expect((await initialize(app, bob)).status).toBe(200);
    for (const each of [held, step, last]) {
      each.finish();
      expect(await each.answer).toMatchObject({ result: { content: expect.anything() } });
    }
    expect((await initialize(app)).status).toBe(200);
    expect(await known([first])).toEqual([false]);
  });
});

describe('a session that may be held', () => {
  it('stays, also where another process ran the step, and the store is asked once', async () => {
    const here = await start();
    const there = await start({}, {}, here);
    const [held, ...others] = (await begin(here, 3)) as [RawSession, RawSession, RawSession];
    await here.data.claim({
      run: held.id,
      workflow: 'checkout',
      token: 'elsewhere',
      step: { tool: 'cart.pay', digest: '', uncertain: 'hold' },
      states: undefined,
      initial: { state: 'payment', updatedAt: 0 },
      leaseMs: 1_000,
      ttlMs: DAY,
    });
    here.clock.advance(60_000);
    here.store.take();
    await begin(here, 1);
    expect(here.store.take()).toEqual(['end', 'end', 'open']);
    await begin(here, 1);
    expect(here.store.take()).toEqual(['end', 'open']);
    expect(await known(others)).toEqual([false, false]);
    expect(await here.data.read(held.id, DAY)).toBeDefined();
    const runs = runsOf(checkoutGate(), { store: here.data });
    expect((await runs.read(held.id))?.status).toBe('held');
    expect(there.errors).toEqual([]);
  });

  it('may make way after it was resolved and used again', async () => {
    const app = await start({ maxSessionsPerPrincipal: 1 });
    const session = await app.sessionAt('payment', ann);
    const pay = await begins(app, 'cart.pay', () => session.call('cart.pay'));
    expect((await initialize(app)).status).toBe(429);
    pay.finish();
    await pay.answer;
    expect((await initialize(app)).status).toBe(200);
    expect(await known([session])).toEqual([false]);
  });
});

describe('other processes', () => {
  it('hear of a session that made way: its stream ends in any process', async () => {
    const bus = localBus();
    const shape = { mode: 'stateless', answers: 'json' } as const;
    const here = await start({ bus, maxSessionsPerPrincipal: 1 }, shape);
    const there = await start({ bus, maxSessionsPerPrincipal: 1 }, shape, here);
    const [session] = (await begin(here, 1)) as [RawSession];
    const elsewhere = RawSession.resume(there.url, session.id, session.headers);
    const stream = await elsewhere.listen();
    await begin(here, 1);
    await expect.poll(() => stream.ended).toBe(true);
    expect((await elsewhere.post(callOf(1, 'cart.view'))).status).toBe(404);
  });
});

describe('callers without a principal', () => {
  it('are not limited, unless clientOf() names where they come from', async () => {
    const app = await start();
    expect(await known(await begin(app, 8, {}))).toEqual(Array(8).fill(true));
    const from = { 'x-from': '192.0.2.1' };
    const near = await begin(app, 4, from);
    const far = await begin(app, 3, { 'x-from': '192.0.2.2' });
    expect(await known(near)).toEqual([false, true, true, true]);
    expect(await known(far)).toEqual([true, true, true]);
  });

  it('are not limited by a client id, which names an app', async () => {
    const app = await scene({
      session: { maxSessionsPerPrincipal: 1 },
      before: [
        (req, _res, next) => {
          Object.assign(req, { auth: { clientId: 'app', scopes: [], token: 't' } });
          next();
        },
      ],
    });
    expect(await known(await begin(app, 3, {}))).toEqual([true, true, true]);
  });
});

describe('a process that is full', () => {
  it.each([
    ['in memory, where they are lost', undefined],
    ['that keeps them all', memoryStore()],
  ])('forgets sessions without a principal first, with a store %s', async (_, data) => {
    const app = await scene({ session: { maxSessions: 4 }, ...(data && { data }) });
    const anns = await app.session(ann);
    await anns.call('cart.add_item');
    for (let count = 0; count < 20; count++) await app.session();
    app.store.take();
    await anns.call('cart.view');
    expect(app.store.take()).toEqual([]);
    expect(await anns.tools()).toContain('cart.checkout');
    for (let count = 0; count < 4; count++) await app.session(bob);
    const last = await app.session();
    expect((await last.post(callOf(1, 'cart.view'))).status).toBe(200);
  });
});

describe('a limit by client', () => {
  it('holds for callers without a principal: others neither count nor are barred', async () => {
    const app = await start();
    const from = { 'x-from': '192.0.2.1' };
    const anns = await begin(app, 3, { ...ann, ...from });
    const others = await begin(app, 3, from);
    const bobs = await begin(app, 1, { ...bob, ...from });
    expect(await known([...anns, ...others, ...bobs])).toEqual(Array(7).fill(true));
    const [next] = (await begin(app, 1, from)) as [RawSession];
    expect(await known([...anns, ...others, next])).toEqual([
      ...[true, true, true],
      ...[false, true, true],
      true,
    ]);
  });

  it.each([
    ['an empty string', () => ''],
    ['a number', () => 7],
    ['a promise', () => Promise.reject(new Error('late'))],
  ])('is an error where clientOf() returns %s', async (_, clientOf) => {
    const app = await start({ clientOf: clientOf as () => string });
    expect((await initialize(app)).status).toBe(500);
    expect(String(app.errors[0])).toContain('clientOf() must return a non-empty string');
  });
});

describe('the count of sessions is right', () => {
  it('after DELETE', async () => {
    const app = await start();
    const sessions = await begin(app, 3);
    expect((await sessions[2]?.end())?.status).toBe(200);
    const [next] = await begin(app, 1);
    expect(await known([...sessions, next as RawSession])).toEqual([true, true, false, true]);
  });

  it('after they have expired, with or without a request since', async () => {
    const app = await start();
    await begin(app, 3);
    app.clock.advance(DAY);
    const next = await begin(app, 3);
    expect(await known(next)).toEqual([true, true, true]);
  });

  it('after this process forgot some, and meets them again', async () => {
    const app = await start({ maxSessions: 4 }, {}, await start());
    const first = await begin(app, 3);
    await begin(app, 4, bob);
    const second = await begin(app, 3);
    const alive = async () => {
      const records = [...first, ...second].map(({ id }) => app.data.read(id, DAY));
      return (await Promise.all(records)).filter((record) => record !== undefined).length;
    };
    // This process forgot the first three, and the store did not: used again, they count again.
    expect(await alive()).toBe(6);
    app.clock.advance(60_000);
    expect(await known(first)).toEqual([true, true, true]);
    await begin(app, 1);
    expect(await alive()).toBe(4);
    expect(app.errors).toEqual([]);
  });

  it.each(['open', 'end'] as const)('after the store failed to %s', async (operation) => {
    const app = await start();
    const sessions = await begin(app, operation === 'open' ? 2 : 3);
    app.store.fail(operation);
    for (let attempt = 0; attempt < 5; attempt++) expect((await initialize(app)).status).toBe(503);
    app.store.heal();
    expect((await initialize(app)).status).toBe(200);
    const left = (await known(sessions)).filter(Boolean);
    expect(left).toHaveLength(2);
  });

  it('where many begin at the same time', async () => {
    const app = await start();
    const begun = await Promise.all(Array.from({ length: 20 }, () => initialize(app)));
    const ids = begun
      .filter(({ status }) => status === 200)
      .map(({ headers }) => String(headers['mcp-session-id']));
    expect(new Set(begun.map(({ status }) => status))).not.toContain(500);
    const alive = await Promise.all(ids.map((id) => app.data.read(id, DAY)));
    expect(alive.filter((record) => record !== undefined)).toHaveLength(3);
  });

  it('where an initialize fails upstream: it costs no caller a session', async () => {
    const app = await start();
    const sessions = await begin(app, 3);
    const params = { protocolVersion: '2025-11-25', capabilities: 'none' };
    for (let attempt = 0; attempt < 5; attempt++)
      await send(app.url, { body: { ...INITIALIZE, params }, headers: ann });
    expect(await known(sessions)).toEqual([true, true, true]);
  });
});

it('one principal evicts no session of another, with any number of its own', async () => {
  const app = await start({ maxSessions: 10 });
  const [victim] = (await begin(app, 1, bob)) as [RawSession];
  await begin(app, 50);
  expect(await known([victim])).toEqual([true]);
});

it('sessions of the upstream have these limits too where another key names runs', async () => {
  const app = await start({ key: [principalKey(), sessionKey()] });
  const sessions = await begin(app, 4);
  expect(await known(sessions)).toEqual([false, true, true, true]);
});
