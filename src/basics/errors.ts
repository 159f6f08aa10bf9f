/**
 * A developer's mistakes. Each has a stable code, a section in the documentation, and a message
 * with the wrong value and the right ones.
 */
export const ERROR_CODES = {
  ERR_INTERLOCK_CONFIG: 'an option or a workflow has the wrong shape, or an unknown key',
  ERR_INTERLOCK_INITIAL: 'the initial state is not one of the states',
  ERR_INTERLOCK_TARGET: 'a transition leads to a state that does not exist',
  ERR_INTERLOCK_BINDING: 'a tool is bound to a state that does not exist, or without a name',
  ERR_INTERLOCK_EVENT: 'an event that is not a non-empty string was bound or sent',
  ERR_INTERLOCK_SNAPSHOT: 'a snapshot is malformed or names a state that does not exist',
  ERR_INTERLOCK_DISPOSED: 'a gate was used after dispose()',
  ERR_INTERLOCK_POLICY: 'a synchronisation policy or a glob pattern is malformed',
  ERR_INTERLOCK_STORE:
    'the store has neither load and save nor the operations of AtomicStateStore, or loses what ' +
    'it is given',
  ERR_INTERLOCK_STEP:
    'currentStep() was called without what its handler was given, or with something else',
  ERR_INTERLOCK_MOUNT:
    'the middlewares are mounted in an order, in a number or on a server that cannot work',
  ERR_INTERLOCK_NODE: 'the package runs on a version of Node that it does not support',
} as const;

/** One of the stable codes, such as `'ERR_INTERLOCK_TARGET'`. */
export type InterlockErrorCode = keyof typeof ERROR_CODES;

/** In the package itself, as it is installed. */
const HELP = 'mcp-interlock/docs/reference/errors.md#';

/** Thrown for a developer's mistake, at construction wherever it can be seen there. */
export class InterlockError extends Error {
  override readonly name = 'InterlockError';
  /** Stable across versions: match on this and never on the message. */
  readonly code: InterlockErrorCode;
  /** Where the documentation in the package explains this code. */
  readonly help: string;

  constructor(code: InterlockErrorCode, message: string, options?: ErrorOptions) {
    const help = `${HELP}${code.toLowerCase()}`;
    super(`${message} (${code}, see ${help})`, options);
    this.code = code;
    this.help = help;
  }
}

/** The commonest mistake: an option or a workflow has the wrong shape. */
export function configError(message: string, options?: ErrorOptions): InterlockError {
  return new InterlockError('ERR_INTERLOCK_CONFIG', message, options);
}

/**
 * Does what the app asked of a public function, so that a mistake's stack begins at the app's call.
 * Node prints that line above the message, where else a line of this package would stand.
 */
export function atCaller<T>(door: Door, task: () => T): T {
  try {
    return task();
  } catch (error) {
    if (error instanceof InterlockError) Error.captureStackTrace(error, door);
    throw error;
  }
}

/** A public function, method or class. */
type Door = ((...args: never[]) => unknown) | (abstract new (...args: never[]) => unknown);

/** A list of quoted names for a message, cut after ten: `"a", "b" and 3 more`. */
export function quoteNames(names: Iterable<string>): string {
  const all = [...names].map((name) => JSON.stringify(name));
  if (all.length === 0) return 'none';
  return all.length <= 10
    ? all.join(', ')
    : `${all.slice(0, 10).join(', ')} and ${all.length - 10} more`;
}
