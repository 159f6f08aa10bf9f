/**
 * What the store cannot test of a claimed call: its state in a statechart, its arguments, the loop
 * shield's count, the guards. Lets go of the claim where the call is refused.
 */
import { isPrincipalRun } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';
import type { Run } from '../session/run.ts';
import { type CallUse, moveTo, type StepMove } from '../step/outcome.ts';
import type { Step } from '../step/step.ts';
import { KEEPS_KEY } from '../step/store-calls.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { Noted } from '../workflow/facts.ts';
import type { Loop, LoopShield } from '../workflow/loop-shield.ts';
import type { Position } from '../workflow/position.ts';
import { withRecorded } from '../workflow/stored.ts';
import type { GateConfig } from './config.ts';
import { type AskedCall, refusedByGuards, ruled, unforeseen } from './consult.ts';
import { decide, isStopped, type RefusedCall } from './decide.ts';
import { noteRead, Standing } from './standing.ts';

/** The trail's event where the loop shield moves a run to a state. */
const LOOP = 'loop';

/** A claimed call that is to be let through. */
interface Claimed {
  readonly run: Run;
  readonly step: Step;
  readonly binding: CallBinding;
  /** What guards are told of the call, made when something reads it. */
  readonly asked: () => AskedCall;
  /** What rules may ask of its arguments later. */
  readonly noted: Noted;
  /** The client may cancel its request while a guard is asked. */
  readonly request: { readonly cancelled: boolean };
}

/** A call that is let through: where its run stands, and what it uses up. */
export interface Admitted {
  readonly standing: Standing;
  /** The standing's, or with the call counted. */
  readonly position: Position;
  readonly use: CallUse | undefined;
}

/** Lets the call through, or says why it is refused. Throws nothing. */
export function admit(config: GateConfig, claimed: Claimed): MaybePromise<Admitted | RefusedCall> {
  const { run, step, binding, asked } = claimed;
  // The app's code may throw anywhere; a claim that it left behind would be renewed for ever.
  const fail = (error: unknown): Promise<RefusedCall> => {
    config.onError(error);
    return letGo(step, { reason: 'unavailable' });
  };
  try {
    if (step.understood === undefined) {
      config.onError(step.fault);
      noteRead(config.workflow, run.run, step.grantedAt, step.fault);
      return letGo(step, { reason: 'unreadable' });
    }
    const standing = Standing.ofStep(config, run, step, step.understood.position);
    // The store tests the states of a flat machine alone, and no `visible`.
    const reason = decide(standing, { tool: step.tool, binding });
    if (reason !== undefined) return letGo(step, { reason, standing });
    warnOfReset(config, claimed);
    const found = ruled(binding, standing, asked, claimed.noted);
    const rule = found !== undefined && 'reason' in found ? found : undefined;
    if (rule !== undefined && config.workflow.shield === undefined) return letGo(step, rule);
    const odd = unforeseen(binding, standing, asked);
    if (odd !== undefined) return letGo(step, odd);
    const use =
      found === undefined || 'reason' in found
        ? undefined
        : { ...found, grantedAt: config.clock.now() };
    if (config.workflow.shield !== undefined || binding.guards.length > 0)
      return countAndAsk(config, claimed, standing, rule).then(
        (admitted) => ('reason' in admitted ? admitted : { standing, position: admitted, use }),
        fail,
      );
    const refused = stoppedByMachine(standing, binding) ?? endedMeanwhile(claimed);
    if (refused !== undefined) return letGo(step, refused);
    return { standing, position: standing.position, use };
  } catch (error) {
    return fail(error);
  }
}

/** A client that begins a new session, conversation or handle begins without earlier calls. */
function warnOfReset(
  { workflow, warnOnce }: GateConfig,
  { run, step, binding: { demands = [] } }: Claimed,
): void {
  const bound = demands.find(({ limits, notAfter }) => limits.length + notAfter.length > 0);
  if (bound === undefined || isPrincipalRun(run.run)) return;
  const what = bound.limits.length > 0 ? 'a limit' : '"notAfter"';
  warnOnce(
    `tool ${showValue(workflow.keyOf(step.tool))} of workflow "${workflow.id}" has ${what}, and its run is ` +
      'none of a principal: a client that begins anew has a new run, which knows of no earlier ' +
      'call. Give sessionStore({ key: principalKey() }) where clients sign in.',
  );
}

async function countAndAsk(
  config: GateConfig,
  claimed: Claimed,
  standing: Standing,
  rule: RefusedCall | undefined,
): Promise<Position | RefusedCall> {
  const { step, binding, asked } = claimed;
  const { shield } = config.workflow;
  const counted =
    shield === undefined ? standing : await countCall(config, shield, claimed, standing);
  if (!(counted instanceof Standing)) return counted;
  const { position } = counted;
  const refused =
    rule ??
    stoppedByMachine(counted, binding) ??
    (binding.guards.length === 0
      ? undefined
      : await refusedByGuards(config, binding.guards, counted, asked()));
  if (refused !== undefined && shield !== undefined) {
    // A model may repeat a call that a guard refuses, so the shield counts it.
    const stays = (stands: Position): StepMove => staying(config, step, stands);
    await step.save(
      stays(position),
      KEEPS_KEY,
      ({ understood }) => understood && stays(withRecorded(position, understood.position)),
    );
    return refused;
  }
  const why = refused ?? endedMeanwhile(claimed);
  return why === undefined ? position : letGo(step, why);
}

function stoppedByMachine(standing: Standing, binding: CallBinding): RefusedCall | undefined {
  return isStopped(standing, binding) ? { reason: 'guard', standing } : undefined;
}

/** While a guard is asked, the client may cancel the call, or the step may take too long. */
function endedMeanwhile({ step, request }: Claimed): RefusedCall | undefined {
  if (request.cancelled) return { reason: 'cancelled' };
  return step.overran ? { reason: 'unavailable' } : undefined;
}

function letGo(step: Step, why: RefusedCall): Promise<RefusedCall> {
  return step.withdraw().then(() => why);
}

/** A move that stays in its state, to save the loop shield's count. */
function staying({ workflow }: GateConfig, step: Step, position: Position): StepMove {
  const actions = workflow.dueActions(step.isFirst);
  const said = { event: null, outcome: 'refused', kind: 'guard', ...step.note } as const;
  return moveTo(workflow, position, { position, actions }, said);
}

/**
 * Gives the run with the call counted. Where the call is one too many, it moves the run to the
 * shield's fallback, and refuses the call.
 */
async function countCall(
  config: GateConfig,
  shield: LoopShield,
  { run, step }: Claimed,
  { position, parts }: Standing,
): Promise<Standing | RefusedCall> {
  const { tool, digest, key } = step;
  const at = (stands: Position, when = parts): Standing => new Standing(config, run, stands, when);
  const count = shield.count(position, { tool, digest }, step.grantedAt);
  if (!count.isLoop) return at(count.position);
  const event = shield.fallbackEvent ?? LOOP;
  const said = { event, outcome: 'refused', kind: 'loop', ...step.note } as const;
  const fall = (from: Position): StepMove => {
    const { position: to, actions } = shield.fallBack(from, step.grantedAt);
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
  const standing = at(moved.snapshot, { ...parts, updatedAt: step.grantedAt });
  return { reason: 'loop', standing, moved };
}

/** A listener that fails does not stop the refusal. */
function tellLoop({ onLoop }: LoopShield, loop: Loop, onError: (error: unknown) => void): void {
  try {
    Promise.resolve(onLoop?.(loop)).catch(onError);
  } catch (error) {
    onError(error);
  }
}
