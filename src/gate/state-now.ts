import { quoteNames } from '../errors.ts';
import { turnKey } from '../session/claim.ts';
import type { Admission, RunContext } from '../session/run-context.ts';
import type { FsmSnapshot, RunRecord } from '../stores/store.ts';
import type { ListKind } from '../wire/json-rpc.ts';
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
 * Where the run stood when it was read for this very request. `undefined` where nothing
 * had to be read, the run has moved since, or is about to move: another call holds it.
 */
export function stateAsRead(config: GateConfig, context: RunContext): FsmSnapshot | undefined {
  const { id } = config.workflow;
  const record = context.fresh();
  if (record === undefined || context.turns.isTaken(turnKey(context, id))) return undefined;
  if (Object.hasOwn(record.workflows, id) && record.workflows[id]?.claim !== undefined)
    return undefined;
  const found = standing(config, context, record);
  return typeof found === 'object' ? found : undefined;
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
  const { workflow } = config;
  if (record === undefined && create === undefined) return 'unknown';
  const stored = record !== undefined && Object.hasOwn(record.workflows, workflow.id);
  const { snapshot, claim } = (stored && record?.workflows[workflow.id]) || {};
  tellIfHeld({ run, workflow: workflow.id }, claim, config);
  if (snapshot === undefined) return { ...workflow.start, updatedAt: 0 };
  const position = understood(config, snapshot);
  if (position === undefined) return 'unavailable';
  const known = { ...position, updatedAt: snapshot.updatedAt };
  const { position: now } = workflow.overdue(known, record?.now ?? config.clock.now()) ?? {};
  warnOfNeverShown(config, run);
  const shown = shownPosition(config, run, now ?? known);
  return { ...shown, updatedAt: snapshot.updatedAt };
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
