// In the order of a request.
export {
  type CloseOptions,
  type SessionMiddleware,
  type SessionStoreOptions,
  sessionStore,
} from './session-store.ts';
export type { CallerRequest } from './session/principal.ts';
export {
  type HandleKey,
  type HandleKeyOptions,
  handleKey,
  type IssuedPrincipal,
  type ManagedHandle,
  type ManagedHandleOptions,
  managedHandle,
  type PrincipalKey,
  principalKey,
  type RunKeyStrategy,
  type SessionKey,
  sessionKey,
} from './session/run-key.ts';
export { type FsmGateOptions, fsmGate } from './fsm-gate.ts';
export type { ListCacheOptions } from './gate/list-cache.ts';
export type { Visibility } from './gate/config.ts';
export type { WhenEnded } from './step/ends.ts';
export { type StateSyncOptions, stateSync } from './state-sync.ts';
export { type CommonOptions, type Middleware, notForwarded } from './middleware.ts';

// Workflows, and what is bound to them.
export { StateMachineGate, type StateMachineGateConstructor } from './workflow/gate.ts';
export type { GateOptions } from './workflow/gate.ts';
export type { FsmConfig, FsmStateConfig } from './workflow/flat-machine.ts';
export type {
  BindableTool,
  Binding,
  BindingOptions,
  CallTest,
  Guard,
  GuardedCall,
} from './workflow/binding.ts';
export type {
  EventSource,
  EventWithPayload,
  FailedCall,
  SucceededCall,
  ToolResult,
} from './workflow/binding.ts';
export type { FsmAction, StateTag } from './workflow/position.ts';
export type { ActionContext, ActionListener } from './workflow/callbacks.ts';
export type { Migrate, StoredRun } from './workflow/stored.ts';
export type {
  XStateContext,
  XStateEvents,
  XStateMachine,
  XStatePaths,
  XStateTags,
  XStateTexts,
} from './workflow/xstate.ts';
export type { Move, TransitionResult } from './workflow/position.ts';
export type { ErrorListener, TransitionListener } from './workflow/callbacks.ts';
export type { Refusal, RefusalReason } from './workflow/advice.ts';
export type { Loop, LoopListener, LoopShieldOptions } from './workflow/loop-shield.ts';
export type { ReadRefusal, ReadRefusalReason } from './workflow/advice.ts';
export type { ReadOptions } from './workflow/reads.ts';
export { initFsmEngine } from './workflow/xstate.ts';
export { type ToolDeclaration, tool } from './tool.ts';

// Steps and runs, from inside of a handler and from outside of any request.
export {
  type CurrentStep,
  type CurrentStepOptions,
  currentStep,
  type StepSource,
} from './session/current-step.ts';
export { UnknownOutcome } from './step/unknown-outcome.ts';
export { type Runs, runsOf } from './runs.ts';
export type { RunsOptions } from './runs-options.ts';
export type {
  Resolution,
  ResolveOptions,
  Restarted,
  RunView,
  SendOptions,
  Sent,
  Updated,
} from './runs-options.ts';

// Policies.
export { matchGlob } from './policy/glob.ts';
export { PolicyEngine } from './policy/engine.ts';
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
} from './policy/config.ts';

// Stores and the bus.
export { type MemoryStoreOptions, memoryStore } from './stores/memory.ts';
export { type AdaptOptions, adaptStateStore } from './stores/adapt.ts';
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
  OpenResult,
  ReleaseOptions,
  RunKey,
  RunRecord,
  RunsQuery,
  SeenSnapshot,
  SessionRecord,
  StateStore,
  StepDescription,
  TrailDraft,
  TrailEntry,
  TransactionalStateStore,
  Uncertain,
  WorkflowRecord,
} from './stores/store.ts';
export { StoreUnavailable } from './step/store-calls.ts';
export {
  BusUnavailable,
  type LocalBusOptions,
  localBus,
  type NotificationBus,
} from './notify/bus.ts';
export type { Clock } from './clock.ts';

export { ERROR_CODES, InterlockError, type InterlockErrorCode } from './errors.ts';
