import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import {
  memoryStore,
  replayTrail,
  StateMachineGate,
  type TrailEntry,
  trailToPrompts,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { scene } from '../helpers/scene.ts';
import { orderMachine } from './charts.ts';

const STEPS = ['cart.add_item', 'cart.checkout', 'cart.pay'] as const;

describe('replayTrail()', () => {
  it("comes to the run's state after any calls, from the oldest entry that is kept", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.constantFrom(...STEPS), fc.boolean()), { maxLength: 12 }),
        fc.nat(12),
        async (calls, dropped) => {
          const app = await scene({ gate: { trail: { refusals: true } } });
          const session = await app.session();
          for (const [tool, fail] of calls) await session.call(tool, { fail });
          const trail = await app.runs.history(session.id);
          const kept = trail.slice(Math.min(dropped, trail.length));
          const { state, version } = (await app.runs.read(session.id))?.snapshot ?? { state: '' };
          const gate = checkoutGate();
          if (kept.length > 0)
            expect(replayTrail(gate, kept)).toMatchObject({ state, version, faults: [] });
          await app.close();
        },
      ),
      { numRuns: 15 },
    );
  });

  it('follows deadlines, restarts, and events from outside', async () => {
    const gate = () =>
      new StateMachineGate({
        id: 'timed',
        initial: 'open',
        states: {
          open: { on: { PAY: 'paid' }, after: { 1000: 'late' } },
          late: { on: { REOPEN: 'open' } },
          paid: { type: 'final' },
        },
      }).bindTool('cart.pay', ['open'], 'PAY');
    const app = await scene({ workflow: gate() });
    const session = await app.session();
    await session.call('cart.pay', { fail: true });
    app.clock.advance(2_000);
    await app.runs.sweep([session.id]);
    await app.runs.send(session.id, 'REOPEN', { payload: { by: 'ann' } });
    await app.runs.update(session.id, () => ({ note: 1 }));
    await session.call('cart.pay');
    await app.runs.restart(session.id);
    const trail = await app.runs.history(session.id);
    expect(replayTrail(gate(), trail)).toEqual({ state: 'open', version: 5, moves: 5, faults: [] });
  });

  const entry = (seq: number, said: Partial<TrailEntry>): TrailEntry => ({
    ...{ seq, version: seq, attempt: 1, at: 0, from: 'empty', event: null },
    ...said,
  });
  const added = entry(1, { from: 'empty', to: 'has_items', event: 'ADD_ITEM' });
  const paid = entry(3, { from: 'payment', to: 'confirmed', event: 'PAY' });

  it.each([
    ['missing', [added, paid]],
    ['from', [added, entry(2, { from: 'empty', to: 'has_items', event: 'ADD_ITEM' })]],
    ['event', [added, entry(2, { from: 'has_items', to: 'confirmed', event: 'CHECKOUT' })]],
    ['event', [added, entry(2, { from: 'has_items', to: 'payment', event: null })]],
    ['state', [added, entry(2, { from: 'has_items', to: 'nowhere', event: 'CHECKOUT' })]],
  ] as const)('finds the fault "%s"', (fault, trail) => {
    expect(replayTrail(checkoutGate(), trail).faults).toEqual([
      expect.objectContaining({ index: 1, fault }),
    ]);
  });

  it('knows where a deadline and a restart lead', () => {
    const gate = new StateMachineGate({
      initial: 'open',
      states: {
        open: { on: { PAY: 'paid' }, after: { 1000: 'late' } },
        late: { on: { restart: 'paid' } },
        paid: { type: 'final' },
      },
    });
    const moves = (event: string, from: string, to: string) =>
      replayTrail(gate, [entry(1, { from, to, event })]).faults.map(({ fault }) => fault);
    expect(moves('after', 'open', 'late')).toEqual([]);
    expect(moves('after', 'open', 'paid')).toEqual(['event']);
    expect(moves('after', 'late', 'open')).toEqual(['event']);
    expect(moves('restart', 'paid', 'open')).toEqual([]);
    expect(moves('restart', 'paid', 'late')).toEqual(['event']);
    // The machine has an event of that name too.
    expect(moves('restart', 'late', 'paid')).toEqual([]);
  });

  it('asks a statechart only whether its state handles the event', () => {
    const gate = new StateMachineGate(orderMachine, { onAction: () => {} });
    const placed = 'placed.(billing.due|packing.waiting)';
    const faults = (from: string, event: string, to: string) =>
      replayTrail(gate, [entry(1, { from, to, event })]).faults.map(({ fault }) => fault);
    // Its guard reads data that the trail does not have.
    expect(faults('cart', 'PLACE', placed)).toEqual([]);
    expect(faults(placed, 'PAID', 'placed.(billing.settled|packing.waiting)')).toEqual([]);
    expect(faults(placed, 'CANCEL', 'cancelled')).toEqual([]);
    expect(faults('cart', 'CANCEL', 'cart')).toEqual([]);
    expect(faults('cart', 'CANCEL', 'cancelled')).toEqual(['event']);
    expect(faults('cart', 'PLACE', 'nowhere')).toEqual(['state']);
    expect(faults('shipped', 'restart', 'cart')).toEqual([]);
  });

  it('knows the events that a statechart handles everywhere, and those of a wildcard', () => {
    const machine = createMachine({
      id: 'everywhere',
      initial: 'on',
      on: { STOP: '.off' },
      states: { on: { on: { 'lamp.*': 'off' } }, off: {} },
    });
    const gate = new StateMachineGate(machine);
    for (const event of ['STOP', 'lamp.broke'])
      expect(replayTrail(gate, [entry(1, { from: 'on', to: 'off', event })]).faults).toEqual([]);
  });

  it('follows the entries of another deployment without checking them', () => {
    const old = entry(1, { from: 'cart', to: 'till', event: 'GO', workflowVersion: 7 });
    expect(replayTrail(checkoutGate(), [old])).toMatchObject({ state: 'till', faults: [] });
  });

  it('leaves a run that never moved at its start', async () => {
    const store = memoryStore();
    expect(await store.history({ run: 'none', workflow: 'checkout' })).toEqual([]);
    expect(replayTrail(checkoutGate(), [])).toEqual({
      ...{ state: 'empty', version: 0, moves: 0, faults: [] },
    });
  });
});

