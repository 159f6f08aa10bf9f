import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { assign, setup } from 'xstate';
import { NO_ANSWER, testGate } from '../../packages/testing/src/index.ts';
import { type Begin, beginIn, handleKey, principalKey, StateMachineGate } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import type { BeginningRun } from '../../src/step/claim.ts';
import type { Json } from '../../src/stores/index.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';
import { passUntil, type SceneOptions, scene } from '../helpers/scene.ts';
import { sharedRedis } from '../services/shared.ts';

const ANN = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'ann' });
const BY_PRINCIPAL = { key: principalKey() };

/** The checkout, with guards that note the data they get. */
function watchedGate(seen: unknown[] = []) {
  const guard = ({ context }: { readonly context: Json | undefined }) => {
    seen.push(context);
    return true;
  };
  return new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: {
      empty: { on: { ADD_ITEM: 'has_items' } },
      has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
      payment: { on: { PAY: 'confirmed' } },
      confirmed: { type: 'final' },
    },
  })
    .bindTool('cart.add_item', ['empty', 'has_items'], { success: 'ADD_ITEM', guard })
    .bindTool('cart.checkout', 'has_items', 'CHECKOUT')
    .bindTool('cart.pay', 'payment', 'PAY')
    .bindTool('cart.view', ['empty', 'has_items'], { guard });
}

/** An app that begins each run with how often it was asked. */
async function shop(options: SceneOptions = {}) {
  const asked: BeginningRun[] = [];
  const seen: unknown[] = [];
  const begin: Begin = (run) => {
    asked.push(run);
    return { ask: asked.length };
  };
  const app = await scene({
    workflow: watchedGate(seen),
    ...options,
    gate: { begin, ...options.gate },
  });
  return { ...app, asked, seen };
}

const context = async (app: Pick<Awaited<ReturnType<typeof shop>>, 'runs'>, run: string) =>
  (await app.runs.read(run))?.context;

