/**
 * Who may come in: the checks of a request in front of the gate. Hides what a web page in a user's
 * browser could try, and what makes a token good.
 */
import { isIP } from 'node:net';
import type { NextFunction, Request, RequestHandler, Response } from 'express';
import { createRemoteJWKSet, errors, jwtVerify } from 'jose';

/** Says no, with a JSON-RPC error that has no id. */
export function refuse(
  res: Response,
  status: number,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  res.status(status).set(headers);
  res.json({ jsonrpc: '2.0', id: null, error: { code: -32000, message } });
}

/** What {@link checkOrigin} lets in. */
export interface OriginOptions {
  /** Names by which clients reach the gate, beside `localhost` and any address. */
  readonly hosts: readonly string[];
  /** Web pages that may call: scheme, host and port, as browsers send them. */
  readonly origins: readonly string[];
  /** Called for a request that was turned away, with how to let it in. */
  readonly onRefused: (message: string) => void;
}

/**
 * Turns away what a web page may have sent: MCP 2025-11-25, Transports, "Security Warning". A page
 * that points its own name at this machine (DNS rebinding) sends that name as `Host`. So names have
 * to be known. An address cannot be rebound. An `Origin` has to be the gate's own or a known one; a
 * client that is no browser sends none.
 */
export function checkOrigin({ hosts, origins, onRefused }: OriginOptions): RequestHandler {
  const known = new Set(['localhost', ...hosts.map((host) => host.toLowerCase())]);
  return (req, res, next) => {
    const { host, origin } = req.headers;
    const name = hostnameOf(host);
    if (name === undefined || !(known.has(name) || isIP(name.replace(/^\[|\]$/g, '')) !== 0)) {
      onRefused(`the host ${JSON.stringify(host ?? '')} is not allowed; see --allow-host`);
      refuse(res, 403, 'This host is not allowed');
    } else if (origin !== undefined && !origins.includes(origin) && !isOwn(origin, host)) {
      onRefused(`the origin ${JSON.stringify(origin)} is not allowed; see --allow-origin`);
      refuse(res, 403, 'This origin is not allowed');
    } else if (origin === undefined) next();
    else shareWith(origin, req, res, next);
  };
}

function hostnameOf(host: string | undefined): string | undefined {
  const url = `http://${host}`;
  return host !== undefined && URL.canParse(url) ? new URL(url).hostname : undefined;
}

function isOwn(origin: string, host: string | undefined): boolean {
  return URL.canParse(origin) && new URL(origin).host === host;
}

/** Lets a page of an allowed origin read what it gets, and ask first (CORS). */
function shareWith(origin: string, req: Request, res: Response, next: NextFunction): void {
  res.set('access-control-allow-origin', origin).vary('Origin');
  // Without it a client in a page never learns its session's id.
  res.set('access-control-expose-headers', 'Mcp-Session-Id, WWW-Authenticate');
  const headers = req.headers['access-control-request-headers'];
  if (req.method !== 'OPTIONS' || req.headers['access-control-request-method'] === undefined) {
    next();
    return;
  }
  res.set('access-control-allow-methods', 'GET, POST, DELETE');
  if (headers !== undefined) res.set('access-control-allow-headers', headers);
  res.set('access-control-max-age', '600').status(204).end();
}

/** What a token has to be. */
export interface TokenOptions {
  /** Where the issuer's public keys are. */
  readonly jwks: URL;
  readonly issuer: string;
  /** Whom tokens are for. As a URL it also says to clients where to get one (RFC 9728). */
  readonly audience: string;
  /** Called where the keys cannot be had. */
  readonly onFault: (message: string) => void;
}

/** Where clients look up who gives out tokens, and what they find there. */
export interface ResourceMetadata {
  readonly path: string;
  readonly url: string;
  readonly document: object;
}

/** The metadata of RFC 9728; none where the audience is no URL. */
export function resourceMetadata(options: TokenOptions): ResourceMetadata | undefined {
  const { audience, issuer } = options;
  if (!/^https?:\/\//.test(audience) || !URL.canParse(audience)) return undefined;
  const { origin, pathname } = new URL(audience);
  const path = `/.well-known/oauth-protected-resource${pathname === '/' ? '' : pathname}`;
  const document = {
    resource: audience,
    authorization_servers: [issuer],
    bearer_methods_supported: ['header'],
  };
  return { path, url: `${origin}${path}`, document };
}

/**
 * Lets in a request with a good JWT, and leaves its claims where `sessionStore()` finds issuer and
 * subject. Answers 401 to a missing or bad token, and 503 where it cannot get the issuer's keys.
 */
export function checkToken(options: TokenOptions): RequestHandler {
  const { jwks, issuer, audience, onFault } = options;
  const keys = createRemoteJWKSet(jwks);
  const metadata = resourceMetadata(options);
  const challenge = (more: string): Record<string, string> => {
    const where = metadata && `resource_metadata="${metadata.url}"`;
    return { 'www-authenticate': `Bearer ${[more, where].filter(Boolean).join(', ')}`.trim() };
  };
  const refuseToken = (res: Response): void =>
    refuse(res, 401, 'The token is not valid', challenge('error="invalid_token"'));
  const rules = { issuer, audience, requiredClaims: ['exp', 'sub'] };
  return (req, res, next) => {
    const [, token] = /^Bearer +([^ ]+)$/i.exec(req.headers.authorization ?? '') ?? [];
    if (token === undefined) return refuse(res, 401, 'A bearer token is needed', challenge(''));
    jwtVerify(token, keys, rules).then(
      ({ payload }) => {
        // Any JSON value may stand there. One that names no user would bind the session to none.
        if (typeof payload.sub !== 'string' || payload.sub === '') return refuseToken(res);
        next(void Object.assign(req, { auth: { payload } }));
      },
      (error: unknown) => {
        if (isTokensFault(error)) return refuseToken(res);
        onFault(`the keys at ${jwks.origin}${jwks.pathname} cannot be had: ${error}`);
        refuse(res, 503, 'Tokens cannot be checked at the moment');
      },
    );
  };
}

function isTokensFault(error: unknown): boolean {
  const isIssuers = error instanceof errors.JWKSTimeout || error instanceof errors.JWKSInvalid;
  // A host that answers the request for keys with another status is a plain `JOSEError`.
  return error instanceof errors.JOSEError && !isIssuers && error.code !== 'ERR_JOSE_GENERIC';
}
