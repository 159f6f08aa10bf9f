import { InterlockError } from '../errors.ts';
import { showValue } from '../options.ts';
import type { FsmSnapshot, Json, TrailDraft } from '../stores/store.ts';
import type { Workflow } from '../workflow/workflow.ts';
import { type Move, moveTo } from './move.ts';

/**
 * The event that a held call sends, once it is known what it came to; `null` where it sends none.
 *
 * @throws InterlockError `ERR_INTERLOCK_EVENT` where that depends on what nobody kept
 */
export function eventOfHeld(
  workflow: Workflow,
  tool: string,
  state: string,
  outcome: 'succeeded' | 'failed',
): string | null {
  try {
    const binding = workflow.match(tool, undefined);
    const source = binding?.eventIn(state, outcome === 'failed' ? 'failure' : 'success') ?? null;
    if (binding !== undefined && typeof source !== 'function') return source;
  } catch {
    // A `when` that needs the arguments, which nobody kept.
  }
  throw new InterlockError(
    'ERR_INTERLOCK_EVENT',
    `resolve(): which event a call of ${showValue(tool)} sends depends on its arguments or its result; give { event }`,
  );
}

/** Where that leads. */
export function moveOfHeld(
  workflow: Workflow,
  { updatedAt: _, version = 0, ...position }: FsmSnapshot,
  event: string | null,
  said: Pick<TrailDraft, 'tool' | 'actor' | 'payload'>,
  payload: Json | undefined,
): Move {
  const next = event === null ? undefined : workflow.next(position, event, payload);
  const reached = next?.position ?? position;
  const due = workflow.dueActions(version === 0);
  const actions = [...due, ...(next?.actions ?? [])];
  return moveTo(workflow, position.state, { position: reached, actions }, { event, ...said });
}