describe('a run that begins with data of the app', () => {
  it('shows them to its first guard, and saves them with its first move', async () => {
    const app = await shop({ session: BY_PRINCIPAL });
    const ann = await app.client('ann');
    expect(app.asked).toEqual([]);
    await ann.calls('cart.add_item');
    await ann.calls('cart.add_item');
    expect(app.asked).toEqual([{ run: ANN, principal: expect.stringContaining('ann') }]);
    expect(app.seen).toEqual([{ ask: 1 }, { ask: 1 }]);
    expect(await context(app, ANN)).toEqual({ ask: 1 });
  });

  it('shows them to guards of calls that move nothing, and writes nothing', async () => {
    const app = await shop({
      workflow: checkoutGate(),
      gate: { statusTool: { name: 'status', summary: (run) => run.context ?? null } },
    });
    const plain = await app.client();
    await plain.sees(['cart.add_item', 'cart.view', 'status']);
    await plain.isRefused('cart.pay', 'state');
    expect(app.asked).toEqual([]);
    expect((await plain.raw.call('status')).text).toContain('"ask":1');
    expect(await app.runs.history(plain.run)).toEqual([]);

    const watched = await shop();
    const client = await watched.client();
    await client.calls('cart.view');
    await client.calls('cart.view');
    expect(watched.seen).toEqual([{ ask: 1 }, { ask: 2 }]);
    const batch = ['cart.view', 'cart.view', 'cart.add_item'];
    const session = await watched.session();
    await session.post(
      batch.map((name, id) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name } })),
    );
    expect(watched.seen.slice(2)).toEqual([{ ask: 3 }, { ask: 3 }, { ask: 3 }]);
    expect((await watched.runs.read(client.run))?.snapshot.version ?? 0).toBe(0);
  });

  it('asks again if the first call moved nothing, and keeps what a failure saves', async () => {
    const app = await shop();
    const client = await app.client();
    expect((await client.raw.call('cart.add_item', { fail: true })).isError).toBe(true);
    expect(await context(app, client.run)).toBeUndefined();
    await client.calls('cart.add_item');
    expect(app.seen).toEqual([{ ask: 1 }, { ask: 2 }]);
    expect(await context(app, client.run)).toEqual({ ask: 2 });
  });

  it('gives two first calls at once the same data', async () => {
    const app = await shop({ session: BY_PRINCIPAL });
    const beside = await shop({ session: BY_PRINCIPAL, beside: app });
    const clients = [await app.client('ann'), await beside.client('ann')];
    const calls = Promise.all(clients.map((client) => client.calls('cart.add_item')));
    await passUntil(app.clock, calls);
    const data = [...app.seen, ...beside.seen];
    expect(data).toEqual([data[0], data[0]]);
    expect(await context(app, ANN)).toEqual(data[0]);
    expect((await app.runs.history(ANN)).map(({ version }) => version)).toEqual([1, 2]);
  });

  it('gets new data when it begins anew', async () => {
    const app = await shop({ session: BY_PRINCIPAL });
    const ann = await app.client('ann');
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay']) await ann.calls(tool);
    await ann.calls('cart.view');
    expect([app.asked.length, app.seen.at(-1), await context(app, ANN)]).toEqual([
      2,
      { ask: 2 },
      { ask: 1 },
    ]);
    await ann.calls('cart.add_item');
    expect(await context(app, ANN)).toEqual({ ask: 3 });
    expect((await app.runs.history(ANN)).map(({ event }) => event)).toEqual([
      ...['ADD_ITEM', 'CHECKOUT', 'PAY', 'restart', 'ADD_ITEM'],
    ]);
    await app.runs.restart(ANN);
    expect(await context(app, ANN)).toEqual({ ask: 4 });
  });

  it('has them after an operator resolves its held first step', async () => {
    const t = testGate(checkoutGate(), { gate: { begin: () => ({ limit: 5 }) } });
    onTestFinished(() => t.close());
    await t.call('cart.add_item', {}, NO_ANSWER);
    expect(await t.resolve('succeeded')).toMatchObject({ resolved: true });
    expect([await t.state(), await t.context()]).toEqual(['has_items', { limit: 5 }]);
  });

  it('has them after its first state was left by a deadline', async () => {
    const gate = new StateMachineGate({
      id: 'offer',
      initial: 'made',
      states: {
        made: { on: { TAKE: 'taken' }, after: { 1000: 'late' } },
        taken: {},
        late: { on: { GO: 'late' } },
      },
    })
      .bindTool('take', 'made', 'TAKE')
      .bindTool('look', 'late', 'GO');
    const t = testGate(gate, { gate: { begin: () => ['gift'] } });
    onTestFinished(() => t.close());
    await t.call('take', {}, { content: [], isError: true });
    await t.clock.advance(1_000);
    await t.call('look');
    expect([await t.state(), await t.context()]).toEqual(['late', ['gift']]);
  });

  it('gives them to a statechart as its context, also for ways in refusals', async () => {
    const machine = setup({
      types: {} as { context: { left: number }; events: { type: 'TAKE' } | { type: 'PAY' } },
      guards: { some: ({ context }) => context.left > 0 },
      actions: { less: assign({ left: ({ context }) => context.left - 1 }) },
    }).createMachine({
      id: 'stock',
      initial: 'open',
      context: { left: 0 },
      states: {
        open: { on: { TAKE: { guard: 'some', target: 'taken', actions: 'less' } } },
        taken: { on: { PAY: 'paid' } },
        paid: {},
      },
    });
    const gate = new StateMachineGate(machine)
      .bindTool('take', 'open', 'TAKE')
      .bindTool('pay', 'taken', 'PAY');
    const t = testGate(gate, { gate: { begin: async () => ({ left: 3 }) } });
    onTestFinished(() => t.close());
    await t.call('pay');
    expect(t.refusal()).toMatchObject({ reason: 'state', path: ['take'] });
    expect((await t.call('take')).outcome).toBe('ok');
    expect(await t.context()).toEqual({ left: 2 });
    const none = testGate(gate, { gate: { begin: async () => undefined } });
    onTestFinished(() => none.close());
    expect((await none.call('take')).refusal?.reason).toBe('guard');
  });

  it('shows what they make visible, before it begins and after', async () => {
    const seen: unknown[] = [];
    const gate = new StateMachineGate({
      id: 'desk',
      initial: 'open',
      states: { open: { on: { SIGN: 'signed' } }, signed: {} },
    })
      .bindTool('sign', 'open', {
        success: 'SIGN',
        visible: ({ context }) => {
          seen.push(context);
          return context === 'vip';
        },
      })
      .bindTool('read', ['open', 'signed']);
    for (const [data, tools] of [
      ['vip', ['sign', 'read']],
      ['guest', ['read']],
    ] as const) {
      const t = testGate(gate, { gate: { begin: () => data, statusTool: 'status' } });
      onTestFinished(() => t.close());
      expect(await t.list()).toEqual([...tools, 'status']);
      expect((await t.call('status')).text.includes('sign')).toBe(data === 'vip');
      expect((await t.call('sign')).outcome).toBe(data === 'vip' ? 'ok' : 'refused');
      expect(await t.list()).toEqual(['read', 'status']);
      expect(seen.splice(0)).not.toContain(undefined);
    }
  });

  it('begins anew only by a call that its new data make visible', async () => {
    const gate = new StateMachineGate({
      id: 'desk',
      initial: 'open',
      states: { open: { on: { SIGN: 'signed' } }, signed: { type: 'final' } },
    }).bindTool('sign', 'open', { success: 'SIGN', visible: ({ context }) => context === 'vip' });
    let data = 'vip';
    const t = testGate(gate, { gate: { begin: () => data, whenEnded: 'restart' } });
    onTestFinished(() => t.close());
    await t.call('sign');
    data = 'guest';
    expect((await t.call('sign')).refusal?.reason).toBe('state');
    data = 'vip';
    expect((await t.call('sign')).outcome).toBe('ok');
    expect((await t.history()).map(({ event }) => event)).toEqual(['SIGN', 'restart', 'SIGN']);
    expect(t.errors).toEqual([]);
  });

  it('keeps them on Redis, over a restart of the app', async () => {
    const redis = new Redis(await sharedRedis());
    onTestFinished(() => redis.disconnect());
    const data = redisStore({ client: redis, prefix: `test-${randomUUID()}` });
    const session = BY_PRINCIPAL;
    const before = await shop({ data, session });
    await (await before.client('ann')).calls('cart.add_item');
    await before.close();
    const after = await shop({ data, session });
    await (await after.client('ann')).calls('cart.add_item');
    expect([after.asked, after.seen]).toEqual([[], [{ ask: 1 }]]);
    const ben = principalKey().runKey('ben');
    const jobs = runsOf(watchedGate(), { store: data, begin: ({ principal }) => `${principal}'s` });
    const [one, other] = await Promise.all([jobs.begin(ben), jobs.begin(ben, { data: 'mine' })]);
    expect([one.begun, other.begun].sort()).toEqual([false, true]);
    expect((await jobs.read(ben))?.context).toBe(one.begun ? "ben's" : 'mine');
  });
});

