import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { InterlockError, quoteNames } from '../errors.ts';
import { functionOption, kindOf, parseOptions } from '../options.ts';
import { RunTable } from './memory-store.ts';
import {
  claimStep,
  commitStep,
  isFresh,
  lastEntries,
  liveUntil,
  openedAgain,
  type RunState,
  recordOf,
  releaseStep,
  renewStep,
  ttlOfLook,
  type WorkflowState,
  withEntry,
  workflowAt,
} from './run-state.ts';
import { type SavedRun, SavedRuns, type SavedSession } from './saved-runs.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  FsmStateStore,
  OpenResult,
  ReleaseOptions,
  RunKey,
  RunRecord,
  SessionRecord,
  StateStore,
  TrailDraft,
  TrailEntry,
} from './store.ts';

export interface AdaptOptions {
  /** The clock for leases and expiry, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Is told once, at the start, what the store cannot do. Default `process.emitWarning`. */
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

/** One adapter for each store: two adapters of one store would not see each other's claims. */
const adapted = new WeakMap<FsmStateStore, AtomicStateStore>();

/**
 * Makes steps exact within this process on a store that can only `load` and `save`. It saves the
 * run's session under `session:<run>`, and each workflow's snapshot under `<workflow>:<run>`.
 * Claims, idempotency keys and the trail (the last 50 entries of each workflow) live in this
 * process.
 *
 * An operation costs one load for the session and one for each workflow of the run; a commit costs
 * one save. The adapter saves a run in use again whenever a tenth of its time to live has passed. A
 * backend's own expiry must be no shorter than the time to live.
 *
 * A run of which a snapshot is missing was evicted, and is unknown. A malformed snapshot is an
 * error. Use one adapter for a store, as {@link resolveStore} does.
 */
export function adaptStateStore(
  store: FsmStateStore,
  options: AdaptOptions = {},
): AtomicStateStore {
  const { now, onWarning } = parseOptions('adaptStateStore()', optionsSchema, options);
  if (missingOf(store, PLAIN).length > 0) throw notAStore(store);
  onWarning(limitsOf(store));
  return new AdaptedStore(store, now);
}

/** Whether the store has every operation that makes steps exact across processes. */
export function isAtomicStore(store: StateStore): store is AtomicStateStore {
  return missingOf(store, ATOMIC).length === 0;
}

/**
 * The store as an {@link AtomicStateStore}: itself if it is one, else its adapter. The first call
 * makes the adapter with its options, and later calls get the same one.
 *
 * @throws InterlockError `ERR_INTERLOCK_STORE` where it is neither kind of store; the message names
 * the missing methods.
 */
export function resolveStore(store: StateStore, options: AdaptOptions = {}): AtomicStateStore {
  if (isAtomicStore(store)) return store;
  const known = adapted.get(store);
  if (known) return known;
  const adapter = adaptStateStore(store, options);
  adapted.set(store, adapter);
  return adapter;
}

/** Counts inherited methods: a store is often an object of a class. */
function missingOf(store: unknown, names: readonly string[]): string[] {
  if (typeof store !== 'object' || store === null) return [...names];
  return names.filter((name) => typeof Reflect.get(store, name) !== 'function');
}

function notAStore(store: unknown): InterlockError {
  const kind = kindOf(store);
  if (kind?.store !== undefined) {
    const message = `the store is ${kind.name}, not a store: wrap it in ${kind.store}`;
    return new InterlockError('ERR_INTERLOCK_STORE', message);
  }
  // Not its value: a connection string has a password in it.
  const type = store === null || store === undefined ? String(store) : typeof store;
  const given = type === 'object' ? 'the store' : `the store is of type ${type}, which`;
  const [plain, atomic] = [missingOf(store, PLAIN), missingOf(store, ATOMIC)].map(quoteNames);
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `${given} is no store: to be an FsmStateStore it lacks ${plain}; ` +
      `to be an AtomicStateStore it lacks ${atomic}`,
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

/** What only this process knows of a run: claims, keys, tokens and trail. */
interface Kept {
  readonly workflows: Map<string, WorkflowState>;
  /** Workflows whose last save failed. It may have arrived all the same: overwrite it. */
  readonly unsure: Set<string>;
  expiresAt: number;
}

/** A run during one operation: what the store saved, and what this process keeps. */
interface AdaptedRun extends Omit<Kept, 'expiresAt'>, Pick<RunState, 'session' | 'openedBy'> {
  readonly key: string;
  /** `undefined` where this operation makes the run. */
  saved: SavedSession | undefined;
}

const RUNS_KEPT = 10_000;

/**
 * Operations made of loads and saves; the queue of this process keeps them apart. Each saves first
 * and remembers afterwards, so that a failed save changes nothing.
 */
class AdaptedStore implements AtomicStateStore {
  readonly #saved: SavedRuns;
  readonly #now: () => number;
  readonly #queue = new KeyedQueue();
  readonly #kept: RunTable<Kept>;

  constructor(store: FsmStateStore, now: () => number) {
    this.#saved = new SavedRuns(store);
    this.#now = now;
    this.#kept = new RunTable({ maxRuns: RUNS_KEPT, now, isPinned });
  }

  open(key: string, session: SessionRecord, ttlMs: number, token?: string): Promise<OpenResult> {
    return this.#queue.run(key, async () => {
      const known = await this.#load(key);
      if (known) return openedAgain(known, token);
      await this.#refresh(newRun(key, session, token), ttlMs);
      return { status: 'opened' };
    });
  }

