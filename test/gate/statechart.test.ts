import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { createMachine } from 'xstate';
import {
  type GateOptions,
  type GuardedCall,
  memoryStore,
  runsOf,
  StateMachineGate,
} from '../../src/index.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { latch } from '../helpers/latch.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { orderGate, startOrderApp } from '../helpers/order-app.ts';
import { RawSession } from '../helpers/raw.ts';
import type { Upstream } from '../helpers/upstream.ts';

interface App {
  readonly upstream: Upstream;
  readonly client: TestClient;
}

const clock = new ManualClock();
let store: FaultyStore;
let errors: unknown[];

beforeEach(() => {
  store = new FaultyStore(memoryStore({ now: clock.now }));
  errors = [];
});

/** Serves the order behind a gate, in front of one and the same store. */
async function start(gate: StateMachineGate): Promise<App> {
  const upstream = await startOrderApp(gate, store, {
    clock,
    onError: (error) => void errors.push(error),
  });
  const client = await connect(upstream.url);
  onTestFinished(async () => {
    await client.close();
    await upstream.close();
  });
  store.take();
  return { upstream, client };
}

const positionOf = async (gate: StateMachineGate, { client }: App) =>
  (await runsOf(gate, { store }).read(String(client.transport.sessionId)))?.snapshot;

describe('a mounted statechart', () => {
  it('shows the tools of all active states and refuses the others, in parallel regions too', async () => {
    const gate = orderGate();
    const app = await start(gate);
    const { client } = app;
    expect(await client.tools()).toEqual(['add', 'place', 'look']);
    await client.call('add', { sum: 5 });
    expect((await client.call('place')).texts[1]).toBe(
      '[System: order is now in "placed.(billing.due|packing.waiting)". Available now: pay, pack, pause.]',
    );
    expect(await client.tools()).toEqual(['pay', 'pack', 'pause', 'look']);
    await client.call('pack');
    expect(await client.tools()).toEqual(['pay', 'pause', 'look']);
    const refused = await client.call('pack');
    expect(refused.text).toBe(
      '[System: pack is not available while order is in "placed.(billing.due|packing.packed)". Available now: pay, pause.]',
    );
    await client.call('pay', { sum: 2 });
    expect(await positionOf(gate, app)).toMatchObject({
      state: 'placed.(billing.due|packing.packed)',
      context: { data: { total: 5, paid: 2 } },
    });
    await client.call('pay', { sum: 3 });
    expect(await positionOf(gate, app)).toMatchObject({ state: 'shipped', version: 5 });
    expect(await client.tools()).toEqual(['look']);
    expect(app.upstream.ledger.calls).toEqual(['add', 'place', 'pack', 'pay', 'pay']);
    expect(errors).toEqual([]);
  });

  it('refuses a call before it runs, where its guards say no to the event that the call would send', async () => {
    const gate = orderGate();
    const app = await start(gate);
    const refused = await app.client.call('place');
    expect(refused.text).toBe(
      '[System: This call of place was refused while order is in "cart": a condition for it is not met. Available now: add, place.]',
    );
    expect(refused.meta).toMatchObject({ 'mcp-interlock/refusal': { reason: 'guard' } });
    expect(store.take()).toEqual(['claim', 'release']);
    expect(await positionOf(gate, app)).toMatchObject({ state: 'cart', version: 0 });
    expect(await app.client.tools()).toContain('place');
    await app.client.call('add', { sum: 1 });
    expect((await app.client.call('place')).isError).toBe(false);
    expect(app.upstream.ledger.calls).toEqual(['add', 'place']);
    expect(errors).toEqual([]);
  });

  it('takes two round trips for a step, and one more for a refusal, since its states cannot be listed', async () => {
    const { client } = await start(orderGate());
    await client.call('add', { sum: 1 });
    expect(store.take()).toEqual(['claim', 'commit']);
    await client.call('pack');
    expect(store.take()).toEqual(['claim', 'release']);
    await client.tools();
    expect(store.take()).toEqual(['read']);
  });

  it('gives its actions to onAction after the commit, with the run they are of', async () => {
    const told: unknown[] = [];
    const gate = orderGate({
      onAction: (action, { run, workflow, event, from, to, context }) => {
        told.push({
          action,
          run,
          workflow,
          event,
          from,
          to,
          context,
          committed: store.asked.includes('commit'),
        });
      },
    });
    const { client } = await start(gate);
    await client.call('add', { sum: 1 });
    await client.call('place');
    store.take();
    expect((await client.call('pay', { fail: true })).isError).toBe(true);
    const state = 'placed.(billing.due|packing.waiting)';
    expect(told).toEqual([
      {
        action: { type: 'warn', params: { days: 3 } },
        run: client.transport.sessionId,
        workflow: 'order',
        event: 'DECLINED',
        from: state,
        to: state,
        context: { total: 1, paid: 0 },
        committed: true,
      },
    ]);
  });

  it('commits the call without a move where its own code fails, and says so: the tool ran', async () => {
    const gate = orderGate();
    const app = await start(gate);
    expect((await app.client.call('add')).isError).toBe(false);
    expect(String(errors)).toContain('NaN');
    expect(await positionOf(gate, app)).toMatchObject({ state: 'cart', version: 1 });
  });
});

