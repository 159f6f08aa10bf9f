import type { CommitRequest, FsmSnapshot } from '../stores/store.ts';
import type { CallBinding } from '../workflow/call.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** What a commit saves: the next position, and the trail entry that says how it was reached. */
export type Move = Pick<CommitRequest, 'snapshot' | 'trail'>;

/** Where the success of a call leads. An event that the state does not handle leads nowhere, and is no error. */
export function moveOf(
  workflow: Workflow,
  binding: CallBinding,
  { state: from, context }: FsmSnapshot,
  by: { readonly tool: string; readonly actor: string | undefined },
): Move {
  const event = binding.eventIn(from) ?? null;
  const to = event === null ? from : workflow.next(from, event);
  return {
    snapshot: context === undefined ? { state: to } : { state: to, context },
    trail: { from, to, event, tool: by.tool, ...(by.actor === undefined ? {} : { actor: by.actor }) },
  };
}
