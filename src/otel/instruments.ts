/**
 * The metrics by name, unit and bounds. Hides what the conventions for MCP say of them, and how
 * runs are counted.
 */
import type { BatchObservableResult, Meter } from '@opentelemetry/api';

/** The bounds that the conventions name, in seconds. What takes less is worth knowing too. */
const OPERATION_BOUNDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300];
const OWN_BOUNDS = [0.001, 0.002, 0.005, ...OPERATION_BOUNDS];

/** Attributes that have no word in the conventions. */
export const OWN = {
  workflow: 'mcp_interlock.workflow',
  run: 'mcp_interlock.run',
  state: 'mcp_interlock.state',
  stateTo: 'mcp_interlock.state.to',
  outcome: 'mcp_interlock.outcome',
  reason: 'mcp_interlock.refusal.reason',
  granted: 'mcp_interlock.wait.granted',
  operation: 'mcp_interlock.store.operation',
} as const;

export type Instruments = ReturnType<typeof instrumentsOf>;

/** The metrics that come of events. */
export function instrumentsOf(meter: Meter) {
  const duration = (name: string, bounds: number[], description: string) =>
    meter.createHistogram(name, {
      unit: 's',
      description,
      advice: { explicitBucketBoundaries: bounds },
    });
  const counter = (name: string, unit: string, description: string) =>
    meter.createCounter(name, { unit, description });
  return {
    operations: duration(
      'mcp.server.operation.duration',
      OPERATION_BOUNDS,
      'From when a call reached the first gate until its answer went out.',
    ),
    waits: duration(
      'mcp_interlock.call.wait.duration',
      OWN_BOUNDS,
      'How long calls waited for the turn of their run. Those that did not wait are left out.',
    ),
    steps: duration(
      'mcp_interlock.step.duration',
      OWN_BOUNDS,
      'From when the claim was asked for until the step had ended.',
    ),
    storeTimes: duration(
      'mcp_interlock.step.store.duration',
      OWN_BOUNDS,
      'How long a step waited for the store.',
    ),
    refused: counter('mcp_interlock.call.refused', '{call}', 'Calls that a gate refused.'),
    unknown: counter('mcp_interlock.step.unknown', '{step}', 'Steps whose outcome is unknown.'),
    held: counter(
      'mcp_interlock.step.held',
      '{step}',
      'Steps that a process left behind, which hold their runs; each once in each process.',
    ),
    begun: counter('mcp_interlock.run.begun', '{run}', 'Runs that began.'),
    moved: counter('mcp_interlock.run.moved', '{move}', 'Moves that were saved.'),
    ended: counter('mcp_interlock.run.ended', '{run}', 'Runs that came to their end.'),
    resolved: counter('mcp_interlock.run.resolved', '{run}', 'Runs that a person resolved.'),
    slow: counter('mcp_interlock.store.slow', '{operation}', 'Operations that took long.'),
    storeFailed: counter('mcp_interlock.store.failed', '{operation}', 'Operations that failed.'),
  };
}

/** What `runsOf()` returns, as far as its runs are counted. */
export interface CountedRuns {
  /** The gate's id. */
  readonly workflow: string;
  count(): Promise<{
    readonly states: readonly { readonly state: string; readonly runs: number }[];
    readonly held: number;
    readonly running: number;
  }>;
}

/** Observes how many runs there are, by one question for each workflow; returns how that ends. */
export function countRuns(meter: Meter, counted: readonly CountedRuns[]): () => void {
  if (counted.length === 0) return () => {};
  const gauge = (name: string, unit: string, description: string) =>
    meter.createObservableGauge(name, { unit, description });
  const unfinished = gauge('mcp_interlock.run.unfinished', '{run}', 'Runs that have not ended.');
  const held = gauge('mcp_interlock.run.held', '{run}', 'Runs that wait to be resolved.');
  const running = gauge('mcp_interlock.step.running', '{step}', 'Steps that are under way.');
  const observed = [unfinished, held, running];
  const counts = counted.map((runs) => async (result: BatchObservableResult): Promise<void> => {
    const now = await runs.count();
    const attributes = { [OWN.workflow]: runs.workflow };
    result.observe(held, now.held, attributes);
    result.observe(running, now.running, attributes);
    for (const { state, runs: many } of now.states)
      result.observe(unfinished, many, { ...attributes, [OWN.state]: state });
  });
  for (const count of counts) meter.addBatchObservableCallback(count, observed);
  return () => {
    for (const count of counts) meter.removeBatchObservableCallback(count, observed);
  };
}
