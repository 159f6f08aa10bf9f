import * as z from 'zod/mini';
import { storeForClient } from '../drivers.ts';
import { InterlockError, quoteNames } from '../errors.ts';
import { functionOption, parseOptions } from '../options.ts';
import { AdaptedStore } from './adapted-store.ts';
import type { AtomicStateStore, FsmStateStore, StateStore } from './store.ts';

export interface AdaptOptions {
  /**
   * The clock that leases and expiry go by, in milliseconds since the epoch. Default `Date.now`.
   */
  readonly now?: (() => number) | undefined;
  /** Told once, at the start, what the store cannot do. Default `process.emitWarning`. */
  readonly onWarning?: ((warning: string) => void) | undefined;
}

const optionsSchema = z.strictObject({
  now: z._default(functionOption<() => number>(), () => Date.now),
  onWarning: z._default(functionOption<(warning: string) => void>(), () => emitWarning),
});

const PLAIN = ['load', 'save'] as const satisfies readonly (keyof FsmStateStore)[];

const ATOMIC = [
  'open',
  'read',
  'claim',
  'commit',
  'renew',
  'release',
  'delete',
  'history',
] as const satisfies readonly (keyof AtomicStateStore)[];

/** One adapter for each store: two of them on one store would not know of each other's claims. */
const adapted = new WeakMap<FsmStateStore, AtomicStateStore>();

/**
 * Makes steps exact within this process on a store that can only `load` and `save`. Claims,
 * idempotency keys and the trail (the last 50 entries of each workflow) live in this process; what
 * is saved is the run's session under `session:<run>` and each workflow's snapshot under
 * `<workflow>:<run>`. An operation costs a load for the session and one for each workflow that the
 * run has moved in; a commit one save; and a run in use is saved again each time a tenth of its
 * time to live has passed, so the backend's own expiry, if it has one, should be no shorter than
 * that.
 *
 * A run of which something is missing was evicted and is unknown. One of which something is
 * malformed is an error. Use one adapter for a store, as {@link resolveStore} does.
 */
export function adaptStateStore(
  store: FsmStateStore,
  options: AdaptOptions = {},
): AtomicStateStore {
  const { now, onWarning } = parseOptions('adaptStateStore()', optionsSchema, options);
  const missing = missingOf(store, PLAIN);
  if (missing.length > 0) throw notAStore(store);
  onWarning(limitsOf(store));
  return new AdaptedStore(store, now);
}

/** Whether the store has every operation that makes steps exact across processes. */
export function isAtomicStore(store: StateStore): store is AtomicStateStore {
  return missingOf(store, ATOMIC).length === 0;
}

/**
 * The store as an {@link AtomicStateStore}: itself if it is one, else its adapter, which is the
 * same one each time. The first call's options hold.
 *
 * @throws InterlockError `ERR_INTERLOCK_STORE` where it is neither kind, naming what is missing.
 */
export function resolveStore(store: StateStore, options: AdaptOptions = {}): AtomicStateStore {
  if (isAtomicStore(store)) return store;
  const known = adapted.get(store);
  if (known) return known;
  const adapter = adaptStateStore(store, options);
  adapted.set(store, adapter);
  return adapter;
}

/** Methods may be inherited: a store is often an object of a class. */
function missingOf(store: unknown, names: readonly string[]): string[] {
  if (typeof store !== 'object' || store === null) return [...names];
  return names.filter((name) => typeof Reflect.get(store, name) !== 'function');
}

function notAStore(store: unknown): InterlockError {
  const wrapper = storeForClient(store);
  if (wrapper !== undefined) {
    const message = `the store is a driver's client, not a store: wrap it in ${wrapper}`;
    return new InterlockError('ERR_INTERLOCK_STORE', message);
  }
  // Not its value: a connection string has a password in it.
  const kind = store === null || store === undefined ? String(store) : typeof store;
  const given = kind === 'object' ? 'the store' : `the store is of type ${kind}, which`;
  const [plain, atomic] = [missingOf(store, PLAIN), missingOf(store, ATOMIC)].map(quoteNames);
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `${given} is no store: to be an FsmStateStore it lacks ${plain}; to be an AtomicStateStore it lacks ${atomic}`,
  );
}

function limitsOf(store: FsmStateStore): string {
  const limits = 'the store has only load and save, so steps are exact within one process only';
  const missing = missingOf(store, ATOMIC);
  if (missing.length === ATOMIC.length)
    return `${limits}; an AtomicStateStore makes them exact across processes`;
  return `${limits}; to be an AtomicStateStore it lacks ${quoteNames(missing)}`;
}

function emitWarning(warning: string): void {
  process.emitWarning(warning, 'InterlockWarning');
}
