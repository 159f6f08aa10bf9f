import type { RunContext } from '../session/run-context.ts';
import type { FsmSnapshot, RunRecord } from '../stores/store.ts';
import type { GateConfig } from './gate-config.ts';

/** Where the run stands; `unknown` where it has ended, `unavailable` where the store cannot be asked. */
export async function stateNow(
  { workflow, onError }: GateConfig,
  context: RunContext,
): Promise<Pick<FsmSnapshot, 'state' | 'updatedAt'> | 'unknown' | 'unavailable'> {
  let record: RunRecord | undefined;
  try {
    record = context.fresh() ?? (await context.store.read(context.run, context.ttlMs));
  } catch (error) {
    onError(error);
    return 'unavailable';
  }
  if (record === undefined && context.create === undefined) return 'unknown';
  const stored = record !== undefined && Object.hasOwn(record.workflows, workflow.id);
  return (
    (stored ? record?.workflows[workflow.id]?.snapshot : undefined) ?? {
      state: workflow.initial,
      updatedAt: 0,
    }
  );
}
