/**
 * Moves of runs that no request is about: an event of the app's, a deadline, an operator's word on
 * a held call. Hides that each of them is a step too, with a claim, a commit and a trail entry.
 */
import type { Clock } from '../basics/clock.ts';
import { digestOf } from '../basics/digest.ts';
import { InterlockError } from '../basics/errors.ts';
import type { Events } from '../basics/events.ts';
import { newToken } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';
import type { StopReason } from '../basics/reasons.ts';
import { askBegin, type Begin, claimRun } from '../step/claim.ts';
import { moveTo, type StepMove } from '../step/outcome.ts';
import { NO_REQUEST, type Refused, Step, type StepRules } from '../step/step.ts';
import { type GuardedStore, persist, StoreUnavailable } from '../step/store-calls.ts';
import type { WorkflowSwitch } from '../step/switch.ts';
import { pauseBefore, type Turns } from '../step/turns.ts';
import { reportIfHeld } from '../step/unknown-outcome.ts';
import type {
  ClaimView,
  CommitRequest,
  Freeze,
  FreezeResult,
  FsmSnapshot,
  Json,
  SessionRecord,
  TrailDraft,
} from '../stores/store.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import { bareCall, type Decided } from '../workflow/facts.ts';
import type { Position } from '../workflow/position.ts';
import { countFailure, FREEZE, UNFREEZE } from '../workflow/stored.ts';
import type { Beginning, Workflow } from '../workflow/workflow.ts';
import { mountedAs } from './config.ts';
import { decide, OF_MOVE, stopNow } from './decide.ts';
import { boundLists, listsChangedBy } from './list-changes.ts';
import { recordMove } from './recorded-call.ts';
import { isFromOutside, OUTSIDE, Standing, stopIn, storedIn } from './standing.ts';
import { isStableEverywhere } from './visibility.ts';

/** What it takes to move runs from outside. */
export interface OutsideMover {
  readonly workflow: Workflow;
  readonly store: GuardedStore;
  /** How long a run lives after its last use. */
  readonly ttlOf: (run: string) => number;
  readonly clock: Clock;
  readonly turns: Turns;
  readonly events: Events;
  readonly onError: (error: unknown) => void;
  /** Gives what a run begins with. Default: as the gate does that this process mounts. */
  readonly begin?: Begin | undefined;
  /** Notifies a run's clients that these lists changed. */
  notify(run: string, lists: readonly ListKind[]): void;
}

/** Why a run was not moved. */
export type NotMoved = 'unknown-run' | 'busy' | 'held' | StopReason;

/** One move from outside, and how it differs from a step. */
interface OutsideMove extends Pick<CommitRequest, 'settles'> {
  /** Stands in the tool's place, in the claim. */
  readonly name: string;
  readonly payload?: unknown;
  /** How long it waits for a step that is under way. */
  readonly waitMs?: number;
  /** As in a claim: creates the run if it does not exist. */
  readonly create?: SessionRecord | undefined;
  /** Gives how the run begins. Default: {@link outsideBeginning}. */
  readonly begin?: (() => Promise<Beginning>) | undefined;
  /** As in {@link Wanted}. */
  readonly begins?: boolean;
  /** Whether it moves a run though operators have stopped the whole workflow. Default `false`. */
  readonly whileStopped?: boolean;
}

/** Asks the app how a run begins; `undefined` where that is as the machine says. */
export function outsideBeginning(
  { begin, workflow, store, ttlOf, clock }: OutsideMover,
  run: string,
): (() => Promise<Beginning>) | undefined {
  const asked = begin ?? mountedAs(workflow).begin;
  if (asked === undefined) return undefined;
  return async () => {
    const record = await store.read(run, ttlOf(run), workflow.id);
    const about = { run, principal: record?.session.principal };
    return askBegin(asked, about, { workflow, clock });
  };
}

/** Such a move waits for no upstream, so it is over soon. */
const TIMES = { waitMs: 10_000, leaseMs: 8_000, maxStepMs: 60_000, cancelGraceMs: 0 } as const;

/**
 * Moves a run with the same claim, commit and trail as a step. `change` gets the run's position,
 * and gives the move, or `undefined` for none.
 *
 * @throws StoreUnavailable, or what `begin` or `change` throws: the run stays as it was
 */
