import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  currentStep,
  fsmGate,
  InterlockError,
  localBus,
  memoryStore,
  principalKey,
  type RunsOptions,
  runsOf,
  type SessionMiddleware,
  StateMachineGate,
  sessionKey,
  sessionStore,
} from '../src/index.ts';
import { connect, type TestClient } from './helpers/client.ts';
import { latch } from './helpers/latch.ts';
import { startUpstream, type Upstream } from './helpers/upstream.ts';

/** An order over a limit waits for somebody who approves it. */
function orderGate() {
  return new StateMachineGate({
    id: 'order',
    initial: 'cart',
    states: {
      cart: { on: { SUBMIT: 'waiting' } },
      waiting: { on: { APPROVE: 'approved', REJECT: 'cart' } },
      approved: { on: { PAY: 'paid' } },
      paid: { type: 'final' },
    },
  })
    .bindTool('cart.add_item', 'cart', 'SUBMIT')
    .bindTool('cart.pay', 'approved', 'PAY');
}

const closing: (() => unknown)[] = [];
let gate: ReturnType<typeof orderGate>;
let store: ReturnType<typeof memoryStore>;
let sessions: SessionMiddleware;
let upstream: Upstream;
let client: TestClient;

beforeEach(async () => {
  gate = orderGate();
  store = memoryStore();
  await serve(sessionStore({ store }));
});

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function serve(
  middleware: SessionMiddleware,
  behind: Parameters<typeof startUpstream>[0] = {},
): Promise<void> {
  sessions = middleware;
  upstream = await startUpstream({ middlewares: [sessions, fsmGate(gate)], ...behind });
  client = await connect(upstream.url);
  closing.push(upstream.close, () => client.close());
}

const run = (): string => client.transport.sessionId ?? '';

