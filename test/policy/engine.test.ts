import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { InterlockError } from '../../src/basics/errors.ts';
import { PolicyEngine, type SyncPolicy } from '../../src/policy/engine.ts';
import { globOf, oracleMatches } from '../helpers/glob-oracle.ts';

const policies = [
  { match: 'sprints.update', invalidates: ['sprints.*'] },
  { match: 'tasks.update', invalidates: ['tasks.*', 'sprints.*'] },
  { match: 'countries.*', cacheControl: 'immutable' },
] as const satisfies readonly SyncPolicy[];

describe('PolicyEngine', () => {
  it('applies the first policy that matches, and adds nothing of the others', () => {
    const engine = new PolicyEngine([
      { match: 'sprints.get', cacheControl: 'immutable' },
      { match: 'sprints.*', cacheControl: 'no-store', invalidates: ['tasks.*'] },
    ]);
    expect(engine.resolve('sprints.get')).toEqual({ cacheControl: 'immutable' });
    expect(engine.resolve('sprints.list')).toEqual({
      cacheControl: 'no-store',
      invalidates: ['tasks.*'],
    });
  });

  it('gives a tool that no policy matches the defaults', () => {
    const engine = new PolicyEngine(policies, { cacheControl: 'no-store' });
    expect(engine.resolve('billing.pay')).toEqual({ cacheControl: 'no-store' });
  });

  it('gives a tool that no policy matches nothing where there are no defaults', () => {
    expect(new PolicyEngine(policies).resolve('billing.pay')).toBeUndefined();
    expect(new PolicyEngine(policies, {}).resolve('billing.pay')).toBeUndefined();
    expect(
      new PolicyEngine(policies, { cacheControl: undefined }).resolve('billing.pay'),
    ).toBeUndefined();
  });

  it('fills in the default directive where the matching policy has none, and only there', () => {
    const engine = new PolicyEngine(policies, { cacheControl: 'no-store' });
    expect(engine.resolve('tasks.update')).toEqual({
      cacheControl: 'no-store',
      invalidates: ['tasks.*', 'sprints.*'],
    });
    expect(engine.resolve('countries.list')).toEqual({ cacheControl: 'immutable' });
  });

  it('leaves out what a policy does not say', () => {
    const engine = new PolicyEngine([
      { match: 'a', cacheControl: undefined, invalidates: undefined },
      { match: 'b', invalidates: [] },
    ]);
    expect(Object.keys(engine.resolve('a') ?? { missing: true })).toEqual([]);
    expect(Object.keys(engine.resolve('b') ?? { missing: true })).toEqual([]);
  });

  it('answers with the policy that a search from the top finds', () => {
    const match = globOf(['a', 'b', '*', '**', 'a*'], 3);
    const name = globOf(['a', 'b', 'ab'], 4);
    fc.assert(
      fc.property(
        fc.array(match, { maxLength: 5 }),
        fc.array(name, { minLength: 1 }),
        (patterns, names) => {
          const engine = new PolicyEngine(
            patterns.map((pattern, i) => ({ match: pattern, invalidates: [`p${i}`] })),
          );
          for (const asked of [...names, ...names]) {
            const winner = patterns.findIndex((pattern) => oracleMatches(pattern, asked));
            expect(engine.resolve(asked)?.invalidates).toEqual(
              winner === -1 ? undefined : [`p${winner}`],
            );
            expect(engine.matchOf(asked)).toBe(patterns[winner]);
          }
        },
      ),
    );
  });

  it('answers with frozen objects, one for each policy', () => {
    const engine = new PolicyEngine(policies, { cacheControl: 'no-store' });
    const update = engine.resolve('tasks.update');
    expect(Object.isFrozen(update)).toBe(true);
    expect(Object.isFrozen(update?.invalidates)).toBe(true);
    expect(Object.isFrozen(engine.resolve('unmatched'))).toBe(true);
    expect(engine.resolve('countries.list')).toBe(engine.resolve('countries.get'));
    expect(engine.resolve('tasks.update')).toBe(update);
  });

  it('ignores later changes of the policies that it was given', () => {
    const invalidates = ['tasks.*'];
    const policy = { match: 'tasks.update', invalidates };
    const list: SyncPolicy[] = [policy];
    const engine = new PolicyEngine(list);
    invalidates.push('sprints.*');
    policy.match = 'other';
    list.length = 0;
    expect(engine.resolve('tasks.update')).toEqual({ invalidates: ['tasks.*'] });
  });

  it('gives the same answers after its memory has overflowed', () => {
    const engine = new PolicyEngine(policies, { cacheControl: 'no-store' });
    for (let i = 0; i < 5000; i++) {
      expect(engine.resolve(`countries.c${i}`)).toEqual({ cacheControl: 'immutable' });
      expect(engine.resolve(`cities.c${i}`)).toEqual({ cacheControl: 'no-store' });
    }
    expect(engine.resolve('countries.c0')).toEqual({ cacheControl: 'immutable' });
  });

  it('keeps 2,048 names, forgets them all for the next one, and keeps no very long name', () => {
    const engine = new PolicyEngine(policies);
    const emptied = vi.spyOn(Map.prototype, 'clear');
    onTestFinished(() => emptied.mockRestore());
    for (let i = 0; i < 3000; i++) engine.resolve(`${'long.'.repeat(100)}${i}`);
    for (let i = 0; i < 2048; i++) engine.resolve(`name${i}`);
    expect(emptied).not.toHaveBeenCalled();
    engine.resolve('one more');
    expect(emptied).toHaveBeenCalledTimes(1);
  });

  it.each([
    '',
    '__proto__',
    'constructor',
    'toString',
    '.'.repeat(100_000),
    'x'.repeat(100_000),
    '\ud800',
  ])('takes a hostile name for one that no policy matches', (name) => {
    expect(new PolicyEngine(policies).resolve(name)).toBeUndefined();
  });
});

