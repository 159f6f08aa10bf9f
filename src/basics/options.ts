/**
 * Hides how options are checked, and how a message names what was given, what was probably meant,
 * and what is right.
 */
import * as z from 'zod/mini';
import { configError, InterlockError, type InterlockErrorCode, quoteNames } from './errors.ts';
import { rightNames } from './names.ts';

/**
 * Makes something when it is first asked for, and keeps it. Schemas are made so: else importing the
 * package would build a hundred of them, of which an app uses a few.
 */
export function lazily<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** The schema of options, a `z.strictObject` of this shape, made when it is first asked for. */
export function lazyOptions<T extends z.core.$ZodShape>(
  shape: () => T,
): () => z.ZodMiniObject<T, z.core.$strict> {
  return lazily(() => z.strictObject(shape()));
}

/** What a lazily made schema gives. */
export type ParsedBy<T extends () => z.ZodMiniType> = z.output<ReturnType<T>>;

/**
 * The words for faults that have none of their own, since `zod/mini` knows no language. Each check
 * is given them: zod's settings are global, and belong to the app.
 */
const inEnglish = lazily(() => ({ error: z.locales.en().localeError }));

/** A schema for a function. Zod's own would wrap it. */
export function functionOption<F>(): z.ZodMiniType<F> {
  return z.custom<F>((value) => typeof value === 'function', 'expected a function');
}

/** The same, where it may be left out. */
export function optionalFunction<F>(): z.ZodMiniOptional<z.ZodMiniType<F>> {
  return z.optional(functionOption<F>());
}

/** A schema for the time, in milliseconds since the epoch. Default: the system's clock. */
export function clockOption(): z.ZodMiniDefault<z.ZodMiniType<() => number>> {
  return z._default(functionOption<() => number>(), () => Date.now);
}

/** A schema for what is `false` unless it is given. */
export function flagOption(): z.ZodMiniDefault<z.ZodMiniBoolean> {
  return z._default(z.boolean(), false);
}

/** A schema for a whole number within bounds. */
export function integerOption(least: number, most?: number): z.ZodMiniNumberFormat {
  const above = z.int().check(z.minimum(least));
  return most === undefined ? above : above.check(z.maximum(most));
}

/** A schema for a text that is not empty. */
export function textOption(): z.ZodMiniString {
  return z.string().check(z.minLength(1));
}

/** A schema for what may be left out, and is checked elsewhere. */
export function uncheckedOption(): z.ZodMiniOptional<z.ZodMiniUnknown> {
  return z.optional(z.unknown());
}

/** A schema for a table whose keys users choose: zod's own records lose `__proto__`. */
export function tableOption(): z.ZodMiniType<Record<string, unknown>> {
  return z.custom<Record<string, unknown>>(isTable, 'expected an object');
}

/**
 * Checks options against a `z.strictObject`, and fills in its defaults. An option that is
 * `undefined` counts as left out. Only own properties count.
 *
 * @param what begins the message: `'sessionStore()'`
 * @param schemaOf gives the schema, as `lazyOptions()` does
 * @throws InterlockError that names each wrong value with what is right, and each unknown key with
 * the nearest known one
 */
export function parseOptions<T extends z.ZodMiniObject>(
  what: string,
  schemaOf: () => T,
  value: unknown,
  code: InterlockErrorCode = 'ERR_INTERLOCK_CONFIG',
): z.output<T> {
  if (isRequest(value))
    throw new InterlockError(code, `${what} got a request: mount ${what}, with the brackets`);
  const given = value === undefined ? {} : isTable(value) ? ownCopy(value) : value;
  const schema = schemaOf();
  const foreign = foreignKind(value, schema);
  const parsed = foreign === undefined ? schema.safeParse(given, inEnglish()) : undefined;
  if (parsed?.success) return withoutUndefined(parsed.data);
  const swapped = foreign ?? (isStore(value) ? 'a store' : isBus(value) ? 'a bus' : undefined);
  const known = quoteNames(Object.keys(schema.shape));
  const faults =
    swapped === undefined
      ? parsed?.error.issues.map((issue) => describeFault(issue, schema, given))
      : [`expected an object with ${known}, got ${swapped}`];
  const hint = swapped === undefined && isTable(given) ? '' : meantAs(what, value, schema);
  throw new InterlockError(code, `${what}: ${faults?.join('; ')}${hint}`);
}