export async function moveFromOutside(
  mover: OutsideMover,
  run: string,
  {
    name,
    payload = null,
    settles = true,
    waitMs = TIMES.waitMs,
    create,
    begin = outsideBeginning(mover, run),
    begins,
    whileStopped = false,
  }: OutsideMove,
  change: (
    from: Position,
    isFirst: boolean,
    at: number,
  ) => StepMove | undefined | Promise<StepMove | undefined>,
): Promise<StepMove | NotMoved | 'unchanged'> {
  const { workflow, store, ttlOf, turns, clock, events, onError } = mover;
  const rules: StepRules = {
    workflow,
    whenEnded: 'keep',
    times: { ...TIMES, waitMs },
    waiting: undefined,
    clock,
    events,
    onError,
  };
  // What operators say of all runs needs no record of this one. The store asks the rest of OF_MOVE
  // with the claim, which must be atomic.
  const word = store.switchOf(workflow.id);
  const anyRun = Standing.of(rules, { run, actor: undefined }, undefined, clock.now(), word);
  const stops = (): MaybePromise<Refused | undefined> =>
    whileStopped ? undefined : stopNow(anyRun, {});
  const digest = `${OUTSIDE}${digestOf(payload)}`;
  const claim = (uncertain: 'retry' | 'hold'): Promise<Step | Refused> => {
    const wanted = {
      run: { run, store, ttlMs: ttlOf(run), turns, create },
      description: { tool: name, digest, uncertain },
      note: undefined,
      states: undefined,
      begin,
      begins,
      stops,
      request: NO_REQUEST,
      onTooLong: () => {},
    };
    return claimRun(rules, wanted, (own) => notifyMovedOutside(mover, run, own));
  };
  // The move does nothing but its own commit, so it may be repeated.
  let step = (await stops()) ?? (await claim('retry'));
  // A client can leave as many unknown outcomes as the store keeps keys. That must not keep an
  // operator from the run: a claim that holds needs no room for a key.
  if (!(step instanceof Step) && step.reason === 'too-many-held') step = await claim('hold');
  if (!(step instanceof Step)) {
    const { reason } = step;
    if (reason === 'busy' || reason === 'held' || reason === 'frozen') return reason;
    if (reason === 'unknown') return 'unknown-run';
    if ('fault' in step) throw step.fault;
    throw new StoreUnavailable('the store could not be asked');
  }
  let move: StepMove | undefined;
  try {
    if (step.understood === undefined) throw step.fault;
    const { position } = step.understood;
    move = await change(position, step.isFirst, step.grantedAt);
  } catch (error) {
    await step.withdraw();
    throw error;
  }
  if (move === undefined) {
    await step.withdraw();
    return 'unchanged';
  }
  const remake = async (moved: Step): Promise<StepMove | undefined> => {
    const { understood, isFirst, grantedAt } = moved;
    if (understood === undefined) return undefined;
    const anew = await change(understood.position, isFirst, grantedAt);
    if (anew !== undefined) move = anew;
    return anew;
  };
  const status = await step.saveOrThrow(move, { settles }, remake);
  if (status === 'moved') return 'unchanged';
  if (status !== 'committed') return status === 'unknown' ? 'unknown-run' : 'busy';
  notifyMovedOutside(mover, run, move);
  return move;
}

/**
 * Adds a move to a run without its claim, so beside a step that is running or held. Of a run that
 * has not begun it is a move with a claim, which begins it.
 *
 * @param token to record the move again under it changes nothing
 * @throws StoreUnavailable, what `begin` or `change` throws: the run stays as it was
 */
export async function recordFromOutside(
  mover: OutsideMover,
  run: string,
  what: OutsideMove,
  token: string,
  change: (from: Position, isFirst: boolean, at: number) => StepMove | undefined,
): Promise<StepMove | NotMoved | 'unchanged'> {
  const { workflow, store, ttlOf, clock } = mover;
  const ttlMs = ttlOf(run);
  for (;;) {
    const record = await store.read(run, ttlMs, workflow.id);
    const stored = storedIn(record, workflow.id);
    if (stored === undefined) {
      const begun = await moveFromOutside(mover, run, what, change);
      // Meanwhile a call has begun it, so that there is something to record it beside.
      if (begun === 'busy' || begun === 'held') continue;
      return begun;
    }
    const said = store.switchOf(workflow.id)?.now();
    const stop = stopIn(await said, workflow, undefined);
    if (stop?.reason === 'unavailable') throw new StoreUnavailable('the store could not be asked');
    if (stop !== undefined || stored.frozen !== undefined) return 'frozen';
    const at = record?.now ?? clock.now();
    const { create, begin = outsideBeginning(mover, run) } = what;
    const about = { run, token, create, begin, forMs: TIMES.leaseMs };
    const found = { ...stored.snapshot, ...workflow.stand(stored.snapshot, at) };
    const saved = await recordMove({ ...mover, ttlMs }, about, found, (from, isFirst) =>
      change(from, isFirst, at),
    );
    if (saved === undefined) return 'unchanged';
    if (saved === 'unknown') return 'unknown-run';
    notifyMovedOutside(mover, run, saved.move);
    return saved.move;
  }
}

