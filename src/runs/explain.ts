/**
 * Explains a gate: what it says of each tool at a position, and where a move would lead. Hides the
 * order in which a call is judged. It reads no store, calls no function of a binding, and saves
 * nothing.
 */
import { InterlockError } from '../basics/errors.ts';
import { rightNames } from '../basics/names.ts';
import type { RefusalReason } from '../basics/reasons.ts';
import { decide, OF_ANY_CALL, OF_MOVE, whyHidden } from '../gate/decide.ts';
import { eventOfHeld, failureOfHeld, moveOfHeld, ruledCallOfHeld } from '../gate/outside.ts';
import { Standing, statusOf } from '../gate/standing.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import { type Refusal, refusalFor } from '../workflow/advice.ts';
import { eventNamed, isChosen } from '../workflow/binding.ts';
import { bareContext, snapshotBehind } from '../workflow/envelope.ts';
import { bareCall, type Decided } from '../workflow/facts.ts';
import type { StateMachineGate } from '../workflow/gate.ts';
import type { Next } from '../workflow/position.ts';
import { partsToReport, partWords, retryOf } from '../workflow/rule-words.ts';
import { Together } from '../workflow/together.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { RunView } from './runs-options.ts';

/**
 * Where a run stands: what `runs.read()` returned, or a snapshot alone. Only `available` says which
 * tools a `visible` hides from the run's client. Only `unmovedForMs` says what time it is, for the
 * windows of rules and limits; without it, the snapshot's.
 */
export type ExplainedRun = Pick<RunView, 'snapshot'> &
  Partial<Pick<RunView, 'run' | 'claim' | 'unsettled' | 'available' | 'frozen' | 'unmovedForMs'>>;

/** What a model sees of one bound tool. */
export interface ExplainedTool {
  readonly tool: string;
  /** Whether it is in a list that hides what is not available. */
  readonly shown: boolean;
  /**
   * Why the gate would refuse a call. It may refuse a shown tool too: while a step is running or
   * held, or where the machine's own guards stop it. Absent where nothing known before the call
   * refuses it; a guard that reads arguments still may.
   */
  readonly refusal?: Refusal;
  /** The refusal in the words for a model. */
  readonly says?: string;
  /** The states that a success may lead to. Empty where the run stays. */
  readonly leadsTo: readonly string[];
  /** Whether the states that a call needs depend on its arguments, so that this is not all. */
  readonly isPartial: boolean;
}

/** What a gate says at a position. */
export interface Explained {
  /** The run's state, as its clients see it. */
  readonly state: string;
  /**
   * The explained position, as the gate understands it. Give it to {@link whatIf} as it is: its
   * context may hold more than the run's data.
   */
  readonly snapshot: FsmSnapshot;
  /** The shared data in it; for a statechart its context. */
  readonly context?: Json;
  readonly ended: boolean;
  /** Each bound tool, in binding order. */
  readonly tools: readonly ExplainedTool[];
  /** The events that the state handles, before any guard is asked. */
  readonly events: readonly string[];
  /**
   * When the run leaves its state by itself, by the clock that stamped the snapshot. Absent where
   * it is frozen.
   */
  readonly leavesAt?: number;
  /** The gate's `version`, where it has one. */
  readonly version?: number;
}

/**
 * What a gate says of each of its tools where a run stands, in the words of its refusals. It is for
 * an operator who asks why a model does not call a tool. It speaks for a gate alone on its route,
 * with default options, and of its bound tools alone. Ask it about one run, not about a list: the
 * paths of a statechart are worked out each time.
 *
 * @param at what `runs.read()` returned, or any `{ snapshot }`. Default: where each run begins
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where the gate does not understand the snapshot
 */
export function explain<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  at?: ExplainedRun,
): Explained {
  const workflow = gate.compile();
  const snapshot = understood(workflow, at);
  const standing = standingAt(workflow, snapshot, at);
  const { state } = standing;
  const leads = workflow.leads(standing.position);
  const tools = workflow.toolNames.map((tool) => ({
    tool,
    shown: whyHidden(standing, tool) === undefined,
    ...refusalOf(standing, tool),
    leadsTo: [...new Set(leads.get(tool)?.to.map((each) => each.state))],
    isPartial: workflow.matchAlways(tool) === undefined,
  }));
  const { leavesAt } = standing;
  const context = workflow.dataOf(snapshot);
  const { context: wrapped, ...stands } = snapshot;
  return {
    state,
    snapshot: { ...stands, ...bareContext(wrapped) },
    ...(context !== undefined && { context }),
    ended: workflow.hasEnded(state),
    tools,
    events: workflow.model.eventsIn(state),
    ...(leavesAt !== undefined && { leavesAt }),
    ...(workflow.version !== undefined && { version: workflow.version }),
  };
}

