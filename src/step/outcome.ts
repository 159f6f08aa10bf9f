import type { Events } from '../events.ts';
import { isPrincipalRun } from '../ids.ts';
import type {
  CallNote,
  ClaimView,
  CommitRequest,
  MoveDraft,
  RunKey,
  TrailDraft,
  WorkflowRecord,
} from '../stores/store.ts';
import type { AnyEventSource, FailedCall, ToolResult } from '../workflow/binding.ts';
import { AskedArguments, type CallBinding } from '../workflow/bound-tools.ts';
import type { FsmAction, Next, Position } from '../workflow/position.ts';
import { countFailure } from '../workflow/stored.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** What a commit saves: the next position, and the trail entry that says how it was reached. */
export interface StepMove extends Pick<CommitRequest, 'snapshot' | 'trail' | 'ended'> {
  /** What the machine asks to be done once that is saved. */
  readonly actions: readonly FsmAction[];
  /** Whether the run begins anew by it. */
  readonly isRestart?: boolean;
  /**
   * Whether the run's data are others than before, or may be. Only told where clients see more or
   * less by them.
   */
  readonly changesData?: boolean;
}

/** What a forwarded call came to, read off its response. */
export interface Outcome {
  readonly kind: 'succeeded' | 'failed' | 'input_required' | 'unknown';
  /** The tool's, where there is one. */
  readonly result: ToolResult | undefined;
  /** The JSON-RPC error in its place. */
  readonly error: unknown;
}

/** A step as its outcome depends on it. */
export interface Settling {
  readonly moves: Moves;
  /** Its handler changed the run's data, or its call was counted: that is saved in any case. */
  readonly isUpdated: boolean;
  /** Its handler saved the success itself, in a transaction that it may still have rolled back. */
  readonly savedByHandler: boolean;
}

/**
 * What becomes of a step that came to this. A success is always saved, also one whose event leads
 * nowhere.
 *
 * @throws Error where the move depends on an argument that can be read in two ways
 */
export function settle(
  { kind, result, error }: Outcome,
  { moves, isUpdated, savedByHandler }: Settling,
): StepMove | 'release' | 'unsettled' {
  if (kind === 'unknown') return 'unsettled';
  if (kind === 'succeeded') return moves.succeeded(result ?? {});
  // The handler's transaction may have been committed all the same: then the success is saved.
  if (savedByHandler) return 'release';
  const failed = result === undefined ? { error } : { result };
  const move = kind === 'failed' ? moves.failed(failed) : undefined;
  return move ?? (isUpdated ? moves.stays(saidOf(kind, failed)) : 'release');
}

/** What the trail says of a call that was let go without a move. */
export function entryOf({ kind, result, error }: Outcome, moves: Moves): TrailDraft {
  return moves.attempted(saidOf(kind, result === undefined ? { error } : { result }));
}

function saidOf(kind: Outcome['kind'], ended: Ended): Said {
  return kind === 'failed' ? failure(ended) : { outcome: kind };
}

/** What the moves of a call are worked out from, beside where it found the run. Plain data. */
export interface CallOrigin {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** What the trail says of the call. */
  readonly note: CallNote;
  /** Whether nothing of the run was committed before. */
  readonly isFirst: boolean;
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
  workflow: Workflow,
  from: Position,
  { position, actions }: Pick<Next, 'position' | 'actions'>,
  said: Omit<MoveDraft, 'from' | 'to'>,
): StepMove {
  const { state: to } = position;
  const trail = { from: from.state, to, workflowVersion: workflow.version, ...said };
  const move = { snapshot: position, trail, ended: workflow.hasEnded(to), actions };
  if (!workflow.hides) return move;
  const [before, after] = [from, position].map((each) => JSON.stringify(workflow.dataOf(each)));
  return { ...move, changesData: before !== after };
}

/** How a call ended, as the functions of its bindings are told beside its arguments. */
type Ended = Pick<FailedCall, 'result' | 'error'>;

/** How a call ended, as the trail says it. */
type Said = Pick<TrailDraft, 'outcome' | 'kind'>;

const SUCCEEDED: Said = { outcome: 'succeeded' };

function failure({ result }: Ended): Said {
  return { outcome: 'failed', kind: result === undefined ? 'rpc_error' : 'tool_error' };
}

/** What a binding says of where its calls lead. */
export type MovingBinding = Pick<CallBinding, 'eventIn' | 'retriesIn'>;

/** Where the outcomes of one call lead. */
export class Moves {
  /** Where the call found the run. */
  readonly from: Position;
  /** The same before the call's handler changed the run's data. */
  readonly before: Position;
  readonly origin: CallOrigin;
  readonly #workflow: Workflow;
  readonly #binding: MovingBinding;
  readonly #asked: AskedArguments;
  readonly #onError: (error: unknown) => void;

