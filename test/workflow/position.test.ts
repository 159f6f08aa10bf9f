import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { setup } from 'xstate';
import { availabilityNote } from '../../src/workflow/advice.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import type { StateExpression } from '../../src/workflow/position.ts';
import { checkoutConfig } from './machines.ts';

const checkout = () => new StateMachineGate(checkoutConfig);

/** Two people must agree, in two regions. A third region is there for its tags. */
const approval = () =>
  new StateMachineGate(
    setup({ types: { tags: {} as 'open' } }).createMachine({
      id: 'approval',
      initial: 'asked',
      states: {
        asked: {
          type: 'parallel',
          states: {
            boss: {
              initial: 'open',
              states: { open: { tags: 'open', on: { BOSS: 'agreed' } }, agreed: {} },
            },
            bank: {
              initial: 'open',
              states: { open: { tags: 'open', on: { BANK: 'agreed' } }, agreed: {} },
            },
          },
          on: { DROP: 'dropped' },
        },
        dropped: { type: 'final' },
      },
    }),
  );

/** The states that show a tool with this binding, and what a list of all tools says of it. */
function boundTo(states: Parameters<ReturnType<typeof checkout>['bindTool']>[1]) {
  const workflow = checkout().bindTool('t', states).compile();
  const place = workflow.whereabouts('t');
  return {
    shown: workflow.states.filter((state) => workflow.isVisible('t', state)),
    claimable: workflow.claimable(workflow.match('t', {}) ?? { states: [] }),
    note: place && availabilityNote(place),
  };
}

