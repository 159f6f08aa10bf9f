import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMachine } from 'xstate';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import type { Move } from '../../src/workflow/position.ts';
import type { Workflow } from '../../src/workflow/workflow.ts';
import { sealed } from '../helpers/envelope.ts';
import { few } from '../helpers/few.ts';
import { ACTIONS, checkoutConfig, checkoutGate, gateOf, randomWorkflow } from './machines.ts';

describe('compile', () => {
  it('returns the same frozen object each time', () => {
    const gate = checkoutGate();
    const workflow = gate.compile();
    expect(gate.compile()).toBe(workflow);
    expect(Object.isFrozen(workflow)).toBe(true);
    expect(Object.isFrozen(workflow.toolNames)).toBe(true);
    expect(Object.isFrozen(workflow.available('empty'))).toBe(true);
  });

  it('refuses further bindings afterwards', () => {
    const gate = checkoutGate();
    gate.compile();
    const refusal = expect.objectContaining({
      code: 'ERR_INTERLOCK_BINDING',
      message: expect.stringContaining('workflow "checkout" is already mounted'),
    });
    expect(() => gate.bindTool('late', 'empty')).toThrow(refusal);
    expect(() => gate.bind({ name: 'late', bindings: [] })).toThrow(refusal);
  });

  it('knows what the gate knows', () => {
    const gate = new StateMachineGate(checkoutConfig)
      .bindTool('b', 'empty', 'PAY')
      .bindTool('a', 'empty')
      .bindTool('b', 'payment', 'PAY');
    const workflow = gate.compile();
    expect(workflow).toMatchObject({ id: 'checkout', initial: 'empty', toolNames: ['b', 'a'] });
    expect(workflow.states).toEqual(['empty', 'has_items', 'payment', 'confirmed']);
    expect(workflow.warnings).toEqual(gate.warnings);
    expect(workflow.warnings).toHaveLength(2);
  });
});

describe('a compiled workflow', () => {
  const workflow = checkoutGate().compile();

  it('knows its states and where events lead', () => {
    expect(workflow.model.has('payment')).toBe(true);
    expect(workflow.model.has('constructor')).toBe(false);
    expect(workflow.next({ state: 'payment' }, 'PAY')).toMatchObject({
      position: { state: 'confirmed' },
      changed: true,
      handled: true,
    });
    expect(workflow.next({ state: 'has_items' }, 'ADD_ITEM')).toMatchObject({
      position: { state: 'has_items' },
      changed: false,
      handled: false,
    });
    expect(workflow.next({ state: 'nowhere' }, 'PAY')).toMatchObject({
      position: { state: 'nowhere' },
      changed: false,
    });
  });

  it('shows tools that are not bound, and hides bound ones in an unknown state', () => {
    expect(workflow.isVisible('cart.view', 'payment')).toBe(true);
    expect(workflow.isVisible('cart.view', 'nowhere')).toBe(true);
    expect(workflow.isVisible('toString', 'payment')).toBe(true);
    expect(workflow.isVisible('cart.pay', 'nowhere')).toBe(false);
    expect(workflow.available('__proto__')).toEqual([]);
  });

  it('hides even a grouped tool in an unknown state', () => {
    const gate = new StateMachineGate(checkoutConfig).bindTool('cart', 'payment', {
      when: () => true,
    });
    expect(gate.compile().isVisible('cart', 'empty')).toBe(true);
    expect(gate.compile().isVisible('cart', 'nowhere')).toBe(false);
  });

  it('works out the tools of a state only once', () => {
    expect(workflow.available('has_items')).toEqual(['cart.add_item', 'cart.checkout']);
    expect(workflow.available('has_items')).toBe(workflow.available('has_items'));
  });

  it('tells whether two states show the same tools', () => {
    expect(workflow.sameTools('empty', 'has_items')).toBe(false);
    expect(workflow.sameTools('payment', 'payment')).toBe(true);
    expect(workflow.sameTools('confirmed', 'nowhere')).toBe(true);
    fc.assert(
      fc.property(randomWorkflow, (random) => {
        const compiled = gateOf(random).compile();
        for (const a of random.states) {
          for (const b of random.states) {
            const same =
              JSON.stringify(compiled.available(a)) === JSON.stringify(compiled.available(b));
            expect(compiled.sameTools(a, b)).toBe(same);
          }
        }
      }),
    );
  });

  it('calls the callbacks of its gate for a run, without moving the gate', () => {
    const gate = checkoutGate();
    const moves: Move[] = [];
    gate.onTransition((move) => moves.push(move));
    const move = {
      changed: true,
      previousState: 'payment',
      currentState: 'confirmed',
      event: 'PAY',
      run: 'r1',
    };
    gate.compile().emit(move);
    gate.compile().emit({ ...move, changed: false });
    expect(moves).toEqual([move]);
    expect(gate.currentState).toBe('empty');
  });

  it("tells the caller's onError what a callback throws", () => {
    const gate = checkoutGate();
    gate.onTransition(() => {
      throw 'thrown';
    });
    const errors: unknown[] = [];
    const move = {
      changed: true,
      previousState: 'payment',
      currentState: 'confirmed',
      event: 'PAY',
    };
    gate.compile().emit(move, (error) => errors.push(error));
    expect(errors).toEqual(['thrown']);
  });

  it('checks and copies a snapshot from a store, context and version included', () => {
    const stored = { state: 'payment', updatedAt: 5, version: 3, context: { a: [1] }, ttl: 9 };
    expect(workflow.parseSnapshot(stored)).toEqual({
      state: 'payment',
      updatedAt: 5,
      version: 3,
      context: sealed({ data: { a: [1] } }),
    });
    expect(() => workflow.parseSnapshot({ state: 'x', updatedAt: 5 })).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_SNAPSHOT' }),
    );
  });
});

