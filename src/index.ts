// In the order of a request.
export {
  type CloseOptions,
  type SessionMiddleware,
  type SessionStoreOptions,
  sessionStore,
} from './session-store.ts';
export type { CallerRequest } from './session/callers.ts';
export {
  type ConversationKeyOptions,
  conversationKey,
  type HandleKey,
  type HandleKeyOptions,
  handleKey,
  type IssuedPrincipal,
  type ManagedHandle,
  type ManagedHandleOptions,
  managedHandle,
  type PrincipalKey,
  principalKey,
  type RequestKey,
  type RunIdOf,
  type RunKeyOptions,
  type RunKeyRequest,
  type RunKeyStrategy,
  runKey,
  type SessionKey,
  sessionKey,
} from './session/run-key.ts';
export { type AnsweredError, type ErrorAnswer, type FsmGateOptions, fsmGate } from './fsm-gate.ts';
export type { ListCacheOptions } from './gate/list-cache.ts';
export {
  type FailedAnswer,
  type SummarizedRun,
  type TrailOptions,
  unboundTools,
} from './gate/config.ts';
export type { Visibility, VisibilityOf } from './gate/visibility.ts';
export type { StatusToolOptions } from './gate/status-tool.ts';
export type { Begin, BeginningRun, BeginsIn } from './step/claim.ts';
export { beginIn } from './step/claim.ts';
export { UnrecordedSuccess } from './gate/recorded-call.ts';
export type { WhenEnded } from './step/outcome.ts';
export { UnknownOutcome } from './step/unknown-outcome.ts';
export { type StateSyncOptions, stateSync } from './state-sync.ts';
export { type CommonOptions, type Middleware, notForwarded } from './middleware.ts';

// Workflows, and what is bound to them.
export { StateMachineGate, type StateMachineGateConstructor } from './workflow/gate.ts';
export type { GateOptions, OrderOptions } from './workflow/definition.ts';
export type { OrderRule, OrderRules } from './workflow/order.ts';
export type {
  ArgumentsCondition,
  Duration,
  EarlierCall,
  EarlierValue,
  Limit,
  OrderRequirement,
  PastCall,
  ResultCondition,
} from './workflow/rules.ts';
export type { FsmConfig, FsmStateConfig, FsmTransition } from './workflow/flat-machine.ts';
export type {
  BindableTool,
  Binding,
  BindingOptions,
  CallTest,
  ErrorRule,
  Guard,
  GuardedCall,
  ResultTest,
  RunFacts,
  ViewedRun,
  VisibleTest,
} from './workflow/binding.ts';
export type { Comparison, Condition, Scalar } from './workflow/condition.ts';
export type {
  EventSource,
  EventWithPayload,
  FailedCall,
  SucceededCall,
  ToolResult,
} from './workflow/binding.ts';
export type { FsmAction, StateExpression, StateTag } from './workflow/position.ts';
export type { ActionContext, ActionListener } from './workflow/definition.ts';
export type { Migrate, StoredRun, UnreadableKind } from './workflow/stored.ts';
export type {
  XStateContext,
  XStateEvents,
  XStateMachine,
  XStatePaths,
  XStateTags,
  XStateTexts,
} from './workflow/xstate.ts';
export type { Move, TransitionResult } from './workflow/position.ts';
export type { ErrorListener, TransitionListener } from './workflow/definition.ts';
export type { Refusal } from './workflow/advice.ts';
export type { Loop, LoopListener, LoopShieldOptions } from './workflow/loop-shield.ts';
export type { ReadRefusal, ReadRefusalReason } from './workflow/advice.ts';
export type { ReadOptions } from './workflow/reads.ts';
export { initFsmEngine } from './workflow/xstate.ts';
export { type ToolDeclaration, tool } from './tool.ts';

// What agents do, recorded.
export {
  type CallRecorder,
  type RecordCallsOptions,
  type RecordedValue,
  recordCalls,
} from './calls/record.ts';