describe('send()', () => {
  it('moves a run as a step does, and has its client told', async () => {
    await client.streaming;
    await client.call('cart.add_item');
    const heard = client.log.filter((each) => each === 'list_changed').length;
    const runs = runsOf(gate, { sessions });
    const moves: unknown[] = [];
    gate.onTransition(
      ({ run: moved, currentState, event }) => void moves.push([moved, currentState, event]),
    );
    expect(
      await runs.send(run(), 'APPROVE', { actor: 'manager', payload: { note: 'fine' } }),
    ).toEqual({
      sent: true,
      changed: true,
      state: 'approved',
    });
    await vi.waitFor(() =>
      expect(client.log.filter((each) => each === 'list_changed')).toHaveLength(heard + 1),
    );
    expect(await client.tools()).toEqual(['cart.checkout', 'cart.pay', 'cart.view']);
    expect((await runs.history(run())).at(-1)).toMatchObject({
      version: 2,
      from: 'waiting',
      to: 'approved',
      event: 'APPROVE',
      actor: 'manager',
      payload: { note: 'fine' },
    });
    expect(moves).toEqual([[run(), 'approved', 'APPROVE']]);
  });

  it('does nothing where the state does not know the event, or nobody knows the run', async () => {
    const runs = runsOf(gate, { store });
    expect(await runs.send(run(), 'APPROVE')).toEqual({ sent: false, reason: 'unhandled' });
    expect(await runs.send('nobody', 'APPROVE')).toEqual({ sent: false, reason: 'unknown-run' });
    expect(await runs.history(run())).toEqual([]);
  });

  it('waits for the step that is under way', async () => {
    const gated = latch();
    upstream.ledger.gates.set('cart.add_item', gated.opened);
    const step = client.call('cart.add_item');
    await vi.waitFor(() => expect(upstream.ledger.calls).toEqual(['cart.add_item']));
    const sent = runsOf(gate, { sessions }).send(run(), 'APPROVE');
    gated.open();
    await step;
    expect(await sent).toMatchObject({ sent: true, state: 'approved' });
  });

  it('of several at a time lets one through', async () => {
    await client.call('cart.add_item');
    const others = [runsOf(gate, { sessions }), runsOf(gate, { store })];
    const sent = await Promise.all(
      others.flatMap((runs) => [runs.send(run(), 'APPROVE'), runs.send(run(), 'REJECT')]),
    );
    expect(sent.filter((each) => each.sent)).toHaveLength(1);
  });

  it('reaches a client whose stream is in another process', async () => {
    const bus = localBus();
    await serve(sessionStore({ store, bus }));
    await client.streaming;
    await client.call('cart.add_item');
    const heard = client.log.length;
    const elsewhere = sessionStore({ store, bus });
    closing.push(() => elsewhere.close());
    await runsOf(orderGate(), { sessions: elsewhere }).send(run(), 'APPROVE');
    await vi.waitFor(() => expect(client.log.slice(heard)).toEqual(['list_changed']));
  });

  it('tells nobody where the gate shows the same list in every state', async () => {
    const stable = new StateMachineGate({
      id: 'stable',
      initial: 'a',
      states: { a: { on: { GO: 'b' } }, b: {} },
    }).bindTool('cart.view', 'b');
    const middlewares = [sessions, fsmGate(stable, { visibility: 'stable' }), fsmGate(gate)];
    const other = await startUpstream({ middlewares });
    const viewer = await connect(other.url);
    closing.push(other.close, () => viewer.close());
    await viewer.streaming;
    const viewed = viewer.transport.sessionId ?? '';
    expect(await runsOf(stable, { sessions }).send(viewed, 'GO')).toMatchObject({
      sent: true,
      changed: true,
    });
    await runsOf(gate, { sessions }).send(viewed, 'SUBMIT');
    await vi.waitFor(() => expect(viewer.log).toContain('list_changed'));
    expect(viewer.log).toEqual(['list_changed']);
  });

  it('tells each session of a principal whose run it is', async () => {
    await serve(
      sessionStore({ store, key: [principalKey(), sessionKey()], principal: () => 'ann' }),
    );
    await client.streaming;
    await client.call('cart.add_item');
    const heard = client.log.length;
    await runsOf(gate, { sessions }).send(principalKey().runKey('ann'), 'APPROVE');
    await vi.waitFor(() => expect(client.log.slice(heard)).toEqual(['list_changed']));
  });

  it('is no way out of a step for its own handler', async () => {
    const runs = runsOf(gate, { sessions });
    let refused: unknown;
    await serve(sessions, {
      behind: [
        (_req, _res, next) => {
          const step = currentStep();
          if (step === undefined) return next();
          runs.send(step.run, 'APPROVE').catch((error: unknown) => {
            refused = error;
            next();
          });
        },
      ],
    });
    await client.call('cart.add_item');
    expect(String(refused)).toContain('inside of a step of the same run');
  });

  it('refuses a payload that is not JSON', async () => {
    const runs = runsOf(gate, { store });
    const circle: { self?: unknown } = {};
    circle.self = circle;
    for (const [payload, fault] of [
      [circle, 'send(): the payload.self contains itself'],
      [{ at: new Date(0) }, 'send(): the payload.at is a Date, which is not JSON'],
    ]) {
      const sent = runs.send(run(), 'APPROVE', { payload: payload as never });
      await expect(sent).rejects.toMatchObject({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining(fault as string),
      });
    }
  });

  it('refuses what is no event', async () => {
    const runs = runsOf(gate, { store });
    await expect(runs.send(run(), '' as 'APPROVE')).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_EVENT',
    });
  });
});

describe('update()', () => {
  it('changes the data of a run without a race, and keeps its state', async () => {
    const runs = runsOf(gate, { sessions });
    const add = () =>
      runs.update(run(), (context) => ({ seen: ((context as { seen?: number })?.seen ?? 0) + 1 }));
    await Promise.all([
      add(),
      add(),
      runsOf(gate, { store }).update(run(), (context) => context ?? {}),
      add(),
    ]);
    expect((await runs.read(run()))?.context).toEqual({ seen: 3 });
    expect((await runs.read(run()))?.snapshot.state).toBe('cart');
  });

  it('is kept across the moves of the run', async () => {
    const runs = runsOf(gate, { sessions });
    await runs.update(run(), () => ({ total: 7 }), { actor: 'job' });
    await client.call('cart.add_item');
    expect(await runs.read(run())).toMatchObject({
      context: { total: 7 },
      snapshot: { state: 'waiting' },
    });
    expect((await runs.history(run()))[0]).toMatchObject({ event: null, actor: 'job' });
  });

  it.each([
    ['moves the run', {}, 'waiting'],
    ['fails', { fail: true }, 'cart'],
  ])('takes part in a step that %s', async (_, args, state) => {
    const runs = runsOf(gate, { sessions });
    const seen: unknown[] = [];
    await serve(sessions, {
      behind: [
        (_req, _res, next) => {
          const step = currentStep();
          seen.push(step?.update(() => ({ total: 1 })));
          if (step !== undefined)
            void runs.update(step.run, (context) => ({ ...(context as object), more: true }));
          seen.push(step?.context);
          next();
        },
      ],
    });
    await client.call('cart.add_item', args);
    expect(await runs.read(run())).toMatchObject({
      context: { total: 1, more: true },
      snapshot: { state },
    });
    expect(await runs.history(run())).toHaveLength(1);
  });

  it('changes nothing where the change throws, or is no JSON', async () => {
    const runs = runsOf(gate, { store });
    await expect(
      runs.update(run(), () => {
        throw new Error('no');
      }),
    ).rejects.toThrow('no');
    await expect(runs.update(run(), () => (() => {}) as never)).rejects.toThrow();
    expect(await runs.update(run(), () => ({ free: true }))).toMatchObject({ updated: true });
    expect(await runs.update('nobody', () => 1)).toEqual({ updated: false, reason: 'unknown-run' });
  });
});

