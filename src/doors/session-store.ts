import cluster from 'node:cluster';
import * as z from 'zod/mini';
import { type Clock, DEFAULT_IDLE_MS, systemClock } from '../basics/clock.ts';
import { atCaller, InterlockError } from '../basics/errors.ts';
import {
  integerOption,
  isBus,
  lazily,
  lazyOptions,
  optionalFunction,
  parseOptions,
} from '../basics/options.ts';
import type { NotificationBus } from '../notify/bus.ts';
import type { ClaimsOf, ClientOf, PrincipalOf } from '../session/callers.ts';
import { admissionOf } from '../session/run.ts';
import { defaultKeys, parseKeys, type RunKeyStrategy } from '../session/run-key.ts';
import { Sessions } from '../session/sessions.ts';
import { guardStore } from '../step/store-calls.ts';
import { resolveStore } from '../stores/adapt.ts';
import { memoryStore } from '../stores/memory.ts';
import { faultOfKeeping, inService, keepingOf } from '../stores/service.ts';
import type { StateStore } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import type { Enter, Exchange } from '../wire/exchange.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { workflowId } from '../workflow/flat-machine.ts';
import {
  admits,
  type CommonOptions,
  commonShape,
  type Middleware,
  type MountedStage,
  mount,
  observersOf,
  stageWith,
  type WatchedBy,
} from './middleware.ts';

/** Options of {@link sessionStore}. */
export interface SessionStoreOptions extends CommonOptions {
  /** Keeps the runs. Default: the memory of this process, with at most `maxSessions` of them. */
  store?: StateStore | undefined;
  /**
   * Names the service: 1 to 64 letters, digits, `_`, `.` or `-`. The store keeps runs and switches
   * under it, so that two services may share a store. All instances of one service give the same.
   * Default: none, and then each other service on the store must give one.
   */
  service?: string | undefined;
  /**
   * What names the run of a call: `sessionKey()`, `principalKey()`, `conversationKey()`,
   * `runKey()`, `handleKey()`, `managedHandle()`, or a list of them in order of preference. The
   * gate refuses a call whose run has no name. Default: `[conversationKey(), sessionKey()]`. So a
   * caller with a principal has a run for each conversation that its client names. Any other call
   * has the run of its session, and none since MCP 2026-07-28.
   */
  key?: RunKeyStrategy | readonly RunKeyStrategy[] | undefined;
  /**
   * What becomes of a request that has no `Mcp-Session-Id` and needs one. `refuse`: it is answered
   * 400. `pass` is for the first hours of a deployment, in which clients come that were connected
   * before it. Tools that no gate binds run for them. Each bound tool is refused with the reason
   * `no-run`, in words that ask to reconnect. Notifications, responses, GET and DELETE are answered
   * 400. Default `refuse`.
   */
  withoutSession?: 'refuse' | 'pass' | undefined;
  /**
   * `false`: each request passes as it is, and gates that observe behind it find their runs. Give
   * it where `sessionStore()` and `fsmGate()` stand on no route of Express together, as with
   * `app.use()`. Default: so where all gates behind it on its route have `enforce: false`.
   */
  enforce?: boolean | undefined;
  /**
   * Names the caller, however the app authenticates; `undefined` for an anonymous one. A session
   * answers only to the principal that began it. Default: issuer and subject of `req.auth`, or with
   * a warning what comes nearest, such as a client id. It must return a non-empty string or
   * `undefined`, and no promise: else the request is refused.
   */
  principal?: PrincipalOf | undefined;
  /**
   * Says what is known of the caller, such as `{ role: 'admin' }`, for the conditions `caller`,
   * `whenCaller` and `byCaller` of rules. It is asked at each request, and kept for no session. It
   * must return an object or `undefined`, and no promise: else the request is refused. Default:
   * nothing is known.
   */
  claims?: ClaimsOf | undefined;
  /**
   * How long a session, or another run, lives after its last use, in milliseconds. Default 24
   * hours. A run of a principal, handle or conversation lives at least as long as the longest
   * window of its rules; it is an error to set less.
   */
  idleMs?: number | undefined;
  /**
   * How long a process trusts that a session still exists without asking the store, in
   * milliseconds. At most a tenth of `idleMs`. Default 5,000.
   */
  sessionCacheMs?: number | undefined;
  /**
   * The most sessions that a process keeps in memory. It forgets the least recently used first.
   * Default 10,000.
   */
  maxSessions?: number | undefined;
  /**
   * The most live sessions of one principal in a process, and the most GET streams of a principal
   * without a session. One more ends the least recently used session in which no request or step is
   * under way. Where there is none, `initialize` is answered 429. Default 1,000.
   */
  maxSessionsPerPrincipal?: number | undefined;
  /**
   * The most runs of one caller that ids in requests name, such as conversations. With one more,
   * one without a claim makes way, first those that have not begun. A run that has begun is refused
   * from then on, until it would have expired. Default 1,000.
   */
  maxConversationsPerCaller?: number | undefined;
  /**
   * Names the client of a caller without a principal, so that those are limited too. Where
   * `req.ip` is not a balancer's, it may be that. `undefined`: this caller is not limited. It
   * must return a non-empty string or `undefined`, and no promise: else the request is refused.
   * Default: such callers are not limited.
   */
  clientOf?: ClientOf | undefined;
  /**
   * As {@link maxSessionsPerPrincipal}, for the sessions of one client without a principal. Default
   * 1,000.
   */
  maxSessionsPerClient?: number | undefined;
  /**
   * The most runs of one caller, a principal or else a client, whose outcome is unknown to this
   * process. With as many, calls that could add one are refused as `too-many-held`. It bounds
   * memory, and is no guarantee. Default 100.
   */
  maxHeldPerCaller?: number | undefined;
  /**
   * The same for all callers. It refuses only those without a principal. Callers whom neither a
   * principal nor {@link clientOf} names share one count, of half as many. Default 10,000.
   */
  maxHeld?: number | undefined;
  /**
   * The most GET streams that the middleware serves for one session, where the upstream serves
   * none. Default 4.
   */
  maxStreams?: number | undefined;
  /**
   * Whether the middleware serves a GET stream where the upstream answers 405. Turn it off where no
   * process lives long. Default `true`.
   */
  serveStreams?: boolean | undefined;
  /**
   * How often the middleware writes a comment to a quiet stream of its own, in milliseconds.
   * Default 15,000.
   */
  keepAliveMs?: number | undefined;
  /**
   * Carries `list_changed` to the process that holds the client's stream: `redisBus()`,
   * `postgresBus()` or your own. An app in one process needs none. Default: none, and only the
   * process that made a move notifies its clients.
   */
  bus?: NotificationBus | undefined;
  /** The longest that a call to the store may take, in milliseconds. Default 2,000. */
  storeDeadlineMs?: number | undefined;
  /** Time, for tests. Default: the system's. */
  clock?: Clock | undefined;
}

