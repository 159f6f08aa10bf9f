import { describe, expect, it } from 'vitest';
import { Events } from '../../src/basics/events.ts';
import {
  type FsmGateOptions,
  memoryStore,
  StateMachineGate,
  tool,
  UnknownOutcome,
} from '../../src/index.ts';
import { Moves } from '../../src/step/outcome.ts';
import { NO_REQUEST, Step } from '../../src/step/step.ts';
import { guardStore } from '../../src/step/store-calls.ts';
import { Turns } from '../../src/step/turns.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { callOf, RawSession, reasonOf, type WireMessage } from '../helpers/raw.ts';
import { begins, pass, passUntil, type SceneOptions, scene, settle } from '../helpers/scene.ts';

const HOUR = 3_600_000;
const TIMES = { waitMs: 10_000, leaseMs: 9_000, maxStepMs: 60_000, cancelGraceMs: 5_000 };
const ADD = 'cart.add_item';

/** A session of a checkout, in a process that serves it. */
async function checkout(gate: FsmGateOptions = {}, beside?: SceneOptions['beside']) {
  const app = await scene({
    shape: { mode: 'stateless', answers: 'json' },
    gate: { ...TIMES, ...gate },
    ...(beside && { beside }),
  });
  const session = await app.session();
  app.store.take();
  return {
    ...app,
    session,
    cart: app.run(session.id),
    /** A call whose handler is at work. */
    adding: () => begins(app, ADD, () => session.call(ADD)),
    unknown: () => app.errors.filter((error) => error instanceof UnknownOutcome),
  };
}

/** Two processes of one checkout: the other one runs a handler, the test is in this one. */
async function twoProcesses(gate: FsmGateOptions = {}) {
  const elsewhere = await checkout(gate);
  const app = await checkout(gate, elsewhere);
  const session = RawSession.resume(app.url, elsewhere.session.id);
  // From now on the process knows the session, and does not read it for five seconds.
  await session.call('cart.view');
  app.store.take();
  return {
    ...app,
    session,
    cart: app.run(session.id),
    elsewhere,
    adding: await elsewhere.adding(),
  };
}

/** The answers so far. */
function answersOf(calls: readonly Promise<WireMessage>[]): WireMessage[] {
  const answers: WireMessage[] = [];
  for (const call of calls) void call.then((answer) => answers.push(answer));
  return answers;
}

const textOf = (message: WireMessage) => message.result?.content?.[0]?.text;

