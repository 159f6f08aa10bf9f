import type { RunContext } from '../session/run-context.ts';
import type { FsmSnapshot, RunRecord } from '../stores/store.ts';
import { understood } from './admit.ts';
import type { GateConfig } from './gate-config.ts';

/** Where the run stands; `unknown` where it has ended, `unavailable` where the store cannot be asked. */
export async function stateNow(
  config: GateConfig,
  context: RunContext,
): Promise<FsmSnapshot | 'unknown' | 'unavailable'> {
  const { workflow, onError } = config;
  let record: RunRecord | undefined;
  try {
    record = context.fresh() ?? (await context.store.read(context.run, context.ttlMs));
  } catch (error) {
    onError(error);
    return 'unavailable';
  }
  if (record === undefined && context.create === undefined) return 'unknown';
  const stored = record !== undefined && Object.hasOwn(record.workflows, workflow.id);
  const snapshot = stored ? record?.workflows[workflow.id]?.snapshot : undefined;
  if (snapshot === undefined) return { ...workflow.start, updatedAt: 0 };
  const position = understood(config, snapshot);
  if (position === undefined) return 'unavailable';
  const known = { ...position, updatedAt: snapshot.updatedAt };
  const next = workflow.overdue(known, record?.now ?? config.clock.now());
  return next === undefined ? known : { ...next.position, updatedAt: known.updatedAt };
}
