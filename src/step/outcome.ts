/**
 * What a call came to, and what follows for its run: a move, no move, or an unknown outcome. Hides
 * how a binding, a workflow and an outcome together make a move.
 */
import type { Clock } from '../basics/clock.ts';
import type { Events } from '../basics/events.ts';
import { isPrincipalRun } from '../basics/names.ts';
import { dropRejection, isTable } from '../basics/options.ts';
import type { CallNote, CommitRequest, Json, MoveDraft, TrailDraft } from '../stores/store.ts';
import { exactJson } from '../wire/exact-json.ts';
import { isObject, type ListKind, saysInvalid } from '../wire/json-rpc.ts';
import type {
  AnyEventSource,
  ErrorRule,
  EventWithPayload,
  FailedCall,
  ResultTest,
  Success,
  ToolResult,
} from '../workflow/binding.ts';
import { AskedArguments, type BoundTool } from '../workflow/bound-tools.ts';
import { type ConditionTest, type Reader, readerOf } from '../workflow/condition.ts';
import { bareCall, type Decided, type Grant, usedBy } from '../workflow/facts.ts';
import type { FsmAction, Next, Position } from '../workflow/position.ts';
import { countFailure, withRecorded } from '../workflow/stored.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** What a commit saves: the next position, and the trail entry that says how it was reached. */
export interface StepMove extends Pick<CommitRequest, 'snapshot' | 'trail' | 'ended'> {
  /** The machine's actions, for the app to do once the move is saved. */
  readonly actions: readonly FsmAction[];
  /** Whether the run begins anew by it. */
  readonly isRestart?: boolean;
  /** Whether the run's data change. Set only where the workflow hides tools by its data. */
  readonly changesData?: boolean;
  /** Lists that change though the state may not: something held or frozen is open again, or not. */
  readonly lists?: readonly ListKind[];
}

/** What a forwarded call came to, read off its response. */
export interface Outcome {
  readonly kind: 'succeeded' | 'failed' | 'input_required' | 'unknown';
  /** The tool's result; `undefined` where it answered with an error, or not at all. */
  readonly result: ToolResult | undefined;
  /** The JSON-RPC error, where the tool answered with one. */
  readonly error: unknown;
  /** The answer as JSON text, which has the numbers that JavaScript rounds. Default: none does. */
  readonly textOfAnswer?: (() => string) | undefined;
  /** Reads the result for rules and conditions. Default: reads it from the result itself. */
  readonly read?: Reader | undefined;
  /** Whether the tool answered without an error, and the binding says that this is no success. */
  readonly isNotOk?: boolean | undefined;
  /** Gives what the trail keeps of why the call failed. Default: nothing. */
  readonly errors?: ((kind: FailureKind) => readonly Json[] | undefined) | undefined;
}

/**
 * How a call failed: by a result with `isError`, by a JSON-RPC error, or by a result that does not
 * meet the binding's `ok`.
 */
export type FailureKind = 'tool_error' | 'rpc_error' | 'not_ok';

/** What a call's moves depend on, beside where it found the run. Plain data, kept with a task. */
export interface StepOrigin {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** Their JSON text, where JavaScript rounds a number in them. */
  readonly argsText?: string | undefined;
  /** What the trail says of the call. */
  readonly note: CallNote;
  /** Whether nothing of the run was committed before. */
  readonly isFirst: boolean;
  /** What rules ask of the call. Absent where none asks for its tool's calls. */
  readonly use?: GrantedUse | undefined;
}

/** What rules granted a call that goes on. Plain data. */
export interface GrantedUse extends Grant {
  /** When the store granted its claim, by the store's clock, and by that of this process. */
  readonly claimedAt: number;
  readonly grantedAt: number;
  /** With which the values of the run's facts are digested. */
  readonly salt: string;
}

/**
 * The tool ran, and the app's code does not say where that leads. The gate does not guess. The
 * message has no value of the call; the `cause` may have some.
 */
