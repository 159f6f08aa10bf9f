/** The options of `inspector()`, checked. Hides what each may be, and its default. */
import { InterlockError, type InterlockErrorCode } from 'mcp-interlock';
import type { Runs } from 'mcp-interlock/runs';
import type { Authorizes } from './access.ts';
import type { AmountOf, LookAt } from './held-step.ts';
import type { Share } from './inspected.ts';

/** Options of `inspector()`. */
export interface InspectorOptions {
  /** What `runsOf()` returned for each gate. */
  readonly runs: readonly Runs[];
  /**
   * Who may see the page, and who may act. Asked for each request, and every 15 seconds for each
   * visitor who watches. Anything but an object with `read: true` refuses, as does an error.
   * Default: refuses. Where `NODE_ENV` is `development`, it lets in requests of this machine to
   * itself.
   */
  readonly authorize?: Authorizes['authorize'] | undefined;
  /**
   * Where it is mounted, such as `'/inspector'`. Only for hosts that say nothing of it: Express
   * does. Default: where the host says, else the root.
   */
  readonly basePath?: string | undefined;
  /**
   * What the ids of runs are sealed with: at least 32 characters or bytes, and the same for all
   * instances behind one address. Default: random, so that ids and tokens are good for this process
   * alone.
   */
  readonly secret?: string | Uint8Array | undefined;
  /**
   * What may be seen of a run's shared data: it returns them, or a part of them. Default: nothing.
   */
  readonly share?: Share | undefined;
  /**
   * How much a call of unknown outcome is about, such as `'120.00 EUR'`: operators distinguish runs
   * by it. Default: the argument `amount` or `total`, with `currency`, as `trail.args` lets them
   * through.
   */
  readonly amount?: AmountOf | undefined;
  /**
   * Where an operator looks up what such a call came to, such as the payment's page at its
   * provider: an `http` or `https` URL. Only visitors with `write` get the link. If it throws or
   * returns anything else, there is no link, and `onError` is called. Default: no link.
   */
  readonly look?: LookAt | undefined;
  /** A run counts as stuck that has not moved for so long, in milliseconds. Default 15 minutes. */
  readonly stuckAfterMs?: number | undefined;
  /**
   * How often to ask the store what other processes do, in milliseconds, while the page has a
   * visitor. Default 1,000.
   */
  readonly pollMs?: number | undefined;
  /** The clock of the page's own tokens, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Called for each failure whose reason no client gets. Default `console.error`. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** The options with their defaults. */
export interface InspectorConfig extends InspectorOptions {
  readonly stuckAfterMs: number;
  readonly pollMs: number;
  readonly now: () => number;
  readonly onError: (error: unknown) => void;
}

const LEAST_SECRET = 32;

type Check = readonly [right: string, isRight: (value: unknown) => boolean];

const isFunction = (value: unknown): boolean => typeof value === 'function';
const FUNCTION: Check = ['a function', isFunction];
const POSITIVE: Check = [
  'a number of milliseconds above 0',
  (value) => typeof value === 'number' && value > 0,
];

const CHECKS: Readonly<Record<keyof InspectorOptions, Check>> = {
  runs: [
    'a list of what runsOf() returned, once at least',
    (value) => Array.isArray(value) && value.length > 0 && value.every(areRuns),
  ],
  authorize: FUNCTION,
  basePath: [
    'a path such as "/inspector"',
    (value) => typeof value === 'string' && /^(?:\/[^/?#]+)*$/.test(value),
  ],
  secret: [
    `at least ${LEAST_SECRET} characters or bytes`,
    (value) =>
      (typeof value === 'string' || value instanceof Uint8Array) && value.length >= LEAST_SECRET,
  ],
  share: FUNCTION,
  amount: FUNCTION,
  look: FUNCTION,
  stuckAfterMs: POSITIVE,
  pollMs: POSITIVE,
  now: FUNCTION,
  onError: FUNCTION,
};

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown */
export function parseInspectorOptions(options: InspectorOptions): InspectorConfig {
  if (typeof options !== 'object' || options === null)
    throw fault('expected an object with "runs" and "authorize"');
  const known = Object.keys(CHECKS);
  for (const key of Object.keys(options))
    if (!known.includes(key))
      throw fault(`unknown key ${JSON.stringify(key)}, known are ${known.join(', ')}`);
  for (const [key, [right, isRight]] of Object.entries(CHECKS)) {
    const value: unknown = options[key as keyof InspectorOptions];
    if (value === undefined && key !== 'runs') continue;
    // A secret must not come into a log.
    if (!isRight(value)) throw fault(`${key}: expected ${right}, got ${nounOf(value)}`);
  }
  const ids = options.runs.map(({ workflow }) => workflow);
  const twice = ids.find((id, at) => ids.indexOf(id) !== at);
  if (twice !== undefined)
    throw fault(`runs: two gates have the id ${JSON.stringify(twice)}, give each an id of its own`);
  const { stuckAfterMs = 15 * 60_000, pollMs = 1_000, now = Date.now } = options;
  const onError = safely(options.onError ?? ((error) => console.error(error)));
  return { ...options, stuckAfterMs, pollMs, now, onError };
}

/** By what they do: the package may be there twice, and then its classes are not the same. */
function areRuns(value: unknown): boolean {
  const isThing = typeof value === 'object' && value !== null;
  return isThing && 'gate' in value && 'workflow' in value && 'history' in value;
}

function nounOf(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list';
  return value === null ? 'null' : typeof value;
}

export function fault(message: string): InterlockError {
  return new InterlockError('ERR_INTERLOCK_CONFIG', `inspector(): ${message}`);
}

/** By its code: the package may be there twice, and then its classes are not the same. */
export function isOf(error: unknown, code: InterlockErrorCode): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

function safely(onError: (error: unknown) => void): (error: unknown) => void {
  return (error) => {
    try {
      onError(error);
    } catch (second) {
      console.error(second);
    }
  };
}
