import { describe, expect, it } from 'vitest';
import { claimed, claimOf, step } from '../packages/testing/src/fixtures.ts';
import { memoryStore, principalKey, StateMachineGate } from '../src/index.ts';
import { explain, heldOutcomes, type RunView, runsOf, whatIf } from '../src/runs/index.ts';
import type { ClaimView } from '../src/stores/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { ORDER_APP, orderGate } from './helpers/order-app.ts';
import { type Scene, scene } from './helpers/scene.ts';

const TOOLS = ['cart.add_item', 'cart.checkout', 'cart.pay'];

/** What the gate says of each tool, refused or not. */
async function explained({ runs }: Scene, run: string) {
  const view = await runs.read(run);
  return explain(runs.gate, view).tools;
}

describe('explain()', () => {
  it.each([
    ['empty', []],
    ['has_items', ['cart.add_item']],
    ['payment', ['cart.add_item', 'cart.checkout']],
    ['confirmed', TOOLS],
  ])('says of each tool in %s how a call of it is answered', async (state, calls) => {
    const shop = await scene();
    const session = await shop.session();
    for (const call of calls) await session.call(call);
    const tools = await explained(shop, session.id);
    expect(explain(shop.runs.gate, await shop.runs.read(session.id)).state).toBe(state);
    expect(tools.map(({ tool }) => tool)).toEqual(TOOLS);
    for (const { tool, shown, refusal, says } of tools) {
      expect(shown).toBe(refusal === undefined);
      if (refusal === undefined) continue;
      const { result } = await session.call(tool);
      expect(result.content[0].text).toBe(says);
      expect(result._meta['mcp-interlock/refusal']).toEqual(JSON.parse(JSON.stringify(refusal)));
    }
  });

  it('says what a statechart answers, where a guard of the machine stops a tool too', async () => {
    const shop = await scene({ workflow: orderGate(), ...ORDER_APP });
    const session = await shop.session();
    await session.call('add', { sum: 0 });
    const tools = await explained(shop, session.id);
    const refused = tools.filter(({ refusal }) => refusal !== undefined);
    expect(refused.map(({ tool }) => tool)).toContain('pay');
    for (const { tool, says } of refused) {
      const { result } = await session.call(tool);
      expect(result.content[0].text).toBe(says);
    }
  });

  it('says that a tool is not available which this client may not see', async () => {
    const gate = checkoutGate().bindTool('cart.refund', 'has_items', {
      visible: ({ principal }) => principal === 'boss',
    });
    const shop = await scene({ workflow: gate, session: { principal: () => 'ann' } });
    const session = await shop.session();
    await session.call('cart.add_item');
    const refund = (await explained(shop, session.id)).find(({ tool }) => tool === 'cart.refund');
    expect(refund).toMatchObject({ shown: false, refusal: { reason: 'state' } });
    const { result } = await session.call('cart.refund');
    expect(result.content[0].text).toBe(refund?.says);
  });

  it('says of calls that need the run that a step is running, or is held', async () => {
    const gate = checkoutGate().bindTool('cart.look', ['payment']);
    const store = memoryStore();
    await step(store, 'run', { create: {} }, { snapshot: { state: 'payment' } });
    const runs = runsOf(gate, { store });
    const view = (await runs.read('run')) as RunView;
    await claimed(store, claimOf('run', { step: { tool: 'cart.pay', uncertain: 'hold' } }));
    const reasonsOf = (claim: ClaimView | undefined) =>
      explain(gate, { ...view, ...(claim && { claim }) }).tools.map(({ tool, refusal }) => [
        tool,
        refusal?.reason,
      ]);
    const claim = (await runs.read('run'))?.claim as ClaimView;
    const rest = [['cart.look', undefined]];
    expect(reasonsOf(claim)).toEqual([...TOOLS.map((tool) => [tool, 'busy']), ...rest]);
    expect(reasonsOf({ ...claim, live: false })).toEqual([
      ...TOOLS.map((tool) => [tool, 'held']),
      ...rest,
    ]);
    expect(reasonsOf({ ...claim, live: false, uncertain: 'retry' })).toEqual([
      ['cart.add_item', 'state'],
      ['cart.checkout', 'state'],
      ['cart.pay', undefined],
      ...rest,
    ]);
  });

  it('says that a lookup of rules of order runs beside a step, and that the step needs the run', () => {
    const rules = { pay: { after: 'look' }, quote: { step: false } } as const;
    const gate = StateMachineGate.fromOrder(rules);
    const claim = {
      tool: 'pay',
      digest: '',
      uncertain: 'hold',
      token: 't',
      idempotencyKey: 'k',
      live: true,
    } as const;
    const snapshot = { state: '{look}', updatedAt: 0, version: 1 };
    const { tools } = explain(gate, { snapshot, claim });
    expect(tools.map(({ tool, refusal }) => [tool, refusal?.reason])).toEqual([
      ['look', undefined],
      ['pay', 'busy'],
      ['quote', undefined],
    ]);
  });

  it('says where a run begins, when it leaves its state, and where calls lead', () => {
    const gate = new StateMachineGate({
      id: 'wait',
      initial: 'open',
      states: {
        open: { on: { GO: 'done' }, after: { 60000: 'late' } },
        late: {},
        done: { type: 'final' },
      },
    }).bindTool('go', 'open', 'GO');
    expect(explain(gate)).toEqual({
      state: 'open',
      snapshot: { state: 'open', updatedAt: 0 },
      ended: false,
      tools: [{ tool: 'go', shown: true, leadsTo: ['done'], isPartial: false }],
      events: ['GO'],
    });
    const at = { snapshot: { state: 'open', updatedAt: 1_000 } };
    expect(explain(gate, at).leavesAt).toBe(61_000);
    expect(whatIf(gate, at, { deadline: true })).toMatchObject({
      result: 'moved',
      snapshot: { state: 'late' },
    });
    expect(explain(gate, { snapshot: { state: 'done', updatedAt: 1 } }).ended).toBe(true);
  });

  it('shows an ended run of a principal at its start, where the next call begins it again', () => {
    const snapshot = { state: 'confirmed', updatedAt: 1 };
    const shown = (run: string) =>
      explain(checkoutGate(), { run, snapshot })
        .tools.filter((tool) => tool.shown)
        .map(({ tool }) => tool);
    expect(shown(principalKey().runKey('ann'))).toEqual(['cart.add_item']);
    expect(shown('a-session')).toEqual([]);
  });

  it('refuses a state that the workflow does not have any more', () => {
    const at = { snapshot: { state: 'payed', updatedAt: 1 } };
    expect(() => explain(checkoutGate(), at)).toThrow('a state that "checkout" does not have');
  });
});