const SESSIONS: unique symbol = Symbol('mcp-interlock.sessions');

/** Options of {@link SessionMiddleware.close}. */
export interface CloseOptions {
  /**
   * How long to wait for running steps, in milliseconds. `onError` gets those that still run then.
   * Default 0.
   */
  drainMs?: number | undefined;
}

const closeSchema = lazyOptions(() => ({ drainMs: z._default(z.number().check(z.minimum(0)), 0) }));

/** What {@link sessionStore} returns. */
export interface SessionMiddleware extends Middleware {
  /** For `runsOf(gate, { sessions })`. Its type is not named, as that of the stage. */
  readonly [SESSIONS]: object;
  /**
   * For an orderly end of the process, while its server still listens. From now on gates refuse new
   * steps as `unavailable`, and new sessions are answered 503. It waits for the running steps, but
   * not for those of tasks. Then it ends the streams that this process serves, and leaves the bus.
   * Sessions stay in the store.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`
   */
  close(options?: CloseOptions): Promise<void>;
}

const millis = lazily(() => z.number().check(z.positive()));
const optionsSchema = lazyOptions(() => ({
  store: z.optional(
    z.custom<StateStore>(
      (value) => typeof value === 'object' && value !== null,
      'expected a store, such as sqliteStore({ database }) or redisStore({ client })',
    ),
  ),
  key: z._default(z.custom<RunKeyStrategy | readonly RunKeyStrategy[]>(), () => defaultKeys()),
  principal: optionalFunction<PrincipalOf>(),
  claims: optionalFunction<ClaimsOf>(),
  idleMs: z._default(millis(), DEFAULT_IDLE_MS),
  sessionCacheMs: z._default(z.number().check(z.minimum(0)), 5_000),
  maxSessions: z._default(integerOption(1), 10_000),
  maxSessionsPerPrincipal: z._default(integerOption(1), 1_000),
  maxConversationsPerCaller: z._default(integerOption(1), 1_000),
  clientOf: optionalFunction<ClientOf>(),
  withoutSession: z._default(z.enum(['refuse', 'pass']), 'refuse'),
  enforce: z.optional(z.boolean()),
  maxSessionsPerClient: z._default(integerOption(1), 1_000),
  maxHeldPerCaller: z._default(integerOption(1), 100),
  maxHeld: z._default(integerOption(2), 10_000),
  maxStreams: z._default(integerOption(1), 4),
  serveStreams: z._default(z.boolean(), true),
  keepAliveMs: z._default(millis(), 15_000),
  bus: z.optional(
    z.custom<NotificationBus>(
      (value) => isBus(value),
      'expected a bus, such as redisBus({ client }) or postgresBus({ pool })',
    ),
  ),
  storeDeadlineMs: z._default(millis(), 2_000),
  clock: z._default(
    z.custom<Clock>((value) => typeof value === 'object' && value !== null, 'expected a clock'),
    () => systemClock,
  ),
  service: z.optional(workflowId()),
  ...commonShape(),
}));

