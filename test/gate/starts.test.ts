import { describe, expect, it, onTestFinished } from 'vitest';
import { createMachine } from 'xstate';
import {
  checkWorkflow,
  never,
  precedes,
  reaches,
  replayTrail,
} from '../../packages/check/src/index.ts';
import { NO_ANSWER, testGate } from '../../packages/testing/src/index.ts';
import {
  type Begin,
  beginIn,
  type FsmAction,
  type GateOptions,
  principalKey,
  StateMachineGate,
} from '../../src/index.ts';
import { scene } from '../helpers/scene.ts';

const ANN = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'ann' });

/** The checkout. Its runs may begin in `payment`, and in `has_items`. */
function shopGate(options: GateOptions = { starts: ['payment', 'has_items'] }) {
  return new StateMachineGate(
    {
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { ADD_ITEM: 'has_items' } },
        has_items: { on: { CHECKOUT: 'payment' } },
        payment: { on: { PAY: 'confirmed' }, after: { 60000: 'has_items' } },
        confirmed: { type: 'final' },
      },
    },
    options,
  )
    .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart.checkout', 'has_items', 'CHECKOUT')
    .bindTool('cart.pay', 'payment', 'PAY')
    .bindTool('cart.view', ['has_items', 'payment'])
    .bindPrompt('receipt', 'payment');
}

function shop(begin: Begin, gate: object = {}) {
  const t = testGate(shopGate(), { gate: { begin, ...gate } });
  onTestFinished(() => t.close());
  return t;
}

const moves = async (t: ReturnType<typeof shop>) =>
  (await t.history()).map(({ from, to, event }) => [from, to, event]);

describe('a run that begins in a state of the app', () => {
  it('is shown there before its first call, and nothing is written', async () => {
    const t = shop(() => beginIn('payment', { sum: 5 }), { statusTool: 'status' });
    expect(await t.list()).toEqual(['cart.pay', 'cart.view', 'status']);
    expect((await t.call('status')).text).toContain('checkout is in "payment"');
    expect((await t.call('cart.view')).outcome).toBe('ok');
    expect((await t.call('cart.add_item')).refusal).toMatchObject({
      reason: 'state',
      state: 'payment',
      available: ['cart.pay', 'cart.view'],
    });
    expect([await moves(t), await t.state()]).toEqual([[], 'empty']);
  });

  it('is saved there as it begins, so that its trail says where', async () => {
    const t = shop(() => beginIn('payment', { sum: 5 }));
    expect((await t.call('cart.pay')).outcome).toBe('ok');
    expect(await moves(t)).toEqual([
      ['payment', 'payment', 'begin'],
      ['payment', 'confirmed', 'PAY'],
    ]);
    expect(await t.context()).toEqual({ sum: 5 });
    expect(replayTrail(shopGate(), await t.history())).toMatchObject({
      state: 'confirmed',
      faults: [],
    });
  });

  it('asks the app once for its first call, and no more after it', async () => {
    let asked = 0;
    const begin = () => {
      asked++;
      return beginIn('has_items');
    };
    const app = await scene({ workflow: shopGate(), gate: { begin } });
    const client = await app.client();
    await client.calls('cart.checkout');
    expect(asked).toBe(1);
    await client.calls('cart.pay');
    expect(asked).toBe(1);
    await app.run(client.run).isIn('confirmed');
  });

  it('has its time from when it is saved', async () => {
    const t = shop(() => beginIn('payment'));
    await t.clock.advance(120_000);
    await t.call('cart.pay', {}, { content: [], isError: true });
    await t.clock.advance(59_999);
    expect(await t.state()).toBe('payment');
    await t.clock.advance(1);
    expect(await t.state()).toBe('has_items');
  });

  it('is held, and resolved, where its first step has found it', async () => {
    const t = shop(() => beginIn('payment'));
    await t.call('cart.pay', {}, NO_ANSWER);
    expect(await t.state()).toBe('payment');
    expect(await t.resolve('succeeded')).toMatchObject({ resolved: true, state: 'confirmed' });
  });

  it('takes the initial state as one that need not be declared', async () => {
    const t = shop(() => beginIn('empty', { sum: 5 }));
    expect(await t.list()).toEqual(['cart.add_item']);
    await t.call('cart.add_item');
    expect(await moves(t)).toEqual([['empty', 'has_items', 'ADD_ITEM']]);
    expect(await t.context()).toEqual({ sum: 5 });
  });

  it('is told apart from one with data that have a member "state"', async () => {
    for (const data of [{ state: 'payment' }, { state: 'payment', data: { sum: 5 } }]) {
      const t = shop(() => data);
      expect(await t.list()).toEqual(['cart.add_item']);
      expect((await t.call('cart.pay')).refusal?.reason).toBe('state');
      await t.call('cart.add_item');
      expect([await t.state(), await t.context()]).toEqual(['has_items', data]);
    }
    const inside = shop(() => beginIn('payment', { state: 'empty' }));
    await inside.call('cart.pay');
    expect([await inside.state(), await inside.context()]).toEqual([
      'confirmed',
      { state: 'empty' },
    ]);
  });

  it.each([
    ['that the gate does not declare', 'confirmed', 'known are "empty", "payment", "has_items"'],
    ['that does not exist', 'paymnt', 'did you mean "payment"?'],
  ])('does not begin in a state %s', async (_, state, right) => {
    const t = shop(() => beginIn(state), { statusTool: 'status' });
    expect((await t.call('cart.pay')).refusal?.reason).toBe('unavailable');
    expect((await t.call('cart.add_item')).refusal?.reason).toBe('unavailable');
    expect((await t.call('cart.view')).refusal?.reason).toBe('unavailable');
    expect(await t.list()).not.toContain('cart.pay');
    expect([await moves(t), await t.state()]).toEqual([[], 'empty']);
    for (const error of t.errors)
      expect(error).toMatchObject({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining(`no run of workflow "checkout" begins in "${state}"`),
      });
    expect(String(t.errors[0])).toContain(right);
  });

  it('does not begin with data that are no JSON, nor where the gate declares nothing', async () => {
    const odd = shop(() => beginIn('payment', new Date() as never));
    expect((await odd.call('cart.pay')).refusal?.reason).toBe('unavailable');
    expect(odd.errors[0]).toMatchObject({ code: 'ERR_INTERLOCK_CONFIG' });
    const t = testGate(shopGate({}), { gate: { begin: () => beginIn('payment') } });
    onTestFinished(() => t.close());
    expect((await t.call('cart.add_item')).refusal?.reason).toBe('unavailable');
    expect(String(t.errors[0])).toContain('give the gate { starts: ["payment"] }');
  });
});

