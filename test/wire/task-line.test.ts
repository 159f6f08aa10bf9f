import { describe, expect, it } from 'vitest';
import { after as andThen, inOrder, TaskLine } from '../../src/wire/task-line.ts';
import { latch } from '../helpers/latch.ts';

const failing = {
  throws: () => {
    throw new Error('x');
  },
  rejects: () => Promise.reject(new Error('x')),
};

describe('a line of tasks', () => {
  const watched = (onError: (error: unknown) => void | Promise<void> = () => {}) => {
    const done: string[] = [];
    const line = new TaskLine({ onIdle: () => void done.push('idle'), onFailed: onError });
    return { done, line };
  };

  it('runs them at once while none must be awaited', () => {
    const { done, line } = watched();
    line.add(() => void done.push('a'));
    line.add(() => void done.push('b'));
    expect([done, line.busy]).toEqual([['a', 'b'], false]);
  });

  it('runs them one after another, in order, and tells when it is idle', async () => {
    const { done, line } = watched();
    const first = latch();
    line.add(() => first.opened.then(() => void done.push('a')));
    line.add(() => void done.push('b'));
    line.add(async () => void done.push('c'));
    expect([done, line.busy]).toEqual([[], true]);
    first.open();
    await expect.poll(() => done).toEqual(['a', 'b', 'c', 'idle']);
    expect(line.busy).toBe(false);
  });

  it('runs a task that another one adds after that one', () => {
    const { done, line } = watched();
    line.add(() => {
      line.add(() => void done.push('inner'));
      done.push('outer');
    });
    expect(done).toEqual(['outer', 'inner']);
  });

  it.each(['throws', 'rejects'] as const)('handles one that %s before it goes on', async (how) => {
    const dealt = latch();
    const { done, line } = watched(async () => {
      done.push('failure');
      await dealt.opened;
      done.push('dealt with');
    });
    line.add(failing[how]);
    line.add(() => void done.push('next'));
    await expect.poll(() => done).toEqual(['failure']);
    dealt.open();
    await expect.poll(() => done).toEqual(['failure', 'dealt with', 'next', 'idle']);
  });

  it('may be very long', async () => {
    const { done, line } = watched();
    const { opened, open } = latch();
    line.add(() => opened);
    let ran = 0;
    for (let n = 0; n < 100_000; n++) line.add(() => void ran++);
    open();
    await expect.poll(() => done).toEqual(['idle']);
    expect(ran).toBe(100_000);
  });
});

describe('a row of items in order', () => {
  it('stays in the turn while none must be awaited', () => {
    const seen: number[] = [];
    expect(inOrder([1, 2, 3], (n) => void seen.push(n))).toBeUndefined();
    expect(seen).toEqual([1, 2, 3]);
    expect(andThen(1, (n) => n + 1)).toBe(2);
  });

  it('waits for each one that must be awaited', async () => {
    const seen: number[] = [];
    const each = (n: number): void | Promise<void> => {
      if (n % 2 === 1) seen.push(n);
      else return new Promise(setImmediate).then(() => void seen.push(n));
    };
    await inOrder([1, 2, 3, 4, 5], each);
    expect(seen).toEqual([1, 2, 3, 4, 5]);
    expect(await andThen(Promise.resolve(1), (n) => n + 1)).toBe(2);
  });

  it('stops at the first that fails', async () => {
    const seen: number[] = [];
    const run = inOrder([1, 2, 3], async (n) => {
      seen.push(n);
      if (n === 2) throw new Error('x');
    });
    await expect(run).rejects.toThrow('x');
    expect(seen).toEqual([1, 2]);
  });

  it('may be very many', async () => {
    let count = 0;
    await inOrder(Array.from({ length: 200_000 }), async () => void count++);
    expect(count).toBe(200_000);
  });
});
