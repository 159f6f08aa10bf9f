import type { Saved } from '../session/step.ts';
import { UNBEGUN } from '../session/unbegun.ts';
import type { ReleaseOptions } from '../stores/store.ts';
import { isObject, type JsonObject, type ListKind } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { announcement } from '../workflow/advice.ts';
import type { HeldCall, PendingCall, Transform } from './call.ts';
import { changedLists } from './changed-lists.ts';
import { shownPosition, shownState } from './ends.ts';
import type { GateConfig } from './gate-config.ts';
import type { Gates } from './gates.ts';
import type { Move } from './move.ts';
import { type Outcome, outcomeOf } from './outcome.ts';
import { unknownOutcomeReply } from './replies.ts';
import { recordNow } from './state-now.ts';
import { takeEffect } from './take-effect.ts';
import { giveUpStep, tellUnknown } from './unknown-outcome.ts';

const AS_IT_CAME: Transform = () => {};

/** Told which lists show other things now. `isLate`: the call's response has gone already. */
export type ListListener = (lists: readonly ListKind[], isLate: boolean) => void;

/** Saves what a call came to, before its client hears of it. */
export function settle(
  call: PendingCall,
  message: Message,
  config: GateConfig,
  onListChanged: ListListener,
): MaybePromise<Transform> {
  const outcome = outcomeOf(message);
  if (outcome === 'unknown') {
    giveUpStep(call.step, config);
    if (!message.isContradictory) return AS_IT_CAME;
    return replacing(unknownReply(call, config, false));
  }
  const move = moveAfter(outcome, call, message);
  // A step that asks for something goes on with the next call, and keeps its key for it.
  const options = outcome === 'input_required' ? UNBEGUN : {};
  if (move === undefined) {
    call.leaves = shownPosition(config, call.step.key.run, call.moves.from);
    return after(call.step.release(options), () => AS_IT_CAME);
  }
  return commit(call, { move, options, onListChanged }, config);
}

/** What is to be saved; nothing where the run stays as it is. */
function moveAfter(
  outcome: Outcome,
  { moves, savedByHandler, isUpdated }: PendingCall,
  message: Message,
): Move | undefined {
  const { result, error } = message.value;
  if (outcome === 'succeeded') return moves.succeeded(isObject(result) ? result : {});
  // Nobody knows here whether the handler's transaction was rolled back: if it was not, the success
  // is saved.
  if (savedByHandler === true) return undefined;
  const move =
    outcome === 'failed' ? moves.failed(isObject(result) ? { result } : { error }) : undefined;
  return move ?? (isUpdated === true ? moves.stays() : undefined);
}

/** What is saved of a call, and who is told of it. */
interface Settlement {
  readonly move: Move;
  readonly options: ReleaseOptions;
  readonly onListChanged: ListListener;
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
  settlement: Settlement,
  config: GateConfig,
): Promise<Transform> {
  const { step } = call;
  const isLate = step.state === 'unsettled';
  const status = await save(call, settlement, config, false);
  if (status === 'failed' && call.carrier !== 'task') saveLater(call, settlement, config);
  if (status !== 'committed' && status !== 'repeated') {
    const why = isLate ? `its result came late: ${status}` : status;
    tellUnknown(step, why, config, status === 'failed');
    return replacing(unknownReply(call, config, true));
  }
  const { snapshot, trail } = settlement.move;
  call.leaves = shownPosition(config, step.key.run, snapshot);
  if (trail.to !== trail.from) call.movedTo = trail.to;
  return AS_IT_CAME;
}

/** Saves a move and tells of it, once: not where another process did so before. */
async function save(
  { step }: PendingCall,
  { move, options, onListChanged }: Settlement,
  config: GateConfig,
  isLate: boolean,
): Promise<Saved | 'failed'> {
  const { workflow, onError } = config;
  const { actions: _, ...saved } = move;
  const status = await step.commit(saved, options).catch((error: unknown) => {
    onError(error);
    return 'failed' as const;
  });
  if (status !== 'committed') return status;
  const { run } = step.key;
  const { from, to } = move.trail;
  const shown = (state: string): string => shownState(config, run, state);
  takeEffect(workflow, move, run, onError);
  const lists = from === to ? [] : changedLists(workflow, shown(from), shown(to));
  if (lists.length > 0) onListChanged(lists, isLate);
  return status;
}

/**
 * Tries again now and then, for as long as a step may take. The client was told that the outcome
 * could not be recorded; but the store may come back before a person resolves the run.
 */
function saveLater(call: PendingCall, settlement: Settlement, config: GateConfig): void {
  const { clock, times, onError } = config;
  const deadline = clock.now() + times.maxStepMs;
  const tryAgain = async (): Promise<void> => {
    const status = await save(call, settlement, config, true);
    if (status === 'failed' && clock.now() < deadline) later();
  };
  const later = (): void => void clock.after(times.leaseMs, () => void tryAgain().catch(onError));
  later();
}

/**
 * Also says in words where a call has moved the run, for each gate that is to, once all gates that
 * it is a step of have settled it: what is available then is what all of them allow.
 */
export function announcing(
  transform: MaybePromise<Transform>,
  held: readonly HeldCall[],
  gatesOf: (config: GateConfig) => Gates,
): MaybePromise<Transform> {
  if (!held.some(({ config }) => config.announce)) return transform;
  return after(transform, (own) => {
    const moved = held.filter(({ config, call }) => config.announce && call.movedTo !== undefined);
    const [first] = moved;
    if (first === undefined) return own;
    const leaves = new Map(held.map(({ config, call }) => [config, call.leaves]));
    const isKnown = gatesOf(first.config).areAll(leaves);
    const record = isKnown ? undefined : recordNow(first.config, first.call.context);
    return after(record, (read) => {
      const texts = moved.map(({ config, call }) => {
        const available = gatesOf(config).availableAfter(leaves, call.context, read);
        return announcement(config.workflow.id, call.movedTo ?? '', available);
      });
      return adding(texts, own);
    });
  });
}

/**
 * Apart from where the texts are made: what is kept for replays must keep nothing of the request.
 */
function adding(texts: readonly string[], own: Transform): Transform {
  return (message) => {
    if (isObject(message.value.result)) {
      for (const text of texts)
        message.insert(['result', 'content'], { type: 'text', text }, 'end');
    }
    own(message);
  };
}