  read(key: string, ttlMs: number, about?: string): Promise<RunRecord | undefined> {
    return this.#queue.run(key, async () => {
      const run = await this.#load(key);
      if (!run) return undefined;
      await this.#refresh(run, ttlOfLook(run, ttlMs, about));
      return recordOf(run, this.#now());
    });
  }

  claim(request: ClaimRequest): Promise<ClaimResult> {
    return this.#queue.run(request.run, async () => {
      const known = await this.#load(request.run);
      if (!known && !request.create) return { status: 'unknown' };
      const run = known ?? newRun(request.run, request.create ?? {});
      const { result, next, ttlMs } = claimStep(run, request, this.#now(), randomUUID);
      if (next) run.workflows.set(request.workflow, next);
      await this.#refresh(run, ttlMs);
      return result;
    });
  }

  commit(request: CommitRequest): Promise<CommitResult> {
    return this.#queue.run(request.run, async () => {
      const run = await this.#load(request.run);
      if (!run) return { status: 'unknown' };
      await this.#refresh(run, request.ttlMs);
      const { result, next } = commitStep(run, request, this.#now());
      if (next) await this.#commitTo(run, request.workflow, next);
      return result;
    });
  }

  renew({ run, workflow: name }: RunKey, token: string, leaseMs: number): Promise<boolean> {
    return this.#queue.run(run, async () => {
      const kept = this.#kept.get(run);
      const leaseEnd = this.#now() + leaseMs;
      const renewed = kept && renewStep(kept, name, token, leaseEnd);
      if (!renewed) return false;
      kept.workflows.set(name, renewed);
      kept.expiresAt = Math.max(kept.expiresAt, leaseEnd);
      return true;
    });
  }

  release(
    { run, workflow: name }: RunKey,
    token: string,
    options: ReleaseOptions = {},
  ): Promise<void> {
    return this.#queue.run(run, async () => {
      const kept = this.#kept.get(run);
      const released = kept && releaseStep(kept, name, token, options, this.#now());
      if (released) kept.workflows.set(name, released);
    });
  }

  append({ run, workflow: name }: RunKey, entry: TrailDraft): Promise<void> {
    return this.#queue.run(run, async () => {
      const workflows = this.#kept.get(run)?.workflows;
      const workflow = workflows?.get(name);
      if (workflow) workflows?.set(name, withEntry(workflow, entry, this.#now()));
    });
  }

  delete(run: string): Promise<void> {
    return this.#queue.run(run, async () => {
      await this.#saved.end(run, this.#now());
      this.#kept.delete(run);
    });
  }

  history({ run: key, workflow: name }: RunKey, limit = 50): Promise<TrailEntry[]> {
    return this.#queue.run(key, async () => {
      return lastEntries((await this.#load(key))?.workflows.get(name), limit);
    });
  }

  async #load(key: string): Promise<AdaptedRun | undefined> {
    const saved = await this.#saved.load(key);
    const kept = this.#kept.get(key);
    const now = this.#now();
    const expiresAt = Math.max(
      saved?.session.expiresAt ?? now,
      liveUntil(kept?.workflows.values() ?? [], now),
    );
    if (saved && expiresAt > now) return merge(key, saved, kept);
    this.#kept.delete(key);
    return undefined;
  }

  /**
   * Remembers the run, and saves it where a part of it is not saved yet or its expiry must move.
   * Without a time to live a saved run keeps its expiry.
   */
  async #refresh(run: AdaptedRun, ttlMs: number | undefined): Promise<void> {
    const now = this.#now();
    const { expiresAt = now } = run.saved ?? {};
    const isKept = ttlMs === undefined || isFresh(expiresAt, now, ttlMs);
    if (!isSaved(run) || !isKept)
      await this.#save(run, ttlMs === undefined ? expiresAt : now + ttlMs);
    this.#keep(run);
  }

  /**
   * Saves snapshots before the session record, which lists them: so none of those that it lists is
   * an earlier run's. Saves all of them, because a backend may count each key's time to live from
   * its last save. One after the other, so that none is under way when another one fails.
   */
  async #save(run: AdaptedRun, expiresAt: number): Promise<void> {
    const { key, workflows, unsure } = run;
    for (const [name, { snapshot }] of workflows)
      await this.#saved.saveWorkflow(key, name, snapshot);
    unsure.clear();
    await this.#saveSession(run, expiresAt);
  }

  async #saveSession(run: AdaptedRun, expiresAt: number): Promise<void> {
    const { key, workflows, session, openedBy } = run;
    const names = [...workflows.keys()];
    const ended = names.filter((name) => workflows.get(name)?.ended);
    const saved = { ...session, openedBy, workflows: names, ended, expiresAt };
    await this.#saved.saveSession(key, saved, this.#now());
    run.saved = saved;
  }

  /**
   * The workflow is unsure until all of the commit is saved. Only a commit that changes whether the
   * workflow has ended changes the session record.
   */
  async #commitTo(run: AdaptedRun, name: string, next: WorkflowState): Promise<void> {
    const { key, workflows, unsure, saved } = run;
    unsure.add(name);
    await this.#saved.saveWorkflow(key, name, next.snapshot);
    const isSaidToEnd = saved?.ended?.includes(name) ?? false;
    if (saved && isSaidToEnd !== (next.ended ?? false)) {
      const after = { ...run, workflows: new Map(workflows).set(name, next) };
      await this.#saveSession(after, saved.expiresAt);
    }
    unsure.delete(name);
    workflows.set(name, next);
  }

  #keep({ key, workflows, unsure, saved }: AdaptedRun): void {
    const expiresAt = liveUntil(workflows.values(), saved?.expiresAt ?? 0);
    this.#kept.set(key, { workflows, unsure, expiresAt });
  }
}