/**
 * Stops a run at once, or lets it go on, by a mark beside its claim. Its clients are notified.
 *
 * @param by who stops it; `undefined` lets it go on
 * @returns the state of the run then, and whether that has changed anything
 * @throws StoreUnavailable
 */
export async function freezeFromOutside(
  mover: OutsideMover,
  run: string,
  by: Freeze | undefined,
  said: Freeze,
  create?: SessionRecord,
): Promise<{ readonly isChanged: boolean; readonly state: string } | 'unknown-run'> {
  const { workflow, store, clock, events, onError, notify } = mover;
  const ttlMs = mover.ttlOf(run);
  const token = newToken();
  const lasting = { clock, forMs: TIMES.leaseMs, onError };
  const record = await persist(() => store.read(run, ttlMs, workflow.id), lasting);
  const from = storedIn(record, workflow.id)?.snapshot.state ?? workflow.start.state;
  const entry = { from, event: by === undefined ? UNFREEZE : FREEZE, ...said };
  const initial = { ...workflow.start, updatedAt: clock.now() };
  const key = { run, workflow: workflow.id, token, create, ttlMs };
  const ask = (): Promise<FreezeResult> => store.freeze({ ...key, freeze: by, initial, entry });
  const frozen = await persist(ask, lasting);
  if (frozen.status === 'unknown') return 'unknown-run';
  const { state } = frozen.snapshot;
  if (frozen.status === 'unchanged') return { isChanged: false, state };
  if (!isStableEverywhere(workflow)) notify(run, boundLists(workflow));
  if (events.isOn) {
    const type = by === undefined ? 'run.unfrozen' : 'run.frozen';
    events.publish({ type, workflow: workflow.id, runKey: run, state, ...said });
  }
  return { isChanged: true, state };
}

/** @throws InterlockError `ERR_INTERLOCK_STORE` where the store keeps no switches */
export function switchOf({ workflow, store }: OutsideMover): WorkflowSwitch {
  const found = store.switchOf(workflow.id);
  if (found !== undefined) return found;
  throw new InterlockError(
    'ERR_INTERLOCK_STORE',
    'freezeAll(): this store keeps no switches: it lacks readSwitch() and swapSwitch()',
  );
}

/**
 * Waits for the step that is under way in a run, for at most 10 s, and gives the state of the run
 * then; `undefined` where the store cannot be asked.
 */