describe('a run that begins anew', () => {
  it('asks where, and is shown there first', async () => {
    let state = 'payment';
    const t = shop(() => beginIn(state, state), { whenEnded: 'restart' });
    await t.call('cart.pay');
    state = 'has_items';
    expect(await t.list()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
    expect((await t.call('cart.pay')).refusal).toMatchObject({
      reason: 'state',
      state: 'has_items',
      available: ['cart.add_item', 'cart.checkout', 'cart.view'],
    });
    expect((await t.history()).map(({ event }) => event)).toEqual(['begin', 'PAY']);
    expect((await t.call('cart.checkout')).outcome).toBe('ok');
    expect(await moves(t)).toEqual([
      ['payment', 'payment', 'begin'],
      ['payment', 'confirmed', 'PAY'],
      ['confirmed', 'has_items', 'restart'],
      ['has_items', 'payment', 'CHECKOUT'],
    ]);
    expect(await t.context()).toBe('has_items');
    expect(replayTrail(shopGate(), await t.history()).faults).toEqual([]);
    expect(t.errors).toEqual([]);
  });

  it('does not begin anew in a state that the gate does not declare', async () => {
    let state = 'payment';
    const t = shop(() => beginIn(state), { whenEnded: 'restart' });
    await t.call('cart.pay');
    state = 'confirmed';
    for (const tool of ['cart.pay', 'cart.add_item'])
      expect((await t.call(tool)).refusal?.reason).toBe('unavailable');
    expect(t.errors).toHaveLength(2);
    expect(await moves(t)).toHaveLength(2);
  });

  it('goes through the same door by hand', async () => {
    let state = 'payment';
    const app = await scene({
      workflow: shopGate(),
      session: { key: principalKey() },
      gate: { begin: () => beginIn(state) },
    });
    const ann = await app.client('ann');
    await ann.calls('cart.pay');
    state = 'has_items';
    expect(await app.runs.restart(ANN)).toEqual({ restarted: true, state: 'has_items' });
    state = 'nowhere';
    await expect(app.runs.restart(ANN)).rejects.toThrow('begins in "nowhere"');
    await app.run(ANN).isIn('has_items');
  });
});

describe('runs.begin()', () => {
  it('takes a state, or asks the gate, and says where the run began', async () => {
    const app = await scene({
      workflow: shopGate(),
      gate: { begin: () => beginIn('has_items', 'asked') },
    });
    const [given, asked, sent] = await Promise.all([app.client(), app.client(), app.client()]);
    if (!given || !asked || !sent) throw new Error('too few clients');
    const begun = await app.runs.begin(given.run, { state: 'payment', actor: 'job' });
    expect(begun).toEqual({ begun: true, state: 'payment', context: undefined });
    expect(await app.runs.begin(given.run, { state: 'has_items' })).toEqual({
      begun: false,
      reason: 'begun',
    });
    expect(await app.runs.history(given.run)).toMatchObject([
      { from: 'payment', to: 'payment', event: 'begin', actor: 'job', version: 1 },
    ]);
    await given.calls('cart.pay');
    const same = { begun: true, state: 'has_items', context: 'asked' };
    expect(await app.runs.begin(asked.run)).toEqual(same);
    expect(await app.runs.history(asked.run)).toHaveLength(1);
    expect(await app.runs.send(sent.run, 'CHECKOUT')).toMatchObject({ state: 'payment' });
    expect((await app.runs.history(sent.run)).map(({ event }) => event)).toEqual([
      'begin',
      'CHECKOUT',
    ]);
  });

  it('begins no run where the gate declares no start', async () => {
    const app = await scene({ workflow: shopGate() });
    const client = await app.client();
    await expect(app.runs.begin(client.run, { state: 'confirmed' })).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_CONFIG',
      message: expect.stringContaining('begins in "confirmed"'),
    });
    expect(await app.runs.history(client.run)).toEqual([]);
  });
});

