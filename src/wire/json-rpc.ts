import { isContainer } from '../options.ts';

/** A JSON object with unchecked members. */
export type JsonObject = { [key: string]: unknown };

/** Unlike JSON-RPC, MCP allows neither null nor fractions ("a string or integer ID"). */
export type RequestId = string | number;

/** The kind of a message, by its shape. */
export type MessageKind = 'request' | 'notification' | 'response' | 'invalid';

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
export function unreadable(id: unknown): JsonObject {
  return errorResponse(isRequestId(id) ? id : null, JSON_RPC.INTERNAL_ERROR, UNREADABLE);
}

export function notification(method: string, params?: JsonObject): JsonObject {
  return params === undefined ? { jsonrpc: '2.0', method } : { jsonrpc: '2.0', method, params };
}

/** The lists of MCP, as its methods and capabilities name them. */
export type ListKind = 'tools' | 'prompts' | 'resources';

/** Tells a client that a list has changed. */
export function listChanged(kind: ListKind, params?: JsonObject): JsonObject {
  return notification(`notifications/${kind}/list_changed`, params);
}

// --- JSON values, read without recursion: a client decides how deep they are -------------------

/** Whether the value, or any value in it, passes a test. */
export function someValue(value: unknown, passes: (value: unknown) => boolean): boolean {
  if (passes(value)) return true;
  const rest = [value];
  while (rest.length > 0) {
    const each = rest.pop();
    // Only containers wait for their turn: there may be millions of other values.
    if (Array.isArray(each)) {
      for (const inner of each) {
        if (passes(inner)) return true;
        if (isContainer(inner)) rest.push(inner);
      }
    } else if (isObject(each)) {
      for (const key of Object.keys(each)) {
        if (passes(each[key])) return true;
        if (isContainer(each[key])) rest.push(each[key]);
      }
    }
  }
  return false;
}

/**
 * How deep the arguments of a call may be nested, where a function might read them. Real ones are
 * far below it, and some parsers of other languages give up from there.
 */
export const MOST_DEPTH = 128;

/** Whether more objects and lists than {@link MOST_DEPTH} are nested in the value, with itself. */
export function isDeep(value: unknown): boolean {
  let level = [value].filter(isContainer) as object[];
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > MOST_DEPTH) return true;
    const inner: object[] = [];
    for (const each of level)
      for (const member of Object.values(each)) if (isContainer(member)) inner.push(member);
    level = inner;
  }
  return false;
}

/** Whether any object in the value has this key of its own. */
export function hasKey(value: unknown, key: string): boolean {
  return someValue(value, (each) => isObject(each) && Object.hasOwn(each, key));
}

/** Whether two values are the same JSON. The order of members does not count. */
export function isSameJson(one: unknown, other: unknown): boolean {
  const rest = [one, other];
  while (rest.length > 0) {
    const [a, b] = [rest.pop(), rest.pop()];
    if (Object.is(a, b) || (a === 0 && b === 0)) continue;
    if (Array.isArray(a) && Array.isArray(b)) {
      if (a.length !== b.length) return false;
      for (let at = 0; at < a.length; at++) rest.push(a[at], b[at]);
    } else if (isObject(a) && isObject(b)) {
      const keys = Object.keys(a);
      if (keys.length !== Object.keys(b).length) return false;
      for (const key of keys) {
        if (!Object.hasOwn(b, key)) return false;
        rest.push(a[key], b[key]);
      }
    } else return false;
  }
  return true;
}

/** The value as JSON text, at any depth. A value that JSON cannot hold becomes `null`. */
export function textOf(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null';
  } catch (error) {
    // `JSON.stringify` recurses. How deep it gets differs between versions of V8.
    if (!(error instanceof RangeError)) throw error;
    return deepTextOf(value);
  }
}

/** An array or an object that is not fully written yet. */
interface Unwritten {
  readonly keys: readonly string[] | undefined;
  readonly values: readonly unknown[];
  at: number;
}

function deepTextOf(root: unknown): string {
  const texts: string[] = [];
  const open: Unwritten[] = [];
  for (let next = root; ; ) {
    const container = containerOf(next);
    if (container === undefined) texts.push(JSON.stringify(next) ?? 'null');
    else {
      texts.push(container.keys ? '{' : '[');
      open.push(container);
    }
    let last = open.at(-1);
    while (last !== undefined && last.at === last.values.length) {
      texts.push(last.keys ? '}' : ']');
      open.pop();
      last = open.at(-1);
    }
    if (last === undefined) return texts.join('');
    if (last.at > 0) texts.push(',');
    if (last.keys) texts.push(JSON.stringify(last.keys[last.at]), ':');
    next = last.values[last.at++];
  }
}

function containerOf(value: unknown): Unwritten | undefined {
  if (Array.isArray(value)) return { keys: undefined, values: value, at: 0 };
  // A date, for example, makes its own JSON.
  if (!isObject(value) || typeof value.toJSON === 'function') return undefined;
  const keys = Object.keys(value).filter((key) => !LEFT_OUT.has(typeof value[key]));
  return { keys, values: keys.map((key) => value[key]), at: 0 };
}

/** Members of these types are left out of JSON. */
const LEFT_OUT: ReadonlySet<string> = new Set(['undefined', 'function', 'symbol']);

/**
 * A copy of the object with the value at `path` set. A new member goes to the end, and objects that
 * are missing on the way are made.
 */
export function withEntry(
  object: JsonObject,
  path: readonly string[],
  value: unknown,
  at = 0,
): JsonObject {
  const key = path[at];
  if (key === undefined) return isObject(value) ? value : object;
  if (at === path.length - 1) return { ...object, [key]: value };
  const child = Object.hasOwn(object, key) ? object[key] : undefined;
  return { ...object, [key]: withEntry(isObject(child) ? child : {}, path, value, at + 1) };
}

export function withoutEntry(object: JsonObject, key: string): JsonObject {
  const { [key]: _, ...rest } = object;
  return rest;
}

/** The value at `path`, or `undefined`. Only own members count, so `constructor` is none. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let current = value;
  for (const key of path) {
    if (!isObject(current) || !Object.hasOwn(current, key)) return undefined;
    current = current[key];
  }
  return current;
}

/** A copy of the object with some members set. */
export function withEntries(object: JsonObject, entries: JsonObject): JsonObject {
  return Object.entries(entries).reduce(
    (edited, [key, value]) => withEntry(edited, [key], asRead(value)),
    object,
  );
}

/** The value as it would be after writing it as JSON and reading that. */
export function asRead(value: unknown): unknown {
  if (typeof value === 'string') return value;
  return isFlat(value) ? { ...value } : JSON.parse(textOf(value));
}

/** Whether the value is a plain object of strings, which JSON keeps as it is. */
function isFlat(value: unknown): value is JsonObject {
  if (!isObject(value) || Object.getPrototypeOf(value) !== Object.prototype) return false;
  for (const key of Object.keys(value)) if (typeof value[key] !== 'string') return false;
  return !Object.hasOwn(value, '__proto__');
}