describe('understand', () => {
  const waiting = new StateMachineGate(
    {
      initial: 'offered',
      states: {
        offered: { after: { 1000: 'expired' }, on: { TAKE: 'taken' } },
        expired: {},
        taken: {},
      },
    },
    { version: 1 },
  ).compile();

  it('says where a run stands, since when, and where a deadline has taken it', () => {
    const stored = { ...waiting.start, updatedAt: 5000 };
    const early = waiting.understand(stored, 5999);
    expect(early).toEqual({ position: waiting.stand(stored), left: undefined });
    const late = waiting.understand({ ...early.position, updatedAt: 5900 }, 6000);
    expect(late.position).toEqual(early.position);
    expect(late.expiry).toMatchObject({ position: { state: 'expired' }, changed: true });
  });

  it('refuses a state that this deployment does not know', () => {
    expect(() => waiting.understand({ state: 'gone', updatedAt: 0 }, 0)).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_SNAPSHOT' }),
    );
  });
});

describe('match', () => {
  const cart = () =>
    new StateMachineGate(checkoutConfig)
      .bindTool('cart', 'payment', { success: 'PAY', when: ({ action }) => action === 'pay' })
      .bindTool('cart', ['payment', 'has_items'], {
        when: ({ action }) => action === 'pay' || action === 'clear',
        uncertain: 'retry',
      });

  it('does not gate a tool that is not bound', () => {
    const workflow = checkoutGate().compile();
    expect(workflow.match('cart.view', {})).toBeUndefined();
    expect(workflow.match('constructor', {})).toBeUndefined();
    expect(workflow.match('__proto__', {})).toBeUndefined();
  });

  it('adds up the bindings of a tool only once', () => {
    const workflow = new StateMachineGate(checkoutConfig)
      .bindTool('t', ['payment', 'empty'])
      .bindTool('t', ['empty', 'confirmed'], 'ADD_ITEM')
      .compile();
    const call = workflow.match('t', { any: 1 });
    expect(call).toMatchObject({
      states: ['payment', 'empty', 'confirmed'],
      kind: 'step',
      uncertain: undefined,
    });
    expect(call?.eventIn('empty')).toBe('ADD_ITEM');
    expect(call?.eventIn('payment')).toBeUndefined();
    expect(call?.eventIn('constructor')).toBeUndefined();
    expect(workflow.match('t', undefined)).toBe(call);
  });

  it('sends the event of the first binding that is available in the state', () => {
    const call = new StateMachineGate(checkoutConfig)
      .bindTool('t', 'payment', 'CANCEL')
      .bindTool('t', ['payment', 'empty'], 'PAY')
      .compile()
      .match('t', {});
    expect(call?.eventIn('payment')).toBe('CANCEL');
    expect(call?.eventIn('empty')).toBe('PAY');
  });

  it('takes the bindings whose "when" accepts the arguments', () => {
    const workflow = cart().compile();
    expect(workflow.match('cart', { action: 'view' })).toBeUndefined();
    expect(workflow.match('cart', undefined)).toBeUndefined();
    expect(workflow.match('cart', { action: 'clear' })).toMatchObject({
      states: ['payment', 'has_items'],
      kind: 'free',
      uncertain: 'retry',
    });
    const pay = workflow.match('cart', { action: 'pay' });
    expect(pay).toMatchObject({
      states: ['payment', 'has_items'],
      kind: 'step',
      uncertain: undefined,
    });
    expect(pay?.eventIn('payment')).toBe('PAY');
  });

  it('gates a call that no "when" accepts by the binding without one', () => {
    const workflow = cart().bindTool('cart', 'confirmed').compile();
    expect(workflow.match('cart', { action: 'view' })).toMatchObject({
      states: ['confirmed'],
      kind: 'free',
    });
    expect(workflow.match('cart', { action: 'clear' })?.states).toEqual([
      'payment',
      'has_items',
      'confirmed',
    ]);
  });

  it.each([
    [['hold', 'retry'], 'hold'],
    [['retry', 'retry'], 'retry'],
    [['retry', undefined], undefined],
    [[undefined, 'hold'], 'hold'],
    [[undefined, undefined], undefined],
  ] as const)(
    'of bindings that say %j about an unknown outcome takes the strictest: %s',
    (said, strictest) => {
      const gate = new StateMachineGate(checkoutConfig);
      for (const uncertain of said) gate.bindTool('t', 'empty', { uncertain });
      expect(gate.compile().match('t', {})?.uncertain).toBe(strictest);
    },
  );

  const answering = (when: () => unknown) =>
    new StateMachineGate(checkoutConfig)
      .bindTool('t', 'empty', { when: when as () => boolean })
      .compile();

  it.each([
    [
      'throws',
      () => {
        throw new Error('broken test');
      },
      'broken test',
    ],
    ['returns nothing', () => undefined, 'returned undefined, not a boolean'],
    ['returns something true', () => 'yes', 'returned "yes", not a boolean'],
    ['is asynchronous', async () => true, 'returned an object, not a boolean'],
    [
      'is asynchronous and fails',
      async () => {
        throw new Error('unseen');
      },
      'returned an object, not a boolean',
    ],
  ])('throws where a "when" %s, so that the gate refuses the call', (_, when, message) => {
    expect(() => answering(when).match('t', {})).toThrow(message);
  });

  it.each([['pay'], [7], [[]], [true]])(
    'throws where a test is to be made of %j, which are no arguments',
    (args) => {
      expect(() => answering(() => true).match('t', args)).toThrow('not an object');
    },
  );
});

