/**
 * What a gate would say: of each tool where a run stands, and of a move that nobody makes. Hides the
 * order in which a call is judged. It asks no store and no function of a binding, and saves nothing.
 */
import { InterlockError } from './errors.ts';
import { eventOfHeld, failureOfHeld, moveOfHeld } from './gate/outside.ts';
import { statusOf } from './gate/stands.ts';
import { rightNames } from './names.ts';
import type { RunView } from './runs-options.ts';
import { shownPosition } from './step/outcome.ts';
import type { FsmSnapshot, Json } from './stores/store.ts';
import { type Refusal, refusalFor } from './workflow/advice.ts';
import { eventNamed, isChosen } from './workflow/binding.ts';
import type { CallBinding } from './workflow/bound-tools.ts';
import type { StateMachineGate } from './workflow/gate.ts';
import type { Next } from './workflow/position.ts';
import { Together } from './workflow/together.ts';
import type { Workflow } from './workflow/workflow.ts';

/**
 * Where a run stands: what `runs.read()` returned, or a snapshot alone. Only with `available` is it
 * known which tools a `visible` hides from the run's own client.
 */
export type ExplainedRun = Pick<RunView, 'snapshot'> &
  Partial<Pick<RunView, 'run' | 'claim' | 'available'>>;

/** What a model gets of one bound tool. */
export interface ExplainedTool {
  readonly tool: string;
  /** Whether a list shows it that hides what is not available. */
  readonly shown: boolean;
  /**
   * Why a call of it would be refused. One that is shown may be refused too: while a step is running
   * or held, or where the machine's own guards stop it. Absent where nothing refuses it that is
   * known before the call; a guard that reads arguments may.
   */
  readonly refusal?: Refusal;
  /** The refusal in the words that a model is given. */
  readonly says?: string;
  /** The states that a success may lead to. Empty where it leads nowhere else. */
  readonly leadsTo: readonly string[];
  /** Whether what a call needs depends on its arguments, so that only its kind is told of. */
  readonly isPartial: boolean;
}

/** What a gate says of a position. */
export interface Explained {
  /** Where the run stands for its clients. */
  readonly state: string;
  /** What was explained, as the gate understands it. */
  readonly snapshot: FsmSnapshot;
  /** The shared data in it; for a statechart its context. */
  readonly context?: Json;
  readonly ended: boolean;
  /** Each bound tool, in binding order. */
  readonly tools: readonly ExplainedTool[];
  /** The events that the state can handle, as far as the state alone can tell. */
  readonly events: readonly string[];
  /** When the run leaves its state by itself, on the clock that stamped the snapshot. */
  readonly leavesAt?: number;
  /** The gate's `version`, where it has one. */
  readonly version?: number;
}

/**
 * What a gate says of each of its tools where a run stands, in the words of its refusals: for an
 * operator who asks why a model does not call one. As a gate that stands alone on its route, with
 * its default options, says it. A flat machine's paths are worked out once, others each time: ask
 * of one run, and not of a list.
 *
 * @param at what `runs.read()` returned, or any `{ snapshot }`. Default: where every run begins.
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where the gate does not understand the snapshot
 */
export function explain(gate: Pick<StateMachineGate, 'compile'>, at?: ExplainedRun): Explained {
  const workflow = gate.compile();
  const found = { ...workflow.start, updatedAt: 0, ...at?.snapshot };
  const snapshot = { ...found, ...workflow.adopt(found) };
  const position = shownPosition({ workflow, whenEnded: undefined }, at?.run ?? '', snapshot);
  const { state } = position;
  const isMoved = state !== snapshot.state;
  const available = (isMoved ? undefined : at?.available) ?? workflow.available(state);
  const about = { position, available, claim: at?.claim };
  const tools = workflow.toolNames.map((tool) => explainTool(workflow, tool, about));
  const leavesAt = workflow.leavesAt(snapshot);
  const context = workflow.dataOf(snapshot);
  return {
    state,
    snapshot,
    ...(context !== undefined && { context }),
    ended: workflow.hasEnded(state),
    tools,
    events: workflow.eventsIn(state),
    ...(leavesAt !== undefined && snapshot.updatedAt > 0 && { leavesAt }),
    ...(workflow.version !== undefined && { version: workflow.version }),
  };
}

