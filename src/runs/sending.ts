/**
 * What an app sends to a run: an event, or a fact from outside. Hides that the one is a step, which
 * waits for its turn, and that the other is recorded beside whatever step is under way.
 */
import { configError, InterlockError } from '../basics/errors.ts';
import { newToken } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';
import { moveFromOutside, type NotMoved, recordFromOutside } from '../gate/outside.ts';
import { ownStep } from '../session/current-step.ts';
import { ownerOf } from '../session/run-key.ts';
import { moveTo, type StepMove } from '../step/outcome.ts';
import { parseEvent } from '../workflow/binding.ts';
import type { Position } from '../workflow/position.ts';
import type { RunsMover } from './runs-mover.ts';
import { parseSend, type SendOptions, type Sent } from './runs-options.ts';

/** As `runs.send()`. */
export async function sendTo(
  mover: RunsMover,
  run: string,
  event: string,
  options: SendOptions | undefined,
): Promise<Sent> {
  const { workflow } = mover;
  const name = workflow.eventOf(parseEvent('send()', event));
  const { actor, payload, step, arguments: args, result, by } = parseSend(options);
  const isFact = workflow.outside.has(name);
  if (by !== undefined && !isFact)
    throw configError(`send(): by: the gate's "outside" has no ${showValue(event)}`);
  if (!isFact && ownStep('send()', run, step, mover) !== undefined)
    throw new Error(
      'send() was called inside a step of the same run: bind the event to its call instead',
    );
  let lacks: readonly string[] = [];
  const change = (from: Position, isFirst: boolean, at: number): StepMove | undefined => {
    const call = workflow.rules.reportedCall(name, run, at, { args, result, by });
    lacks = workflow.rules.lacking(call);
    const { position, handled, actions } = workflow.next(from, name, payload, call);
    if (!handled) return undefined;
    const due = workflow.dueActions(isFirst);
    const reached = { position, actions: [...due, ...actions] };
    const said = {
      ...(actor !== undefined && { actor }),
      ...(payload !== undefined && { payload }),
    };
    return moveTo(workflow, from, reached, { event: name, ...said });
  };
  if (isFact) assertCompared(mover, run, name, { args, result });
  const what = { name: `send ${name}`, payload: [payload ?? null, args ?? null, result ?? null] };
  const moved = isFact
    ? await recordFromOutside(mover, run, { ...what, create: ownerOf(run) }, newToken(), change)
    : await moveFromOutside(mover, run, what, change);
  if (moved === 'unchanged') return { sent: false, reason: 'unhandled' };
  if (typeof moved === 'string') return { sent: false, reason: moved satisfies NotMoved };
  const { from, to } = moved.trail;
  return { sent: true, changed: from !== to, state: to, ...(lacks.length > 0 && { lacks }) };
}

/** A fact that no rule can compare would count for nothing, and its sender would wait in vain. */
function assertCompared(
  { workflow: { id, rules } }: RunsMover,
  run: string,
  name: string,
  given: Pick<ReturnType<typeof parseSend>, 'result'> & { readonly args: SendOptions['arguments'] },
): void {
  const missing = rules.lacking(rules.reportedCall(name, run, 0, given), true);
  if (missing.length === 0) return;
  throw new InterlockError(
    'ERR_INTERLOCK_EVENT',
    `send(): rules of workflow "${id}" compare ${missing.join(' and ')} of ${showValue(name)}: ` +
      'give it, or the fact would count for nothing',
  );
}
