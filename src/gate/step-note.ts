import type { Admission } from '../session/run-context.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Incoming } from '../wire/incoming.ts';
import { Note } from '../wire/note.ts';

/** Messages that go on as steps, whose idempotency key a gate has set. */
export const stepNote = new Note<Incoming, true>();

/** Whether a call that holds a claim, of whichever gate, was cancelled since, or its client is gone. */
export function isCancelledStep(
  incoming: Incoming,
  { isGone }: Pick<Exchange, 'isGone'>,
  { session }: Admission,
): boolean {
  if (stepNote.of(incoming) === undefined || incoming.id === undefined) return false;
  return isGone || session.inFlight(incoming.id)?.cancelled === true;
}
