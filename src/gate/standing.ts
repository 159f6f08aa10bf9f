/**
 * Where a run stands in one workflow, for one caller, at one time. Hides where that comes from: the
 * store or this very request, a saved snapshot or the data that the run would begin with.
 */
import { quoteNames } from '../basics/errors.ts';
import { runDigest } from '../basics/events.ts';
import type { StopReason } from '../basics/reasons.ts';
import type { Admission, Run } from '../session/run.ts';
import { askBegin } from '../step/claim.ts';
import { beginsAnew, shownPosition, type WhenEnded } from '../step/outcome.ts';
import type { Refused, Step } from '../step/step.ts';
import type { WorkflowFreeze, WorkflowSwitch } from '../step/switch.ts';
import { turnKey } from '../step/turns.ts';
import { reportIfHeld } from '../step/unknown-outcome.ts';
import type {
  ClaimView,
  Freeze,
  FsmSnapshot,
  RunRecord,
  UnsettledStep,
  WorkflowRecord,
} from '../stores/store.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import type { Next, Position } from '../workflow/position.ts';
import { unreadableKind } from '../workflow/stored.ts';
import type { Stand } from '../workflow/together.ts';
import type { Part, Past, UnknownGrant } from '../workflow/verdict.ts';
import type { Sight, Veil, Viewer } from '../workflow/visible.ts';
import type { Beginning, Workflow } from '../workflow/workflow.ts';
import type { GateConfig } from './config.ts';
import { type Enforced, enforcedOf, enforces } from './mode.ts';

/**
 * Why it is not known where a run stands. `unknown`: the run does not exist any more.
 * `unavailable`: the store, or the app's `begin`, cannot be asked. `unreadable`: this deployment
 * does not understand what the store has.
 */
export type Absent = 'unknown' | 'unavailable' | 'unreadable';

/** What a standing takes from the gate. */
export interface StandingRules {
  readonly workflow: Workflow;
  readonly whenEnded: WhenEnded | undefined;
  /** What the gate's option enforces. Default: every tool. */
  readonly enforce?: Enforced;
  /** Called with what the app's `visible`, or the machine's own guards, throw. */
  readonly onError: (error: unknown) => void;
}

/** For whom a run is looked at: its key, and its caller where one is known. */
export interface Viewpoint extends Pick<Run, 'run' | 'actor'> {
  readonly identity?: Viewer['identity'];
}

/** What stops a run as a whole. */
export interface Stop {
  readonly reason: StopReason;
  /** Who has stopped it. */
  readonly by: Freeze;
}

/** What a standing is made of, beside the run's position. */
interface Parts {
  /** The snapshot's time; 0 for a run that has not begun. */
  readonly updatedAt: number;
  /** How many moves are saved; 0 for a run that has not begun. */
  readonly version: number;
  readonly claim?: ClaimView | undefined;
  /** The time, by the clock that stamped the snapshot. */
  readonly now: number;
  /** The move of a deadline that has passed, which the store does not have yet. */
  readonly expiry?: Next | undefined;
  /** The tools that its client is known to see. Default: those of the state and of `visible`. */
  readonly seen?: readonly string[] | undefined;
  /** Who has stopped the run. */
  readonly frozen?: Freeze | undefined;
  /** The steps of the run whose outcome is unknown, and that may be tried again. */
  readonly unsettled?: readonly UnsettledStep[] | undefined;
  /** What operators say of all runs. Absent where they cannot, or where none of that is asked. */
  readonly word?: WorkflowSwitch | undefined;
}

const NONE: ReadonlySet<string> = new Set();

/** The runs that this process could not read lately: when, and whether a newer version may. */
interface UnreadRun {
  readonly at: number;
  readonly isNewer: boolean;
}

/** By workflow and by the digest of the run's key. */
const unread = new WeakMap<Workflow, Map<string, UnreadRun>>();
const UNREAD_MS = 3_600_000;
const MOST_UNREAD = 10_000;

