import { randomBytes } from 'node:crypto';

/** Where a session's id travels, in both directions. */
export const SESSION_HEADER = 'mcp-session-id';

/**
 * A session id: 192 random bits in visible ASCII (MCP 2025-11-25, Transports, "Session
 * Management").
 */
export function newSessionId(): string {
  return randomBytes(24).toString('base64url');
}

/** A claim's token, and the idempotency key of the step that it is for. */
export function newToken(): string {
  if (drawn.length < TOKEN_BYTES) drawn = randomBytes(100 * TOKEN_BYTES);
  const token = drawn.toString('base64url', 0, TOKEN_BYTES);
  drawn = drawn.subarray(TOKEN_BYTES);
  return token;
}

const TOKEN_BYTES = 18;

/** Random bytes for the next tokens: drawing few of them costs as much as drawing many. */
let drawn = Buffer.alloc(0);

/**
 * Begins the key of a principal's run. With a space in it, which no session id contains (MCP
 * 2025-11-25: visible ASCII), so that no client can name it by that header.
 */
export const PRINCIPAL_RUN = 'principal ';

/** Whether a run is a principal's, as its key says. */
export function isPrincipalRun(run: string): boolean {
  return run.startsWith(PRINCIPAL_RUN);
}

/** Whether a run is a session's: the keys of all others have a space in them. */
export function isSession(run: string): boolean {
  return !run.includes(' ');
}
