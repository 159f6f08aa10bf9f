import cluster from 'node:cluster';
import * as z from 'zod/mini';
import { type Clock, DEFAULT_IDLE_MS, systemClock } from './clock.ts';
import { InterlockError } from './errors.ts';
import {
  type CommonOptions,
  commonShape,
  type Enter,
  type Middleware,
  observersOf,
  withExchange,
} from './middleware.ts';
import type { NotificationBus } from './notify/bus.ts';
import { functionOption, isBus, parseOptions } from './options.ts';
import type { ClientOf, PrincipalOf } from './session/callers.ts';
import { admissionOf } from './session/run.ts';
import { parseKeys, type RunKeyStrategy, sessionKey } from './session/run-key.ts';
import { Sessions } from './session/sessions.ts';
import { guardStore } from './step/store-calls.ts';
import { resolveStore } from './stores/adapt.ts';
import { isMemoryStore, memoryStore } from './stores/memory.ts';
import type { StateStore } from './stores/store.ts';
import { after } from './wire/task-line.ts';

/** Options of {@link sessionStore}. */
export interface SessionStoreOptions extends CommonOptions {
  /** Where runs are kept. Default: in the memory of this process, at most `maxSessions` of them. */
  store?: StateStore | undefined;
  /**
   * What names the run of a call: `sessionKey()`, `principalKey()`, `handleKey()`,
   * `managedHandle()`, or a list of them in order of preference. A call that none of them names a
   * run for is refused. Default: `sessionKey()`, which names none since MCP 2026-07-28.
   */
  key?: RunKeyStrategy | readonly RunKeyStrategy[] | undefined;
  /**
   * Names the caller, however the app authenticates; `undefined` is nobody in particular. A session
   * answers only to the principal that began it. Default: issuer and subject of `req.auth`, or with
   * a warning the nearest thing to it, such as a client id. Anything but a non-empty string or
   * `undefined` is an error, and so is a promise: the request is refused.
   */
  principal?: PrincipalOf | undefined;
  /**
   * A session, and any other run, that was not used for this long is unknown, in milliseconds.
   * Default 24 hours.
   */
  idleMs?: number | undefined;
  /**
   * For how long a process takes a session for granted without asking the store, in milliseconds;
   * never for more than a tenth of `idleMs`. Default 5,000.
   */
  sessionCacheMs?: number | undefined;
  /**
   * The most sessions that a process keeps in memory. The least recently used is forgotten first.
   * Default 10,000.
   */
  maxSessions?: number | undefined;
  /**
   * The most live sessions of one principal in a process, and the most GET streams of one that was
   * given no session. With one more the principal's least recently used session ends, unless
   * requests or steps are under way in it; where each has some, `initialize` is answered 429.
   * Default 1,000.
   */
  maxSessionsPerPrincipal?: number | undefined;
  /**
   * Says what a request came from, such as an address (`req.ip`, where that is not a balancer's),
   * so that callers without a principal are limited too, and no others. `undefined` is not limited.
   * Anything else but a non-empty string is an error, and so is a promise: the request is refused.
   * Default: none is limited.
   */
  clientOf?: ClientOf | undefined;
  /**
   * The same limit for the sessions of one client, among callers without a principal. Default
   * 1,000.
   */
  maxSessionsPerClient?: number | undefined;
  /**
   * The most GET streams that the middleware serves for one session, where the upstream has none.
   * Default 4.
   */
  maxStreams?: number | undefined;
  /**
   * Whether to serve a GET stream where the upstream answers 405. Turn it off where no process
   * lives long. Default `true`.
   */
  serveStreams?: boolean | undefined;
  /**
   * How often a quiet stream of the middleware's own gets a comment, in milliseconds. Default
   * 15,000.
   */
  keepAliveMs?: number | undefined;
  /**
   * Carries `list_changed` to the instance that holds the client's stream: `redisBus()`,
   * `postgresBus()` or your own. Needed only where an app runs in several processes. Default: none,
   * and a move is told only in the process where it was made.
   */
  bus?: NotificationBus | undefined;
  /** The longest that a call to the store may take, in milliseconds. Default 2,000. */
  storeDeadlineMs?: number | undefined;
  /** Time, for tests. Default: the system's. */
  clock?: Clock | undefined;
}

/**
 * Where a session middleware carries its sessions, for those who move runs from outside of a
 * request.
 */
export const SESSIONS: unique symbol = Symbol('mcp-interlock.sessions');

/** Options of {@link SessionMiddleware.close}. */
export interface CloseOptions {
  /**
   * How long to wait for steps that run, in milliseconds. Default 0. `onError` is told of those
   * that still run then.
   */
  drainMs?: number | undefined;
}

const closeSchema = z.strictObject({ drainMs: z._default(z.number().check(z.minimum(0)), 0) });

/** What {@link sessionStore} returns. */
export interface SessionMiddleware extends Middleware {
  /** For `runsOf(gate, { sessions })`. */
  readonly [SESSIONS]: Sessions;
  /**
   * For an orderly end of the process, while its server still listens. From now on new steps are
   * refused as `unavailable` and new sessions with 503. Waits for the steps that run, but for those
   * that tasks carry; then ends the streams that this process serves, and leaves the bus. Sessions
   * stay in the store.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`
   */
  close(options?: CloseOptions): Promise<void>;
}

