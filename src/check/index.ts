/**
 * What there is to know of a gate before any model calls it: its graph, as data and as a diagram.
 * It is pure: it starts nothing, and it changes nothing of the gate.
 */

export type { CallOutcome, ProofStep } from './exploration.ts';
export {
  type CheckOptions,
  checkWorkflow,
  FINDING_CODES,
  type Finding,
  type FindingCode,
} from './findings.ts';
export {
  activeNodes,
  type EdgeTool,
  type GraphEdge,
  type GraphNode,
  type GraphTool,
  type WorkflowGraph,
  type WorkflowKind,
  workflowGraph,
} from './graph.ts';
export { toMermaid } from './mermaid.ts';
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