/** Whether a door was mounted without its brackets, so that it is called with each request. */
export function isRequest(value: unknown): boolean {
  return isTable(value) && 'rawHeaders' in value;
}

/** What stands in the place of the options, where that is another object: a client, a class. */
function foreignKind(value: unknown, schema: z.ZodMiniObject): string | undefined {
  if (!isTable(value)) return undefined;
  const kind = kindOf(value);
  if (kind !== undefined) return kind.name;
  if (Object.keys(schema.shape).some((key) => Object.hasOwn(value, key))) return undefined;
  const made: unknown = Object.getPrototypeOf(value)?.constructor;
  const isClass = typeof made === 'function' && made.name !== 'Object';
  return isClass ? `an instance of ${made.name}` : undefined;
}

/** An option that takes this takes any object, so it says nothing of what was meant. */
const ANYTHING = new (class {})();

/** How to write the options, by what was given in their place or by what they must have. */
function meantAs(what: string, value: unknown, { shape }: z.ZodMiniObject): string {
  const [made] = /^\w+(?=\(\))/.exec(what) ?? [];
  if (made === undefined) return '';
  const options = Object.entries(shape);
  const isRight = ([, option]: (typeof options)[number]): boolean =>
    z.safeParse(option, value).success && !z.safeParse(option, ANYTHING).success;
  const meant = isContainer(value) ? options.find(isRight) : undefined;
  if (meant !== undefined) return `; write ${made}({ ${meant[0]} })`;
  const kind = kindOf(value);
  if (shape.store !== undefined && isStore(value)) return `; write ${made}({ store })`;
  if (kind === undefined) {
    const needed = options.filter(([, option]) => !z.safeParse(option, undefined).success);
    const names = needed.map(([name]) => name).join(', ');
    return names === '' ? '' : `; write ${made}({ ${names} })`;
  }
  if (shape.store !== undefined && kind.store !== undefined)
    return `; write ${made}({ store: ${kind.store} })`;
  const other = made.endsWith('Bus') ? kind.bus : made.endsWith('Store') ? kind.store : undefined;
  return other === undefined ? '' : `; write ${other}`;
}

/** Without a prototype: zod would also read inherited properties. */
function ownCopy(value: object): object {
  return Object.assign(Object.create(null), value);
}

function withoutUndefined<T extends object>(data: T): T {
  return Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined)) as T;
}

type Issue = z.core.$ZodIssue;
type Path = readonly PropertyKey[];

/** More unknown keys than this are no typos: another object was given. */
const MOST_TYPOS = 3;

/** One zod issue in words: where it is, what is right, and what was given instead. */
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

/**
 * What a function of the app must not return may be a promise, by mistake. A rejection of it that
 * nothing handles would end the process.
 */
export function dropRejection(returned: unknown): void {
  Promise.resolve(returned).catch(() => {});
}

/**
 * The error for what a function of the app must not return.
 *
 * @param message what it must return
 */
export function wrongAnswer(message: string, given: unknown): InterlockError {
  dropRejection(given);
  return configError(`${message}; it returned ${showValue(given)}`);
}

/** A value as messages show it: short, on one line, and without the contents of an object. */
export function showValue(value: unknown): string {
  if (typeof value === 'string') {
    const shown = withoutPassword(value);
    return JSON.stringify(shown.length > 60 ? `${shown.slice(0, 60)}…` : shown);
  }
  if (typeof value === 'function') return isClass(value) ? `the class ${value.name}` : 'a function';
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : 'an array';
  if (typeof value === 'object' && value !== null) return kindOf(value)?.name ?? 'an object';
  return String(value);
}

/** A connection string has a password in it, and messages are logged. */
function withoutPassword(text: string): string {
  const from = text.indexOf('://') + 3;
  const end = text.lastIndexOf('@');
  const hasPassword = from > 2 && text.slice(from, end).includes(':');
  return end > from && hasPassword ? `${text.slice(0, from)}…${text.slice(end)}` : text;
}

