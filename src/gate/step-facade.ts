import type { CurrentStep } from '../session/current-step.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { PendingCall } from './call.ts';

/** Whether what the step saves is settled. */
export function isOver({ transform, step }: PendingCall): boolean {
  return transform !== undefined || step.isOver;
}

/** A step as its handler sees it. */
export function stepFacade(call: PendingCall, workflow: Workflow): CurrentStep {
  const { step } = call;
  const { key, tool, idempotencyKey } = step;
  return {
    run: key.run,
    workflow: key.workflow,
    tool,
    state: call.moves.from.state,
    idempotencyKey,
    get context() {
      return workflow.dataOf(call.moves.from);
    },
    update(change) {
      if (isOver(call))
        throw new Error('the step is over: what is changed now would be saved by nobody');
      if (call.savedByHandler)
        throw new Error('update() came after commitIn(), which has saved the data already');
      const { from } = call.moves;
      call.moves = call.moves.at(workflow.withData(from, change(workflow.dataOf(from))));
      call.isUpdated = true;
      return workflow.dataOf(call.moves.from);
    },
    async commitIn(client) {
      const { actions: _, ...saved } = call.moves.succeedsAnyway();
      const status = await step.commitIn(client, saved);
      if (status === 'unsupported')
        throw new Error('the store has no transactions that a step could be committed in');
      if (status !== 'committed')
        throw new Error(`the step is not this call's any more (${status}); roll back`);
      call.savedByHandler = true;
    },
  };
}
