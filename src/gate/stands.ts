/**
 * Where a run stands for its clients, and what they see from there. Hides where that comes from:
 * the store or this very request, a stored snapshot or the data that the run would begin with.
 */
import { quoteNames } from '../errors.ts';
import type { Admission, Run } from '../session/run.ts';
import { askBegin, begunWith } from '../step/claim.ts';
import { beginsAnew, shownPosition, tellIfHeld } from '../step/outcome.ts';
import { turnKey } from '../step/turns.ts';
import type { ClaimView, FsmSnapshot, Json, RunRecord, WorkflowRecord } from '../stores/store.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import type { Refusal } from '../workflow/advice.ts';
import type { Position } from '../workflow/position.ts';
import type { Sight } from '../workflow/visible.ts';
import type { Understood, Workflow } from '../workflow/workflow.ts';
import type { GateConfig, Visibility } from './config.ts';

/**
 * `unknown`: the run does not exist any more. `unavailable`: the store cannot be asked.
 * `unreadable`: this deployment does not understand what the store has.
 */
export type NotFound = 'unknown' | 'unavailable' | 'unreadable';

/** Where the run stands for its clients. */
export function stateNow(config: GateConfig, run: Run): MaybePromise<FsmSnapshot | NotFound> {
  return after(recordNow(config, run), (record) =>
    record === 'away' ? 'unavailable' : stateIn(config, run, record),
  );
}

function stateIn(
  config: GateConfig,
  run: Run,
  record: RunRecord | undefined,
): MaybePromise<FsmSnapshot | NotFound> {
  const found = snapshotIn(config, run, record);
  return typeof found === 'object' ? asShown(config, run, found) : found;
}

/**
 * Where the run stood when this request read it. `undefined` without such a read, or if it may be
 * old: the run has moved, a call holds it, or its deadline has passed.
 */
export function stateAsRead(config: GateConfig, run: Run): FsmSnapshot | 'unreadable' | undefined {
  const { id } = config.workflow;
  const record = run.fresh();
  if (record === undefined || run.turns.isTaken(turnKey({ run: run.run, workflow: id })))
    return undefined;
  if (storedIn(record, id)?.claim !== undefined) return undefined;
  const stood = storedPosition(config, record);
  if (typeof stood !== 'object') return stood;
  if (stood.isOverdue) return undefined;
  const found = asSeen(config, run.run, stood);
  // The claim will ask the app what the run begins with.
  return isToBegin(config, found) && showsData(config) ? undefined : found;
}

/**
 * Where the run stands, for lists that hide what is not available. If the store fails, the client
 * is told to list again once it works.
 */
