import { isObject, type JsonObject } from './json-rpc.ts';

/**
 * JSON values, looked through without recursion, since a client decides how deep they are; and
 * edits of them that make new ones: what was given out of the old ones stays as it is.
 */

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

function isContainer(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

/** The object with the value at `path` set, in its old place where it had one, else at the end; objects that are missing on the way are made. */
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
