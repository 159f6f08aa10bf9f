import type { Clock } from './clock.ts';
import { RETRY_MS } from './release-claim.ts';

export interface PersistOptions {
  readonly clock: Clock;
  /** How long the store is asked again, in milliseconds. */
  readonly forMs: number;
  readonly onError: (error: unknown) => void;
}

/**
 * Has something saved that must not be lost: a store that fails is asked again for a while. Rejects
 * with its last failure.
 */
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
      // Once more whatever the clock says: a process that was frozen may have missed an answer that
      // is there.
      if (pause === undefined || (attempt > 0 && clock.now() + pause > deadline)) throw error;
      await new Promise<void>((resolve) => clock.after(pause, resolve));
    }
  }
}
