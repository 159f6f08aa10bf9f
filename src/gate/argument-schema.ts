import { isObject, type JsonObject } from '../wire/json-rpc.ts';

/** Keywords whose schemas apply to the very object that the schema around them is about. */
const LISTS = ['allOf', 'anyOf', 'oneOf'] as const;
const BRANCHES = ['if', 'then', 'else'] as const;

/**
 * A tool's input schema that also requires one argument more. Its unions and references are followed, since one that forbids additional
 * properties would forbid this one. `undefined` where the schema has an argument of that name already.
 */
export function withArgument(schema: unknown, argument: string, about: JsonObject): JsonObject | undefined {
  const root = isObject(schema) ? schema : { type: 'object' };
  const place = { root, argument, about };
  if (names(root, place, [])) return undefined;
  const open = opened(root, place, []);
  const properties = { ...(isObject(open.properties) ? open.properties : {}), [argument]: about };
  const required = [...(Array.isArray(open.required) ? open.required : []), argument];
  return { ...open, type: 'object', properties, required };
}

interface Place {
  readonly root: JsonObject;
  readonly argument: string;
  readonly about: JsonObject;
}

/** Whether the argument is known somewhere in the schemas that apply. `path` holds the references that led here. */
function names(schema: unknown, place: Place, path: readonly unknown[]): boolean {
  const { root, argument } = place;
  if (!isObject(schema)) return false;
  if (isObject(schema.properties) && Object.hasOwn(schema.properties, argument)) return true;
  if (Array.isArray(schema.required) && schema.required.includes(argument)) return true;
  const inner = [
    referred(schema, root, path),
    ...BRANCHES.map((key) => schema[key]),
    ...LISTS.flatMap((key) => schema[key]),
  ];
  return inner.some((each) => names(each, place, [...path, schema.$ref]));
}

/** The schema with room for the argument wherever additional properties are forbidden. References are written out. */
function opened(schema: JsonObject, place: Place, path: readonly unknown[]): JsonObject {
  const target = referred(schema, place.root, path);
  const { $ref, ...rest } = schema;
  const own: JsonObject =
    target === undefined ? { ...schema } : { ...rest, allOf: [...listIn(rest.allOf), target] };
  if (restricts(own.additionalProperties) || restricts(own.unevaluatedProperties)) {
    own.properties = { ...(isObject(own.properties) ? own.properties : {}), [place.argument]: place.about };
  }
  const openedIn = (each: unknown): unknown => (isObject(each) ? opened(each, place, [...path, $ref]) : each);
  for (const key of LISTS) if (Array.isArray(own[key])) own[key] = listIn(own[key]).map(openedIn);
  for (const key of BRANCHES) if (isObject(own[key])) own[key] = openedIn(own[key]);
  return own;
}

function restricts(additional: unknown): boolean {
  return additional !== undefined && additional !== true;
}

/** What a reference within the same schema refers to (RFC 6901, as a URI fragment); followed once on each path, since it may lead in a circle. */
function referred({ $ref }: JsonObject, root: JsonObject, path: readonly unknown[]): JsonObject | undefined {
  if (typeof $ref !== 'string' || !$ref.startsWith('#') || path.includes($ref)) return undefined;
  let value: unknown = root;
  for (const part of $ref.slice(1).split('/').slice(1)) {
    const key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    value = isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
  }
  return isObject(value) ? value : undefined;
}

function listIn(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
