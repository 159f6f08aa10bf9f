import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RunTable } from '../../src/stores/memory-store.ts';
import { ManualTime } from '../helpers/manual-clock.ts';

interface Run {
  readonly expiresAt: number;
  readonly pinned?: boolean;
  readonly owned?: boolean;
}

const HOUR = 3_600_000;

function makeTable(maxRuns: number) {
  const time = new ManualTime();
  const table = new RunTable<Run>({
    maxRuns,
    now: time.now,
    isNeeded: ({ pinned }) => pinned === true,
    rankOf: ({ owned }) => (owned ? 1 : 0),
  });
  const lasting = (ms = HOUR, pinned = false): Run => ({ expiresAt: time.now() + ms, pinned });
  return { time, table, lasting };
}

describe('the table of runs', () => {
  it('evicts the run whose last use is longest ago', () => {
    const { table, lasting } = makeTable(3);
    for (const key of ['a', 'b', 'c']) table.set(key, lasting());
    table.get('a');
    table.set('d', lasting());
    expect(['a', 'b', 'c', 'd'].filter((key) => table.get(key))).toEqual(['a', 'c', 'd']);
  });

  it('does not evict anything for a key that it has', () => {
    const { table, lasting } = makeTable(2);
    table.set('a', lasting());
    table.set('b', lasting());
    const replaced = lasting();
    table.set('a', replaced);
    expect(table.get('a')).toBe(replaced);
    expect(table.get('b')).toBeDefined();
  });

  it('has no run from the very millisecond at which it expires', () => {
    const { table, time, lasting } = makeTable(3);
    table.set('a', lasting(10));
    time.advance(9);
    expect(table.get('a')).toBeDefined();
    time.advance(1);
    expect(table.get('a')).toBeUndefined();
    expect(table.size).toBe(0);
  });

  it('makes room by an expired run rather than by a live one that was used before', () => {
    const { table, time, lasting } = makeTable(3);
    for (const [key, ms] of [
      ['a', HOUR],
      ['b', 10],
      ['c', HOUR],
    ] as const)
      table.set(key, lasting(ms));
    time.advance(10);
    table.set('d', lasting());
    expect(['a', 'b', 'c', 'd'].filter((key) => table.get(key))).toEqual(['a', 'c', 'd']);
  });

  it('spares a pinned run and evicts the next one', () => {
    const { table, lasting } = makeTable(3);
    table.set('pinned', lasting(HOUR, true));
    for (const key of ['a', 'b', 'c', 'd', 'e']) table.set(key, lasting());
    expect(['pinned', 'a', 'b', 'c', 'd', 'e'].filter((key) => table.get(key))).toEqual([
      'pinned',
      'd',
      'e',
    ]);
  });

  it('grows where all runs are pinned, and shrinks once they are not', () => {
    const { table, time } = makeTable(4);
    const runs = Array.from({ length: 12 }, () => ({ expiresAt: time.now() + HOUR, pinned: true }));
    for (const [index, run] of runs.entries()) table.set(`pinned-${index}`, run);
    expect(table.size).toBe(12);
    for (const run of runs) run.pinned = false;
    table.set('a', { expiresAt: time.now() + HOUR });
    table.set('b', { expiresAt: time.now() + HOUR });
    expect(table.size).toBe(4);
  });

  it('evicts owned runs too where all others are pinned', () => {
    const { table, lasting } = makeTable(20);
    for (let index = 0; index < 15; index++) table.set(`pinned ${index}`, lasting(HOUR, true));
    for (let index = 0; index < 100; index++)
      table.set(`owned ${index}`, { ...lasting(), owned: true });
    expect(table.size).toBe(20);
    expect(table.get('pinned 0')).toBeDefined();
  });

  it('frees the memory of expired runs as others come', () => {
    const { table, time, lasting } = makeTable(10_000);
    table.set('long', lasting(HOUR));
    for (let index = 0; index < 1_000; index += 1) table.set(`short-${index}`, lasting(10));
    time.advance(10);
    for (let index = 0; index < 300; index += 1) table.set(`next-${index}`, lasting(HOUR));
    expect(table.size).toBe(301);
    expect(table.get('long')).toBeDefined();
  });

  it('goes through all live runs, which does not count as use', () => {
    const { table, time, lasting } = makeTable(3);
    table.set('a', lasting());
    table.set('b', lasting(10));
    table.set('c', lasting());
    time.advance(10);
    expect([...table.entries()].map(([key]) => key)).toEqual(['a', 'c']);
    table.delete('b');
    table.set('d', lasting());
    table.set('e', lasting());
    expect([...table.entries()].map(([key]) => key)).toEqual(['c', 'd', 'e']);
  });

  it('takes any string for a key', () => {
    const { table, lasting } = makeTable(10);
    for (const key of ['__proto__', 'constructor', '']) {
      expect(table.get(key)).toBeUndefined();
      const run = lasting();
      table.set(key, run);
      expect(table.get(key)).toBe(run);
      table.delete(key);
      expect(table.get(key)).toBeUndefined();
    }
  });

  it('has exactly the runs of a plain list of the most recently used ones', () => {
    const keys = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f');
    const operations = fc.array(fc.tuple(fc.constantFrom('get', 'set', 'delete'), keys), {
      maxLength: 100,
    });
    fc.assert(
      fc.property(operations, fc.integer({ min: 1, max: 4 }), (steps, maxRuns) => {
        const { table, lasting } = makeTable(maxRuns);
        let list: string[] = [];
        for (const [operation, key] of steps) {
          const known = list.includes(key);
          if (operation !== 'set' || known) list = list.filter((each) => each !== key);
          if (operation === 'get') expect(table.get(key) !== undefined).toBe(known);
          if (operation === 'set') table.set(key, lasting());
          if (operation === 'delete') table.delete(key);
          if (operation === 'set' || (operation === 'get' && known))
            list = [...list, key].slice(-maxRuns);
          expect(table.size).toBe(list.length);
        }
        for (const key of ['a', 'b', 'c', 'd', 'e', 'f']) {
          expect(table.get(key) !== undefined).toBe(list.includes(key));
        }
      }),
    );
  });
});