describe('the states in which a gate lets runs begin', () => {
  it.each([
    [['paymnt'], 'starts: "paymnt" does not exist, did you mean "payment"?'],
    [['confirmed'], 'starts: "confirmed" is final, so a run that begins there could do nothing'],
    ['payment', 'starts: expected array, got "payment"'],
    [[7], 'starts'],
  ])('are checked when it is made: %j', (starts, message) => {
    expect(() => shopGate({ starts: starts as string[] })).toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining(message),
      }),
    );
  });

  it('are none for rules of order, whose states are what has succeeded', () => {
    const options = { starts: ['pay'] } as object;
    expect(() => StateMachineGate.fromOrder({ pay: { after: 'cart' } }, options)).toThrow(
      'unknown key "starts"',
    );
  });

  it('are where proofs and checks start, each of them', () => {
    const open = shopGate({});
    const gate = shopGate();
    expect(precedes(open, 'cart.checkout', 'cart.pay')).toEqual({ holds: true });
    expect(precedes(gate, 'cart.checkout', 'cart.pay')).toMatchObject({
      holds: false,
      isCertain: true,
      counterExample: [{ tool: 'cart.pay', from: 'payment' }],
    });
    expect(precedes(shopGate({ starts: ['has_items'] }), 'cart.checkout', 'cart.pay')).toEqual({
      holds: true,
    });
    // The time of such a state runs before any call.
    expect(precedes(gate, 'cart.pay', 'cart.checkout')).toMatchObject({ holds: false });
    expect(never(gate, 'cart.pay', { in: 'has_items' })).toEqual({ holds: true });
    expect(reaches(gate, 'payment')).toMatchObject({ holds: true, example: [] });
  });

  it('count as reached in checks', () => {
    const machine = {
      initial: 'a',
      states: { a: { on: { GO: 'end' } }, b: { on: { GO: 'end' } }, end: { type: 'final' } },
    } as const;
    const codes = (options: GateOptions) =>
      checkWorkflow(new StateMachineGate(machine, options)).map(({ place }) => place);
    expect(codes({})).toEqual(['b']);
    expect(codes({ starts: ['b'] })).toEqual([]);
  });
});

