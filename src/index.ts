export { ERROR_CODES, InterlockError, type InterlockErrorCode } from './errors.ts';
export { type FsmGateOptions, fsmGate } from './fsm-gate.ts';
export { UnknownOutcome } from './gate/unknown-outcome.ts';
export type { CommonOptions, Middleware } from './middleware.ts';
export { PolicyEngine } from './policy/engine.ts';
export { matchGlob } from './policy/glob.ts';
export { detectOverlaps } from './policy/overlaps.ts';
export type {
  CacheDirective,
  InvalidationEvent,
  OverlapWarning,
  PolicyDefaults,
  ResolvedPolicy,
  ResourceNotification,
  StateSyncConfig,
  SyncPolicy,
} from './policy/types.ts';
export {
  type Resolution,
  type ResolveOptions,
  type Runs,
  type RunsOptions,
  type RunView,
  runsOf,
} from './runs.ts';
export type { Clock } from './session/clock.ts';
export { type CurrentStep, currentStep } from './session/current-step.ts';
export { StoreUnavailable } from './session/guarded-store.ts';
export type { CallerRequest } from './session/principal.ts';
export { type SessionStoreOptions, sessionStore } from './session-store.ts';
export { type StateSyncOptions, stateSync } from './state-sync.ts';
export { type MemoryStoreOptions, memoryStore } from './stores/memory.ts';
export type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  FsmStateStore,
  Json,
  RunKey,
  RunRecord,
  SessionRecord,
  StateStore,
  StepDescription,
  TrailDraft,
  TrailEntry,
  TransactionalStateStore,
  Uncertain,
  WorkflowRecord,
} from './stores/store.ts';
export { type ToolDeclaration, tool } from './tool.ts';
export type { Refusal, RefusalReason } from './workflow/advice.ts';
export type { BindableTool, Binding, BindingOptions, CallTest } from './workflow/binding.ts';
export type { FsmConfig, FsmStateConfig } from './workflow/config.ts';
export { initFsmEngine } from './workflow/engine.ts';
export { type GateOptions, StateMachineGate } from './workflow/gate.ts';
export type { ErrorListener, TransitionListener } from './workflow/listeners.ts';
export type { Move, TransitionResult } from './workflow/transition.ts';