export class UndecidedOutcome extends Error {}

/**
 * A function of the app read an argument that the upstream may have read differently. The gate does
 * not guess where such a call leads: its outcome is unknown.
 */
class UnclearArguments extends Error {
  static throwIf(tool: string, { ambiguous, rounded }: AskedArguments): void {
    if (ambiguous !== undefined)
      throw new UnclearArguments(tool, `${JSON.stringify(ambiguous)} in another letter case`);
    if (rounded !== undefined) throw new UnclearArguments(tool, numberIn(rounded.name));
  }

  private constructor(tool: string, what: string) {
    super(`the arguments of ${JSON.stringify(tool)} have ${what}, ${DEPENDS}`);
  }
}

/**
 * A function of the app read a number in a tool's answer that JavaScript rounds. So it cannot
 * decide what the outcome sends. The message has no values, since apps log it.
 */
class RoundedAnswer extends Error {
  /** @param name the key of the nearest member that the number is in */
  constructor(tool: string, name: string) {
    super(`the answer of ${JSON.stringify(tool)} has ${numberIn(name)}, ${DEPENDS}`);
  }
}

const DEPENDS = 'and what its outcome sends depends on it';

function numberIn(name: string): string {
  return `a number in ${JSON.stringify(name)} that JavaScript rounds`;
}

/** How many names of an answer's members an error says at most. */
const MOST_MEMBERS = 20;

/** The names of an answer's members, without their values, to find the fault of a function by. */
function membersOf({ result, error }: Ended): string {
  const answer: unknown = result ?? error;
  const what = result === undefined ? 'error' : 'result';
  if (!isTable(answer)) return `the ${what} is no object`;
  const names = Object.entries(answer).flatMap(([name, value]) =>
    name === 'structuredContent' && isTable(value)
      ? [name, ...Object.keys(value).map((inner) => `${name}.${inner}`)]
      : [name],
  );
  const shown = names.slice(0, MOST_MEMBERS).join(', ');
  return `the ${what} has ${names.length > MOST_MEMBERS ? `${shown}, …` : shown || 'no member'}`;
}

/**
 * The move from one position to the next, as a commit saves it.
 *
 * @param note what the trail says of the call, where a call makes the move
 */
export function moveTo(
  workflow: Workflow,
  from: Position,
  { position, actions }: Pick<Next, 'position' | 'actions'>,
  said: Omit<MoveDraft, 'from' | 'to'>,
  note: CallNote = said,
): StepMove {
  const { state: to } = position;
  // Member by member: each step makes one, and to spread objects into it is slow.
  const trail = {
    from: from.state,
    to,
    event: said.event,
    outcome: said.outcome,
    kind: said.kind,
    tool: note.tool,
    digest: note.digest,
    args: note.args,
    actor: note.actor,
    requestId: note.requestId,
    workflowVersion: note.workflowVersion ?? workflow.version,
    payload: said.payload,
    errors: said.errors,
    note: said.note,
    calledBy: said.calledBy,
  } satisfies Whole<MoveDraft>;
  const move = { snapshot: position, trail, ended: workflow.hasEnded(to), actions };
  if (!workflow.hides) return move;
  const [before, after] = [from, position].map((each) => JSON.stringify(workflow.dataOf(each)));
  return { ...move, changesData: before !== after };
}

/** With each member, also those that may be left out. */
type Whole<T> = { readonly [Key in keyof Required<T>]: T[Key] };

/** How a call ended, as the functions of its bindings get it beside its arguments. */
type Ended = Pick<FailedCall, 'result' | 'error'>;

/** How a call ended, with the text that {@link Outcome.textOfAnswer} gives. */
type EndedWithText = Ended & Pick<Outcome, 'textOfAnswer' | 'read'>;

/** How a call ended, as the trail says it. */
type Said = Pick<TrailDraft, 'outcome' | 'kind' | 'errors'>;

const SUCCEEDED: Said = { outcome: 'succeeded' };