export async function stateAfterStep(
  { workflow, store, ttlOf, clock, onError }: OutsideMover,
  run: string,
): Promise<string | undefined> {
  const deadline = clock.now() + TIMES.waitMs;
  try {
    for (let attempt = 0; ; attempt++) {
      const stored = storedIn(await store.read(run, ttlOf(run), workflow.id), workflow.id);
      const left = deadline - clock.now();
      if (stored?.claim?.live !== true || left <= 0) return stored?.snapshot.state;
      await new Promise<void>((resolve) => {
        clock.after(Math.min(pauseBefore(attempt), left), () => resolve());
      });
    }
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/**
 * Notifies a run's clients of a move that changed their lists. How their gates are mounted is not
 * known here: they may keep ended runs, or begin them anew.
 */
export function notifyMovedOutside(
  { workflow, notify }: OutsideMover,
  run: string,
  move: StepMove,
): void {
  if (isStableEverywhere(workflow)) return;
  const lists = (['keep', 'restart'] as const).flatMap((whenEnded) =>
    listsChangedBy({ workflow, whenEnded }, run, move),
  );
  if (lists.length > 0) notify(run, [...new Set(lists)]);
}

/** Notifies a held run's clients that its steps are back in their lists. */
export function notifyResolved({ workflow, notify }: OutsideMover, run: string): void {
  if (workflow.claiming.size > 0 && !isStableEverywhere(workflow)) notify(run, ['tools']);
}

/** The runs whose state's time may be over. */
export async function* overdueRuns({ store, workflow }: OutsideMover): AsyncIterable<string> {
  if (store.runs === undefined) {
    throw new InterlockError(
      'ERR_INTERLOCK_STORE',
      'sweep(): this store cannot list runs by their state; give it the runs to look at',
    );
  }
  for (const [state, forMs] of workflow.deadlines)
    yield* store.runs({ workflow: workflow.id, state, forMs });
}

/**
 * Moves a run whose deadline has passed; says whether it did. Leaves a busy run alone: its step
 * looks at the time too.
 */
export async function expireFromOutside(mover: OutsideMover, run: string): Promise<boolean> {
  const { id } = mover.workflow;
  const record = await mover.store.read(run, mover.ttlOf(run), id);
  const entry = storedIn(record, id);
  if (entry === undefined) return false;
  reportIfHeld({ key: { run, workflow: id }, ...entry, now: record?.now }, mover);
  const rules = { workflow: mover.workflow, whenEnded: 'keep', onError: mover.onError } as const;
  try {
    const viewpoint = { run, actor: undefined };
    const standing = Standing.of(rules, viewpoint, entry, record?.now ?? mover.clock.now());
    // A step that is under way looks at the time too.
    const why = decide(standing, {}, ['turn', ...OF_MOVE]);
    if (standing.expiry === undefined || why !== undefined) return false;
  } catch (error) {
    // A run that is not understood must not end a sweep: other runs come after it.
    mover.onError(error);
    return false;
  }
  // Nothing to change: the claim itself moves a run whose deadline has passed.
  const sweep = { name: 'sweep', waitMs: 0, whileStopped: true };
  const result = await moveFromOutside(mover, run, sweep, () => undefined);
  return result === 'unchanged';
}

/**
 * The event that a held call sends by the outcome that an operator gives; `null` if none. A move
 * from outside sends none: it was not saved, or it would hold nothing.
 *
 * @throws InterlockError `ERR_INTERLOCK_EVENT` where it depends on arguments or results: a held
 * call keeps neither
 */
export function eventOfHeld(
  workflow: Workflow,
  claim: Pick<ClaimView, 'tool' | 'digest'>,
  state: string,
  outcome: 'succeeded' | 'failed',
): string | null {
  if (isFromOutside(claim)) return null;
  const { tool } = claim;
  try {
    const binding = workflow.match(tool, undefined);
    const source = binding?.eventIn(state, outcome === 'failed' ? 'failure' : 'success') ?? null;
    if (binding !== undefined && typeof source !== 'function') return source;
  } catch {
    // The binding's `when` needs the arguments.
  }
  throw new InterlockError(
    'ERR_INTERLOCK_EVENT',
    `resolve(): which event a call of ${showValue(tool)} sends depends on its arguments or its ` +
      'result; give { event }, or { event: null } for none',
  );
}

/**
 * The run with the failure of a held call counted. `undefined` where the failure sends an event, or
 * where the binding depends on the arguments.
 */
export function failureOfHeld(
  workflow: Workflow,
  tool: string,
  { updatedAt, version, ...position }: FsmSnapshot,
): FsmSnapshot | undefined {
  try {
    const most = workflow.match(tool, undefined)?.retriesIn(position.state) ?? 0;
    const counted = countFailure(position, workflow.renamings.savedOf(tool), most);
    return counted && { ...counted, updatedAt, ...(version !== undefined && { version }) };
  } catch {
    return undefined;
  }
}

/**
 * A held call as rules ask for it, with the outcome that an operator gives; `undefined` where no
 * rule asks for it.
 */
export function ruledCallOfHeld(
  workflow: Workflow,
  claim: Pick<ClaimView, 'tool' | 'digest' | 'use' | 'since'>,
  outcome: 'succeeded' | 'failed',
  now: number,
  snapshot: FsmSnapshot,
  answer?: { readonly run: string; readonly result: Json | undefined },
): Decided | undefined {
  if (isFromOutside(claim)) return undefined;
  const { tool, since = now } = claim;
  const { ledger } = workflow.rules;
  const facts = ledger?.read(snapshot);
  const isAsked =
    outcome === 'succeeded' || (facts && ledger?.keepsFailures(workflow.keyOf(tool), facts));
  const made = { outcome, claimedAt: since, decidedAt: Math.max(since, now) };
  const call = workflow.rules.heldCall(tool, workflow.rules.grantOf(claim), made, answer);
  return isAsked || (call?.uses.length ?? 0) > 0 ? call : undefined;
}

/**
 * The move of a held call's event.
 *
 * @param call the held call, where rules ask for it
 * @param at by the store's clock: in rules the event of a failure is a success at that time
 */
export function moveOfHeld(
  workflow: Workflow,
  { updatedAt: _, version = 0, ...from }: FsmSnapshot,
  event: string | null,
  said: Omit<TrailDraft, 'from' | 'to' | 'event'>,
  call?: Decided,
  at?: number,
): StepMove {
  // Only its own event makes the call: another tool's, or none, leaves it beside that.
  const isOwn = call === undefined || (call.outcome === 'succeeded' && event !== null);
  const position = isOwn ? from : workflow.rules.decided(from, call);
  const timed = event !== null && workflow.isOrder && at !== undefined && bareCall(event, at);
  const sent = (isOwn ? call : undefined) ?? (timed || undefined);
  const next = event === null ? undefined : workflow.next(position, event, said.payload, sent);
  const reached = next?.position ?? position;
  const due = workflow.dueActions(version === 0);
  const actions = [...due, ...(next?.actions ?? [])];
  return moveTo(workflow, from, { position: reached, actions }, { event, ...said });
}
