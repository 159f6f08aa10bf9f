import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Reported, systemClock } from '../src/basics/clock.ts';

const DAY = 24 * 60 * 60 * 1000;

beforeEach(() => void vi.useFakeTimers());

afterEach(() => void vi.useRealTimers());

it('waits 24 days at most, and does not fire at once for a time too long for timers', () => {
  // For such a time, Node's own timers wait one millisecond; the test's wait none.
  const set = vi.spyOn(globalThis, 'setTimeout');
  systemClock.after(30 * DAY, () => {});
  expect(set.mock.lastCall?.[1]).toBe(2 ** 31 - 1);
});

it('tells each thing once, and of so many things at most', () => {
  const told = new Reported(2);
  const tells = ['a', 'a', 'b', 'c', 'b', 'c'].map((what) => told.isNew(what));
  expect(tells).toEqual([true, false, true, false, false, false]);
});
