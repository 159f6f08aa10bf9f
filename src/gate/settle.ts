import { UNBEGUN } from '../session/unbegun.ts';
import type { ReleaseOptions } from '../stores/store.ts';
import { isObject, type JsonObject, type ListKind } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { announcement } from '../workflow/advice.ts';
import type { PendingCall, Transform } from './call.ts';
import { changedLists } from './changed-lists.ts';
import { shownState } from './ends.ts';
import type { GateConfig } from './gate-config.ts';
import type { Move } from './move.ts';
import { type Outcome, outcomeOf } from './outcome.ts';
import { unknownOutcomeReply } from './replies.ts';
import { takeEffect } from './take-effect.ts';
import { abandonStep, UnknownOutcome } from './unknown-outcome.ts';

const AS_IT_CAME: Transform = () => {};

/** Saves what a call came to, before its client hears of it. */
export function settle(
  call: PendingCall,
  message: Message,
  config: GateConfig,
  onListChanged: (lists: readonly ListKind[]) => void,
): MaybePromise<Transform> {
  const outcome = outcomeOf(message);
  if (outcome === 'unknown') {
    abandonStep(call.step, config);
    if (!message.isContradictory) return AS_IT_CAME;
    return replacing(unknownReply(call, config, false));
  }
  const move = moveAfter(outcome, call, message);
  // A step that asks for something goes on with the next call, and keeps its key for it.
  const options = outcome === 'input_required' ? UNBEGUN : {};
  if (move === undefined) return after(call.step.release(options), () => AS_IT_CAME);
  return commit(call, move, config, { options, onListChanged });
}

/** What is to be saved; nothing where the run stays as it is. */
function moveAfter(
  outcome: Outcome,
  { moves, savedByHandler, isUpdated }: PendingCall,
  message: Message,
): Move | undefined {
  const { result, error } = message.value;
  if (outcome === 'succeeded') return moves.succeeded(isObject(result) ? result : {});
  // Nobody knows here whether the handler's transaction was rolled back: if it was not, the success is saved.
  if (savedByHandler === true) return undefined;
  const move =
    outcome === 'failed' ? moves.failed(isObject(result) ? { result } : { error }) : undefined;
  return move ?? (isUpdated === true ? moves.stays() : undefined);
}

interface Saving {
  readonly options: ReleaseOptions;
  readonly onListChanged: (lists: readonly ListKind[]) => void;
}

function unknownReply(
  { id, step, era }: PendingCall,
  { workflow }: GateConfig,
  ran: boolean,
): JsonObject {
  return unknownOutcomeReply(id, step.tool, workflow.id, { ran, era });
}

function replacing(reply: JsonObject): Transform {
  return (message) => message.replace(reply);
}

async function commit(
  call: PendingCall,
  move: Move,
  config: GateConfig,
  { options, onListChanged }: Saving,
): Promise<Transform> {
  const { step } = call;
  const { workflow, announce, onError } = config;
  const { actions: _, ...saved } = move;
  const status = await step.commit(saved, options).catch((error: unknown) => {
    onError(error);
    return 'failed' as const;
  });
  if (status !== 'committed' && status !== 'repeated') {
    onError(new UnknownOutcome(step, status));
    return replacing(unknownReply(call, config, true));
  }
  const { from, to } = move.trail;
  const { run } = step.key;
  const shown = shownState(config, run, to);
  if (status === 'committed') {
    takeEffect(workflow, move, run, onError);
    const lists = to === from ? [] : changedLists(workflow, shownState(config, run, from), shown);
    if (lists.length > 0) onListChanged(lists);
  }
  if (to === from || !announce) return AS_IT_CAME;
  const text = announcement(workflow.id, to, workflow.available(shown));
  return (message) =>
    isObject(message.value.result) &&
    message.insert(['result', 'content'], { type: 'text', text }, 'end');
}
