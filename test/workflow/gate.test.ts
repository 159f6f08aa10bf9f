import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import { tool } from '../../src/doors/tool.ts';
import type { FsmConfig } from '../../src/workflow/flat-machine.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import type { Move } from '../../src/workflow/position.ts';
import { few } from '../helpers/few.ts';
import { checkoutConfig, checkoutGate, gateOf, randomWorkflow } from './machines.ts';

const thrownWith = (code: string, text = '') =>
  expect.objectContaining({ code, message: expect.stringContaining(text) });

describe('the listings of the guide', () => {
  it('walk a document through its approval', async () => {
    const config: FsmConfig = {
      id: 'approval',
      initial: 'draft',
      states: {
        draft: { on: { SUBMIT: 'review' } },
        review: { on: { APPROVE: 'approved', REJECT: 'draft' } },
        approved: { type: 'final' },
      },
    };
    const gate = new StateMachineGate(config, { now: () => 1709 });
    gate.bindTool('doc_submit', ['draft'], 'SUBMIT');
    gate.bindTool('doc_approve', ['review'], 'APPROVE');
    gate.bindTool('doc_reject', ['review'], 'REJECT');

    expect(gate.isToolAllowed('doc_approve')).toBe(false);
    const result = await gate.transition('SUBMIT');
    expect(result).toEqual({ changed: true, previousState: 'draft', currentState: 'review' });
    expect(gate.isToolAllowed('doc_approve')).toBe(true);

    const snapshot = gate.snapshot();
    expect(snapshot).toEqual({ state: 'review', updatedAt: 1709 });

    const gate2 = new StateMachineGate(config);
    gate2.restore(snapshot);
    expect(gate2.currentState).toBe('review');
    expect(gate2.snapshot()).toEqual(snapshot);
  });

  it('complete the checkout', async () => {
    const gate = new StateMachineGate(checkoutConfig);
    gate.bindTool('cart_add', ['empty', 'has_items'], 'ADD_ITEM');
    gate.bindTool('cart_pay', ['payment'], 'PAY');

    expect(gate.isToolAllowed('cart_pay')).toBe(false);

    await gate.transition('ADD_ITEM');
    await gate.transition('CHECKOUT');
    expect(gate.isToolAllowed('cart_pay')).toBe(true);

    await gate.transition('PAY');
    expect(gate.currentState).toBe('confirmed');
  });

  it('show in each state of the checkout the tools of the table', async () => {
    const gate = checkoutGate();
    const all = ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view'];
    const table = new Map([[gate.currentState, gate.getVisibleToolNames(all)]]);
    for (const event of ['ADD_ITEM', 'CHECKOUT', 'PAY'] as const) {
      table.set((await gate.transition(event)).currentState, gate.getVisibleToolNames(all));
    }
    expect(Object.fromEntries(table)).toEqual({
      empty: ['cart.add_item', 'cart.view'],
      has_items: ['cart.add_item', 'cart.checkout', 'cart.view'],
      payment: ['cart.pay', 'cart.view'],
      confirmed: ['cart.view'],
    });
  });
});

