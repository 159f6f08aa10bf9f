import { describe, expect, it } from 'vitest';
import { tool } from '../src/doors/tool.ts';

describe('tool()', () => {
  it('begins a declaration that says nothing yet', () => {
    expect(tool('tasks.update')).toMatchObject({
      name: 'tasks.update',
      bindings: [],
      policy: undefined,
    });
  });

  it('declares bindings and what they invalidate in one place, in any order', () => {
    const one = tool('tasks.update')
      .bindState('open', 'UPDATE')
      .invalidates('tasks.*', 'sprints.*')
      .stale();
    const other = tool('tasks.update')
      .stale()
      .invalidates('tasks.*', 'sprints.*')
      .bindState('open', 'UPDATE');
    expect(one).toEqual(other);
    expect(one.bindings).toEqual([{ tool: 'tasks.update', states: ['open'], success: 'UPDATE' }]);
    expect(one.policy).toEqual({
      match: 'tasks.update',
      cacheControl: 'no-store',
      invalidates: ['tasks.*', 'sprints.*'],
    });
  });

  it('adds up bindings and patterns; of cached() and stale() the last one counts', () => {
    const when = () => true;
    const declared = tool('t')
      .bindState(['a', 'b', 'a'])
      .bindState('c', { success: 'GO', when, uncertain: 'hold' })
      .invalidates('x')
      .invalidates('y.**')
      .stale()
      .cached();
    expect(declared.bindings).toEqual([
      { tool: 't', states: ['a', 'b'] },
      { tool: 't', states: ['c'], success: 'GO', when, uncertain: 'hold' },
    ]);
    expect(declared.policy).toEqual({
      match: 't',
      cacheControl: 'immutable',
      invalidates: ['x', 'y.**'],
    });
  });

  it('never changes a declaration that was made', () => {
    const base = tool('t');
    const bound = base.bindState('a');
    const invalidating = bound.invalidates('x');
    invalidating.invalidates('y');
    expect(base.bindings).toEqual([]);
    expect(bound.policy).toBeUndefined();
    expect(invalidating.policy?.invalidates).toEqual(['x']);
    for (const part of [base, bound, bound.bindings, bound.bindings[0], invalidating.policy]) {
      expect(Object.isFrozen(part)).toBe(true);
    }
  });

  it.each([
    [() => tool(''), 'ERR_INTERLOCK_BINDING', 'name of a tool, got ""'],
    [() => tool(7 as unknown as string), 'ERR_INTERLOCK_BINDING', 'name of a tool, got 7'],
    [() => tool('t').bindState([]), 'ERR_INTERLOCK_BINDING', 'one state or more'],
    [() => tool('t').bindState('a', ''), 'ERR_INTERLOCK_EVENT', 'name of an event'],
    [
      () => tool('t').bindState('a', { whn: 1 } as object),
      'ERR_INTERLOCK_CONFIG',
      'did you mean "when"?',
    ],
    [() => tool('t').invalidates(), 'ERR_INTERLOCK_POLICY', 'expects at least one glob'],
    [
      () => tool('t').invalidates('x', ''),
      'ERR_INTERLOCK_POLICY',
      'expected a name or a glob, got ""',
    ],
    [
      () => tool('t').invalidates(7 as unknown as string),
      'ERR_INTERLOCK_POLICY',
      'expected a glob, got 7',
    ],
    [() => tool('t.*').cached(), 'ERR_INTERLOCK_POLICY', 'the names of many tools'],
  ])('refuses a mistake where it is made: %s', (declare, code, text) => {
    expect(declare).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(text) }),
    );
  });
});