function isClass(value: object): value is { readonly name: string } {
  return /^class\b/.test(Function.prototype.toString.call(value));
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
      return issue.values.length > 1
        ? `expected one of ${quoteNames(issue.values.map(String))}`
        : `expected ${quoteNames(issue.values.map(String))}`;
    case 'invalid_union':
      return [...new Set(issue.errors.flat().map(expectation))]
        .join(' or ')
        .replaceAll(' or expected ', ' or ');
    default:
      return issue.message.slice(0, 1).toLowerCase() + issue.message.slice(1);
  }
}

/** Whether the value was meant to be this alternative of a union: it is only wrong further down. */
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
  if (schema instanceof z.ZodMiniLazy) return schemaAt(schema.def.getter(), path);
  const [key, ...rest] = path;
  if (key === undefined) return schema;
  if (schema instanceof z.ZodMiniUnion) {
    return schema.def.options
      .map((option) => schemaAt(option, path))
      .find((found) => found !== undefined);
  }
  if (schema instanceof z.ZodMiniArray)
    return typeof key === 'number' ? schemaAt(schema.def.element, rest) : undefined;
  if (schema instanceof z.ZodMiniRecord) return schemaAt(schema.def.valueType, rest);
  if (!(schema instanceof z.ZodMiniObject)) return undefined;
  const { shape, catchall } = schema.def;
  if (Object.hasOwn(shape, key)) return schemaAt(Reflect.get(shape, key), rest);
  return catchall instanceof z.ZodMiniNever ? undefined : schemaAt(catchall, rest);
}

/**
 * An object that is often given in the place of another one. It is recognised by its methods: no
 * driver is imported here, and an app may have several versions of one.
 */
interface Kind {
  /** As messages name it. */
  readonly name: string;
  /** What makes a store of it, and what makes a bus. */
  readonly store?: string;
  readonly bus?: string;
  is(value: object): boolean;
}

/** The first that fits counts. */
const KINDS: readonly Kind[] = [
  {
    name: 'a client of node-redis',
    store: 'redisStore({ client })',
    bus: 'redisBus({ client })',
    is: (value) => hasMethods(value, 'eval', 'evalSha'),
  },
  {
    name: 'a client of ioredis',
    store: 'redisStore({ client })',
    bus: 'redisBus({ client })',
    is: (value) => hasMethods(value, 'eval', 'evalsha', 'defineCommand'),
  },
  {
    name: 'a client of @upstash/redis',
    store: 'upstashStore({ redis })',
    is: (value) => hasMethods(value, 'eval', 'evalsha', 'hset'),
  },
  {
    name: 'a Pool or Client of pg',
    store: 'postgresStore({ pool })',
    bus: 'postgresBus({ pool })',
    is: isPool,
  },
  {
    name: 'an SQLite database',
    store: 'sqliteStore({ database })',
    is: (value) => hasMethods(value, 'exec', 'prepare'),
  },
  { name: 'a StateMachineGate', is: isGate },
];

/** Whether it is an object with all of these methods, own or inherited. */
export function hasMethods(value: unknown, ...names: readonly string[]): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return names.every((name) => typeof Reflect.get(value, name) === 'function');
}

/** Whether it is a `Pool` of pg. A `Client` has these methods too, and fails when it is used. */
export function isPool(value: unknown): boolean {
  return hasMethods(value, 'query', 'connect');
}

/** What an object is, if it is the client of a driver or a gate. */
export function kindOf(value: unknown): Kind | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  return KINDS.find((kind) => kind.is(value));
}

/** Whether it has the methods of a store, of either kind. */
function isStore(value: unknown): boolean {
  return hasMethods(value, 'load', 'save') || hasMethods(value, 'claim', 'commit');
}

/** Whether it has the methods of a bus. The client of a driver that has them is none. */
export function isBus(value: unknown): boolean {
  return hasMethods(value, 'publish', 'subscribe') && kindOf(value) === undefined;
}

/** What stands at the end of a message about a middleware of another copy; else nothing. */
export function otherCopyHint(value: unknown): string {
  const marks = typeof value === 'function' ? Object.getOwnPropertySymbols(value) : [];
  const isOurs = marks.some(({ description = '' }) => description.startsWith('mcp-interlock.'));
  return isOurs ? ' of another copy of mcp-interlock: the app must have one version alone' : '';
}

/** Whether it is a gate, or one of another copy of this package. */
export function isGate(value: unknown): boolean {
  return hasMethods(value, 'compile', 'bindTool');
}
