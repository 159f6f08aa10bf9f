import { describe, expect, it } from 'vitest';
import { InterlockError } from '../../src/errors.ts';
import { flatModel } from '../../src/workflow/flat-machine.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';

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
      { initial: 'a', states: { a: { on: { GO: { target: 'a' } } } } },
      'on.GO: expected the name of a state, got an object; ' +
        'for a statechart give what createMachine() of XState returns',
    ],
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
