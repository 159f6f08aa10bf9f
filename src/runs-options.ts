import * as z from 'zod/mini';
import { DEFAULT_IDLE_MS, systemClock } from './clock.ts';
import { InterlockError } from './errors.ts';
import type { OutsideMover } from './gate/outside.ts';
import { observersOf, safely } from './middleware.ts';
import { functionOption, parseOptions, showValue } from './options.ts';
import { type CurrentStep, isCurrentStep } from './session/current-step.ts';
import { SESSIONS, type SessionMiddleware } from './session-store.ts';
import { guardStore } from './step/store-calls.ts';
import { Turns } from './step/turns.ts';
import { resolveStore } from './stores/adapt.ts';
import type { Json, StateStore } from './stores/store.ts';
import { parseEvent } from './workflow/binding.ts';
import { jsonOf } from './workflow/stored.ts';

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