describe('a run whose beginning is not known', () => {
  const broken = new Error('the catalogue is down');

  it.each([
    ['throws', () => Promise.reject(broken), broken],
    ['gives no JSON', () => ({ at: new Date() as never }), { code: 'ERR_INTERLOCK_CONFIG' }],
  ])('is not begun: begin %s', async (_, begin, error) => {
    const given = vi.fn<Begin>(begin);
    const app = await shop({ gate: { begin: given } });
    const client = await app.client();
    await client.isRefused('cart.add_item', 'unavailable');
    await client.isRefused('cart.view', 'unavailable');
    expect(app.errors).toEqual([error, error].map((each) => expect.objectContaining(each)));
    expect([app.ledger.calls, await app.runs.history(client.run)]).toEqual([[], []]);
    await app.run(client.run).isIn('empty', 'idle');
    await expect(app.runs.begin(client.run)).rejects.toMatchObject(error);
    given.mockReturnValue({ ask: 0 });
    await client.calls('cart.add_item');
    expect(await context(app, client.run)).toEqual({ ask: 0 });
  });

  it('does not wait for ever for the app', async () => {
    const never = latch();
    const app = await shop({ gate: { begin: () => never.opened.then(() => null) } });
    const client = await app.client();
    await passUntil(app.clock, client.isRefused('cart.add_item', 'unavailable'));
    expect(app.errors).toMatchObject([{ message: expect.stringContaining('5000 ms') }]);
    expect(app.ledger.calls).toEqual([]);
    never.open();
  });
});