type Position = Pick<FsmSnapshot, 'state' | 'context'>;

/** What a tool is explained of. */
interface About {
  readonly position: Position;
  /** The tools that the client sees there. */
  readonly available: readonly string[];
  readonly claim: ExplainedRun['claim'];
}

function explainTool(workflow: Workflow, tool: string, about: About): ExplainedTool {
  const binding = workflow.matchAlways(tool);
  const leads = workflow.leads(about.position).get(tool);
  return {
    tool,
    shown: about.available.includes(tool),
    ...refusalOf(workflow, tool, binding, about),
    leadsTo: [...new Set(leads?.to.map((each) => each.state))],
    isPartial: binding === undefined,
  };
}

/** In the order in which a call is judged: the run's claim first, where it needs one. */
function refusalOf(
  workflow: Workflow,
  tool: string,
  /** `undefined` where that depends on the arguments. */
  binding: CallBinding | undefined,
  { position, available, claim }: About,
): Pick<ExplainedTool, 'refusal' | 'says'> | undefined {
  const { state } = position;
  const { isOrder } = workflow;
  const facts = { workflow: workflow.id, state, tool, available };
  const status = statusOf(claim);
  const needsClaim = binding?.moves !== false || workflow.shield !== undefined;
  if (status !== 'idle' && needsClaim) {
    const refusal = { ...facts, reason: status === 'held' ? 'held' : 'busy' } as const;
    return { refusal, says: refusalFor(refusal, { heldTool: claim?.tool }) };
  }
  if (!available.includes(tool)) {
    const refusal = { ...facts, reason: 'state' } as const;
    // Where the state shows it, this client does not see it: no way is known that changes that.
    if (workflow.isVisible(tool, state))
      return { refusal, says: refusalFor(refusal, { foreseen: false, isOrder }) };
    const states = binding?.states ?? workflow.whereabouts(tool)?.states ?? [];
    const stand = { workflow, position, beginsAnew: false };
    const { path, foreseen } = new Together([workflow]).wayTo([[states]], [stand]);
    const withPath = { ...refusal, path };
    return { refusal: withPath, says: refusalFor(withPath, { foreseen, isOrder }) };
  }
  if (binding === undefined || !isStopped(workflow, position, binding)) return undefined;
  const refusal = { ...facts, reason: 'guard' } as const;
  return { refusal, says: refusalFor(refusal) };
}

/** A guard that throws refuses. */
function isStopped(workflow: Workflow, position: Position, binding: CallBinding): boolean {
  try {
    return workflow.isStopped(position, binding);
  } catch {
    return true;
  }
}

/** What a held run's outcome would do. */
export interface HeldOutcome {
  readonly outcome: 'succeeded' | 'failed';
  /**
   * The event that it sends; `null` where it sends none, and the run stays. Absent where that
   * depends on the call's arguments or its result: `resolve()` must be given one then.
   */
  readonly event?: string | null;
  /** Where it leads; absent where that cannot be told without the call. */
  readonly leadsTo?: string;
}

/** What `resolve()` would do with a run that is held. Empty where it is not. */
export function heldOutcomes(
  gate: Pick<StateMachineGate, 'compile'>,
  { snapshot, claim }: ExplainedRun,
): readonly HeldOutcome[] {
  if (claim === undefined || statusOf(claim) !== 'held') return [];
  const workflow = gate.compile();
  return (['succeeded', 'failed'] as const).map((outcome) => {
    if (outcome === 'failed' && failureOfHeld(workflow, claim.tool, snapshot) !== undefined)
      return { outcome, event: null, leadsTo: snapshot.state };
    let event: string | null;
    try {
      event = eventOfHeld(workflow, claim.tool, snapshot.state, outcome);
    } catch {
      return { outcome };
    }
    try {
      const leadsTo = moveOfHeld(workflow, snapshot, event, {}).trail.to;
      return { outcome, event, leadsTo };
    } catch {
      // Code of the machine that needs what came with the event.
      return { outcome, event };
    }
  });
}

