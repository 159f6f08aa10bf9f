import type { Clock } from '../clock.ts';
import type { RefusalReason } from '../events.ts';
import type { Run } from '../session/run.ts';
import { beginsAnew, moveTo, type StepMove, shownPosition } from '../step/outcome.ts';
import type { Step } from '../step/step.ts';
import { KEEPS_KEY } from '../step/store-calls.ts';
import type { FsmSnapshot } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import type { Guard, GuardedCall } from '../workflow/binding.ts';
import {
  AskedArguments,
  type CallBinding,
  placed,
  type RoundedNumber,
} from '../workflow/bound-tools.ts';
import type { Loop, LoopShield } from '../workflow/loop-shield.ts';
import type { Position } from '../workflow/position.ts';
import { withRecorded } from '../workflow/stored.ts';
import type { GateConfig } from './config.ts';
import { asBegun, sightOf } from './stands.ts';

/** Why a call is refused although its run was claimed or read. */
export interface NotAdmitted {
  readonly reason: RefusalReason | 'cancelled';
  readonly snapshot?: FsmSnapshot | undefined;
  /** The guard's own words; for `'arguments'`, what is wrong with them. */
  readonly words?: string | undefined;
  /** A move that was saved although the call is refused. */
  readonly moved?: StepMove;
}

/** What guards are told of a call, beside where the run stands. */
export interface AskedCall extends Pick<GuardedCall, 'run' | 'tool' | 'principal'> {
  readonly args: AskedArguments;
}

/** How long the guards of one call may take. */
const GUARDS_MS = 5_000;

/** The trail's event where the loop shield moves a run to a state. */
const LOOP = 'loop';

export function askedCall(
  { sentArguments }: Call,
  tool: string,
  { run, actor }: Pick<Run, 'run' | 'actor'>,
): AskedCall {
  const args = new AskedArguments(sentArguments);
  return { run, tool, args, principal: actor };
}

/**
 * Tests a claimed run, counts the call, and asks the guards. Lets go of the claim where the call is
 * refused. Gives no promise where nothing is counted or asked.
 *
 * The store has tested the state only if it got a list of the allowed states. The states of a
 * statechart cannot be listed, nor can those of an older deployment.
 */
export function admit(
  config: GateConfig,
  binding: CallBinding,
  step: Step,
  asked: () => AskedCall,
  request: { readonly cancelled: boolean },
): MaybePromise<Position | NotAdmitted> {
  // The app's code may throw anywhere; a claim that it left behind would be renewed for ever.
  const fail = (error: unknown): Promise<NotAdmitted> => {
    config.onError(error);
    return letGo(step, { reason: 'unavailable' });
  };
  try {
    const stands = decide(config, binding, step);
    if ('reason' in stands) return letGo(step, stands);
    const found = { ...stands, updatedAt: step.snapshot.updatedAt };
    const odd = unforeseen(config, binding, found, asked);
    if (odd !== undefined) return letGo(step, odd);
    const { shield } = config.workflow;
    if (shield !== undefined || binding.guards.length > 0)
      return countAndAsk(config, binding, step, { stands, asked, request }).catch(fail);
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
    // A model may repeat a call that a guard refuses, so the shield counts it.
    const stays = (stands: Position): StepMove => staying(config, step, stands);
    await step.save(
      stays(counted),
      KEEPS_KEY,
      ({ understood }) => understood && stays(withRecorded(counted, understood.position)),
    );
    return refused;
  }
  const why = refused ?? calledOff(step, call.request);
  return why === undefined ? counted : letGo(step, why);
}

/** While a guard is asked, the client may cancel the call, or the step may take too long. */
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

/** Whether the position allows the call, by its state and by `visible`. */
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

/** Whether the call may begin an ended run anew: the initial state and data must allow it. */
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

/** Where a claimed run stands for the call, if its state allows the call. */
function decide(config: GateConfig, binding: CallBinding, step: Step): Position | NotAdmitted {
  const { workflow } = config;
  const { snapshot, understood } = step;
  if (understood === undefined) {
    config.onError(step.fault);
    return { reason: 'unreadable' };
  }
  const { run } = step.key;
  const stands = shownPosition(config, run, understood.position);
  const wasTested = workflow.claimable(binding, beginsAnew(config, run)) !== undefined;
  // The store has tested the state, and nothing else.
  if (wasTested && binding.veils === undefined) return stands;
  const viewer = { run, actor: step.note?.actor };
  if (allowsCall(config, viewer, stands, { tool: step.tool, binding })) return stands;
  return { reason: 'state', snapshot: { ...stands, updatedAt: snapshot.updatedAt } };
}

/** Asks a call's guards about a run that stands there; `undefined` where they let it through. */
async function refusedByGuard(
  { workflow, clock, onError }: GateConfig,
  { guards }: Pick<CallBinding, 'guards'>,
  { updatedAt, ...position }: FsmSnapshot,
  call: AskedCall,
): Promise<NotAdmitted | undefined> {
  const { args } = call;
  const snapshot = { ...position, updatedAt };
  const facts = workflow.factsOf(position, call.principal);
  const about = placed(
    { ...call, args: args.members, ...facts },
    { position, args: args.exactMembers },
  );
  const refusal = await askGuards(guards, about, { clock, deadlineMs: GUARDS_MS, onError });
  // A guard may have read one spelling of an argument, and the tool may read another.
  return (
    unclear(args, snapshot) ?? (refusal && { reason: 'guard', snapshot, words: refusal.words })
  );
}

