import type { AtomicStateStore, ReleaseOptions, RunKey } from '../stores/store.ts';
import type { Clock } from './clock.ts';

/** The pauses between tries, in milliseconds. */
const RETRY_MS = [50, 100, 200, 400, 800, 1600] as const;

export interface PersistOptions {
  readonly clock: Clock;
  /** How long the store is asked again, in milliseconds. */
  readonly forMs: number;
  readonly onError: (error: unknown) => void;
}

/** Has something saved that must not be lost: a store that fails is asked again for a while. Rejects with its last failure. */
export async function persist<T>(
  call: () => Promise<T>,
  { clock, forMs, onError }: PersistOptions,
): Promise<T> {
  const deadline = clock.now() + forMs;
  for (let attempt = 0; ; attempt++) {
    try {
      return await call();
    } catch (error) {
      onError(error);
      const pause = RETRY_MS[attempt];
      // Once more whatever the clock says: a process that was frozen may have missed an answer that is there.
      if (pause === undefined || (attempt > 0 && clock.now() + pause > deadline)) throw error;
      await new Promise<void>((resolve) => clock.after(pause, resolve));
    }
  }
}

/** A claim, and how its store is reached. */
export interface ClaimParts {
  readonly store: AtomicStateStore;
  readonly key: RunKey;
  readonly token: string;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/**
 * Lets a claim go. Where the store fails it is tried again in the background for a while: a claim that nobody
 * lets go would be taken for a step with an unknown outcome.
 */
export async function releaseClaim(parts: ClaimParts, options: ReleaseOptions, attempt = 0): Promise<void> {
  const { store, key, token, clock, onError } = parts;
  try {
    await store.release(key, token, options);
  } catch (error) {
    onError(error);
    const pause = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] ?? 0;
    if (attempt < 20) clock.after(pause, () => void releaseClaim(parts, options, attempt + 1));
  }
}
