import type { Clock } from '../clock.ts';
import type { RefusalReason } from '../events.ts';
import type { Run } from '../session/run.ts';
import { beginsAnew, moveTo, type StepMove, shownPosition } from '../step/outcome.ts';
import type { Step } from '../step/step.ts';
import type { FsmSnapshot } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import type { Guard, GuardedCall } from '../workflow/binding.ts';
import { AskedArguments, type CallBinding, placed } from '../workflow/bound-tools.ts';
import type { Loop, LoopShield } from '../workflow/loop-shield.ts';
import type { Position } from '../workflow/position.ts';
import type { GateConfig } from './config.ts';
import { asBegun, sightOf } from './stands.ts';

/** Why a call may not go on although its run could be claimed, or asked where it stands. */
export interface NotAdmitted {
  readonly reason: RefusalReason | 'cancelled';
  readonly snapshot?: FsmSnapshot | undefined;
  /** The guard's own; for `'arguments'`, what is wrong with them. */
  readonly words?: string | undefined;
  /** What was saved all the same. */
  readonly moved?: StepMove;
}

/** A call as its guards are told of it, beside where the run stands. */
export interface AskedCall extends Pick<GuardedCall, 'run' | 'tool' | 'principal'> {
  readonly args: AskedArguments;
}

/** How long the guards of one call may take. */
const GUARDS_MS = 5_000;

/** The trail's event of a run that fell back to a state. */
const LOOP = 'loop';

export function askedCall(
  { message }: Call,
  tool: string,
  { run, actor }: Pick<Run, 'run' | 'actor'>,
): AskedCall {
  const args = new AskedArguments(message.at('params', 'arguments'));
  return { run, tool, args, principal: actor };
}

/**
 * Tests a claimed run where the store could not: the states of a statechart cannot be listed, and
 * those of an older deployment are not known by name. Then counts the call, and asks the guards.
 * The claim is let go where the call is not allowed after all. Gives no promise where nothing is
 * counted or asked.
 */
export function admit(
  config: GateConfig,
  binding: CallBinding,
  step: Step,
  asked: () => AskedCall,
  request: { readonly cancelled: boolean },
): MaybePromise<Position | NotAdmitted> {
  // A machine's own code throws where it likes. A claim that stayed would be renewed for ever.
  const fail = (error: unknown): Promise<NotAdmitted> => {
    config.onError(error);
    return letGo(step, { reason: 'unavailable' });
  };
  try {
    const stands = decide(config, binding, step);
    if ('reason' in stands) return letGo(step, stands);
    const odd = unforeseen(config, binding, step, stands, asked);
    if (odd !== undefined) return letGo(step, odd);
    const { shield } = config.workflow;
    if (shield !== undefined || binding.guards.length > 0)
      return countAndAsk(config, binding, step, { stands, asked, request }).catch(fail);
    const found = { ...stands, updatedAt: step.snapshot.updatedAt };
    const refused = stoppedByMachine(config, binding, found) ?? calledOff(step, request);
    return refused === undefined ? stands : letGo(step, refused);
  } catch (error) {
    return fail(error);
  }
}

async function countAndAsk(
  config: GateConfig,
  binding: CallBinding,
  step: Step,
  call: {
    readonly stands: Position;
    readonly asked: () => AskedCall;
    readonly request: { readonly cancelled: boolean };
  },
): Promise<Position | NotAdmitted> {
  const { shield } = config.workflow;
  const counted =
    shield === undefined ? call.stands : await countCall(config, shield, step, call.stands);
  if ('reason' in counted) return counted;
  const found = { ...counted, updatedAt: step.snapshot.updatedAt };
  const refused =
    stoppedByMachine(config, binding, found) ??
    (binding.guards.length === 0
      ? undefined
      : await refusedByGuard(config, binding, found, call.asked()));
  if (refused !== undefined && shield !== undefined) {
    // A call that a guard refuses is one of those that a model may repeat for ever.
    await step.save(staying(config, step, counted));
    return refused;
  }
  const why = refused ?? calledOff(step, call.request);
  return why === undefined ? counted : letGo(step, why);
}

