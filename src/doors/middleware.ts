import type { IncomingMessage, ServerResponse } from 'node:http';
import * as z from 'zod/mini';
import { InterlockError } from '../basics/errors.ts';
import { type EventListener, Events } from '../basics/events.ts';
import { integerOption, lazily, optionalFunction } from '../basics/options.ts';
import type { MountedGate } from '../gate/gates.ts';
import {
  DEFAULT_LIMITS,
  type Enter,
  Exchange,
  Note,
  notePlaceOf,
  type Observers,
  type Stage,
  seeRequest,
  type WireLimits,
} from '../wire/exchange.ts';
import { hasBody, type RequestPort } from '../wire/headers.ts';
import { errorResponse, JSON_RPC } from '../wire/json-rpc.ts';
import { type Host, NodeHost } from '../wire/node-host.ts';
import { after, inOrder, isPromise, type MaybePromise } from '../wire/task-line.ts';
import type { ResponseWatcher, SeenRequest } from '../wire/witness.ts';
import { consoleLog } from './outage-log.ts';

const PLAN: unique symbol = Symbol('mcp-interlock.plan');

/** Middleware for Express 4, Express 5 and Connect-style hosts, and for `gateFetch()`. */
export interface Middleware {
  (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void): void;
  /** A {@link Plan}. Its type is not named: the published declarations would hold all of ours. */
  readonly [PLAN]: object;
}

/** Options that each of the three middlewares takes. */
export interface CommonOptions {
  /** The largest request body, in bytes. Default 4 MiB. The first middleware decides. */
  maxBodyBytes?: number | undefined;
  /** The most messages in one batch. Default 50. The first middleware decides. */
  maxBatch?: number | undefined;
  /**
   * The largest message of a response that the middlewares hold to inspect it, in bytes. Default
   * 16 MiB. The first middleware decides.
   */
  maxMessageBytes?: number | undefined;
  /**
   * Called for each failure whose reason no client gets. The store's own error is its `cause`.
   * Default: that of the `sessionStore()` in front, else `console.error`. That default writes the
   * first error of an outage, and the count of the others once it is over.
   */
  onError?: ((error: unknown) => void) | undefined;
  /**
   * Called once for each likely mistake. Default: that of the `sessionStore()` in front, else
   * `process.emitWarning`.
   */
  onWarning?: ((warning: string) => void) | undefined;
  /**
   * Called for each event, at once and in order: see docs/reference/events.md. `onError` gets what
   * it throws or rejects with. Requests wait until it returns, and not for a promise. Default: that
   * of the `sessionStore()` in front, else none.
   */
  onEvent?: EventListener | undefined;
}

const count = lazily(() => integerOption(1));

/** The schema of {@link CommonOptions}, with its defaults. */
export const commonShape = lazily(() => ({
  maxBodyBytes: z._default(count(), DEFAULT_LIMITS.maxBodyBytes),
  maxBatch: z._default(count(), DEFAULT_LIMITS.maxBatch),
  maxMessageBytes: z._default(count(), DEFAULT_LIMITS.maxMessageBytes),
  onError: optionalFunction<(error: unknown) => void>(),
  onWarning: optionalFunction<(warning: string) => void>(),
  onEvent: optionalFunction<EventListener>(),
}));

/** {@link CommonOptions} as they are parsed. */
export type CommonConfig = WireLimits & Pick<CommonOptions, 'onError' | 'onWarning' | 'onEvent'>;

const events = new Events({ onError: consoleLog() });

const DEFAULTS: Observers = {
  events,
  onError: events.onError,
  onWarning: (warning) => process.emitWarning(warning, 'InterlockWarning'),
};

/** The observers of a middleware: its own, and for those that it lacks the `others`. */
export function observersOf(own: Partial<CommonConfig>, others: Observers = DEFAULTS): Observers {
  const { onError, onWarning = others.onWarning, onEvent } = own;
  const events = others.events.with({ onEvent, onError: onError && safely(onError) });
  return { events, onError: events.onError, onWarning };
}

/** A middleware without its host, as it is mounted. */
export interface MountedStage extends Stage {
  /** The gate that it mounts, if any. */
  readonly gate?: MountedGate;
  /** Throws where it cannot stand behind those stages of the same route. */
  assertBehind?(earlier: readonly MountedStage[]): void;
  /** Whether requests ask {@link watches} on a route of those stages. Absent: on each. */
  mayWatch?(route: readonly MountedStage[]): boolean;
  /** Whether it lets each request pass as it is now, and only watches it. */
  watches?(request: WatchedBy): MaybePromise<boolean>;
  /** Watches a request that passes as it is. */
  watch?(request: WatchedBy, see: See): MaybePromise<void>;
}

/**
 * What a request passes, in order: one stage for each of the three middlewares and each gate. What
 * `interlock()` makes has all of them, and any other middleware has one.
 */
