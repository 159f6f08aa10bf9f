import type { CurrentStep } from '../session/current-step.ts';
import type { PendingCall } from './call.ts';

/** A step as its handler sees it. */
export function stepFacade(call: PendingCall): CurrentStep {
  const { step, moves } = call;
  const { key, tool, idempotencyKey } = step;
  return {
    run: key.run,
    workflow: key.workflow,
    tool,
    state: moves.from.state,
    idempotencyKey,
    async commitIn(client) {
      const { snapshot, trail } = moves.succeedsAnyway();
      const status = await step.commitIn(client, { snapshot, trail });
      if (status === 'unsupported')
        throw new Error('the store has no transactions that a step could be committed in');
      if (status !== 'committed')
        throw new Error(`the step is not this call's any more (${status}); roll back`);
      call.savedByHandler = true;
    },
  };
}