function endedBy({ result, error, textOfAnswer, read }: Outcome): EndedWithText {
  return result === undefined ? { error, textOfAnswer } : { result, textOfAnswer, read };
}

function saidOf({ kind: outcome, result, errors, isNotOk }: Outcome): Said {
  if (outcome !== 'failed') return { outcome };
  const answered = isNotOk ? 'not_ok' : 'tool_error';
  const kind = result === undefined ? 'rpc_error' : answered;
  return { outcome, kind, errors: errors?.(kind) };
}

/**
 * The arguments of a call, with the numbers as they came.
 *
 * @param argsText their JSON text, where JavaScript rounds a number in them
 */
function askedOf(args: unknown, argsText: string | undefined): AskedArguments {
  if (argsText === undefined) return new AskedArguments(args);
  return AskedArguments.later(() => exactJson(argsText, args)?.value ?? args);
}

/** A watch on the numbers of an answer that JavaScript rounds; `undefined` where it rounds none. */
function watchOf(
  { result, error }: Pick<FailedCall, 'result' | 'error'>,
  textOfAnswer: (() => string) | undefined,
): AskedArguments | undefined {
  const answer = textOfAnswer && exactJson(textOfAnswer())?.value;
  if (!isObject(answer)) return undefined;
  return new AskedArguments(
    result === undefined ? { error: answer.error ?? error } : { result: answer.result ?? result },
  );
}

/** A text result is read up to so many characters. */
const MOST_TEXT = 65_536;

/** Reads a result as rules and conditions do; `undefined` where they can read nothing of it. */
function resultReader(
  ended: EndedWithText & { readonly result: ToolResult },
  results: Success['results'],
): Reader | undefined {
  if (ended.read !== undefined) return ended.read;
  const answer = readOf(ended, results);
  return answer === undefined ? undefined : readerOf(answer);
}

/** What rules can read of an answer: its structured content, or its only text in JSON. */
export function valueOfAnswer(result: ToolResult, textOfAnswer: () => string): unknown {
  return readOf({ result, textOfAnswer }, 'text');
}

/** What a condition reads of a result, with the numbers as they came; `undefined`: nothing. */
function readOf(
  { result, textOfAnswer }: EndedWithText & { readonly result: ToolResult },
  results: Success['results'],
): unknown {
  const exact = textOfAnswer && exactJson(textOfAnswer())?.value;
  const answered = isObject(exact) && isObject(exact.result) ? exact.result : result;
  const { structuredContent, content } = answered;
  if (structuredContent !== undefined || results === 'structured') return structuredContent;
  const [only, ...others] = Array.isArray(content) ? (content as unknown[]) : [];
  if (others.length > 0 || !isObject(only) || only.type !== 'text') return undefined;
  const { text } = only;
  if (typeof text !== 'string' || text.length > MOST_TEXT) return undefined;
  try {
    const parsed: unknown = JSON.parse(text);
    return exactJson(text, parsed)?.value ?? parsed;
  } catch {
    return undefined;
  }
}

/** What a binding says of where its calls lead. */
export type MovingBinding = Pick<
  BoundTool,
  'eventIn' | 'sendsIn' | 'retriesIn' | 'errorsIn' | 'oksIn' | 'results'
>;

/** The gate's rules, as far as moves need them. */
interface MoveRules {
  readonly workflow: Workflow;
  readonly clock: Pick<Clock, 'now'>;
}

/** Where the outcomes of one call lead. */
export class Moves {
  /** Where the call found the run, or where others' recorded calls have taken it since. */
  readonly found: Position;
  /** The same state, with the data as the call's handler has changed them. */
  readonly current: Position;
  readonly origin: StepOrigin;
  readonly #rules: MoveRules;
  readonly #workflow: Workflow;
  readonly #binding: MovingBinding;
  readonly #asked: AskedArguments;
  /** The state in which the gate let the call through: it decides which event an outcome sends. */
  readonly #allowedIn: string;

