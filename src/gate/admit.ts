import type { RunContext } from '../session/run-context.ts';
import type { Step } from '../session/step.ts';
import type { WaitingCall } from '../session/turns.ts';
import { UNBEGUN } from '../session/unbegun.ts';
import type { FsmSnapshot } from '../stores/store.ts';
import type { Incoming } from '../wire/incoming.ts';
import { AskedArguments } from '../workflow/asked-arguments.ts';
import type { GuardedCall } from '../workflow/binding.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { Position } from '../workflow/position.ts';
import { beginsAnew, shownPosition } from './ends.ts';
import type { GateConfig } from './gate-config.ts';
import { askGuards } from './guard.ts';
import { countCall } from './loop.ts';
import { moveTo } from './move.ts';
import type { NotAdmitted } from './not-admitted.ts';
import { saveUnforwarded } from './take-effect.ts';

/** What a guard is asked beside where the run stands. */
export interface AskedCall extends Omit<GuardedCall, 'state' | 'context' | 'args'> {
  readonly args: AskedArguments;
}

/** How long the guards of one call may take. */
const GUARDS_MS = 5_000;

/**
 * A stored position as the gate understands it; `undefined` where it does not, which is told to
 * `onError`.
 */
export function understood(
  { workflow, onError }: Pick<GateConfig, 'workflow' | 'onError'>,
  stored: Position,
): Position | undefined {
  try {
    return workflow.adopt(stored);
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/**
 * Asks the guards of a call about a run that stands at `position`; `undefined` where they let it
 * through.
 */
export async function refusedByGuard(
  { workflow, clock, onError }: GateConfig,
  { guards }: Pick<CallBinding, 'guards'>,
  { updatedAt, ...position }: FsmSnapshot,
  call: AskedCall,
): Promise<NotAdmitted | undefined> {
  if (guards.length === 0) return undefined;
  const { args } = call;
  const snapshot = { ...position, updatedAt };
  const about = {
    ...call,
    args: args.members,
    state: position.state,
    context: workflow.dataOf(position),
  };
  const refusal = await askGuards(guards, about, { clock, deadlineMs: GUARDS_MS, onError });
  // What the guards said of one argument says nothing of the other.
  return (
    unclear(args, snapshot) ?? (refusal && { reason: 'guard', snapshot, words: refusal.words })
  );
}

/** Refuses a call of which a function of the app has read what another reader reads otherwise. */
export function unclear(
  { ambiguous }: AskedArguments,
  snapshot?: FsmSnapshot,
): NotAdmitted | undefined {
  if (ambiguous === undefined) return undefined;
  const words = `the argument ${JSON.stringify(ambiguous)} must be spelled so, and stand there in no other letter case`;
  return { reason: 'arguments', snapshot, words };
}

/**
 * Asks the machine's own guards about the event that the call's success sends, where that is known
 * before the call.
 */
function stoppedByMachine(
  { workflow, onError }: GateConfig,
  binding: CallBinding,
  snapshot: FsmSnapshot,
): NotAdmitted | undefined {
  try {
    if (!workflow.isStopped(snapshot, binding)) return undefined;
  } catch (error) {
    onError(error);
  }
  return { reason: 'guard', snapshot };
}

/**
 * Tests a claimed run where the store could not: the states of a statechart cannot be listed, and
 * those of an older deployment are not known by name. Then counts the call, and asks the guards.
 * The claim is let go where the call is not allowed after all.
 */
export async function admit(
  config: GateConfig,
  binding: CallBinding,
  step: Step,
  call: AskedCall,
  request: Pick<WaitingCall, 'cancelled'>,
): Promise<Position | NotAdmitted> {
  let reason: 'cancelled' | 'unavailable' = 'unavailable';
  try {
    const admitted = await test(config, binding, step, call);
    if ('reason' in admitted) return admitted;
    // A guard takes time, in which the client may change its mind, or the step may overrun, which
    // nobody would notice any more.
    if (request.cancelled) reason = 'cancelled';
    else if (!step.overran) return admitted;
  } catch (error) {
    // A machine's own code throws where it likes. A claim that stayed would be renewed for ever.
    config.onError(error);
  }
  await step.release(UNBEGUN);
  return { reason };
}

async function test(
  config: GateConfig,
  binding: CallBinding,
  step: Step,
  call: AskedCall,
): Promise<Position | NotAdmitted> {
  const { workflow } = config;
  if (understood(config, step.snapshot) === undefined) {
    await step.release(UNBEGUN);
    return { reason: 'unavailable' };
  }
  const { run } = step.key;
  const stands = shownPosition(config, run, workflow.stand(step.snapshot));
  const { updatedAt } = step.snapshot;
  const wasTested = workflow.claimable(binding, beginsAnew(config, run)) !== undefined;
  const isAllowed = wasTested || workflow.allows(stands.state, binding);
  if (!isAllowed) {
    await step.release(UNBEGUN);
    return { reason: 'state', snapshot: { ...stands, updatedAt } };
  }
  const { shield } = workflow;
  const position = shield === undefined ? stands : await countCall(config, shield, step, stands);
  if ('reason' in position) return position;
  const found = { ...position, updatedAt };
  const refused =
    stoppedByMachine(config, binding, found) ??
    (await refusedByGuard(config, binding, found, call));
  if (refused === undefined) return position;
  if (shield === undefined) await step.release(UNBEGUN);
  else await keepCount(config, step, position);
  return refused;
}

/** A call that a guard refuses is one of those that a model may repeat for ever. */
async function keepCount(config: GateConfig, step: Step, position: Position): Promise<void> {
  const actions = config.workflow.dueActions(step.isFirst);
  const said = { event: null, tool: step.tool };
  const move = moveTo(config.workflow, position.state, { position, actions }, said);
  await saveUnforwarded(config, step, move);
}

/** A call as its guards are told of it. */
export function askedCall(
  { message }: Incoming,
  tool: string,
  { run, actor }: RunContext,
): AskedCall {
  const args = new AskedArguments(message.at('params', 'arguments'));
  return { run, tool, args, principal: actor };
}
