import type { Admission } from '../session/run-context.ts';
import type { Step } from '../session/step.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import { Note } from '../wire/note.ts';
import type { MaybePromise } from '../wire/task-line.ts';

/** The steps that a message goes on as, one a gate; the first gate has set its idempotency key. */
export const stepsNote = new Note<Incoming, readonly Step[]>();

/**
 * Whether a call that holds a claim, of whichever gate, was cancelled since, or its client is gone.
 */
export function isCancelledStep(
  incoming: Incoming,
  { isGone }: Pick<Exchange, 'isGone'>,
  { session }: Admission,
): boolean {
  if (incoming.id === undefined) return false;
  return isGone || session.inFlight(incoming.id)?.cancelled === true;
}

/** Whether a call still has the claims that it is to be forwarded with, of all gates so far. */
export function keepsClaims(steps: readonly Step[]): MaybePromise<boolean> {
  const kept = steps.map((step) => step.confirm());
  return (
    kept.every((each) => each === true) || Promise.all(kept).then((all) => !all.includes(false))
  );
}
