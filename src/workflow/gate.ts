import type { Json } from '../stores/store.ts';
import type { FsmConfig, WidenedConfig } from './config.ts';
import { Gate } from './gate-core.ts';
import type { GateOptions } from './gate-options.ts';
import type {
  XStateContext,
  XStateEvents,
  XStateMachine,
  XStatePaths,
  XStateTags,
  XStateTexts,
} from './xstate.ts';

/** A gate; see {@link StateMachineGate}. */
export type StateMachineGate<
  S extends string = string,
  E extends string = string,
  T extends string = never,
  C extends string = S,
  X = Json | undefined,
> = Gate<S, E, T, C, X>;

/** The two ways to make a gate, so that each infers its names. */
export interface StateMachineGateConstructor {
  /**
   * Of a machine made by XState 5: hierarchy, parallel regions, guards, context, history.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for what pure transitions cannot run, such as
   * invoked actors and delays
   */
  new <M extends XStateMachine>(
    machine: M,
    options?: GateOptions,
  ): Gate<XStatePaths<M>, XStateEvents<M>, XStateTags<M>, XStateTexts<M>, XStateContext<M>>;
  /**
   * Of a flat machine whose names TypeScript has widened to strings, as in `const config = { … }`
   * or with `satisfies FsmConfig`: they are checked here.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_INITIAL` or
   * `ERR_INTERLOCK_TARGET`
   */
  new <S extends string, E extends string, N extends string>(
    config: WidenedConfig<S, E, N> & (string extends N ? unknown : never),
    options?: GateOptions,
  ): Gate<S, E>;
  /**
   * Of a flat machine, run by the built-in engine.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_INITIAL` or
   * `ERR_INTERLOCK_TARGET`
   */
  new <S extends string = string, E extends string = string>(
    config: FsmConfig<S, E>,
    options?: GateOptions,
  ): Gate<S, E>;
  readonly prototype: Gate;
}

/**
 * A workflow: a state machine, and the tools bound to its states.
 *
 * Mounted with `fsmGate()` it is a template: every run has its own position, and the gate's own
 * never moves. On its own it is one run, which `transition()` moves.
 */
export const StateMachineGate: StateMachineGateConstructor = Gate;