describe('a claim', () => {
  it('is not granted in a state that forbids the step, and holds up no other call', async () => {
    const { session } = await checkout();
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    expect(textOf(await session.call(ADD))).toBe(`${ADD} done`);
  });

  it('is not granted for a run that another process ended', async () => {
    const { session, data, ledger } = await checkout();
    await data.delete(session.id);
    expect((await session.post(callOf(1, ADD))).status).toBe(404);
    expect(ledger.calls).toEqual([]);
  });

  it('of another process is waited for with pauses, and had soon after its release', async () => {
    const { session, clock, store, adding } = await twoProcesses();
    const waiting = session.call(ADD);
    await expect.poll(() => store.asked).toContain('claim');
    await pass(clock, 5_000, 10);
    const asked = store.times('claim');
    expect(asked).toBeGreaterThan(15);
    expect(asked).toBeLessThan(60);
    adding.finish();
    await adding.answer;
    await pass(clock, 260, 10);
    expect(textOf(await waiting)).toBe(`${ADD} done`);
  });

  it('of another process is waited for no longer than waitMs', async () => {
    const { session, clock, store, cart, adding } = await twoProcesses();
    const answers = answersOf([session.call(ADD)]);
    await expect.poll(() => store.asked).toContain('claim');
    await pass(clock, 9_500);
    expect(answers).toEqual([]);
    await pass(clock, 1_000);
    await expect.poll(() => answers.map(reasonOf)).toEqual(['busy']);
    await cart.is('running');
    adding.finish();
    expect(textOf(await adding.answer)).toBe(`${ADD} done`);
  });

  it('of another process is waited for by maxWaiting calls, with the one in turn', async () => {
    const { session, clock, adding } = await twoProcesses({ maxWaiting: 2 });
    const answers = answersOf([session.call(ADD), session.call(ADD), session.call(ADD)]);
    await expect.poll(() => answers.map(reasonOf)).toEqual(['busy']);
    await pass(clock, TIMES.waitMs + 500);
    await expect.poll(() => answers).toHaveLength(3);
    adding.finish();
  });

  it('of another process is not waited for where maxWaiting is 0', async () => {
    const { session, adding } = await twoProcesses({ maxWaiting: 0 });
    expect(reasonOf(await session.call(ADD))).toBe('busy');
    adding.finish();
  });

  it('of a process that died holds the run: its outcome is unknown, its tool named', async () => {
    const { session, clock, store, cart, elsewhere } = await twoProcesses();
    elsewhere.store.fail('renew');
    const waiting = session.call('cart.checkout');
    await expect.poll(() => store.asked).toContain('claim');
    await pass(clock, TIMES.leaseMs + 500);
    const refused = await waiting;
    expect(reasonOf(refused)).toBe('held');
    expect(textOf(refused)).toContain(ADD);
    await cart.is('held');
  });

  it('is released where its call was cancelled while the store was asked', async () => {
    const { session, store, ledger } = await checkout();
    store.fail('claim', 1, 'late');
    session.post(callOf(7, ADD)).catch(() => {});
    await expect.poll(() => store.late).toHaveLength(1);
    const params = { requestId: 7 };
    await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params });
    store.late.shift()?.();
    const asked = (): string[] => store.asked.filter((each) => each !== 'readSwitch');
    await expect.poll(asked).toEqual(['claim', 'release']);
    const { messages } = await session.post(callOf(7, ADD));
    expect(messages.map(textOf)).toEqual([`${ADD} done`]);
    expect(ledger.calls).toEqual([ADD]);
  });

  it('is not asked for by a call that was cancelled while it waited for its turn', async () => {
    const { session, store, ledger, adding } = await checkout();
    const first = await adding();
    session.post(callOf(7, ADD)).catch(() => {});
    await settle();
    const params = { requestId: 7 };
    await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params });
    first.finish();
    await first.answer;
    await settle();
    expect(store.take()).toEqual(['claim', 'commit']);
    expect(ledger.calls).toEqual([ADD]);
  });

  it('that cannot be released at once is released later', async () => {
    const { session, clock, store, errors } = await checkout();
    store.fail('claim', 1, 'done');
    store.fail('release', 3);
    expect(reasonOf(await session.call(ADD))).toBe('unavailable');
    expect(errors.length).toBeGreaterThan(0);
    await pass(clock, 2_000);
    expect(store.take()).toEqual(['claim', 'release', 'release', 'release', 'release']);
    expect(textOf(await session.call(ADD))).toBe(`${ADD} done`);
  });
});

describe('a step', () => {
  it('renews its lease at each third of it, until it ends', async () => {
    const { clock, store, adding } = await checkout({ maxStepMs: HOUR });
    const call = await adding();
    store.take();
    await pass(clock, 10 * TIMES.leaseMs);
    expect(store.times('renew')).toBeGreaterThanOrEqual(29);
    store.take();
    call.finish();
    expect(textOf(await call.answer)).toBe(`${ADD} done`);
    await pass(clock, 2 * HOUR, TIMES.leaseMs);
    expect(store.take()).toEqual(['commit']);
  });

  it('goes on renewing after a renewal that failed or hung, and tells onError', async () => {
    const { clock, store, errors, cart, adding } = await checkout();
    const call = await adding();
    store.fail('renew', 1);
    await pass(clock, 4_000);
    store.fail('renew', 1, 'hang');
    await pass(clock, 4_500);
    expect(errors).toHaveLength(2);
    await pass(clock, TIMES.leaseMs);
    await cart.is('running');
    call.finish();
    expect(textOf(await call.answer)).toBe(`${ADD} done`);
  });

  it('is given up on once, if it has not ended after maxStepMs', async () => {
    const { session, clock, unknown, adding } = await checkout();
    expect(textOf(await session.call(ADD))).toBe(`${ADD} done`);
    await pass(clock, 2 * TIMES.maxStepMs);
    const call = await adding();
    await pass(clock, TIMES.maxStepMs - 1);
    expect(unknown()).toEqual([]);
    await pass(clock, 1);
    expect(textOf(await call.answer)).toContain('its outcome is unknown');
    await pass(clock, 2 * TIMES.maxStepMs);
    expect(unknown()).toHaveLength(1);
    call.finish();
  });

  it.each([
    ['commit', {}, undefined, 'payment'],
    ['release', { fail: true }, 'state', 'empty'],
  ])('lets the next call of its process in with %s', async (_, args, refused, state) => {
    const { session, cart, ...app } = await checkout();
    const first = await begins(app, ADD, () => session.call(ADD, args));
    const next = session.call('cart.checkout');
    first.finish();
    await first.answer;
    expect(reasonOf(await next)).toBe(refused);
    await cart.isIn(state);
  });

  it('gives its turn to the next call once given up on: that is refused as held', async () => {
    const { session, clock, cart, adding } = await checkout({ waitMs: 2 * HOUR });
    const first = await adding();
    const next = session.call(ADD);
    await pass(clock, TIMES.maxStepMs + TIMES.leaseMs + 500);
    expect(reasonOf(await next)).toBe('held');
    await cart.is('held');
    first.finish();
  });

  it('whose commit failed each time can be saved later', async () => {
    const { session, clock, store, cart } = await checkout();
    store.fail('commit');
    const told = await passUntil(clock, session.call(ADD));
    expect(textOf(told)).toContain('its outcome could not be recorded');
    store.heal();
    await pass(clock, 2 * TIMES.leaseMs);
    await cart.isIn('has_items');
    await cart.is('idle');
    expect(await cart.moves()).toEqual([ADD]);
  });

  it('gives its turn to the next call though its commit failed each time', async () => {
    const { session, clock, store, adding } = await checkout();
    const first = await adding();
    const next = session.call(ADD);
    store.fail('commit');
    first.finish();
    expect(textOf(await passUntil(clock, first.answer))).toContain('could not be recorded');
    expect(reasonOf(await passUntil(clock, next))).toMatch(/held|busy/);
  });
});

