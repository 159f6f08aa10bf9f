import type { FsmSnapshot } from '../stores/store.ts';
import { openContext, sealContext } from './envelope.ts';
import type { Model, Next, Position } from './position.ts';

/** The trail's event of a state that was left by itself. */
export const AFTER = 'after';

/**
 * The position with the time at which its state was entered, where that has a deadline: the
 * snapshot's own time, as long as nothing was saved since then that stays in the state.
 */
export function whenEntered(model: Model, position: Position, updatedAt: number): Position {
  if (model.deadline(position.state) === undefined) return position;
  const envelope = openContext(position.context);
  return { state: position.state, ...sealContext({ entered: updatedAt, ...envelope }) };
}

/**
 * What is carried along for the sake of a state is left behind with it: when it was entered, and
 * the calls that were counted in it.
 */
export function arrived(next: Next): Next {
  const { position, changed } = next;
  if (!changed || position.context === undefined) return next;
  const { entered, loop, ...kept } = openContext(position.context);
  if (entered === undefined && loop === undefined) return next;
  return { ...next, position: { state: position.state, ...sealContext(kept) } };
}

/**
 * Where a run is by itself, if its state's time is over. `now` is on the clock that stamped the
 * snapshot.
 */
export function overdue(model: Model, snapshot: FsmSnapshot, now: number): Next | undefined {
  const deadline = model.deadline(snapshot.state);
  if (deadline === undefined) return undefined;
  const since = openContext(snapshot.context).entered ?? snapshot.updatedAt;
  if (now < since + deadline.ms) return undefined;
  const { state: _, updatedAt, version, ...carried } = snapshot;
  const position = { state: deadline.target, ...carried };
  // One that leads back to its own state begins its time anew.
  const left = arrived({ position, changed: true, handled: true, actions: [] });
  return { ...left, changed: deadline.target !== snapshot.state };
}
