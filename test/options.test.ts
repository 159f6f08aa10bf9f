import { afterEach, describe, expect, it } from 'vitest';
import * as z from 'zod/mini';
import { InterlockError } from '../src/basics/errors.ts';
import {
  functionOption,
  lazily,
  lazyOptions,
  parseOptions,
  showValue,
  tableOption,
} from '../src/basics/options.ts';

const schema = lazyOptions(() => ({
  timeoutMs: z._default(z.number().check(z.minimum(1)), 2000),
  mode: z.optional(z.enum(['hold', 'retry'])),
  now: z.optional(functionOption<() => number>()),
  table: z.optional(tableOption()),
  nested: z.optional(z.strictObject({ inner: z.string() })),
  list: z.optional(z.array(z.strictObject({ match: z.string() }))),
  either: z.optional(z.union([z.string(), z.strictObject({ header: z.string() })])),
}));

const parse = (value: unknown) => parseOptions('mount()', schema, value);

function messageOf(value: unknown): string {
  try {
    parse(value);
  } catch (error) {
    if (error instanceof InterlockError) return error.message;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('parseOptions', () => {
  it('takes options that are left out, empty or explicitly undefined for the defaults', () => {
    expect(parse(undefined)).toEqual({ timeoutMs: 2000 });
    expect(parse({})).toEqual({ timeoutMs: 2000 });
    const parsed = parse({ timeoutMs: undefined, mode: undefined });
    expect(parsed).toEqual({ timeoutMs: 2000 });
    expect(Object.keys(parsed)).toEqual(['timeoutMs']);
  });

  it('hands functions and tables on as they are', () => {
    const now = () => 1;
    const table = { ['__proto__']: 1 };
    expect(parse({ now, table }).now).toBe(now);
    expect(parse({ now, table }).table).toBe(table);
  });

  it('names an unknown key, and the right one that is nearest to it', () => {
    expect(messageOf({ timeoutMS: 5 })).toMatch(
      /^mount\(\): unknown key "timeoutMS", did you mean "timeoutMs"\?/,
    );
    expect(messageOf({ nested: { iner: 'x' } })).toContain(
      'nested: unknown key "iner", did you mean "inner"?',
    );
    expect(messageOf({ list: [{ match: 'x', mach: 'y' }] })).toContain(
      'list[0]: unknown key "mach", did you mean "match"?',
    );
    expect(messageOf({ either: { headers: 'x', header: 'y' } })).toContain(
      'either: unknown key "headers", did you mean "header"?',
    );
  });

  it.each([
    [{ timeoutMs: '5' }, 'timeoutMs: expected number, got "5"'],
    [{ timeoutMs: 0 }, 'timeoutMs: too small: expected number to be >=1, got 0'],
    [{ timeoutMs: Number.NaN }, 'timeoutMs: expected number, got NaN'],
    [{ mode: 'hodl' }, 'mode: expected one of "hold", "retry", got "hodl"'],
    [{ now: 5 }, 'now: expected a function, got 5'],
    [{ table: [] }, 'table: expected an object, got an empty array'],
    [{ nested: { inner: null } }, 'nested.inner: expected string, got null'],
    [{ list: [{ match: 1 }] }, 'list[0].match: expected string, got 1'],
    [{ either: 1 }, 'either: expected string or object, got 1'],
    [{ either: { header: 1 } }, 'either.header: expected string, got 1'],
    [null, 'expected object, got null'],
    [[], 'expected object, got an empty array'],
    ['x', 'expected object, got "x"'],
  ])('says of %j: %s', (value, message) => {
    expect(messageOf(value)).toContain(`mount(): ${message}`);
  });

  it('names a required option that is left out', () => {
    const anything = lazyOptions(() => ({
      store: z.unknown().check(z.refine((store) => store !== null)),
    }));
    expect(() => parseOptions('mount()', anything, {})).toThrow(
      'mount(): store: expected a value, got undefined',
    );
  });

  it('names every fault at once', () => {
    expect(messageOf({ timeoutMs: 'x', mode: 1 })).toMatch(/timeoutMs: .*; mode: /);
  });

  it('names many unknown keys in one go', () => {
    expect(messageOf({ a: 1, b: 2, c: 3, d: 4 })).toMatch(
      /^mount\(\): unknown keys "a", "b", "c", "d", known are "timeoutMs", "mode", "now", "table", "nested", "list", "either" \(/,
    );
  });

  it('says what it was given in the place of options', () => {
    class Redis {}
    class Pool {
      query = () => {};
    }
    const keys = '"timeoutMs", "mode", "now", "table", "nested", "list", "either"';
    expect(messageOf(new Redis())).toContain(
      `mount(): expected an object with ${keys}, got an instance of Redis (`,
    );
    expect(messageOf(new Pool())).toContain('got an instance of Pool (');
  });

  it('takes an object of a class that has options', () => {
    class Settings {
      mode = 'hold';
    }
    expect(parse(new Settings()).mode).toBe('hold');
  });

  it('throws with the code that it is given, and ERR_INTERLOCK_CONFIG without one', () => {
    expect(() => parse({ x: 1 })).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_CONFIG' }),
    );
    expect(() => parseOptions('policy', schema, { x: 1 }, 'ERR_INTERLOCK_POLICY')).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_POLICY' }),
    );
  });

  it('takes __proto__ for an unknown key', () => {
    expect(messageOf(JSON.parse('{"__proto__": {"timeoutMs": 5}}'))).toContain(
      'unknown key "__proto__"',
    );
  });

  describe('with a polluted prototype', () => {
    afterEach(() => {
      Reflect.deleteProperty(Object.prototype, 'timeoutMs');
    });

    it('reads own properties only', () => {
      Reflect.set(Object.prototype, 'timeoutMs', 7);
      expect(parse({}).timeoutMs).toBe(2000);
      expect(parse(Object.create({ mode: 'hold' })).mode).toBeUndefined();
    });
  });
});

describe('showValue', () => {
  it.each([
    ['a\nb', '"a\\nb"'],
    ['x'.repeat(100), `"${'x'.repeat(60)}…"`],
    [undefined, 'undefined'],
    [10n, '10'],
    [Symbol('s'), 'Symbol(s)'],
    [() => 1, 'a function'],
    [{ password: 'secret' }, 'an object'],
    [['secret'], 'an array'],
  ])('shows %o on one line, and nothing that is inside it', (value, shown) => {
    expect(showValue(value)).toBe(shown);
  });
});

describe('what is made lazily', () => {
  it('is made once, when it is first asked for, even if it is undefined', () => {
    let made = 0;
    const value = lazily(() => {
      made++;
      return undefined;
    });
    expect(made).toBe(0);
    expect([value(), value(), made]).toEqual([undefined, undefined, 1]);
  });
});
