import { createHash, randomBytes } from 'node:crypto';

/** Where a session's id travels, in both directions. */
export const SESSION_HEADER = 'mcp-session-id';

/** A session id: 192 random bits in visible ASCII (MCP 2025-11-25, Transports, "Session Management"). */
export function newSessionId(): string {
  return randomBytes(24).toString('base64url');
}

/** A claim's token, and the idempotency key of the step that it is for. */
export function newToken(): string {
  return randomBytes(18).toString('base64url');
}

/** One digest for one set of arguments, whatever order their members came in. */
export function digestOf(args: unknown): string {
  return createHash('sha256').update(canonical(args)).digest('base64url');
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, each]) => `${JSON.stringify(key)}:${canonical(each)}`).join(',')}}`;
}