describe('whatIf()', () => {
  it('goes through the machine by calls and events, and says why a call would be refused', () => {
    const gate = checkoutGate();
    const added = whatIf(gate, undefined, { tool: 'cart.add_item', outcome: 'succeeded' });
    expect(added).toMatchObject({ result: 'moved', event: 'ADD_ITEM', actions: [] });
    const refused = whatIf(gate, added, { tool: 'cart.pay', outcome: 'succeeded' });
    expect(refused).toMatchObject({ result: 'refused', refusal: { path: ['cart.checkout'] } });
    expect(refused.says).toContain('To reach cart.pay, call cart.checkout first.');
    expect(whatIf(gate, added, { event: 'CLEAR' }).snapshot.state).toBe('empty');
    expect(whatIf(gate, added, { event: 'PAY' }).result).toBe('unhandled');
    const failed = { tool: 'cart.checkout', outcome: 'failed' } as const;
    expect(whatIf(gate, added, failed).result).toBe('stayed');
    expect(whatIf(gate, undefined, { deadline: true }).result).toBe('unhandled');
    expect(gate.currentState).toBe('empty');
  });

  it('refuses a move from outside where send() and sweep() do: of a held run too', async () => {
    const gate = new StateMachineGate({
      id: 'checkout',
      initial: 'open',
      states: { open: { on: { GO: 'gone' }, after: { 1: 'late' } }, gone: {}, late: {} },
    }).bindTool('pay', 'open', { success: 'GO', uncertain: 'hold' });
    const store = memoryStore();
    await step(store, 'run', { create: {} }, { snapshot: { state: 'open' } });
    await claimed(store, claimOf('run', { leaseMs: 1, step: { tool: 'pay', uncertain: 'hold' } }));
    const runs = runsOf(gate, { store, onError: () => {} });
    await expect.poll(async () => (await runs.read('run'))?.status).toBe('held');
    expect(await runs.send('run', 'GO')).toEqual({ sent: false, reason: 'held' });
    expect(await runs.restart('run')).toEqual({ restarted: false, reason: 'held' });
    expect(await runs.sweep(['run'])).toBe(0);
    const { snapshot, ...view } = (await runs.read('run')) as RunView;
    const claim = view.claim as ClaimView;
    const held = { snapshot: { ...snapshot, state: 'open' as const }, claim };
    for (const move of [{ deadline: true }, { event: 'GO' }] as const) {
      expect(whatIf(gate, held, move).result).toBe('refused');
      // Both wait for a step that is under way, or come after it.
      const running = { ...held, claim: { ...claim, live: true } };
      expect(whatIf(gate, running, move).result).toBe('moved');
    }
  });

  it('asks for an event that depends on the call, and calls no function of a binding', () => {
    const gate = checkoutGate().bindTool('cart.clear', 'has_items', {
      success: () => {
        throw new Error('was called');
      },
    });
    const at = { snapshot: { state: 'has_items', updatedAt: 1 } };
    const call = { tool: 'cart.clear', outcome: 'succeeded' } as const;
    expect(whatIf(gate, at, call)).toMatchObject({ result: 'choose-event' });
    expect(whatIf(gate, at, { ...call, event: 'CLEAR' }).snapshot.state).toBe('empty');
    expect(() => whatIf(gate, at, { ...call, tool: 'cart.claer' })).toThrow(
      'did you mean "cart.clear"?',
    );
  });
});

describe('heldOutcomes()', () => {
  it('says what each answer about a held call would do, and resolve() does it', async () => {
    const gate = checkoutGate();
    const store = memoryStore();
    await step(store, 'run', { create: {} }, { snapshot: { state: 'payment' } });
    const token = await claimed(store, claimOf('run', { leaseMs: 1, step: { tool: 'cart.pay' } }));
    expect(token).toBeDefined();
    const runs = runsOf(gate, { store, onError: () => {} });
    await expect.poll(async () => (await runs.read('run'))?.status).toBe('held');
    const view = (await runs.read('run')) as RunView;
    expect(heldOutcomes(gate, view)).toEqual([
      { outcome: 'succeeded', event: 'PAY', leadsTo: 'confirmed' },
      { outcome: 'failed', event: null, leadsTo: 'payment' },
    ]);
    expect(await runs.resolve('run', 'succeeded', { token: 'of another claim' })).toEqual({
      resolved: false,
      reason: 'not-held',
    });
    expect(
      await runs.resolve('run', 'succeeded', { token: (view.claim as ClaimView).token }),
    ).toEqual({ resolved: true, state: 'confirmed' });
    expect(heldOutcomes(gate, (await runs.read('run')) as RunView)).toEqual([]);
  });
});
