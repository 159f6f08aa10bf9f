/**
 * What can be known of a gate before a model calls it: its graph, its diagram, its faults, and
 * proofs. All of it is pure: it starts nothing, and changes nothing in the gate.
 */
export type { BindingKind } from '../../../src/internal.ts';
export {
  type CheckedTool,
  type CheckOptions,
  checkWorkflow,
  FINDING_CODES,
  type Finding,
  type FindingCode,
  type Findings,
} from './findings.ts';
export { activeNodes, workflowGraph } from './graph.ts';
export type {
  EdgeTool,
  GraphCalls,
  GraphCondition,
  GraphEdge,
  GraphLimit,
  GraphNode,
  GraphStart,
  GraphTool,
  WorkflowGraph,
  WorkflowKind,
} from './graph-data.ts';
export { type MermaidOptions, toMermaid } from './mermaid.ts';
export type { CallOutcome, ProofStep, ProofTurn } from './proof-step.ts';
export {
  type Disproven,
  never,
  type Proof,
  type ProofOptions,
  type ProofTool,
  type Proven,
  precedes,
  type Reachability,
  reaches,
  type Undecided,
} from './proofs.ts';
export type {
  FirstRefusal,
  Replay,
  ReplayDifference,
  ReplayedDoubt,
  ReplayedHistory,
  ReplayedRefusal,
  ReplayOptions,
} from './replay.ts';
export { type ReplayCallsOptions, type ReplayedCalls, replayCalls } from './replay-calls.ts';
export {
  type SuggestedRule,
  type Suggestions,
  type SuggestOptions,
  suggestRules,
} from './suggest.ts';
export {
  type ArgumentsSchema,
  type NextToolSchema,
  replayTrail,
  type ToolWithSchema,
  type TrailMessage,
  type TrailPrompts,
  type TrailPromptsOptions,
  type TrailReplay,
  type TrailReplayFault,
  type TryFailure,
  trailToPrompts,
} from './trails.ts';
export { type FoldOptions, foldGraph, type OrderProgress, orderProgress } from './view.ts';
