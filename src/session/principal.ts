import type { IncomingMessage } from 'node:http';
import { isObject, type JsonObject } from '../wire/json-rpc.ts';

/** Whom a run is bound to. */
export interface Identity {
  /** Issuer and subject. A client id is not one: it names the app, and all its users share it. */
  readonly principal: string | undefined;
  /** What a session is bound to: the principal, or the nearest thing to it that the request carries. */
  readonly binding: string | undefined;
}

const NOBODY: Identity = { principal: undefined, binding: undefined };

/**
 * The caller, as authentication in front of the middleware left it in `req.auth`: the claims of RFC 7519 (`iss`, `sub`) where the SDK's
 * `AuthInfo` carries them in `extra`, and where the usual Express middlewares put them. Never the token's bytes: they change at every refresh.
 */
export function identityOf(req: IncomingMessage): Identity {
  const auth = (req as IncomingMessage & { auth?: unknown }).auth;
  if (!isObject(auth)) return NOBODY;
  for (const claims of [auth.extra, auth.payload, auth]) {
    if (isObject(claims) && isName(claims.iss) && isName(claims.sub)) {
      const principal = JSON.stringify([claims.iss, claims.sub]);
      return { principal, binding: principal };
    }
  }
  return bindingOnly(auth);
}

function bindingOnly(auth: JsonObject): Identity {
  const subject = isObject(auth.extra) && isName(auth.extra.sub) ? auth.extra.sub : undefined;
  if (!isName(auth.clientId) && subject === undefined) return NOBODY;
  return { principal: undefined, binding: JSON.stringify({ client: auth.clientId, subject }) };
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}
