import * as z from 'zod/mini';
import { InterlockError, type InterlockErrorCode, quoteNames } from './errors.ts';
import { rightNames } from './names.ts';

/**
 * The words of faults that have none of their own: `zod/mini` knows no language. They are given to
 * each check, because zod's settings are global and belong to the app.
 */
const IN_ENGLISH = { error: z.locales.en().localeError };

/** A schema for an option that is a function, since zod has none that leaves it as it is. */
export function functionOption<F>(): z.ZodMiniType<F> {
  return z.custom<F>((value) => typeof value === 'function', 'expected a function');
}

/**
 * A schema for a table of user-chosen names. Its values are unchecked: zod's own records lose
 * `__proto__`.
 */
export function tableOption(): z.ZodMiniType<Record<string, unknown>> {
  return z.custom<Record<string, unknown>>(isTable, 'expected an object');
}

/**
 * Checks options against a `z.strictObject` and fills in its defaults. Leaving the options out is
 * the same as giving none, and an explicit `undefined` is the same as leaving that option out. Only
 * own properties count.
 *
 * @param what begins the message: `'sessionStore()'`.
 * @throws InterlockError naming each wrong value with what is right, and each unknown key with the
 * nearest right one.
 */
export function parseOptions<T extends z.ZodMiniObject>(
  what: string,
  schema: T,
  value: unknown,
  code: InterlockErrorCode = 'ERR_INTERLOCK_CONFIG',
): z.output<T> {
  const given = value === undefined ? {} : isTable(value) ? ownCopy(value) : value;
  const foreign = classOfForeign(value, schema);
  if (foreign !== undefined) {
    const known = quoteNames(Object.keys(schema.shape));
    const fault = `expected an object with ${known}, got an instance of ${foreign}`;
    throw new InterlockError(code, `${what}: ${fault}${meantAs(what, value, schema)}`);
  }
  const parsed = schema.safeParse(given, IN_ENGLISH);
  if (parsed.success) return withoutUndefined(parsed.data);
  const faults = parsed.error.issues.map((issue) => describeFault(issue, schema, given));
  throw new InterlockError(code, `${what}: ${faults.join('; ')}`);
}

/**
 * The class of what has no option of its own: a store or a client that was meant to be an option,
 * and not the options.
 */
function classOfForeign(value: unknown, schema: z.ZodMiniObject): string | undefined {
  if (!isTable(value) || Object.keys(schema.shape).some((key) => Object.hasOwn(value, key)))
    return undefined;
  const made: unknown = Object.getPrototypeOf(value)?.constructor;
  return typeof made === 'function' && made.name !== 'Object' ? made.name : undefined;
}

/** An object that no option was made for: what takes it takes any object. */
const ANYTHING = new (class {})();

/** How to write it, where what was given is right for one of the options. */
function meantAs(what: string, value: unknown, { shape }: z.ZodMiniObject): string {
  const meant = Object.entries(shape).find(
    ([, option]) => z.safeParse(option, value).success && !z.safeParse(option, ANYTHING).success,
  );
  return meant === undefined ? '' : `; write ${what.replace(/\(\).*/, `({ ${meant[0]} })`)}`;
}

/** Without a prototype, because zod would read inherited properties too. */
function ownCopy(value: object): object {
  return Object.assign(Object.create(null), value);
}

function withoutUndefined<T extends object>(data: T): T {
  return Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined)) as T;
}

type Issue = z.core.$ZodIssue;
type Path = readonly PropertyKey[];

/** More unknown keys than this are no typos: something else was given. */
const MOST_TYPOS = 3;

/** One zod issue in a developer's words: where, what is right, and what was given instead. */
function describeFault(issue: Issue, schema: unknown, root: unknown): string {
  const where = issue.path.length === 0 ? '' : `${pathText(issue.path)}: `;
  if (issue.code === 'unrecognized_keys') {
    const known = keysOf(schemaAt(schema, issue.path));
    if (issue.keys.length > MOST_TYPOS)
      return `${where}unknown keys ${quoteNames(issue.keys)}, known are ${quoteNames(known)}`;
    return issue.keys
      .map((key) => `${where}unknown key ${showValue(key)}, ${rightNames(key, known)}`)
      .join('; ');
  }
  const deeper = issue.code === 'invalid_union' ? issue.errors.find(fitsAtTheTop) : undefined;
  if (deeper !== undefined) {
    const nested = deeper.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] }));
    return nested.map((inner) => describeFault(inner, schema, root)).join('; ');
  }
  return `${where}${expectation(issue)}, got ${showValue(valueAt(root, issue.path))}`;
}

/** A value as a message shows it: short, on one line, and without what is inside an object. */
export function showValue(value: unknown): string {
  if (typeof value === 'string')
    return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === 'function') return 'a function';
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : 'an array';
  if (typeof value === 'object' && value !== null) return 'an object';
  return String(value);
}

/** Whether the value is an object whose properties can be read as a table. */
export function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function expectation(issue: Issue): string {
  switch (issue.code) {
    case 'invalid_type':
      return issue.expected === 'nonoptional' ? 'expected a value' : `expected ${issue.expected}`;
    case 'invalid_value':
      return `expected ${issue.values.length > 1 ? 'one of ' : ''}${quoteNames(issue.values.map(String))}`;
    case 'invalid_union':
      return [...new Set(issue.errors.flat().map(expectation))]
        .join(' or ')
        .replaceAll(' or expected ', ' or ');
    default:
      return issue.message.slice(0, 1).toLowerCase() + issue.message.slice(1);
  }
}

/**
 * Of a union, the alternative that the value was meant to be has the right type and is wrong
 * further down.
 */
function fitsAtTheTop(alternative: readonly Issue[]): boolean {
  return alternative.every((issue) => issue.path.length > 0 || issue.code === 'unrecognized_keys');
}

function pathText(path: Path): string {
  return path
    .map((key, i) => (typeof key === 'number' ? `[${key}]` : `${i ? '.' : ''}${String(key)}`))
    .join('');
}

function valueAt(root: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (value, key) => (isContainer(value) ? Reflect.get(value, key) : undefined),
    root,
  );
}

/** Whether it is an object or an array. */
export function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function keysOf(schema: unknown): string[] {
  if (schema instanceof z.ZodMiniUnion) return schema.def.options.flatMap(keysOf);
  return schema instanceof z.ZodMiniObject ? Object.keys(schema.shape) : [];
}

function schemaAt(schema: unknown, path: Path): unknown {
  if (schema instanceof z.ZodMiniOptional || schema instanceof z.ZodMiniDefault) {
    return schemaAt(schema.def.innerType, path);
  }
  const [key, ...rest] = path;
  if (key === undefined) return schema;
  if (schema instanceof z.ZodMiniUnion) {
    return schema.def.options
      .map((option) => schemaAt(option, path))
      .find((found) => found !== undefined);
  }
  if (schema instanceof z.ZodMiniArray)
    return typeof key === 'number' ? schemaAt(schema.def.element, rest) : undefined;
  const isKey = schema instanceof z.ZodMiniObject && Object.hasOwn(schema.shape, key);
  return isKey ? schemaAt(Reflect.get(schema.shape, key), rest) : undefined;
}
