import { quoteNames } from '../errors.ts';
import type { Admission, Run } from '../session/run.ts';
import { beginsAnew, shownPosition } from '../step/ends.ts';
import { turnKey } from '../step/step.ts';
import { tellIfHeld } from '../step/unknown-outcome.ts';
import type { ClaimView, FsmSnapshot, RunRecord, WorkflowRecord } from '../stores/store.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import type { Position } from '../workflow/position.ts';
import type { Understood } from '../workflow/workflow.ts';
import type { GateConfig } from './config.ts';

/** `unknown`: the run is no more; `unavailable`: the store cannot be asked. */
export type NotFound = 'unknown' | 'unavailable';

/** Where the run stands for its clients. */
export function stateNow(config: GateConfig, run: Run): MaybePromise<FsmSnapshot | NotFound> {
  return after(recordNow(config, run), (record) =>
    record === 'away' ? 'unavailable' : standing(config, run, record),
  );
}

/**
 * Where the run stood when it was read for this very request. `undefined` where nothing had to be
 * read, the run has moved since, or is about to move: another call holds it, or its time is over.
 */
export function stateAsRead(config: GateConfig, run: Run): FsmSnapshot | 'unavailable' | undefined {
  const { id } = config.workflow;
  const record = run.fresh();
  if (record === undefined || run.turns.isTaken(turnKey({ run: run.run, workflow: id })))
    return undefined;
  if (storedIn(record, id)?.claim !== undefined) return undefined;
  const stood = stands(config, record);
  if (typeof stood !== 'object') return stood;
  return stood.isOverdue ? undefined : shown(config, run.run, stood);
}

/**
 * The same for lists that hide what is not available, of the run that they are about. Where the
 * store cannot be asked, the client is told to list again once it can.
 */
export function stateForLists(
  config: GateConfig,
  admission: Admission,
  lists: readonly ListKind[],
): MaybePromise<FsmSnapshot | NotFound> {
  const { listed } = admission;
  if (listed === undefined) return 'unknown';
  return after(recordNow(config, listed), (record) => {
    if (record !== 'away') return standing(config, listed, record);
    admission.listMissed(lists);
    return 'unavailable';
  });
}

/** The run's record; `away` where the store cannot be asked. */
export function recordNow(
  { workflow, onError }: GateConfig,
  run: Run,
): MaybePromise<RunRecord | undefined | 'away'> {
  return (
    run.fresh() ??
    run.store.read(run.run, run.ttlMs, workflow.id).catch((error: unknown) => {
      onError(error);
      return 'away' as const;
    })
  );
}

/** Where a run of that record stands for its clients. */
export function standing(
  config: GateConfig,
  { run, create }: Run,
  record: RunRecord | undefined,
): FsmSnapshot | NotFound {
  if (record === undefined && create === undefined) return 'unknown';
  const { id } = config.workflow;
  const entry = storedIn(record, id);
  if (entry !== undefined)
    tellIfHeld({ key: { run, workflow: id }, ...entry, now: record?.now }, config);
  const stood = stands(config, record);
  return typeof stood === 'object' ? shown(config, run, stood) : stood;
}

/** What a run's record has of one workflow, whose id may be a name that every object has. */
export function storedIn(
  record: RunRecord | undefined,
  workflow: string,
): WorkflowRecord | undefined {
  return record && Object.hasOwn(record.workflows, workflow)
    ? record.workflows[workflow]
    : undefined;
}

/**
 * A stored snapshot as the gate understands it at `now`; `undefined` where it does not, which is
 * told to `onError`.
 */
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
 * What a claim says of its run: one that may be taken over holds nothing up once its lease is over.
 */
export function statusOf(claim: ClaimView | undefined): 'idle' | 'running' | 'held' {
  if (claim === undefined || (!claim.live && claim.uncertain === 'retry')) return 'idle';
  return claim.live ? 'running' : 'held';
}

/** Where a run stands, and whether its stored state is one whose time is over. */
export interface Stood {
  readonly position: Position;
  readonly updatedAt: number;
  readonly isOverdue: boolean;
}

/** The same whether or not the next call begins the run anew. */
export function stands(config: GateConfig, record: RunRecord | undefined): Stood | 'unavailable' {
  const { workflow } = config;
  const snapshot = storedIn(record, workflow.id)?.snapshot;
  if (snapshot === undefined) return { position: workflow.start, updatedAt: 0, isOverdue: false };
  const known = understood(config, snapshot, record?.now);
  if (known === undefined) return 'unavailable';
  const { position, left } = known;
  const { updatedAt } = snapshot;
  return { position: left?.position ?? position, updatedAt, isOverdue: left !== undefined };
}

function shown(config: GateConfig, run: string, { position, updatedAt }: Stood): FsmSnapshot {
  if (updatedAt > 0) warnOfNeverShown(config, run);
  return { ...shownPosition(config, run, position), updatedAt };
}

/** Once for each gate: a run that begins anew with the next call is never seen at its end. */
function warnOfNeverShown(config: GateConfig, run: string): void {
  const { workflow, warnOnce } = config;
  if (workflow.onlyAtEnd.length === 0 || !beginsAnew(config, run)) return;
  warnOnce(
    `${quoteNames(workflow.onlyAtEnd)} of "${workflow.id}" never available: bound to final states alone, in which no run is seen ` +
      `where the next call begins it anew, as by default the runs of principals. Bind to other states too, or give fsmGate({ whenEnded: 'keep' })`,
  );
}
