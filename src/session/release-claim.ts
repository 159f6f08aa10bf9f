import type { AtomicStateStore, ReleaseOptions, RunKey } from '../stores/store.ts';
import type { Clock } from './clock.ts';

/** How long to wait before a store that failed is asked again, each time. */
export const RETRY_MS = [50, 100, 200, 400, 800, 1600] as const;

/** The claim that is let go, and where. */
export interface Releasing {
  readonly store: Pick<AtomicStateStore, 'release'>;
  readonly key: RunKey;
  readonly token: string;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/**
 * Lets a claim go. Where the store fails it is tried again in the background for a while: a claim
 * that nobody lets go would be taken for a step with an unknown outcome.
 */
export async function releaseClaim(
  parts: Releasing,
  options: ReleaseOptions,
  attempt = 0,
): Promise<void> {
  const { store, key, token, clock, onError } = parts;
  try {
    await store.release(key, token, options);
  } catch (error) {
    onError(error);
    const pause = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] ?? 0;
    if (attempt < 20) clock.after(pause, () => void releaseClaim(parts, options, attempt + 1));
  }
}
