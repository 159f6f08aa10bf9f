import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { copyJson } from '../../src/stores/trail.ts';
import { few } from '../helpers/few.ts';

/** JSON values, and what an app may have beside them in a context. */
const { anyValue } = fc.letrec((tie) => ({
  anyValue: fc.oneof(
    { maxDepth: 4 },
    fc.jsonValue(),
    fc.constantFrom(undefined, Number.NaN, -0, Number.POSITIVE_INFINITY, new Date(0)),
    fc.constantFrom({ toJSON: () => 'itself' }, new Map([[1, 2]]), /a/, () => 1, Symbol('s')),
    fc.array(tie('anyValue'), { maxLength: 4 }),
    fc.dictionary(fc.oneof(fc.string(), fc.constant('__proto__')), tie('anyValue'), {
      maxKeys: 4,
      noNullPrototype: false,
    }),
  ),
}));

const isFrozen = (value: unknown): boolean =>
  typeof value !== 'object' ||
  value === null ||
  (Object.isFrozen(value) && Object.values(value).every(isFrozen));

describe('a copy of what a run carries', () => {
  it('is what a store on a server would give back, and frozen', () => {
    fc.assert(
      fc.property(fc.array(anyValue, { maxLength: 3 }), (value) => {
        const copy = copyJson(value as never);
        expect(copy).toStrictEqual(JSON.parse(JSON.stringify(value)));
        expect(isFrozen(copy)).toBe(true);
      }),
      few(500),
    );
  });

  it('is made of depths that a store takes, and refused in a circle', () => {
    let deep: unknown = 'inside';
    for (let i = 0; i < 1_000; i++) deep = [deep];
    expect(JSON.stringify(copyJson([deep] as never))).toBe(JSON.stringify([deep]));
    const circle: Record<string, unknown> = {};
    circle.self = circle;
    expect(() => copyJson(circle as never)).toThrow(/circular/);
  });
});
