import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { KeyedQueue } from '../../src/stores/keyed-queue.ts';

describe('the queue of operations', () => {
  it('starts an operation once the one before it on its key has resolved or rejected', async () => {
    const queue = new KeyedQueue();
    const events: string[] = [];
    const operation = (name: string, fails: boolean) => async () => {
      events.push(`${name} starts`);
      await turn();
      events.push(`${name} ends`);
      if (fails) throw new Error(name);
      return name;
    };
    const results = await Promise.allSettled([
      queue.run('key', operation('first', true)),
      queue.run('key', operation('second', false)),
      queue.run('key', operation('third', false)),
    ]);
    expect(events).toEqual(
      ['first', 'second', 'third'].flatMap((name) => [`${name} starts`, `${name} ends`]),
    );
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled']);
  });

  it('does not let one key wait for another', async () => {
    const queue = new KeyedQueue();
    let finish = () => {};
    const hanging = queue.run(
      'hangs',
      () =>
        new Promise<void>((resolve) => {
          finish = resolve;
        }),
    );
    expect(await queue.run('other', async () => 'served')).toBe('served');
    finish();
    await hanging;
  });

  it('forgets a key without operations', async () => {
    const queue = new KeyedQueue();
    await Promise.allSettled([
      queue.run('a', async () => 1),
      queue.run('a', async () => Promise.reject(new Error('no'))),
      queue.run('b', async () => 2),
    ]);
    await turn();
    expect(queue.size).toBe(0);
  });

  it('refuses an operation where a thousand of its key wait', async () => {
    const queue = new KeyedQueue();
    let finish = () => {};
    const first = queue.run('key', () => new Promise<void>((resolve) => (finish = resolve)));
    const others = Array.from({ length: 999 }, () => queue.run('key', async () => {}));
    await expect(queue.run('key', async () => {})).rejects.toThrow('too many operations');
    await new Promise((resolve) => setImmediate(resolve));
    finish();
    await Promise.all([first, ...others]);
    expect(queue.size).toBe(0);
  });
});
