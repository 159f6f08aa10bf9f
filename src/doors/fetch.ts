import * as z from 'zod/mini';
import { configError, type InterlockError } from '../basics/errors.ts';
import {
  functionOption,
  isGate,
  lazyOptions,
  otherCopyHint,
  parseOptions,
  showValue,
} from '../basics/options.ts';
import { Exchange } from '../wire/exchange.ts';
import { FetchHost } from '../wire/fetch-host.ts';
import {
  assertPlan,
  type Middleware,
  type MountedStage,
  type Plan,
  passRoute,
  planOf,
  routeWith,
} from './middleware.ts';

/** A handler of the Fetch API. `Rest` is what its host gives it beside the request. */
export type FetchHandler<Rest extends unknown[] = []> = (
  request: Request,
  ...rest: Rest
) => Response | Promise<Response>;

/**
 * Who makes a request: the SDK's `AuthInfo`, or another object with `extra`, `payload` or claims of
 * its own.
 */
export interface FetchAuth {
  readonly clientId?: string | undefined;
  readonly extra?: Record<string, unknown> | undefined;
}

/** Options of {@link gateFetch}. */
export interface GateFetchOptions {
  /**
   * Says who makes a request. The middlewares read issuer and subject from it (`extra.iss`,
   * `extra.sub`), as from `req.auth` in Node. The handler finds it in `request.auth`. Default:
   * `request.auth`, where `withMcpAuth()` of `mcp-handler` leaves it.
   */
  auth?: ((request: Request) => FetchAuth | undefined | Promise<FetchAuth | undefined>) | undefined;
}

const optionsSchema = lazyOptions(() => ({
  auth: z._default(functionOption<NonNullable<GateFetchOptions['auth']>>(), () => authOf),
}));

/**
 * Puts the middlewares in front of an MCP handler of the Fetch API: a Next.js route handler, a Hono
 * app, or one of the SDK's. It takes the same middlewares as Express, in the same order.
 *
 * The handler is given a new `Request` with the client's method, URL, headers, body and `auth`.
 * What it throws, the returned function throws. Where there are sessions, the request's `signal` is
 * not aborted when the client leaves in the middle of a step.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`; `ERR_INTERLOCK_MOUNT` where the middlewares cannot
 * stand together, or in that order
 */
export function gateFetch<Rest extends unknown[]>(
  handler: FetchHandler<Rest>,
  middlewares: readonly [Middleware, ...Middleware[]],
  options?: GateFetchOptions,
): (request: Request, ...rest: Rest) => Promise<Response> {
  if (typeof handler !== 'function') throw wrong('the handler must be a function', handler);
  const { auth } = parseOptions('gateFetch()', optionsSchema, options);
  const stages = stagesOf(middlewares);
  const route = routeWith(stages);
  return async (request, ...rest) => {
    // A preflight has no body; an OPTIONS with a body is gated.
    if (request.method === 'OPTIONS' && request.body === null) return handler(request, ...rest);
    const host = new FetchHost(request, await auth(request), stages[0].observers.onError);
    const handle = (own: Request): Response | Promise<Response> => {
      Exchange.known(host.request)?.noteAs(own);
      return handler(own, ...rest);
    };
    passRoute(host, stages, route, () => void host.forward(handle));
    return host.answer;
  };
}

function stagesOf(middlewares: unknown): Plan {
  if (!Array.isArray(middlewares)) throw wrong('the middlewares must be an array', middlewares);
  const [first, ...others] = new Set(middlewares.flatMap(ownStages));
  if (first === undefined) throw wrong('there must be a middleware', middlewares);
  const stages: Plan = [first, ...others];
  assertPlan(stages);
  return stages;
}

function ownStages(middleware: unknown): readonly MountedStage[] {
  const stages = planOf(middleware);
  if (stages.length > 0) return stages;
  const rule = 'a middleware must be of interlock(), sessionStore(), fsmGate() or stateSync()';
  throw wrong(
    rule,
    middleware,
    isGate(middleware) ? '; write fsmGate(gate)' : otherCopyHint(middleware),
  );
}

function authOf(request: Request & { readonly auth?: FetchAuth }): FetchAuth | undefined {
  return request.auth;
}

function wrong(rule: string, value: unknown, hint = ''): InterlockError {
  return configError(`gateFetch(): ${rule}; got ${showValue(value)}${hint}`);
}