describe('bindTool', () => {
  it('takes one state or several, and can be chained', () => {
    const gate = new StateMachineGate(checkoutConfig);
    expect(gate.hasBindings).toBe(false);
    expect(gate.bindTool('a', 'empty').bindTool('b', ['payment', 'confirmed'])).toBe(gate);
    expect(gate.hasBindings).toBe(true);
    expect(gate.getVisibleToolNames(['b', 'c', 'a'])).toEqual(['c', 'a']);
  });

  it('adds bindings of one tool up', async () => {
    const gate = new StateMachineGate(checkoutConfig)
      .bindTool('next', 'empty', 'ADD_ITEM')
      .bindTool('next', 'has_items', 'CHECKOUT');
    expect(gate.isToolAllowed('next')).toBe(true);
    expect(gate.getTransitionEvent('next')).toBe('ADD_ITEM');
    await gate.transition('ADD_ITEM');
    expect(gate.isToolAllowed('next')).toBe(true);
    expect(gate.getTransitionEvent('next')).toBe('CHECKOUT');
    await gate.transition('CHECKOUT');
    expect(gate.isToolAllowed('next')).toBe(false);
    expect(gate.getTransitionEvent('next')).toBe('ADD_ITEM');
  });

  it('has no event for a tool that sends none there, or is not bound', () => {
    const gate = new StateMachineGate(checkoutConfig);
    gate.bindTool('look', 'payment', 'PAY').bindTool('look', 'empty').bindTool('view', 'payment');
    expect(gate.getTransitionEvent('look')).toBeUndefined();
    expect(gate.getTransitionEvent('view')).toBeUndefined();
    expect(gate.getTransitionEvent('other')).toBeUndefined();
    expect(gate.getTransitionEvent('constructor')).toBeUndefined();
  });

  it('always shows a tool whose every binding has a "when"', () => {
    const gate = new StateMachineGate(checkoutConfig)
      .bindTool('cart', 'payment', { success: 'PAY', when: (args) => args.action === 'pay' })
      .bindTool('mixed', 'payment', { when: () => true })
      .bindTool('mixed', 'confirmed');
    expect(gate.isToolAllowed('cart')).toBe(true);
    expect(gate.isToolAllowed('mixed')).toBe(false);
  });

  it.each([
    ['', 'empty', undefined, 'ERR_INTERLOCK_BINDING', 'name of a tool, got ""'],
    [7, 'empty', undefined, 'ERR_INTERLOCK_BINDING', 'name of a tool, got 7'],
    ['t', [], undefined, 'ERR_INTERLOCK_BINDING', 'one state or more, got an empty array'],
    ['t', undefined, undefined, 'ERR_INTERLOCK_BINDING', 'one state or more, got undefined'],
    ['t', ['empty', 7], undefined, 'ERR_INTERLOCK_BINDING', 'one state or more, got 7'],
    [
      't',
      'emtpy',
      undefined,
      'ERR_INTERLOCK_BINDING',
      '"emtpy", which is no state of workflow "checkout", did you mean "empty"?',
    ],
    ['t', 'constructor', undefined, 'ERR_INTERLOCK_BINDING', '"constructor", which is no state'],
    ['t', 'empty', '', 'ERR_INTERLOCK_EVENT', 'name of an event, got ""'],
    ['t', 'empty', 7, 'ERR_INTERLOCK_EVENT', 'name of an event, got 7'],
    ['t', 'empty', null, 'ERR_INTERLOCK_EVENT', 'name of an event, got null'],
    ['t', 'empty', { success: '' }, 'ERR_INTERLOCK_EVENT', 'name of an event, got ""'],
    ['t', 'payment', 'PAYY', 'ERR_INTERLOCK_EVENT', 'no state handles; did you mean "PAY"?'],
    ['t', 'empty', { succes: 'PAY' }, 'ERR_INTERLOCK_CONFIG', '"succes", did you mean "success"?'],
    ['t', 'empty', { when: true }, 'ERR_INTERLOCK_CONFIG', 'when: expected a function, got true'],
    [
      't',
      'empty',
      { uncertain: 'wait' },
      'ERR_INTERLOCK_CONFIG',
      'expected one of "hold", "retry", got "wait"',
    ],
  ])('refuses %j in %j with %j', (name, states, event, code, text) => {
    const gate = new StateMachineGate(checkoutConfig);
    const bindTool = gate.bindTool.bind(gate) as (...args: unknown[]) => unknown;
    expect(() => bindTool(name, states, event)).toThrow(thrownWith(code, text));
    expect(gate.hasBindings).toBe(false);
  });

  it('takes an explicit undefined as an option that is left out', () => {
    const gate = new StateMachineGate(checkoutConfig);
    gate.bindTool('t', 'empty', { success: undefined, when: undefined, uncertain: undefined });
    expect(gate.compile().match('t', {})).toMatchObject({ kind: 'free', uncertain: undefined });
  });

  it('copies the list of states', () => {
    const states: ('empty' | 'payment')[] = ['payment'];
    const gate = new StateMachineGate(checkoutConfig).bindTool('t', states);
    states.push('empty');
    expect(gate.isToolAllowed('t')).toBe(false);
  });
});

