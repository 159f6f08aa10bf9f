import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import { type GateOptions, type GuardedCall, StateMachineGate } from '../../src/index.ts';
import { latch } from '../helpers/latch.ts';
import { ORDER_APP, orderGate } from '../helpers/order-app.ts';
import { RawSession } from '../helpers/raw.ts';
import { type SceneOptions, scene } from '../helpers/scene.ts';

/** A client of the order behind that gate, in a process of its own beside another one. */
async function shop(workflow: StateMachineGate<string, string>, beside?: SceneOptions['beside']) {
  const app = await scene({ ...ORDER_APP, workflow, ...(beside && { beside }) });
  const client = await app.client();
  app.store.take();
  return {
    ...app,
    client,
    /** Where its run stands. */
    position: async () => (await app.runs.read(client.run))?.snapshot,
  };
}

describe('a mounted statechart', () => {
  it('shows the tools of all active states, also in parallel regions', async () => {
    const { client, ledger, errors, position } = await shop(orderGate());
    await client.sees(['add', 'place', 'look']);
    await client.calls('add', { sum: 5 });
    expect((await client.calls('place')).texts[1]).toBe(
      '[System: order is now in "placed.(billing.due|packing.waiting)". Available now: pay, ' +
        'pack, pause.]',
    );
    await client.sees(['pay', 'pack', 'pause', 'look']);
    await client.calls('pack');
    await client.sees(['pay', 'pause', 'look']);
    const refused = await client.isRefused('pack', 'state');
    expect(refused.text).toBe(
      '[System: pack is not available while order is in ' +
        '"placed.(billing.due|packing.packed)". Available now: pay, pause.]',
    );
    await client.calls('pay', { sum: 2 });
    expect(await position()).toMatchObject({
      state: 'placed.(billing.due|packing.packed)',
      context: { total: 5, paid: 2 },
    });
    await client.calls('pay', { sum: 3 });
    expect(await position()).toMatchObject({ state: 'shipped', version: 5 });
    await client.sees(['look']);
    expect(ledger.calls).toEqual(['add', 'place', 'pack', 'pay', 'pay']);
    expect(errors).toEqual([]);
  });

  it('refuses a call before it runs if its guards refuse the call’s event', async () => {
    const { client, store, ledger, errors, position } = await shop(orderGate());
    const refused = await client.isRefused('place', 'guard');
    expect(refused.text).toBe(
      '[System: This call of place was refused while order is in "cart": a condition for it ' +
        'is not met. Available now: add, place.]',
    );
    expect(store.take()).toEqual(['claim', 'release']);
    expect(await position()).toMatchObject({ state: 'cart', version: 0 });
    expect(await client.raw.tools()).toContain('place');
    await client.calls('add', { sum: 1 });
    await client.calls('place');
    expect(ledger.calls).toEqual(['add', 'place']);
    expect(errors).toEqual([]);
  });

  it('takes two round trips for a step, and one more for a refusal', async () => {
    const { client, store } = await shop(orderGate());
    await client.calls('add', { sum: 1 });
    expect(store.take()).toEqual(['claim', 'commit']);
    await client.isRefused('pack', 'state');
    expect(store.take()).toEqual(['claim', 'release']);
    await client.raw.tools();
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
    const { client, store } = await shop(gate);
    await client.calls('add', { sum: 1 });
    await client.calls('place');
    store.take();
    expect((await client.raw.call('pay', { fail: true })).isError).toBe(true);
    const state = 'placed.(billing.due|packing.waiting)';
    expect(told).toEqual([
      {
        action: { type: 'warn', params: { days: 3 } },
        run: client.run,
        workflow: 'order',
        event: 'DECLINED',
        from: state,
        to: state,
        context: { total: 1, paid: 0 },
        committed: true,
      },
    ]);
  });

  it('holds the run if its own code fails: the tool ran, and the move cannot be told', async () => {
    const { client, errors, position } = await shop(orderGate());
    expect((await client.raw.call('add')).texts[0]).toContain('add ran, but its outcome could not');
    expect(errors).toMatchObject([{ name: 'UnknownOutcome', cause: expect.anything() }]);
    expect(String((errors[0] as Error).cause)).toContain('NaN');
    expect(await position()).toMatchObject({ state: 'cart' });
    await client.isRefused('add', 'held', { price: 1 });
  });
});