  constructor(
    { workflow, onError }: { workflow: Workflow; onError: (error: unknown) => void },
    binding: MovingBinding,
    from: Position,
    origin: CallOrigin,
    before = from,
  ) {
    this.#workflow = workflow;
    this.#binding = binding;
    this.#asked = new AskedArguments(origin.args);
    this.#onError = onError;
    this.before = before;
    this.from = from;
    this.origin = origin;
  }

  /** The same from another position, whose state is the same one. */
  at(position: Position): Moves {
    const own = { workflow: this.#workflow, onError: this.#onError };
    return new Moves(own, this.#binding, position, this.origin, this.before);
  }

  /**
   * Where its success leads. An event that the state does not handle leads nowhere, and is no
   * error. Nor is a move that cannot be worked out, which `onError` is told of: the tool ran.
   *
   * @throws Error where it depends on an argument that can be read in two ways. So does `failed()`.
   */
  succeeded(result: ToolResult): StepMove {
    const source = this.#binding.eventIn(this.from.state);
    return this.#trySend(source, { result }, SUCCEEDED) ?? this.stays(SUCCEEDED);
  }

  /** The same before there is a result. @throws Error where the event depends on it */
  succeedsAnyway(): StepMove {
    const source = this.#binding.eventIn(this.from.state);
    if (typeof source === 'function' && source.sends === undefined)
      throw new Error(
        `what a success of ${JSON.stringify(this.origin.tool)} sends depends on its result, which is not there yet`,
      );
    const sent = source === undefined ? undefined : this.#send(source, { result: {} }, SUCCEEDED);
    return sent ?? this.stays(SUCCEEDED);
  }

  /**
   * Where its failure leads; `undefined` where it sends nothing. One that is only counted leads
   * nowhere.
   */
  failed(outcome: Ended): StepMove | undefined {
    const { state } = this.from;
    const counted = countFailure(this.from, this.origin.tool, this.#binding.retriesIn(state));
    if (counted !== undefined) return this.at(counted).stays(failure(outcome));
    const source = this.#binding.eventIn(state, 'failure');
    return this.#trySend(source, outcome, failure(outcome));
  }

  /** Nowhere. What the run carries along is saved all the same. */
  stays(said: Said): StepMove {
    const reached = { position: this.from, actions: this.#due };
    const entry = { event: null, ...said, ...this.origin.note };
    return moveTo(this.#workflow, this.before, reached, entry);
  }

  /** What the trail says of the call where nothing is committed. */
  attempted(said: Said): TrailDraft {
    return { from: this.from.state, event: null, ...said, ...this.origin.note };
  }

  get #due(): readonly FsmAction[] {
    return this.#workflow.dueActions(this.origin.isFirst);
  }

  /** What functions are told of the call. */
  get #told(): Omit<FailedCall, 'result' | 'error'> {
    const { tool, note } = this.origin;
    const facts = this.#workflow.factsOf(this.from, note.actor);
    return { ...facts, tool, args: this.#asked.members };
  }

  #trySend(source: AnyEventSource | undefined, outcome: Ended, how: Said): StepMove | undefined {
    if (source === undefined) return undefined;
    try {
      return this.#send(source, outcome, how);
    } catch (error) {
      if (error instanceof UnclearArguments) throw error;
      this.#onError(error);
      return undefined;
    }
  }

  #send(source: AnyEventSource, outcome: Ended, how: Said): StepMove | undefined {
    const sent =
      typeof source === 'string'
        ? { type: source, payload: undefined, memory: undefined }
        : this.#workflow.eventFrom(source, { ...this.#told, ...outcome });
    const { ambiguous } = this.#asked;
    if (ambiguous !== undefined) throw new UnclearArguments(this.origin.tool, ambiguous);
    if (sent === undefined) return undefined;
    const { type, payload, memory } = sent;
    const { position, actions } = this.#workflow.next(this.from, type, payload, memory);
    const reached = { position, actions: [...this.#due, ...actions] };
    const entry = { event: type, ...how, ...this.origin.note, payload };
    return moveTo(this.#workflow, this.before, reached, entry);
  }
}

/**
 * Tells of a move that is saved: the stream, then the machine's actions, then those who wait for a
 * change of state. Never throws.
 *
 * @param isFirst whether nothing of the run was committed before
 */
export function takeEffect(
  {
    workflow,
    events,
    onError,
  }: {
    readonly workflow: Workflow;
    readonly events: Events;
    onError(error: unknown): void;
  },
  move: StepMove,
  run: string,
  isFirst: boolean,
): void {
  if (events.isOn) tellMove({ workflow, events }, move, run, isFirst);
  const { snapshot, trail, actions } = move;
  const { from, to, event } = trail;
  if (actions.length > 0)
    workflow.act(actions, { run, event, from, to, context: workflow.dataOf(snapshot) }, onError);
  const changed = from !== to;
  workflow.emit(
    { changed, previousState: from, currentState: to, event: event ?? '', run },
    onError,
  );
}

function tellMove(
  { workflow, events }: { readonly workflow: Workflow; readonly events: Events },
  { trail, ended, isRestart }: StepMove,
  runKey: string,
  isFirst: boolean,
): void {
  const { from, to, event, tool, actor } = trail;
  const run = { workflow: workflow.id, runKey };
  if (isFirst) events.publish({ type: 'run.begun', ...run, state: from, actor });
  events.publish({ type: 'run.moved', ...run, from, to, event, tool, actor });
  if (isRestart) events.publish({ type: 'run.restarted', ...run, from, state: to, actor });
  if (ended && !workflow.hasEnded(from)) events.publish({ type: 'run.ended', ...run, state: to });
}

/** What becomes of a run in a final state: it stays there, or the next call begins it anew. */
export type WhenEnded = 'keep' | 'restart';

/** How a gate takes runs that have ended. */
interface EndRule {
  readonly workflow: Workflow;
  /** Default: by what names the run. */
  readonly whenEnded: WhenEnded | undefined;
}

/**
 * Whether the next call begins a run anew that has ended. Unless the app says, a principal's does,
 * who has no other; where runs are named by sessions and handles a new one is to be had.
 */
export function beginsAnew({ workflow, whenEnded }: EndRule, run: string): boolean {
  const rule = whenEnded ?? (isPrincipalRun(run) ? 'restart' : 'keep');
  // One that begins in a final state would begin anew for ever.
  return rule === 'restart' && !workflow.hasEnded(workflow.initial);
}

/**
 * Where a run stands for its clients: one that the next call begins anew is at its start already.
 */
export function shownPosition<P extends Position>(
  rule: EndRule,
  run: string,
  position: P,
): P | Position {
  const { workflow } = rule;
  return workflow.hasEnded(position.state) && beginsAnew(rule, run) ? workflow.start : position;
}

/** The same of a state alone. */
export function shownState(rule: EndRule, run: string, state: string): string {
  return shownPosition(rule, run, { state }).state;
}

const PAGE = 'https://www.npmjs.com/package/mcp-interlock#when-the-outcome-is-unknown';

/** A step whose outcome is unknown: as its own process has it, or as others see its claim. */
type LostStep = Pick<ClaimView, 'tool' | 'idempotencyKey' | 'uncertain'> & {
  readonly key: RunKey;
};

/**
 * Told to `onError` when a step's outcome is unknown. A run whose step must not be repeated is held
 * until a person resolves it, or until the outcome comes after all.
 */
export class UnknownOutcome extends Error {
  override readonly name = 'UnknownOutcome';
  /** The run key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;
  /** What the handler was given, to look the call up where it had its effect. */
  readonly idempotencyKey: string;
  /** Where the documentation says what to do. */
  readonly help = PAGE;

  /**
   * `waits` says whether the claim stays, so that a run whose step must not be repeated waits to be
   * resolved.
   */
  constructor({ key, tool, idempotencyKey, uncertain }: LostStep, why: string, waits: boolean) {
    const outcome = `the outcome of a call of ${JSON.stringify(tool)} is unknown (${why})`;
    super(waits && uncertain === 'hold' ? `${outcome}. ${remedy(key)}` : outcome);
    this.run = key.run;
    this.workflow = key.workflow;
    this.tool = tool;
    this.idempotencyKey = idempotencyKey;
  }
}

function remedy({ run, workflow }: RunKey): string {
  const resolve = `runsOf(gate, { store }).resolve(${JSON.stringify(run)}, 'succeeded')`;
  return (
    `Unless it comes late, no step of ${JSON.stringify(workflow)} runs in that run until somebody who found out ` +
    `says ${resolve}, or 'failed' (see ${PAGE})`
  );
}

/** A run that is met, with the claim that it may have. */
export interface Met extends Pick<WorkflowRecord, 'snapshot'> {
  readonly key: RunKey;
  readonly claim?: ClaimView | undefined;
  /** What time it is for the store, where it says so. */
  readonly now?: number | undefined;
}

/**
 * Says of a claim that a process left behind, and that holds its run: once in each process. Where
 * that process was killed, no other one would ever say so.
 */
export function tellIfHeld(
  { key, snapshot, claim, now }: Met,
  { events }: { readonly events: Events },
): void {
  if (claim === undefined || claim.live || claim.uncertain !== 'hold') return;
  if (!events.noteUnknown(claim.token)) return;
  const why = 'its lease is over, and no process has said what came of it';
  events.fail(new UnknownOutcome({ ...claim, key }, why, true), () => {
    const { tool, idempotencyKey, until, entry } = claim;
    const { run: runKey, workflow } = key;
    const { actor, requestId } = entry ?? {};
    const sinceMs = now === undefined || until === undefined ? undefined : now - until;
    const call = { runKey, workflow, tool, state: snapshot.state, actor, requestId };
    return { type: 'step.held', ...call, idempotencyKey, sinceMs };
  });
}