describe('warnings', () => {
  it('are absent where one of several bound states handles the event', () => {
    expect(checkoutGate().warnings).toEqual([]);
  });

  it('name the states that handle the event, where no bound state does', () => {
    const gate = new StateMachineGate(checkoutConfig).bindTool('cart.pay', 'empty', 'PAY');
    expect(gate.warnings).toEqual([
      'workflow "checkout": tool "cart.pay" sends "PAY", which none of its states handles; ' +
        'states that do are "payment"',
    ]);
  });

  it.each([
    ['by two calls of bindTool()', (gate: StateMachineGate) => gate.bindTool('t', 'payment')],
    ['by two declarations', (gate: StateMachineGate) => gate.bind(tool('t').bindState('payment'))],
  ])('tell of a tool that is bound again without "when", which adds a binding: %s', (_, again) => {
    const gate: StateMachineGate = new StateMachineGate(checkoutConfig);
    again(gate.bindTool('t', ['empty', 'payment'], 'PAY'));
    expect(gate.warnings).toEqual([
      'workflow "checkout": tool "t" is bound again, ' +
        'which adds to its binding and does not replace it: ' +
        'now it is available in "empty", "payment". ' +
        'If that is meant, say it at once: bind(tool("t").bindState(…).bindState(…))',
    ]);
  });

  it('are absent for bindings with a "when", and for those of one declaration', () => {
    const gate = new StateMachineGate(checkoutConfig)
      .bindTool('t', 'empty', { when: ({ a }) => a === 1 })
      .bindTool('t', 'payment')
      .bindTool('t', 'confirmed', { when: ({ a }) => a === 2 })
      .bind(tool('u').bindState('empty', 'ADD_ITEM').bindState('payment', 'PAY'), tool('u'));
    expect(gate.warnings).toEqual([]);
  });
});

describe('bind', () => {
  it('adds every binding of a declaration', () => {
    const gate = new StateMachineGate(checkoutConfig).bind(
      tool('cart.add').bindState(['empty', 'has_items'], 'ADD_ITEM').invalidates('cart.*'),
      tool('cart.pay')
        .bindState('payment', { success: 'PAY', uncertain: 'retry' })
        .bindState('confirmed'),
      tool('countries').cached(),
    );
    const workflow = gate.compile();
    expect(workflow.toolNames).toEqual(['cart.add', 'cart.pay']);
    expect(workflow.available('confirmed')).toEqual(['cart.pay']);
    expect(gate.getTransitionEvent('cart.add')).toBe('ADD_ITEM');
  });

  it('adds no binding where one is wrong', () => {
    const gate = new StateMachineGate<string, string>(checkoutConfig);
    const good = tool('a').bindState('empty');
    expect(() => gate.bind(good, tool('b').bindState('nowhere'))).toThrow(
      thrownWith('ERR_INTERLOCK_BINDING', '"nowhere"'),
    );
    expect(gate.hasBindings).toBe(false);
  });

  it.each([undefined, 'cart.pay', {}, { name: 'x', bindings: [null] }])(
    'refuses %j',
    (declaration) => {
      const gate = new StateMachineGate(checkoutConfig);
      const bind = gate.bind.bind(gate) as (...args: unknown[]) => unknown;
      expect(() => bind(declaration)).toThrow(
        thrownWith('ERR_INTERLOCK_BINDING', 'made by tool()'),
      );
    },
  );
});