function newRun(key: string, { principal, minted }: SessionRecord, openedBy?: string): AdaptedRun {
  return {
    key,
    session: { principal, minted },
    openedBy,
    saved: undefined,
    workflows: new Map(),
    unsure: new Set(),
  };
}

/** The saved snapshot counts, unless it may come from a save that seemed to fail. */
function merge(key: string, { session, snapshots }: SavedRun, kept: Kept | undefined): AdaptedRun {
  const run = {
    ...newRun(key, session, session.openedBy),
    saved: session,
    unsure: new Set(kept?.unsure),
  };
  for (const [name, saved] of snapshots) {
    const known = kept?.workflows.get(name);
    const fromOutside = workflowAt(saved, session.ended?.includes(name) || undefined);
    if (known === undefined) run.workflows.set(name, fromOutside);
    else if (run.unsure.has(name)) run.workflows.set(name, known);
    else run.workflows.set(name, { ...known, snapshot: fromOutside.snapshot });
  }
  return run;
}

function isSaved({ saved, workflows, unsure }: AdaptedRun): boolean {
  return saved !== undefined && workflows.size === saved.workflows.length && unsure.size === 0;
}

/** Evicting such a run could let a step run twice. It stays until it expires. */
function isPinned({ workflows, unsure }: Kept): boolean {
  const isOpen = ({ claim, unsettled }: WorkflowState) =>
    claim !== undefined || unsettled.length > 0;
  return unsure.size > 0 || [...workflows.values()].some(isOpen);
}

/** Runs the operations of one key one after the other, and those of other keys meanwhile. */
export class KeyedQueue {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** How many keys have operations that wait or run. */
  get size(): number {
    return this.#tails.size;
  }

  /** Starts `operation` once all earlier ones of the key have settled, and settles as it does. */
  run<T>(key: string, operation: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    const result = before.then(operation, operation);
    this.#tails.set(key, result);
    const forget = () => {
      if (this.#tails.get(key) === result) this.#tails.delete(key);
    };
    result.then(forget, forget);
    return result;
  }
}
