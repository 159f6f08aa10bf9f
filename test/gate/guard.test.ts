import { describe, expect, it } from 'vitest';
import { askGuards } from '../../src/gate/consult.ts';
import type { Guard, GuardedCall } from '../../src/index.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { settle } from '../helpers/scene.ts';

const HOUR = 3_600_000;

const call: GuardedCall = {
  run: 'r',
  tool: 'pay',
  args: { sum: 1 },
  principal: 'alice',
  state: 'payment',
  context: { slot: 42 },
  matches: (state) => state === 'payment',
};

/** Asks guards about the call, with two seconds for all of them. */
function doorkeeper() {
  const clock = new ManualClock();
  const errors: unknown[] = [];
  const options = {
    clock,
    deadlineMs: 2_000,
    onError: (error: unknown) => void errors.push(error),
  };
  return { clock, errors, ask: (guards: Guard[]) => askGuards(guards, call, options) };
}

describe('guards', () => {
  it('let a call through where all of them say true', async () => {
    const { clock, errors, ask } = doorkeeper();
    const asked: GuardedCall[] = [];
    const pass: Guard = async (about) => asked.push(about) > 0;
    expect(await ask([pass, () => true, pass])).toBeUndefined();
    expect(asked).toEqual([call, call]);
    expect(await ask([])).toBeUndefined();
    expect(clock.advance(HOUR), 'an hour more brings nothing').toBe(0);
    expect(errors).toEqual([]);
  });

  it('refuse it with the words of the first that gives some, and ask no further', async () => {
    const { errors, ask } = doorkeeper();
    const asked: string[] = [];
    const guards: Guard[] = [
      () => true,
      async () => 'The slot is taken',
      () => {
        asked.push('later');
        return true;
      },
    ];
    expect(await ask(guards)).toEqual({ words: 'The slot is taken' });
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
    const { clock, errors, ask } = doorkeeper();
    expect(await ask([guard as Guard])).toEqual({ words: undefined });
    expect(clock.advance(HOUR), 'an hour more brings nothing').toBe(0);
    expect(errors.map(String).join()).toEqual(
      told === undefined ? '' : expect.stringContaining(told),
    );
  });

  it('refuse it after their common deadline, whatever they answer later', async () => {
    const { clock, errors, ask } = doorkeeper();
    let reject: (error: Error) => void = () => {};
    const slow: Guard = () =>
      new Promise((_, no) => {
        reject = no;
      });
    const asked = ask([() => true, slow]);
    await settle(1);
    clock.advance(1_999);
    expect(await Promise.race([asked, 'still waiting'])).toBe('still waiting');
    clock.advance(1);
    expect(await asked).toEqual({ words: undefined });
    expect(String(errors)).toContain('a guard of "pay" took longer than 2000 ms');
    reject(new Error('too late'));
    await settle(1);
    expect(errors).toHaveLength(1);
  });
});