/** Notes that a run cannot be read, for counts and words; without an error, that it can. */
export function noteRead(workflow: Workflow, run: string, now: number, error?: unknown): void {
  const noted = unread.get(workflow);
  if (error === undefined) {
    if (noted !== undefined && noted.size > 0) noted.delete(runDigest(run));
    return;
  }
  const kind = unreadableKind(error);
  const runs = noted ?? new Map<string, UnreadRun>();
  unread.set(workflow, runs);
  const digest = runDigest(run);
  runs.delete(digest);
  runs.set(digest, { at: now, isNewer: kind === 'newer-version' || kind === 'newer-package' });
  if (runs.size > MOST_UNREAD) for (const first of runs.keys()) return void runs.delete(first);
}

/** How many runs this process found in the last hour that it could not read. */
export function countUnread(workflow: Workflow, now: number): number {
  const noted = unread.get(workflow);
  for (const [digest, { at }] of noted ?? []) if (now - at > UNREAD_MS) noted?.delete(digest);
  return noted?.size ?? 0;
}

/** What ends that a run is unreadable, where a person need not repair it. */
export function mendOfUnread(workflow: Workflow, run: string): string | undefined {
  return unread.get(workflow)?.get(runDigest(run))?.isNewer
    ? 'A newer version of this server has saved it, so try again in a minute'
    : undefined;
}

/** Where a run stands. */
export class Standing implements Stand {
  readonly rules: StandingRules;
  readonly viewpoint: Viewpoint;
  /** Where its clients see it: at its start, where the next call begins it anew. */
  readonly position: Position;
  /** Where it is by its deadline. A run that has ended is at its end here. */
  readonly reached: Position;
  /** The state that it has left because its deadline has passed. */
  readonly left: string | undefined;
  /** The move of a deadline that has passed, which the store does not have yet. */
  readonly expiry: Next | undefined;
  readonly parts: Parts;
  /** What stops the run; `undefined` where it goes on. Every door reads it here. */
  readonly stopped: Stop | undefined;
  /** What operators said of all runs when they were asked last. */
  said: WorkflowFreeze | 'unread' | undefined;
  #sight: Sight | undefined;
  #closed: ReadonlySet<string> | undefined;
  #spent: ReadonlyMap<string, Part> | undefined;
  #past: Past | undefined;
  readonly #unknown: readonly UnknownGrant[];
  #state: string | undefined;

  constructor(
    rules: StandingRules,
    viewpoint: Viewpoint,
    position: Position,
    parts: Parts,
    begun?: Position,
  ) {
    const { expiry, word } = parts;
    this.rules = rules;
    this.viewpoint = viewpoint;
    this.expiry = expiry;
    this.left = expiry === undefined ? undefined : position.state;
    this.reached = expiry?.position ?? position;
    this.position = begun ?? shownPosition(rules, viewpoint.run, this.reached);
    this.parts = parts;
    this.stopped = parts.frozen && { reason: 'frozen', by: parts.frozen };
    this.said = word?.known;
    this.#unknown = unknownCalls(rules.workflow, parts);
  }

  /**
   * A run as its store has it.
   *
   * @param record absent for a run that no call has claimed yet
   * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where this deployment does not understand it
   */
  static of(
    rules: StandingRules,
    viewpoint: Viewpoint,
    record: WorkflowRecord | undefined,
    now: number,
    word?: WorkflowSwitch,
  ): Standing {
    const { workflow } = rules;
    if (record === undefined)
      return new Standing(rules, viewpoint, workflow.start, {
        updatedAt: 0,
        version: 0,
        now,
        word,
      });
    const { snapshot, claim, frozen, unsettled } = record;
    const { updatedAt, version = 0 } = snapshot;
    const position = workflow.rules.standAt(adopted(workflow, viewpoint, snapshot, now), now);
    // Nothing moves a stopped run, not even its deadline.
    const expiry = frozen ? undefined : workflow.overdue({ ...position, updatedAt }, now);
    const parts = { updatedAt, version, claim, frozen, now, expiry, unsettled, word };
    return new Standing(rules, viewpoint, position, parts);
  }

  /** A run as a step has claimed it, before any move of its own. */
  static ofStep(
    rules: StandingRules,
    run: Run,
    { snapshot, grantedAt, unsettled }: Step,
    position: Position,
  ): Standing {
    const { updatedAt, version = 0 } = snapshot;
    const word = run.store.switchOf(rules.workflow.id);
    const parts = { updatedAt, version, now: grantedAt, unsettled, word };
    return new Standing(rules, run, position, parts);
  }

  get workflow(): Workflow {
    return this.rules.workflow;
  }

