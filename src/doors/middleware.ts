import type { IncomingMessage, ServerResponse } from 'node:http';
import * as z from 'zod/mini';
import { InterlockError } from '../basics/errors.ts';
import { type EventListener, Events } from '../basics/events.ts';
import { functionOption, lazily } from '../basics/options.ts';
import type { MountedGate } from '../gate/gates.ts';
import {
  DEFAULT_LIMITS,
  type Enter,
  Exchange,
  Note,
  notePlaceOf,
  type Observers,
  type Stage,
  type WireLimits,
} from '../wire/exchange.ts';
import { hasBody, type RequestPort } from '../wire/headers.ts';
import { errorResponse, JSON_RPC } from '../wire/json-rpc.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import {
  type ResponseWatcher,
  type SeenRequest,
  seeRequest,
  watchResponse,
} from '../wire/witness.ts';
import { consoleLog } from './outage-log.ts';

const STAGE: unique symbol = Symbol('mcp-interlock.stage');

/** Middleware for Express 4, Express 5 and Connect-style hosts, and for `gateFetch()`. */
export interface Middleware {
  (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void): void;
  /**
   * A {@link MountedStage}. Its type is not named: the published declarations would hold all of
   * ours.
   */
  readonly [STAGE]: object;
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
   * Told of each failure whose reason no client is told. The store's own error is its `cause`.
   * Default: that of the `sessionStore()` in front, else `console.error`. That default writes the
   * first error of an outage, and the count of the others once it is over.
   */
  onError?: ((error: unknown) => void) | undefined;
  /**
   * Told once of each likely mistake. Default: that of the `sessionStore()` in front, else
   * `process.emitWarning`.
   */
  onWarning?: ((warning: string) => void) | undefined;
  /**
   * Told of each event, at once and in order: see docs/reference/events.md. `onError` is told what
   * it throws or rejects with. Requests wait until it returns, and not for a promise.
   * Default: that of the `sessionStore()` in front, else none.
   */
  onEvent?: EventListener | undefined;
}

const count = lazily(() => z.int().check(z.minimum(1)));

