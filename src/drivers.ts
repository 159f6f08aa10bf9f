/**
 * Hides how a driver's client is told from anything else: by its methods, since no driver is
 * imported here and an app may have several versions of one.
 */

/** Whether it is an object with all of these methods, own or inherited. */
export function hasMethods(value: unknown, ...names: readonly string[]): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return names.every((name) => typeof Reflect.get(value, name) === 'function');
}

/** Whether it is a `Pool` of pg. A `Client` has these methods too, and fails when it is used. */
export function isPool(value: unknown): boolean {
  return hasMethods(value, 'query', 'connect');
}

/** Which store wraps the client of a driver that was given in a store's place, if any. */
export function storeForClient(value: unknown): string | undefined {
  if (hasMethods(value, 'eval', 'evalSha') || hasMethods(value, 'evalsha', 'defineCommand'))
    return 'redisStore({ client })';
  if (hasMethods(value, 'eval', 'evalsha', 'hset')) return 'upstashStore({ redis })';
  if (isPool(value)) return 'postgresStore({ pool })';
  return undefined;
}
