import { quoteNames } from '../errors.ts';
import { turnKey } from '../session/claim.ts';
import type { Admission, RunContext } from '../session/run-context.ts';
import type { FsmSnapshot, RunRecord, WorkflowRecord } from '../stores/store.ts';
import type { ListKind } from '../wire/json-rpc.ts';
import type { Position } from '../workflow/position.ts';
import { understood } from './admit.ts';
import { beginsAnew, shownPosition } from './ends.ts';
import type { GateConfig } from './gate-config.ts';
import { tellIfHeld } from './unknown-outcome.ts';

type Unknown = 'unknown' | 'unavailable';

/**
 * Where the run stands for its clients; `unknown` where it is no more, `unavailable` where the
 * store cannot be asked.
 */
export async function stateNow(
  config: GateConfig,
  context: RunContext,
): Promise<FsmSnapshot | Unknown> {
  const record = await recordNow(config, context);
  return record === 'away' ? 'unavailable' : standing(config, context, record);
}

/**
 * Where the run stood when it was read for this very request. `undefined` where nothing had to be
 * read, the run has moved since, or is about to move: another call holds it, or its time is over.
 */
export function stateAsRead(
  config: GateConfig,
  context: RunContext,
): FsmSnapshot | 'unavailable' | undefined {
  const { id } = config.workflow;
  const record = context.fresh();
  if (record === undefined || context.turns.isTaken(turnKey(context, id))) return undefined;
  if (storedIn(record, id)?.claim !== undefined) return undefined;
  const stood = stands(config, record);
  if (typeof stood !== 'object') return stood;
  return stood.isOverdue ? undefined : shown(config, context.run, stood);
}

/**
 * The same for lists that hide what is not available, of the run that they are about. Where the
 * store cannot be asked, the client is told to list again once it can.
 */
export async function stateForLists(
  config: GateConfig,
  admission: Admission,
  lists: readonly ListKind[],
): Promise<FsmSnapshot | Unknown> {
  const { listed } = admission;
  if (listed === undefined) return 'unknown';
  const record = await recordNow(config, listed);
  if (record !== 'away') return standing(config, listed, record);
  admission.listMissed(lists);
  return 'unavailable';
}

/** The run's record; `away` where the store cannot be asked. */
export async function recordNow(
  { workflow, onError }: GateConfig,
  { fresh, store, run, ttlMs }: RunContext,
): Promise<RunRecord | undefined | 'away'> {
  try {
    return fresh() ?? (await store.read(run, ttlMs, workflow.id));
  } catch (error) {
    onError(error);
    return 'away';
  }
}

/** Where a run of that record stands for its clients. */
export function standing(
  config: GateConfig,
  { run, create }: RunContext,
  record: RunRecord | undefined,
): FsmSnapshot | Unknown {
  if (record === undefined && create === undefined) return 'unknown';
  const { id } = config.workflow;
  tellIfHeld({ run, workflow: id }, storedIn(record, id)?.claim, config);
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

/** Where a run stands, and whether its stored state is one whose time is over. */
interface Stood {
  readonly position: Position;
  readonly updatedAt: number;
  readonly isOverdue: boolean;
}

function stands(config: GateConfig, record: RunRecord | undefined): Stood | 'unavailable' {
  const { workflow, clock } = config;
  const snapshot = storedIn(record, workflow.id)?.snapshot;
  if (snapshot === undefined) return { position: workflow.start, updatedAt: 0, isOverdue: false };
  const position = understood(config, snapshot);
  if (position === undefined) return 'unavailable';
  const known = { ...position, updatedAt: snapshot.updatedAt };
  const next = workflow.overdue(known, record?.now ?? clock.now());
  const { updatedAt } = snapshot;
  return { position: next?.position ?? known, updatedAt, isOverdue: next !== undefined };
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
