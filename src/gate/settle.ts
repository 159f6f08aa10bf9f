import type { Message } from '../wire/message.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { announcement } from '../workflow/advice.ts';
import type { PendingCall, Transform } from './call.ts';
import type { GateConfig } from './gate-config.ts';
import { outcomeOf } from './outcome.ts';
import { unknownOutcomeReply } from './replies.ts';
import { abandonStep, UnknownOutcome } from './unknown-outcome.ts';

const AS_IT_CAME: Transform = () => {};

/** Saves what a call came to, before its client hears of it. */
export function settle(
  call: PendingCall,
  message: Message,
  config: GateConfig,
  onListChanged: () => void,
): MaybePromise<Transform> {
  const outcome = outcomeOf(message);
  if (outcome === 'succeeded') return commitSuccess(call, config, onListChanged);
  if (outcome !== 'unknown') return after(call.step.release(), () => AS_IT_CAME);
  abandonStep(call.step, config);
  return AS_IT_CAME;
}

async function commitSuccess(
  { id, step, move, era }: PendingCall,
  config: GateConfig,
  onListChanged: () => void,
): Promise<Transform> {
  const { workflow, announce, onError } = config;
  const status = await step.commit(move).catch((error: unknown) => {
    onError(error);
    return 'failed' as const;
  });
  if (status !== 'committed') {
    onError(new UnknownOutcome(step, status));
    const reply = unknownOutcomeReply(id, step.tool, workflow.id, { ran: true, era });
    return (message) => message.replace(reply);
  }
  const { from, to, event } = move.trail;
  if (to === from) return AS_IT_CAME;
  if (!workflow.sameTools(from, to)) onListChanged();
  const { run } = step.key;
  workflow.emit({ changed: true, previousState: from, currentState: to, event: event ?? '', run }, onError);
  if (!announce) return AS_IT_CAME;
  const text = announcement(workflow.id, to, workflow.available(to));
  return (message) => message.insert(['result', 'content'], { type: 'text', text }, 'end');
}
