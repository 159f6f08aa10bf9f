import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type AnyStateMachine,
  and,
  assign,
  cancel,
  createMachine,
  emit,
  enqueueActions,
  fromPromise,
  initialTransition,
  log,
  not,
  raise,
  sendTo,
  spawnChild,
  transition,
} from 'xstate';
import { InterlockError } from '../../src/basics/errors.ts';
import { type FsmConfig, flatModel } from '../../src/workflow/flat-machine.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import type { Model, Position } from '../../src/workflow/position.ts';
import { statechartModel } from '../../src/workflow/statechart.ts';
import { sealed } from '../helpers/envelope.ts';
import { few } from '../helpers/few.ts';
import { lightMachine, orderMachine } from './charts.ts';

const order = statechartModel(orderMachine, true);

/** The position as a store returns it. */
const kept = (position: Position): Position => JSON.parse(JSON.stringify(position));

/** Sends events one after the other. A store keeps the position between every two. */
function reached(model: Model, ...events: (string | [string, object])[]): Position {
  return events.reduce((position: Position, event) => {
    const [type, payload] = typeof event === 'string' ? [event, undefined] : event;
    return kept(model.next(position, type, payload as never).position);
  }, model.start);
}

describe('a statechart', () => {
  it('begins where its machine does, with the context', () => {
    expect(order.start).toEqual({
      state: 'cart',
      context: sealed({ data: { total: 0, paid: 0 } }),
    });
    expect(order.id).toBe('order');
    expect(Object.isFrozen(order.start)).toBe(true);
  });

  it("writes parallel states as one line, in the definition's order, and reads it again", () => {
    const placed = reached(order, ['ADD', { price: 5 }], 'PLACE');
    expect(placed).toEqual({
      state: 'placed.(billing.due|packing.waiting)',
      context: sealed({ data: { total: 5, paid: 0 } }),
    });
    expect(reached(order, ['ADD', { price: 5 }], 'PLACE', 'PACK').state).toBe(
      'placed.(billing.due|packing.packed)',
    );
  });

  it("asks guards about the context, and takes an event's payload into it", () => {
    expect(reached(order, 'PLACE').state).toBe('cart');
    const half = reached(order, ['ADD', { price: 5 }], 'PLACE', ['PAID', { amount: 2 }]);
    expect(half).toEqual({
      state: 'placed.(billing.due|packing.waiting)',
      context: sealed({ data: { total: 5, paid: 2 } }),
    });
    const full = order.next(half, 'PAID', { amount: 3 });
    expect(full.position.state).toBe('placed.(billing.settled|packing.waiting)');
    expect(full.actions).toEqual([{ type: 'thank' }]);
  });

  it('ends a parallel state when all of its regions have', () => {
    const way = [
      ['ADD', { price: 1 }] as [string, object],
      'PLACE',
      ['PAID', { amount: 1 }] as [string, object],
      'PACK',
    ];
    expect(reached(order, ...way).state).toBe('shipped');
    expect(order.next(reached(order, ...way), 'CANCEL')).toMatchObject({
      changed: false,
      handled: false,
    });
  });

  it('goes back by its history, which the snapshot keeps', () => {
    const paused = reached(order, ['ADD', { price: 1 }], 'PLACE', 'PACK', 'PAUSE');
    expect(paused).toEqual({
      state: 'paused',
      context: sealed({
        data: { total: 1, paid: 0 },
        history: { 'placed.past': ['placed.billing.due', 'placed.packing.packed'] },
      }),
    });
    expect(order.next(paused, 'RESUME').position.state).toBe('placed.(billing.due|packing.packed)');
  });

  it('says whether it handled an event, and otherwise leaves the position as it is', () => {
    const { start } = order;
    const unhandled = order.next(start, 'PACK');
    expect(unhandled).toEqual({ position: start, changed: false, handled: false, actions: [] });
    expect(unhandled.position).toBe(start);
    expect(order.next(start, 'PLACE').handled).toBe(false);
    expect(order.next(start, 'ADD', { price: 1 })).toMatchObject({ changed: false, handled: true });
  });

  it('names its actions with their parameters, and runs none', () => {
    const placed = reached(order, ['ADD', { price: 1 }], 'PLACE');
    expect(order.next(placed, 'DECLINED')).toMatchObject({
      changed: false,
      handled: true,
      actions: [{ type: 'warn', params: { days: 3 } }],
    });
  });

  it('reads only texts that spell out a whole state', () => {
    for (const state of [
      'cart',
      'placed.(billing.due|packing.waiting)',
      'placed.(billing.settled|packing.packed)',
    ])
      expect(order.has(state)).toBe(true);
    for (const state of [
      '',
      'placed',
      'placed.billing.due',
      'placed.(billing.due)',
      'placed.(packing.waiting|billing.due)',
      'placed.(billing.due|packing.waiting',
      'placed.(billing.due|packing.waiting))',
      'placed.past',
      'cart.x',
      'cart ',
      '__proto__',
      'constructor',
    ])
      expect([state, order.has(state)]).toEqual([state, false]);
    expect(() => order.next({ state: 'nowhere' }, 'ADD')).toThrow(
      '"nowhere" is no state of workflow "order"',
    );
  });

  it('has the paths and tags of all its active states', () => {
    const state = 'placed.(billing.due|packing.waiting)';
    for (const path of ['placed', 'placed.billing', 'placed.billing.due', 'placed.packing.waiting'])
      expect([path, order.isIn(state, [path])]).toEqual([path, true]);
    for (const path of ['cart', 'placed.billing.settled', 'billing', state])
      expect([path, order.isIn(state, [path])]).toEqual([path, false]);
    expect(order.isIn(state, [{ tag: 'money' }])).toBe(true);
    expect(order.isIn(state, [{ tag: 'open' }])).toBe(false);
    expect(order.isIn('nowhere', ['placed', { tag: 'money' }])).toBe(false);
  });

  it('keeps nothing but the format where it has no context', () => {
    const light = statechartModel(lightMachine, false);
    const context = sealed();
    expect(light.start).toEqual({ state: 'green', context });
    expect(reached(light, 'TIMER')).toEqual({ state: 'red.walk', context });
    expect(reached(light, 'TIMER', 'ped.push')).toEqual({ state: 'red.wait', context });
    expect(reached(light, 'TIMER', 'ped.push', 'ped.stop')).toEqual({ state: 'green', context });
  });

  it('tells a key with special characters from the text of several states', () => {
    const machine = createMachine({
      id: 'odd',
      type: 'parallel',
      states: {
        'a|b': { initial: 'x(y)', states: { 'x(y)': { on: { GO: 'z' } }, z: {} } },
        'c\\': {},
      },
    });
    const model = statechartModel(machine, false);
    expect(model.start.state).toBe('(a\\|b.x\\(y\\)|c\\\\)');
    expect(model.has(model.start.state)).toBe(true);
    expect(reached(model, 'GO').state).toBe('(a\\|b.z|c\\\\)');
  });

  it('is never in a history state, and takes its path as no name', () => {
    expect(order.names).not.toContain('placed.past');
    expect(order.names).toContain('placed.billing.checked');
    expect(order.tags).toEqual(['open', 'money']);
  });
});