/** Finds unclear arguments that the functions of the call's events will read, before it runs. */
export function unforeseen(
  { workflow }: GateConfig,
  binding: CallBinding,
  found: FsmSnapshot,
  asked: () => AskedCall,
): NotAdmitted | undefined {
  if (binding.sources.length === 0) return undefined;
  const { args, tool, principal } = asked();
  args.foresee(binding, { tool, ...workflow.factsOf(found, principal) });
  return unclear(args, found);
}

/**
 * Asks the guards about a run that is not claimed. Of a run that has not begun they are told what
 * it would begin with.
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

/** Refuses a call if the app's code has read an argument that another parser reads otherwise. */
export function unclear(
  { ambiguous, rounded }: AskedArguments,
  snapshot?: FsmSnapshot,
): NotAdmitted | undefined {
  const words =
    ambiguous === undefined
      ? rounded && roundedWords(rounded)
      : `the argument ${JSON.stringify(ambiguous)} must be spelled so, ` +
        'and stand there in no other letter case';
  return words === undefined ? undefined : { reason: 'arguments', snapshot, words };
}

function roundedWords({ name, double }: RoundedNumber): string {
  return `the number in ${JSON.stringify(name)} becomes ${double} where numbers are doubles`;
}

/** Asks the machine's own guards about the event of a success, if that is known already. */
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

/** A move that stays in its state, to save the loop shield's count. */
function staying({ workflow }: GateConfig, step: Step, position: Position): StepMove {
  const actions = workflow.dueActions(step.isFirst);
  const said = { event: null, outcome: 'refused', kind: 'guard', ...step.note } as const;
  return moveTo(workflow, position, { position, actions }, said);
}

/**
 * Gives the position with the call counted. Where the call is one too many, it moves the run to the
 * shield's fallback, and refuses the call.
 */
async function countCall(
  config: GateConfig,
  shield: LoopShield,
  step: Step,
  position: Position,
): Promise<Position | NotAdmitted> {
  const { tool, digest, key } = step;
  const count = shield.count(position, { tool, digest }, step.grantedAt);
  if (!count.isLoop) return count.position;
  const event = shield.fallbackEvent ?? LOOP;
  const said = { event, outcome: 'refused', kind: 'loop', ...step.note } as const;
  const fall = (from: Position): StepMove => {
    const { position: to, actions } = shield.fallBack(from);
    const due = config.workflow.dueActions(step.isFirst);
    return moveTo(config.workflow, from, { position: to, actions: [...due, ...actions] }, said);
  };
  let moved = fall(position);
  const status = await step.save(moved, KEEPS_KEY, ({ understood }) => {
    if (understood !== undefined) moved = fall(understood.position);
    return moved;
  });
  if (status !== 'committed') return { reason: 'unavailable' };
  const { calls } = count;
  tellLoop(shield, { ...key, tool, state: position.state, calls, max: shield.max }, config.onError);
  return { reason: 'loop', snapshot: { ...moved.snapshot, updatedAt: step.grantedAt }, moved };
}

/** A listener that fails does not stop the refusal. */
function tellLoop({ onLoop }: LoopShield, loop: Loop, onError: (error: unknown) => void): void {
  try {
    Promise.resolve(onLoop?.(loop)).catch(onError);
  } catch (error) {
    onError(error);
  }
}

export interface GuardOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** How long all guards of one call may take together, in milliseconds. */
  readonly deadlineMs: number;
  /** Told what a guard throws, that one took too long, or that one gave no answer. */
  readonly onError: (error: unknown) => void;
}

/** A guard did not let the call through. */
export interface GuardRefusal {
  /** The guard's own, if it gave some. */
  readonly words: string | undefined;
}

const TOO_LATE = Symbol('too late');

/**
 * Asks a call's guards, one after the other, until one refuses; `undefined` where none does. A
 * guard refuses by any answer but `true`, by throwing, and by missing the deadline.
 */
export async function askGuards(
  guards: readonly Guard[],
  call: GuardedCall,
  options: GuardOptions,
): Promise<GuardRefusal | undefined> {
  const { clock, deadlineMs, onError } = options;
  if (guards.length === 0) return undefined;
  const tool = JSON.stringify(call.tool);
  let stop = (): void => {};
  const deadline = new Promise<typeof TOO_LATE>((resolve) => {
    stop = clock.after(deadlineMs, () => resolve(TOO_LATE));
  });
  try {
    for (const guard of guards) {
      const answer: unknown = await Promise.race([ask(guard, call), deadline]);
      if (answer === true) continue;
      if (answer === TOO_LATE) {
        onError(new Error(`a guard of ${tool} took longer than ${deadlineMs} ms, so it refuses`));
      } else if (typeof answer !== 'string' && answer !== false) {
        onError(
          new Error(`a guard of ${tool} answered neither a boolean nor words, so it refuses`),
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

/** Nothing awaits a guard after the deadline: its rejection must not end the process. */
function ask(guard: Guard, call: GuardedCall): Promise<unknown> {
  const answer = Promise.resolve().then(() => guard(call));
  answer.catch(() => {});
  return answer;
}