/** A step as the gate holds it: from outside nothing shows which of its endings counts. */
async function claimed() {
  const clock = new ManualClock();
  const store = new FaultyStore(memoryStore({ now: clock.now }));
  await store.open('run', {}, HOUR);
  let tooLong = 0;
  const gate = new StateMachineGate({
    id: 'shop',
    initial: 'open',
    states: { open: { on: { PAY: 'paid' } }, paid: {} },
  });
  gate.bind(tool('cart.pay').bindState('open', 'PAY'));
  const workflow = gate.compile();
  const onError = (): void => {};
  const step = new Step(
    {
      workflow,
      whenEnded: undefined,
      times: TIMES,
      waiting: undefined,
      clock,
      events: new Events({ onError }),
      onError,
    },
    {
      run: 'run',
      store: guardStore(store, 2_000, clock, new Events({})),
      ttlMs: HOUR,
      turns: new Turns(clock),
      create: undefined,
    },
    {
      description: { tool: 'cart.pay', digest: '', uncertain: 'hold' },
      note: { tool: 'cart.pay' },
      request: NO_REQUEST,
      onTooLong: () => void tooLong++,
    },
  );
  expect(await step.claim(['open'])).toBeUndefined();
  const binding = workflow.matchAlways('cart.pay');
  if (binding === undefined) throw new Error('the tool was to be bound');
  const origin = { tool: 'cart.pay', args: {}, note: { tool: 'cart.pay' }, isFirst: true };
  step.moves = new Moves({ workflow, clock }, binding, workflow.start, origin);
  step.forward();
  store.take();
  const pays = () =>
    step.settle({ kind: 'succeeded', result: {}, error: undefined }, () => {}, false);
  return { clock, store, step, pays, tooLong: () => tooLong };
}

describe('the end of a step', () => {
  it.each([
    ['its success', 'saved', 'settled'],
    ['its release', 'released', 'unsaved'],
  ] as const)('comes once: whatever follows %s changes nothing', async (first, state, then) => {
    const { clock, store, step, pays, tooLong } = await claimed();
    if (first === 'its success') await pays();
    else await step.release();
    expect([step.state, step.canSettle]).toEqual([state, false]);
    store.take();
    await step.release();
    step.giveUp();
    expect(await pays()).toBe(then);
    await pass(clock, HOUR, TIMES.leaseMs);
    expect([store.take(), step.state, tooLong()]).toEqual([[], state, 0]);
  });

  it('may come after it was given up on', async () => {
    const { clock, store, step, pays } = await claimed();
    step.giveUp();
    expect(step.state).toBe('unsettled');
    await pass(clock, HOUR / 2, TIMES.leaseMs);
    expect(store.take()).toEqual([]);
    expect(await pays()).toBe('settled');
    expect(step.state).toBe('saved');
  });

  it('is waited for until maxStepMs is over, where its answer may still come', async () => {
    for (const ending of ['answer', 'time', 'nothing'] as const) {
      const { clock, step, pays, tooLong } = await claimed();
      step.giveUp(true);
      if (ending === 'answer') await pays();
      if (ending === 'nothing') step.giveUp();
      await pass(clock, HOUR / 2, TIMES.leaseMs);
      expect(tooLong(), ending).toBe(ending === 'time' ? 1 : 0);
    }
  });
});