/** The schema of {@link CommonOptions}, with its defaults. */
export const commonShape = lazily(() => ({
  maxBodyBytes: z._default(count(), DEFAULT_LIMITS.maxBodyBytes),
  maxBatch: z._default(count(), DEFAULT_LIMITS.maxBatch),
  maxMessageBytes: z._default(count(), DEFAULT_LIMITS.maxMessageBytes),
  onError: z.optional(functionOption<(error: unknown) => void>()),
  onWarning: z.optional(functionOption<(warning: string) => void>()),
  onEvent: z.optional(functionOption<EventListener>()),
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
  /** Whether it lets each request pass as it is now, and only watches it. */
  watches?(request: WatchedBy): MaybePromise<boolean>;
  /** Watches a request that passes as it is. */
  watch?(request: WatchedBy, see: See): MaybePromise<void>;
}

/** A request on its way through a route. */
export interface WatchedBy {
  readonly req: RequestPort;
  /** The middlewares of its route, as far as the host knows them. */
  readonly stages: readonly MountedStage[];
  /** What the middlewares of the route keep with it: one object for all of them. */
  readonly notes: object;
}

/** Reads a request, and gives with it how its response is watched. */
export type See = (
  limits: WireLimits,
  onError: (error: unknown) => void,
  seen: (request: SeenRequest, watch: (watcher: ResponseWatcher) => void) => void,
) => MaybePromise<void>;

/** The oldest major version of Node that the tests run on, as `engines` in package.json says. */
const OLDEST_NODE = 20;

/**
 * Refuses an older Node, where a request could fail in ways that no test has tried. npm only warns
 * of `engines`. Other runtimes give the version of Node that they stand for, or none.
 */
function assertNode({ node }: Partial<NodeJS.ProcessVersions>): void {
  if (node === undefined || Number.parseInt(node, 10) >= OLDEST_NODE) return;
  throw new InterlockError(
    'ERR_INTERLOCK_NODE',
    `mcp-interlock needs Node ${OLDEST_NODE} or later, and this is Node ${node}`,
  );
}

/**
 * Makes a middleware of Node's form, which carries its stage for other hosts.
 *
 * @throws InterlockError `ERR_INTERLOCK_NODE`
 */
export function withExchange(
  config: CommonConfig,
  enter: Enter,
  mounting: Pick<MountedStage, 'forward' | 'gate' | 'assertBehind' | 'watches' | 'watch'> = {},
): Middleware {
  assertNode(process.versions);
  const observers = observersOf(config);
  const observersBehind = inheriting(config);
  const stage: MountedStage = { limits: config, observers, observersBehind, enter, ...mounting };
  const interlock = (
    req: IncomingMessage,
    res: ServerResponse,
    next: (error?: unknown) => void,
  ): void => {
    const enter = (): void => {
      // First: whether a request of HTTP/2 has a body, its headers do not say.
      if (req.httpVersionMajor > 1) refuseVersion(stage, req, res);
      // A preflight has no body; an OPTIONS with a body is gated.
      else if (req.method === 'OPTIONS' && !hasBody(req)) next();
      else passInNode(stage, req, res, next);
    };
    if (mounting.watches === undefined) enter();
    else watchInNode(stage, req, res, next, enter);
  };
  return Object.assign(interlock, { [STAGE]: stage } as const);
}

/**
 * Refuses HTTP/2, also a preflight, with 505 (RFC 9110, section 15.6.6). Node's responses of HTTP/2
 * end, close and fail in other ways than those of HTTP/1. A step whose client leaves is kept by the
 * ways of HTTP/1 alone.
 */
function refuseVersion(stage: Stage, req: IncomingMessage, res: ServerResponse): void {
  const { httpVersion } = req;
  stage.observers.onError(
    new InterlockError(
      'ERR_INTERLOCK_MOUNT',
      `the middlewares serve HTTP/1.1, and this request came by HTTP/${httpVersion}: let a ` +
        'proxy speak HTTP/2 with the clients and HTTP/1.1 with this server',
    ),
  );
  const words = `This route does not serve HTTP/${httpVersion}, only HTTP/1.1`;
  res.writeHead(505, { 'content-type': 'application/json' });
  res.end(JSON.stringify(errorResponse(null, JSON_RPC.INVALID_REQUEST, words)));
}

/** What a middleware does with an exchange, for other hosts; `undefined` where it is not ours. */
export function stageOf(middleware: unknown): MountedStage | undefined {
  const isOurs = typeof middleware === 'function' && STAGE in middleware;
  return isOurs ? ((middleware as Middleware)[STAGE] as MountedStage) : undefined;
}

/** A stage that a route has twice acts once, at its first place. */
export function distinct(stages: readonly MountedStage[]): readonly MountedStage[] {
  return [...new Set(stages)];
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

/** The middlewares on the route of a request, as Express keeps them. */
function stagesOnRoute(req: IncomingMessage): readonly MountedStage[] {
  const { route } = req as { route?: { stack?: readonly { handle?: unknown }[] } };
  if (!Array.isArray(route?.stack)) return [];
  const known = stagesByRoute.get(route);
  if (known !== undefined) return known;
  // A route of `all()` has each middleware once for each of HTTP's 35 methods.
  const stages = distinct(route.stack.flatMap(({ handle }) => stageOf(handle) ?? []));
  stagesByRoute.set(route, stages);
  return stages;
}

const stagesByRoute = new WeakMap<object, readonly MountedStage[]>();
const watched = new Note<object, object>();

/** Lets the request pass as it is, where the stage only watches. What fails holds nothing up. */
function watchInNode(
  stage: MountedStage,
  req: IncomingMessage,
  res: ServerResponse,
  next: () => void,
  enter: () => void,
): void {
  const { onError } = stage.observers;
  const request = { req, stages: stagesOnRoute(req), notes: watched.of(notePlaceOf(req)) ?? {} };
  const pass = (isWatching: boolean): void => {
    if (isWatching) startWatching(stage, request, req, res, next);
    else enter();
  };
  let watches: MaybePromise<boolean>;
  try {
    watches = stage.watches?.(request) ?? false;
  } catch (error) {
    onError(error);
    watches = false;
  }
  if (!isPromise(watches)) pass(watches);
  else
    void watches.then(pass, (error) => {
      onError(error);
      enter();
    });
}

function startWatching(
  stage: MountedStage,
  request: WatchedBy,
  req: IncomingMessage,
  res: ServerResponse,
  next: () => void,
): void {
  const place = notePlaceOf(req);
  if (watched.of(place) !== request.notes) watched.put(place, request.notes);
  const { onError } = stage.observers;
  let begun: MaybePromise<void> | undefined;
  // Ways of HTTP/2 are none of ours.
  if (stage.watch !== undefined && req.httpVersionMajor === 1)
    try {
      begun = stage.watch(request, (limits, tell, see) =>
        after(seeRequest(req, limits), (seen) =>
          see(seen, (watcher) => watchResponse(res, watcher, limits, tell)),
        ),
      );
    } catch (error) {
      onError(error);
    }
  if (isPromise(begun)) void begun.catch(onError).then(next);
  else next();
}

/** Calls `next` in the same tick, unless the body must be read or the stage has to wait. */
function passInNode(
  stage: Stage,
  req: IncomingMessage,
  res: ServerResponse,
  next: () => void,
): void {
  let opened: MaybePromise<Exchange | undefined>;
  try {
    opened = Exchange.of(req, res, stage.limits, stage.observers.onError);
  } catch (error) {
    failToOpen(stage, req, res, error);
    return;
  }
  if (isPromise(opened)) passLater(stage, opened, req, res, next);
  else opened?.pass(stage, next);
}

/** A function of its own: its closures would cost each request memory that need not wait. */
function passLater(
  stage: Stage,
  opened: Promise<Exchange | undefined>,
  req: IncomingMessage,
  res: ServerResponse,
  next: () => void,
): void {
  void opened.then(
    (exchange) => exchange?.pass(stage, next),
    (error) => failToOpen(stage, req, res, error),
  );
}

function failToOpen(stage: Stage, req: IncomingMessage, res: ServerResponse, error: unknown): void {
  const { observers } = Exchange.known(req) ?? {};
  (observers ? stage.observersBehind(observers) : stage.observers).onError(error);
  res.destroy();
}

/**
 * Tells the middlewares that your app forwarded nothing of this request. Call it in the error
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
