import { isContainer } from '../options.ts';

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

// --- JSON values, read without recursion: a client decides how deep they are -------------------

/** Whether the value passes a test, or something in it does, at any depth. */
export function someValue(value: unknown, passes: (value: unknown) => boolean): boolean {
  if (passes(value)) return true;
  const rest = [value];
  while (rest.length > 0) {
    const each = rest.pop();
    // Only containers are put aside: there may be millions of other values.
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

/** Whether an object of the value has such a key of its own, at any depth. */
export function hasKey(value: unknown, key: string): boolean {
  return someValue(value, (each) => isObject(each) && Object.hasOwn(each, key));
}

/** Whether two values are the same JSON, whatever the order of their members. */
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

/** The value as JSON text, however deep it is. What JSON has no text for is `null`. */
export function textOf(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null';
  } catch (error) {
    // `JSON.stringify` recurses, and how deep it gets is different in each version of V8.
    if (!(error instanceof RangeError)) throw error;
    return deepTextOf(value);
  }
}

/** An array or an object of which something is still to be written. */
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
  // Such as a date: it says itself what it is in JSON.
  if (!isObject(value) || typeof value.toJSON === 'function') return undefined;
  const keys = Object.keys(value).filter((key) => !LEFT_OUT.has(typeof value[key]));
  return { keys, values: keys.map((key) => value[key]), at: 0 };
}

/** What JSON has no text for, by `typeof`. */
const LEFT_OUT: ReadonlySet<string> = new Set(['undefined', 'function', 'symbol']);

/**
 * The object with the value at `path` set, in its old place where it had one, else at the end;
 * objects that are missing on the way are made.
 */
export function withEntry(object: JsonObject, path: readonly string[], value: unknown): JsonObject {
  const [key, ...rest] = path;
  if (key === undefined) return isObject(value) ? value : object;
  if (rest.length === 0) return { ...object, [key]: value };
  const child = Object.hasOwn(object, key) ? object[key] : undefined;
  return { ...object, [key]: withEntry(isObject(child) ? child : {}, rest, value) };
}

export function withoutEntry(object: JsonObject, key: string): JsonObject {
  const { [key]: _, ...rest } = object;
  return rest;
}

/** The value at `path`, or `undefined`. Own members only: `constructor` is no member. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let current = value;
  for (const key of path) {
    if (!isObject(current) || !Object.hasOwn(current, key)) return undefined;
    current = current[key];
  }
  return current;
}

/** The object with some members set. */
export function withEntries(object: JsonObject, entries: JsonObject): JsonObject {
  return Object.entries(entries).reduce(
    (edited, [key, value]) => withEntry(edited, [key], asRead(value)),
    object,
  );
}

/** The value as it is once it was written and read again. */
export function asRead(value: unknown): unknown {
  if (typeof value === 'string') return value;
  return isFlat(value) ? { ...value } : JSON.parse(textOf(value));
}

/** Whether it is a plain object of strings, which are read as they were written. */
function isFlat(value: unknown): value is JsonObject {
  if (!isObject(value) || Object.getPrototypeOf(value) !== Object.prototype) return false;
  for (const key of Object.keys(value)) if (typeof value[key] !== 'string') return false;
  return !Object.hasOwn(value, '__proto__');
}
