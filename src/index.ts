export { ERROR_CODES, InterlockError, type InterlockErrorCode } from './errors.ts';
export { type FsmGateOptions, fsmGate } from './fsm-gate.ts';
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
export type { Clock } from './session/clock.ts';
export { type CurrentStep, currentStep } from './session/current-step.ts';
export { type SessionStoreOptions, sessionStore } from './session-store.ts';
export { type StateSyncOptions, stateSync } from './state-sync.ts';
export { type MemoryStoreOptions, memoryStore } from './stores/memory.ts';
export type {
  AtomicStateStore,
  FsmSnapshot,
  FsmStateStore,
  Json,
  StateStore,
} from './stores/store.ts';
export { type ToolDeclaration, tool } from './tool.ts';
export type { Refusal, RefusalReason } from './workflow/advice.ts';
export type { BindingOptions } from './workflow/binding.ts';
export type { FsmConfig, FsmStateConfig } from './workflow/config.ts';
export { initFsmEngine } from './workflow/engine.ts';
export { type GateOptions, StateMachineGate } from './workflow/gate.ts';
export type { TransitionResult } from './workflow/transition.ts';
