import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ManualClock } from '../helpers/manual-clock.ts';
import { type Part, Progress } from '../helpers/progress.ts';

const ERASED = '\r\u001b[K';

/** What a program writes, in order, and a clock that only the test moves. */
function shown(parts: readonly Part[], stream: { isTTY?: boolean; columns?: number } = {}) {
  const clock = new ManualClock();
  const written: string[] = [];
  const to = { ...stream, write: (text: string) => written.push(text) };
  const results = { write: (text: string) => written.push(`stdout: ${text}`) };
  const progress = new Progress(parts, { to, results, clock });
  /** What was written since the last time. */
  const since = (): string[] => written.splice(0);
  return { clock, progress, since };
}

const named = (...names: readonly string[]): Part[] => names.map((name) => ({ name }));

beforeEach(() => {
  vi.stubEnv('TERM', 'xterm');
});

afterEach(() => {
  vi.unstubAllEnvs();
});

describe('progress in a log', () => {
  it('is a plain line for each finished part, with the time that is left', () => {
    const { clock, progress, since } = shown(named('one', 'two', 'three'));
    expect(since()).toEqual([]);
    clock.advance(20_000);
    progress.done();
    clock.advance(10_000);
    progress.done();
    clock.advance(10_000);
    progress.done();
    progress.end();
    expect(since()).toEqual([
      '1 of 3 done  one  20 s, about 40 s left\n',
      '2 of 3 done  two  30 s, about 20 s left\n',
      '3 of 3 done  three  40 s\n',
    ]);
    expect(clock.pending).toBe(0);
  });

  it('names a part that goes on, each 30 s', () => {
    const { clock, progress, since } = shown(named('one', 'two'));
    clock.advance(59_000);
    expect(since()).toEqual(['1 of 2  one  30 s\n']);
    progress.done();
    clock.advance(29_000);
    expect(since()).toEqual(['1 of 2 done  one  59 s, about 1 min left\n']);
    clock.advance(1_000);
    expect(since()).toEqual(['2 of 2  two  1 min 29 s, about 30 s left\n']);
  });

  it('is the same on a terminal that cannot erase a line', () => {
    vi.stubEnv('TERM', 'dumb');
    const { progress, since } = shown(named('one'), { isTTY: true });
    progress.done();
    progress.end();
    expect(since()).toEqual(['1 of 1 done  one  1 s\n']);
  });
});

describe('progress on a terminal', () => {
  it('is one line, which each second is written again, and is gone at the end', () => {
    const { clock, progress, since } = shown(named('one', 'two'), { isTTY: true });
    clock.advance(2_000);
    progress.done();
    clock.advance(1_000);
    progress.done();
    progress.end();
    expect(since()).toEqual([
      `${ERASED}1 of 2  one  1 s\r`,
      `${ERASED}1 of 2  one  1 s\r`,
      `${ERASED}1 of 2  one  2 s\r`,
      `${ERASED}2 of 2  two  2 s, about 10 s left\r`,
      `${ERASED}2 of 2  two  3 s, about 10 s left\r`,
      ERASED,
    ]);
    clock.advance(60_000);
    expect(since()).toEqual([]);
  });

  it('stands below the results', () => {
    const { progress, since } = shown(named('one'), { isTTY: true });
    since();
    progress.print('a: 1');
    expect(since()).toEqual([ERASED, 'stdout: a: 1\n', `${ERASED}1 of 1  one  1 s\r`]);
  });

  it('never wraps', () => {
    const { since } = shown(named('a long name'), { isTTY: true, columns: 12 });
    expect(since()).toEqual([`${ERASED}1 of 1  a l\r`]);
    // Some terminals do not say how wide they are.
    const { since: ofWide } = shown(named('a'.repeat(100)), { isTTY: true, columns: 0 });
    expect(ofWide()).toEqual([`${ERASED}1 of 1  ${'a'.repeat(71)}\r`]);
  });
});

describe('the time that is left', () => {
  it('is what the plan says, and no less than what follows where a part takes longer', () => {
    const parts = [
      { name: 'one', ms: 60_000 },
      { name: 'two', ms: 240_000 },
    ];
    const { clock, progress, since } = shown(parts);
    clock.advance(30_000);
    clock.advance(60_000);
    progress.done();
    expect(since()).toEqual([
      '1 of 2  one  30 s, about 5 min left\n',
      '1 of 2  one  1 min, about 4 min left\n',
      '1 of 2  one  1 min 30 s, about 4 min left\n',
      '1 of 2 done  one  1 min 30 s, about 4 min left\n',
    ]);
  });

  it('goes by finished parts of the same kind, once there is one of each', () => {
    const parts = ['a', 'b'].flatMap((store) =>
      ['kills', 'races'].map((kind) => ({ name: `${store}, ${kind}`, kind })),
    );
    const { clock, progress, since } = shown(parts);
    clock.advance(10_000);
    progress.done();
    clock.advance(20_000);
    progress.done();
    clock.advance(10_000);
    progress.done();
    expect(since()).toEqual([
      '1 of 4 done  a, kills  10 s\n',
      '2 of 4 done  a, races  30 s, about 30 s left\n',
      '3 of 4 done  b, kills  40 s, about 20 s left\n',
    ]);
  });

  it('leaves out parts that had nothing to do', () => {
    const parts = ['kills', 'races', 'kills', 'races'].map((kind) => ({ name: kind, kind }));
    const { clock, progress, since } = shown(parts);
    progress.done({ hadNothingToDo: true });
    clock.advance(20_000);
    progress.done();
    expect(since()).toEqual([
      '1 of 4 done  kills  1 s\n',
      '2 of 4 done  races  20 s, about 20 s left\n',
    ]);
  });

  it('is not said of a part that takes more than twice as long as those before', () => {
    const { clock, progress, since } = shown(named('one', 'two', 'three'));
    clock.advance(20_000);
    progress.done();
    clock.advance(60_000);
    expect(since()).toEqual([
      '1 of 3 done  one  20 s, about 40 s left\n',
      '2 of 3  two  50 s, about 20 s left\n',
      '2 of 3  two  1 min 20 s\n',
    ]);
  });
});