describe('transition', () => {
  it('changes nothing for an event that the state, or any state, does not handle', async () => {
    const gate = new StateMachineGate<string, string>(checkoutConfig);
    const unchanged = { changed: false, previousState: 'empty', currentState: 'empty' };
    for (const event of ['PAY', 'nonsense', 'constructor', '__proto__']) {
      expect(await gate.transition(event)).toEqual(unchanged);
    }
  });

  it.each(['', 7, null, undefined, {}])('refuses %j as an event', async (event) => {
    const gate = new StateMachineGate<string, string>(checkoutConfig);
    await expect(gate.transition(event as string)).rejects.toEqual(
      thrownWith('ERR_INTERLOCK_EVENT'),
    );
  });

  it('stamps the snapshot by its clock, but only when the state changes', async () => {
    let time = 1;
    const gate = new StateMachineGate(checkoutConfig, { now: () => time });
    time = 2;
    await gate.transition('PAY');
    expect(gate.snapshot()).toEqual({ state: 'empty', updatedAt: 1 });
    await gate.transition('ADD_ITEM');
    expect(gate.snapshot()).toEqual({ state: 'has_items', updatedAt: 2 });
  });

  it('stays within the states of any machine, for any events', async () => {
    await fc.assert(
      fc.asyncProperty(
        randomWorkflow,
        fc.array(fc.string({ minLength: 1 })),
        async (random, noise) => {
          const gate = gateOf(random);
          for (const event of [...random.events, ...noise, ...random.events]) {
            const before = gate.currentState;
            const result = await gate.transition(event);
            expect(random.states).toContain(result.currentState);
            expect(result).toEqual({
              changed: before !== gate.currentState,
              previousState: before,
              currentState: gate.currentState,
            });
          }
        },
      ),
      few(30),
    );
  });

  it('agrees with the compiled workflow about states and tools', async () => {
    await fc.assert(
      fc.asyncProperty(randomWorkflow, fc.array(fc.nat()), async (random, choices) => {
        const gate = gateOf(random);
        const workflow = gate.compile();
        const names = random.tools.map(({ name }) => name);
        for (const choice of [0, ...choices]) {
          const event = random.events[choice % random.events.length] ?? '';
          const expected = workflow.next({ state: gate.currentState }, event).position.state;
          expect((await gate.transition(event)).currentState).toBe(expected);
          expect(workflow.available(expected)).toEqual(gate.getVisibleToolNames(names));
          for (const name of [...names, 'unbound', 'valueOf']) {
            expect(workflow.isVisible(name, expected)).toBe(gate.isToolAllowed(name));
          }
        }
      }),
      few(30),
    );
  });
});

describe('onTransition', () => {
  it('calls back with each change and its event, and not where nothing changed', async () => {
    const gate = checkoutGate();
    const moves: Move[] = [];
    gate.onTransition((move) => moves.push(move));
    await gate.transition('PAY');
    await gate.transition('ADD_ITEM');
    expect(moves).toEqual([
      { changed: true, previousState: 'empty', currentState: 'has_items', event: 'ADD_ITEM' },
    ]);
  });

  it('stops each subscription on its own', async () => {
    const gate = checkoutGate();
    let calls = 0;
    const count = () => {
      calls += 1;
    };
    const stopFirst = gate.onTransition(count);
    gate.onTransition(count);
    await gate.transition('ADD_ITEM');
    expect(calls).toBe(2);
    stopFirst();
    stopFirst();
    await gate.transition('CLEAR');
    expect(calls).toBe(3);
  });

  it('tells onError what a callback throws or rejects with, and goes on', async () => {
    const errors: unknown[] = [];
    const gate = new StateMachineGate(checkoutConfig, {
      onError: (error) => {
        errors.push(error);
        throw new Error('the reporter fails too');
      },
    });
    const seen: string[] = [];
    gate.onTransition(() => {
      throw 'thrown';
    });
    gate.onTransition(async () => {
      throw 'rejected';
    });
    gate.onTransition((move) => {
      Reflect.set(move, 'currentState', 'forged');
    });
    gate.onTransition(({ currentState }) => seen.push(currentState));

    const result = await gate.transition('ADD_ITEM');
    expect(result).toEqual({ changed: true, previousState: 'empty', currentState: 'has_items' });
    expect(gate.currentState).toBe('has_items');
    expect(seen).toEqual(['has_items']);
    await Promise.resolve();
    expect(errors).toEqual(['thrown', 'rejected']);
  });

  it('skips a callback that another callback has just removed', async () => {
    const gate = checkoutGate();
    let called = false;
    gate.onTransition(() => stop());
    const stop = gate.onTransition(() => {
      called = true;
    });
    await gate.transition('ADD_ITEM');
    expect(called).toBe(false);
  });

  it('refuses a value that is no function', () => {
    const subscribe = checkoutGate().onTransition as (callback: unknown) => unknown;
    expect(() => subscribe.call(checkoutGate(), 'log')).toThrow(
      thrownWith('ERR_INTERLOCK_CONFIG', '"log"'),
    );
  });
});

