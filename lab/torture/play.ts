import type { Arena } from './arena.ts';

/**
 * Has the lanes play while `disturb` is at work, and then come to their end. The first failure ends
 * it all.
 */
export async function playAll<T>(
  arena: Arena,
  lanes: readonly { play(): Promise<void> }[],
  disturb: () => Promise<T>,
): Promise<T> {
  const untilOver = async <R>(task: () => Promise<R>): Promise<R> => {
    try {
      return await task();
    } finally {
      arena.over = true;
    }
  };
  const disturbing = untilOver(disturb);
  const all = [disturbing, ...lanes.map((lane) => untilOver(() => lane.play()))];
  await Promise.allSettled(all);
  await Promise.all(all);
  return disturbing;
}