const millis = z.number().check(z.positive());
const optionsSchema = z.strictObject({
  store: z.optional(
    z.custom<StateStore>(
      (value) => typeof value === 'object' && value !== null,
      'expected a store, such as sqliteStore({ database }) or redisStore({ client })',
    ),
  ),
  key: z._default(z.custom<RunKeyStrategy | readonly RunKeyStrategy[]>(), () => sessionKey()),
  principal: z.optional(functionOption<PrincipalOf>()),
  idleMs: z._default(millis, DEFAULT_IDLE_MS),
  sessionCacheMs: z._default(z.number().check(z.minimum(0)), 5_000),
  maxSessions: z._default(z.int().check(z.minimum(1)), 10_000),
  maxSessionsPerPrincipal: z._default(z.int().check(z.minimum(1)), 1_000),
  clientOf: z.optional(functionOption<ClientOf>()),
  maxSessionsPerClient: z._default(z.int().check(z.minimum(1)), 1_000),
  maxStreams: z._default(z.int().check(z.minimum(1)), 4),
  serveStreams: z._default(z.boolean(), true),
  keepAliveMs: z._default(millis, 15_000),
  bus: z.optional(
    z.custom<NotificationBus>(
      (value) => isBus(value),
      'expected a bus, such as redisBus({ client }) or postgresBus({ pool })',
    ),
  ),
  storeDeadlineMs: z._default(millis, 2_000),
  clock: z._default(
    z.custom<Clock>((value) => typeof value === 'object' && value !== null, 'expected a clock'),
    () => systemClock,
  ),
  ...commonShape,
});

/**
 * Finds out which run of a workflow a request belongs to, and keeps it in a store.
 *
 * Takes over the upstream's `Mcp-Session-Id`, or makes one up where the upstream has none. A
 * request without one is answered 400, one with an unknown, expired or ended one 404 (MCP
 * 2025-11-25, Transports, "Session Management"), and so is one of another principal. A store that
 * cannot be asked is a 503. A GET or HEAD that asks for no stream, names no session and resumes
 * nothing is another route's: it passes, as without a run. Mount it on the MCP route itself, after
 * authentication and before `fsmGate()`: `app.all('/mcp', sessionStore(), fsmGate(gate), handler)`.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_STORE`
 */
export function sessionStore(options?: SessionStoreOptions): SessionMiddleware {
  const { sessions, config } = createSessions('sessionStore()', options);
  const enter: Enter = (exchange, observers) => {
    const earlier = admissionOf(exchange);
    if (earlier?.owner === sessions) return true;
    if (earlier !== undefined) throw misplaced();
    exchange.observers = observers;
    return after(sessions.enter(exchange), (admitted) => admitted !== undefined);
  };
  const middleware = withExchange(config, enter, {
    assertBehind(earlier) {
      // Only stateSync() decides nothing of a run.
      if (earlier.some((stage) => stage.assertBehind !== undefined)) throw misplaced();
    },
  });
  return Object.assign(middleware, {
    close: async (given?: CloseOptions) =>
      sessions.shutDown(parseOptions('close()', closeSchema, given).drainMs),
    [SESSIONS]: sessions,
  } as const);
}

/** What stands behind {@link sessionStore}, for gates that are mounted without one. */
export function createSessions(what: string, options: SessionStoreOptions | undefined) {
  const config = parseOptions(what, optionsSchema, options);
  const { clock } = config;
  const observers = observersOf(config);
  const store =
    config.store === undefined
      ? memoryStore({ maxRuns: config.maxSessions, now: clock.now })
      : resolveStore(config.store, { now: clock.now, onWarning: observers.onWarning });
  const guarded = guardStore(store, config.storeDeadlineMs, clock, observers.events);
  return {
    config,
    sessions: new Sessions({
      ...config,
      ...observers,
      keys: parseKeys(config.key),
      principal: config.principal,
      clientOf: config.clientOf,
      bus: config.bus,
      store: guarded,
      storeWarning: isMemoryStore(store) ? aloneInMemory(process.env, cluster.isWorker) : undefined,
    }),
  };
}

/**
 * Hosts that run one app in several processes, or in another one tomorrow, by the variables that
 * they set.
 */
const HOSTS: readonly (readonly [host: string, ...variables: string[]])[] = [
  ['PM2', 'pm_id', 'NODE_APP_INSTANCE'],
  ['Vercel', 'VERCEL'],
  ['AWS Lambda', 'AWS_LAMBDA_FUNCTION_NAME'],
  ['Cloud Run', 'K_SERVICE'],
];

/**
 * What is likely wrong with runs in memory where a process is one of several; nothing where it does
 * not look like that.
 */
export function aloneInMemory(env: NodeJS.ProcessEnv, isWorker: boolean): string | undefined {
  const [host, ...variables] = HOSTS.find(([, ...names]) => names.some((name) => env[name])) ?? [];
  const set = variables.find((name) => env[name]);
  const where = isWorker ? 'node:cluster' : host && `${host} (${set} is set)`;
  if (where === undefined) return undefined;
  return (
    `runs are kept in the memory of this process, and ${where} may send the next request of a ` +
    'session to another one, which answers "Session not found". Give sessionStore({ store }) a ' +
    'store that all processes share, such as redisStore(). Where there is one process alone, or ' +
    'each client always gets to the same one, nothing is wrong'
  );
}

function misplaced(): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_MOUNT',
    'sessionStore() came after a fsmGate() or another sessionStore(), which had to decide ' +
      'without it. Mount it once, and first',
  );
}