describe('the payload of an event', () => {
  const machine = createMachine({
    id: 'echo',
    context: { seen: null },
    initial: 'a',
    states: {
      a: {
        on: {
          GO: { actions: assign((({ event }: { event: object }) => ({ seen: event })) as never) },
        },
      },
    },
  });
  const echo = statechartModel(machine, false);

  it.each([
    [undefined, { type: 'GO' }],
    [{ sum: 1 }, { type: 'GO', sum: 1 }],
    [{ type: 'FORGED' }, { type: 'GO' }],
    [[1], { type: 'GO', payload: [1] }],
    ['x', { type: 'GO', payload: 'x' }],
    [null, { type: 'GO', payload: null }],
  ])('is, for %j, an event %j', (payload, seen) => {
    expect(echo.next(echo.start, 'GO', payload as never).position.context).toEqual(
      sealed({ data: { seen } as never }),
    );
  });

  it.each(['xstate.stop', 'xstate.init', 'xstate.done.state.echo', '*', 'GO.*'])(
    'cannot be the event %s',
    (event) => {
      expect(() => echo.next(echo.start, event)).toThrow('a name of XState');
    },
  );
});

describe('a context', () => {
  const holding = (value: unknown) =>
    createMachine({
      context: { ok: 1 },
      initial: 'a',
      states: { a: { on: { GO: { actions: assign({ value: () => value } as never) } } } },
    });

  it.each([
    [new Date(0), 'the context.value is a Date, which is not JSON'],
    [() => 1, 'the context.value is a function'],
    [Number.NaN, 'the context.value is NaN'],
    [{ deep: [new Map()] }, 'the context.value.deep[0] is a Map'],
    [10n, 'the context.value is 10'],
  ])('is refused where a store could not give it back: %s', (value, text) => {
    const model = statechartModel(holding(value), false);
    expect(() => model.next(model.start, 'GO')).toThrow(text);
    expect(() =>
      statechartModel(
        createMachine({ context: { value } as never, initial: 'a', states: { a: {} } }),
        false,
      ),
    ).toThrow(text);
  });

  it('is refused where it contains itself', () => {
    const circle: Record<string, unknown> = {};
    circle.self = circle;
    const model = statechartModel(holding(circle), false);
    expect(() => model.next(model.start, 'GO')).toThrow('contains itself');
  });

  it('loses undefined properties, as in JSON', () => {
    const model = statechartModel(holding(undefined), false);
    expect(model.next(model.start, 'GO').position.context).toEqual(sealed({ data: { ok: 1 } }));
  });

  it('cannot be changed from outside, not even the initial one', () => {
    expect(Object.isFrozen((order.start.context as { data: object }).data)).toBe(true);
  });
});