// Steps and runs, from inside of a handler and from outside of any request.
export {
  type CurrentStep,
  type CurrentStepOptions,
  currentStep,
  type StepSource,
} from './session/current-step.ts';
export { type Runs, runsOf } from './runs.ts';
export type { ObservedMark } from './gate/mode.ts';
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
export type {
  Observed,
  ObservedHour,
  ObservedRefusal,
  ObservedRule,
  Unjudged,
} from './follow/observations.ts';
export type { Doubt } from './follow/followed-run.ts';
export type { RunsOptions } from './runs-options.ts';
export type {
  CheckedRuns,
  MigratedRuns,
  RunsInState,
  UnboundSteps,
  UnreadableRuns,
} from './trial.ts';
export type {
  BeginOptions,
  Begun,
  CountOptions,
  ListOptions,
  PageOptions,
  AllFrozen,
  AllUnfrozen,
  Deleted,
  EnforceOptions,
  EraseOptions,
  Erased,
  FreezeAllOptions,
  FreezeOptions,
  Frozen,
  HeldRun,
  ModeSet,
  ResolveAllOptions,
  ResolvedAll,
  ResolvedRun,
  Resolution,
  ResolveOptions,
  Restarted,
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

// Policies.
export { matchGlob } from './glob.ts';
export {
  PolicyEngine,
  type CacheDirective,
  type InvalidationEvent,
  type OverlapWarning,
  type PolicyDefaults,
  type ResolvedPolicy,
  type ResourceNotification,
  type StateSyncConfig,
  type SyncPolicy,
} from './policy/engine.ts';
export { detectOverlaps } from './policy/overlaps.ts';

export type { SetFreeze, Stopped } from './step/switch.ts';

// Stores and the bus.
export { type MemoryStoreOptions, memoryStore } from './stores/memory.ts';
export { type AdaptOptions, adaptStateStore } from './stores/adapt.ts';
export type {
  AtomicStateStore,
  CallNote,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  ClientInfo,
  CommitRequest,
  CommitResult,
  CountQuery,
  DeleteResult,
  EndOptions,
  EndResult,
  FoundRun,
  Freeze,
  FreezeRequest,
  FreezeResult,
  FsmSnapshot,
  FsmStateStore,
  HeldQuery,
  Json,
  KeysPage,
  ListQuery,
  MoveDraft,
  OpenResult,
  PageQuery,
  PurgeQuery,
  RecordRequest,
  RecordResult,
  ReleaseOptions,
  RenewOptions,
  RunKey,
  RunRecord,
  RunsCount,
  RunsPage,
  RunsQuery,
  SeenSnapshot,
  SessionRecord,
  StateStore,
  StepDescription,
  StuckQuery,
  SwitchRecord,
  TrailDraft,
  TrailEntry,
  TrailOutcome,
  TransactionalStateStore,
  Uncertain,
  UnsettledStep,
  WorkflowRecord,
} from './stores/store.ts';
export { type TrailFault, verifyTrail } from './stores/trail.ts';
export { entryWords } from './workflow/advice.ts';
export {
  type ArgumentsSchema,
  type NextToolSchema,
  type Replay,
  type ReplayFault,
  replayTrail,
  type ToolWithSchema,
  type TrailMessage,
  type TrailPrompts,
  type TrailPromptsOptions,
  type TryFailure,
  trailToPrompts,
} from './workflow/trails.ts';
export { StoreUnavailable } from './step/store-calls.ts';
export {
  BusUnavailable,
  type LocalBusOptions,
  localBus,
  type NotificationBus,
} from './notify/bus.ts';
export type { Clock } from './clock.ts';

// What happens, for logs, metrics and traces.
export {
  EVENT_CHANNEL,
  type EventListener,
  type InterlockEvent,
  type InterlockEventType,
  type RefusalReason,
  type RunEnd,
  runDigest,
} from './events.ts';

export { ERROR_CODES, InterlockError, type InterlockErrorCode } from './errors.ts';