/** @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` */
function understood(workflow: Workflow, at: ExplainedRun | undefined): FsmSnapshot {
  const found = { ...workflow.start, updatedAt: 0, ...(at && snapshotBehind(at.snapshot)) };
  return { ...found, ...workflow.rules.standAt(workflow.adopt(found), timeOf(found, at)) };
}

/** When the run was looked at, by the clock that stamped its snapshot. */
function timeOf({ updatedAt }: FsmSnapshot, at: ExplainedRun | undefined): number {
  return updatedAt + (at?.unmovedForMs ?? 0);
}

/** Its position, as its clients see it. `available` is what the app's `visible` said. */
function standingAt(
  workflow: Workflow,
  { updatedAt, version = 0, ...position }: FsmSnapshot,
  at: ExplainedRun | undefined,
  whenEnded?: 'keep',
): Standing {
  const rules = { workflow, whenEnded, onError: () => {} };
  const viewpoint = { run: at?.run ?? '', actor: undefined };
  const { claim, unsettled, frozen } = at ?? {};
  const now = updatedAt + (at?.unmovedForMs ?? 0);
  const parts = { updatedAt, version, claim, unsettled, frozen, now };
  const stood = new Standing(rules, viewpoint, position, parts);
  const isMoved = stood.state !== position.state;
  const seen = (isMoved ? undefined : at?.available) ?? workflow.available(stood.state);
  return new Standing(rules, viewpoint, position, { ...parts, seen });
}

function refusalOf(
  standing: Standing,
  tool: string,
): Pick<ExplainedTool, 'refusal' | 'says'> | undefined {
  const reason = decide(standing, { tool }, OF_ANY_CALL)?.reason as RefusalReason | undefined;
  if (reason === undefined) return undefined;
  const { workflow, position, state, parts } = standing;
  const { isOrder } = workflow;
  const found = standing.partsAgainst(tool);
  const facts = found.length === 0 ? {} : { parts: partsToReport(found), ...retryOf(found) };
  const { available } = standing;
  const refusal = { workflow: workflow.id, state, tool, available, reason, ...facts };
  const rules = partWords(found, reason === 'state');
  if (reason !== 'state')
    return { refusal, says: refusalFor(refusal, { heldTool: parts.claim?.tool, isOrder, rules }) };
  // The state shows it, and a `visible` hides it from this client: no path changes that.
  if (workflow.isVisible(tool, state))
    return { refusal, says: refusalFor(refusal, { foreseen: false, isOrder, rules }) };
  const states = workflow.matchAlways(tool)?.states ?? workflow.whereabouts(tool)?.states ?? [];
  const stand = { workflow, position, beginsAnew: false };
  const way = new Together([workflow]).wayTo([[states]], [stand]);
  const { path, foreseen, waits = [] } = way;
  const events = path === undefined ? workflow.outsideEvents(state) : waits;
  const withPath = { ...refusal, path, ...(events.length > 0 && { events }) };
  return { refusal: withPath, says: refusalFor(withPath, { foreseen, isOrder, rules }) };
}

/** What an outcome would do with a held run. */
export interface HeldOutcome {
  readonly outcome: 'succeeded' | 'failed';
  /**
   * The event that it sends; `null` where it sends none, and the run stays. Absent where the event
   * depends on the call's arguments or its result: then give `resolve()` one.
   */
  readonly event?: string | null;
  /** Where it leads. Absent where that depends on the call. */
  readonly leadsTo?: string;
}

/** What `resolve()` would do with a held run. Empty where the run is not held. */
export function heldOutcomes<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  { snapshot, claim }: ExplainedRun,
): readonly HeldOutcome[] {
  if (claim === undefined || statusOf(claim) !== 'held') return [];
  const workflow = gate.compile();
  return (['succeeded', 'failed'] as const).map((outcome) => {
    if (outcome === 'failed' && failureOfHeld(workflow, claim.tool, snapshot) !== undefined)
      return { outcome, event: null, leadsTo: snapshot.state };
    let event: string | null;
    try {
      event = eventOfHeld(workflow, claim, snapshot.state, outcome);
    } catch {
      return { outcome };
    }
    try {
      const call = ruledCallOfHeld(workflow, claim, outcome, snapshot.updatedAt, snapshot);
      const leadsTo = moveOfHeld(workflow, snapshot, event, {}, call).trail.to;
      return { outcome, event, leadsTo };
    } catch {
      // The machine's code needs the payload of the event.
      return { outcome, event };
    }
  });
}

