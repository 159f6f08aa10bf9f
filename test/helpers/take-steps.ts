import { claimOf, commitOf } from '../../packages/testing/src/fixtures.ts';
import { freezeOf, thawOf } from '../../packages/testing/src/freezes.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';

/**
 * Takes `steps` steps in a run as fast as it can, while other processes do so too. Resolves to the
 * versions that it made.
 */
export async function takeSteps(
  store: AtomicStateStore,
  run: string,
  steps: number,
): Promise<number[]> {
  const versions: number[] = [];
  while (versions.length < steps) {
    const request = claimOf(run);
    if ((await store.claim(request)).status !== 'claimed') continue;
    const result = await store.commit(commitOf(request));
    if (result.status === 'committed') versions.push(result.version);
  }
  return versions;
}

/**
 * Takes steps on all sides as fast as they can, while an operator stops the run `times` times, each
 * time until every side was refused. Resolves to the versions that they made, and to what became of
 * claims that came between a freeze and its thaw, and of commits whose claim was granted.
 */
export async function takeStepsThroughFreezes(
  sides: readonly AtomicStateStore[],
  run: string,
  times: number,
): Promise<{
  readonly versions: number[];
  readonly stopped: Set<string>;
  readonly forwarded: Set<string>;
}> {
  const versions: number[] = [];
  const [stopped, forwarded] = [new Set<string>(), new Set<string>()];
  const refused = sides.map(() => 0);
  let freeze = 0;
  let isFrozen = false;
  let isOver = false;
  const takeAll = async (side: AtomicStateStore, index: number): Promise<void> => {
    while (!isOver) {
      const before = isFrozen ? freeze : 0;
      const request = claimOf(run);
      const { status } = await side.claim(request);
      if (isFrozen && freeze === before) {
        stopped.add(status);
        refused[index] = freeze;
      }
      if (status !== 'claimed') continue;
      const committed = await side.commit(commitOf(request));
      forwarded.add(committed.status);
      if (committed.status === 'committed') versions.push(committed.version);
    }
  };
  const operate = async (): Promise<void> => {
    while (freeze < times) {
      const side = sides[freeze % sides.length];
      await side?.freeze(freezeOf(run));
      freeze += 1;
      isFrozen = true;
      while (refused.some((last) => last < freeze)) await new Promise(setImmediate);
      isFrozen = false;
      await side?.freeze(thawOf(run));
    }
    isOver = true;
  };
  await Promise.all([operate(), ...sides.map(takeAll)]);
  return { versions, stopped, forwarded };
}

/** Every version from 1 to `last`, which racers must have made together. */
export function versionsTo(last: number): number[] {
  return Array.from({ length: last }, (_, index) => index + 1);
}

export function inOrder(versions: readonly number[][]): number[] {
  return versions.flat().sort((a, b) => a - b);
}