/**
 * A guard takes time, in which the client may change its mind, or the step may overrun, which would
 * be noticed too late.
 */
function calledOff(
  { overran }: Step,
  { cancelled }: { readonly cancelled: boolean },
): NotAdmitted | undefined {
  if (cancelled) return { reason: 'cancelled' };
  return overran ? { reason: 'unavailable' } : undefined;
}

function letGo(step: Step, why: NotAdmitted): Promise<NotAdmitted> {
  return step.withdraw().then(() => why);
}

/** Whether such a call is allowed there, as far as the run's state and `visible` have a say. */
export function allowsCall(
  config: GateConfig,
  run: Pick<Run, 'run' | 'actor'>,
  position: Position,
  { tool, binding }: { readonly tool: string; readonly binding: CallBinding },
): boolean {
  if (!config.workflow.allows(position.state, binding)) return false;
  const { veils } = binding;
  return veils === undefined || sightOf(config, run, position)?.opens(tool, veils) !== false;
}

/**
 * Whether such a call begins anew a run that has ended: it must be allowed there, with the data that
 * the run would begin with.
 */
export function allowsRestart(
  config: GateConfig,
  run: Run,
  asked: { readonly tool: string; readonly binding: CallBinding },
): MaybePromise<boolean> {
  const { start } = config.workflow;
  if (asked.binding.veils === undefined) return allowsCall(config, run, start, asked);
  return after(
    asBegun(config, run, { ...start, updatedAt: 0 }),
    (begun) => begun !== 'unavailable' && allowsCall(config, run, begun, asked),
  );
}

/** Whether the state of a claimed run allows the call, and where the run stands for it. */
function decide(config: GateConfig, binding: CallBinding, step: Step): Position | NotAdmitted {
  const { workflow } = config;
  const { snapshot, understood } = step;
  if (understood === undefined) {
    config.onError(step.fault);
    return { reason: 'unavailable' };
  }
  const { run } = step.key;
  const stands = shownPosition(config, run, understood.position);
  const wasTested = workflow.claimable(binding, beginsAnew(config, run)) !== undefined;
  // The store tests the state alone.
  if (wasTested && binding.veils === undefined) return stands;
  const viewer = { run, actor: step.note?.actor };
  if (allowsCall(config, viewer, stands, { tool: step.tool, binding })) return stands;
  return { reason: 'state', snapshot: { ...stands, updatedAt: snapshot.updatedAt } };
}

/**
 * Asks the guards of a call about a run that stands at `position`; `undefined` where they let it
 * through.
 */
async function refusedByGuard(
  { workflow, clock, onError }: GateConfig,
  { guards }: Pick<CallBinding, 'guards'>,
  { updatedAt, ...position }: FsmSnapshot,
  call: AskedCall,
): Promise<NotAdmitted | undefined> {
  const { args } = call;
  const snapshot = { ...position, updatedAt };
  const facts = workflow.factsOf(position, call.principal);
  const about = placed({ ...call, args: args.members, ...facts }, position);
  const refusal = await askGuards(guards, about, { clock, deadlineMs: GUARDS_MS, onError });
  // What the guards said of one argument says nothing of the other.
  return (
    unclear(args, snapshot) ?? (refusal && { reason: 'guard', snapshot, words: refusal.words })
  );
}

/** Finds out what the functions of its outcomes will ask for, while it can still be refused. */
function unforeseen(
  { workflow }: GateConfig,
  binding: CallBinding,
  step: Step,
  stands: Position,
  asked: () => AskedCall,
): NotAdmitted | undefined {
  if (binding.sources.length === 0) return undefined;
  const { args, tool, principal } = asked();
  args.foresee(binding, { tool, ...workflow.factsOf(stands, principal) });
  return unclear(args, { ...stands, updatedAt: step.snapshot.updatedAt });
}

/**
 * The same of a run that is not claimed for the call: where it has not begun, its guards are told of
 * what it would begin with.
 */
