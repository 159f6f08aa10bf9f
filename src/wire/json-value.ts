import { isObject, type JsonObject } from './json-rpc.ts';

/** Edits of JSON values that make new ones: what was given out of the old ones stays as it is. */

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