describe('restore', () => {
  it.each([
    [undefined, 'state: expected string, got undefined'],
    [null, 'expected object, got null'],
    ['payment', 'expected object, got "payment"'],
    [{ state: 'payment' }, 'updatedAt: expected number, got undefined'],
    [{ state: 7, updatedAt: 1 }, 'state: expected string, got 7'],
    [{ state: 'payment', updatedAt: Number.NaN }, 'updatedAt: expected number, got NaN'],
    [{ state: 'payment', updatedAt: 1, version: -1 }, 'version: '],
    [
      { state: 'paymnt', updatedAt: 1 },
      '"paymnt", a state that "checkout" does not have, did you mean "payment"?',
    ],
    [
      { state: 'constructor', updatedAt: 1 },
      '"constructor", a state that "checkout" does not have',
    ],
    [{ state: '__proto__', updatedAt: 1 }, '"__proto__", a state that "checkout" does not have'],
    [Object.create({ state: 'payment', updatedAt: 1 }), 'state: expected string, got undefined'],
  ])('refuses %j and stays where it is', (snapshot, text) => {
    const gate = checkoutGate();
    expect(() => gate.restore(snapshot)).toThrow(thrownWith('ERR_INTERLOCK_SNAPSHOT', text));
    expect(gate.currentState).toBe('empty');
  });

  it('brings back a snapshot that went through JSON, in any state of any machine', () => {
    fc.assert(
      fc.property(randomWorkflow, fc.nat(), (random, updatedAt) => {
        for (const state of random.states) {
          const gate = gateOf(random);
          gate.restore({ state, updatedAt });
          const kept = JSON.parse(JSON.stringify(gate.snapshot()));
          const other = gateOf(random);
          other.restore(kept);
          expect(other.snapshot()).toEqual({ state, updatedAt });
        }
      }),
      { numRuns: 50 },
    );
  });

  it('calls no callback, and ignores what a store keeps beside the snapshot', () => {
    const gate = checkoutGate();
    const moves: Move[] = [];
    gate.onTransition((move) => moves.push(move));
    gate.restore({
      state: 'payment',
      updatedAt: 5,
      version: 3,
      context: { a: 1 },
      ...{ _id: 'x' },
    });
    expect(gate.snapshot()).toEqual({ state: 'payment', updatedAt: 5, context: { a: 1 } });
    expect(moves).toEqual([]);
  });
});