/**
 * Finds out which run of a workflow a request belongs to, and keeps it in a store. Mount it on the
 * MCP route itself, after authentication and before `fsmGate()`: `app.all('/mcp', sessionStore(),
 * fsmGate(gate), handler)`.
 *
 * It uses the upstream's `Mcp-Session-Id`, or makes one where the upstream makes none. A request
 * without a session's id is answered 400, unless `withoutSession` says otherwise. One whose session
 * is unknown, over or another principal's is answered 404 (MCP 2025-11-25, Transports, "Session
 * Management"). Where the store cannot be asked, the answer is 503.
 *
 * A GET or HEAD that asks for no stream, names no session and resumes nothing is not MCP's, and
 * passes without a run.
 *
 * @example
 * ```ts
 * const sessions = sessionStore({ store: redisStore({ client }), key: principalKey() });
 * app.all('/mcp', authenticate, sessions, fsmGate(gate), handler);
 * process.once('SIGTERM', () => sessions.close({ drainMs: 10_000 }));
 * ```
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_STORE`
 */
export function sessionStore(options?: SessionStoreOptions): SessionMiddleware {
  return atCaller(sessionStore, () => {
    const { stage, sessions } = sessionStage('sessionStore()', options);
    return withSessions(mount([stage]), sessions);
  });
}

/** The stage that admits requests, and the sessions that it admits them to. */
export function sessionStage(
  what: string,
  options: SessionStoreOptions | undefined,
): { readonly stage: MountedStage; readonly sessions: Sessions } {
  const { sessions, config } = createSessions(what, options);
  const enter: Enter = (exchange, observers) => {
    const earlier = admissionOf(exchange);
    if (earlier?.owner === sessions) return true;
    if (earlier !== undefined) throw misplaced();
    exchange.observers = observers;
    if (!isSeen && config.onEvent !== undefined)
      for (const call of exchange.requests)
        if (call.method === 'tools/call') lookout(exchange, call);
    return sessions.enter(exchange);
  };
  // Gates report calls, so without one `onEvent` gets none.
  let isSeen = false;
  const lookout = (exchange: Exchange, call: Call): void =>
    exchange.join({
      stage: 'session',
      onHead() {
        if (!isSeen && call.number === undefined) observersOf(config).onWarning(WITHOUT_GATE);
        isSeen = true;
      },
    });
  const stage = stageWith(config, enter, {
    mayWatch(route) {
      const gates = route.filter(({ gate }) => gate !== undefined);
      const isEntered = config.enforce ?? gates.length === 0;
      return !isEntered && gates.every(({ watches }) => watches !== undefined);
    },
    watches: (request) => watchesAll(sessions, request),
    assertBehind(earlier) {
      // stateSync() may stand in front: it needs no run.
      if (earlier.some(admits)) throw misplaced();
    },
  });
  return { stage, sessions };
}

/** Adds to a middleware what reaches its sessions from outside of a request. */
export function withSessions(middleware: Middleware, sessions: Sessions): SessionMiddleware {
  return Object.assign(middleware, {
    close: async (given?: CloseOptions) =>
      sessions.shutDown(parseOptions('close()', closeSchema, given).drainMs),
    [SESSIONS]: sessions,
  } as const);
}