describe('PolicyEngine refuses at construction', () => {
  const thrownBy = (given: unknown, defaults?: unknown): InterlockError => {
    try {
      // @ts-expect-error: as it comes from JavaScript.
      new PolicyEngine(given, defaults);
    } catch (error) {
      if (error instanceof InterlockError) return error;
      throw error;
    }
    throw new Error('nothing was thrown');
  };

  it.each([
    ['an empty match', { match: '' }, ['match', '""']],
    ['a missing match', {}, ['match', 'expected string']],
    ['a match that is not a string', { match: 7 }, ['match', 'expected string', '7']],
    ['a malformed glob', { match: 'a.**b' }, ['match', '** to stand alone', '"a.**b"']],
    ['another glob language', { match: 'a.{b,c}' }, ['match', '"a.{b,c}"', 'mean nothing here']],
    [
      'an unknown directive',
      { match: 'a', cacheControl: 'no-cache' },
      ['"no-cache"', '"no-store"', '"immutable"'],
    ],
    [
      'a directive that every object has',
      { match: 'a', cacheControl: 'constructor' },
      ['"constructor"'],
    ],
    ['null for a directive', { match: 'a', cacheControl: null }, ['cacheControl', 'null']],
    [
      'one pattern for a list',
      { match: 'a', invalidates: 'b.*' },
      ['invalidates', 'array', '"b.*"'],
    ],
    [
      'an empty pattern in a list',
      { match: 'a', invalidates: ['b', ''] },
      ['invalidates[1]', '""'],
    ],
    ['a number in a list', { match: 'a', invalidates: [1] }, ['invalidates[0]', 'string', '1']],
    [
      'a malformed pattern in a list',
      { match: 'a', invalidates: ['b..c'] },
      ['invalidates[0]', '"b..c"'],
    ],
    [
      'a misspelt key',
      { match: 'a', cachecontrol: 'no-store' },
      ['"cachecontrol"', '"cacheControl"'],
    ],
    ['another misspelt key', { match: 'a', invalidate: [] }, ['"invalidate"', '"invalidates"']],
    [
      'a key of its own called __proto__',
      JSON.parse('{"match":"a","__proto__":1}'),
      ['"__proto__"'],
    ],
    ['an inherited match', Object.create({ match: 'a' }), ['match', 'expected string']],
    ['a string', 'sprints.*', ['object', '"sprints.*"']],
    ['null', null, ['object', 'null']],
  ])('%s, with the policy’s index, the wrong value and the right ones', (_, policy, parts) => {
    const error = thrownBy([{ match: 'good' }, policy]);
    expect(error.code).toBe('ERR_INTERLOCK_POLICY');
    for (const part of ['policies[1]', ...parts]) expect(error.message).toContain(part);
  });

  it('a hole in the list', () => {
    const sparse: unknown[] = [];
    sparse[1] = { match: 'a' };
    expect(thrownBy(sparse)).toMatchObject({ code: 'ERR_INTERLOCK_POLICY' });
  });

  it.each([undefined, null, 'sprints.*', { match: 'a' }, new Set()])(
    'policies that are no list: %s',
    (given) => {
      const error = thrownBy(given);
      expect(error.code).toBe('ERR_INTERLOCK_CONFIG');
      expect(error.message).toContain('policies: expected array');
    },
  );

  it.each([
    [{ cacheControl: 'max-age=60' }, ['cacheControl', '"max-age=60"', '"no-store"', '"immutable"']],
    [{ cachecontrol: 'no-store' }, ['"cachecontrol"', '"cacheControl"']],
    ['no-store', ['object', '"no-store"']],
    [null, ['object', 'null']],
  ])('malformed defaults: %j', (defaults, parts) => {
    const error = thrownBy([], defaults);
    expect(error.code).toBe('ERR_INTERLOCK_CONFIG');
    for (const part of ['defaults', ...parts]) expect(error.message).toContain(part);
  });
});