describe('runs.begin()', () => {
  it("begins a run once, with the given data or the gate's, and notes the actor", async () => {
    const app = await shop();
    const [mine, gates] = [await app.client(), await app.client()];
    const begun = await app.runs.begin(mine.run, { data: { gift: true }, actor: 'job' });
    expect(begun).toEqual({ begun: true, state: 'empty', context: { gift: true } });
    expect(await app.runs.begin(mine.run)).toEqual({ begun: false, reason: 'begun' });
    expect(await app.runs.history(mine.run)).toMatchObject([
      { from: 'empty', to: 'empty', event: 'begin', actor: 'job', version: 1 },
    ]);
    expect(app.asked).toEqual([]);
    await mine.calls('cart.add_item');
    expect(app.seen).toEqual([{ gift: true }]);

    expect(await app.runs.begin(gates.run)).toMatchObject({ begun: true, context: { ask: 1 } });
    await gates.calls('cart.add_item');
    expect([app.asked.length, app.seen.at(-1)]).toEqual([1, { ask: 1 }]);
  });

  it('says so if the first call came before it', async () => {
    const app = await shop();
    const client = await app.client();
    const handler = latch();
    app.ledger.gates.set('cart.add_item', handler.opened);
    const calling = client.calls('cart.add_item');
    await expect.poll(() => app.ledger.calls).toEqual(['cart.add_item']);
    const beginning = app.runs.begin(client.run, { data: 'late' });
    handler.open();
    await calling;
    expect(await beginning).toEqual({ begun: false, reason: 'begun' });
    expect(await context(app, client.run)).toEqual({ ask: 1 });
  });

  it('makes the run of a principal or a handle, but not of a session', async () => {
    const key = handleKey('cart', { createdBy: 'cart.new' });
    const app = await shop({ session: { key: [key, principalKey()] } });
    const handle = key.runKey('7', { issuer: 'https://issuer.example', subject: 'ann' });
    for (const run of [handle, ANN])
      expect(await app.runs.begin(run, { data: 1 })).toMatchObject({ begun: true });
    expect(await app.runs.begin('no-such-session')).toEqual({
      begun: false,
      reason: 'unknown-run',
    });
    const ann = await app.client('ann');
    await ann.calls('cart.add_item');
    expect(app.seen).toEqual([1]);
    expect(await app.data.read(handle, 1_000)).toMatchObject({
      session: { principal: expect.stringContaining('ann') },
    });
  });

  it('comes before an event from outside, which would begin the run with other data', async () => {
    const app = await shop();
    const client = await app.client();
    expect(await app.runs.send(client.run, 'ADD_ITEM')).toMatchObject({ sent: true });
    expect(await context(app, client.run)).toEqual({ ask: 1 });
    expect(await app.runs.begin(client.run)).toEqual({ begun: false, reason: 'begun' });
  });

  it('refuses data that is no JSON, and unknown options', async () => {
    const app = await shop();
    for (const options of [{ data: new Date() }, { date: {} }])
      await expect(app.runs.begin('x', options as never)).rejects.toMatchObject({
        code: 'ERR_INTERLOCK_CONFIG',
      });
  });
});