describe("a machine's guards", () => {
  /** A desk whose only guard refuses until `guard.says` is changed. */
  function desk() {
    /** What the guard was asked, in order, and what it answers. */
    const guard = { asked: [] as unknown[], says: () => false };
    const machine = createMachine({
      id: 'desk',
      context: { total: 3 },
      initial: 'open',
      states: {
        open: {
          on: {
            PLACE: {
              target: 'placed',
              guard: ({ context, event }) => {
                guard.asked.push({ context, event });
                return guard.says();
              },
            },
          },
        },
        placed: {},
      },
    });
    return { guard, gate: () => new StateMachineGate(machine) };
  }

  it('are asked with the data before the call, and with the bare event', async () => {
    const { guard, gate } = desk();
    const { client } = await shop(gate().bindTool('place', 'open', 'PLACE'));
    guard.asked.length = 0;
    await client.isRefused('place', 'guard', { sum: 7 });
    expect(guard.asked).toEqual([{ context: { total: 3 }, event: { type: 'PLACE' } }]);
  });

  it('refuse where they throw, which is told to the developer alone', async () => {
    const { guard, gate } = desk();
    guard.says = () => {
      throw new Error('secret of the guard');
    };
    const { client, errors, ledger, store } = await shop(gate().bindTool('place', 'open', 'PLACE'));
    const refused = await client.isRefused('place', 'guard');
    expect(refused.text).not.toContain('secret');
    expect(String(errors)).toContain('secret of the guard');
    expect(store.take()).toEqual(['claim', 'release']);
    guard.says = () => true;
    await client.calls('place');
    expect(ledger.calls).toEqual(['place']);
  });

  it('are asked before those of the binding, which may cost something', async () => {
    let bindingAsked = 0;
    const { guard, gate } = desk();
    const ofBinding = (): boolean => {
      bindingAsked++;
      return true;
    };
    const bound = gate().bindTool('place', 'open', { success: 'PLACE', guard: ofBinding });
    const { client } = await shop(bound);
    guard.asked.length = 0;
    await client.isRefused('place', 'guard');
    expect([guard.asked.length, bindingAsked]).toEqual([1, 0]);
    guard.says = () => true;
    await client.calls('place');
    expect(bindingAsked).toBe(1);
  });

  it('are asked after a call if its result decides the event', async () => {
    const bound = desk()
      .gate()
      .bindTool('place', 'open', { success: () => 'PLACE' });
    const { client, ledger, position } = await shop(bound);
    await client.calls('place');
    expect(ledger.calls).toEqual(['place']);
    expect(await position()).toMatchObject({ state: 'open', version: 1 });
  });

  it('have no say in an event that the state does not handle at all', async () => {
    const { guard, gate } = desk();
    const { client, ledger } = await shop(gate().bindTool('place', ['open', 'placed'], 'PLACE'));
    guard.says = () => true;
    await client.calls('place');
    guard.says = () => false;
    await client.calls('place');
    expect(ledger.calls).toEqual(['place', 'place']);
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
    const { client, ledger, store } = await shop(gate);
    const refused = await client.isRefused('place', 'guard', { sum: 7 });
    expect(refused.text).toBe(
      '[System: This call of place was refused while booking is in "open": The slot is ' +
        'taken. Available now: place, look.]',
    );
    expect(refused.meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'guard', state: 'open' },
    });
    expect(store.take()).toEqual(['claim', 'release']);
    await client.isRefused('look', 'guard');
    expect(ledger.calls).toEqual([]);
    isTaken = false;
    await client.calls('look');
    await client.calls('place');
    expect(asked[0]).toEqual({
      run: client.run,
      tool: 'place',
      args: { sum: 7 },
      principal: undefined,
      state: 'open',
      context: undefined,
      matches: expect.any(Function),
    });
  });

  it('may take long: a call that is cancelled meanwhile is never forwarded', async () => {
    const waiting = latch();
    let asked = 0;
    const gate = guarded(async () => {
      asked++;
      if (asked === 1) await waiting.opened;
      return true;
    });
    const { client, ledger, store } = await shop(gate);
    const abort = new AbortController();
    const call = client.raw.client.callTool({ name: 'place', arguments: {} }, undefined, {
      signal: abort.signal,
    });
    const aborted = expect(call).rejects.toThrow();
    await expect.poll(() => asked).toBe(1);
    abort.abort();
    await aborted;
    await expect.poll(() => store.asked.length).toBeGreaterThan(0);
    await client.calls('look');
    waiting.open();
    await expect.poll(() => store.asked).toContain('release');
    expect(ledger.calls).toEqual(['look']);
    await client.calls('place');
  });

  it('that take too long refuse, and the run is free again', async () => {
    const waiting = latch();
    let calls = 0;
    const gate = guarded(async () => {
      calls++;
      if (calls === 1) await waiting.opened;
      return true;
    });
    const { client, clock, errors } = await shop(gate);
    const refused = client.isRefused('place', 'guard');
    await expect.poll(() => calls).toBe(1);
    clock.advance(5_000);
    await refused;
    expect(String(errors)).toContain('took longer than 5000 ms');
    waiting.open();
    await client.calls('place');
  });
});

