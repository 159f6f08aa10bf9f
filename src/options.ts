import * as z from 'zod/mini';
import { InterlockError, type InterlockErrorCode, quoteNames } from './errors.ts';
import { describeFault, isTable } from './faults.ts';

export { isTable, showValue } from './faults.ts';

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
    throw new InterlockError(
      code,
      `${what}: expected an object with ${known}, got an instance of ${foreign}`,
    );
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

/** Without a prototype, because zod would read inherited properties too. */
function ownCopy(value: object): object {
  return Object.assign(Object.create(null), value);
}

function withoutUndefined<T extends object>(data: T): T {
  return Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined)) as T;
}
