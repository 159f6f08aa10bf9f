import { describe, expect, it } from 'vitest';
import { BackendTime } from '../../../src/stores/document/time.ts';

/** A backend whose clock is a million ms ahead of this process, and a process that asks it. */
function twoClocks() {
  let ms = 0;
  let ahead = 1_000_000;
  const time = new BackendTime({ now: () => ms, monotonic: () => ms });
  return {
    pass: (passed: number) => {
      ms += passed;
    },
    jump: (by: number) => {
      ahead += by;
    },
    /** By how much the estimate is wrong. */
    error: () => (time.estimate() ?? Number.NaN) - (ms + ahead),
    /** An answer that takes so long before and after the backend looks at its clock. */
    ask: (before: number, after: number) => {
      const askedAt = time.asked();
      ms += before;
      const now = ms + ahead;
      ms += after;
      time.given(now, askedAt);
    },
  };
}

describe('the time of a backend, as a process estimates it', () => {
  it('is that of the quickest of the last answers, not of a slow one that came later', () => {
    const { pass, ask, error } = twoClocks();
    ask(1, 1);
    pass(10);
    ask(400, 0);
    expect(error()).toBe(0);
  });

  it('is that of a quicker answer as soon as there is one', () => {
    const { ask, error } = twoClocks();
    ask(400, 0);
    ask(1, 1);
    expect(error()).toBe(0);
  });

  it('is that of a slow answer where the quick one has become too old', () => {
    const { pass, ask, error } = twoClocks();
    ask(1, 1);
    pass(60_001);
    ask(0, 40);
    expect(error()).toBe(-20);
  });

  it('follows the clock of the backend, where a slow answer shows that it jumped', () => {
    const { jump, ask, error } = twoClocks();
    ask(1, 1);
    jump(5_000);
    ask(50, 50);
    expect(error()).toBe(0);
    jump(-5_000);
    ask(100, 100);
    expect(error()).toBe(0);
  });
});