  constructor(
    rules: MoveRules,
    binding: MovingBinding,
    current: Position,
    origin: StepOrigin,
    found = current,
    allowedIn = current.state,
  ) {
    this.#rules = rules;
    this.#workflow = rules.workflow;
    this.#binding = binding;
    this.#asked = askedOf(origin.args, origin.argsText);
    this.found = found;
    this.current = current;
    this.origin = origin;
    this.#allowedIn = allowedIn;
  }

  /** The same moves from a position of the same state with other data. */
  at(position: Position): Moves {
    return this.#from(position, this.found, this.origin);
  }

  /**
   * The same moves from a newer position, to which calls that run beside others have added. The
   * data stay as this call has them, since only the holder of the claim changes data.
   */
  onto(newer: Position): Moves {
    const current = withRecorded(this.current, newer);
    return this.#from(current, newer, { ...this.origin, isFirst: false });
  }

  #from(current: Position, found: Position, origin: StepOrigin): Moves {
    return new Moves(this.#rules, this.#binding, current, origin, found, this.#allowedIn);
  }

  /**
   * The outcome as the binding's `ok` reads it: a success that does not meet it is a failure.
   *
   * @throws UndecidedOutcome where the result leaves that open
   */
  judged(outcome: Outcome): Outcome {
    const oks = outcome.kind === 'succeeded' ? this.#binding.oksIn?.(this.#allowedIn) : undefined;
    if (oks === undefined || oks.length === 0) return outcome;
    const ended = { ...endedBy(outcome), result: outcome.result ?? {} };
    try {
      if (oks.every((ok) => this.#isMet(ok, ended))) return outcome;
    } catch (error) {
      throw this.#undecided('ok', ended, error);
    }
    return { ...outcome, kind: 'failed', isNotOk: true };
  }

  /** @throws Error where the condition is open, or the function does not answer */
  #isMet(
    { test, isCondition, results }: Success,
    ended: EndedWithText & { readonly result: ToolResult },
  ): boolean {
    if (isCondition) {
      const open: string[] = [];
      const read = resultReader(ended, results) ?? readerOf(undefined);
      const met = (test as ConditionTest)(read, (path) => open.push(path));
      if (met !== undefined) return met;
      throw new Error(
        `its result has no value to compare at ${open.map((path) => JSON.stringify(path)).join(', ')}`,
      );
    }
    const { textOfAnswer, result } = ended;
    const watch = watchOf({ result }, textOfAnswer);
    const read = watch === undefined ? result : (watch.members.result as ToolResult);
    const met: unknown = (test as ResultTest)(read);
    if (watch?.rounded !== undefined) throw new RoundedAnswer(this.origin.tool, watch.rounded.name);
    if (typeof met === 'boolean') return met;
    dropRejection(met);
    throw new Error('"ok" returned no boolean');
  }

  /**
   * What follows from an outcome. A success is always saved, even where its event leads nowhere.
   * `doubted`: the binding says that such an error leaves the outcome unknown.
   *
   * @param isUpdated whether the call was counted, or its handler changed the run's data. That is
   * saved with each outcome.
   * @param savedByHandler whether the handler saved the success in a transaction of its own
   * @throws UndecidedOutcome where the app's code does not say where the outcome leads
   */
  next(
    outcome: Outcome,
    isUpdated: boolean,
    savedByHandler: boolean,
  ): StepMove | 'release' | 'unknown' | 'doubted' {
    const { kind, result } = outcome;
    if (kind === 'unknown') return 'unknown';
    if (kind === 'succeeded') return this.#succeeded({ ...endedBy(outcome), result: result ?? {} });
    // If the handler's transaction was committed, the success is saved, and there is nothing left
    // to release. If it was rolled back, nothing was saved, and the release frees the run.
    if (savedByHandler) return 'release';
    const isError = kind === 'failed' && outcome.isNotOk !== true;
    if (isError && this.#isDoubted(endedBy(outcome))) return 'doubted';
    const move = kind === 'failed' ? this.#failed(outcome) : undefined;
    return move ?? (isUpdated ? this.#stays(saidOf(outcome)) : 'release');
  }

  /**
   * The success, worked out before there is a result, for the handler to save it.
   *
   * @throws Error where the event depends on the result
   */
  successWithoutResult(): StepMove {
    const source = this.#binding.eventIn(this.#allowedIn);
    if (typeof source === 'function' || this.#binding.oksIn !== undefined || this.#readsResult)
      throw new Error(
        `what a success of ${JSON.stringify(this.origin.tool)} is depends on its result, ` +
          'which is not there yet',
      );
    const ended = { result: {} };
    const sent = source === undefined ? undefined : this.#send(source, ended, SUCCEEDED);
    return sent ?? this.#staysWith(ended, SUCCEEDED);
  }

  /** Whether rules ask for a value of the result. */
  get #readsResult(): boolean {
    return (
      this.#workflow.rules.ledger?.readsResult(this.#workflow.keyOf(this.origin.tool)) === true
    );
  }

  /** The call as rules ask for it; `undefined` where none does. */
  #decided(ended: EndedWithText, outcome: 'succeeded' | 'failed'): Decided | undefined {
    const { use, tool } = this.origin;
    const { ledger } = this.#workflow.rules;
    if (use === undefined || ledger === undefined) return undefined;
    const key = this.#workflow.keyOf(tool);
    const { claimedAt, salt } = use;
    const { result } = ended;
    const read = result && resultReader({ ...ended, result }, this.#results);
    const facts = ledger.read(this.current);
    const noted = ledger.note(key, 'result', read, salt, use.noted, facts);
    const decidedAt = this.#endedAt(use);
    const uses = usedBy(outcome, use.uses);
    const isInvalid = outcome === 'failed' && saysInvalid(ended);
    return { tool: key, outcome, isInvalid, claimedAt, decidedAt, noted, uses };
  }

  get #results(): Success['results'] {
    return this.#binding.results;
  }

  /** The trail's entry for an outcome that commits nothing. */
  entryFor(outcome: Outcome): TrailDraft {
    return this.attempted(saidOf(outcome));
  }

  /** The trail's entry for a call that commits nothing. */
  attempted(said: Said): TrailDraft {
    return { from: this.current.state, event: null, ...said, ...this.origin.note };
  }

  /** The tool ran: where its event leads nowhere, the success is saved without a move. */
  #succeeded(ended: EndedWithText & { readonly result: ToolResult }): StepMove {
    const source = this.#binding.eventIn(this.#allowedIn);
    return this.#trySend(source, ended, SUCCEEDED) ?? this.#staysWith(ended, SUCCEEDED);
  }

  /** Leads nowhere, and saves the call where rules ask for it. */
  #staysWith(ended: EndedWithText, said: Said): StepMove {
    const call = this.#decided(ended, said.outcome === 'failed' ? 'failed' : 'succeeded');
    if (call === undefined) return this.#stays(said);
    const moved = this.at(this.#workflow.rules.decided(this.current, call)).#stays(said);
    return this.#withLists(moved, call);
  }

  /** A tool that comes to its limit leaves the lists, though the state may stay. */
  #withLists(move: StepMove, call: Decided | undefined): StepMove {
    if (call === undefined) return move;
    const spent = (position: Position): number =>
      this.#workflow.rules.spentBy(call.tool, position, call.decidedAt);
    return spent(move.snapshot) > spent(this.found) ? { ...move, lists: ['tools'] } : move;
  }

