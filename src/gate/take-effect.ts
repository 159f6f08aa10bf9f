import type { Step } from '../session/step.ts';
import type { CommitRequest } from '../stores/store.ts';
import type { ErrorListener } from '../workflow/callbacks.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { GateConfig } from './gate-config.ts';
import type { Move } from './move.ts';

/**
 * Saves a move of a call that is not forwarded, and tells the app. `false` where it could not be
 * saved: the step has said why.
 */
export async function saveUnforwarded(
  { workflow, onError }: Pick<GateConfig, 'workflow' | 'onError'>,
  step: Step,
  move: Move,
  options?: Pick<CommitRequest, 'settles'>,
): Promise<boolean> {
  const { actions: _, ...saved } = move;
  const status = await step.commitUnforwarded(saved, options).catch(() => 'failed');
  if (status !== 'committed') return false;
  takeEffect(workflow, move, step.key.run, onError);
  return true;
}

/**
 * Tells the app of a move that is saved: what its machine asks to be done, and the change of state.
 */
export function takeEffect(
  workflow: Workflow,
  { snapshot, trail, actions }: Move,
  run: string,
  onError?: ErrorListener,
): void {
  const { from, to, event } = trail;
  workflow.act(actions, { run, event, from, to, context: workflow.dataOf(snapshot) }, onError);
  const changed = from !== to;
  workflow.emit(
    { changed, previousState: from, currentState: to, event: event ?? '', run },
    onError,
  );
}
