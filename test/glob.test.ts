import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { globFault, MAX_ITERATIONS, matchGlob } from '../src/basics/glob.ts';
import { few } from './helpers/few.ts';
import { globOf, oracleMatches } from './helpers/glob-oracle.ts';

const dots = (count: number, segment = 'a') => Array(count).fill(segment).join('.');

describe('a glob', () => {
  it.each([
    ['sprints.get', 'sprints.get', true],
    ['sprints.get', 'sprints.list', false],
    ['sprints.*', 'sprints.get', true],
    ['sprints.*', 'sprints.update', true],
    ['sprints.*', 'sprints.tasks.get', false],
    ['sprints.**', 'sprints.get', true],
    ['sprints.**', 'sprints.tasks.get', true],
    ['sprints.**', 'tasks.get', false],
  ])('%j against %j is %s, as documented', (pattern, name, expected) => {
    expect(matchGlob(pattern, name)).toBe(expected);
  });

  it.each([
    ['*', 'sprints', true],
    ['*', 'sprints.get', false],
    ['sprints.*', 'sprints', false],
    ['*.get', 'sprints.get', true],
    ['**', 'sprints', true],
    ['**', 'a.b.c', true],
    ['sprints.**', 'sprints', true],
    ['**.get', 'get', true],
    ['**.get', 'a.b.get', true],
    ['**.get', 'a.get.b', false],
    ['a.**.z', 'a.z', true],
    ['a.**.z', 'a.b.z.c.z', true],
    ['a.**.b.**.c', 'a.b.x.b.c', true],
    ['a.**.*.c', 'a.c', false],
    ['**.**', 'a', true],
  ])('%j against %j is %s: stars count segments', (pattern, name, expected) => {
    expect(matchGlob(pattern, name)).toBe(expected);
  });

  it.each([
    ['get_*', 'get_user', true],
    ['get_*', 'get_', true],
    ['get_*', 'get_user.name', false],
    ['get_*', 'forget_user', false],
    ['*_list', 'sprint_list', true],
    ['sprints.*_all', 'sprints.delete_all', true],
    ['a*b*c', 'a-b-b-c', true],
    ['a*b*c', 'a-c-b', false],
    ['ab*ba', 'aba', false],
    ['a*bc*c', 'abc', false],
    ['*a*', 'banana', true],
  ])(
    '%j against %j is %s: a star beside characters stays in its segment',
    (pattern, name, expected) => {
      expect(matchGlob(pattern, name)).toBe(expected);
    },
  );

  it('tells upper from lower case, and takes characters of other glob syntaxes literally', () => {
    expect(matchGlob('Sprints.get', 'sprints.get')).toBe(false);
    expect(matchGlob('a+', 'aa')).toBe(false);
    expect(matchGlob('a?', 'ab')).toBe(false);
    expect(matchGlob('(a|b)', '(a|b)')).toBe(true);
  });

  it('answers as its definition does, for small patterns and names', () => {
    const pattern = globOf(['a', 'b', '*', '**', '**', 'a*', '*b', 'a*b', '*a*', ''], 6);
    const name = globOf(['a', 'b', 'ab', 'aab', 'ba', '*', ''], 7);
    fc.assert(
      fc.property(pattern, name, (p, n) => {
        expect(matchGlob(p, n)).toBe(oracleMatches(p, n));
      }),
      few(1000),
    );
  });

  it('answers as its definition does within one segment, too', () => {
    const text = (characters: string[]) =>
      fc.array(fc.constantFrom(...characters), { maxLength: 8 });
    fc.assert(
      fc.property(text(['a', 'b', '*']), text(['a', 'b', '*']), (p, n) => {
        const [pattern, name] = [p.join(''), n.join('')];
        fc.pre(pattern !== '**');
        expect(matchGlob(pattern, name)).toBe(oracleMatches(pattern, name));
      }),
      few(1000),
    );
  });
});

describe('a hostile name', () => {
  it.each(['', '.', '...', '__proto__', 'constructor', '\0', '\ud800', '*', '**', 'a\nb'])(
    '%j is an ordinary name, matched by itself and by **',
    (name) => {
      expect(matchGlob(name, name)).toBe(true);
      expect(matchGlob('**', name)).toBe(true);
      expect(matchGlob('sprints.*', name)).toBe(false);
    },
  );

  it('never throws, for any strings', () => {
    const anything = fc.string({ unit: 'binary' });
    fc.assert(
      fc.property(anything, anything, (pattern, name) => {
        expect(typeof matchGlob(pattern, name)).toBe('boolean');
      }),
    );
  });

  it('is not matched beyond the bound on iterations', () => {
    expect(matchGlob('**.b', `${dots(MAX_ITERATIONS / 2 - 2)}.b`)).toBe(true);
    expect(matchGlob('**.b', `${dots(MAX_ITERATIONS)}.b`)).toBe(false);
    expect(matchGlob(dots(MAX_ITERATIONS - 1), dots(MAX_ITERATIONS - 1))).toBe(true);
    expect(matchGlob(dots(MAX_ITERATIONS), dots(MAX_ITERATIONS))).toBe(false);
  });

  it('of too many segments does not match as if it ended earlier', () => {
    for (const length of [MAX_ITERATIONS - 1, MAX_ITERATIONS, MAX_ITERATIONS + 1]) {
      expect(matchGlob(dots(length, '*'), dots(1_000_000))).toBe(false);
    }
    expect(matchGlob('**.a', dots(1_000_000))).toBe(false);
  });

  it('of a million segments is matched where a last ** takes the rest unseen', () => {
    expect(matchGlob('a.**', dots(1_000_000))).toBe(true);
  });

  it('that makes a pattern of many stars backtrack is answered in time', () => {
    expect(matchGlob(`${'**.a.'.repeat(200)}b`, dots(5000))).toBe(false);
    expect(matchGlob(`${'*a'.repeat(200)}*b`, 'a'.repeat(1_000_000))).toBe(false);
  });
});

describe('a well-formed pattern', () => {
  it.each([
    'a',
    'a.b',
    '*',
    '**',
    'a.*.b',
    'a.**',
    'get_*',
    '*_a_*',
    'sprints/list',
    'list sprints',
    '__proto__',
    'été.*',
  ])('%j has no fault', (pattern) => {
    expect(globFault(pattern)).toBeUndefined();
  });

  it.each([
    ['', 'expected a name or a glob'],
    ['.', 'without empty segments'],
    ['a..b', 'without empty segments'],
    ['a.', 'without empty segments'],
    ['.a', 'without empty segments'],
    ['a**', '** to stand alone'],
    ['***', '** to stand alone'],
    ['a.**b.c', '** to stand alone'],
    [' a', 'without white space around'],
    ['a.b ', 'without white space around'],
    ['a\nb', 'without control characters'],
    ['a\0', 'without control characters'],
    ['a.{b,c}', 'mean nothing here'],
    ['a.[bc]', 'mean nothing here'],
    ['a.?', 'mean nothing here'],
    ['!a.*', 'mean nothing here'],
  ])('is not %j', (pattern, fault) => {
    expect(globFault(pattern)).toContain(fault);
  });
});
