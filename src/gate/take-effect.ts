import type { ErrorListener } from '../workflow/listeners.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { Move } from './move.ts';

/** Tells the app of a move that is saved: what its machine asks to be done, and the change of state. */
export function takeEffect(
  workflow: Workflow,
  { snapshot, trail, actions }: Move,
  run: string,
  onError?: ErrorListener,
): void {
  const { from, to, event } = trail;
  workflow.act(actions, { run, event, from, to, context: workflow.dataOf(snapshot) }, onError);
  const changed = from !== to;
  workflow.emit({ changed, previousState: from, currentState: to, event: event ?? '', run }, onError);
}