describe('what is wrong with a request', () => {
  const config = (message: string) => ({
    code: 'ERR_INTERLOCK_CONFIG',
    message: expect.stringContaining(message),
  });

  it('is said of an outcome, of which none but "failed" was failed once', async () => {
    const resolved = runsOf(gate, { store }).resolve(run(), 'failure' as 'failed');
    await expect(resolved).rejects.toMatchObject(
      config('resolve(): expected "succeeded" or "failed", got "failure"'),
    );
  });

  it('is said of an event to resolve by', async () => {
    const resolved = runsOf(gate, { store }).resolve(run(), 'succeeded', { event: '' as 'PAY' });
    await expect(resolved).rejects.toMatchObject({ code: 'ERR_INTERLOCK_EVENT' });
  });

  it('is said of its options', async () => {
    const runs = runsOf(gate, { store });
    const misspelt = { actr: 'mia' } as { actor?: string };
    const said = 'unknown key "actr", did you mean "actor"?';
    await expect(runs.send(run(), 'SUBMIT', misspelt)).rejects.toMatchObject(
      config(`send(): ${said}`),
    );
    await expect(runs.update(run(), () => 1, misspelt)).rejects.toMatchObject(
      config(`update(): ${said}`),
    );
    await expect(runs.resolve(run(), 'failed', misspelt)).rejects.toMatchObject(
      config(`resolve(): ${said}`),
    );
    await expect(runs.send(run(), 'SUBMIT', 'mia' as never)).rejects.toMatchObject(
      config('send(): expected object, got "mia"'),
    );
    expect(await runs.history(run())).toEqual([]);
  });

  it('is said of a change that is none', async () => {
    const updated = runsOf(gate, { store }).update(run(), { slot: 1 } as never);
    await expect(updated).rejects.toMatchObject(
      config('update(): expected a function, got an object'),
    );
  });

  it('is said of one run in the place of a list', async () => {
    const swept = runsOf(gate, { store }).sweep(run());
    await expect(swept).rejects.toMatchObject(config('sweep(): expected a list of runs, got "'));
  });

  it('is said of sessions in the place of the options', () => {
    expect(() => runsOf(gate, sessions as RunsOptions)).toThrow('give either { sessions }');
  });
});

it.each([
  [{}, 'either { sessions }'],
  [{ sessions: sessionStore(), store: memoryStore() }, 'either { sessions }'],
  [{ stroe: memoryStore() }, 'store'],
])('names what is wrong with its options', (options, message) => {
  const make = () => runsOf(orderGate(), options as RunsOptions);
  expect(make).toThrow(InterlockError);
  expect(make).toThrow(message);
});

it('keeps a run that is looked at for 24 hours more, where nothing else is said', async () => {
  const day = 24 * 60 * 60 * 1000;
  let time = 1_700_000_000_000;
  const kept = memoryStore({ now: () => time });
  await kept.open('order-1', {}, 1_000);
  const runs = runsOf(orderGate(), { store: kept });
  expect(await runs.read('order-1')).toBeDefined();
  time += day - 1;
  expect(await runs.read('order-1')).toBeDefined();
  time += day;
  expect(await runs.read('order-1')).toBeUndefined();
});