export type Plan = readonly [MountedStage, ...MountedStage[]];

/** A request on its way through a route. */
export interface WatchedBy {
  readonly req: RequestPort;
  /** The plans of its route in one, as far as the host knows them. */
  readonly stages: readonly MountedStage[];
  /** What the middlewares of the route keep with it: one object for all of them. */
  readonly notes: object;
}

/** Reads a request, and gives with it how its response is watched. */
export type See = (
  onError: (error: unknown) => void,
  seen: (request: SeenRequest, watch: (watcher: ResponseWatcher) => void) => void,
) => MaybePromise<void>;

/** The oldest major version of Node that the tests run on, as `engines` in package.json says. */
const OLDEST_NODE = 20;

/**
 * Refuses an older Node, where a request could fail in ways that no test has tried. npm only warns
 * of `engines`. Other runtimes give the version of Node that they imitate, or none.
 */
function assertNode({ node }: Partial<NodeJS.ProcessVersions>): void {
  if (node === undefined || Number.parseInt(node, 10) >= OLDEST_NODE) return;
  throw new InterlockError(
    'ERR_INTERLOCK_NODE',
    `mcp-interlock needs Node ${OLDEST_NODE} or later, and this is Node ${node}`,
  );
}

/** What a middleware of one stage mounts. */
export type Mounting = Pick<
  MountedStage,
  'forward' | 'gate' | 'assertBehind' | 'mayWatch' | 'watches' | 'watch'
>;

/** The stage of a middleware with these options. */
export function stageWith(
  config: CommonConfig,
  enter: Enter,
  mounting: Mounting = {},
): MountedStage {
  const observers = observersOf(config);
  const observersBehind = inheriting(config);
  return { limits: config, observers, observersBehind, enter, ...mounting };
}

/**
 * Makes a middleware of Node's form, which carries its plan for other hosts.
 *
 * @throws InterlockError `ERR_INTERLOCK_NODE`; `ERR_INTERLOCK_MOUNT` where the stages cannot stand
 * together, or in that order
 */
export function mount(stages: Plan): Middleware {
  assertNode(process.versions);
  assertPlan(stages);
  const alone = routeWith(stages);
  const routes = new WeakMap<object, Route>();
  const interlock = (
    req: IncomingMessage,
    res: ServerResponse,
    next: (error?: unknown) => void,
  ): void => {
    // A preflight has no body; an OPTIONS with a body is gated. Whether a request of HTTP/2 has one,
    // its headers do not say.
    const host = new NodeHost(req, res);
    if (req.method === 'OPTIONS' && host.unserved === undefined && !hasBody(req)) next();
    else passRoute(host, stages, routeOf(req, stages, routes) ?? alone, next);
  };
  return Object.assign(interlock, { [PLAN]: stages } as const);
}

/** @throws InterlockError `ERR_INTERLOCK_MOUNT` */
export function assertPlan(stages: Plan): void {
  for (const [i, stage] of stages.entries()) stage.assertBehind?.(stages.slice(0, i));
}

/** What a middleware does with an exchange, for other hosts; none where it is not ours. */
export function planOf(middleware: unknown): readonly MountedStage[] {
  const isOurs = typeof middleware === 'function' && PLAN in middleware;
  return isOurs ? ((middleware as Middleware)[PLAN] as Plan) : [];
}

/** Remembers the observers for each `sessionStore()` in front. */
export function inheriting(own: CommonConfig): Stage['observersBehind'] {
  const behind = new WeakMap<Observers, Observers>();
  return (others) => {
    const known = behind.get(others) ?? observersOf(own, others);
    behind.set(others, known);
    return known;
  };
}

/** What is known of all middlewares of a route. */
export interface Route {
  /** In order. One that the route has twice acts once, at its first place. */
  readonly stages: readonly MountedStage[];
  /** Those that may let a request pass as it is, and only watch it. */
  readonly watchers: ReadonlySet<MountedStage>;
}

export function routeWith(mounted: readonly MountedStage[]): Route {
  const stages = [...new Set(mounted)];
  const mayWatch = (stage: MountedStage): boolean =>
    stage.watches !== undefined && (stage.mayWatch?.(stages) ?? true);
  return { stages, watchers: new Set(stages.filter(mayWatch)) };
}

/** Whether a request has its run where it has passed the stage. `stateSync()` needs none. */
export function admits({ assertBehind }: MountedStage): boolean {
  return assertBehind !== undefined;
}

/** The plans on a route of Express, and the one that asks: the app may have wrapped that. */
function routeOf(
  req: IncomingMessage,
  own: Plan,
  routes: WeakMap<object, Route>,
): Route | undefined {
  const { route } = req as { route?: { stack?: readonly { handle?: unknown }[] } };
  if (!Array.isArray(route?.stack)) return;
  const known = routes.get(route);
  if (known !== undefined) return known;
  // A route of `all()` has each middleware once for each of HTTP's 35 methods.
  const made = routeWith([...route.stack.flatMap(({ handle }) => planOf(handle)), ...own]);
  routes.set(route, made);
  return made;
}