describe('the "always" of a first state, with the data of "begin"', () => {
  function sortingGate(actions: readonly string[] = []) {
    const machine = setup({
      types: { context: {} as { limit: number }, events: {} as { type: 'SERVE' } },
      guards: { isHigh: ({ context }) => context.limit > 100 },
      actions: { notify: () => {} },
    }).createMachine({
      id: 'desk',
      context: { limit: 0 },
      initial: 'plain',
      states: {
        plain: {
          always: { guard: 'isHigh', target: 'vip', actions: actions as 'notify'[] },
          on: { SERVE: 'served' },
        },
        vip: { on: { SERVE: 'served' } },
        served: { type: 'final' },
      },
    });
    return new StateMachineGate(machine, { onAction() {} })
      .bindTool('queue', 'plain', 'SERVE')
      .bindTool('lounge', 'vip', 'SERVE');
  }

  it('is asked again, as XState does with an input', async () => {
    for (const [limit, shown, hidden] of [
      [500, 'lounge', 'queue'],
      [50, 'queue', 'lounge'],
    ] as const) {
      await using t = testGate(sortingGate(), { gate: { begin: () => ({ limit }) } });
      expect(await t.list()).toEqual([shown]);
      expect((await t.call(hidden)).refusal?.reason).toBe('state');
      expect((await t.call(shown)).outcome).toBe('ok');
      expect([await t.state(), await t.context()]).toEqual(['served', { limit }]);
    }
  });

  it('lets a run that cannot begin anew go, so that a later call can', async () => {
    let limit = 50;
    await using t = testGate(sortingGate(['notify']), {
      gate: { begin: () => ({ limit }), whenEnded: 'restart' },
    });
    expect((await t.call('queue')).outcome).toBe('ok');
    limit = 500;
    for (let times = 0; times < 2; times++)
      expect((await t.call('queue')).refusal?.reason).toBe('unavailable');
    limit = 50;
    expect((await t.call('queue')).outcome).toBe('ok');
  });

  it('refuses the call where an action would be lost', async () => {
    await using t = testGate(sortingGate(['notify']), {
      gate: { begin: () => ({ limit: 500 }) },
    });
    expect((await t.call('lounge')).refusal?.reason).toBe('unavailable');
    expect(t.errors.map(String).join()).toContain(
      'an "always" transition leads from "plain" to "vip" by the action "notify"',
    );
  });
});

describe('a run of rules that begins with calls of the app', () => {
  const bank = () =>
    StateMachineGate.fromOrder(
      {
        approve: {},
        pay: {
          after: { tool: 'approve', same: ['id'], consumes: true },
          limit: { sum: 'amount', max: 100 },
          errors: 'unknown',
          uncertain: 'hold',
        },
      },
      { id: 'bank' },
    );
  const facts = [
    { tool: 'approve', arguments: { id: 7 } },
    { tool: 'pay', arguments: { amount: 60 } },
  ];
  const app = (begin: Begin) =>
    testGate(bank(), { gate: { begin }, principal: 'ann', session: BY_PRINCIPAL });

  it('lists, allows and limits by them from its first call on', async () => {
    const t = app(() => beginIn({ facts, data: { vip: true } }));
    expect(await t.list()).toEqual(['approve', 'pay']);
    expect((await t.call('pay', { id: 8, amount: 1 })).refusal?.reason).toBe('guard');
    expect((await t.call('pay', { id: 7, amount: 41 })).refusal?.reason).toBe('limit');
    expect((await t.call('pay', { id: 7, amount: 40 })).ran).toBe(true);
    expect(await t.state()).toBe('{}');
    const trail = await t.history();
    expect(trail.map(({ event }) => event)).toEqual(['begin', 'pay']);
    expect((await t.call('pay', { id: 7, amount: 0 })).refusal?.reason).toBe('state');
  });

  it('keeps them where the outcome of its first call is unknown', async () => {
    const t = app(() => beginIn({ facts }));
    await t.call('pay', { id: 7, amount: 40 }, { isError: true, content: [] });
    expect((await t.call('approve', { id: 8 })).refusal?.reason).toBe('held');
    await t.resolve('succeeded', { actor: 'support' });
    await t.call('approve', { id: 8 });
    expect((await t.call('pay', { id: 8, amount: 1 })).refusal?.reason).toBe('limit');
  });

  it('begins with none that is no call of its rules', async () => {
    const errors: unknown[] = [];
    const session = { ...BY_PRINCIPAL, onError: (error: unknown) => void errors.push(error) };
    const begin = () => beginIn({ facts: [{ tool: 'pya' }] });
    const t = testGate(bank(), { gate: { begin }, principal: 'ann', session });
    expect((await t.call('approve')).refusal?.reason).toBe('unavailable');
    expect(String(errors)).toContain('facts: "pya" is no tool of which runs keep calls');
    expect(() => beginIn({ fact: [] } as never)).toThrow('did you mean "facts"?');
  });
});
