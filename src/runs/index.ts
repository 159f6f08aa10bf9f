/** What an operator does with runs, and sees of them. */

export type { Doubt } from '../follow/followed-run.ts';
export type {
  Observed,
  ObservedHour,
  ObservedRefusal,
  ObservedRule,
  Unjudged,
} from '../follow/observations.ts';
export type { ObservedMark } from '../gate/mode.ts';
export type { SetFreeze, Stopped } from '../step/switch.ts';
export { entryWords } from '../workflow/advice.ts';
export type { GivenBeginning, GivenFact } from '../workflow/call-rules.ts';
export type { ComparedLimit, ComparedTool, SomeRuns } from './compared-runs.ts';
export {
  type Explained,
  type ExplainedRun,
  type ExplainedTool,
  explain,
  type HeldOutcome,
  heldOutcomes,
  type WhatIf,
  type WhatIfMove,
  whatIf,
} from './explain.ts';
export {
  type HealthHandler,
  type HealthReport,
  type ListedRun,
  type WorkflowHealth,
  type WorkflowHealthOptions,
  workflowHealth,
} from './health.ts';
export { type Runs, runsOf } from './runs.ts';
export type {
  AllFrozen,
  AllUnfrozen,
  BeginOptions,
  Begun,
  CountOptions,
  Deleted,
  EnforceOptions,
  Erased,
  EraseOptions,
  FreezeAllOptions,
  FreezeOptions,
  Frozen,
  HeldRun,
  ListOptions,
  ModeSet,
  PageOptions,
  Resolution,
  ResolveAllOptions,
  ResolvedAll,
  ResolvedRun,
  ResolveOptions,
  Restarted,
  RunsOptions,
  RunsUnderWay,
  RunView,
  RunViews,
  SendOptions,
  Sent,
  StuckOptions,
  Unfrozen,
  Updated,
  WorkflowMode,
} from './runs-options.ts';
export type {
  CheckedRuns,
  CheckRunsOptions,
  ComparedDeployment,
  MigratedRuns,
  NotedRecord,
  RunsInState,
  UnboundSteps,
  UnreadableRuns,
} from './trial.ts';
