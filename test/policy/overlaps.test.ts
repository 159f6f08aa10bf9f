import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { detectOverlaps } from '../../src/policy/overlaps.ts';
import { few } from '../helpers/few.ts';
import { allNames, globOf, oracleMatches } from '../helpers/glob-oracle.ts';

/** The warnings for policies with these patterns, as `[shadowing, shadowed]`. */
function overlaps(...patterns: string[]): [number, number][] {
  const warnings = detectOverlaps(patterns.map((match) => ({ match })));
  return warnings.map(({ shadowingIndex, shadowedIndex }) => [shadowingIndex, shadowedIndex]);
}

describe('detectOverlaps', () => {
  it('reports a policy that a broader one before it shadows, and names both patterns', () => {
    const [warning, ...others] = detectOverlaps([
      { match: 'sprints.*', cacheControl: 'no-store' },
      { match: 'sprints.update', invalidates: ['sprints.*'] },
    ]);
    expect(others).toEqual([]);
    expect(warning).toEqual({
      shadowingIndex: 0,
      shadowedIndex: 1,
      message:
        'policies[1] ("sprints.update") never applies: ' +
        'policies[0] ("sprints.*") before it matches every name ' +
        'that it matches. Put it first, or take it out.',
    });
  });

  it('does not report an exception that stands before its rule', () => {
    expect(overlaps('sprints.get', 'sprints.*', '**')).toEqual([]);
  });

  it('does not report policies that share only some of their names', () => {
    expect(overlaps('sprints.*', '*.update')).toEqual([]);
    expect(overlaps('get_*', '*_all')).toEqual([]);
  });

  it('reports a pattern that is there twice', () => {
    expect(overlaps('a.*', 'b', 'a.*')).toEqual([[0, 2]]);
  });

  it('names the first policy that shadows alone, once for each that never applies', () => {
    expect(overlaps('a.*', '**', 'a.b', 'c')).toEqual([
      [0, 2],
      [1, 3],
    ]);
  });

  it.each([
    ['**', 'a'],
    ['a.**', 'a.*'],
    ['a.**', 'a'],
    ['**.z', 'a.*.z'],
    ['*.**', '**'],
    ['*.**', '**.*'],
    ['**.*', '*.**'],
    ['a.**.*', 'a.*.**'],
    ['**.**', '**'],
    ['get_*', 'get_user'],
    ['get_*', 'get_user_*'],
    ['*_*', 'get_*'],
    ['*', 'get_*'],
    ['**.a.**', 'x.**.a.*'],
    ['__proto__', '__proto__'],
  ])('%j leaves %j no name', (earlier, later) => {
    expect(overlaps(earlier, later)).toEqual([[0, 1]]);
  });

  it.each([
    ['a', '**'],
    ['a.*', 'a.**'],
    ['a.*', 'a'],
    ['*.*.**', '*.**'],
    ['get_*', 'get*'],
    ['get_user', 'get_*'],
    ['**.a', '**.a.**'],
  ])('%j leaves %j a name', (earlier, later) => {
    expect(overlaps(earlier, later)).toEqual([]);
  });

  it('reports a policy that several earlier ones shadow together, and names those', () => {
    const [warning, ...others] = detectOverlaps(
      ['unrelated', 'a', 'a.b', 'a.*.**', 'a.**'].map((match) => ({ match })),
    );
    expect(others).toEqual([]);
    expect(warning).toMatchObject({ shadowingIndex: 1, shadowedIndex: 4 });
    expect(warning?.message).toContain(
      'policies[1] ("a") and policies[3] ("a.*.**") before it ' +
        'together match every name that it matches',
    );
  });

  it('prefers the earliest policies that suffice', () => {
    const [first, second] = detectOverlaps(
      ['a', 'a.*.**', 'a.**.*', 'a.**'].map((match) => ({ match })),
    );
    expect(first).toMatchObject({ shadowingIndex: 1, shadowedIndex: 2 });
    expect(second?.message).toContain('policies[0] ("a") and policies[1] ("a.*.**") before it');
  });

  it('reports exactly the policies that no name reaches', () => {
    // `z` stands for a character that no pattern has: only by one do `a*` and `*` differ.
    const names = allNames(['a', 'z', 'az'], 7);
    const patterns = fc.array(globOf(['a', 'a*', '*', '**'], 3), { minLength: 2, maxLength: 4 });
    fc.assert(
      fc.property(patterns, (list) => {
        const reached = new Set(
          names.map((name) => list.findIndex((pattern) => oracleMatches(pattern, name))),
        );
        const unreached = list.flatMap((_, index) => (reached.has(index) ? [] : [index]));
        expect(overlaps(...list).map(([, shadowed]) => shadowed)).toEqual(unreached);
      }),
      few(80),
    );
  });

  it('reports a pair of policies exactly where the earlier matches each name of the later', () => {
    const names = allNames(['a', 'b', 'z', 'ab', 'azb', 'zb', 'az'], 4);
    const pattern = globOf(['a', 'b', 'a*', '*b', 'a*b', '*', '**'], 3);
    fc.assert(
      fc.property(pattern, pattern, (earlier, later) => {
        const covered = names.every(
          (name) => !oracleMatches(later, name) || oracleMatches(earlier, name),
        );
        expect(overlaps(earlier, later)).toEqual(covered ? [[0, 1]] : []);
      }),
      few(100),
    );
  });

  it('soon gives up on a pattern of very many **, without a warning', () => {
    const many = Array(40).fill('**.a').join('.');
    expect(overlaps('**', many)).toEqual([]);
  });

  it('refuses what PolicyEngine refuses', () => {
    expect(() => overlaps('a..b')).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_POLICY' }),
    );
  });

  it('reports nothing for an empty list', () => {
    expect(detectOverlaps([])).toEqual([]);
  });
});
