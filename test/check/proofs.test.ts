import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { assign, createMachine, enqueueActions, raise, setup } from 'xstate';
import { seeded } from '../../lab/checker/random.ts';
import { randomRules } from '../../lab/checker/rules-random.ts';
import {
  checkWorkflow,
  never,
  type Proof,
  type ProofStep,
  precedes,
  type Reachability,
  reaches,
} from '../../packages/check/src/index.ts';
import { testGate } from '../../packages/testing/src/index.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { few } from '../helpers/few.ts';
import { scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { orderMachine } from '../workflow/charts.ts';
import { ACTIONS, checkoutGate, gateOf, randomWorkflow } from '../workflow/machines.ts';

const PROVEN = { holds: true };

/** A counter-example in short: `pay`, `pay fails`, `(CANCEL)`. */
function calls(proof: Proof): string[] {
  return proof.holds === false ? proof.counterExample.map(say) : [];
}

function say({ by, tool, outcome, event, isGuarded }: ProofStep): string {
  const what = by === 'call' ? tool : by === 'outside' ? `(${event})` : '(deadline)';
  return `${what}${outcome === 'failure' ? ' fails' : ''}${isGuarded ? '?' : ''}`;
}

describe('proofs of runs that begin with calls', () => {
  const bank = StateMachineGate.fromOrder({
    approve: {},
    pay: { after: { tool: 'approve', args: { ok: true }, within: '1h' }, limit: { times: 1 } },
  });
  const at = 1_764_108_000_000;
  const approved = { tool: 'approve', arguments: { ok: true }, at };

  it('take what they have done, as far as it counts', () => {
    expect(precedes(bank, 'approve', 'pay')).toEqual(PROVEN);
    const proof = precedes(bank, 'approve', 'pay', { facts: [approved] });
    expect(proof).toMatchObject({
      way: [{ tool: 'pay' }],
      reason: expect.stringMatching(/window/),
    });
    const other = { ...approved, arguments: { ok: false } };
    expect(precedes(bank, 'approve', 'pay', { facts: [other] })).toEqual(PROVEN);
    const old = { ...approved, at: at - 3_600_000 };
    const facts = [old, { tool: 'approve', at }];
    expect(precedes(bank, 'approve', 'pay', { facts })).toEqual(PROVEN);
  });

  it('say no longer that a call is certain which a limit refuses', () => {
    const gate = StateMachineGate.fromOrder({ pay: { limit: { times: 1 } }, look: {} });
    expect(calls(precedes(gate, 'look', 'pay'))).toEqual(['pay']);
    const spent = precedes(gate, 'look', 'pay', { facts: [{ tool: 'pay' }] });
    expect(spent.holds).not.toBe(false);
  });

  it('name a tool that runs do not know', () => {
    const facts = [{ tool: 'pya' }];
    expect(() => precedes(bank, 'approve', 'pay', { facts })).toThrow(
      'facts: "pya" is no tool of which runs keep calls',
    );
  });
});

describe('proofs of a flat machine', () => {
  it('prove that one tool precedes another', () => {
    expect(precedes(checkoutGate(), 'cart.checkout', 'cart.pay')).toEqual(PROVEN);
    expect(precedes(checkoutGate(), 'cart.add_item', 'cart.pay')).toEqual(PROVEN);
    expect(never(checkoutGate(), 'cart.pay', { in: 'empty' })).toEqual(PROVEN);
    expect(never(checkoutGate(), 'cart.pay', { in: ['empty', 'has_items'] })).toEqual(PROVEN);
  });

  it('show the shortest counter-example', () => {
    expect(precedes(checkoutGate(), 'cart.pay', 'cart.checkout')).toEqual({
      holds: false,
      isCertain: true,
      counterExample: [
        {
          by: 'call',
          tool: 'cart.add_item',
          outcome: 'success',
          event: 'ADD_ITEM',
          from: 'empty',
          to: 'has_items',
          isGuarded: false,
        },
        {
          by: 'call',
          tool: 'cart.checkout',
          outcome: 'success',
          event: 'CHECKOUT',
          from: 'has_items',
          to: 'payment',
          isGuarded: false,
        },
      ],
    });
    expect(calls(never(checkoutGate(), 'cart.add_item', { in: 'has_items' }))).toEqual([
      'cart.add_item',
      'cart.add_item',
    ]);
  });

  it('follow failures and deadlines, and events from outside where asked to', () => {
    const gate = new StateMachineGate({
      initial: 'idle',
      states: {
        idle: { on: { GO: 'busy', SKIP: 'open' } },
        busy: { on: { BROKE: 'open' }, after: { 1000: 'late' } },
        open: {},
        late: {},
      },
    })
      .bindTool('start', 'idle', { success: 'GO' })
      .bindTool('poke', 'busy', { failure: 'BROKE' })
      .bindTool('enter', 'open')
      .bindTool('mourn', 'late');
    expect(calls(precedes(gate, 'poke', 'enter'))).toEqual(['start', 'poke fails', 'enter']);
    expect(calls(precedes(gate, 'poke', 'mourn'))).toEqual(['start', '(deadline)', 'mourn']);
    expect(precedes(gate, 'start', 'enter')).toEqual(PROVEN);
    const broken = precedes(gate, 'start', 'enter', { outside: ['SKIP'] });
    expect(calls(broken)).toEqual(['(SKIP)', 'enter']);
    expect(calls(precedes(gate, 'start', 'enter', { outside: true }))).toEqual(['(SKIP)', 'enter']);
    expect(precedes(gate, 'start', 'enter', { outside: ['BROKE'] })).toEqual(PROVEN);
  });

  it('hold for any answer of guards, arguments and functions', () => {
    const gate = () =>
      new StateMachineGate({
        initial: 'empty',
        states: {
          empty: { on: { ADD: 'full', PAY: 'paid' } },
          full: { on: { PAY: 'paid' } },
          paid: {},
        },
      })
        .bindTool('add', 'empty', { success: 'ADD', guard: () => false })
        .bindTool('receipt', 'paid');
    const guarded = gate().bindTool('pay', 'full', 'PAY');
    expect(precedes(guarded, 'add', 'receipt')).toEqual(PROVEN);
    expect(precedes(guarded, 'pay', 'add')).toMatchObject({ holds: false, isCertain: false });
    expect(reaches(guarded, 'paid')).toMatchObject({ holds: true, ifGuardsAllow: true });
    const chosen = gate().bindTool('pay', 'empty', { success: () => 'ADD' });
    expect(calls(precedes(chosen, 'add', 'receipt'))).toEqual(['pay?', 'receipt']);
    const partial = gate().bindTool('pay', 'empty', { success: 'PAY', when: () => false });
    expect(calls(precedes(partial, 'add', 'receipt'))).toEqual(['pay?', 'receipt']);
    // A call that no binding is about is not gated at all.
    expect(calls(never(partial, 'pay', { in: 'paid' }))).toEqual(['pay?', 'pay?']);
    expect(never(partial, { tool: 'pay', event: 'PAY' }, { in: 'paid' })).toEqual(PROVEN);
  });

  it('know that the first deadline counts once the run is saved, by a call or by the app', async () => {
    const machine = {
      initial: 'idle',
      states: { idle: { on: { STAY: 'idle', GO: 'late' }, after: { 1000: 'late' } }, late: {} },
    } as const;
    const looked = new StateMachineGate(machine).bindTool('look', 'idle');
    // Nothing is saved of such a call, so only the app begins the run.
    expect(reaches(looked, 'late')).toMatchObject({
      holds: true,
      ifGuardsAllow: true,
      example: [{ by: 'outside', from: 'idle', to: 'idle' }, { by: 'deadline' }],
    });
    const t = testGate(looked);
    await t.call('look');
    await t.clock.advance(2000);
    expect(await t.state()).toBe('idle');
    await t.runs().begin(await t.run());
    await t.clock.advance(2000);
    expect(await t.state()).toBe('late');
    await t.close();
  });

  it('know that a call which fails, is refused or is only counted makes the first deadline count', async () => {
    const machine = {
      initial: 'idle',
      states: {
        idle: { on: { STAY: 'idle', GO: 'gone' }, after: { 1000: 'late' } },
        late: { on: { GO: 'gone' } },
        gone: {},
      },
    } as const;
    const shield = { max: 3, fallback: { state: 'gone' } } as const;
    const gates = {
      failure: new StateMachineGate(machine).bindTool('try', 'idle', 'GO'),
      refused: new StateMachineGate(machine).bindTool('try', 'late', 'GO'),
      success: new StateMachineGate(machine).bindTool('try', 'idle', {
        success: 'STAY',
        failure: 'GO',
      }),
      counted: new StateMachineGate(machine, { loopShield: shield }).bindTool('try', 'idle'),
    };
    for (const [name, gate] of Object.entries(gates)) {
      gate.bindTool('mourn', 'late');
      const outcome = name === 'counted' ? 'failure' : name;
      expect(never(gate, 'mourn', { in: 'late' })).toMatchObject({
        holds: false,
        isCertain: true,
        counterExample: [
          { tool: 'try', outcome, from: 'idle', to: 'idle' },
          { by: 'deadline', to: 'late' },
          { tool: 'mourn' },
        ],
      });
      const t = testGate(gate);
      await t.call('try', {}, outcome === 'failure' ? new Error('no') : undefined);
      await t.clock.advance(1000);
      expect(await t.call('mourn')).toMatchObject({ ran: true });
      await t.close();
    }
  });

  it('know where the loop shield takes a run', async () => {
    const gate = new StateMachineGate(
      { initial: 'idle', states: { idle: {}, stuck: {} } },
      { loopShield: { max: 2, fallback: { state: 'stuck' } } },
    )
      .bindTool('look', 'idle')
      .bindTool('ask_a_person', 'stuck');
    expect(never(gate, 'ask_a_person', { in: 'stuck' })).toMatchObject({
      isCertain: true,
      counterExample: [{ tool: 'look', outcome: 'refused', times: 3 }, { tool: 'ask_a_person' }],
    });
    expect([...checkWorkflow(gate)].map(({ code }) => code)).not.toContain('state-unreachable');
    const t = testGate(gate);
    for (let made = 0; made < 3; made++) await t.call('look');
    expect(await t.call('ask_a_person')).toMatchObject({ ran: true });
    await t.close();
  });

  it('follow only the events that a binding lists, and another event holds the run', async () => {
    const gate = (sends?: readonly ('QUOTE' | 'PAY')[], sent: 'QUOTE' | 'PAY' = 'QUOTE') =>
      new StateMachineGate({
        initial: 'idle',
        states: { idle: { on: { QUOTE: 'quoted', PAY: 'paid' } }, quoted: {}, paid: {} },
      })
        .bindTool('get_quote', 'idle', { success: () => sent, ...(sends && { sends }) })
        .bindTool('receipt', 'paid');
    expect(never(gate(), 'receipt', { in: 'paid' })).toMatchObject({ holds: false });
    expect(never(gate(['QUOTE']), 'receipt', { in: 'paid' })).toEqual(PROVEN);
    const listed = gate(['QUOTE']).compile();
    expect(listed.wayTo(['quoted'], listed.start)).toEqual({
      path: ['get_quote'],
      foreseen: true,
    });
    expect(listed.wayTo(['paid'], listed.start)).toEqual({ path: undefined, foreseen: true });
    const t = testGate(gate(['QUOTE'], 'PAY'));
    expect(await t.call('get_quote')).toMatchObject({ outcome: 'unknown', ran: true });
    expect(await t.state()).toBe('idle');
    expect(JSON.stringify(t.errors.map((each) => String((each as Error).cause)))).toMatch(
      /returned .*PAY.*"sends\\*" does not list; expected .*QUOTE.*ERR_INTERLOCK_EVENT/,
    );
    await t.close();
    const named = { success: 'QUOTE', sends: ['QUOTE'] } as const;
    expect(() => gate().bindTool('again', 'idle', named)).toThrow(
      /"sends" lists what a function may send.*ERR_INTERLOCK_CONFIG/s,
    );
    const unknown = { success: () => 'QUOTE' as const, sends: ['QUOT' as 'QUOTE'] };
    expect(() => gate().bindTool('again', 'idle', unknown)).toThrow(/QUOT.*ERR_INTERLOCK_EVENT/s);
  });

  it('prefer a way without guards', () => {
    const gate = new StateMachineGate({
      initial: 'a',
      states: { a: { on: { JUMP: 'c', STEP: 'b' } }, b: { on: { STEP: 'c' } }, c: {} },
    })
      .bindTool('jump', 'a', { success: 'JUMP', guard: () => true })
      .bindTool('step', ['a', 'b'], 'STEP');
    expect(reaches(gate, 'c')).toMatchObject({ ifGuardsAllow: false, example: [{}, {}] });
  });

  it('tell whether a state can be reached', () => {
    expect(reaches(checkoutGate(), 'confirmed')).toMatchObject({
      holds: true,
      ifGuardsAllow: false,
      example: [{ tool: 'cart.add_item' }, { tool: 'cart.checkout' }, { tool: 'cart.pay' }],
    });
    const noPay = new StateMachineGate({
      initial: 'a',
      states: { a: { on: { X: 'b' } }, b: {} },
    }).bindTool('look', 'a');
    expect(reaches(noPay, 'b')).toEqual({ holds: false });
    expect(reaches(noPay, 'b', { outside: true })).toMatchObject({ example: [{ by: 'outside' }] });
  });

  it('refuse unknown names, and name the right ones', () => {
    expect(() => precedes(checkoutGate(), 'cart.chekout', 'cart.pay')).toThrow(
      /precedes\(\): "cart.chekout" is no bound tool of workflow "checkout", did you mean "cart.checkout"\?/,
    );
    const wrong: string = 'emty';
    expect(() => never(checkoutGate() as StateMachineGate, 'cart.pay', { in: wrong })).toThrow(
      /did you mean "empty"\?.*ERR_INTERLOCK_BINDING/s,
    );
    const event = { tool: 'cart.pay', event: 'PYA' };
    expect(() => precedes(checkoutGate() as StateMachineGate, 'cart.pay', event)).toThrow(
      /did you mean "PAY"\?.*ERR_INTERLOCK_EVENT/s,
    );
    expect(() => precedes(checkoutGate(), 'cart.pay', 'cart.pay', { outside: [] })).not.toThrow();
  });
});

describe('proofs of a statechart', () => {
  const order = () =>
    new StateMachineGate(orderMachine, { onAction: () => {} })
      .bindTool('cart_add', 'cart', 'ADD')
      .bindTool('place', 'cart', 'PLACE')
      .bindTool('pay', 'placed.billing.due', 'PAID')
      .bindTool('pack', 'placed.packing.waiting', 'PACK')
      .bindTool('pause', 'placed', 'PAUSE')
      .bindTool('resume', 'paused', 'RESUME')
      .bindTool('thank', 'shipped');

  it('follow regions, history and "always" transitions', () => {
    expect(precedes(order(), 'place', 'pay')).toEqual(PROVEN);
    expect(precedes(order(), 'pack', 'thank')).toEqual(PROVEN);
    expect(precedes(order(), 'pay', 'thank')).toEqual(PROVEN);
    expect(precedes(order(), 'pause', 'resume')).toEqual(PROVEN);
    expect(never(order(), 'pack', { in: 'placed.packing.packed' })).toEqual(PROVEN);
    expect(calls(never(order(), 'pay', { in: 'placed.packing.packed' }))).toEqual([
      'place?',
      'pack',
      'pay?',
    ]);
    expect(reaches(order(), 'shipped')).toMatchObject({ holds: true, ifGuardsAllow: true });
    expect(reaches(order(), 'cancelled')).toEqual({ holds: false });
  });

  it('trust no guard of the machine, since the app may change its data', () => {
    const machine = setup({
      types: { context: {} as { items: number }, events: {} as { type: 'ADD' } | { type: 'PAY' } },
      guards: { some: ({ context }) => context.items > 0 },
    }).createMachine({
      id: 'cart',
      context: { items: 0 },
      initial: 'open',
      states: {
        open: {
          on: {
            ADD: { actions: assign({ items: ({ context }) => context.items + 1 }) },
            PAY: { target: 'paid', guard: 'some' },
          },
        },
        paid: { type: 'final' },
      },
    });
    const gate = new StateMachineGate(machine)
      .bindTool('add', 'open', 'ADD')
      .bindTool('pay', 'open', 'PAY')
      .bindTool('receipt', 'paid');
    // Any handler may set `items`, so no call of add is needed.
    expect(calls(precedes(gate, 'add', 'receipt'))).toEqual(['pay?', 'receipt']);
    expect(precedes(gate, 'pay', 'receipt')).toEqual(PROVEN);
  });

  it.each([
    [
      'an event that a function makes',
      'raises an event that a function makes',
      raise(() => ({ type: 'JUMP' })),
    ],
    [
      'enqueueActions()',
      'enqueueActions\\(\\) may raise events',
      enqueueActions(({ enqueue }) => enqueue.raise({ type: 'JUMP' })),
    ],
  ])('are undecided where only a run can tell: %s', (_, words, action) => {
    const machine = createMachine({
      id: 'blind',
      initial: 'a',
      states: { a: { on: { X: 'b' } }, b: { entry: action, on: { JUMP: 'c' } }, c: {} },
    });
    const gate = new StateMachineGate(machine).bindTool('x', 'a', 'X').bindTool('look', 'c');
    const expected = { holds: undefined, reason: expect.stringMatching(words) };
    expect(never(gate, 'look', { in: 'c' })).toEqual(expected);
    expect(reaches(gate, 'c')).toEqual(expected);
    expect(reaches(gate, 'b')).toMatchObject({ holds: true });
  });

  it('are undecided where there are too many positions', () => {
    const regions = Array.from({ length: 15 }, (_, at) => [
      `r${at}`,
      { initial: 'off', states: { off: { on: { [`E${at}`]: 'on' } }, on: {} } },
    ]);
    const machine = createMachine({
      id: 'wide',
      initial: 'all',
      states: { all: { type: 'parallel', states: Object.fromEntries(regions) }, never: {} },
    });
    const gate = new StateMachineGate(machine).bindTool('look', 'never');
    for (let at = 0; at < 15; at++) gate.bindTool(`t${at}`, 'all', `E${at}`);
    expect(reaches(gate, 'never', { maxPositions: 100 })).toEqual({
      holds: undefined,
      reason: expect.stringContaining('more than 100 positions'),
    });
    expect(reaches(gate, 'all.r3.on')).toMatchObject({ holds: true, example: [{ tool: 't3' }] });
  }, 30_000);

  it('know that an event which no state handles wakes transitions that wait for data', () => {
    const machine = setup({ guards: { isReady: ({ context }) => context.n > 0 } }).createMachine({
      context: { n: 0 },
      initial: 'waiting',
      states: { waiting: { always: { guard: 'isReady', target: 'ready' } }, ready: {} },
    });
    const gate = new StateMachineGate(machine) as StateMachineGate;
    expect(reaches(gate, 'ready', { outside: true })).toMatchObject({
      holds: true,
      ifGuardsAllow: true,
      example: [{ by: 'outside', event: 'any event' }],
    });
    expect(reaches(gate, 'ready')).toMatchObject({ holds: false });
  });

  it('know every state that a run can come to, with any data', () => {
    const seen = { moved: 0, guarded: 0, unreached: 0 };
    const way = fc.record({
      target: fc.nat(2),
      least: fc.option(fc.nat(2), { nil: undefined }),
      adds: fc.boolean(),
    });
    const node = fc.record({ ways: fc.array(way, { maxLength: 3 }), always: fc.option(way) });
    const chart = fc.array(fc.array(node, { minLength: 3, maxLength: 3 }), {
      minLength: 2,
      maxLength: 2,
    });
    const moves = fc.array(fc.record({ event: fc.nat(2), data: fc.option(fc.nat(3)) }), {
      maxLength: 8,
    });
    fc.assert(
      fc.property(chart, moves, (regions, sent) => {
        const gate = new StateMachineGate(machineOf(regions));
        const workflow = gate.clone().compile();
        let position = workflow.start;
        for (const { event, data } of sent) {
          if (data !== null) position = workflow.withData(position, { n: data });
          position = workflow.next(position, `E${event}`).position;
          const reached = reaches(gate as StateMachineGate, position.state, { outside: true });
          expect(reached.holds).toBe(true);
          if (position.state !== workflow.initial) seen.moved++;
          if (reached.holds && reached.ifGuardsAllow) seen.guarded++;
        }
        const states = workflow.states.filter((path) => path.includes('s'));
        for (const path of states) {
          const { holds } = reaches(gate as StateMachineGate, path, { outside: true });
          expect(holds).toBeDefined();
          if (!holds) seen.unreached++;
        }
      }),
      few(30),
    );
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(5);
  }, 30_000);
});

interface RandomWay {
  readonly target: number;
  readonly least: number | undefined;
  readonly adds: boolean;
}

/** Regions of three states each. Their guards read one number, which their transitions add to. */
function machineOf(
  regions: readonly (readonly { ways: readonly RandomWay[]; always: RandomWay | null }[])[],
) {
  const transition = ({ target, least, adds }: RandomWay) => ({
    target: `s${target}`,
    ...(least !== undefined && {
      guard: ({ context }: { context: { n: number } }) => context.n >= least,
    }),
    ...(adds && { actions: assign({ n: ({ context }) => Number(context.n) + 1 }) }),
  });
  const states = regions.map((nodes, region) => [
    `r${region}`,
    {
      initial: 's0',
      states: Object.fromEntries(
        nodes.map(({ ways, always }, at) => [
          `s${at}`,
          {
            on: Object.fromEntries(ways.map((way, event) => [`E${event}`, transition(way)])),
            // Onwards only, so that the machine settles.
            ...(always !== null && at < always.target && { always: transition(always) }),
          },
        ]),
      ),
    },
  ]);
  return createMachine({
    id: 'random',
    type: 'parallel',
    context: { n: 0 },
    states: Object.fromEntries(states),
  } as never);
}

describe('proofs of rules of order', () => {
  const shop = () =>
    StateMachineGate.fromOrder({
      checkout: { after: 'readme' },
      pay: { after: 'checkout' },
    });

  it('remember the tools that a question names, though a run does not', () => {
    const twice = never(shop(), 'pay', { in: 'pay' });
    expect(calls(twice)).toEqual(['readme', 'checkout', 'pay', 'pay']);
    expect(twice).toMatchObject({ isCertain: true });
    expect(calls(never(shop(), { tool: 'pay', event: 'pay' }, { in: 'pay' }))).toHaveLength(4);
    expect(reaches(shop(), 'pay')).toMatchObject({ holds: true, ifGuardsAllow: false });
    expect(reaches(shop(), { all: ['pay', { not: 'checkout' }] })).toEqual({ holds: false });
    const once = StateMachineGate.fromOrder({ pay: { once: true } });
    expect(never(once, 'pay', { in: 'pay' })).toEqual(PROVEN);
  });

  it('keep the states and events that runs have', () => {
    const gate = shop() as StateMachineGate;
    expect(calls(never(gate, 'pay', { in: ['pay', '{readme, checkout}'] }))).toHaveLength(3);
    expect(reaches(gate, ['{readme}', 'pay'])).toMatchObject({ example: [{ tool: 'readme' }] });
    expect(() => reaches(gate, 'pay', { outside: ['pay'] })).toThrow(/no state of workflow/);
    expect(calls(never(gate, 'readme', { in: 'pay', outside: true }))).toEqual([
      '(checkout)',
      'pay',
      'readme',
    ]);
    gate.bindPrompt('receipt', 'pay');
    expect(reaches(gate, '{pay}')).toMatchObject({ holds: false });
  });

  it('know what a tool sends whose arguments count', async () => {
    const gate = StateMachineGate.fromOrder({
      checkout: { after: 'readme' },
      cancel: { after: [{ tool: 'find_order', same: ['order_id'] }, 'checkout'] },
    });
    expect(precedes(gate, 'checkout', 'cancel')).toEqual(PROVEN);
    expect(precedes(gate, 'find_order', 'cancel')).toEqual(PROVEN);
    expect(calls(precedes(gate, 'cancel', 'find_order'))).toEqual(['find_order']);
    expect(reaches(gate, 'find_order')).toMatchObject({ ifGuardsAllow: false });
  });

  it('know that a use takes single calls', async () => {
    const gate = StateMachineGate.fromOrder({
      otp: { undoneBy: 'logout' },
      transfer: { after: { tool: 'otp', consumes: true } },
    });
    // Another code after the transfer needs nothing else.
    expect(reaches(gate, { all: ['otp', 'transfer'] })).toMatchObject({
      ...{ holds: true, ifGuardsAllow: false },
      example: [{ tool: 'otp' }, { tool: 'transfer' }, { tool: 'otp' }],
    });
    const once = StateMachineGate.fromOrder({
      otp: { once: true },
      transfer: { after: { tool: 'otp', consumes: true }, undoneBy: ['otp'] },
    }).bindTool('look', { all: ['otp', 'transfer'] });
    // One code, which the transfer uses up; a further one undoes the transfer.
    expect(never(once, 'look', { in: '*' })).toMatchObject({
      ...{ holds: undefined, reason: expect.stringContaining('it turns on a count') },
    });
    const stale = StateMachineGate.fromOrder({
      otp: { undoneBy: 'logout' },
      transfer: { after: { tool: 'otp', consumes: true }, undoneBy: 'otp' },
    }).bindTool('look', { all: ['otp', 'transfer'] });
    // No code comes after the transfer, so there must be two before it.
    const proof = never(stale, 'look', { in: '*' });
    expect(way(proof)).toEqual(['otp', 'transfer: a count', 'look']);
    expect(precedes(stale, 'otp', 'look')).toEqual(PROVEN);
    const t = testGate(stale);
    for (const tool of ['otp', 'otp', 'transfer', 'look'])
      expect((await t.call(tool)).ran).toBe(true);
    await t.close();
  });
});

/** Where a proof turns on more than the order of calls: its way, with what each step turns on. */
function way(proof: Proof | Reachability): string[] {
  if (proof.holds !== undefined) throw new Error(`it is told: ${JSON.stringify(proof)}`);
  return (proof.way ?? []).map((step) =>
    [say(step), step.turnsOn?.join(' and ')].filter((each) => each !== undefined).join(': '),
  );
}

describe('proofs of rules that say when, how much and with which values', () => {
  const reasonOf = (proof: Proof | Reachability): string => {
    if (proof.holds !== undefined) throw new Error(`it is told: ${JSON.stringify(proof)}`);
    return proof.reason.replace(/^.*: /, '');
  };

  it('know windows: one may be over', () => {
    const gate = StateMachineGate.fromOrder({
      login: {},
      transfer: { after: { tool: 'balance', within: '2m' } },
    });
    expect(precedes(gate, 'balance', 'transfer')).toEqual(PROVEN);
    const open = precedes(gate, 'login', 'transfer');
    expect(reasonOf(open)).toBe('it turns on a window');
    expect(way(open)).toEqual(['balance', 'transfer: a window']);
    expect(calls(precedes(gate, 'transfer', 'balance'))).toEqual(['balance']);
    expect(never(gate, 'transfer', { in: '{}' })).toEqual(PROVEN);
  });

  it('know that an alternative without a window needs none', () => {
    const gate = StateMachineGate.fromOrder({
      transfer: { after: { any: [{ tool: 'balance', within: '2m' }, 'approve'] } },
    });
    const proof = precedes(gate, 'balance', 'transfer');
    expect(calls(proof)).toEqual(['approve', 'transfer']);
    expect(proof).toMatchObject({ isCertain: true });
    expect(precedes(gate, 'approve', 'transfer')).toMatchObject({ holds: undefined });
  });

  it('know values: they may agree or not', () => {
    const gate = StateMachineGate.fromOrder({
      login: {},
      transfer: { after: { tool: 'balance', same: { to: { result: 'accountId' } } } },
      cancel: { after: { tool: 'find', result: { status: 'open' } } },
      pay: { after: { tool: 'approve', when: { amount: { gt: 100 } } } },
    });
    expect(precedes(gate, 'balance', 'transfer')).toEqual(PROVEN);
    expect(reasonOf(precedes(gate, 'login', 'transfer'))).toBe('it turns on values');
    expect(precedes(gate, 'find', 'cancel')).toEqual(PROVEN);
    expect(way(precedes(gate, 'login', 'cancel'))).toEqual(['find: values', 'cancel']);
    // A small payment needs no approval.
    expect(way(precedes(gate, 'approve', 'pay'))).toEqual(['pay: values']);
  });

  it('know counts, and tools that may be called as often', () => {
    const gate = StateMachineGate.fromOrder({
      login: {},
      pay: { after: { tool: 'approve', times: 2 } },
      ship: { after: { tool: 'approve', times: 2, distinct: 'by' } },
    });
    expect(precedes(gate, 'approve', 'pay')).toEqual(PROVEN);
    expect(precedes(gate, 'approve', 'ship')).toEqual(PROVEN);
    expect(way(precedes(gate, 'login', 'pay'))).toEqual(['approve: a count', 'pay']);
    expect(reasonOf(precedes(gate, 'login', 'ship'))).toBe('it turns on values');
  });

  it('know limits: a way with as few calls as they allow is certain', () => {
    const gate = StateMachineGate.fromOrder({
      open: {},
      pay: { after: 'open', limit: { times: 1, within: '5m' } },
      ship: { after: 'pay', limit: { sum: 'amount', max: 10 } },
      gone: { limit: { times: 0 } },
      close: { after: 'gone' },
    });
    expect(precedes(gate, 'open', 'pay')).toEqual(PROVEN);
    const paid = precedes(gate, 'ship', 'pay');
    expect(calls(paid)).toEqual(['open', 'pay']);
    expect(paid).toMatchObject({ isCertain: true });
    expect(reasonOf(never(gate, 'pay', { in: 'pay' }))).toBe('it turns on a limit');
    expect(way(precedes(gate, 'close', 'ship'))).toEqual(['open', 'pay', 'ship: a limit']);
    expect(reasonOf(precedes(gate, 'close', 'ship'))).toBe('it turns on a limit');
    // What may be called no time at all is never called, nor is what comes after it.
    expect(never(gate, 'gone', { in: '*' })).toEqual(PROVEN);
    expect(never(gate, 'close', { in: '*' })).toEqual(PROVEN);
    expect(reaches(gate, 'gone')).toEqual({ holds: false });
  });

  it('know limits of the tools of a machine', () => {
    const gate = new StateMachineGate({
      initial: 'idle',
      states: { idle: { on: { TRY: 'tried' } }, tried: { on: { TRY: 'out' } }, out: {} },
    })
      .bindTool('guess', ['idle', 'tried'], { success: 'TRY', limit: { times: 1 } })
      .bindTool('mourn', 'out')
      .bindTool('cheer', 'tried', { limit: { sum: 'amount', below: 5 } });
    expect(calls(precedes(gate, 'mourn', 'guess'))).toEqual(['guess']);
    expect(reasonOf(precedes(gate, 'cheer', 'mourn'))).toBe('it turns on a limit');
    expect(reasonOf(reaches(gate, 'out'))).toBe('it turns on a limit');
    expect(reasonOf(precedes(gate, 'mourn', 'cheer'))).toBe('it turns on a limit');
    expect(precedes(gate, 'guess', 'cheer')).toEqual(PROVEN);
  });

  it('know what must not be before, for ever or for a time', () => {
    const gate = (within?: '5m') =>
      StateMachineGate.fromOrder({
        reject: {},
        approve: { notAfter: { tool: 'reject', ...(within && { within }) } },
      });
    // Of the earlier calls only the rejections matter.
    expect(never(gate(), 'approve', { in: 'reject' })).toEqual(PROVEN);
    const later = never(gate('5m'), 'approve', { in: 'reject' });
    expect(reasonOf(later)).toBe('it turns on a window');
    expect(way(later)).toEqual(['reject', '(deadline): a window', 'approve']);
    expect(calls(precedes(gate('5m'), 'reject', 'approve'))).toEqual(['approve']);
    const valued = StateMachineGate.fromOrder({
      approve: { notAfter: { tool: 'reject', same: ['id'] } },
    });
    expect(reasonOf(never(valued, 'approve', { in: 'reject' }))).toBe('it turns on values');
  });

  it('know failures, and what is used up by them', () => {
    const gate = StateMachineGate.fromOrder({
      help: { after: { tool: 'try_pin', outcome: 'failed' } },
      look: { after: { tool: 'try_pin', outcome: 'any' } },
      pay: { after: { tool: 'otp', consumes: 'calls' } },
      again: { after: { tool: 'otp', consumes: true }, notAfter: 'pay' },
    }).bindTool('poor', { all: ['help', { not: 'otp' }] });
    expect(calls(precedes(gate, 'look', 'help'))).toEqual(['try_pin fails', 'help']);
    expect(calls(precedes(gate, 'help', 'look'))).toEqual(['try_pin', 'look']);
    expect(precedes(gate, 'otp', 'pay')).toEqual(PROVEN);
    expect(calls(never(gate, 'pay', { in: 'otp' }))).toEqual(['otp', 'pay']);
  });

  it('hold in each run of any rules, and their certain ways can be gone', async () => {
    const seen = { proven: 0, certain: 0, open: 0 };
    const property = fc.asyncProperty(fc.nat(), fc.nat(), async (seed, played) => {
      const { rules, needs = {} } = randomRules(seeded(seed, 'proofs'));
      let gate: StateMachineGate;
      try {
        gate = StateMachineGate.fromOrder(rules as never, { needs } as never) as never;
      } catch {
        return;
      }
      const { pick, chance, between } = seeded(played, 'play');
      const tools = gate.clone().compile().toolNames;
      const [earlier, later, there] = [pick(tools), pick(tools), pick(tools)];
      const first = precedes(gate, earlier, later);
      const closed = never(gate, later, { in: there });
      for (const proof of [first, closed]) {
        seen[proof.holds ? 'proven' : proof.holds === false ? 'certain' : 'open']++;
        if (proof.holds !== false) continue;
        expect(proof.isCertain).toBe(true);
        const t = testGate(gate);
        for (const [i, { by, tool = '', outcome }] of proof.counterExample.entries()) {
          expect(by).toBe('call');
          const isFailing = outcome === 'failure' && i < proof.counterExample.length - 1;
          const { ran } = await t.call(tool, {}, isFailing ? new Error('no') : { content: [] });
          expect(ran).toBe(true);
        }
        await t.close();
      }
      const remembering = gate.remembering([there]);
      const workflow = remembering.clone().compile();
      const t = testGate(remembering, { now: Date.UTC(2026, 0, 1) });
      let isDone = false;
      for (let made = 0; made < 15; made++) {
        if (chance(0.3)) await t.clock.advance(pick([1, 1_000, 60_000, 3_600_000]));
        const tool = chance(0.4) ? later : pick(tools);
        const isThere = workflow.standsIn(await t.state(), there);
        const args = { id: between(1, 2), kind: pick(['a', 'b']), amount: pick([0.1, 5]) };
        const { outcome } = await t.call(tool, args, {
          content: [],
          structuredContent: { id: between(1, 2), status: pick(['open', 'closed']) },
          isError: chance(0.2),
        });
        if (outcome === 'refused') continue;
        if (tool === later && !isDone) expect(first).not.toEqual(PROVEN);
        if (tool === later && isThere) expect(closed).not.toEqual(PROVEN);
        isDone ||= tool === earlier && outcome === 'ok';
      }
      await t.close();
    });
    for (let round = 0; round === 0 || (round < 27 && Object.values(seen).includes(0)); round++)
      await fc.assert(property, few(15, round));
    expect(Object.values(seen)).not.toContain(0);
  }, 120_000);
});

describe('proofs and what really happens', () => {
  it('agree with all ways of calling tools, in any flat machine', () => {
    fc.assert(
      fc.property(randomWorkflow, fc.nat(), fc.nat(), (random, a, b) => {
        const gate = gateOf(random);
        const names = random.tools.map(({ name }) => name);
        const [earlier = '', later = ''] = [names[a % names.length], names[b % names.length]];
        const state = random.states[a % random.states.length] ?? '';
        const order = precedes(gate, earlier, later);
        const shortest = shortestWay(gate, (tool) => tool === later, earlier);
        expect(order.holds).toBe(shortest === undefined);
        if (order.holds === false && !order.isCertain)
          expect(order.counterExample).toHaveLength(shortest ?? 0);
        const forbidden = never(gate, later, { in: state });
        const there = shortestWay(gate, (tool, at) => tool === later && at === state);
        expect(forbidden.holds).toBe(there === undefined);
        const reachable = reaches(gate, state);
        expect(reachable.holds).toBe(shortestWay(gate, (_, at) => at === state) !== undefined);
      }),
      few(75),
    );
  });

  it('agree through HTTP: a counter-example runs against a server', async () => {
    const gate = () =>
      new StateMachineGate({
        id: 'shop',
        initial: 'empty',
        states: {
          empty: { on: { ADD: 'full' } },
          full: { on: { PAY: 'paid', BROKE: 'stuck' } },
          stuck: { on: { PAY: 'paid' } },
          paid: { on: { SHIP: 'shipped' } },
          shipped: {},
        },
      })
        .bindTool('add', 'empty', 'ADD')
        .bindTool('check', 'full', { failure: 'BROKE' })
        .bindTool('pay', 'stuck', 'PAY')
        .bindTool('ship', 'paid', 'SHIP')
        .bindTool('track', 'shipped');
    const proof = precedes(gate(), 'check', 'track');
    if (proof.holds !== false) throw new Error('it holds');
    expect(proof.isCertain).toBe(true);
    const { client, ledger } = await scene({
      workflow: gate(),
      makeServer: toolServer(['add', 'check', 'pay', 'ship', 'track']),
    });
    const { raw } = await client();
    const called: string[] = [];
    for (const { tool = '', outcome } of proof.counterExample) {
      const { isError } = await raw.call(tool, { fail: outcome === 'failure' });
      expect(isError).toBe(outcome === 'failure');
      called.push(tool);
    }
    expect(called).toEqual(['add', 'check', 'pay', 'ship', 'track']);
    expect(ledger.calls).toEqual(called);
  });
});

/** How many calls lead to the wanted call, tried call by call with real arguments. */
function shortestWay(
  gate: StateMachineGate,
  isGoal: (tool: string, state: string) => boolean,
  unless?: string,
): number | undefined {
  const workflow = gate.clone().compile();
  const seen = new Set([workflow.initial]);
  let edge = [workflow.initial];
  for (let length = 1; edge.length > 0; length++) {
    const next: string[] = [];
    for (const state of edge) {
      for (const tool of workflow.toolNames) {
        for (let action = 0; action <= ACTIONS; action++) {
          const call = workflow.match(tool, { action });
          if (call !== undefined && !workflow.allows(state, call)) continue;
          if (isGoal(tool, state)) return length;
          const event = call?.eventIn(state);
          if (event === undefined || tool === unless) continue;
          const to = workflow.next({ state }, String(event)).position.state;
          if (!seen.has(to)) next.push(to);
          seen.add(to);
        }
      }
      if (isGoal('', state)) return length;
    }
    edge = next;
  }
  return undefined;
}
