import type { Workflow } from '../workflow/workflow.ts';
import type { Visibility } from './gate-config.ts';

/** Whether a gate's lists are the same in every state, wherever it is mounted in this process. */
const stable = new WeakMap<Workflow, boolean>();

/** A gate is mounted that shows its tools so. */
export function noteMount(workflow: Workflow, visibility: Visibility | undefined): void {
  stable.set(workflow, visibility === 'stable' && stable.get(workflow) !== false);
}

/**
 * Whether nobody can see a move of this workflow in a list. Not known of a gate that is mounted
 * elsewhere.
 */
export function isStableEverywhere(workflow: Workflow): boolean {
  return stable.get(workflow) === true;
}
