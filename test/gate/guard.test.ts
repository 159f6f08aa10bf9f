import { beforeEach, describe, expect, it } from 'vitest';
import { askGuards, type GuardOptions } from '../../src/gate/guard.ts';
import type { Guard, GuardedCall } from '../../src/index.ts';
import { ManualClock } from '../helpers/manual-clock.ts';

const call: GuardedCall = {
  run: 'r',
  tool: 'pay',
  args: { sum: 1 },
  principal: 'alice',
  state: 'payment',
  context: { slot: 42 },
};

let clock: ManualClock;
let errors: unknown[];
let options: GuardOptions;

beforeEach(() => {
  clock = new ManualClock();
  errors = [];
  options = { clock, deadlineMs: 2_000, onError: (error) => errors.push(error) };
});

describe('guards', () => {
  it('let a call through where all of them say true', async () => {
    const asked: GuardedCall[] = [];
    const pass: Guard = async (about) => asked.push(about) > 0;
    expect(await askGuards([pass, () => true, pass], call, options)).toBeUndefined();
    expect(asked).toEqual([call, call]);
    expect(await askGuards([], call, options)).toBeUndefined();
    expect(clock.pending).toBe(0);
  });

  it('refuse it with the words of the first that gives some, and ask no further', async () => {
    const asked: string[] = [];
    const guards: Guard[] = [
      () => true,
      async () => 'The slot is taken',
      () => {
        asked.push('later');
        return true;
      },
    ];
    expect(await askGuards(guards, call, options)).toEqual({ words: 'The slot is taken' });
    expect(asked).toEqual([]);
    expect(errors).toEqual([]);
  });

  it.each([
    ['says false', () => false, undefined],
    ['says nothing in words', () => '', undefined],
    ['answers nothing', () => undefined, 'neither a boolean nor words'],
    ['answers something true', () => 1, 'neither a boolean nor words'],
    [
      'throws',
      () => {
        throw new Error('database is down');
      },
      'database is down',
    ],
    ['rejects', () => Promise.reject(new Error('database is gone')), 'database is gone'],
  ])('refuse it without words where one %s', async (_, guard, told) => {
    expect(await askGuards([guard as Guard], call, options)).toEqual({ words: undefined });
    expect(errors.map(String).join()).toEqual(
      told === undefined ? '' : expect.stringContaining(told),
    );
    expect(clock.pending).toBe(0);
  });

  it('refuse it after their deadline, which they share, whatever comes later', async () => {
    let reject: (error: Error) => void = () => {};
    const slow: Guard = () =>
      new Promise((_, no) => {
        reject = no;
      });
    const asked = askGuards([() => true, slow], call, options);
    await new Promise(setImmediate);
    clock.advance(1_999);
    expect(await Promise.race([asked, 'still waiting'])).toBe('still waiting');
    clock.advance(1);
    expect(await asked).toEqual({ words: undefined });
    expect(String(errors)).toContain('a guard of "pay" took longer than 2000 ms');
    reject(new Error('too late'));
    await new Promise(setImmediate);
    expect(errors).toHaveLength(1);
  });
});