export async function refusedUnclaimed(
  config: GateConfig,
  run: Run,
  bound: Pick<CallBinding, 'guards'>,
  found: FsmSnapshot,
  call: AskedCall,
): Promise<NotAdmitted | undefined> {
  const known = await asBegun(config, run, found);
  return known === 'unavailable'
    ? { reason: 'unavailable' }
    : refusedByGuard(config, bound, known, call);
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

/** A move that leads nowhere, and saves what the position carries. */
function staying({ workflow }: GateConfig, step: Step, position: Position): StepMove {
  const actions = workflow.dueActions(step.isFirst);
  const said = { event: null, outcome: 'refused', kind: 'guard', ...step.note } as const;
  return moveTo(workflow, position, { position, actions }, said);
}

/**
 * What the shield makes of a call: the position to go on from, the call counted in; or, where it
 * was one too many, where the run fell back to.
 */
async function countCall(
  config: GateConfig,
  shield: LoopShield,
  step: Step,
  position: Position,
): Promise<Position | NotAdmitted> {
  const { tool, digest, key } = step;
  const count = shield.count(position, { tool, digest }, step.now);
  if (!count.isLoop) return count.position;
  const next = shield.fallBack(position);
  const event = shield.fallbackEvent ?? LOOP;
  const due = config.workflow.dueActions(step.isFirst);
  const reached = { position: next.position, actions: [...due, ...next.actions] };
  const said = { event, outcome: 'refused', kind: 'loop', ...step.note } as const;
  const moved = moveTo(config.workflow, position, reached, said);
  if ((await step.save(moved)) !== 'committed') return { reason: 'unavailable' };
  const { calls } = count;
  tellLoop(shield, { ...key, tool, state: position.state, calls, max: shield.max }, config.onError);
  return { reason: 'loop', snapshot: { ...next.position, updatedAt: step.now }, moved };
}

/** A listener's failure harms no one. */
function tellLoop({ onLoop }: LoopShield, loop: Loop, onError: (error: unknown) => void): void {
  try {
    Promise.resolve(onLoop?.(loop)).catch(onError);
  } catch (error) {
    onError(error);
  }
}

/** How guards are asked. */
export interface GuardOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** How long all guards of one call may take together, in milliseconds. */
  readonly deadlineMs: number;
  /** Told what a guard throws, that one took too long, or that one gave no answer. */
  readonly onError: (error: unknown) => void;
}

/** A call that a guard did not let through, with the guard's own words where it gave some. */
export interface GuardRefusal {
  readonly words: string | undefined;
}

const TOO_LATE = Symbol('too late');

/**
 * Asks a call's guards, one after the other, until one refuses. `undefined` where all of them let
 * it through. Whatever is not `true` refuses, and so does a guard that throws or outlasts the
 * deadline.
 */
export async function askGuards(
  guards: readonly Guard[],
  call: GuardedCall,
  options: GuardOptions,
): Promise<GuardRefusal | undefined> {
  const { clock, deadlineMs, onError } = options;
  if (guards.length === 0) return undefined;
  let stop = (): void => {};
  const deadline = new Promise<typeof TOO_LATE>((resolve) => {
    stop = clock.after(deadlineMs, () => resolve(TOO_LATE));
  });
  try {
    for (const guard of guards) {
      const answer: unknown = await Promise.race([ask(guard, call), deadline]);
      if (answer === true) continue;
      if (answer === TOO_LATE) {
        onError(
          new Error(
            `a guard of ${JSON.stringify(call.tool)} took longer than ${deadlineMs} ms, so it refuses`,
          ),
        );
      } else if (typeof answer !== 'string' && answer !== false) {
        onError(
          new Error(
            `a guard of ${JSON.stringify(call.tool)} answered neither a boolean nor words, so it refuses`,
          ),
        );
      }
      return { words: typeof answer === 'string' && answer !== '' ? answer : undefined };
    }
    return undefined;
  } catch (error) {
    onError(error);
    return { words: undefined };
  } finally {
    stop();
  }
}

/** A rejection after the deadline is nobody's any more, and must not end the process. */
function ask(guard: Guard, call: GuardedCall): Promise<unknown> {
  const answer = Promise.resolve().then(() => guard(call));
  answer.catch(() => {});
  return answer;
}
