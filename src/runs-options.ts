import * as z from 'zod/mini';
import { DEFAULT_IDLE_MS, systemClock } from './clock.ts';
import { InterlockError } from './errors.ts';
import type { NotMoved, OutsideMover } from './gate/outside.ts';
import { observersOf, safely } from './middleware.ts';
import { functionOption, parseOptions, showValue } from './options.ts';
import { type CurrentStep, isCurrentStep } from './session/current-step.ts';
import { SESSIONS, type SessionMiddleware } from './session-store.ts';
import { guardStore } from './step/store-calls.ts';
import { Turns } from './step/turns.ts';
import { resolveStore } from './stores/adapt.ts';
import type { ClaimView, FsmSnapshot, Json, StateStore } from './stores/store.ts';
import { parseEvent } from './workflow/binding.ts';
import { jsonOf } from './workflow/stored.ts';

/** Where a run stands, for operators and pages of the app's own. */
export interface RunView {
  readonly snapshot: FsmSnapshot;
  /** The run's shared data; for a statechart its context. */
  readonly context?: Json | undefined;
  /**
   * `idle`: nothing is under way. `running`: a step is. `held`: a step ended with an unknown
   * outcome, and waits to be resolved.
   */
  readonly status: 'idle' | 'running' | 'held';
  /** Whether it has come to a final state; of a statechart, to one of the machine itself. */
  readonly ended: boolean;
  /** The step that is running or held. */
  readonly claim?: ClaimView;
}

/** What `resolve()` did. */
export type Resolution =
  | { readonly resolved: true; readonly state: string }
  | { readonly resolved: false; readonly reason: 'unknown-run' | 'not-held' | 'running' };

/** What `send()` did. `unhandled`: the run's state does not know the event. */
export type Sent =
  | { readonly sent: true; readonly changed: boolean; readonly state: string }
  | { readonly sent: false; readonly reason: NotMoved | 'unhandled' };

/** What `restart()` did. `busy`: a step of the run is running. */
export type Restarted =
  | { readonly restarted: true; readonly state: string }
  | { readonly restarted: false; readonly reason: NotMoved };

/** What `update()` did. */
export type Updated =
  | { readonly updated: true; readonly context: Json | undefined }
  | { readonly updated: false; readonly reason: NotMoved };

/** Who moves a run, and with what. */
export interface SendOptions {
  /** For the trail: a user, a job, a webhook. */
  readonly actor?: string | undefined;
  /** What comes along with the event. */
  readonly payload?: Json | undefined;
  /**
   * The step whose handler makes the call, from `currentStep(extra)`; `undefined` outside of one.
   * Needed in a handler, unless `mcp-interlock/ambient` is imported: a call that does not know its
   * own step waits for it.
   */
  readonly step?: CurrentStep | undefined;
}

/** How a held step came out, as somebody found out. */
export interface ResolveOptions<E extends string = string> extends Omit<SendOptions, 'step'> {
  /**
   * The event to send. Default: the one that the tool's success or failure is bound to in the run's
   * state.
   */
  readonly event?: E | undefined;
}

/** Options of `runsOf()`: `sessions`, or else `store`. */
export interface RunsOptions {
  /**
   * What `sessionStore()` returned: its store, and its clients, who are told where a run moves
   * under them.
   */
  sessions?: SessionMiddleware | undefined;
  /**
   * The store that `sessionStore({ store })` was given, in a process without it. Clients learn of a
   * move when they list again.
   */
  store?: StateStore | undefined;
  /**
   * How long a run lives after it was looked at, in milliseconds.
   * Default: as in `sessions`, else 24 hours.
   */
  idleMs?: number | undefined;
  /** The longest that a call to `store` may take, in milliseconds. Default 2,000. */
  storeDeadlineMs?: number | undefined;
  /**
   * Told of each failure that no caller is told of. Default: as in `sessions`, else
   * `console.error`.
   */
  onError?: ((error: unknown) => void) | undefined;
  /**
   * Told once of each likely mistake. Default: as in `sessions`, else `process.emitWarning`.
   */
  onWarning?: ((warning: string) => void) | undefined;
}

const given = <T>(what: string): z.ZodMiniType<T> =>
  z.custom<T>(
    (value) => (typeof value === 'object' || typeof value === 'function') && value !== null,
    what,
  );

