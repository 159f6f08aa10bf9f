import type { Clock } from '../clock.ts';
import type { ResponseTap } from '../wire/response-tap.ts';

/**
 * Puts a comment on a stream of the middleware's own now and then, until the returned function is
 * called.
 */
export function keepAlive(tap: ResponseTap, clock: Clock, everyMs: number): () => void {
  let stop: () => void;
  const beat = (): void => {
    tap.keepAlive();
    stop = clock.after(everyMs, beat);
  };
  stop = clock.after(everyMs, beat);
  return () => stop();
}
