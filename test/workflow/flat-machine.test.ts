import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMachine, initialTransition, transition } from 'xstate';
import { InterlockError } from '../../src/basics/errors.ts';
import { type FsmConfig, flatModel } from '../../src/workflow/flat-machine.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { few } from '../helpers/few.ts';
import { PLAIN_EVENTS, plainMachine } from './machines.ts';

const refuse = (config: unknown): InterlockError => {
  try {
    flatModel(config);
  } catch (error) {
    if (error instanceof InterlockError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
};

describe('a workflow definition', () => {
  it('is called "workflow" unless it says otherwise', () => {
    expect(flatModel({ initial: 'a', states: { a: {} } }).id).toBe('workflow');
    expect(flatModel({ id: undefined, initial: 'a', states: { a: {} } }).id).toBe('workflow');
    expect(flatModel({ id: 'A-b_c.9', initial: 'a', states: { a: {} } }).id).toBe('A-b_c.9');
  });

  it.each(['', 'a b', 'a/b', 'a\n', 'é', 'x'.repeat(65), 7, null])('cannot be called %j', (id) => {
    const error = refuse({ id, initial: 'a', states: { a: {} } });
    expect(error.code).toBe('ERR_INTERLOCK_CONFIG');
    expect(error.message).toContain('id: expected');
  });

  it.each(['*', 'pay.*'])(
    'takes no event %j, which would match others in a statechart',
    (event) => {
      const { code, message } = refuse({ initial: 'a', states: { a: { on: { [event]: 'a' } } } });
      expect(code).toBe('ERR_INTERLOCK_CONFIG');
      expect(message).toContain(
        `state "a" of workflow "workflow": on: "${event}" matches events in a statechart alone`,
      );
    },
  );

  it('takes an explicit undefined as a value that is left out', () => {
    const model = flatModel({
      initial: 'a',
      states: { a: { on: { GO: 'b', STAY: undefined }, type: undefined }, b: { on: undefined } },
    });
    expect(model.eventsIn('a')).toEqual(['GO']);
    expect(model.next(model.start, 'GO').position).toMatchObject({ state: 'b' });
  });

  it.each([
    [undefined, 'initial: expected string, got undefined'],
    [null, 'expected object, got null'],
    [{ initial: 'a' }, 'states: expected an object, got undefined'],
    [{ initial: 'a', states: [] }, 'states: expected an object, got an empty array'],
    [{ initial: 'a', states: {} }, 'has no states'],
    [{ initial: 1, states: { a: {} } }, 'initial: expected string, got 1'],
    [
      { initial: 'a', states: { a: 'b' } },
      'state "a" of workflow "workflow": expected object, got "b"',
    ],
    [
      { initial: 'a', states: { a: undefined } },
      'state "a" of workflow "workflow": expected an object, got undefined',
    ],
    [{ initial: 'a', states: { a: { on: 'b' } } }, 'on: expected an object, got "b"'],
    [
      { initial: 'a', states: { a: { on: { GO: 7 } } } },
      'state "a" of workflow "workflow": on.GO: expected the name of a state, ' +
        'or { target: "a state", reenter: true }, got 7',
    ],
    [
      { initial: 'a', states: { a: { on: { GO: { target: 'a', guard: 'isOpen' } } } } },
      'on.GO: expected the name of a state, or { target: "a state", reenter: true }, ' +
        'got an object with "target", "guard"; ' +
        'for guards and actions give what createMachine() of XState returns',
    ],
    [
      { initial: 'a', states: { a: { on: { GO: { reenter: true } } } } },
      'got an object with "reenter"',
    ],
    [{ initial: 'a', states: { a: { on: { GO: [] } } } }, 'got an empty array'],
    [
      { initial: 'a', states: { a: { on: { GO: { target: 'a', reenter: 'yes' } } } } },
      'state "a" of workflow "workflow": on.GO.reenter: expected true or false, got "yes"',
    ],
    [
      { initial: 'a', states: { a: { after: { 5: { target: 'a' } } } } },
      'after.5: expected the name of a state, got an object',
    ],
    [{ initial: 'a', on: 'RESET', states: { a: {} } }, 'on: expected an object, got "RESET"'],
    [
      { initial: 'a', on: { RESET: null }, states: { a: {} } },
      'workflow "workflow": on.RESET: expected the name of a state',
    ],
    [{ initial: 'a', on: { '': 'a' }, states: { a: {} } }, 'a name of an event is empty'],
    [{ initial: 'a', on: { '*': 'a' }, states: { a: {} } }, 'on: "*" matches events'],
    [{ initial: 'a', states: { a: { type: 'finale' } } }, 'type: expected "final", got "finale"'],
    [{ initial: 'a', states: { a: { type: 'final', on: {} } } }, 'a final state has no "on"'],
    [{ initial: '', states: { '': {} } }, 'a name of a state is empty'],
    [{ initial: 'a', states: { a: { on: { '': 'a' } } } }, 'a name of an event is empty'],
  ])('that is %j is refused: %s', (config, message) => {
    const error = refuse(config);
    expect(error.code).toBe('ERR_INTERLOCK_CONFIG');
    expect(error.message).toContain(message);
  });

  it('is refused with an unknown key, by an error that names the right one', () => {
    expect(refuse({ intial: 'a', states: { a: {} } }).message).toContain(
      '"intial", did you mean "initial"?',
    );
    expect(refuse({ initial: 'a', states: { a: { onn: {} } } }).message).toContain(
      '"onn", did you mean "on"?',
    );
  });

  it('begins in one of its states', () => {
    const error = refuse({ initial: 'emty', states: { empty: {}, paid: {} } });
    expect(error.code).toBe('ERR_INTERLOCK_INITIAL');
    expect(error.message).toContain('"emty"');
    expect(error.message).toContain('did you mean "empty"?');
  });

  it('is checked when the gate is made where TypeScript has widened its names', () => {
    const separate = {
      id: 'checkout',
      initial: 'emty',
      states: { empty: { on: { PAY: 'payd' } }, paid: { type: 'final' } },
    };
    const known = 'Known are "empty", "paid"';
    expect(() => new StateMachineGate(separate)).toThrow(
      `the initial state "emty" of workflow "checkout" does not exist, ` +
        `did you mean "empty"? ${known}`,
    );
    separate.initial = 'empty';
    expect(() => new StateMachineGate(separate)).toThrow(
      `leads to "payd", which does not exist, did you mean "paid"? ${known}`,
    );
    separate.states.empty.on.PAY = 'paid';
    separate.states.paid.type = 'finale';
    expect(() => new StateMachineGate(separate)).toThrow(
      'state "paid" of workflow "checkout": type: expected "final", got "finale"',
    );
    separate.states.paid.type = 'final';
    expect(new StateMachineGate(separate).currentState).toBe('empty');
  });

  it('may lead to its own states only', () => {
    const error = refuse({
      initial: 'empty',
      states: { empty: { on: { PAY: 'payd' } }, paid: {} },
    });
    expect(error.code).toBe('ERR_INTERLOCK_TARGET');
    expect(error.message).toContain(
      '"PAY" of state "empty" of workflow "workflow" leads to "payd"',
    );
    expect(error.message).toContain('did you mean "paid"?');
  });

  it.each([
    [{ RESET: 'emty' }, '"RESET" of "on" of workflow "workflow" leads to "emty"'],
    [{ RESET: { target: 'emty' } }, '"RESET" of "on" of workflow "workflow" leads to "emty"'],
  ])('may lead to its own states only where it says %j for all of them', (on, message) => {
    // Each state overrides it, and still the target is looked at.
    const error = refuse({
      initial: 'empty',
      on,
      states: { empty: { on: { RESET: 'paid' } }, paid: { type: 'final' } },
    });
    expect(error.code).toBe('ERR_INTERLOCK_TARGET');
    expect(error.message).toContain(message);
    expect(error.message).toContain('did you mean "empty"?');
  });

  it.each(['constructor', '__proto__', 'toString'])(
    'does not take the inherited %s for a state',
    (name) => {
      expect(refuse({ initial: name, states: { a: {} } }).code).toBe('ERR_INTERLOCK_INITIAL');
      expect(refuse({ initial: 'a', states: { a: { on: { GO: name } } } }).code).toBe(
        'ERR_INTERLOCK_TARGET',
      );
    },
  );

  it.each(['constructor', '__proto__', 'toString'])(
    'may have a state and an event called %s',
    async (name) => {
      const config = { initial: name, states: { [name]: { on: { [name]: 'end' } }, end: {} } };
      const gate = new StateMachineGate<string, string>(config);
      expect(gate.currentState).toBe(name);
      await gate.transition(name);
      expect(gate.currentState).toBe('end');
      expect((await gate.transition(name)).changed).toBe(false);
    },
  );

  it('is copied, so that later changes to it have no effect', async () => {
    const config = { id: 'x', initial: 'a', states: { a: { on: { GO: 'b' } }, b: {} as object } };
    const gate = new StateMachineGate<string, string>(config);
    config.states.a.on.GO = 'a';
    config.states.b = { on: { BACK: 'a' } };
    config.id = 'y';
    expect(gate.id).toBe('x');
    expect((await gate.transition('GO')).currentState).toBe('b');
    expect((await gate.transition('BACK')).changed).toBe(false);
  });
});

describe('an event of the machine itself', () => {
  const model = flatModel({
    initial: 'open',
    on: { RESET: 'open', CLOSE: 'closed' },
    states: {
      open: { on: { GO: 'busy' } },
      busy: { on: { CLOSE: 'open', RESET: undefined } },
      closed: { type: 'final' },
    },
  });
  const next = (state: string, event: string) => model.next({ state }, event);

  it('is taken in each state that does not name it', () => {
    expect(next('open', 'CLOSE').position.state).toBe('closed');
    expect(model.handlers('CLOSE')).toEqual(['open', 'busy']);
    expect(model.eventsIn('open')).toEqual(['RESET', 'CLOSE', 'GO']);
    expect(model.events).toEqual(['RESET', 'CLOSE', 'GO']);
  });

  it("gives way to a state's own, which may be none", () => {
    expect(next('busy', 'CLOSE').position.state).toBe('open');
    expect(next('busy', 'RESET')).toMatchObject({ changed: false, handled: false });
    expect(model.eventsIn('busy')).toEqual(['CLOSE']);
  });

  it('is not taken in a final state', () => {
    expect(next('closed', 'RESET')).toMatchObject({ changed: false, handled: false });
    expect(model.eventsIn('closed')).toEqual([]);
  });

  it('can be bound, and is named by warnings and ways as an event of these states', () => {
    const gate = new StateMachineGate({
      initial: 'cart',
      on: { CANCEL: 'cancelled' },
      states: { cart: { on: { GO: 'paying' } }, paying: {}, cancelled: { type: 'final' } },
    })
      .bindTool('go', 'cart', 'GO')
      .bindTool('cancel', ['cart', 'paying'], 'CANCEL');
    expect(gate.warnings).toEqual([]);
    expect(gate.getTransitionEvent('cancel')).toBe('CANCEL');
    const workflow = gate.compile();
    expect(workflow.wayTo(['cancelled'], { state: 'paying' }).path).toEqual(['cancel']);
    expect(workflow.outsideEvents('paying')).toEqual([]);
    expect(() =>
      new StateMachineGate({
        initial: 'a',
        on: { CANCEL: 'b' },
        states: { a: {}, b: { type: 'final' } },
      }).bindTool('t', 'a', 'CANCL' as 'CANCEL'),
    ).toThrow('did you mean "CANCEL"?');
  });
});

describe('any flat machine', () => {
  it('goes where XState goes, and enters a state again where XState does', () => {
    const seen = { moved: 0, entered: 0, stayed: 0, forbidden: 0, ended: 0 };
    fc.assert(
      fc.property(plainMachine, fc.array(fc.constantFrom(...PLAIN_EVENTS)), (config, events) => {
        const model = flatModel(config);
        const chart = createMachine(chartOf(config) as never);
        let [snapshot] = initialTransition(chart);
        let { start: position } = model;
        for (const type of events) {
          const next = model.next(position, type);
          if (snapshot.status === 'done') {
            // An actor that is done takes no event, not even one of the root.
            expect(next).toEqual({ position, changed: false, handled: false, actions: [] });
            seen.ended++;
            continue;
          }
          const [reached, actions] = transition(chart, snapshot, { type });
          const has = model.eventsIn(position.state).includes(type);
          expect(next.position.state).toBe(reached.value);
          // Each state of the chart names itself as it is entered.
          const entered = actions.map((action) => action.type);
          const { changed, reentered = false } = next;
          expect(entered).toEqual(changed || reentered ? [`enter ${reached.value}`] : []);
          expect(next.handled).toBe(has);
          if (changed) seen.moved++;
          else if (reentered) seen.entered++;
          else if (has) seen.stayed++;
          else if (config.on && type in config.on) seen.forbidden++;
          snapshot = reached;
          position = next.position;
        }
      }),
      few(125),
    );
    for (const count of Object.values(seen)) expect(count).toBeGreaterThan(20);
  });
});

/** The same machine for XState, where the root's targets are its children. */
function chartOf({ initial, on = {}, states }: FsmConfig): object {
  const inside = Object.entries(on).map(([event, to]) => {
    const { target, reenter } = typeof to === 'object' ? to : { target: to, reenter: undefined };
    return [event, { target: `.${target}`, ...(reenter !== undefined && { reenter }) }];
  });
  return {
    initial,
    on: Object.fromEntries(inside),
    states: Object.fromEntries(
      Object.entries(states).map(([name, state]) => [name, { ...state, entry: `enter ${name}` }]),
    ),
  };
}