  /** Its position's, with what calls of unknown outcome may have made of it. */
  get state(): string {
    if (this.#unknown.length === 0) return this.position.state;
    const { now } = this.parts;
    this.#state ??= this.workflow.rules.standAt(this.position, now, this.#unknown).state;
    return this.#state;
  }

  /** Whether the next call begins the run, for the first time or anew. */
  get begins(): boolean {
    return this.parts.version === 0 || this.position !== this.reached;
  }

  /** Whether the next call begins the run anew once it has ended. */
  get beginsAnew(): boolean {
    return beginsAnew(this.rules, this.viewpoint.run);
  }

  /** What its claim means for the run. */
  get underWay(): 'idle' | 'running' | 'held' {
    return statusOf(this.parts.claim);
  }

  /** The bound tools of which each call is refused now, in any state; `undefined`: none. */
  get closed(): ReadonlySet<string> | undefined {
    const { workflow } = this;
    // Lists ask it for each tool.
    if (this.stopped !== undefined) this.#closed ??= new Set(workflow.toolNames);
    else if (this.underWay === 'held') this.#closed ??= workflow.closedWhileHeld(this.state);
    return this.#closed;
  }

  /** What the run did before, as its rules ask for it; `undefined` where none asks. */
  get past(): Past | undefined {
    const { workflow, position, parts } = this;
    if (workflow.rules.ledger === undefined) return undefined;
    this.#past ??= workflow.rules.pastOf(position, parts.now, this.#unknown);
    return this.#past;
  }

  /** The tools of which each call is over a limit now, with any arguments, and why. */
  get spent(): ReadonlyMap<string, Part> {
    this.#spent ??= this.workflow.rules.spentTools(this.past);
    return this.#spent;
  }

  /** The parts of a tool's rules that refuse each call of it, with any arguments. */
  partsAgainst(tool: string): readonly Part[] {
    const spent = this.spent.get(this.workflow.keyOf(tool));
    if (spent !== undefined) return [spent];
    return this.past === undefined ? [] : this.workflow.rules.partsAgainst(tool, this.past);
  }

  /** Whether each call of the tool is refused now, in any state. */
  closes(tool: string): boolean {
    return this.closed?.has(this.workflow.keyOf(tool)) === true;
  }

  /** What its client sees of it; `undefined` where all clients see the same. */
  get sight(): Sight | undefined {
    const { workflow, onError } = this.rules;
    if (!workflow.hides) return undefined;
    const { run, actor: principal, identity } = this.viewpoint;
    const viewer = { run, principal, identity, onError };
    this.#sight ??= workflow.sight(this.position, viewer);
    return this.#sight;
  }

  /** The position for clients. A run that begins with the next call has made no moves. */
  get snapshot(): FsmSnapshot & { readonly version: number } {
    const { updatedAt, version } = this.parts;
    return { ...this.position, updatedAt, version: this.begins ? 0 : version };
  }

  /** The same run as it begins with the next call. */
  begunWith(beginning: Beginning): Standing {
    return this.begunAt(this.workflow.begunWith(this.position, beginning));
  }

  /** The same run where the next call begins it. */
  begunAt(begun: Position): Standing {
    const { rules, viewpoint, reached } = this;
    const parts = { ...this.parts, expiry: undefined };
    return new Standing(rules, viewpoint, parts.version === 0 ? begun : reached, parts, begun);
  }

  /** The same run at another position, such as the one with a call counted. */
  movedTo(position: Position, updatedAt = this.parts.updatedAt): Standing {
    return new Standing(this.rules, this.viewpoint, position, { ...this.parts, updatedAt });
  }

  /** The bound tools that a list of what is available has, in binding order. */
  get available(): readonly string[] {
    const shown = this.parts.seen ?? this.workflow.available(this.state);
    const { hidden } = this;
    return hidden.size === 0 ? shown : shown.filter((tool) => !hidden.has(tool));
  }

  /** The tools that the state shows, and that such a list leaves out. */
  get hidden(): ReadonlySet<string> {
    const { closed = NONE, sight, spent } = this;
    const hidden = sight?.hidden ?? NONE;
    if (spent.size > 0) return new Set([...closed, ...hidden, ...spent.keys()]);
    if (closed.size === 0) return hidden;
    return hidden.size === 0 ? closed : new Set([...closed, ...hidden]);
  }

  /** Whether the state and `visible` let a list have the tool. */
  lists(tool: string): boolean {
    const { seen } = this.parts;
    const key = this.workflow.keyOf(tool);
    // A limit hides a tool too, so that what its client sees says nothing of it.
    if (seen !== undefined && !this.spent.has(key)) return seen.includes(key);
    return this.workflow.isVisible(tool, this.state) && this.sight?.hidden.has(key) !== true;
  }

  /** Asks what operators say of all runs; at once where they were asked in the last 500 ms. */
  askOperators(): MaybePromise<this> {
    const said = this.parts.word?.now();
    if (isPromise(said))
      return said.then((known) => {
        this.said = known;
        return this;
      });
    this.said = said;
    return this;
  }

  /** Whether the state and `visible` allow what is bound under that name. */
  opens(name: string, { states, veils }: Opening): boolean {
    if (!this.workflow.allows(this.state, { states })) return false;
    return veils === undefined || this.sight?.opens(name, veils) !== false;
  }

  /** What the gate enforces of the run; of the other tools it only observes the calls. */
  get enforced(): Enforced {
    const { rules, viewpoint, said, begins, position } = this;
    return enforcedOf(rules.enforce ?? true, said, viewpoint.run, begins ? undefined : position);
  }

  /** Whether the gate enforces a tool of the run; without one, whether it enforces all of them. */
  enforces(tool?: string): boolean {
    const { enforced } = this;
    return tool === undefined ? enforced === true : enforces(enforced, tool);
  }

  /** The name of a tool for the client; `otherwise` where `visible` never shows it that tool. */
  nameShown(tool: string, otherwise?: string): string | undefined {
    return this.sight?.unlisted.has(this.workflow.keyOf(tool)) === true ? otherwise : tool;
  }

  /** As {@link nameShown} of a claim's tool; `otherwise` for a move from outside, which has none. */
  claimShown(claim: ClaimView, otherwise?: string): string | undefined {
    if (isFromOutside(claim)) return otherwise;
    return this.nameShown(this.workflow.renamings.currentOf(claim.tool), otherwise);
  }

  /**
   * When the run leaves its state by itself, by the clock that stamped the snapshot. A stopped run
   * does not.
   */
  get leavesAt(): number | undefined {
    const { updatedAt } = this.parts;
    const isSaved = updatedAt > 0 && this.position === this.reached && this.expiry === undefined;
    if (!isSaved || this.stopped !== undefined) return undefined;
    return this.workflow.leavesAt({ ...this.position, updatedAt });
  }
}

/** @throws InterlockError `ERR_INTERLOCK_SNAPSHOT`, which is noted */
function adopted(
  workflow: Workflow,
  { run }: Viewpoint,
  snapshot: FsmSnapshot,
  now: number,
): Position {
  try {
    const position = workflow.adopt(snapshot);
    noteRead(workflow, run, now);
    return position;
  } catch (error) {
    noteRead(workflow, run, now, error);
    throw error;
  }
}

const NO_CALLS: readonly UnknownGrant[] = Object.freeze([]);

/** The calls whose outcome is unknown: those that may be tried again, and one that is held. */
function unknownCalls(
  workflow: Workflow,
  { claim, unsettled = [] }: Pick<Parts, 'claim' | 'unsettled'>,
): readonly UnknownGrant[] {
  const isOver = claim !== undefined && !claim.live && claim.since !== undefined;
  const isHeld = isOver && unsettled.every((each) => each.idempotencyKey !== claim.idempotencyKey);
  if (workflow.rules.ledger === undefined || !(isHeld || unsettled.length > 0)) return NO_CALLS;
  const held = isHeld ? [claim] : [];
  return [...unsettled, ...held].map((each) => ({
    ...workflow.rules.grantOf(each),
    tool: workflow.keyOf(each.tool),
    claimedAt: each.since ?? 0,
    idempotencyKey: each.idempotencyKey,
    undoes: workflow.rules.undoneBy(workflow.keyOf(each.tool)),
  }));
}

/** What is bound to states, and may be hidden from some clients. */
interface Opening {
  readonly states: Veil['states'];
  readonly veils: readonly Veil[] | undefined;
}

/** Marks the claim of a move from outside. The digest of a call's arguments is hexadecimal. */
export const OUTSIDE = 'outside-';

/** Whether the claim is of a move that no call makes. Its tool is then no tool. */
export function isFromOutside({ digest }: Pick<ClaimView, 'digest'>): boolean {
  return digest.startsWith(OUTSIDE);
}

/**
 * What a claim means for its run. Where its step may be repeated, it holds the run only until its
 * lease is over.
 */
export function statusOf(claim: ClaimView | undefined): 'idle' | 'running' | 'held' {
  if (claim === undefined || (!claim.live && claim.uncertain === 'retry')) return 'idle';
  return claim.live ? 'running' : 'held';
}

/** What a run's record says of one workflow. Its id may be `constructor` or another such name. */
export function storedIn(
  record: RunRecord | undefined,
  workflow: string,
): WorkflowRecord | undefined {
  return record && Object.hasOwn(record.workflows, workflow)
    ? record.workflows[workflow]
    : undefined;
}

/** The run's record; `away` where the store fails. */
export function recordNow(
  { workflow, onError }: GateConfig,
  run: Run,
): MaybePromise<RunRecord | undefined | 'away'> {
  return (
    run.fresh() ??
    run.store.read(run.run, run.ttlMs, workflow.id).then(
      // What is left of it is the operator's, unless its principal's next claim goes on with it.
      (record) => (record?.sessionEnded && run.create === undefined ? undefined : record),
      (error: unknown) => {
        onError(error);
        return 'away' as const;
      },
    )
  );
}

/** Where a run stands by its record, without the data that it would begin with. */
export function standingIn(
  config: GateConfig,
  run: Run,
  record: RunRecord | undefined,
): Standing | Absent {
  if (record === undefined ? run.create === undefined : record.sessionEnded === 'evicted')
    return 'unknown';
  const { workflow, clock, onError } = config;
  const stored = storedIn(record, workflow.id);
  if (stored !== undefined) {
    const key = { run: run.run, workflow: workflow.id };
    reportIfHeld({ key, ...stored, now: record?.now }, config);
  }
  try {
    const word = run.store.switchOf(workflow.id);
    const standing = Standing.of(config, run, stored, record?.now ?? clock.now(), word);
    if (stored !== undefined) warnOfNeverShown(config, standing);
    return standing;
  } catch (error) {
    onError(error);
    return 'unreadable';
  }
}

/** Where a run stands by what the store answered to a claim; `undefined` where it did not say. */
export function standingOfRefused(
  rules: StandingRules & Pick<GateConfig, 'clock'>,
  run: Run,
  { snapshot, held, freeze, unsettled, now }: Refused,
): Standing | 'unreadable' | undefined {
  if (snapshot === undefined) return undefined;
  try {
    const record = {
      snapshot,
      ...(held && { claim: held }),
      ...(freeze && { frozen: freeze }),
      ...(unsettled && { unsettled }),
    };
    const word = run.store.switchOf(rules.workflow.id);
    return Standing.of(rules, run, record, now ?? rules.clock.now(), word);
  } catch (error) {
    rules.onError(error);
    return 'unreadable';
  }
}

/**
 * Where a run stands now, with the data that it would begin with if they decide what is shown.
 *
 * @param onAway called where the store fails
 */
export function standingNow(
  config: GateConfig,
  run: Run,
  onAway?: () => void,
): MaybePromise<Standing | Absent> {
  return after(recordNow(config, run), (record) => {
    if (record === 'away') {
      onAway?.();
      return 'unavailable';
    }
    const standing = standingIn(config, run, record);
    return typeof standing === 'object' ? asShown(config, run, standing) : standing;
  });
}

/**
 * As {@link standingNow}, for lists that hide what is not available. If the store fails, the client
 * is notified once it works, and lists again.
 */
export function standingForLists(
  config: GateConfig,
  admission: Admission,
  lists: readonly ListKind[],
): MaybePromise<Standing | Absent> {
  const { listed } = admission;
  return listed === undefined
    ? 'unknown'
    : standingNow(config, listed, () => admission.listMissed(lists));
}

/**
 * Where the run stood when this request read it. `undefined` without such a read, or if only a
 * claim can know. So it is if the run has moved, has a claim, is overdue, or begins with data.
 */
export function standingAsRead(config: GateConfig, run: Run): Standing | 'unreadable' | undefined {
  const { id } = config.workflow;
  const record = run.fresh();
  if (record === undefined || run.turns.isTaken(turnKey({ run: run.run, workflow: id })))
    return undefined;
  if (storedIn(record, id)?.claim !== undefined) return undefined;
  const standing = standingIn(config, run, record);
  if (typeof standing === 'string') return standing === 'unreadable' ? standing : undefined;
  const isOpen = standing.expiry !== undefined || asksToShow(config, standing);
  return isOpen ? undefined : standing;
}

/** What the app's `begin` has answered for the runs of a request, by workflow. */
const asked = new WeakMap<Run, Map<Workflow, Promise<Beginning>>>();

/**
 * Asks the app how a run begins, at most once in each request; rejects as {@link askBegin}.
 * `undefined` where runs begin as the machine says.
 */
export function beginningOf(config: GateConfig, run: Run): (() => Promise<Beginning>) | undefined {
  const { begin, workflow } = config;
  if (begin === undefined) return undefined;
  return () => {
    const known = asked.get(run) ?? new Map<Workflow, Promise<Beginning>>();
    asked.set(run, known);
    const beginning =
      known.get(workflow) ?? askBegin(begin, { run: run.run, principal: run.actor }, config);
    known.set(workflow, beginning);
    return beginning;
  };
}

/**
 * Gives a run that the next call begins as it would begin: with its data, and in its state.
 * `unavailable` where the app's `begin` fails, which `onError` gets. Writes nothing.
 */
export function asBegun(
  config: GateConfig,
  run: Run,
  standing: Standing,
): MaybePromise<Standing | 'unavailable'> {
  const begin = standing.begins ? beginningOf(config, run) : undefined;
  if (begin === undefined) return standing;
  return begin()
    .then((beginning) => standing.begunWith(beginning))
    .catch((error: unknown) => {
      config.onError(error);
      return 'unavailable' as const;
    });
}

/** As {@link asBegun}, where what a client is shown depends on the data. */
export function asShown(
  config: GateConfig,
  run: Run,
  standing: Standing,
): MaybePromise<Standing | 'unavailable'> {
  return asksToShow(config, standing) ? asBegun(config, run, standing) : standing;
}

/**
 * Whether what a client is shown depends on what the app's `begin` has to give. That is a state, or
 * data that a statechart's guards or a `visible` may read.
 */
export function asksToShow({ begin, workflow }: GateConfig, { begins }: Standing): boolean {
  const isAsked = !workflow.model.isFlat || workflow.hides || workflow.starts.length > 0;
  return begins && begin !== undefined && isAsked;
}

/** A run that the next call begins anew is never seen at its end, so such bindings are useless. */
function warnOfNeverShown({ workflow, warnOnce }: GateConfig, { beginsAnew }: Standing): void {
  if (workflow.onlyAtEnd.length === 0 || !beginsAnew) return;
  warnOnce(
    `the gate "${workflow.id}" binds ${quoteNames(workflow.onlyAtEnd)} to final states alone, so ` +
      'it is never available: the next call begins an ended run anew, by default in the runs of ' +
      "principals. Bind it to other states too, or give fsmGate({ whenEnded: 'keep' })",
  );
}

/** What operators have stopped of all runs, or that this is not known. */
export type OperatorsStop =
  | { readonly reason: 'frozen'; readonly stops: 'workflow' | 'tool' }
  | { readonly reason: 'unavailable' };

/**
 * What operators have stopped, by what they said; `undefined` where all goes on.
 *
 * @param tool stopped by its name or its glob; `undefined`: only the whole workflow counts
 */
export function stopIn(
  said: WorkflowFreeze | 'unread' | undefined,
  workflow: Workflow,
  tool: string | undefined,
): OperatorsStop | undefined {
  if (said === 'unread') return { reason: 'unavailable' };
  if (said === undefined) return undefined;
  const { all, tools } = said;
  if (all !== undefined) return { reason: 'frozen', stops: 'workflow' };
  if (tools.size === 0 || tool === undefined) return undefined;
  const isStopped = tools.has(tool) || tools.has(workflow.keyOf(tool));
  return isStopped ? { reason: 'frozen', stops: 'tool' } : undefined;
}
