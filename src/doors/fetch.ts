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
import { FetchHost, requestPort, seeFetched } from '../wire/fetch-host.ts';
import { type SeenRequest, watchFetched } from '../wire/witness.ts';
import {
  assertPlan,
  type Middleware,
  type MountedStage,
  type Plan,
  planOf,
  type Route,
  routeWith,
  type See,
  watchBy,
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
    const by = await auth(request);
    const { show, left } =
      route.watchers.size > 0
        ? await watchInFetch(request, by, stages, route)
        : { show: asIs, left: stages };
    const [first, ...others] = left;
    if (first === undefined) {
      if (by !== undefined) Object.assign(request, { auth: by });
      return show(await handler(request, ...rest));
    }
    const host = new FetchHost(request, by, first.observers.onError);
    run(host, [first, ...others], (own) => handler(own, ...rest)).catch((error) =>
      host.fail(error),
    );
    return show(await host.response.made);
  };
}

type Show = (response: Response) => Promise<Response>;

const asIs: Show = async (response) => response;

/**
 * Lets the stages watch that only watch.
 *
 * @returns the other stages, and what shows the response to those that watch
 */
async function watchInFetch(
  request: Request,
  auth: unknown,
  stages: Plan,
  route: Route,
): Promise<{ show: Show; left: readonly MountedStage[] }> {
  let show = asIs;
  const [{ limits: most }] = stages;
  let seen: SeenRequest | undefined;
  const see: See = async (limits, onError, watch) => {
    seen ??= await seeFetched(request, auth, most);
    watch(seen, (watcher) => {
      const inner = show;
      show = async (response) => watchFetched(await inner(response), watcher, limits, onError);
    });
  };
  const asked = { req: requestPort(request, auth), stages, notes: {} };
  const left = await watchBy(stages, route, asked, see);
  return { show, left };
}

async function run(host: FetchHost, stages: Plan, handle: FetchHandler): Promise<void> {
  const [first] = stages;
  const exchange = await Exchange.open(host, first.limits, first.observers.onError);
  exchange?.passAll(stages, () => {
    void host.forward((own) => {
      exchange.noteAs(own);
      return handle(own);
    });
  });
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
