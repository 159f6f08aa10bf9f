import { atCaller, InterlockError } from '../basics/errors.ts';
import { isGate, otherCopyHint, showValue } from '../basics/options.ts';
import type { CacheDirective, SyncPolicy } from '../policy/engine.ts';
import type { StateMachineGate } from '../workflow/gate.ts';
import { type FsmGateOptions, gateStage } from './fsm-gate.ts';
import { type MountedStage, mount } from './middleware.ts';
import {
  type SessionMiddleware,
  type SessionStoreOptions,
  sessionStage,
  withSessions,
} from './session-store.ts';
import { type StateSyncOptions, syncStage } from './state-sync.ts';

/** A gate of a route with its own options. */
export interface GateOfRoute extends FsmGateOptions {
  readonly gate: StateMachineGate<string, string>;
}

/** Options of {@link interlock}: those of `sessionStore()`, and what stands behind it. */
export interface InterlockOptions<D extends string = CacheDirective> extends SessionStoreOptions {
  /** The gates, in the order in which they judge: `gate`, or `{ gate, statusTool: 'status' }`. */
  readonly gates: readonly (StateMachineGate<string, string> | GateOfRoute)[];
  /** Policies, or all options of `stateSync()`. Default: none. */
  readonly policies?: readonly SyncPolicy<D>[] | StateSyncOptions<D> | undefined;
}

/**
 * All three middlewares in one: `app.all('/mcp', interlock({ store, gates: [gate] }), handler)`. It
 * does what `sessionStore()`, a `fsmGate()` for each gate and `stateSync()` do in that order, and
 * needs less time. Mount them singly where something of yours stands between them. What cannot
 * stand together throws here, and not at the first request.
 *
 * @example
 * ```ts
 * const mcp = interlock({ store: sqliteStore({ database }), gates: [checkout], policies });
 * app.all('/mcp', mcp, handler);
 * const runs = runsOf(checkout, { sessions: mcp });
 * ```
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_STORE`, `ERR_INTERLOCK_POLICY`,
 * `ERR_INTERLOCK_MOUNT`
 */
export function interlock<D extends string>(
  options: InterlockOptions<D> & (string extends D ? unknown : never),
): SessionMiddleware;
export function interlock(options: InterlockOptions): SessionMiddleware;
export function interlock(options: InterlockOptions<string>): SessionMiddleware {
  return atCaller(interlock, () => {
    const { gates, policies, ...own } = { ...options };
    if (!Array.isArray(gates) || gates.length === 0)
      throw wrong('`gates` must be an array of one or more gates', gates);
    const { stage, sessions } = sessionStage(WHAT, own);
    const sync = policies === undefined ? [] : [syncStage(WHAT, syncOptions(policies))];
    return withSessions(mount([stage, ...gates.map(stageOfGate), ...sync]), sessions);
  });
}

const WHAT = 'interlock()';

function stageOfGate(given: StateMachineGate<string, string> | GateOfRoute): MountedStage {
  const { gate, ...options } = isGate(given) ? { gate: given } : { ...(given as GateOfRoute) };
  if (!isGate(gate)) throw wrong('each of `gates` must be a gate, or { gate } with options', given);
  return gateStage(WHAT, gate as StateMachineGate<string, string>, options);
}

function syncOptions(
  policies: NonNullable<InterlockOptions<string>['policies']>,
): StateSyncOptions<string> {
  return Array.isArray(policies) ? { policies } : (policies as StateSyncOptions<string>);
}

function wrong(rule: string, value: unknown): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_CONFIG',
    `${WHAT}: ${rule}; got ${showValue(value)}${otherCopyHint(value)}`,
  );
}