const optionsSchema = z.strictObject({
  sessions: z.optional(given<SessionMiddleware>('expected what sessionStore() returned')),
  store: z.optional(given<StateStore>('expected a store')),
  idleMs: z.optional(z.number().check(z.positive())),
  storeDeadlineMs: z._default(z.number().check(z.positive()), 2_000),
  onError: z.optional(
    z.custom<(error: unknown) => void>(
      (value) => typeof value === 'function',
      'expected a function',
    ),
  ),
  onWarning: z.optional(functionOption<(warning: string) => void>()),
});

/** What runs are moved with, and who is told of likely mistakes. */
export interface RunsMover extends OutsideMover {
  readonly onWarning: (warning: string) => void;
}

/**
 * What runs are moved with, by these options. @throws InterlockError `ERR_INTERLOCK_CONFIG`,
 * `ERR_INTERLOCK_STORE`
 */
export function keptBy(given: RunsOptions): Omit<RunsMover, 'workflow'> {
  if (typeof given === 'function') throw neitherNorBoth();
  const options = parseOptions('runsOf()', optionsSchema, given);
  const { sessions: middleware, store, idleMs, storeDeadlineMs, onError, onWarning } = options;
  const sessions = middleware?.[SESSIONS];
  if ((sessions === undefined) === (store === undefined)) throw neitherNorBoth();
  if (sessions !== undefined) {
    const { config, keeper } = sessions;
    return {
      store: config.store,
      ttlMs: idleMs ?? config.idleMs,
      clock: config.clock,
      turns: keeper.turns,
      onError: onError === undefined ? config.onError : safely(onError),
      onWarning: onWarning ?? config.onWarning,
      tell: (run, lists) => sessions.tellListChanged(run, lists),
    };
  }
  return {
    store: guardStore(resolveStore(store as StateStore), storeDeadlineMs, systemClock),
    ttlMs: idleMs ?? DEFAULT_IDLE_MS,
    clock: systemClock,
    turns: new Turns(systemClock),
    ...observersOf({ onError, onWarning }),
    tell: () => {},
  };
}

function neitherNorBoth(): InterlockError {
  return configError(
    'runsOf(): give either { sessions }, which sessionStore() returned, or { store }',
  );
}

const requestSchema = z.strictObject({
  actor: z.optional(z.string()),
  payload: z.optional(z.custom<Json>(() => true)),
});
const insideSchema = z.extend(requestSchema, {
  step: z.optional(z.custom<CurrentStep>(isCurrentStep, 'expected what currentStep() returned')),
});
const resolveSchema = z.extend(requestSchema, { event: z.optional(z.unknown()) });

/** What `restart()` is told beside what to do. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseRequest(what: 'restart()', options: unknown): z.output<typeof requestSchema> {
  return withJson(what, parseOptions(what, requestSchema, options));
}

/** The same of what may be called inside of a step. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseInside(
  what: 'send()' | 'update()',
  options: unknown,
): z.output<typeof insideSchema> {
  return withJson(what, parseOptions(what, insideSchema, options));
}

/** A payload is digested and stored as JSON, so it must be that. */
function withJson<T extends { readonly payload?: Json | undefined }>(what: string, request: T): T {
  if (request.payload === undefined) return request;
  try {
    return { ...request, payload: jsonOf(request.payload, 'the payload') };
  } catch (error) {
    throw configError(`${what}: ${(error as Error).message}`);
  }
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_EVENT` */
export function parseResolve(
  outcome: unknown,
  options: unknown,
): z.output<typeof requestSchema> & { readonly event?: string } {
  if (outcome !== 'succeeded' && outcome !== 'failed')
    throw configError(`resolve(): expected "succeeded" or "failed", got ${showValue(outcome)}`);
  const { event, ...said } = withJson(
    'resolve()',
    parseOptions('resolve()', resolveSchema, options),
  );
  return event === undefined ? said : { ...said, event: parseEvent('resolve()', event) };
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function assertChange(change: unknown): void {
  if (typeof change !== 'function')
    throw configError(`update(): expected a function, got ${showValue(change)}`);
}

/** A string is iterable too, by its letters. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function assertRuns(runs: unknown): void {
  if (typeof runs === 'string')
    throw configError(`sweep(): expected a list of runs, got ${showValue(runs)}`);
}

function configError(message: string): InterlockError {
  return new InterlockError('ERR_INTERLOCK_CONFIG', message);
}
