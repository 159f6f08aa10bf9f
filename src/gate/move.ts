import type { Saving } from '../session/step.ts';
import type { TrailDraft } from '../stores/store.ts';
import { AskedArguments } from '../workflow/asked-arguments.ts';
import type { AnyEventSource, FailedCall, SucceededCall, ToolResult } from '../workflow/binding.ts';
import type { CallBinding } from '../workflow/bound-tools.ts';
import type { FsmAction, Next, Position } from '../workflow/position.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** What a commit saves: the next position, and the trail entry that says how it was reached. */
export interface Move extends Saving {
  /** What the machine asks to be done once that is saved. */
  readonly actions: readonly FsmAction[];
}

/** Where the outcomes of one call lead. */
export interface Moves {
  /** Where the call found the run. */
  readonly from: Position;
  readonly origin: CallOrigin;
  /**
   * Where its success leads. An event that the state does not handle leads nowhere, and is no
   * error. Nor does a success whose move cannot be worked out, which is told to `onError`: the tool
   * ran.
   *
   * @throws Error where it depends on an argument that can be read in two ways. So does `failed()`.
   */
  succeeded(result: ToolResult): Move;
  /** The same before there is a result. @throws Error where the event depends on it */
  succeedsAnyway(): Move;
  /** Nowhere. What the run carries along is saved all the same. */
  stays(): Move;
  /** The same from another position, whose state is the same one. */
  at(position: Position): Moves;
  /** Where its failure leads; `undefined` where it sends nothing. */
  failed(call: Pick<FailedCall, 'result' | 'error'>): Move | undefined;
}

/** What the moves of a call are worked out from, beside where it found the run. Plain data. */
export interface CallOrigin {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly actor: string | undefined;
  /** Whether nothing of the run was committed before. */
  readonly isFirst: boolean;
}

/** A call as its moves depend on it. */
export interface MovingCall extends CallOrigin {
  readonly onError: (error: unknown) => void;
}

/**
 * Of a call that ran, a function of the app has read an argument that the upstream may have read
 * otherwise. Where it leads is not to be guessed: its outcome is unknown.
 */
class UnclearArguments extends Error {
  constructor(tool: string, argument: string) {
    super(
      `the arguments of ${JSON.stringify(tool)} have ${JSON.stringify(argument)} in another letter case, and what its outcome sends depends on it`,
    );
  }
}

/** A move to where something led. */
export function moveTo(
  workflow: Pick<Workflow, 'hasEnded'>,
  from: string,
  { position, actions }: Pick<Next, 'position' | 'actions'>,
  said: Omit<TrailDraft, 'from' | 'to'>,
): Move {
  const trail = { from, to: position.state, ...said };
  return { snapshot: { ...position }, trail, ended: workflow.hasEnded(position.state), actions };
}

export function movesOf(
  workflow: Workflow,
  binding: Pick<CallBinding, 'eventIn'>,
  from: Position,
  call: MovingCall,
): Moves {
  const { tool, args, actor, isFirst, onError } = call;
  const asked = new AskedArguments(args);
  const due = workflow.dueActions(isFirst);
  const success = binding.eventIn(from.state);
  const failure = binding.eventIn(from.state, 'failure');

  const by = { tool, ...(actor === undefined ? {} : { actor }) };
  const stay = (): Move =>
    moveTo(workflow, from.state, { position: from, actions: due }, { event: null, ...by });
  const send = (source: AnyEventSource, outcome: SucceededCall | FailedCall): Move | undefined => {
    const sent = workflow.eventFrom(source, outcome);
    if (asked.ambiguous !== undefined) throw new UnclearArguments(tool, asked.ambiguous);
    if (sent === undefined) return undefined;
    const { type, payload } = sent;
    const { position, actions } = workflow.next(from, type, payload);
    const said = { event: type, ...by, ...(payload === undefined ? {} : { payload }) };
    return moveTo(workflow, from.state, { position, actions: [...due, ...actions] }, said);
  };
  const trySend = (
    source: AnyEventSource | undefined,
    outcome: SucceededCall | FailedCall,
  ): Move | undefined => {
    if (source === undefined) return undefined;
    try {
      return send(source, outcome);
    } catch (error) {
      if (error instanceof UnclearArguments) throw error;
      onError(error);
      return undefined;
    }
  };

  return {
    from,
    origin: { tool, args, actor, isFirst },
    stays: stay,
    at: (position) => movesOf(workflow, binding, position, call),
    succeeded: (result) => trySend(success, { args: asked.members, result }) ?? stay(),
    succeedsAnyway() {
      if (typeof success === 'function')
        throw new Error(
          `what a success of ${JSON.stringify(tool)} sends depends on its result, which is not there yet`,
        );
      return (
        (success === undefined ? undefined : send(success, { args: asked.members, result: {} })) ??
        stay()
      );
    },
    failed: (outcome) => trySend(failure, { args: asked.members, ...outcome }),
  };
}
