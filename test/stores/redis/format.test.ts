import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BUCKETS, Keys, principalScore } from '../../../src/stores/redis/format.ts';

/**
 * Any JavaScript string, with halves of surrogate pairs, and often with braces.
 */
const anyString = fc.oneof(
  fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)) }),
  fc.string({ unit: fc.constantFrom('{', '}', ':', '#', 'a') }),
);

const switchKeys = (prefix: string, workflow: string) => new Keys(prefix).ofSwitch(workflow);
const runKeys = (prefix: string, run: string) => new Keys(prefix).of(run).keys;

describe('the keys of a run', () => {
  it('are in one hash slot for any run key', () => {
    fc.assert(
      fc.property(anyString, (run) => {
        const tags = runKeys('interlock', run).map(hashTag);
        expect(new Set(tags).size).toBe(1);
        expect(tags[0]).toMatch(/^b\d\d$/);
      }),
    );
  });

  it('are never those of another run', () => {
    fc.assert(
      fc.property(anyString, anyString, (one, other) => {
        fc.pre(one !== other);
        expect(utf8(runKeys('p', one))).not.toEqual(utf8(runKeys('p', other)));
      }),
    );
    expect(utf8(runKeys('p', '\ud800'))).not.toEqual(utf8(runKeys('p', '\ud801')));
  });

  it('stay short and without control characters', () => {
    fc.assert(
      fc.property(anyString, (run) => {
        for (const key of runKeys('interlock', run))
          expect(key).toMatch(/^interlock:\{b\d\d\}:(run:[\w.:#-]{1,64}|index|numbers)$/);
      }),
    );
  });

  it('show a session id as it is, so that an operator finds it', () => {
    const id = '3f2b9c1e-8a54-4c0e-9d53-0f1f6c1f7a10';
    expect(runKeys('interlock', id)).toEqual([
      `interlock:{b53}:run:${id}`,
      'interlock:{b53}:index',
      'interlock:{b53}:numbers',
    ]);
  });

  it('spread over all buckets', () => {
    const keys = new Keys('interlock');
    const filled = new Array<number>(BUCKETS).fill(0);
    for (let i = 0; i < 64_000; i += 1) {
      const { bucket } = keys.of(`principal:user-${i}`);
      filled[bucket] = (filled[bucket] ?? 0) + 1;
    }
    expect(Math.min(...filled)).toBeGreaterThan(800);
    expect(Math.max(...filled)).toBeLessThan(1_200);
  });
});

describe('the keys of a switch', () => {
  it('are in one hash slot for any workflow, short, and those of no run or other switch', () => {
    fc.assert(
      fc.property(anyString, anyString, (one, other) => {
        const keys = switchKeys('interlock', one);
        expect(new Set(keys.map(hashTag)).size).toBe(1);
        expect(keys[0]).toMatch(/^interlock:\{b\d\d\}:switch:[\w.:#-]{1,64}$/);
        expect(utf8(keys)[0]).not.toBe(utf8(runKeys('interlock', one))[0]);
        if (one !== other) expect(keys[0]).not.toBe(switchKeys('interlock', other)[0]);
      }),
    );
  });
});

describe('the score of a principal', () => {
  it('is a negative whole number that Redis keeps exactly', () => {
    fc.assert(
      fc.property(anyString, (principal) => {
        const score = Number(principalScore(principal));
        expect(Number.isSafeInteger(score)).toBe(true);
        expect(score).toBeLessThan(0);
      }),
    );
  });
});

/** The text that Redis Cluster hashes: between the first brace and the next closing one. */
function hashTag(key: string): string {
  const start = key.indexOf('{');
  return key.slice(start + 1, key.indexOf('}', start));
}

function utf8(keys: readonly string[]): string[] {
  return keys.map((key) => Buffer.from(key).toString('hex'));
}