/** A move that nobody makes. */
export type WhatIfMove =
  /**
   * A tool is called and comes out so. `event`: the one it sends, where that depends on the call's
   * arguments or its result. Default: what the tool is bound to.
   */
  | {
      readonly tool: string;
      readonly outcome: 'succeeded' | 'failed';
      readonly event?: string | undefined;
    }
  /** An event comes from outside. */
  | { readonly event: string; readonly payload?: Json | undefined }
  /** The time of the state is over. */
  | { readonly deadline: true };

/** Where such a move leads. */
export interface WhatIf {
  /**
   * `moved`: to another state. `stayed`: the same state. `unhandled`: the state does not know the
   * event, or has no deadline. `refused`: as {@link refusal} says. `choose-event`: which event it
   * sends depends on the call; give one.
   */
  readonly result: 'moved' | 'stayed' | 'unhandled' | 'refused' | 'choose-event';
  /** Where the run would stand: give it as `{ snapshot }` to go on from there. */
  readonly snapshot: FsmSnapshot;
  /** The event that was sent. */
  readonly event?: string;
  readonly refusal?: Refusal;
  /** The refusal in the words that a model is given. */
  readonly says?: string;
  /** What a statechart asks to be done, by name. Nothing of it is done. */
  readonly actions: readonly string[];
}

/**
 * Where a move would lead. It touches no run and calls no function of a binding; a statechart's own
 * guards and assignments run, which are pure.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for a tool that is not bound,
 * `ERR_INTERLOCK_SNAPSHOT` as {@link explain}; and whatever a statechart's own code throws
 */
export function whatIf(
  gate: Pick<StateMachineGate, 'compile'>,
  at: ExplainedRun | undefined,
  move: WhatIfMove,
): WhatIf {
  const workflow = gate.compile();
  const found = { ...workflow.start, updatedAt: 0, ...at?.snapshot };
  const snapshot = { ...found, ...workflow.adopt(found) };
  const stay = (result: WhatIf['result']): WhatIf => ({ result, snapshot, actions: [] });
  if ('deadline' in move) {
    const next = workflow.overdue(snapshot, workflow.leavesAt(snapshot) ?? 0);
    return next === undefined ? stay('unhandled') : arriveAt(snapshot, next, 'after');
  }
  if (!('tool' in move)) {
    const next = workflow.next(snapshot, move.event, move.payload);
    return next.handled ? arriveAt(snapshot, next, move.event) : stay('unhandled');
  }
  const { tool, outcome } = move;
  if (!workflow.isBound(tool)) {
    const message = `whatIf(): ${JSON.stringify(tool)} is no tool of workflow "${workflow.id}"`;
    throw new InterlockError(
      'ERR_INTERLOCK_BINDING',
      `${message}, ${rightNames(tool, workflow.toolNames)}`,
    );
  }
  const binding = workflow.matchAlways(tool);
  const available = at?.available ?? workflow.available(snapshot.state);
  const refused = refusalOf(workflow, tool, binding, {
    position: snapshot,
    available,
    claim: at?.claim,
  });
  if (refused !== undefined) return { ...stay('refused'), ...refused };
  const counted = outcome === 'failed' ? failureOfHeld(workflow, tool, snapshot) : undefined;
  if (counted !== undefined) {
    const { updatedAt, version = 0, ...position } = counted;
    return { ...stay('stayed'), snapshot: { ...position, updatedAt, version: version + 1 } };
  }
  const source = binding?.eventIn(snapshot.state, outcome === 'failed' ? 'failure' : 'success');
  const isOpen = binding === undefined || isChosen(source);
  const event = isOpen ? move.event : eventNamed(source);
  if (event === undefined) return stay(isOpen ? 'choose-event' : 'stayed');
  const next = workflow.next(snapshot, event);
  return next.handled ? arriveAt(snapshot, next, event) : { ...stay('unhandled'), event };
}

function arriveAt(
  { version = 0, updatedAt }: FsmSnapshot,
  { position, changed, actions }: Next,
  event: string,
): WhatIf {
  return {
    result: changed ? 'moved' : 'stayed',
    snapshot: { ...position, updatedAt, version: version + 1 },
    event,
    actions: actions.map(({ type }) => type),
  };
}