describe('a statechart that begins in a state of the app', () => {
  const machine = createMachine({
    id: 'order',
    initial: 'cart',
    entry: 'opened',
    context: { vip: false },
    states: {
      cart: { entry: 'greet', on: { PLACE: 'placed' } },
      placed: {
        entry: 'note',
        type: 'parallel',
        states: {
          'bill.ing': {
            initial: 'due',
            states: { due: { on: { PAID: 'paid' } }, paid: { type: 'final' } },
          },
          packing: { initial: 'started', states: { started: { on: { PACK: 'done' } }, done: {} } },
        },
        onDone: 'closed',
      },
      sorted: { always: { target: 'lounge' }, on: { PLACE: 'placed' } },
      lounge: { on: { PLACE: 'placed' } },
      closed: { type: 'final' },
    },
  });
  const done: FsmAction[] = [];
  const gateOf = (starts: readonly string[]) =>
    new StateMachineGate(machine, { starts, onAction: (action) => void done.push(action) })
      .bindTool('place', ['cart', 'lounge'], 'PLACE')
      .bindTool('pay', 'placed.bill\\.ing.due', 'PAID')
      .bindTool('pack', 'placed.packing.started', 'PACK');

  it.each([
    ['a path', 'placed', 'placed.(bill\\.ing.due|packing.started)'],
    ['a path in one region', 'placed.packing.done', 'placed.(bill\\.ing.due|packing.done)'],
    [
      'the text of all active states',
      'placed.(bill\\.ing.due|packing.done)',
      'placed.(bill\\.ing.due|packing.done)',
    ],
  ])('takes %s, and does no action of entering it', async (_, asked, state) => {
    done.length = 0;
    const t = testGate(gateOf([asked]), { gate: { begin: () => beginIn(asked, { vip: true }) } });
    onTestFinished(() => t.close());
    expect((await t.call('place')).refusal).toMatchObject({ reason: 'state', state });
    expect((await t.call('pay')).outcome).toBe('ok');
    expect((await t.history())[0]).toMatchObject({ from: state, to: state, event: 'begin' });
    expect(await t.context()).toEqual({ vip: true });
    expect(done).toEqual([]);
  });

  it('takes its "always" transitions as it begins', async () => {
    const t = testGate(gateOf(['sorted']), { gate: { begin: () => beginIn('sorted') } });
    onTestFinished(() => t.close());
    expect(await t.list()).toEqual(['place']);
    await t.call('place');
    expect((await t.history())[0]).toMatchObject({ from: 'lounge', event: 'begin' });
    expect(await t.context()).toEqual({ vip: false });
    expect(reaches(gateOf(['sorted']), 'lounge').holds).toBe(true);
    expect(reaches(gateOf([]), 'lounge').holds).toBe(false);
  });

  it('is proved from each state in which it may begin', () => {
    expect(precedes(gateOf([]), 'place', 'pay')).toMatchObject({ holds: true });
    expect(precedes(gateOf(['placed.packing.done']), 'place', 'pay')).toMatchObject({
      holds: false,
      counterExample: [{ tool: 'pay', from: 'placed.(bill\\.ing.due|packing.done)' }],
    });
    expect(() => gateOf(['placed.packin'])).toThrow('did you mean "placed.packing"?');
    expect(() => gateOf(['closed'])).toThrow('"closed" is final');
  });
});

it('tells clients of lists that only "begin" knows, as a run ends and is to begin anew', async () => {
  const gate = new StateMachineGate(
    {
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { ADD_ITEM: 'end' } },
        other: { on: { ADD_ITEM: 'end', PAY: 'end' } },
        end: { type: 'final' },
      },
    },
    { starts: ['other'] },
  )
    .bindTool('cart.add_item', ['empty', 'other'], 'ADD_ITEM')
    .bindTool('cart.pay', 'other', 'PAY');
  let isOther = false;
  const app = await scene({
    workflow: gate,
    session: { key: principalKey() },
    gate: { begin: () => (isOther ? beginIn('other') : undefined) },
  });
  const ann = await app.client('ann');
  await ann.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
  await app.runs.begin(ANN, { data: 'as listed' });
  await ann.isTold(1);
  isOther = true;
  // The end is shown as the initial state, which has the same tools: only `begin` has others.
  await ann.calls('cart.add_item');
  await ann.isTold(2);
  await ann.sees(['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']);
});