describe('wayTo', () => {
  it('searches once for each state and each list of states', () => {
    const workflow = checkoutGate().compile();
    const { states } = workflow.match('cart.pay', {}) ?? { states: [] };
    const path = workflow.wayTo(states, { state: 'empty' }).path;
    expect(path?.length).toBeGreaterThan(0);
    expect(workflow.wayTo(states, { state: 'empty', context: sealed({ data: 1 }) }).path).toBe(
      path,
    );
  });

  it('finds the shortest way', () => {
    const workflow = checkoutGate().compile();
    expect(workflow.wayTo(['payment'], { state: 'has_items' }).path).toEqual(['cart.checkout']);
    expect(workflow.wayTo(['payment'], { state: 'empty' }).path).toEqual([
      'cart.add_item',
      'cart.checkout',
    ]);
    expect(workflow.wayTo(['confirmed', 'has_items'], { state: 'empty' }).path).toEqual([
      'cart.add_item',
    ]);
  });

  it('finds an empty way where the run is there already', () => {
    expect(checkoutGate().compile().wayTo(['payment', 'empty'], { state: 'empty' }).path).toEqual(
      [],
    );
  });

  it('finds no way where calling tools does not lead there', () => {
    const workflow = checkoutGate().compile();
    expect(workflow.wayTo(['empty'], { state: 'payment' }).path).toBeUndefined();
    expect(workflow.wayTo(['payment'], { state: 'nowhere' }).path).toBeUndefined();
    expect(workflow.wayTo(['nowhere'], { state: 'nowhere' }).path).toBeUndefined();
    expect(workflow.wayTo(['__proto__'], { state: 'empty' }).path).toBeUndefined();
    expect(workflow.wayTo([], { state: 'empty' }).path).toBeUndefined();
  });

  it('goes by the tool that was bound first where two ways are equally short', () => {
    const bound = (...tools: string[]) => {
      const gate = new StateMachineGate(checkoutConfig);
      for (const name of tools) gate.bindTool(name, 'empty', 'ADD_ITEM');
      return gate.compile();
    };
    expect(bound('a', 'b').wayTo(['has_items'], { state: 'empty' }).path).toEqual(['a']);
    expect(bound('b', 'a').wayTo(['has_items'], { state: 'empty' }).path).toEqual(['b']);
  });

  it('includes calls that a "when" accepts', () => {
    const workflow = new StateMachineGate(checkoutConfig)
      .bindTool('cart', 'empty', { success: 'ADD_ITEM', when: ({ action }) => action === 'add' })
      .bindTool('cart', 'has_items', {
        success: 'CHECKOUT',
        when: ({ action }) => action === 'checkout',
      })
      .compile();
    expect(workflow.wayTo(['payment'], { state: 'empty' }).path).toEqual(['cart', 'cart']);
  });

  it('takes a call whose event is known before one whose function may choose it', () => {
    const config = {
      id: 'hotel',
      initial: 'idle',
      states: {
        idle: { on: { QUOTE: 'quoted' } },
        quoted: { on: { QUOTE: 'quoted', RESERVE: 'reserved' } },
        reserved: { on: { PAY: 'paid' } },
        paid: {},
      },
    } as const;
    for (const gate of [
      new StateMachineGate(config),
      new StateMachineGate(createMachine(config as never)),
    ] as StateMachineGate[]) {
      const workflow = gate
        .bindTool('get_quote', ['idle', 'quoted'], { success: () => ({ type: 'QUOTE' }) })
        .bindTool('reserve', 'quoted', 'RESERVE')
        .bindTool('pay', 'reserved', 'PAY')
        .compile();
      expect(workflow.wayTo(['reserved'], workflow.start).path).toEqual(['get_quote', 'reserve']);
    }
  });

  it('leaves out an event where an earlier binding always sends another one', () => {
    const workflow = new StateMachineGate(checkoutConfig)
      .bindTool('t', 'payment', 'CANCEL')
      .bindTool('t', 'payment', 'PAY')
      .compile();
    expect(workflow.wayTo(['confirmed'], { state: 'payment' }).path).toBeUndefined();
  });

  /** The states in which a run can be after one successful call of `tool` with any arguments. */
  const afterCall = (workflow: Workflow, state: string, tool: string): string[] =>
    [...Array(ACTIONS + 1).keys()].flatMap((action) => {
      const call = workflow.match(tool, { action });
      if (call === undefined || !call.states.includes(state)) return [];
      const event = call.eventIn(state);
      return typeof event !== 'string' ? [state] : [workflow.next({ state }, event).position.state];
    });

  const afterCalls = (workflow: Workflow, from: string, path: readonly string[]): string[] => {
    let states = [from];
    for (const tool of path) {
      states = [...new Set(states.flatMap((state) => afterCall(workflow, state, tool)))];
    }
    return states;
  };

  /** The fewest calls to a state, found by trying every call in every state on the way. */
  const fewestCalls = (
    workflow: Workflow,
    from: string,
    targets: readonly string[],
  ): number | undefined => {
    let reached = new Set([from]);
    for (let calls = 0; calls <= workflow.states.length; calls++) {
      if (targets.some((target) => reached.has(target))) return calls;
      const next = [...reached].flatMap((state) =>
        workflow.toolNames.flatMap((tool) => afterCall(workflow, state, tool)),
      );
      reached = new Set([...reached, ...next]);
    }
    return undefined;
  };

  it('leads to one of the states in any machine, and no shorter way does', () => {
    let lengths = 0;
    fc.assert(
      fc.property(randomWorkflow, fc.nat(), (random, seed) => {
        const workflow = gateOf(random).compile();
        const targets = random.states.filter((_, i) => (seed >> i) % 2 === 1);
        for (const from of random.states) {
          const path = workflow.wayTo(targets, { state: from }).path;
          expect(path?.length).toBe(fewestCalls(workflow, from, targets));
          if (path === undefined) continue;
          const reached = afterCalls(workflow, from, path);
          expect(targets.some((target) => reached.includes(target))).toBe(true);
          expect(workflow.wayTo(targets, { state: from }).path).toEqual(path);
          lengths += path.length;
        }
      }),
      few(80),
    );
    expect(lengths).toBeGreaterThan(50);
  });

  it('goes through a thousand states in a row', () => {
    const states = Object.fromEntries(
      Array.from({ length: 1000 }, (_, i) => [
        `s${i}`,
        i < 999 ? { on: { NEXT: `s${i + 1}` } } : {},
      ]),
    );
    const workflow = new StateMachineGate<string, string>({ initial: 's0', states })
      .bindTool('step', Object.keys(states), 'NEXT')
      .compile();
    expect(workflow.wayTo(['s999'], { state: 's0' }).path).toHaveLength(999);
    expect(workflow.wayTo(['s0'], { state: 's999' }).path).toBeUndefined();
  });
});