describe('a run over deployments', () => {
  const flat = (states: Record<string, { on?: Record<string, string> }>, options?: GateOptions) =>
    new StateMachineGate<string, string>({ id: 'order', initial: 'open', states }, options);

  const first = () =>
    flat({ open: { on: { PLACE: 'payment' } }, payment: {} }).bindTool('place', 'open', 'PLACE');
  const second = (options?: GateOptions) =>
    flat(
      { open: { on: { PLACE: 'checkout' } }, checkout: { on: { PAID: 'done' } }, done: {} },
      options,
    )
      .bindTool('place', 'open', 'PLACE')
      .bindTool('pay', 'checkout', 'PAID');

  it('whose state does not exist any more is refused until it is migrated', async () => {
    const app = await shop(first());
    await app.client.calls('place');
    /** A new process with another gate takes over the run of the client. */
    const deploy = async (gate: StateMachineGate<string, string>) => {
      const { url, errors } = await shop(gate, app);
      return { errors, session: RawSession.resume(url, app.client.run) };
    };

    const refusing = await deploy(second());
    expect((await refusing.session.call('pay')).result.isError).toBe(true);
    expect(await refusing.session.tools()).toEqual(['add', 'pack', 'pause', 'resume', 'look']);
    expect(String(refusing.errors)).toContain('"payment", a state that "order" does not have');

    const seen: unknown[] = [];
    const gate = second({
      version: 2,
      migrate: (stored) => {
        seen.push(stored);
        return { state: stored.state === 'payment' ? 'checkout' : stored.state };
      },
    });
    const migrated = await deploy(gate);
    const shown = ['add', 'pay', 'pack', 'pause', 'resume', 'look'];
    expect(await migrated.session.tools()).toEqual(shown);
    expect((await migrated.session.call('pay')).result.content[0].text).toBe('pay done');
    expect(seen[0]).toEqual({ state: 'payment', context: undefined, version: 0 });
    expect(migrated.errors).toEqual([]);
    const stored = await app.data.read(app.client.run, 1000);
    expect(stored?.workflows.order?.snapshot).toMatchObject({
      state: 'done',
      version: 2,
      context: { version: 2 },
    });

    const older = await deploy(second());
    expect((await older.session.call('pay')).result.isError).toBe(true);
    expect(String(older.errors)).toContain('was saved by version 2');
  });
});
