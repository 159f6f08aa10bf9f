import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { InterlockError } from '../../src/basics/errors.ts';
import { ExactNumber } from '../../src/basics/numbers.ts';
import { type Condition, parseCondition, readerOf } from '../../src/workflow/condition.ts';

/** What the condition says of the value: `true`, `false`, or the paths that leave it open. */
function told(condition: Condition, value: unknown): boolean | string[] {
  const open: string[] = [];
  const truth = parseCondition('ok', condition)(readerOf(value), (path) => open.push(path));
  return truth ?? open;
}

const ORDER = {
  status: 'open',
  total: 120,
  paid: false,
  note: null,
  lines: [{ id: 'a' }, { id: 'b' }],
  'a.b': 1,
  'c/d': { '~': 2 },
  any: 'yes',
};

describe('a condition', () => {
  it.each<[Condition, boolean | string[]]>([
    [{ status: 'open' }, true],
    [{ status: { eq: 'paid' } }, false],
    [{ status: { ne: 'paid' } }, true],
    [{ status: { in: ['paid', 'open'] } }, true],
    [{ status: { in: ['paid'] } }, false],
    [{ total: { gt: 100, lt: 200 } }, true],
    [{ total: { gte: 120, lte: 120 } }, true],
    [{ total: { gt: 120 } }, false],
    [{ total: { lt: 120 } }, false],
    [{ paid: false }, true],
    [{ note: null }, true],
    [{ note: { ne: null } }, false],
    [{ note: 'x' }, false],
    [{ 'lines.1.id': 'b' }, true],
    [{ '/lines/0/id': 'a' }, true],
    [{ '/a.b': 1 }, true],
    [{ '/c~1d/~0': 2 }, true],
    [{ '/any': 'yes' }, true],
    [{ any: [{ status: 'paid' }, { total: 120 }] }, true],
    [{ any: [{ status: 'paid' }, { total: 1 }] }, false],
    [{ not: { status: 'paid' } }, true],
    [{ status: 'open', total: 1 }, false],
    [{ sum: { exists: false } }, true],
    [{ total: { exists: true } }, true],
    [{ 'lines.length': { exists: false } }, true],
    [{ '__proto__.x': { exists: false }, 'constructor.name': { exists: false } }, true],
  ])('%j is told of a result', (condition, expected) => {
    expect(told(condition, ORDER)).toEqual(expected);
  });

  it.each<[Condition, string[]]>([
    [{ sum: 1 }, ['sum']],
    [{ sum: { gt: 1 } }, ['sum']],
    [{ sum: { in: [1] } }, ['sum']],
    [{ status: { gt: 1 } }, ['status']],
    [{ total: '120' }, ['total']],
    [{ total: { ne: '120' } }, ['total']],
    [{ total: { in: ['120', null] } }, ['total']],
    [{ lines: 'a' }, ['lines']],
    [{ not: { sum: 1 } }, ['sum']],
    [{ any: [{ status: 'paid' }, { sum: 1 }] }, ['sum']],
    [{ status: 'open', sum: 1, 'x.y': 2 }, ['sum', 'x.y']],
  ])('%j is open where what it reads is missing or of another type', (condition, paths) => {
    expect(told(condition, ORDER)).toEqual(paths);
  });

  it('reads absence with "ne" and "exists" alone', () => {
    expect(told({ sum: { ne: 1 } }, ORDER)).toBe(true);
    expect(told({ sum: { exists: true } }, ORDER)).toBe(false);
    expect(told({ sum: { exists: true, eq: 1 } }, ORDER)).toBe(false);
    expect(told({ status: 'open' }, undefined)).toEqual(['status']);
  });

  it('is false where one part is, and true where one of "any" is, though others are open', () => {
    expect(told({ sum: 1, status: 'paid' }, ORDER)).toBe(false);
    expect(told({ any: [{ sum: 1 }, { status: 'open' }] }, ORDER)).toBe(true);
  });

  it('is open about a number that JavaScript rounds', () => {
    const total = ExactNumber.of('9007199254740993');
    for (const comparison of [9007199254740992, { gt: 1 }, { ne: 1 }, { in: [1] }])
      expect(told({ total: comparison }, { total })).toEqual(['total']);
    expect(told({ total: { exists: true } }, { total })).toBe(true);
  });

  it('and its opposite agree about any value', () => {
    const scalar = fc.constantFrom(null, true, false, 0, 1, 2, 'a', 'b');
    const comparison = fc.oneof(
      scalar,
      fc.record({ gt: fc.constantFrom(0, 1) }),
      fc.record({ in: fc.array(scalar, { minLength: 1, maxLength: 3 }) }),
      fc.record({ exists: fc.boolean() }),
    );
    const value = fc.record({ x: scalar, y: scalar }, { requiredKeys: [] });
    fc.assert(
      fc.property(value, comparison, comparison, (found, one, two) => {
        const both = told({ x: one, y: two } as Condition, found);
        const neither = told(
          { not: { any: [{ not: { x: one } }, { not: { y: two } }] } } as Condition,
          found,
        );
        expect(neither).toEqual(both);
      }),
    );
  });

  it.each<[unknown, string]>([
    [undefined, 'ok: expected a condition such as'],
    ['approved', 'ok: expected a condition such as'],
    [{}, 'ok: expected a condition, got an empty object'],
    [{ status: {} }, 'ok: "status": expected one of eq, ne, gt'],
    [{ status: { is: 'x' } }, 'ok: "status": expected one of eq, ne, gt'],
    [{ status: ['a'] }, 'ok: "status": expected a text, a finite number'],
    [{ status: () => true }, 'ok: "status": expected a text'],
    [{ total: { gt: '1' } }, 'ok: "total": gt: expected a number, got "1"'],
    [{ total: { lt: Number.NaN } }, 'ok: "total": lt: expected a number'],
    [{ total: { in: [] } }, 'ok: "total": in: expected one value or more'],
    [{ total: { exists: 1 } }, 'ok: "total": exists: expected true or false'],
    [{ any: {} }, 'ok: "any": expected one condition or more in an array'],
    [{ 'a..b': 1 }, 'expected a path such as "payment.status"'],
  ])('%j is refused in words that name the place', (condition, words) => {
    const parse = () => parseCondition('ok', condition);
    expect(parse).toThrow(InterlockError);
    expect(parse).toThrow(words);
  });

  it('has at most 16 levels', () => {
    let condition: Condition = { x: 1 };
    for (let level = 0; level < 20; level++) condition = { not: condition };
    expect(() => parseCondition('ok', condition)).toThrow('at most 16 levels');
  });
});