const watched = new Note<object, object>();

/**
 * Lets the stages watch that only watch, and the request pass the other ones. Calls `next` in the
 * same tick, unless the body must be read or a stage has to wait.
 */
export function passRoute(host: Host, stages: Plan, route: Route, next: () => void): void {
  if (route.watchers.size === 0) {
    passStages(host, stages, next);
    return;
  }
  const enter = ([first, ...others]: readonly MountedStage[]): void => {
    if (first === undefined) next();
    else passStages(host, [first, ...others], next);
  };
  void after(watchBy(host, stages, route), enter);
}

/**
 * Asks each stage whether it lets the request pass as it is, and lets those watch that do. What
 * fails holds nothing up: a stage that cannot say whether it watches is entered.
 *
 * @returns the stages that do not watch
 */
function watchBy(
  host: Host,
  stages: Plan,
  { stages: all, watchers }: Route,
): MaybePromise<readonly MountedStage[]> {
  const { request: req } = host;
  const [{ limits }] = stages;
  const place = notePlaceOf(req);
  const notes = watched.of(place) ?? {};
  const see: See = (onError, seen) => {
    if (host.unserved !== undefined) return;
    return after(seeRequest(host, limits), (request) =>
      seen(request, (watcher) => host.watch(watcher, limits, onError)),
    );
  };
  const left: MountedStage[] = [];
  const each = (stage: MountedStage): MaybePromise<void> => {
    const { onError } = stage.observers;
    const request = { req, stages: all, notes };
    // Behind one that admits the request, and is entered, a gate finds its run there.
    const asked = watchers.has(stage) && !left.some(admits);
    const watches = asked && orElse(() => stage.watches?.(request) ?? false, false, onError);
    return after(watches, (so) => {
      if (so) return orElse(() => stage.watch?.(request, see), undefined, onError);
      left.push(stage);
    });
  };
  return after(inOrder(stages, each), () => {
    if (left.length < stages.length && watched.of(place) !== notes) watched.put(place, notes);
    return left;
  });
}

/** What is done, or the other value where it fails, at once or later. */
function orElse<T>(
  what: () => MaybePromise<T>,
  other: T,
  onError: (error: unknown) => void,
): MaybePromise<T> {
  const fail = (error: unknown): T => {
    onError(error);
    return other;
  };
  try {
    const done = what();
    return isPromise(done) ? done.catch(fail) : done;
  } catch (error) {
    return fail(error);
  }
}

function passStages(host: Host, stages: Plan, next: () => void): void {
  const [{ limits, observers, observersBehind }] = stages;
  const fail = (error: unknown): void => {
    const front = Exchange.known(host.request)?.observers;
    host.fail(error, (front ? observersBehind(front) : observers).onError);
  };
  const { unserved } = host;
  if (unserved !== undefined) {
    observers.onError(
      new InterlockError(
        'ERR_INTERLOCK_MOUNT',
        `the middlewares serve HTTP/1.1, and this request came by ${unserved}: let a ` +
          'proxy speak HTTP/2 with the clients and HTTP/1.1 with this server',
      ),
    );
    const words = `This route does not serve ${unserved}, only HTTP/1.1`;
    // RFC 9110, section 15.6.6. A preflight too.
    host.refuse(505, JSON.stringify(errorResponse(null, JSON_RPC.INVALID_REQUEST, words)));
    return;
  }
  let opened: MaybePromise<Exchange | undefined>;
  try {
    opened = Exchange.of(host, limits, observers.onError);
  } catch (error) {
    fail(error);
    return;
  }
  if (isPromise(opened)) void opened.then((exchange) => exchange?.passAll(stages, next), fail);
  else opened?.passAll(stages, next);
}

/**
 * Reports to the middlewares that your app forwarded nothing of this request. Call it in the error
 * handler of a proxy whose server refused the connection, and answer as you would without the
 * middlewares. The request's steps release their runs at once, and keep the idempotency keys of
 * earlier tries.
 *
 * Call it only where nothing can have run. `ECONNRESET` or a time-out may come after something was
 * sent, and after a redirect only the last connection was refused. Do not go by what the server
 * says. Nothing happens where the request is answered, or no middleware saw it.
 *
 * @param request what your handler got: Node's request, or the `Request` of `gateFetch()`
 * @returns a promise that never rejects; you need not wait for it
 */
export async function notForwarded(request: IncomingMessage | Request): Promise<void> {
  await Exchange.known(request)?.notForwarded();
}

/** An observer that throws must not fail a client's request. */
export function safely(observer: (error: unknown) => void): (error: unknown) => void {
  return (error) => {
    try {
      observer(error);
    } catch (second) {
      console.error(second);
    }
  };
}
