/** An object whose members nobody has checked yet. */
export type JsonObject = { [key: string]: unknown };

/**
 * JSON-RPC 2.0 allows null and fractions too; MCP does not ("Requests MUST include a string or
 * integer ID").
 */
export type RequestId = string | number;

/** What a message is, by its shape. */
export type MessageKind = 'request' | 'notification' | 'response' | 'invalid';

/**
 * The codes of JSON-RPC 2.0 section 5.1, the two that the official SDKs use for transport errors,
 * and MCP's own.
 */
export const JSON_RPC = {
  PARSE_ERROR: -32700,
  INVALID_REQUEST: -32600,
  METHOD_NOT_FOUND: -32601,
  INVALID_PARAMS: -32602,
  INTERNAL_ERROR: -32603,
  SERVER_ERROR: -32000,
  SESSION_NOT_FOUND: -32001,
  /** MCP 2026-07-28: the headers do not repeat what the body says. */
  HEADER_MISMATCH: -32020,
  /** MCP 2026-07-28: the request needs a capability that its client did not declare. */
  MISSING_CAPABILITY: -32021,
} as const;

/**
 * Marks the middleware's own members of `_meta`; a prefix as MCP's "General fields: `_meta`" asks
 * for.
 */
export const META_PREFIX = 'mcp-interlock/';

/**
 * The member of `_meta` by which a handler finds the step that it runs in. Only a gate sets it: no
 * client's message is read with one.
 */
export const META_TRY = `${META_PREFIX}try`;

/**
 * The member of `_meta` in which a stateless request names its protocol version (MCP 2026-07-28,
 * "Per-request protocol fields").
 */
export const META_CLAIM = 'io.modelcontextprotocol/protocolVersion';

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isRequestId(value: unknown): value is RequestId {
  return typeof value === 'string' || (typeof value === 'number' && Number.isSafeInteger(value));
}

export function kindOf(message: unknown): MessageKind {
  if (!isObject(message) || message.jsonrpc !== '2.0') return 'invalid';
  if (Object.hasOwn(message, 'method')) {
    if (typeof message.method !== 'string') return 'invalid';
    if (!Object.hasOwn(message, 'id')) return 'notification';
    return isRequestId(message.id) ? 'request' : 'invalid';
  }
  const answered = Object.hasOwn(message, 'result') || Object.hasOwn(message, 'error');
  return answered && (isRequestId(message.id) || message.id === null || message.id === undefined)
    ? 'response'
    : 'invalid';
}

/**
 * JSON-RPC 2.0, section 5: a response has a result or an error, "but both members MUST NOT be
 * included".
 */
export function isContradictory(message: JsonObject): boolean {
  return Object.hasOwn(message, 'result') && Object.hasOwn(message, 'error');
}

/** `1` and `"1"` are different ids, so they get different keys. */
export function idKey(id: RequestId): string {
  return typeof id === 'number' ? `n${id}` : `s${id}`;
}

export function errorResponse(
  id: RequestId | null,
  code: number,
  message: string,
  data?: unknown,
): JsonObject {
  const error = data === undefined ? { code, message } : { code, message, data };
  return { jsonrpc: '2.0', id, error };
}

export function notification(method: string, params?: JsonObject): JsonObject {
  return params === undefined ? { jsonrpc: '2.0', method } : { jsonrpc: '2.0', method, params };
}

/** What MCP has lists of, as its methods and capabilities name them. */
export type ListKind = 'tools' | 'prompts' | 'resources';

/** Tells a client that one of its lists is another one now. */
export function listChanged(kind: ListKind, params?: JsonObject): JsonObject {
  return notification(`notifications/${kind}/list_changed`, params);
}
