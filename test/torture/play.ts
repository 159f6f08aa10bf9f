import type { Arena } from './arena.ts';

/** Has the lanes play while `disturb` is at work, and then come to their end. A lane that fails ends it all. */
export async function playAll<T>(
  arena: Arena,
  lanes: readonly { play(): Promise<void> }[],
  disturb: () => Promise<T>,
): Promise<T> {
  const playing = Promise.all(lanes.map((lane) => lane.play()));
  const failure = playing.then(() => new Promise<never>(() => {}));
  try {
    return await Promise.race([disturb(), failure]);
  } finally {
    arena.over = true;
    await playing;
  }
}
