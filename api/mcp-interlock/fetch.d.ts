// What mcp-interlock/fetch exports. `npm run api` renews this file.

export interface FetchAuth {
    readonly clientId?: string | undefined;
    readonly extra?: Record<string, unknown> | undefined;
}

export type FetchHandler<Rest extends unknown[] = [
]> = (request: Request, ...rest: Rest) => Response | Promise<Response>;

export interface GateFetchOptions {
    auth?: ((request: Request) => FetchAuth | undefined | Promise<FetchAuth | undefined>) | undefined;
}

export function gateFetch<Rest extends unknown[]>(handler: FetchHandler<Rest>, middlewares: readonly [
    Middleware,
    ...Middleware[]
], options?: GateFetchOptions): (request: Request, ...rest: Rest) => Promise<Response>;