/** A move that is only thought of. */
export type WhatIfMove =
  /**
   * A call of the tool ends like that. `event`: what it sends, where that depends on the call's
   * arguments or its result. Default: the event that the tool is bound to.
   */
  | {
      readonly tool: string;
      readonly outcome: 'succeeded' | 'failed';
      readonly event?: string | undefined;
    }
  /** An event comes from outside. */
  | { readonly event: string; readonly payload?: Json | undefined }
  /** The time limit of the state is over. */
  | { readonly deadline: true };

/** Where such a move leads. */
export interface WhatIf {
  /**
   * `moved`: to another state. `stayed`: in the same state. `unhandled`: the state does not know
   * the event, or has no deadline. `refused`: as {@link refusal} says, which is absent for a move
   * from outside: the run is frozen or held. `choose-event`: the event depends on the call, so give
   * one.
   */
  readonly result: 'moved' | 'stayed' | 'unhandled' | 'refused' | 'choose-event';
  /** Where the run would stand. Give it as `{ snapshot }` to go on from there. */
  readonly snapshot: FsmSnapshot;
  /** The event that was sent. */
  readonly event?: string;
  readonly refusal?: Refusal;
  /** The refusal in the words for a model. */
  readonly says?: string;
  /** The names of a statechart's actions, none of which is run. */
  readonly actions: readonly string[];
}

/**
 * Where a move would lead. It changes no run and calls no function of a binding. It runs a
 * statechart's own guards and assignments, which are pure.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for a tool that is not bound,
 * `ERR_INTERLOCK_SNAPSHOT` as {@link explain}; also what a statechart's own code throws
 */
export function whatIf<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  at: ExplainedRun | undefined,
  move: WhatIfMove,
): WhatIf {
  const workflow = gate.compile();
  const snapshot = understood(workflow, at);
  const stay = (result: WhatIf['result']): WhatIf => ({ result, snapshot, actions: [] });
  const standing = standingAt(workflow, snapshot, at, 'keep');
  const { now } = standing.parts;
  const from = { ...snapshot, ...standing.position };
  if (!('tool' in move) && decide(standing, {}, OF_MOVE)) return stay('refused');
  if ('deadline' in move) {
    const next = workflow.overdue(snapshot, workflow.leavesAt(snapshot) ?? 0);
    return next === undefined ? stay('unhandled') : arriveAt(snapshot, next, 'after');
  }
  if (!('tool' in move)) {
    const facts = workflow.isOrder ? bareCall(move.event, now) : undefined;
    const next = workflow.next(from, move.event, move.payload, facts);
    return next.handled ? arriveAt(from, next, move.event, now) : stay('unhandled');
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
  const refused = refusalOf(standing, tool);
  if (refused !== undefined) return { ...stay('refused'), ...refused };
  const counted = outcome === 'failed' ? failureOfHeld(workflow, tool, snapshot) : undefined;
  if (counted !== undefined) {
    const { updatedAt, version = 0, ...position } = counted;
    return { ...stay('stayed'), snapshot: { ...position, updatedAt, version: version + 1 } };
  }
  const source = binding?.eventIn(snapshot.state, outcome === 'failed' ? 'failure' : 'success');
  const isOpen = binding === undefined || isChosen(source);
  const event = isOpen ? move.event : eventNamed(source);
  if (event === undefined && isOpen) return stay('choose-event');
  const call = outcome === 'succeeded' ? successOf(standing, tool) : undefined;
  if (event === undefined) {
    if (call === undefined || workflow.rules.ledger === undefined) return stay('stayed');
    const { version = 0 } = snapshot;
    const stands = { ...workflow.rules.decided(from, call), updatedAt: now, version: version + 1 };
    return { ...stay('stayed'), snapshot: stands };
  }
  const fallsTo = workflow.isOrder ? bareCall(event, now) : undefined;
  const next = workflow.next(from, event, undefined, call ?? fallsTo);
  return next.handled ? arriveAt(from, next, event, now) : { ...stay('unhandled'), event };
}

/** A success of the tool, of whose arguments and result nothing is known. */
function successOf({ workflow, past, parts }: Standing, tool: string): Decided {
  const binding = workflow.matchAlways(tool);
  const verdict = binding && workflow.rules.judge(binding, past, undefined);
  const uses = verdict?.allows === true ? verdict.uses : [];
  return { ...bareCall(workflow.keyOf(tool), parts.now), uses };
}

/** @param at when it makes the move */
function arriveAt(
  { version = 0, updatedAt }: FsmSnapshot,
  { position, changed, actions }: Next,
  event: string,
  at = updatedAt,
): WhatIf {
  return {
    result: changed ? 'moved' : 'stayed',
    snapshot: { ...position, updatedAt: at, version: version + 1 },
    event,
    actions: actions.map(({ type }) => type),
  };
}
