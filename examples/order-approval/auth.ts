import { InvalidTokenError } from '@modelcontextprotocol/sdk/server/auth/errors.js';
import { requireBearerAuth } from '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js';
import type { Request, RequestHandler } from 'express';
import type { Role } from './workflow.ts';

export interface User {
  readonly name: string;
  readonly role: Role;
}

/**
 * Lets in a user with one of these tokens. In production, verify tokens of your identity provider
 * here.
 */
export function bearer(users: ReadonlyMap<string, User>): RequestHandler {
  return requireBearerAuth({
    verifier: {
      async verifyAccessToken(token) {
        const user = users.get(token);
        if (user === undefined) throw new InvalidTokenError('Unknown token');
        const expiresAt = Math.floor(Date.now() / 1000) + 60;
        // `iss` and `sub` name the caller to sessionStore(), which binds the session to them.
        const extra = { iss: 'https://orders.example', sub: user.name, user };
        return { token, clientId: 'orders', scopes: [user.role], expiresAt, extra };
      },
    },
  });
}

/** Who sends a request that `bearer()` let in. */
export function userOf(req: Request): User {
  return req.auth?.extra?.user as User;
}