  /** Whether a binding says that this error leaves the outcome unknown. One is enough. */
  #isDoubted({ textOfAnswer, read: _, ...ended }: EndedWithText): boolean {
    return this.#binding.errorsIn(this.#allowedIn).some((rule) => {
      if (typeof rule === 'string') return rule === 'unknown';
      const watch = watchOf(ended, textOfAnswer);
      try {
        const doubted = readError(rule, watch === undefined ? ended : { ...watch.members });
        if (watch?.rounded !== undefined)
          throw new RoundedAnswer(this.origin.tool, watch.rounded.name);
        return doubted === 'unknown';
      } catch (error) {
        throw this.#undecided('errors', ended, error);
      }
    });
  }

  /** `undefined` where the failure sends nothing. One that may be retried is only counted. */
  #failed(outcome: Outcome): StepMove | undefined {
    const ended = endedBy(outcome);
    const call = this.#asksForFailure ? this.#decided(ended, 'failed') : undefined;
    if (call === undefined) return this.#failedAfter(outcome, ended);
    const moves = this.at(this.#workflow.rules.decided(this.current, call));
    const moved = moves.#failedAfter(outcome, ended) ?? moves.#stays(saidOf(outcome));
    return this.#withLists(moved, call);
  }

  /** For rules: a success of another tool, as which a failure of this one counts. */
  #success(tool: string): Decided | undefined {
    const { use } = this.origin;
    return use && this.#workflow.isOrder ? bareCall(tool, this.#endedAt(use)) : undefined;
  }

  /** By the store's clock. A clock that was set back makes no call end before it began. */
  #endedAt({ claimedAt, grantedAt }: GrantedUse): number {
    return claimedAt + Math.max(0, this.#rules.clock.now() - grantedAt);
  }

  /** Whether a rule asks for calls of the tool that fail, or they use something up. */
  get #asksForFailure(): boolean {
    const { use, tool } = this.origin;
    const { ledger } = this.#workflow.rules;
    if (use === undefined || ledger === undefined) return false;
    const key = this.#workflow.keyOf(tool);
    const isUsing = usedBy('failed', use.uses).length > 0;
    return isUsing || ledger.keepsFailures(key, ledger.read(this.current));
  }

  /** Of a failure that is saved already, as far as rules ask for it. */
  #failedAfter(outcome: Outcome, ended: EndedWithText): StepMove | undefined {
    const state = this.#allowedIn;
    const tool = this.#workflow.renamings.savedOf(this.origin.tool);
    const counted = countFailure(this.current, tool, this.#binding.retriesIn(state));
    if (counted !== undefined) return this.at(counted).#stays(saidOf(outcome));
    const source = this.#binding.eventIn(state, 'failure');
    return this.#trySend(source, ended, saidOf(outcome));
  }

  /** Leads nowhere, and saves the data that the run carries along. */
  #stays(said: Said): StepMove {
    const reached = { position: this.current, actions: this.#due };
    const entry = { ...said, event: null };
    return moveTo(this.#workflow, this.found, reached, entry, this.origin.note);
  }

  /** The actions of the initial state: due with the run's first commit. */
  get #due(): readonly FsmAction[] {
    return this.#workflow.dueActions(this.origin.isFirst);
  }

  /** What the functions of a binding get about the call. */
  get #given(): Omit<FailedCall, 'result' | 'error'> {
    const { tool, note } = this.origin;
    const facts = this.#workflow.factsOf(this.current, note.actor);
    return { ...facts, tool, args: this.#asked.members };
  }

  #trySend(
    source: AnyEventSource | undefined,
    outcome: EndedWithText,
    how: Said,
  ): StepMove | undefined {
    if (source === undefined) return undefined;
    try {
      return this.#send(source, outcome, how);
    } catch (error) {
      throw this.#undecided(how.outcome === 'succeeded' ? 'success' : 'failure', outcome, error);
    }
  }

  /** @param option that of the binding whose function failed */
  #undecided(
    option: 'success' | 'failure' | 'errors' | 'ok',
    ended: Ended,
    cause: unknown,
  ): UndecidedOutcome {
    const [tool, state] = [this.origin.tool, this.#allowedIn].map((each) => JSON.stringify(each));
    const binding = `the binding of ${tool} in ${state}`;
    const reason =
      cause instanceof UnclearArguments || cause instanceof RoundedAnswer
        ? cause.message
        : `its "${option}" could not be followed, see the cause`;
    const message = `${binding} does not say where this leads: ${reason}; ${membersOf(ended)}`;
    return new UndecidedOutcome(message, { cause });
  }

  #send(source: AnyEventSource, outcome: EndedWithText, how: Said): StepMove | undefined {
    const sent =
      typeof source === 'string'
        ? { type: source, payload: undefined }
        : this.#choose(source, outcome, how.outcome === 'succeeded' ? 'success' : 'failure');
    UnclearArguments.throwIf(this.origin.tool, this.#asked);
    if (sent === undefined) return undefined;
    const { type, payload } = sent;
    // Of a failure the call is saved before: its event is another tool's success.
    const call =
      how.outcome === 'succeeded' ? this.#decided(outcome, how.outcome) : this.#success(type);
    const { position, actions } = this.#workflow.next(this.current, type, payload, call);
    const due = this.#due;
    const reached = { position, actions: due.length === 0 ? actions : [...due, ...actions] };
    const entry = { ...how, event: type, payload };
    const move = moveTo(this.#workflow, this.found, reached, entry, this.origin.note);
    return this.#withLists(move, call);
  }

  /** @throws RoundedAnswer where the function has read a number that JavaScript rounds */
  #choose(
    source: Exclude<AnyEventSource, string>,
    { textOfAnswer, read: _, ...ended }: EndedWithText,
    as: 'success' | 'failure',
  ): EventWithPayload | undefined {
    const watch = watchOf(ended, textOfAnswer);
    const read = watch === undefined ? ended : { ...watch.members };
    const sends = this.#binding.sendsIn?.(this.#allowedIn, as);
    const sent = this.#workflow.eventFrom(source, { ...this.#given, ...read }, sends);
    if (watch?.rounded !== undefined) throw new RoundedAnswer(this.origin.tool, watch.rounded.name);
    return sent;
  }
}

