import { isObject, type JsonObject } from '../wire/json-rpc.ts';

/**
 * Keywords whose subschemas apply to the same object. Their value is a list of schemas, one schema,
 * or one schema for each name.
 */
const LISTS = ['allOf', 'anyOf', 'oneOf'] as const;
const SINGLE = ['if', 'then', 'else', 'not'] as const;
const NAMED = ['dependentSchemas', 'dependencies'] as const;
/** Keywords that count the object's members. */
const COUNTS = ['minProperties', 'maxProperties'] as const;

/**
 * Adds a required argument to a tool's input schema, and leaves the other arguments as they are.
 * Follows unions and references: each of them may forbid additional properties, and so this one.
 * `undefined` where the schema already has an argument of that name.
 */
export function withArgument(
  schema: unknown,
  argument: string,
  about: JsonObject,
): JsonObject | undefined {
  const root = isObject(schema) ? besideItself(schema) : { type: 'object' };
  const place = { root, argument, about };
  if (names(root, place, [])) return undefined;
  const open = opened(root, place, []);
  const properties = { ...objectIn(open.properties), [argument]: about };
  const required = [...listIn(open.required), argument];
  return { ...open, type: 'object', properties, required };
}

interface SchemaPlace {
  readonly root: JsonObject;
  readonly argument: string;
  readonly about: JsonObject;
}

/**
 * Where a schema refers to itself, it must mean the schema without the new argument. So a copy of
 * it goes to its definitions, and the references lead there.
 */
function besideItself(schema: JsonObject): JsonObject {
  const definitions = objectIn(schema.$defs);
  let name = 'input';
  while (Object.hasOwn(definitions, name)) name += '_';
  const redirected = redirect(schema, `#/$defs/${name}`);
  if (JSON.stringify(redirected) === JSON.stringify(schema)) return schema;
  const { $schema, $id, $defs, definitions: older, ...copy } = redirected;
  return { ...redirected, $defs: { ...objectIn($defs), [name]: copy } };
}

/** Points references at the copy: those to the schema, and to its parts outside the definitions. */
function redirect(schema: JsonObject, to: string): JsonObject {
  const moved = (value: unknown, key?: string): unknown => {
    if (Array.isArray(value)) return value.map((each) => moved(each));
    if (isObject(value)) return redirect(value, to);
    const refers =
      key === '$ref' &&
      typeof value === 'string' &&
      /^#(?!\/\$defs\/|\/definitions\/)(\/|$)/.test(value);
    return refers ? `${to}${value.slice(1)}` : value;
  };
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, moved(value, key)]));
}

/**
 * Whether one of the schemas that apply names the argument. `path`: the references that led here.
 */
function names(schema: unknown, place: SchemaPlace, path: readonly unknown[]): boolean {
  const { root, argument } = place;
  if (!isObject(schema)) return false;
  const keyed = [schema.properties, schema.dependentRequired, ...NAMED.map((key) => schema[key])];
  if (keyed.some((each) => isObject(each) && Object.hasOwn(each, argument))) return true;
  if (listIn(schema.required).includes(argument)) return true;
  const inner = [
    referred(schema, root, path),
    ...SINGLE.map((key) => schema[key]),
    ...LISTS.flatMap((key) => schema[key]),
    ...NAMED.flatMap((key) => Object.values(objectIn(schema[key]))),
  ];
  return inner.some((each) => names(each, place, [...path, schema.$ref]));
}

/** The schema, changed to allow the argument everywhere. Writes out references. */
function opened(schema: JsonObject, place: SchemaPlace, path: readonly unknown[]): JsonObject {
  const target = referred(schema, place.root, path);
  const { $ref, ...rest } = schema;
  const own: JsonObject =
    target === undefined ? { ...schema } : { ...rest, allOf: [...listIn(rest.allOf), target] };
  makeRoom(own, place);
  const openedIn = (each: unknown): unknown =>
    isObject(each) ? opened(each, place, [...path, $ref]) : each;
  for (const key of LISTS) if (Array.isArray(own[key])) own[key] = listIn(own[key]).map(openedIn);
  for (const key of SINGLE) if (isObject(own[key])) own[key] = openedIn(own[key]);
  for (const key of NAMED)
    if (isObject(own[key])) own[key] = mapped(own[key], (name) => name, openedIn);
  return own;
}

/** Exempts the argument from what a schema says of all members. */
function makeRoom(own: JsonObject, { argument, about }: SchemaPlace): void {
  if (restricts(own.additionalProperties) || restricts(own.unevaluatedProperties)) {
    own.properties = { ...objectIn(own.properties), [argument]: about };
  }
  for (const key of COUNTS) if (typeof own[key] === 'number') own[key] += 1;
  if (restricts(own.propertyNames))
    own.propertyNames = { anyOf: [{ const: argument }, own.propertyNames] };
  if (isObject(own.patternProperties)) {
    const otherwise = (pattern: string): string => patternBut(pattern, argument);
    own.patternProperties = mapped(own.patternProperties, otherwise, (value) => value);
  }
}

/**
 * The pattern, with one name exempt. JSON Schema's patterns are those of ECMA-262, not anchored.
 */
function patternBut(pattern: string, name: string): string {
  if (!new RegExp(pattern, 'u').test(name)) return pattern;
  const literally = name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
  return `^(?!${literally}$)[^]*?(?:${pattern})`;
}

function restricts(others: unknown): boolean {
  return others !== undefined && others !== true;
}

/**
 * What a reference within the schema refers to: a JSON pointer in a URI fragment (RFC 6901). Each
 * path follows it once, since it may lead in a circle.
 */
function referred(
  { $ref }: JsonObject,
  root: JsonObject,
  path: readonly unknown[],
): JsonObject | undefined {
  if (typeof $ref !== 'string' || !$ref.startsWith('#/') || path.includes($ref)) return undefined;
  let value: unknown = root;
  for (const part of $ref.slice(2).split('/')) {
    const key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(value)) value = value[Number(key)];
    else value = isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
  }
  return isObject(value) ? value : undefined;
}

function mapped(
  object: JsonObject,
  renamed: (key: string) => string,
  changed: (value: unknown) => unknown,
): JsonObject {
  return Object.fromEntries(
    Object.entries(object).map(([key, value]) => [renamed(key), changed(value)]),
  );
}

function objectIn(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

function listIn(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
