/**
 * Hides how an object is recognised that was given in the place of another one: by its methods,
 * since no driver is imported here, and an app may have several versions of one.
 */
interface Kind {
  /** As messages name it. */
  readonly name: string;
  /** What makes a store of it, and what makes a bus. */
  readonly store?: string;
  readonly bus?: string;
  is(value: object): boolean;
}

/** Earlier ones win: a client of Redis could also be taken for a bus. */
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
export function isStore(value: unknown): boolean {
  return hasMethods(value, 'load', 'save') || hasMethods(value, 'claim', 'commit');
}

/** Whether it has the methods of a bus. The client of a driver that has them is none. */
export function isBus(value: unknown): boolean {
  return hasMethods(value, 'publish', 'subscribe') && kindOf(value) === undefined;
}

/** Whether it is a gate, or one of another copy of this package. */
export function isGate(value: unknown): boolean {
  return hasMethods(value, 'compile', 'bindTool');
}