export function stateForLists(
  config: GateConfig,
  admission: Admission,
  lists: readonly ListKind[],
): MaybePromise<FsmSnapshot | NotFound> {
  const { listed } = admission;
  if (listed === undefined) return 'unknown';
  return after(recordNow(config, listed), (record) => {
    if (record !== 'away') return stateIn(config, listed, record);
    admission.listMissed(lists);
    return 'unavailable';
  });
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

/** Where the run stands for its clients, without the data that it would begin with. */
export function snapshotIn(
  config: GateConfig,
  { run, create }: Run,
  record: RunRecord | undefined,
): FsmSnapshot | NotFound {
  if (record === undefined && create === undefined) return 'unknown';
  const { id } = config.workflow;
  const entry = storedIn(record, id);
  if (entry !== undefined)
    tellIfHeld({ key: { run, workflow: id }, ...entry, now: record?.now }, config);
  const stood = storedPosition(config, record);
  return typeof stood === 'object' ? asSeen(config, run, stood) : stood;
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

/** A stored snapshot, as this gate understands it at `now`; where it cannot, `onError` is told. */
export function understood(
  { workflow, clock, onError }: Pick<GateConfig, 'workflow' | 'clock' | 'onError'>,
  stored: FsmSnapshot,
  now = clock.now(),
): Understood | undefined {
  try {
    return workflow.understand(stored, now);
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/**
 * What a claim means for its run. Where its step may be repeated, it holds the run only until its
 * lease is over.
 */
export function statusOf(claim: ClaimView | undefined): 'idle' | 'running' | 'held' {
  if (claim === undefined || (!claim.live && claim.uncertain === 'retry')) return 'idle';
  return claim.live ? 'running' : 'held';
}

/** Where a run stands by its record. */
export interface StoredPosition {
  readonly position: Position;
  readonly updatedAt: number;
  /** 0 where the run has not begun. */
  readonly version: number;
  /** Whether the time of the stored state is over: the position is where that leads. */
  readonly isOverdue: boolean;
}

/** A run that has ended stands at its end here, even if the next call begins it anew. */
export function storedPosition(
  config: GateConfig,
  record: RunRecord | undefined,
): StoredPosition | 'unreadable' {
  const { workflow } = config;
  const snapshot = storedIn(record, workflow.id)?.snapshot;
  if (snapshot === undefined)
    return { position: workflow.start, updatedAt: 0, version: 0, isOverdue: false };
  const known = understood(config, snapshot, record?.now);
  if (known === undefined) return 'unreadable';
  const { position, expiry } = known;
  const { updatedAt, version = 0 } = snapshot;
  return {
    position: expiry?.position ?? position,
    updatedAt,
    version,
    isOverdue: expiry !== undefined,
  };
}

/** A run that the next call begins anew looks like one that has not begun: its version is 0. */
function asSeen(
  config: GateConfig,
  run: string,
  { position, updatedAt, version }: StoredPosition,
): FsmSnapshot {
  if (updatedAt > 0) warnOfNeverShown(config, run);
  const seen = shownPosition(config, run, position);
  return { ...seen, updatedAt, version: seen === position ? version : 0 };
}

/** What the app's `begin` has answered for the runs of a request, by workflow. */
const asked = new WeakMap<Run, Map<Workflow, Promise<Json | undefined>>>();

/**
 * Asks the app what a run begins with, at most once in each request; rejects as {@link askBegin}.
 * `undefined` where runs begin with the machine's own data.
 */
export function beginningOf(
  { begin, workflow, clock }: GateConfig,
  run: Run,
): (() => Promise<Json | undefined>) | undefined {
  if (begin === undefined) return undefined;
  return () => {
    const known = asked.get(run) ?? new Map<Workflow, Promise<Json | undefined>>();
    asked.set(run, known);
    const data =
      known.get(workflow) ?? askBegin(begin, { run: run.run, principal: run.actor }, clock);
    known.set(workflow, data);
    return data;
  };
}

/**
 * Gives a run that has not begun, or that the next call begins anew, the data that it would begin
 * with. `unavailable` where the app's `begin` fails, which `onError` is told. Writes nothing.
 */
export function asBegun(
  config: GateConfig,
  run: Run,
  found: FsmSnapshot,
): MaybePromise<FsmSnapshot | 'unavailable'> {
  const begin = isToBegin(config, found) ? beginningOf(config, run) : undefined;
  if (begin === undefined) return found;
  const { workflow, onError } = config;
  return begin()
    .then((data) => ({ ...found, ...begunWith(workflow, found, data) }))
    .catch((error: unknown) => {
      onError(error);
      return 'unavailable' as const;
    });
}

/** A run that the next call begins anew is never seen at its end, so such bindings are useless. */
function warnOfNeverShown(config: GateConfig, run: string): void {
  const { workflow, warnOnce } = config;
  if (workflow.onlyAtEnd.length === 0 || !beginsAnew(config, run)) return;
  warnOnce(
    `the gate "${workflow.id}" binds ${quoteNames(workflow.onlyAtEnd)} to final states alone, so ` +
      'it is never available: the next call begins an ended run anew, by default in the runs of ' +
      "principals. Bind it to other states too, or give fsmGate({ whenEnded: 'keep' })",
  );
}

/** As {@link asBegun}, where what a client is shown depends on the data. */
export function asShown(
  config: GateConfig,
  run: Run,
  found: FsmSnapshot,
): MaybePromise<FsmSnapshot | 'unavailable'> {
  return showsData(config) ? asBegun(config, run, found) : found;
}

/** Whether the app's `begin` gives the run its data: it has not begun, or begins anew. */
export function isToBegin(
  { begin }: GateConfig,
  { version = 0 }: Pick<FsmSnapshot, 'version'>,
): boolean {
  return begin !== undefined && version === 0;
}

/** Whether the run's data decide what a client sees: by a statechart's guards, or `visible`. */
export function showsData({ workflow }: GateConfig): boolean {
  return !workflow.isFlat || workflow.hides;
}

const STALE_HIDE =
  'visibility "hide" has no effect where calls name their runs by a handle: a list names none. ' +
  'Every tool is listed';
const DEPARTURE =
  'visibility "hide" departs from MCP 2026-07-28, where a list of tools "MUST NOT vary … as a ' +
  'side effect of other requests". Clients may keep such a list';

/** What takes a run out of its state where no call does: for a refusal without a way. */
export function awaitedFromOutside(
  { workflow, clock }: Pick<GateConfig, 'workflow' | 'clock'>,
  run: Run,
  at: Position,
  updatedAt: number,
): Pick<Refusal, 'events' | 'leavesInMs'> {
  const events = workflow.outsideEvents(at.state);
  const leavesAt = updatedAt === 0 ? undefined : workflow.leavesAt({ ...at, updatedAt });
  const now = run.fresh()?.now ?? clock.now();
  return {
    ...(events.length > 0 && { events }),
    ...(leavesAt !== undefined && { leavesInMs: Math.max(0, leavesAt - now) }),
  };
}

/** How one gate lists its tools for one request. */
export function visibilityFor(
  { visibility, warnOnce }: GateConfig,
  admission: Admission,
): Visibility {
  if (admission.byArgument) {
    if (visibility === 'hide') warnOnce(STALE_HIDE);
    return 'stable';
  }
  const isStateless = admission.era === 'stateless';
  if (isStateless && visibility === 'hide') warnOnce(DEPARTURE);
  return visibility ?? (isStateless ? 'stable' : 'hide');
}

/** Whether a client must not find out that something hidden exists. */
export function keepsSecrets(config: GateConfig, admission: Admission): boolean {
  return config.refusal === 'unknown-tool' && visibilityFor(config, admission) === 'hide';
}

/** What the run's client sees at that position; `undefined` where no binding has a `visible`. */
export function sightOf(
  { workflow, onError }: Pick<GateConfig, 'workflow' | 'onError'>,
  { run, actor }: Pick<Run, 'run' | 'actor'>,
  position: Position,
): Sight | undefined {
  if (!workflow.hides) return undefined;
  return workflow.sight(position, { run, principal: actor, onError });
}

/** What the client sees in a list of all states: what it would see in a new run. */
export function sightOfAll(
  { workflow, onError }: GateConfig,
  { identity }: Admission,
): Sight | undefined {
  if (!workflow.hides) return undefined;
  const viewer = { run: undefined, principal: identity.binding, onError };
  return workflow.sight(workflow.start, viewer);
}

/**
 * The name of a tool for a client; `otherwise` where `visible` never shows the client that tool.
 */
export function nameToldOf(
  config: GateConfig,
  run: Pick<Run, 'run' | 'actor'>,
  position: Position,
  tool: string,
  otherwise?: string,
): string | undefined {
  return sightOf(config, run, position)?.unlisted.has(tool) === true ? otherwise : tool;
}

/** Whether a list shows the tool to the run's client at that position. */
export function isShown(
  config: GateConfig,
  run: Pick<Run, 'run' | 'actor'>,
  position: Position,
  tool: string,
): boolean {
  if (!config.workflow.isVisible(tool, position.state)) return false;
  return sightOf(config, run, position)?.hidden.has(tool) !== true;
}