describe('clone', () => {
  it('begins at the same position, and moves on its own', async () => {
    const gate = checkoutGate();
    await gate.transition('ADD_ITEM');
    const copy = gate.clone();
    expect(copy).toBeInstanceOf(StateMachineGate);
    expect(copy.snapshot()).toEqual(gate.snapshot());
    expect(copy.isToolAllowed('cart.checkout')).toBe(true);
    expect(copy.isToolAllowed('cart.pay')).toBe(false);
    await copy.transition('CHECKOUT');
    expect([gate.currentState, copy.currentState]).toEqual(['has_items', 'payment']);
    gate.restore({ state: 'confirmed', updatedAt: 0 });
    expect(copy.currentState).toBe('payment');
    gate.dispose();
    expect((await copy.transition('PAY')).currentState).toBe('confirmed');
  });

  it('has the bindings, warnings and options, but no callbacks', async () => {
    const moves: Move[] = [];
    const gate = new StateMachineGate(checkoutConfig, { now: () => 7 });
    gate
      .bindTool('t', 'empty', 'PAY')
      .bindPrompt('p', 'payment')
      .onTransition((move) => moves.push(move));
    const copy = gate.clone();
    expect(copy.id).toBe(gate.id);
    expect(copy.warnings).toEqual(gate.warnings);
    expect(gate.warnings).toHaveLength(1);
    await copy.transition('ADD_ITEM');
    expect(moves).toEqual([]);
    expect(copy.snapshot()).toEqual({ state: 'has_items', updatedAt: 7 });
    expect(copy.compile().reads.promptNames).toEqual(['p']);
  });

  it('takes bindings once the gate is mounted, without changing the gate', () => {
    const gate = checkoutGate();
    gate.compile();
    const copy = gate.clone().bindTool('refund', 'confirmed').bindResource('docs://**', 'payment');
    expect(copy.isToolAllowed('refund')).toBe(false);
    expect(gate.isToolAllowed('refund')).toBe(true);
    expect(gate.compile().reads.bindsResources).toBe(false);
  });

  it('of a statechart runs the actions of its first states on its own first move', async () => {
    const actions: string[] = [];
    const machine = createMachine({
      initial: 'a',
      entry: 'greet',
      states: { a: { on: { GO: 'b' } }, b: {} },
    });
    const gate = new StateMachineGate(machine, { onAction: ({ type }) => void actions.push(type) });
    const copy = gate.clone();
    await gate.transition('GO');
    await copy.transition('GO');
    expect(actions).toEqual(['greet', 'greet']);
  });

  it('refuses to copy a gate after dispose()', () => {
    const gate = checkoutGate();
    gate.dispose();
    expect(() => gate.clone()).toThrow(thrownWith('ERR_INTERLOCK_DISPOSED', 'clone()'));
  });
});

describe('init', () => {
  it('does nothing, and says whether the machine is one of XState', async () => {
    const gate = checkoutGate();
    expect(await gate.init()).toBe(false);
    expect(gate.currentState).toBe('empty');
    expect(
      await new StateMachineGate(createMachine({ initial: 'a', states: { a: {} } })).init(),
    ).toBe(true);
  });
});

describe('dispose', () => {
  it('drops the callbacks and refuses further use, but the gate can still be read', async () => {
    const gate = checkoutGate();
    const workflow = gate.compile();
    const moves: Move[] = [];
    gate.onTransition((move) => moves.push(move));
    gate.dispose();
    gate.dispose();
    const gone = thrownWith('ERR_INTERLOCK_DISPOSED', 'dispose()');
    await expect(gate.transition('ADD_ITEM')).rejects.toEqual(gone);
    expect(() => gate.bindTool('t', 'empty')).toThrow(gone);
    expect(() => gate.bind()).toThrow(gone);
    expect(() => gate.restore(gate.snapshot())).toThrow(gone);
    expect(() => gate.onTransition(() => {})).toThrow(gone);
    expect(() => gate.compile()).toThrow(gone);
    expect(gate.currentState).toBe('empty');
    expect(gate.isToolAllowed('cart.pay')).toBe(false);
    workflow.emit({
      changed: true,
      previousState: 'empty',
      currentState: 'has_items',
      event: 'ADD_ITEM',
    });
    expect(moves).toEqual([]);
  });
});

describe('the options of a gate', () => {
  it('are checked', () => {
    const make = (options: object) => () => new StateMachineGate(checkoutConfig, options);
    expect(make({ clock: Date.now })).toThrow(
      thrownWith('ERR_INTERLOCK_CONFIG', 'unknown key "clock"'),
    );
    expect(make({ now: 5 })).toThrow(
      thrownWith('ERR_INTERLOCK_CONFIG', 'now: expected a function, got 5'),
    );
  });

  it('default to the system clock', () => {
    const before = Date.now();
    const { updatedAt } = new StateMachineGate(checkoutConfig, { now: undefined }).snapshot();
    expect(updatedAt).toBeGreaterThanOrEqual(before);
    expect(updatedAt).toBeLessThanOrEqual(Date.now());
  });
});
