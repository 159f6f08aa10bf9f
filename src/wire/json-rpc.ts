/** A JSON object with unchecked members. */
export type JsonObject = { [key: string]: unknown };

/** Unlike JSON-RPC, MCP allows neither null nor fractions ("a string or integer ID"). */
export type RequestId = string | number;

/** Error codes: JSON-RPC 2.0 (section 5.1), the official SDKs' for transport errors, and MCP's. */
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
  /** MCP 2026-07-28: the server does not speak the version that the request names. */
  UNSUPPORTED_VERSION: -32022,
} as const;

/** Begins our own keys in `_meta`, as MCP asks for ("General fields: `_meta`"). */
export const META_PREFIX = 'mcp-interlock/';
/** The member of a forwarded call's `_meta` that has its idempotency key. */
export const IDEMPOTENCY_KEY = `${META_PREFIX}idempotencyKey`;

/** The key in `_meta` by which a handler finds its step. It is removed from a client's message. */
export const META_TRY = `${META_PREFIX}try`;

/**
 * The key in `_meta` for the protocol version of a stateless request (MCP 2026-07-28, "Per-request
 * protocol fields").
 */
export const META_CLAIM = 'io.modelcontextprotocol/protocolVersion';
/** The key in `_meta` by which the client of a stateless request says what it is. */
export const META_CLIENT = 'io.modelcontextprotocol/clientInfo';

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isRequestId(value: unknown): value is RequestId {
  return typeof value === 'string' || (typeof value === 'number' && Number.isSafeInteger(value));
}

/**
 * The longest id of a request, in bytes of UTF-8. Trails, events and late answers remember it long
 * after the request, so its length must not be the client's choice.
 */
export const MOST_ID_BYTES = 256;

/** Whether no request of a client has the id, since it is too long. */
export function isLongId(id: RequestId | null): boolean {
  return typeof id === 'string' && Buffer.byteLength(id) > MOST_ID_BYTES;
}

/** Whether a response has both a result and an error, which JSON-RPC 2.0 forbids (section 5). */
export function isContradictory(message: JsonObject): boolean {
  return Object.hasOwn(message, 'result') && Object.hasOwn(message, 'error');
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

const UNREADABLE = 'the upstream sent a response that the middleware cannot read';

/** The error for a request whose response cannot be read. */
export function unreadable(id: unknown, why = UNREADABLE): JsonObject {
  return errorResponse(isRequestId(id) ? id : null, JSON_RPC.INTERNAL_ERROR, why);
}

export function notification(method: string, params?: JsonObject): JsonObject {
  return params === undefined ? { jsonrpc: '2.0', method } : { jsonrpc: '2.0', method, params };
}

/** The lists of MCP, as its methods and capabilities name them. */
export type ListKind = 'tools' | 'prompts' | 'resources';

/** Notifies a client that a list has changed. */
export function listChanged(kind: ListKind, params?: JsonObject): JsonObject {
  return notification(`notifications/${kind}/list_changed`, params);
}

/**
 * How deep the arguments of a call may be nested, where a function might read them. Real ones are
 * far below it, and some parsers of other languages give up from there.
 */
export const MOST_DEPTH = 128;

/** Newer servers of the official SDK put their JSON-RPC error into the text of a result. */
const INVALID_IN_WORDS = `MCP error ${JSON_RPC.INVALID_PARAMS}: `;

/** Whether the server answered that the arguments are none of the tool's. */
export function saysInvalid({
  result,
  error,
}: {
  readonly result?: JsonObject | undefined;
  readonly error?: unknown;
}): boolean {
  if (isObject(error)) return error.code === JSON_RPC.INVALID_PARAMS;
  const [first] = Array.isArray(result?.content) ? (result.content as unknown[]) : [];
  const words = isObject(first) ? first.text : undefined;
  return result?.isError === true && String(words).startsWith(INVALID_IN_WORDS);
}