/** A run in which a model bought something, with a failure, a refusal and a person's help. */
async function bought() {
  const app = await scene({
    gate: { trail: { refusals: true, args: (args) => args } },
  });
  const session = await app.session();
  await session.call('cart.add_item', { sku: 'a' });
  await session.call('cart.pay', {});
  await session.call('cart.checkout', { fail: true });
  await session.call('cart.checkout', {});
  await app.runs.send(session.id, 'CANCEL', { payload: { why: 'the card' } });
  return app.runs.history(session.id);
}

describe('trailToPrompts()', () => {
  it('tells calls as the assistant, and failures and moves from outside as the user', async () => {
    const { messages, state, output } = trailToPrompts(checkoutGate(), await bought());
    expect(messages.map(({ role, content }) => `${role}: ${content}`)).toEqual([
      'assistant: Called "cart.add_item" with {"sku":"a"} in "empty". ' +
        'The run is in "has_items" now.',
      'assistant: Called "cart.pay" with {} in "has_items".',
      'user: "cart.pay" was refused (state). The run is still in "has_items".',
      'assistant: Called "cart.checkout" with {"fail":true} in "has_items".',
      'user: "cart.checkout" failed (tool_error), attempt 1. The run is still in "has_items".',
      'assistant: Called "cart.checkout" with {} in "has_items". The run is in "payment" now.',
      'user: "CANCEL" happened with {"why":"the card"}. The run is in "has_items" now.',
    ]);
    expect(state).toBe('has_items');
    expect(output?.oneOf.map(({ properties }) => properties.tool.const)).toEqual([
      'cart.add_item',
      'cart.checkout',
    ]);
  });

  it('leaves out an omitted move, and what follows until the next one', async () => {
    const trail = await bought();
    const contents = (omit: readonly string[]) =>
      trailToPrompts(checkoutGate(), trail, { omit }).messages.map(({ seq }) => seq);
    // The call that led to payment is out, and so is what went on from there.
    expect(contents(['CHECKOUT'])).toEqual([1, 2, 2, 3, 3]);
    expect(contents(['cart.checkout'])).toEqual([1, 2, 2]);
    expect(contents(['CANCEL'])).toEqual([1, 2, 2, 3, 3, 4]);
    const own = trailToPrompts(checkoutGate(), trail, {
      omit: ({ outcome }) => outcome === 'refused',
    });
    expect(own.messages.map(({ seq }) => seq)).toEqual([1, 3, 3, 4, 5]);
  });

  it('has no output schema where no tool is available', () => {
    const at = { version: 3, attempt: 1, at: 0, event: 'PAY', outcome: 'succeeded' } as const;
    const paid = { ...at, seq: 3, from: 'payment', to: 'confirmed', tool: 'cart.pay' };
    expect(trailToPrompts(checkoutGate(), [paid]).output).toBeUndefined();
  });

  it('offers a tool with a `visible` only where it needs no principal', () => {
    const gate = checkoutGate()
      .bindTool('cart.gift', 'empty', { visible: ({ principal }) => principal === 'admin' })
      .bindTool('cart.clear', 'empty', { visible: ({ state }) => state === 'empty' });
    const { output } = trailToPrompts(gate, []);
    expect(output?.oneOf.map(({ properties }) => properties.tool.const)).toEqual([
      'cart.add_item',
      'cart.clear',
    ]);
  });

  it('begins where a run begins', () => {
    expect(trailToPrompts(checkoutGate(), [])).toMatchObject({ messages: [], state: 'empty' });
  });
});