/**
 * Whether all gates behind it let a request pass as it is. Those find the sessions in the request's
 * notes.
 */
function watchesAll(sessions: Sessions, { stages, notes, req }: WatchedBy): MaybePromise<boolean> {
  const gates = stages.filter(({ gate }) => gate !== undefined);
  Object.assign(notes, { sessions });
  let all: MaybePromise<boolean> = true;
  for (const each of gates)
    all = after(all, (so) => so && (each.watches?.({ stages, notes, req }) ?? false));
  return after(all, (so) => {
    if (!so) Object.assign(notes, { sessions: undefined });
    return so;
  });
}

/** The sessions of a middleware, for what moves runs outside of a request. */
export function sessionsOf(middleware: SessionMiddleware): Sessions {
  return middleware[SESSIONS] as Sessions;
}

/** The sessions of {@link sessionStore}, or of a gate that is mounted without it. */
export function createSessions(what: string, options: SessionStoreOptions | undefined) {
  const config = parseOptions(what, optionsSchema, options);
  const { clock } = config;
  const observers = observersOf(config);
  const store =
    config.store === undefined
      ? memoryStore({ maxRuns: config.maxSessions, now: () => clock.now() })
      : resolveStore(config.store, {
          now: () => clock.now(),
          onWarning: observers.onWarning,
          deadlineMs: config.storeDeadlineMs,
        });
  const kept = inService(store, config.service);
  const isMemory = keepingOf(store) === 'memory';
  const guarded = guardStore(kept, config.storeDeadlineMs, clock, observers.events, isMemory);
  return {
    config,
    sessions: new Sessions({
      ...config,
      ...observers,
      keys: parseKeys(config.key),
      principal: config.principal,
      claims: config.claims,
      clientOf: config.clientOf,
      bus: config.bus,
      store: guarded,
      isIdleSet: options?.idleMs !== undefined,
      faultOfKeeping: (gate) => faultOfKeeping(gate, keepingOf(store), observers.onWarning),
      storeWarning: isMemory ? aloneInMemory(process.env, cluster.isWorker) : undefined,
    }),
  };
}

/** Hosts that may run one app in several processes, by the variables that they set. */
const HOSTS: readonly (readonly [host: string, ...variables: string[]])[] = [
  ['PM2', 'pm_id', 'NODE_APP_INSTANCE'],
  ['Vercel', 'VERCEL'],
  ['AWS Lambda', 'AWS_LAMBDA_FUNCTION_NAME'],
  ['Cloud Run', 'K_SERVICE'],
  ['Kubernetes', 'KUBERNETES_SERVICE_HOST'],
];

/**
 * A warning where runs are in memory, and the process looks like one of several or serves
 * production, where the next deployment would lose them.
 */
export function aloneInMemory(env: NodeJS.ProcessEnv, isWorker: boolean): string | undefined {
  const [host, ...variables] = HOSTS.find(([, ...names]) => names.some((name) => env[name])) ?? [];
  const set = variables.find((name) => env[name]);
  const where = isWorker ? 'node:cluster' : host && `${host} (${set} is set)`;
  const danger =
    where !== undefined
      ? `${where} may send the next request of a client to another one, which answers ` +
        '"Session not found", or counts a limit of its principal anew'
      : env.NODE_ENV === 'production' &&
        'NODE_ENV is production: they are lost when it ends, and a second process answers ' +
          '"Session not found" to their requests';
  if (!danger) return undefined;
  return (
    `runs are kept in the memory of this process, and ${danger}. Give sessionStore({ store }) a ` +
    'store that outlives it and that all processes share, such as redisStore() or ' +
    'postgresStore(). Nothing is wrong where there is one process, or each client always gets to ' +
    'the same one, and where runs may be lost'
  );
}

const WITHOUT_GATE =
  'sessionStore({ onEvent }) gets no calls: gates report them, and a call came that passed ' +
  'none. Mount fsmGate() behind it; one that binds nothing is enough, see ' +
  'mcp-interlock/docs/operate/roll-out.md#record';

function misplaced(): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_MOUNT',
    'sessionStore() came after a fsmGate() or another sessionStore(), which had to decide ' +
      'without it. Mount it once, and first',
  );
}