describe("a machine's guards", () => {
  /** What each guard was asked about, in order. */
  let asked: unknown[];
  let answer: () => boolean;

  beforeEach(() => {
    asked = [];
    answer = () => false;
  });

  const machine = () =>
    createMachine({
      id: 'desk',
      context: { total: 3 },
      initial: 'open',
      states: {
        open: {
          on: {
            PLACE: {
              target: 'placed',
              guard: ({ context, event }) => {
                asked.push({ context, event });
                return answer();
              },
            },
          },
        },
        placed: {},
      },
    });

  it('are asked with the data as they are before the call, and with an event that has nothing but its name', async () => {
    const gate = new StateMachineGate(machine()).bindTool('place', 'open', 'PLACE');
    const { client } = await start(gate as StateMachineGate);
    asked.length = 0;
    expect((await client.call('place', { sum: 7 })).isError).toBe(true);
    expect(asked).toEqual([{ context: { total: 3 }, event: { type: 'PLACE' } }]);
  });

  it('refuse where they throw, which is told to the developer alone', async () => {
    answer = () => {
      throw new Error('secret of the guard');
    };
    const gate = new StateMachineGate(machine()).bindTool('place', 'open', 'PLACE');
    const { client, upstream } = await start(gate as StateMachineGate);
    const refused = await client.call('place');
    expect(refused.meta).toMatchObject({ 'mcp-interlock/refusal': { reason: 'guard' } });
    expect(refused.text).not.toContain('secret');
    expect(String(errors)).toContain('secret of the guard');
    expect(store.take()).toEqual(['claim', 'release']);
    answer = () => true;
    expect((await client.call('place')).isError).toBe(false);
    expect(upstream.ledger.calls).toEqual(['place']);
  });

  it('are asked before those of the binding, which may cost something', async () => {
    let bindingAsked = 0;
    const guard = (): boolean => {
      bindingAsked++;
      return true;
    };
    const gate = new StateMachineGate(machine()).bindTool('place', 'open', {
      success: 'PLACE',
      guard,
    });
    const { client } = await start(gate as StateMachineGate);
    asked.length = 0;
    await client.call('place');
    expect([asked.length, bindingAsked]).toEqual([1, 0]);
    answer = () => true;
    await client.call('place');
    expect(bindingAsked).toBe(1);
  });

  it('are asked after a call whose result says which event it sends: it is saved without a move', async () => {
    const gate = new StateMachineGate(machine()).bindTool('place', 'open', {
      success: () => 'PLACE',
    });
    const app = await start(gate as StateMachineGate);
    expect((await app.client.call('place')).isError).toBe(false);
    expect(app.upstream.ledger.calls).toEqual(['place']);
    expect(await positionOf(gate as StateMachineGate, app)).toMatchObject({
      state: 'open',
      version: 1,
    });
  });

  it('have no say in an event that the state does not handle at all', async () => {
    const gate = new StateMachineGate(machine()).bindTool('place', ['open', 'placed'], 'PLACE');
    const { client, upstream } = await start(gate as StateMachineGate);
    answer = () => true;
    expect((await client.call('place')).isError).toBe(false);
    answer = () => false;
    expect((await client.call('place')).isError).toBe(false);
    expect(upstream.ledger.calls).toEqual(['place', 'place']);
  });
});