describe('an expression of states', () => {
  it('of a flat machine becomes plain names, which a store can test', () => {
    expect(boundTo('*').claimable).toEqual(['empty', 'has_items', 'payment', 'confirmed']);
    expect(boundTo({ not: 'empty' }).claimable).toEqual(['has_items', 'payment', 'confirmed']);
    expect(boundTo({ any: ['payment', 'empty'] }).claimable).toEqual(['empty', 'payment']);
    const both = boundTo({ all: [{ not: 'empty' }, { not: { any: ['payment', 'confirmed'] } }] });
    expect(both.claimable).toEqual(['has_items']);
    expect(both.shown).toEqual(['has_items']);
    expect(both.note).toContain('Available only while checkout is in "has_items".');
    expect(boundTo(['confirmed', { not: 'empty' }]).claimable).toEqual([
      'confirmed',
      'has_items',
      'payment',
    ]);
  });

  it('is true where plain logic says so', () => {
    const name = fc.constantFrom(...(['empty', 'has_items', 'payment', 'confirmed'] as const));
    type Name = (typeof checkoutConfig)['initial'] | 'has_items' | 'payment' | 'confirmed';
    const { any } = fc.letrec<{ any: StateExpression<Name, never> }>((tie) => ({
      any: fc.oneof(
        { depthSize: 'small' },
        name,
        fc.constant('*' as const),
        fc.record({ not: tie('any') }),
        fc.record({ all: fc.array(tie('any'), { minLength: 1, maxLength: 3 }) }),
        fc.record({ any: fc.array(tie('any'), { minLength: 1, maxLength: 3 }) }),
      ),
    }));
    let impossible = 0;
    fc.assert(
      fc.property(any, (expression) => {
        const right = Object.keys(checkoutConfig.states).filter((state) =>
          isTrue(expression, state),
        );
        if (right.length > 0) expect(boundTo(expression).shown).toEqual(right);
        else {
          impossible++;
          expect(() => boundTo(expression)).toThrow(/ERR_INTERLOCK_BINDING/);
        }
      }),
    );
    expect(impossible).toBeGreaterThan(0);
  });

  it('of a statechart may ask for states of several regions at once', async () => {
    const gate = approval()
      .bindTool('pay', { all: ['asked.boss.agreed', 'asked.bank.agreed'] })
      .bindTool('remind', { any: ['asked.boss.open', 'asked.bank.open'] }, 'DROP')
      .bindTool('look', { not: { tag: 'open' } })
      .bindTool('help', '*')
      .bindPrompt('summary', { all: ['asked', { not: 'asked.boss.open' }] });
    const workflow = gate.compile();
    const tools = ['pay', 'remind', 'look', 'help'];
    expect(gate.getVisibleToolNames(tools)).toEqual(['remind', 'help']);
    await gate.transition('BOSS');
    const [summary] = workflow.reads.ofPrompt('summary');
    expect(gate.currentState).toBe('asked.(boss.agreed|bank.open)');
    expect(gate.getVisibleToolNames(tools)).toEqual(['remind', 'help']);
    expect(workflow.allows(gate.currentState, summary ?? { states: [] })).toBe(true);
    expect(workflow.allows(workflow.initial, summary ?? { states: [] })).toBe(false);
    await gate.transition('BANK');
    expect(gate.getVisibleToolNames(tools)).toEqual(['pay', 'look', 'help']);
    await gate.transition('DROP');
    expect(gate.getVisibleToolNames(tools)).toEqual(['look', 'help']);
    expect(workflow.claimable(workflow.match('pay', {}) ?? { states: [] })).toBeUndefined();
  });

  it('has words for models', () => {
    const words = (...states: StateExpression[]) =>
      availabilityNote({
        workflow: 'w',
        isOrder: false,
        states,
        path: [],
        foreseen: true,
        isGrouped: false,
      })
        .replace('[System: Available only while w is ', '')
        .replace('. A run begins there.]', '');
    expect(words('a')).toBe('in "a"');
    expect(words('a', 'b')).toBe('in "a" or "b"');
    expect(words('*')).toBe('in any state');
    expect(words({ all: ['a', 'b'] })).toBe('in "a" and "b"');
    expect(words({ all: ['a', { not: 'b' }, 'c'] })).toBe('in "a" and not in "b" and in "c"');
    expect(words('a', { tag: 't' })).toBe('in "a" or a state with the tag "t"');
    expect(words({ all: ['a', { any: ['b', 'c'] }] })).toBe('in "a" and (in "b" or "c")');
    expect(words('a', { all: ['b', 'c'] })).toBe('in "a" or (in "b" and "c")');
    expect(words({ not: { any: ['a', 'b'] } })).toBe('not (in "a" or "b")');
    expect(words({ all: [{ any: ['a'] }] })).toBe('in "a"');
  });

  it('that can be true in no state is refused, where the machine can tell', () => {
    const refused = (states: unknown) => () => checkout().bindTool('t', states as never);
    expect(refused({ all: ['empty', 'payment'] })).toThrow(
      'tool "t" is bound to { all: ["empty", "payment"] }, ' +
        'which is true in no state of workflow "checkout"',
    );
    expect(refused(['empty', { not: '*' }])).toThrow('{ not: "*" }, which is true in no state');
    expect(() =>
      approval().bindTool('t', { all: ['asked.boss.open', 'asked.boss.agreed'] }),
    ).toThrow(/true in no state of workflow "approval"/);
    expect(() => approval().bindPrompt('p', { all: ['dropped', { tag: 'open' }] })).toThrow(
      /ERR_INTERLOCK_BINDING/,
    );
  });

  it('has its wrong names reported at any depth, with the right ones', () => {
    const refused = (states: unknown) => () => checkout().bindTool('t', states as never);
    expect(refused({ all: [{ not: 'emty' }] })).toThrow(
      'tool "t" is bound to "emty", which is no state of workflow "checkout", ' +
        'did you mean "empty"?',
    );
    expect(refused({ any: [{ tag: 'open' }] })).toThrow('"open", which is no tag');
    const right = 'one state or more: a name, { tag }, { all: […] }, { any: […] } or { not: … }';
    expect(refused({ some: ['empty'] })).toThrow(`${right}, got { some: an array }`);
    expect(refused({ all: ['empty'], any: ['empty'] })).toThrow(
      'got { all: an array, any: an array }',
    );
    expect(refused({ all: [] })).toThrow('got { all: an empty array }');
    expect(refused({ any: 'empty' })).toThrow('got { any: "empty" }');
    expect(refused({})).toThrow(`${right}, got an object`);
    expect(refused([])).toThrow('expected one state or more, got an empty array');
    expect(refused(['empty', 5])).toThrow('expected one state or more, got 5');
  });

  it('gets a warning where none of its states handles the event', () => {
    const gate = checkout().bindTool('t', { not: 'empty' }, 'ADD_ITEM');
    expect(gate.warnings).toEqual([
      'workflow "checkout": tool "t" sends "ADD_ITEM", which none of its states handles; ' +
        'states that do are "empty"',
    ]);
    expect(checkout().bindTool('t', '*', 'ADD_ITEM').warnings).toEqual([]);
    const chart = approval().bindTool('t', { all: ['asked', { not: 'asked.boss.open' }] }, 'BOSS');
    expect(chart.warnings).toHaveLength(1);
    expect(approval().bindTool('t', { not: 'asked.bank.open' }, 'BOSS').warnings).toEqual([]);
  });

  it('may be "*" for any state, so that no state may be called "*"', () => {
    const flat = { initial: '*', states: { '*': {} } } as const;
    expect(() => new StateMachineGate(flat)).toThrow('a state is called "*"');
    const chart = setup({}).createMachine({ initial: '*', states: { '*': {} } });
    expect(() => new StateMachineGate(chart)).toThrow('a state is called "*"');
  });
});

/** Plain logic over the one state of a flat machine, which shares no code with the gate. */
function isTrue(expression: StateExpression, state: string): boolean {
  if (typeof expression === 'string') return expression === '*' || expression === state;
  const [[word, inner] = ['', undefined]] = Object.entries(expression);
  if (word === 'not') return !isTrue(inner, state);
  const answers: boolean[] = inner.map((each: StateExpression) => isTrue(each, state));
  return word === 'all' ? !answers.includes(false) : answers.includes(true);
}
