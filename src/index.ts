// In the order of a request.
export { type InterlockOptions, interlock } from './doors/interlock.ts';
export {
  type SessionMiddleware,
  type SessionStoreOptions,
  sessionStore,
} from './doors/session-store.ts';
export type { CallerRequest } from './session/callers.ts';
export {
  conversationKey,
  type HandleKey,
  type ManagedHandle,
  type PrincipalKey,
  type RequestKey,
  type SessionKey,
  handleKey,
  managedHandle,
  principalKey,
  type RunKeyRequest,
  type RunKeyStrategy,
  runKey,
  sessionKey,
} from './session/run-key.ts';
export {
  type ErrorAnswer,
  type FsmGateOptions,
  fsmGate,
} from './doors/fsm-gate.ts';
export type { ListCacheOptions } from './gate/list-cache.ts';
export {
  type SummarizedRun,
  type TrailOptions,
  unboundTools,
} from './gate/config.ts';
export type { Visibility } from './gate/visibility.ts';
export type { StatusToolOptions } from './gate/status-tool.ts';
export type { Begin } from './step/claim.ts';
export { beginIn } from './step/claim.ts';
export { UnrecordedSuccess } from './gate/recorded-call.ts';
export { UnknownOutcome } from './step/unknown-outcome.ts';
export { type StateSyncOptions, stateSync } from './doors/state-sync.ts';
export { type Middleware, notForwarded } from './doors/middleware.ts';

// Workflows, and what is bound to them.
export { StateMachineGate } from './workflow/gate.ts';
export type { GateOptions, OrderOptions } from './workflow/definition.ts';
export type { OrderRule, OrderRules } from './workflow/order.ts';
export type { Limit } from './workflow/limits.ts';
export type { Duration } from './workflow/rule-parts.ts';
export type { OrderRequirement } from './workflow/rules.ts';
export type { FsmConfig, FsmStateConfig, FsmTransition } from './workflow/flat-machine.ts';
export type {
  BindableTool,
  Binding,
  BindingOptions,
  ErrorRule,
  Guard,
  GuardedCall,
  RunFacts,
  ViewedRun,
  VisibleTest,
} from './workflow/binding.ts';
export type { Condition } from './workflow/condition.ts';
export type {
  FailedCall,
  SucceededCall,
  ToolResult,
} from './workflow/binding.ts';
export type { FsmAction, StateExpression, StateTag } from './workflow/position.ts';
export type { ActionContext } from './workflow/definition.ts';
export type { Migrate, StoredRun } from './workflow/stored.ts';
export type { Move, TransitionResult } from './workflow/position.ts';
export type { Refusal } from './workflow/advice.ts';
export type { Loop, LoopShieldOptions } from './workflow/loop-shield.ts';
export type { ReadRefusal } from './workflow/advice.ts';
export type { ReadOptions } from './workflow/reads.ts';
export { initFsmEngine, type XStateContext } from './workflow/xstate.ts';
export { type ToolDeclaration, tool } from './doors/tool.ts';

// What agents do, recorded.
export { type CallRecorder, type RecordCallsOptions, recordCalls } from './calls/record.ts';

// Steps and runs, from inside of a handler and from outside of any request.
export {
  type CurrentStep,
  currentStep,
  type StepSource,
} from './session/current-step.ts';

// Policies.
export { matchGlob } from './basics/glob.ts';
export {
  PolicyEngine,
  type CacheDirective,
  type InvalidationEvent,
  type PolicyDefaults,
  type ResolvedPolicy,
  type ResourceNotification,
  type StateSyncConfig,
  type SyncPolicy,
} from './policy/engine.ts';
export { detectOverlaps } from './policy/overlaps.ts';

// Stores and the bus.
export { memoryStore } from './stores/memory.ts';
export type { FsmSnapshot, FsmStateStore } from './stores/store.ts';
export { StoreUnavailable } from './step/store-calls.ts';
export { BusUnavailable, localBus, type NotificationBus } from './notify/bus.ts';
export type { Clock } from './basics/clock.ts';

// What happens, for logs, metrics and traces.
export {
  EVENT_CHANNEL,
  type EventListener,
  type InterlockEvent,
  type InterlockEventType,
  runDigest,
} from './basics/events.ts';
export type { RefusalReason } from './basics/reasons.ts';

export { ERROR_CODES, InterlockError, type InterlockErrorCode } from './basics/errors.ts';