describe('guards of bindings', () => {
  const guarded = (guard: (call: GuardedCall) => Promise<boolean | string>) =>
    new StateMachineGate({
      id: 'booking',
      initial: 'open',
      states: { open: { on: { PLACE: 'placed' } }, placed: {} },
    })
      .bindTool('place', 'open', { success: 'PLACE', guard })
      .bindTool('look', 'open', { guard });

  it('are asked before a call is forwarded, and refuse it in their own words', async () => {
    const asked: GuardedCall[] = [];
    let isTaken = true;
    const gate = guarded(async (call) => {
      asked.push(call);
      return isTaken ? 'The slot is taken' : true;
    });
    const { client, upstream } = await start(gate);
    const refused = await client.call('place', { sum: 7 });
    expect(refused.text).toBe(
      '[System: This call of place was refused while booking is in "open": The slot is taken. Available now: place, look.]',
    );
    expect(refused.meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'guard', state: 'open' },
    });
    expect(store.take()).toEqual(['claim', 'release']);
    expect((await client.call('look')).meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'guard' },
    });
    expect(upstream.ledger.calls).toEqual([]);
    isTaken = false;
    expect((await client.call('look')).isError).toBe(false);
    expect((await client.call('place')).isError).toBe(false);
    expect(asked[0]).toEqual({
      run: client.transport.sessionId,
      tool: 'place',
      args: { sum: 7 },
      principal: undefined,
      state: 'open',
      context: undefined,
    });
  });

  it('may take their time: a call that is cancelled meanwhile is never forwarded, and its run is free', async () => {
    const waiting = latch();
    let asked = 0;
    const gate = guarded(async () => {
      asked++;
      if (asked === 1) await waiting.opened;
      return true;
    });
    const { client, upstream } = await start(gate);
    const abort = new AbortController();
    const call = client.client.callTool({ name: 'place', arguments: {} }, undefined, {
      signal: abort.signal,
    });
    const aborted = expect(call).rejects.toThrow();
    await expect.poll(() => asked).toBe(1);
    abort.abort();
    await aborted;
    await expect.poll(() => store.asked.length).toBeGreaterThan(0);
    expect((await client.call('look')).isError).toBe(false);
    waiting.open();
    await expect.poll(() => store.asked).toContain('release');
    expect(upstream.ledger.calls).toEqual(['look']);
    expect((await client.call('place')).isError).toBe(false);
  });

  it('that take too long refuse, and the run is free again', async () => {
    const waiting = latch();
    let calls = 0;
    const gate = guarded(async () => {
      calls++;
      if (calls === 1) await waiting.opened;
      return true;
    });
    const { client } = await start(gate);
    const call = client.call('place');
    await expect.poll(() => calls).toBe(1);
    clock.advance(5_000);
    expect((await call).meta).toMatchObject({ 'mcp-interlock/refusal': { reason: 'guard' } });
    expect(String(errors)).toContain('took longer than 5000 ms');
    waiting.open();
    expect((await client.call('place')).isError).toBe(false);
  });
});

describe('a run over deployments', () => {
  const flat = (states: Record<string, { on?: Record<string, string> }>, options?: GateOptions) =>
    new StateMachineGate<string, string>({ id: 'order', initial: 'open', states }, options);

  /** A new process with another gate takes over the run of a client. */
  async function deploy(gate: StateMachineGate, { client }: App): Promise<RawSession> {
    const { upstream } = await start(gate);
    return RawSession.resume(upstream.url, String(client.transport.sessionId));
  }

  const first = () =>
    flat({ open: { on: { PLACE: 'payment' } }, payment: {} }).bindTool('place', 'open', 'PLACE');
  const second = (options?: GateOptions) =>
    flat(
      { open: { on: { PLACE: 'checkout' } }, checkout: { on: { PAID: 'done' } }, done: {} },
      options,
    )
      .bindTool('place', 'open', 'PLACE')
      .bindTool('pay', 'checkout', 'PAID');

  it('whose state is no more is refused and never reset, until somebody says where it stands now', async () => {
    const app = await start(first());
    await app.client.call('place');
    const refusing = await deploy(second(), app);
    expect((await refusing.call('pay')).result.isError).toBe(true);
    expect(await refusing.tools()).toEqual(['add', 'pack', 'pause', 'resume', 'look']);
    expect(String(errors)).toContain('"payment", a state that "order" does not have');

    errors.length = 0;
    const seen: unknown[] = [];
    const gate = second({
      version: 2,
      migrate: (stored) => {
        seen.push(stored);
        return { state: stored.state === 'payment' ? 'checkout' : stored.state };
      },
    });
    const migrated = await deploy(gate, app);
    expect(await migrated.tools()).toEqual(['add', 'pay', 'pack', 'pause', 'resume', 'look']);
    expect((await migrated.call('pay')).result.isError).toBe(false);
    expect(seen[0]).toEqual({ state: 'payment', context: undefined, version: 0 });
    expect(errors).toEqual([]);
    const stored = await store.read(String(app.client.transport.sessionId), 1000);
    expect(stored?.workflows.order?.snapshot).toMatchObject({
      state: 'done',
      version: 2,
      context: { version: 2 },
    });

    const older = await deploy(second(), app);
    expect((await older.call('pay')).result.isError).toBe(true);
    expect(String(errors)).toContain('was saved by version 2');
  });
});
