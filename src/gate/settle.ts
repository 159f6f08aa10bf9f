import type { RunContext } from '../session/run-context.ts';
import type { Message } from '../wire/message.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { announcement } from '../workflow/advice.ts';
import type { PendingCall, Transform } from './call.ts';
import type { GateConfig } from './gate-config.ts';
import { outcomeOf } from './outcome.ts';
import { unknownOutcomeReply } from './replies.ts';

const AS_IT_CAME: Transform = () => {};

/** Saves what a call came to, before its client hears of it. */
export function settle(
  call: PendingCall,
  message: Message,
  context: RunContext,
  config: GateConfig,
  onListChanged: () => void,
): MaybePromise<Transform> {
  const outcome = outcomeOf(message);
  if (outcome === 'succeeded') return commitSuccess(call, context, config, onListChanged);
  if (outcome === 'unknown') call.step.abandon();
  else return after(call.step.release(), () => AS_IT_CAME);
  return AS_IT_CAME;
}

async function commitSuccess(
  { id, step, binding }: PendingCall,
  context: RunContext,
  config: GateConfig,
  onListChanged: () => void,
): Promise<Transform> {
  const { workflow, announce, onError } = config;
  const from = step.snapshot.state;
  const event = binding.eventIn(from) ?? null;
  const to = event === null ? from : workflow.next(from, event);
  const { context: data } = step.snapshot;
  const { actor } = context;
  const status = await step
    .commit({
      snapshot: { state: to, ...(data === undefined ? {} : { context: data }) },
      trail: { from, to, event, tool: step.tool, ...(actor === undefined ? {} : { actor }) },
    })
    .catch((error: unknown) => {
      onError(error);
      return 'failed' as const;
    });
  if (status !== 'committed') {
    const reply = unknownOutcomeReply(id, step.tool, workflow.id, true);
    return (message) => message.replace(reply);
  }
  if (to === from) return AS_IT_CAME;
  if (!workflow.sameTools(from, to)) onListChanged();
  workflow.emit(
    { changed: true, previousState: from, currentState: to, event: event ?? '', run: step.key.run },
    onError,
  );
  if (!announce) return AS_IT_CAME;
  const text = announcement(workflow.id, to, workflow.available(to));
  return (message) => message.insert(['result', 'content'], { type: 'text', text }, 'end');
}