/**
 * Reports a saved move: first the event stream, then the machine's actions, then `onTransition`.
 * Never throws.
 *
 * @param isFirst whether nothing of the run was committed before
 */
export function reportSaved(
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
  if (events.isOn) reportMove({ workflow, events }, move, run, isFirst);
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

function reportMove(
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
  if (ended && !workflow.hasEnded(from))
    events.publish({ type: 'run.ended', cause: 'final', ...run, state: to });
}

/** Whether a run in a final state stays there, or begins anew with the next call. */
export type WhenEnded = 'keep' | 'restart';

/** What a gate does with runs that have ended. */
interface EndRule {
  readonly workflow: Workflow;
  /** Default: `restart` for the runs of principals, `keep` for others. */
  readonly whenEnded: WhenEnded | undefined;
}

/**
 * Whether the next call begins a run anew once it has ended. By default a principal's run does,
 * because a principal has no other; sessions and handles can have new ones.
 */
export function beginsAnew({ workflow, whenEnded }: EndRule, run: string): boolean {
  const rule = whenEnded ?? (isPrincipalRun(run) ? 'restart' : 'keep');
  // A run whose initial state is final would begin anew for ever.
  return rule === 'restart' && !workflow.hasEnded(workflow.initial);
}

/**
 * A run's position, as its clients see it: one that the next call begins anew is shown at its
 * start.
 */
export function shownPosition<P extends Position>(
  rule: EndRule,
  run: string,
  position: P,
): P | Position {
  const { workflow } = rule;
  const isAnew = beginsAnew(rule, run) && workflow.hasEnded(position.state);
  return isAnew ? workflow.startAfter(position) : position;
}

/** @throws Error where the function says neither `failed` nor `unknown` */
function readError(rule: Exclude<ErrorRule, string>, { result, error }: Ended): unknown {
  const said: unknown = rule(result, error);
  if (said === 'failed' || said === 'unknown') return said;
  dropRejection(said);
  throw new Error('"errors" returned neither "failed" nor "unknown"');
}
