import type { AtomicStateStore } from '../../src/stores/store.ts';
import { claimOf, commitOf } from '../../src/testing/fixtures.ts';

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

/** Every version from 1 to `last`, which racers must have made together. */
export function versionsTo(last: number): number[] {
  return Array.from({ length: last }, (_, index) => index + 1);
}

export function inOrder(versions: readonly number[][]): number[] {
  return versions.flat().sort((a, b) => a - b);
}