interface Spawning {
  readonly spawn: (logic: unknown) => unknown;
}

const of = (root: object, implementations: object = {}): AnyStateMachine =>
  createMachine(
    { id: 'x', initial: 'a', states: { a: root, b: {} } } as never,
    implementations as never,
  );

function refusal(machine: AnyStateMachine, hasListener = true): InterlockError {
  try {
    statechartModel(machine, hasListener);
  } catch (error) {
    if (error instanceof InterlockError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('what pure transitions cannot run is named at construction:', () => {
  it.each<[string, AnyStateMachine, string]>([
    [
      'an invoked actor',
      of({ invoke: { src: fromPromise(async () => 1) } }),
      'state "a": it invokes an actor',
    ],
    [
      'a delayed transition',
      of({ after: { 1000: 'b' } }),
      'state "a": it has a delayed transition ("after")',
    ],
    [
      'a delayed event',
      of({ entry: raise({ type: 'X' }, { delay: 5 }) }),
      'raises an event with a delay',
    ],
    ['a spawned actor', of({ entry: spawnChild('child') }), 'spawnChild() needs an actor'],
    [
      'an actor that the first context spawns',
      createMachine({
        context: (({ spawn }: Spawning) => ({ child: spawn(fromPromise(async () => 1)) })) as never,
        initial: 'a',
        states: { a: {} },
      } as never) as AnyStateMachine,
      'no actor runs here',
    ],
    [
      'an event to another actor',
      of({ on: { X: { actions: sendTo('other', { type: 'Y' }) } } }),
      'sendTo() needs an actor',
    ],
    ['a cancelled event', of({ exit: cancel('x') }), 'cancel() needs an actor'],
    ['an inline action', of({ entry: () => {} }), 'the action "entry" is a function of its own'],
    [
      'a guard without implementation',
      of({ on: { X: { target: 'b', guard: 'isOk' } } }),
      'its guard "isOk" is not implemented',
    ],
    [
      'one inside of another guard',
      of({ on: { X: { target: 'b', guard: and([not('isOk')]) } } }),
      'its guard "isOk" is not implemented',
    ],
    ['no states', createMachine({ id: 'x' }) as AnyStateMachine, 'it has no states'],
    [
      'a first context that needs input',
      createMachine({
        context: (({ input }: { input: { b: number } }) => ({ a: input.b })) as never,
        initial: 'a',
        states: { a: {} },
      } as never) as AnyStateMachine,
      'where it begins cannot be worked out',
    ],
    [
      'an id that is no name',
      createMachine({ id: 'my machine', initial: 'a', states: { a: {} } }) as AnyStateMachine,
      'got "my machine"',
    ],
  ])('%s', (_, machine, text) => {
    const error = refusal(machine);
    expect(error.code).toBe('ERR_INTERLOCK_CONFIG');
    expect(error.message).toContain(text);
  });

  it('a circle of "always" transitions, at any depth', () => {
    const circle = createMachine({
      id: 'x',
      initial: 'start',
      states: {
        start: { on: { GO: 'p' } },
        p: { initial: 'q', states: { q: { always: '#x.r' } } },
        r: { always: 'p' },
      },
    });
    expect(refusal(circle as AnyStateMachine).message).toContain(
      'state "p.q": its "always" transitions never come to rest',
    );
    const first = createMachine({
      id: 'x',
      initial: 'a',
      states: { a: { always: 'b' }, b: { always: 'a' } },
    });
    expect(refusal(first as AnyStateMachine).message).toContain('come to rest');
  });

  it('but not "always" transitions that settle', () => {
    const machine = createMachine({
      context: { n: 0 },
      initial: 'a',
      states: {
        a: {
          always: [
            { guard: ({ context }) => context.n > 3, target: 'b' },
            { actions: assign({ n: ({ context }) => context.n + 1 }) },
          ],
        },
        b: { always: 'c' },
        c: {},
      },
    });
    expect(statechartModel(machine, false).start).toEqual({
      state: 'c',
      context: sealed({ data: { n: 4 } }),
    });
  });

  it('an action without an onAction that does it', () => {
    const named = of({ entry: { type: 'notify', params: { to: 'x' } } });
    expect(refusal(named, false).message).toContain(
      'nothing does the action "notify": give the gate an "onAction"',
    );
    expect(statechartModel(named, true).startActions).toEqual([
      { type: 'notify', params: { to: 'x' } },
    ]);
    for (const action of [log('hello'), emit({ type: 'X' })])
      expect(refusal(of({ exit: action }), false).message).toContain(
        'nothing does the action "xstate.',
      );
    expect(() => statechartModel(of({ entry: assign({}) }), false)).not.toThrow();
  });
});

describe('a fault that only a move can show', () => {
  it('is an error of the move: an endless loop, an actor, an action in enqueueActions', () => {
    const restless = statechartModel(
      of({ on: { GO: 'b' }, always: { guard: () => false, target: 'b' } }),
      false,
    );
    expect(restless.next(restless.start, 'GO').position.state).toBe('b');
    const looping = createMachine({
      context: { on: false },
      initial: 'a',
      states: {
        a: { on: { GO: { target: 'b', actions: assign({ on: true }) } } },
        b: { always: { guard: ({ context }) => context.on, target: 'c' } },
        c: { always: { guard: ({ context }) => context.on, target: 'b' } },
      },
    });
    const model = statechartModel(looping, false);
    expect(() => model.next(model.start, 'GO')).toThrow('did not come to rest');
    const spawning = statechartModel(
      of({
        on: {
          GO: {
            actions: assign({
              child: ({ spawn }: Spawning) => spawn(fromPromise(async () => 1)),
            } as never),
          },
        },
      }),
      false,
    );
    expect(() => spawning.next(spawning.start, 'GO')).toThrow('no actor runs here');
    const queueing = of({
      on: { GO: { actions: enqueueActions(({ enqueue }) => enqueue('notify' as never)) } },
    });
    const silent = statechartModel(queueing, false);
    expect(() => silent.next(silent.start, 'GO')).toThrow('nothing does the action "notify"');
    const told = statechartModel(queueing, true);
    expect(told.next(told.start, 'GO').actions).toEqual([{ type: 'notify' }]);
  });
});

describe('both engines', () => {
  const name = fc.stringMatching(/^[a-z0-9_]{1,4}$/);
  const names = (maxLength: number) => fc.uniqueArray(name, { minLength: 1, maxLength });
  const flat = fc.tuple(names(5), names(4)).chain(([states, events]) =>
    fc.record({
      events: fc.constant(events),
      config: fc
        .record({
          initial: fc.constantFrom(...states),
          rows: fc.array(
            fc.array(fc.option(fc.constantFrom(...states), { nil: undefined }), {
              minLength: events.length,
              maxLength: events.length,
            }),
            {
              minLength: states.length,
              maxLength: states.length,
            },
          ),
        })
        .map(({ initial, rows }): FsmConfig => {
          const on = (row: (string | undefined)[]) =>
            Object.fromEntries(
              events.flatMap((event, i) => (row[i] === undefined ? [] : [[event, row[i]]])),
            );
          return {
            id: 'flat',
            initial,
            states: Object.fromEntries(
              states.map((state, i) => [state, { on: on(rows[i] ?? []) }]),
            ),
          };
        }),
      sent: fc.array(fc.constantFrom(...events, 'UNKNOWN'), { maxLength: 12 }),
    }),
  );

  it('agree to the byte on any sequence of events, in any flat machine', () => {
    let moves = 0;
    fc.assert(
      fc.property(flat, ({ config, sent }) => {
        const ours = flatModel(config);
        const theirs = statechartModel(createMachine(config as never), false);
        expect(JSON.stringify(theirs.start)).toBe(JSON.stringify(ours.start));
        let [a, b]: Position[] = [ours.start, theirs.start] as Position[];
        for (const event of sent) {
          const [nextA, nextB] = [
            ours.next(a as Position, event),
            theirs.next(b as Position, event),
          ];
          expect(JSON.stringify(nextB)).toBe(JSON.stringify(nextA));
          moves += nextA.changed ? 1 : 0;
          [a, b] = [nextA.position, nextB.position];
        }
      }),
      few(80),
    );
    expect(moves).toBeGreaterThan(25);
  });

  it('agree with XState itself on any way through a statechart, with a store between steps', () => {
    const event = fc.oneof(
      fc.record({ type: fc.constant('ADD'), price: fc.integer({ min: 1, max: 3 }) }),
      fc.record({ type: fc.constant('PAID'), amount: fc.integer({ min: 0, max: 3 }) }),
      fc.record({
        type: fc.constantFrom('PLACE', 'DECLINED', 'PACK', 'PAUSE', 'RESUME', 'CANCEL'),
      }),
    );
    const seen = new Set<string>();
    fc.assert(
      fc.property(fc.array(event, { maxLength: 15 }), (events) => {
        let position: Position = order.start;
        let [snapshot] = initialTransition(orderMachine);
        for (const { type, ...payload } of [
          { type: 'ADD', price: 1 },
          { type: 'PLACE' },
          ...events,
        ]) {
          if (snapshot.status !== 'active') break;
          const [next, actions] = transition(orderMachine, snapshot, { type, ...payload } as never);
          const ours = order.next(position, type, payload as never);
          position = kept(ours.position);
          expect(position.context).toMatchObject({ data: next.context });
          expect(order.isIn(position.state, [])).toBe(false);
          for (const path of order.names)
            expect(order.isIn(position.state, [path])).toBe(next.matches(asValue(path) as never));
          expect(ours.actions.map((each) => each.type)).toEqual(actions.map((each) => each.type));
          snapshot = next;
          seen.add(position.state);
        }
      }),
      few(80),
    );
    expect(seen.size).toBeGreaterThan(6);
  });
});

const asValue = (path: string): unknown => {
  const [key, ...rest] = path.split('.');
  return rest.length === 0 ? key : { [key as string]: asValue(rest.join('.')) };
};

describe('a gate of a statechart', () => {
  const gate = () =>
    new StateMachineGate(orderMachine, { onAction: () => {} })
      .bindTool('add', { tag: 'open' }, 'ADD')
      .bindTool('place', 'cart', 'PLACE')
      .bindTool('pay', { tag: 'money' }, 'PAID')
      .bindTool('pack', 'placed.packing.waiting', 'PACK')
      .bindTool('status', ['placed', 'paused']);

  it('shows the tools of all active states', async () => {
    const order = gate();
    const all = ['add', 'place', 'pay', 'pack', 'status', 'other'];
    expect(order.getVisibleToolNames(all)).toEqual(['add', 'place', 'other']);
    await order.transition('ADD', { price: 2 });
    await order.transition('PLACE');
    expect(order.currentState).toBe('placed.(billing.due|packing.waiting)');
    expect(order.getVisibleToolNames(all)).toEqual(['pay', 'pack', 'status', 'other']);
    expect(order.getTransitionEvent('pay')).toBe('PAID');
    expect(await order.transition('PACK')).toEqual({
      changed: true,
      previousState: 'placed.(billing.due|packing.waiting)',
      currentState: 'placed.(billing.due|packing.packed)',
    });
    expect(order.getVisibleToolNames(all)).toEqual(['pay', 'status', 'other']);
  });

  it('keeps and restores its whole position', async () => {
    const order = gate();
    await order.transition('ADD', { price: 2 });
    await order.transition('PLACE');
    await order.transition('PAUSE');
    const other = gate();
    other.restore(JSON.parse(JSON.stringify(order.snapshot())));
    expect(other.snapshot()).toEqual(order.snapshot());
    await other.transition('RESUME');
    expect(other.currentState).toBe('placed.(billing.due|packing.waiting)');
  });

  it('hands actions to onAction after a move, those of its start with the first move', async () => {
    const log: unknown[] = [];
    const machine = createMachine({
      id: 'greeter',
      initial: 'a',
      states: {
        a: { entry: 'hello', on: { GO: 'b' } },
        b: { entry: { type: 'bye', params: { n: 1 } } },
      },
    });
    const greeter = new StateMachineGate(machine, {
      onAction: (action, context) => {
        log.push([action, context.from, context.to, context.event, greeter.currentState]);
      },
    });
    expect(log).toEqual([]);
    await greeter.transition('GO');
    expect(log).toEqual([
      [{ type: 'hello' }, 'a', 'b', 'GO', 'b'],
      [{ type: 'bye', params: { n: 1 } }, 'a', 'b', 'GO', 'b'],
    ]);
    await greeter.transition('GO');
    expect(log).toHaveLength(2);
  });

  it('tells onError what onAction throws, or rejects with', async () => {
    const errors: unknown[] = [];
    const machine = createMachine({
      initial: 'a',
      states: { a: { on: { GO: { actions: ['one', 'two'] } } } },
    });
    const broken = new StateMachineGate(machine, {
      onAction: ({ type }) => {
        if (type === 'one') throw 'thrown';
        return Promise.reject('rejected');
      },
      onError: (error) => errors.push(error),
    });
    await broken.transition('GO');
    await Promise.resolve();
    expect(errors).toEqual(['thrown', 'rejected']);
  });

  it.each([
    [
      (g: ReturnType<typeof gate>) => g.bindTool('t', 'placed.biling' as never),
      'ERR_INTERLOCK_BINDING',
      'did you mean "placed.billing"?',
    ],
    [
      (g: ReturnType<typeof gate>) => g.bindTool('t', 'placed.past' as never),
      'ERR_INTERLOCK_BINDING',
      '"placed.past", which is no state',
    ],
    [
      (g: ReturnType<typeof gate>) => g.bindTool('t', { tag: 'mony' as never }),
      'ERR_INTERLOCK_BINDING',
      'no tag of workflow "order", did you mean "money"?',
    ],
    [
      (g: ReturnType<typeof gate>) => g.bindTool('t', { tga: 'money' } as never),
      'ERR_INTERLOCK_BINDING',
      'expected one state or more',
    ],
    [
      (g: ReturnType<typeof gate>) => g.bindTool('t', 'cart', 'PLACED' as never),
      'ERR_INTERLOCK_EVENT',
      '"PLACED", which no state handles; did you mean "PLACE"?',
    ],
    [
      (g: ReturnType<typeof gate>) => g.bindTool('t', 'cart', { failure: 'DECLINDE' as never }),
      'ERR_INTERLOCK_EVENT',
      'did you mean "DECLINED"?',
    ],
    [
      (g: ReturnType<typeof gate>) => g.bindTool('t', 'cart', 'xstate.stop' as never),
      'ERR_INTERLOCK_EVENT',
      '"xstate.stop"',
    ],
  ])('reports what is wrong in a binding', (bind, code, text) => {
    expect(() => bind(gate())).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(text) }),
    );
  });

  it('has no tags where it is flat', () => {
    const flat = new StateMachineGate({ initial: 'a', states: { a: {} } });
    expect(() => flat.bindTool('t', { tag: 'x' } as never)).toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_BINDING',
        message: expect.stringContaining('no tag'),
      }),
    );
  });

  it('warns of an event that no bound state handles, unless another region handles it', () => {
    const bound = gate()
      .bindTool('t', 'cart', 'PACK')
      .bindTool('u', 'placed.billing.due', 'PACK')
      .bindTool('v', 'placed', 'PAID');
    expect(bound.warnings).toEqual([
      'workflow "order": tool "t" sends "PACK", which none of its states handles; ' +
        'states that do are "placed.packing.waiting"',
    ]);
  });

  it('takes an event that a wildcard handles', () => {
    const light = new StateMachineGate(lightMachine).bindTool('push', 'red.walk', 'ped.push');
    expect(light.warnings).toEqual([]);
    expect(() => light.bindTool('t', 'red', 'pad.push')).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_EVENT' }),
    );
  });

  it('finds a way as far as it needs no payloads', () => {
    const workflow = gate().compile();
    expect(workflow.foresees).toBe(false);
    expect(workflow.wayTo(['placed'], workflow.start).path).toBeUndefined();
    const filled = { state: 'cart', context: sealed({ data: { total: 1, paid: 0 } }) };
    expect(workflow.wayTo([{ tag: 'money' }], filled).path).toEqual(['place']);
    expect(workflow.wayTo(['placed.packing.packed'], filled).path).toEqual(['place', 'pack']);
    expect(workflow.claimable({ states: ['cart'] })).toBeUndefined();
  });

  it('looks for what calls in flight lead to in bounded work, however many they are', () => {
    let asked = 0;
    const guard = () => {
      asked += 1;
      return true;
    };
    const numbers = Array.from({ length: 20 }, (_, i) => i);
    const regions = numbers.map((i) => {
      const states = { off: { on: { [`E${i}`]: { target: 'on', guard } } }, on: {} };
      return [`r${i}`, { initial: 'off', states }] as const;
    });
    const never = { initial: 'shut', states: { shut: { on: { OPEN: 'open' } }, open: {} } };
    const states = { ...Object.fromEntries(regions), never };
    const wide = new StateMachineGate(createMachine({ id: 'wide', type: 'parallel', states }));
    for (const i of numbers) wide.bindTool(`t${i}`, `r${i}.off` as never, `E${i}` as never);
    const workflow = wide.compile();
    const tools = numbers.map((i) => `t${i}`);
    expect(workflow.mayLead(workflow.start, tools, ['r7.on'])).toBe(true);
    expect(workflow.mayLead(workflow.start, tools, ['never.open'])).toBe(false);
    expect(asked).toBeLessThan(2_000);
  });
});
